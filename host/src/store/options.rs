//! The options of each kind of store, checked: `object_store` ignores what it does not know.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::nearest::nearest;
use super::{Error, StoreKind};

const S3: &[&str] = &[
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "aws_region",
    "aws_endpoint",
    "aws_allow_http",
    "aws_virtual_hosted_style_request",
    "aws_s3_express",
    "aws_unsigned_payload",
    "aws_checksum_algorithm",
    "aws_skip_signature",
    "aws_disable_tagging",
    "aws_disable_bulk_delete",
    "aws_request_payer",
    "aws_imdsv1_fallback",
    "aws_metadata_endpoint",
    "aws_container_credentials_relative_uri",
    "aws_container_credentials_full_uri",
    "aws_container_authorization_token_file",
    "aws_web_identity_token_file",
    "aws_role_arn",
    "aws_role_session_name",
    "aws_endpoint_url_sts",
    "aws_server_side_encryption",
    "aws_sse_kms_key_id",
    "aws_sse_bucket_key_enabled",
    "aws_sse_customer_key_base64",
];

const GCS: &[&str] = &[
    "google_service_account",
    "google_service_account_key",
    "google_application_credentials",
    "google_bearer_token",
    "google_base_url",
    "google_skip_signature",
];

const AZURE: &[&str] = &[
    "azure_storage_account_name",
    "azure_storage_account_key",
    "azure_storage_sas_token",
    "azure_storage_token",
    "azure_storage_client_id",
    "azure_storage_client_secret",
    "azure_storage_tenant_id",
    "azure_storage_authority_host",
    "azure_storage_endpoint",
    "azure_storage_use_emulator",
    "azure_allow_http",
    "azure_msi_endpoint",
    "azure_object_id",
    "azure_msi_resource_id",
    "azure_federated_token_file",
    "azure_use_fabric_endpoint",
    "azure_use_azure_cli",
    "azure_skip_signature",
    "azure_disable_tagging",
    "azure_credential_type",
    "azure_storage_encryption_key",
];

/// Those of the HTTP client, for every remote store.
const CLIENT: &[&str] = &[
    "allow_http",
    "allow_invalid_certificates",
    "disable_system_certificates",
    "connect_timeout",
    "timeout",
    "read_timeout",
    "http1_only",
    "http2_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "http2_max_frame_size",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_url",
    "proxy_ca_certificate",
    "proxy_excludes",
    "randomize_addresses",
    "user_agent",
    "default_content_type",
];

/// Options that exist and must not be set, by the end of their names.
const REFUSED: &[(&str, &str)] = &[
    ("bucket", "the URL names the bucket"),
    ("bucket_name", "the URL names the bucket"),
    ("container_name", "the URL names the container"),
    (
        "conditional_put",
        "leases and fencing rest on conditional puts, so they cannot be turned off or changed",
    ),
];

/// Sets every option on the builder of a store's client, in the order of their names.
pub(super) fn apply<B, K: FromStr>(
    kind: StoreKind,
    given: &BTreeMap<String, String>,
    builder: B,
    set: impl Fn(B, K, &str) -> B,
) -> Result<B, Error> {
    given.iter().try_fold(builder, |builder, (option, value)| {
        let name = option.to_ascii_lowercase();
        let key: K = name.parse().map_err(|_| unknown(kind, option))?;
        let plain = name
            .strip_prefix("aws_")
            .or(name.strip_prefix("google_"))
            .or(name.strip_prefix("azure_"));
        if let Some((_, reason)) = REFUSED
            .iter()
            .find(|(refused, _)| plain.unwrap_or(&name) == *refused)
        {
            return Err(Error::RefusedOption {
                option: option.clone(),
                kind,
                reason,
            });
        }
        Ok(set(builder, key, value))
    })
}

/// For the kinds that have no options.
pub(super) fn refuse_all(kind: StoreKind, given: &BTreeMap<String, String>) -> Result<(), Error> {
    match given.keys().next() {
        Some(option) => Err(unknown(kind, option)),
        None => Ok(()),
    }
}

fn unknown(kind: StoreKind, option: &str) -> Error {
    let own = match kind {
        StoreKind::Memory | StoreKind::File => &[],
        StoreKind::S3 => S3,
        StoreKind::Gcs => GCS,
        StoreKind::Azure => AZURE,
    };
    let valid = || own.iter().chain(CLIENT).copied();
    let hint = if own.is_empty() {
        "it has no options".to_owned()
    } else if let Some(near) = nearest(&option.to_ascii_lowercase(), valid()) {
        format!("did you mean {near:?}?")
    } else {
        format!(
            "valid options are {}",
            valid().collect::<Vec<_>>().join(", ")
        )
    };
    Error::UnknownOption {
        option: option.chars().take(64).collect(),
        kind,
        hint,
    }
}

#[cfg(test)]
mod tests {
    use object_store::aws::AmazonS3ConfigKey;
    use object_store::azure::AzureConfigKey;
    use object_store::gcp::GoogleConfigKey;

    use super::*;

    /// A name that we suggest has to be one that `object_store` takes.
    #[test]
    fn every_listed_option_exists() {
        for name in S3.iter().chain(CLIENT) {
            assert!(name.parse::<AmazonS3ConfigKey>().is_ok(), "{name}");
        }
        for name in GCS.iter().chain(CLIENT) {
            assert!(name.parse::<GoogleConfigKey>().is_ok(), "{name}");
        }
        for name in AZURE.iter().chain(CLIENT) {
            assert!(name.parse::<AzureConfigKey>().is_ok(), "{name}");
        }
    }
}
