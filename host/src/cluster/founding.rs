//! What a cluster begins with: the first revision of one to which nothing was deployed yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use quarry_core::deploy::ModuleSpec;
use serde_json::Value;

use super::node::Node;
use super::start::{StartError, validate};
use crate::deploy::objects::digest;
use crate::deploy::{DeployError, Draft, Founded, Loader};
use crate::guest::Limits;

/// A component that a cluster is to begin with.
pub(super) struct Founding {
    component: Bytes,
    loader: Arc<dyn Loader>,
}

impl Founding {
    pub fn new(component: Bytes, loader: Arc<dyn Loader>) -> Self {
        Self { component, loader }
    }

    /// Makes it the first revision, where there is none. It has to run here: a cluster does not begin with what does not.
    pub async fn carry_out(&self, node: &Node) -> Result<(), StartError> {
        let Ok(deployed) = node.deployed() else {
            return Ok(());
        };
        let objects = &deployed.objects;
        let (name, options) = (&node.config.module.name, &node.config.module.options);
        let options = Value::Object(options.clone()).to_string();
        let founded = async {
            if objects
                .rollout()
                .await
                .map_err(DeployError::from)?
                .is_none()
            {
                self.check(node, name, &options).await?;
            }
            let module = ModuleSpec {
                name: name.clone(),
                digest: digest(&self.component),
                size: self.component.len() as u64,
                options,
                limits: BTreeMap::new(),
                grants: node.config.module.grants.iter().cloned().collect(),
                prefix: String::new(),
            };
            let draft = Draft {
                modules: vec![module],
                author: node.node.to_string(),
                note: "what the cluster was started with".into(),
            };
            Ok(objects.found(self.component.clone(), draft).await?)
        };
        match founded.await {
            Ok(Founded::New { revision }) => {
                tracing::info!(
                    event = "deploy.founded",
                    cluster = &*node.cluster,
                    revision,
                    "the cluster begins with this module"
                );
            }
            Ok(Founded::Same { .. }) => {}
            Ok(Founded::Other { revision }) => {
                tracing::warn!(
                    event = "deploy.other_module",
                    cluster = &*node.cluster,
                    revision,
                    "the cluster runs another module, or the same with other options or grants, and goes on with that: `module.path`, `module.options` and `module.grants` (--module, --option, --grant) are what a cluster begins with. `quarry deploy` rolls them out"
                );
            }
            // The node follows the record, and tells what is wrong with it until somebody repairs it.
            Err(StartError::Deploy(error)) if !error.is_transient() => {
                tracing::error!(event = "deploy.not_founded", cluster = &*node.cluster, %error, "what lies in the bucket does not tell whether the cluster has a module");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn check(&self, node: &Node, name: &str, options: &str) -> Result<(), StartError> {
        let limits = Arc::new(Limits::from(&*node.config));
        let loaded = self.loader.load(self.component.clone(), name, 1, limits);
        let module = loaded.await.map_err(|reason| StartError::Guest {
            module: name.into(),
            reason,
        })?;
        validate(&module, options).await
    }
}
