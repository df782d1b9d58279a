//! Migrations: their steps, what the old guest does meanwhile, and their bounds.

use std::time::Duration;

use super::super::*;
use crate::{context, db};

/// Rewrites rows of the form `old`, one a step. The key `fails` says of which revision a step fails once it wrote.
#[derive(Default)]
struct Migrating {
    from: Vec<u64>,
    endless: bool,
}

impl Guest for Migrating {
    fn call(&mut self, call: Call) -> Result<Reply> {
        let value = db::get::<String>(call.required_key()?)?;
        if value.as_deref() == Some("old") {
            return Err(Error::new("old-form", "the migration missed a row"));
        }
        Ok(Reply::text(value.unwrap_or_default()))
    }

    fn start(&mut self) -> Result<()> {
        self.endless = context::options_json().contains("endless");
        Ok(())
    }

    fn migrate(&mut self, from_revision: u64) -> Result<bool> {
        self.from.push(from_revision);
        for entry in db::scan_prefix("row/", db::Order::Ascending)? {
            let entry = entry?;
            if entry.value == b"old" {
                db::put(entry.key, "new")?;
                if db::get::<u64>("fails")? == Some(context::revision()) {
                    return Err(Error::new("mine", "on purpose"));
                }
                return Ok(false);
            }
        }
        Ok(!self.endless)
    }
}

/// Writes rows of the old form.
#[derive(Default)]
struct Writing;

impl Guest for Writing {
    fn call(&mut self, call: Call) -> Result<Reply> {
        Ok(Reply::text(db::put(call.required_key()?, "old")?))
    }

    fn stop(&mut self, _: StopReason) {
        db::put("stopped", context::revision()).unwrap();
    }
}

mod migrating {
    crate::export!(super::Migrating, lifecycle, migration);
}
mod writing {
    crate::export!(super::Writing, lifecycle);
}

#[test]
fn a_migration_runs_between_the_calls_of_the_old_guest() {
    let mut host = Host::new::<Writing>();
    for row in ["row/b", "row/c"] {
        host.call("write").key(row).run().unwrap();
    }
    // Behind the row that the first step rewrites, and once more over it.
    let mut between = vec!["row/b", "row/a"];
    host.swap_while::<Migrating>(2, |host| {
        assert_eq!(host.run(|| Ok(context::revision())).unwrap(), 1);
        if let Some(row) = between.pop() {
            host.call("write").key(row).run().unwrap();
        }
    })
    .unwrap();
    assert!(between.is_empty());
    for row in ["row/a", "row/b", "row/c"] {
        assert_eq!(host.call("read").key(row).run().unwrap().text(), "new");
    }
    assert_eq!(host.guest::<Migrating>().from, [1; 5]);
    let stopped = host.run(|| db::get::<u64>("stopped")).unwrap();
    assert_eq!(stopped, Some(1), "the old one, after the last step");
    host.restart().unwrap();
    assert_eq!(host.guest::<Migrating>().from, [0], "nothing is left to do");
}

#[test]
fn a_migration_that_fails_leaves_the_old_guest_and_what_it_wrote() {
    let mut host = Host::new::<Writing>();
    for row in ["row/a", "row/b"] {
        host.call("write").key(row).run().unwrap();
    }
    host.run(|| db::put("fails", 2_u64)).unwrap();
    let error = host.swap::<Migrating>(2).unwrap_err();
    assert_eq!((error.code(), error.message()), ("mine", "on purpose"));
    assert_eq!(host.run(|| Ok(context::revision())).unwrap(), 1);
    assert_eq!(host.run(|| db::get::<u64>("stopped")).unwrap(), None);
    let row = |host: &mut Host, row| host.run(|| db::get::<String>(row)).unwrap().unwrap();
    assert_eq!(row(&mut host, "row/a"), "new");
    assert_eq!(row(&mut host, "row/b"), "old");
    host.call("write").key("row/c").run().unwrap();
    host.swap::<Migrating>(3).unwrap();
    assert_eq!(host.guest::<Migrating>().from, [1; 3], "two rows were left");
}

#[test]
fn a_migration_is_bounded() {
    let limits = Limits {
        migrate_time: Duration::from_millis(5),
        ..Limits::default()
    };
    let endless = Host::builder().limits(limits).options(r#"{"endless":1}"#);
    let error = endless.clone().start::<Migrating>().unwrap_err();
    assert_eq!(error.code(), "limit");
    assert!(
        error.message().contains("(limits.migrate_time 5ms)"),
        "{error}"
    );
    let mut host = endless.start::<Writing>().unwrap();
    let error = host.swap::<Migrating>(2).unwrap_err();
    assert!(error.message().contains("limits.migrate_time"), "{error}");
    host.call("write").key("row/a").run().unwrap();

    let limits = Limits {
        migrate_step_time: Duration::ZERO,
        ..Limits::default()
    };
    let error = Host::builder()
        .limits(limits)
        .start::<Migrating>()
        .unwrap_err();
    assert!(
        error.message().contains("step 1 of the migration")
            && error.message().contains("limits.migrate_step_time (0ns)"),
        "{error}"
    );
}
