//! What `wit-bindgen` makes of `wit/`. One small world per optional export, so that a component exports exactly what its
//! guest asked for: wit-component merges the worlds whose export macros a guest invoked.
//!
//! Only [`export!`](crate::export) uses this module from outside of the crate.

#![allow(missing_docs, reason = "generated code")]

/// The imports, and the required export.
pub mod handler {
    wit_bindgen::generate!({
        path: "wit",
        world: "guest",
        pub_export_macro: true,
        generate_all,
    });
}

/// The optional export `queries`.
pub mod queries {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package quarry:sdk-queries; world sdk-queries { export quarry:shard/queries@0.1.0; }",
        world: "sdk-queries",
        pub_export_macro: true,
        with: { "quarry:shard/types@0.1.0": crate::bindings::handler::quarry::shard::types },
    });
}

/// The optional export `lifecycle`.
pub mod lifecycle {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package quarry:sdk-lifecycle; world sdk-lifecycle { export quarry:shard/lifecycle@0.1.0; }",
        world: "sdk-lifecycle",
        pub_export_macro: true,
        with: { "quarry:shard/types@0.1.0": crate::bindings::handler::quarry::shard::types },
    });
}

/// The optional export `handoff`.
pub mod handoff {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package quarry:sdk-handoff; world sdk-handoff { export quarry:shard/handoff@0.1.0; }",
        world: "sdk-handoff",
        pub_export_macro: true,
        with: { "quarry:shard/types@0.1.0": crate::bindings::handler::quarry::shard::types },
    });
}

/// The optional export `migration`.
pub mod migration {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package quarry:sdk-migration; world sdk-migration { export quarry:shard/migration@0.1.0; }",
        world: "sdk-migration",
        pub_export_macro: true,
        with: { "quarry:shard/types@0.1.0": crate::bindings::handler::quarry::shard::types },
    });
}

/// The optional export `options`.
pub mod options {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package quarry:sdk-options; world sdk-options { export quarry:shard/options@0.1.0; }",
        world: "sdk-options",
        pub_export_macro: true,
    });
}

/// The optional export `durable-events`.
pub mod durable_events {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package quarry:sdk-durable-events; world sdk-durable-events { export quarry:shard/durable-events@0.1.0; }",
        world: "sdk-durable-events",
        pub_export_macro: true,
    });
}

/// The optional export `timer-events`.
pub mod timer_events {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package quarry:sdk-timer-events; world sdk-timer-events { export quarry:shard/timer-events@0.1.0; }",
        world: "sdk-timer-events",
        pub_export_macro: true,
        with: { "quarry:shard/types@0.1.0": crate::bindings::handler::quarry::shard::types },
    });
}
