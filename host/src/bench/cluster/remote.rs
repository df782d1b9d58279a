//! What the way to another node costs: an empty call there and one here, in turns.

use std::time::Duration;

use super::figure::{Figure, Times, Unit};
use super::ring::{self, Member, Ring};
use super::{Error, Part};
use crate::call::Durability;
use crate::clock;

const WITHIN: Duration = Duration::from_secs(10);
/// Calls before it counts.
const WARM: u32 = 200;

pub(super) async fn measure(
    ring: &Ring,
    calls: u32,
    found: &mut impl FnMut(Figure),
) -> Result<(), Error> {
    let members = ring.start_all(2).await?;
    let (here, there) = (&members[0], &members[1]);
    let (Some(own), Some(other)) = (
        here.serves().first().copied(),
        there.serves().first().copied(),
    ) else {
        return Err(Error("a node has no shard".into()));
    };
    let (mut local, mut remote) = (Vec::new(), Vec::new());
    for call in 0..calls + WARM {
        let (own, other) = (once(here, own).await?, once(here, other).await?);
        if call >= WARM {
            local.push(own);
            remote.push(other);
        }
    }
    let (local, remote) = (Times::of(local), Times::of(remote));
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let figure = |name: String, value| Figure::new(Part::Remote, name, value, Unit::Micros);
    for (percent, bound) in [(50, Some(200.0)), (99, None)] {
        let (local, remote) = (local.percentile(percent), remote.percentile(percent));
        found(figure(format!("local call, p{percent}"), micros(local)));
        found(figure(format!("remote call, p{percent}"), micros(remote)));
        let over = figure(
            format!("remote over local, p{percent}"),
            micros(remote) - micros(local),
        );
        found(match bound {
            Some(bound) => over
                .at_most(bound)
                .peers("tonic, unary on loopback: ~100 us p50"),
            None => over,
        });
    }
    ring::stop(members).await;
    Ok(())
}

async fn once(member: &Member, shard: u32) -> Result<Duration, Error> {
    let begun = clock::now();
    let called = member
        .call(shard, "empty", Durability::Applied, WITHIN)
        .await;
    called.map_err(|error| Error(error.to_string()))?;
    Ok(clock::now() - begun)
}
