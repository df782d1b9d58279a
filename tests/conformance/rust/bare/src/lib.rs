//! The reference guest without any optional export: what the suite says of a guest that leaves things out.

#[path = "../../src/broken.rs"]
mod broken;
#[path = "../../src/database.rs"]
mod database;
#[path = "../../src/ends.rs"]
mod ends;
#[path = "../../src/form.rs"]
mod form;
#[allow(dead_code, reason = "what optional exports need")]
#[path = "../../src/script.rs"]
mod script;
#[allow(dead_code, reason = "what optional exports need")]
#[path = "../../src/state.rs"]
mod state;
#[path = "../../src/surroundings.rs"]
mod surroundings;

mod bindings {
    wit_bindgen::generate!({ path: "../../../../wit", world: "guest", generate_all });
}

use bindings::exports::quarry::shard::handler;
use bindings::quarry::shard::types::Error;

struct Bare;

impl handler::Guest for Bare {
    fn call(method: String, key: Option<Vec<u8>>, payload: Vec<u8>) -> Result<Vec<u8>, Error> {
        script::request(&method, key.as_deref(), &payload)
    }
}

bindings::export!(Bare with_types_in bindings);
