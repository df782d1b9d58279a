#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct Error;
pub fn effective(_: serde_json::Map<String, serde_json::Value>) -> Result<slatedb::config::Settings, Error> {
    Ok(slatedb::config::Settings { flush_interval: None, compactor_options: None, garbage_collector_options: None, manifest_poll_interval: std::time::Duration::from_secs(10), l0_sst_size_bytes: 16<<20, max_unflushed_bytes: 64<<20, l0_max_ssts: 16, object_store_max_retries: Some(5), ..Default::default() })
}
