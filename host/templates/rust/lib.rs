//! Counts per key: a place to start from.

use quarry_guest::prelude::*;

/// One instance lives in each shard. What has to last goes into `db`; fields are a cache that a restart empties.
#[derive(Default)]
struct Counter;

impl Guest for Counter {
    /// Calls of a shard run one at a time, so the read and the write below lose no update. The reply waits by itself
    /// until the write is durable.
    fn call(&mut self, call: Call) -> Result<Reply> {
        match call.method() {
            "increment" => {
                let key = call.required_key()?;
                let count = db::get::<u64>(key)?.unwrap_or(0) + 1;
                db::put(key, count)?;
                log::debug!(count; "counted");
                Ok(Reply::text(count))
            }
            "get" => self.query(call),
            other => Err(Error::unknown_method(other)),
        }
    }

    /// Queries only read, and run in parallel with the calls.
    fn query(&self, call: Call) -> Result<Reply> {
        match call.method() {
            "get" => Ok(Reply::text(db::get::<u64>(call.required_key()?)?.unwrap_or(0))),
            other => Err(Error::unknown_method(other)),
        }
    }
}

quarry_guest::export!(Counter, queries);

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_guest::testing::Host;

    #[test]
    fn counts_each_key() {
        let mut host = Host::new::<Counter>();
        for (key, expected) in [("a", "1"), ("a", "2"), ("b", "1")] {
            assert_eq!(host.call("increment").key(key).run().unwrap().text(), expected);
        }
        assert_eq!(host.call("get").key("a").run().unwrap().text(), "2");
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        let mut host = Host::new::<Counter>();
        assert!(host.call("decrement").key("a").run().is_err());
        assert!(host.call("increment").run().is_err());
    }
}
