//! What an operator does with the revisions of a cluster, from any of its nodes.

use bytes::Bytes;
use quarry_core::deploy::{Command, Digest, Revision};

use super::Cluster;
use crate::deploy::{
    DeployError, Draft, ModuleObject, Objects, Ordered, Pruned, RolloutOptions, Stored,
};

impl Cluster {
    /// The components, revisions and the rollout record of this cluster, as they lie in its bucket.
    #[must_use]
    pub fn objects(&self) -> Objects {
        Objects::new(&self.node.store, &self.node.config.path)
    }

    /// Stores a component, unless it is there. Answers its digest, and whether it was sent.
    ///
    /// # Errors
    /// When it is empty or too large, or the store fails.
    pub async fn put_module(&self, component: Bytes) -> Result<(Digest, bool), DeployError> {
        Ok(self.objects().put_module(component).await?)
    }

    /// The components in the bucket.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn modules(&self) -> Result<Vec<ModuleObject>, DeployError> {
        Ok(self.objects().modules().await?)
    }

    /// Records a revision without rolling it out.
    ///
    /// # Errors
    /// When a value is out of its bounds, or the store fails.
    pub async fn record_revision(&self, draft: Draft) -> Result<Revision, DeployError> {
        Ok(self.objects().create_revision(draft).await?)
    }

    /// The numbers of all revisions, in rising order.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn revisions(&self) -> Result<Vec<u64>, DeployError> {
        Ok(self.objects().revisions().await?)
    }

    /// A revision.
    ///
    /// # Errors
    /// When there is none of this number, it is unreadable, or the store fails.
    pub async fn revision(&self, number: u64) -> Result<Revision, DeployError> {
        Ok(self.objects().revision(number).await?)
    }

    /// Records a revision and begins to roll it out, unless it would change nothing. Its components are in the bucket already. The nodes
    /// carry it out, whatever becomes of this one.
    ///
    /// # Errors
    /// When another rollout is in progress, a component is missing, a value is out of its bounds, or the store fails.
    pub async fn deploy(
        &self,
        draft: Draft,
        options: &RolloutOptions,
    ) -> Result<Ordered, DeployError> {
        self.follows()?;
        let ordered = self.objects().deploy(draft, options).await;
        self.ordered();
        ordered
    }

    /// Begins to roll out a revision that was recorded before.
    ///
    /// # Errors
    /// As [`Cluster::deploy`], and when there is no such revision.
    pub async fn roll_out(
        &self,
        revision: u64,
        options: &RolloutOptions,
    ) -> Result<Ordered, DeployError> {
        self.follows()?;
        let ordered = self.objects().roll_out(revision, options).await;
        self.ordered();
        ordered
    }

    /// Goes back: aborts the rollout in progress, or else rolls the revision before out.
    ///
    /// # Errors
    /// As [`Cluster::roll_out`], and where there is nothing to go back to.
    pub async fn roll_back(&self, options: &RolloutOptions) -> Result<Ordered, DeployError> {
        self.follows()?;
        let ordered = self.objects().roll_back(options).await;
        self.ordered();
        ordered
    }

    /// Promotes, pauses, resumes or aborts the rollout in progress. Answers what the record says then.
    ///
    /// # Errors
    /// When it makes no sense now, or the store fails.
    pub async fn rollout_command(&self, command: Command) -> Result<Stored, DeployError> {
        self.follows()?;
        let stored = self.objects().order(command).await;
        self.ordered();
        stored
    }

    /// Removes old revisions, and the components that no other one needs; what runs, what it would go back to, and the newest `keep` stay.
    ///
    /// # Errors
    /// For a `keep` of 0, or when the store fails.
    pub async fn prune(&self, keep: usize) -> Result<Pruned, DeployError> {
        self.objects().prune(keep).await
    }

    /// Removes one revision, and the components that no other one needs.
    ///
    /// # Errors
    /// When it is needed, is none, or the store fails.
    pub async fn prune_revision(&self, number: u64) -> Result<Pruned, DeployError> {
        self.objects().prune_revision(number).await
    }
}
