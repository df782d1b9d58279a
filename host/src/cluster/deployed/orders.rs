//! What operators want of what is deployed, from any node.

use std::sync::Arc;

use quarry_core::deploy::Command;

use super::{Deployed, notice};
use crate::cluster::Cluster;
use crate::cluster::node::Node;
use crate::deploy::{DeployError, Draft, Objects, Ordered, RolloutOptions, Stored};

impl Cluster {
    /// Records a revision and orders its rollout, unless it would change nothing. Its components are in the bucket already
    /// ([`Objects::put_module`]). Returns once it is ordered: [`Cluster::rollout_changed`] and [`Cluster::rollout`] tell how it goes.
    ///
    /// # Errors
    /// See [`Objects::deploy`], and [`DeployError::Pinned`] on a node that was started with a guest of its own.
    pub async fn deploy(
        &self,
        draft: Draft,
        options: &RolloutOptions,
    ) -> Result<Ordered, DeployError> {
        let deployed = self.node.deployed()?;
        let ordered = deployed.objects.deploy(draft, options).await;
        self.node.ordered(deployed).await;
        ordered
    }

    /// Orders the rollout of a revision that was recorded before.
    ///
    /// # Errors
    /// See [`Objects::roll_out`], and [`DeployError::Pinned`].
    pub async fn roll_out(
        &self,
        revision: u64,
        options: &RolloutOptions,
    ) -> Result<Ordered, DeployError> {
        let deployed = self.node.deployed()?;
        let ordered = deployed.objects.roll_out(revision, options).await;
        self.node.ordered(deployed).await;
        ordered
    }

    /// Goes back: a rollout in progress is aborted, and otherwise the revision before is rolled out.
    ///
    /// # Errors
    /// See [`Objects::roll_back`], and [`DeployError::Pinned`].
    pub async fn roll_back(&self, options: &RolloutOptions) -> Result<Ordered, DeployError> {
        let deployed = self.node.deployed()?;
        let ordered = deployed.objects.roll_back(options).await;
        self.node.ordered(deployed).await;
        ordered
    }

    /// Promotes, pauses, resumes or aborts the rollout in progress. Gives the record with that in it.
    ///
    /// # Errors
    /// When it makes no sense now, the store fails, and [`DeployError::Pinned`].
    pub async fn rollout_command(&self, command: Command) -> Result<Stored, DeployError> {
        let deployed = self.node.deployed()?;
        let stored = deployed.objects.order(command).await?;
        let counter = stored.record.counter;
        deployed.learn(stored.clone());
        notice(&self.node, counter);
        Ok(stored)
    }

    /// The modules, revisions and the rollout record in the bucket.
    ///
    /// # Errors
    /// [`DeployError::Pinned`] on a node that was started with a guest of its own.
    pub fn objects(&self) -> Result<&Objects, DeployError> {
        Ok(&self.node.deployed()?.objects)
    }
}

impl Node {
    /// # Errors
    /// [`DeployError::Pinned`].
    pub(in crate::cluster) fn deployed(&self) -> Result<&Deployed, DeployError> {
        self.deployed.as_ref().ok_or(DeployError::Pinned)
    }

    /// The record may have changed by an order that was given here: everybody looks at once, this node before its caller goes on.
    async fn ordered(self: &Arc<Self>, deployed: &Deployed) {
        notice(self, u64::MAX);
        deployed.read().await;
    }
}
