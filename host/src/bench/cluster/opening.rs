//! How long a node takes from its start until it serves all shards.

use super::figure::Figure;
use super::ring::{self, Ring};
use super::{Error, Part};
use crate::clock;

pub(super) async fn measure(ring: &Ring, found: &mut impl FnMut(Figure)) -> Result<(), Error> {
    for name in ["databases that are new", "databases that were closed"] {
        let begun = clock::now();
        let node = ring.start("node-1").await?;
        ring.settled(&[&node]).await?;
        found(Figure::time(Part::Open, name, clock::now() - begun));
        ring::stop(vec![node]).await;
    }
    Ok(())
}
