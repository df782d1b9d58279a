//! The `log` crate's way to the host.

use log::{LevelFilter, Log, Metadata, Record, kv};

use crate::sys;

/// Makes the host the place where `log::info!` and its like go, with their module as the field `target`. Whoever installed a logger before keeps it.
pub(crate) fn install() {
    if log::set_logger(&HostLogger).is_ok() {
        // The host says per line what it takes, since that can change while an instance lives.
        log::set_max_level(LevelFilter::Trace);
    }
}

struct HostLogger;

impl Log for HostLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        sys::log_enabled(metadata.level())
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut fields = Fields(vec![("target".to_owned(), record.target().to_owned())]);
        // The visitor never fails.
        let _ = record.key_values().visit(&mut fields);
        sys::log(record.level(), &record.args().to_string(), &fields.0);
    }

    fn flush(&self) {}
}

struct Fields(Vec<(String, String)>);

impl<'kvs> kv::VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: kv::Key<'kvs>, value: kv::Value<'kvs>) -> Result<(), kv::Error> {
        self.0.push((key.to_string(), value.to_string()));
        Ok(())
    }
}
