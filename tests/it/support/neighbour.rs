//! A shard that has to go on, whatever another one's guest does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quarry::Cluster;
use tokio::task::JoinHandle;

use super::guests::ask;
use super::store::within;

/// Puts a number and gets it back, again and again, each within a deadline.
pub struct Neighbour {
    served: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Neighbour {
    /// Starts calling the shard of `key`, whose guest has `put` and `get`.
    pub fn of(cluster: &Cluster, key: &str) -> Self {
        let served = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (cluster, key) = (cluster.clone(), key.to_owned());
        let (counted, stopped) = (served.clone(), stop.clone());
        let task = tokio::spawn(async move {
            let mut number = 0_u64;
            while !stopped.load(Ordering::SeqCst) {
                number += 1;
                let text = number.to_string();
                ask(&cluster, &key, "put", &text).await;
                assert_eq!(ask(&cluster, &key, "get", "").await, text);
                counted.store(number, Ordering::SeqCst);
            }
        });
        Self { served, stop, task }
    }

    /// How often it was served.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }

    /// Waits until it was served so many times more.
    pub async fn serves(&self, times: u64) {
        let until = self.served() + times;
        within(async {
            while self.served() < until {
                assert!(!self.task.is_finished(), "the neighbour's calls fail");
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Ends the calls.
    pub async fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        within(self.task).await.expect("the neighbour was served");
    }
}
