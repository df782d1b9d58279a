//! Orders whose end is waited for: progress while they last, and what becomes of them when the time is up.

use std::time::Duration;

use serde_json::Value;

use super::{Error, Output};
use crate::client::Client;
use crate::clock;
use crate::config::units::Span;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// How far an order is.
pub(super) enum Step {
    /// It is done: what to say.
    Done(Value),
    /// It goes on: how far it is.
    Going(String),
}

/// Looks until an order is done. Each change of how far it is goes to standard error; a look that fails is made again, as the node that
/// answers may be the one that moves.
pub(super) async fn wait(
    client: &Client,
    within: Duration,
    out: Output,
    path: &str,
    what: &str,
    mut judge: impl FnMut(&Value) -> Step,
) -> Result<Value, Error> {
    let begun = clock::now();
    let mut said = String::new();
    loop {
        let how = match client.get(path).await {
            Ok(answer) => match judge(&answer) {
                Step::Done(value) => return Ok(value),
                Step::Going(how) => how,
            },
            Err(error) if error.is_connection() => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        if how != said {
            if !out.json {
                out.note(&how);
            }
            said = how;
        }
        if clock::now().saturating_duration_since(begun) >= within {
            return Err(Error::Failed(format!(
                "{what} is not done after {}, and goes on: {said}",
                Span(within)
            )));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
