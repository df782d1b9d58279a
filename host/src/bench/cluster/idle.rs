//! What idle nodes ask of the store.

use std::time::Duration;

use super::figure::{Figure, Unit};
use super::ring::{self, Requests, Ring};
use super::{Error, Part};
use crate::clock;

const NODES: usize = 3;
/// What opening began is over by then.
const CALM: Duration = Duration::from_secs(10);

/// `seconds` is a multiple of the time between two polls of a database (10), so that none is counted by half.
pub(super) async fn measure(
    ring: &Ring,
    seconds: u32,
    found: &mut impl FnMut(Figure),
) -> Result<(), Error> {
    let members = ring.start_all(NODES).await?;
    tokio::time::sleep(CALM).await;
    let count = || {
        members.iter().fold(Requests::default(), |sum, member| {
            let own = member.requests();
            Requests {
                leases: sum.leases + own.leases,
                data: sum.data + own.data,
            }
        })
    };
    let (before, begun) = (count(), clock::now());
    tokio::time::sleep(Duration::from_secs(u64::from(seconds))).await;
    let (after, elapsed) = (count(), (clock::now() - begun).as_secs_f64());
    let shards = ring.shards();
    let each = |before: u64, after: u64, parts: f64| (after - before) as f64 / elapsed / parts;
    let figure = |what: &str, value| {
        let name = format!("{} layout, {shards} shards: {what}", ring.layout_name());
        Figure::new(Part::Idle, name, value, Unit::PerSecond)
    };
    let leases = each(before.leases, after.leases, NODES as f64);
    let leases = figure("leases, a node", leases);
    found(if ring.renews_nodes() {
        leases
            .at_most(0.4)
            .peers("KCL one write a lease every ~3.3 s; the reference layout 0.84 to 20 a shard")
    } else {
        leases
    });
    let data = figure(
        "SlateDB, a shard",
        each(before.data, after.data, f64::from(shards)),
    );
    found(data.at_most(0.2));
    ring::stop(members).await;
    Ok(())
}
