//! The reference guest of the conformance kit: what `../README.md` says, over the bare WIT, so that nothing stands between the suite and the host.

mod broken;
mod database;
mod ends;
mod form;
mod script;
mod state;
mod surroundings;

mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "full-guest", generate_all });
}

use bindings::exports::quarry::shard::{
    durable_events, handler, handoff, lifecycle, migration, options, queries, timer_events,
};
use bindings::quarry::shard::db;
use bindings::quarry::shard::types::Error;
use broken::broken;

struct Conformance;

impl handler::Guest for Conformance {
    fn call(method: String, key: Option<Vec<u8>>, payload: Vec<u8>) -> Result<Vec<u8>, Error> {
        script::request(&method, key.as_deref(), &payload)
    }
}

impl queries::Guest for Conformance {
    fn query(method: String, key: Option<Vec<u8>>, payload: Vec<u8>) -> Result<Vec<u8>, Error> {
        script::request(&method, key.as_deref(), &payload)
    }
}

impl lifecycle::Guest for Conformance {
    fn start() -> Result<(), Error> {
        state::note([&b"start"[..]]);
        let outcome = script::stored("on-start").map(drop);
        if broken("start-errors-lost") {
            return Ok(());
        }
        outcome
    }

    fn stop(reason: String) {
        if broken("stop-lost") {
            return;
        }
        // Whatever comes of either: there is nobody to tell.
        _ = script::stored("on-stop");
        _ = db::put(b"stopped", reason.as_bytes());
    }
}

impl options::Guest for Conformance {
    fn validate(options: String) -> Result<(), String> {
        if options.contains("\"refuse\"") && !broken("options-unchecked") {
            return Err(format!("refused: {options}"));
        }
        Ok(())
    }
}

impl durable_events::Guest for Conformance {
    fn durable(mut tags: Vec<u64>) {
        if broken("tags-lost") {
            return;
        }
        if broken("tags-backwards") {
            tags.reverse();
        }
        let event = |tags: &[u64]| {
            let tags = tags.iter().map(|tag| tag.to_string().into_bytes());
            state::note(std::iter::once(b"durable".to_vec()).chain(tags));
        };
        event(&tags);
        if broken("tags-twice") {
            event(&tags);
        }
    }
}

impl timer_events::Guest for Conformance {
    fn fire(name: String, payload: Vec<u8>, mut due_ms: u64) -> Result<(), Error> {
        if broken("due-now") {
            due_ms = surroundings::wall_ms();
        }
        let due = due_ms.to_string();
        state::note([b"fire", name.as_bytes(), &payload, due.as_bytes()]);
        let outcome = script::run(&payload).map(drop);
        if broken("fire-errors-lost") {
            return Ok(());
        }
        outcome
    }
}

impl handoff::Guest for Conformance {
    fn suspend() -> Result<Vec<u8>, Error> {
        script::stored("on-suspend")?;
        if broken("memory-lost") {
            return Ok(Vec::new());
        }
        Ok(state::memory(None))
    }

    fn resume(from_revision: u64, state: Vec<u8>) -> Result<(), Error> {
        state::note(["resume".to_owned(), from_revision.to_string()]);
        let outcome = script::stored("on-resume");
        if !broken("resume-errors-lost") {
            outcome?;
        }
        state::memory(Some(state));
        Ok(())
    }
}

impl migration::Guest for Conformance {
    fn migrate(from_revision: u64) -> Result<bool, Error> {
        state::note(["migrate".to_owned(), from_revision.to_string()]);
        if broken("migrated-at-once") {
            return Ok(true);
        }
        let there = script::stored("on-migrate")?;
        Ok(!there)
    }
}

bindings::export!(Conformance with_types_in bindings);
