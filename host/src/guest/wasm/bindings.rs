//! The imports of the WIT package, as traits that [`super::state::State`] implements.
//!
//! A host function that never waits is sync, which saves a boxed future for each call of it. None of them traps: what goes
//! wrong is an error that the guest gets.

wasmtime::component::bindgen!({
    path: "../wit",
    world: "quarry:shard/imports",
    imports: {
        "quarry:shard/db.get": async | exact,
        "quarry:shard/db.get-versioned": async | exact,
        "quarry:shard/db.get-many": async | exact,
        "quarry:shard/db.put": async | exact,
        "quarry:shard/db.put-for": async | exact,
        "quarry:shard/db.remove": async | exact,
        "quarry:shard/db.merge": async | exact,
        "quarry:shard/db.write": async | exact,
        "quarry:shard/db.scan": async | exact,
        "quarry:shard/db.scan-prefix": async | exact,
        "quarry:shard/db.[method]cursor.next": async | exact,
        "quarry:shard/db.[method]snapshot.get": async | exact,
        "quarry:shard/db.[method]snapshot.get-many": async | exact,
        "quarry:shard/db.[method]snapshot.scan": async | exact,
        "quarry:shard/db.[method]snapshot.scan-prefix": async | exact,
        "quarry:shard/db.[method]transaction.get": async | exact,
        "quarry:shard/db.[method]transaction.get-many": async | exact,
        "quarry:shard/db.[method]transaction.scan": async | exact,
        "quarry:shard/db.[method]transaction.scan-prefix": async | exact,
        "quarry:shard/db.[method]transaction.commit": async | exact,
        "quarry:shard/cluster.call": async | exact,
        "quarry:shard/cluster.call-key": async | exact,
        "quarry:shard/cluster.query": async | exact,
        "quarry:shard/cluster.query-key": async | exact,
        "quarry:shard/timers.set": async | exact,
        "quarry:shard/timers.set-durable": async | exact,
        "quarry:shard/timers.cancel": async | exact,
        "quarry:shard/timers.due-ms": async | exact,
    },
    with: {
        "quarry:shard/db.cursor": crate::db::Cursor,
        "quarry:shard/db.snapshot": crate::db::ReadView,
        "quarry:shard/db.transaction": crate::db::Transaction,
    },
});

pub(super) use self::quarry::shard::{
    cluster, current_call, db, durability, log, metrics, shard, timers, types,
};
