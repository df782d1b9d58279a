//! Load on a cluster that is swapped.

use std::collections::BTreeMap;

use quarry::Cluster;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::guests::shown;
use crate::support::native::call;
use crate::support::store::within;

/// Callers that call until they are told to stop; none of their calls may fail.
pub struct Callers {
    stop: watch::Sender<bool>,
    callers: Vec<JoinHandle<Vec<(String, u64)>>>,
}

impl Callers {
    pub fn start(cluster: &Cluster, count: usize, keys: usize, method: &'static str) -> Self {
        let (stop, stopped) = watch::channel(false);
        let call_on = |n: usize| {
            let (cluster, stopped) = (cluster.clone(), stopped.clone());
            let key = format!("counter-{}", n % keys);
            async move {
                let mut counts = Vec::new();
                while !*stopped.borrow() {
                    let reply = within(call(&cluster, &key, method, "")).await;
                    let count = shown(&reply.expect("no call fails")).parse();
                    counts.push((key.clone(), count.expect("a count")));
                }
                counts
            }
        };
        let callers = (0..count).map(|n| tokio::spawn(call_on(n))).collect();
        Self { stop, callers }
    }

    /// The counts that each key's callers got, in order.
    pub async fn stop(self) -> BTreeMap<String, Vec<u64>> {
        self.stop.send(true).expect("callers");
        let mut counts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for caller in self.callers {
            for (key, count) in within(caller).await.expect("caller") {
                counts.entry(key).or_default().push(count);
            }
        }
        for counts in counts.values_mut() {
            counts.sort_unstable();
        }
        counts
    }
}

/// The counts of each key are 1, 2, 3, ...
pub fn each_counted_once(counts: &BTreeMap<String, Vec<u64>>) {
    for (key, counts) in counts {
        let expected: Vec<u64> = (1..=counts.len() as u64).collect();
        assert_eq!(*counts, expected, "{key}");
    }
}
