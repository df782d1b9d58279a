//! The object store that a cluster lives in, opened from a URL and options.
//!
//! Everything that is kept lies under one prefix of one store. Requests are bounded: connecting takes at most 5 s, a
//! request 30 s, and a failed one is sent again for at most 20 s (a caller that needs an answer sooner sets its own
//! deadline). Credentials come from options, the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`, as `object_store` reads
//! them) or the machine's own identity, never from the URL, which appears in logs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::SpawnedReqwestConnector;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreScheme, RetryConfig};
use tokio::runtime::Handle;
use url::Url;

pub mod faults;
pub mod file;
pub mod kill_switch;
pub(crate) mod nearest;
mod options;
pub mod probe;

/// How long a remote store is waited for.
#[derive(Clone, Copy)]
struct Patience {
    /// The most times that a request is sent again.
    retries: usize,
    /// The longest time from the first sending of a request within which it is sent again.
    retry_for: Duration,
}

/// For data.
const PATIENCE: Patience = Patience {
    retries: 10,
    retry_for: Duration::from_secs(20),
};
/// For leases. Whoever asks sets the deadline, and asks again.
const LEASE_PATIENCE: Patience = Patience {
    retries: 2,
    retry_for: Duration::from_secs(3),
};
/// And the longest that one sending and connecting may take, where the options do not say.
const LEASE_TIMES: [(&str, &str); 2] = [("timeout", "10s"), ("connect_timeout", "2s")];
/// The longest URL looked at.
const MAX_URL: usize = 2048;

/// The schemes of remote stores that `object_store` knows; of `http:` and `https:` only the hosts of known services.
const SCHEMES: &[&str] = &[
    "s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "https", "http",
];

/// The kinds of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// In this process's memory; a new, empty one for each open.
    Memory,
    /// A folder on a local disk.
    File,
    /// Amazon S3, and what speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

impl StoreKind {
    /// How the documentation and messages call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory:",
            Self::File => "file:",
            Self::S3 => "s3://",
            Self::Gcs => "gs://",
            Self::Azure => "az://",
        }
    }
}

/// Why a store could not be opened or used. No text holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is not one of a store.
    #[error(
        "store URL {url:?}: {problem}; valid forms are memory:, file:///folder, file:folder, s3://bucket/prefix, gs://bucket/prefix and az://container/prefix"
    )]
    Url {
        /// The URL, without its credentials.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The URL holds credentials.
    #[error(
        "store URL {url:?} holds {what}. URLs appear in logs and process lists: give credentials as options (such as {example}) or in the environment"
    )]
    Credentials {
        /// The URL, without them.
        url: String,
        /// Where they are in it.
        what: &'static str,
        /// An option to use instead.
        example: &'static str,
    },
    /// An option that this kind of store does not have.
    #[error("unknown option {option:?} for a {kind} store; {hint}", kind = kind.name())]
    UnknownOption {
        /// The option.
        option: String,
        /// The kind of store.
        kind: StoreKind,
        /// Near or valid options.
        hint: String,
    },
    /// An option that would break the store.
    #[error("option {option:?} of a {kind} store cannot be set: {reason}", kind = kind.name())]
    RefusedOption {
        /// The option.
        option: String,
        /// The kind of store.
        kind: StoreKind,
        /// Why not.
        reason: &'static str,
    },
    /// The options do not make a working client.
    #[error("cannot set up the store {url}: {source}")]
    Setup {
        /// The URL, without credentials.
        url: String,
        /// What the client said.
        source: object_store::Error,
    },
    /// The folder of a `file:` store cannot be used.
    #[error("cannot open the store {url}: {source}")]
    Folder {
        /// The URL.
        url: String,
        /// What is wrong with the folder.
        source: file::Error,
    },
    /// The store answers, but does not keep a promise that the data's safety rests on, or does not answer at all.
    #[error(
        "the store {store} is at fault, not Quarry: its check {check:?} failed ({detail}). {advice}"
    )]
    Probe {
        /// The store, without credentials.
        store: String,
        /// The first check that failed.
        check: &'static str,
        /// What was seen.
        detail: String,
        /// What to do.
        advice: &'static str,
    },
}

/// An open store and the prefix in it that the URL named. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Store {
    kind: StoreKind,
    name: Arc<str>,
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
}

impl Store {
    /// Opens the store that a URL names. Nothing is sent yet to a remote one: see [`probe::probe`].
    ///
    /// URLs: `memory:` (a new store each time), `file:///folder` or `file:folder` (relative to the working folder; created
    /// if absent), `s3://bucket/prefix` (also `s3a:`), `gs://bucket/prefix`, `az://container/prefix` (also `azure:`, `adl:`,
    /// `abfs:`, `abfss:`), and the `https:` addresses of S3, R2 and Azure Blob Storage.
    ///
    /// Options are those of `object_store`, such as `aws_endpoint` and `aws_allow_http`. They win over the environment.
    ///
    /// # Errors
    ///
    /// For a URL that names no store or holds credentials, an option that the kind of store does not have, an option that
    /// would make it unsafe, or a folder that cannot be used.
    pub fn open(url: &str, options: &BTreeMap<String, String>) -> Result<Self, Error> {
        Self::open_on(url, options, None)
    }

    /// As [`Store::open`]; a remote store's connections live on the runtime `io`, whoever makes a request. Without it they live on
    /// the runtime that happened to need one first, and stand still while that one is busy.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn open_on(
        url: &str,
        options: &BTreeMap<String, String>,
        io: Option<Handle>,
    ) -> Result<Self, Error> {
        if url.len() > MAX_URL {
            let problem = format!(
                "it has {} bytes, more than the limit of {MAX_URL}",
                url.len()
            );
            return Err(Error::Url {
                url: url.chars().take(64).collect(),
                problem,
            });
        }
        match scheme(url)? {
            (scheme, rest) if scheme == "memory" => open_memory(url, rest, options),
            (scheme, rest) if scheme == "file" => open_file(url, rest, options),
            _ => open_remote(url, options, io, PATIENCE),
        }
    }

    /// Checks a URL and its options as [`Store::open`] does, and leaves no trace: no folder is made.
    ///
    /// # Errors
    ///
    /// As [`Store::open`], but for a folder that cannot be used.
    pub fn check(url: &str, options: &BTreeMap<String, String>) -> Result<(), Error> {
        match scheme(url)? {
            (scheme, rest) if scheme == "file" => folder(url, rest, options).map(|_| ()),
            _ => Self::open(url, options).map(|_| ()),
        }
    }

    /// The same store for a node's leases: a remote one gets connections of its own, on the runtime `io`, and short patience, since a
    /// renewal that comes late is worth nothing.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn for_leases(
        &self,
        url: &str,
        options: &BTreeMap<String, String>,
        io: Handle,
    ) -> Result<Self, Error> {
        match self.kind {
            // Another memory would be another store, and a folder has no connections.
            StoreKind::Memory | StoreKind::File => Ok(self.clone()),
            _ => {
                let mut options = options.clone();
                for (name, value) in LEASE_TIMES {
                    options.entry(name.into()).or_insert_with(|| value.into());
                }
                open_remote(url, &options, Some(io), LEASE_PATIENCE)
            }
        }
    }

    /// The kind of store.
    #[must_use]
    pub fn kind(&self) -> StoreKind {
        self.kind
    }

    /// The objects, from the root of the store: paths have to start with [`Store::prefix`].
    #[must_use]
    pub fn objects(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.objects)
    }

    /// The prefix that the URL named; empty for the whole store.
    #[must_use]
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The path of `child` (segments separated by `/`) under the prefix.
    #[must_use]
    pub fn path(&self, child: &str) -> Path {
        self.prefix
            .parts()
            .chain(Path::from(child).parts())
            .collect()
    }

    /// The same store with its objects wrapped, say in a [`kill_switch::KillSwitch`] or a [`faults::FaultStore`].
    #[must_use]
    pub fn wrap(&self, wrap: impl FnOnce(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>) -> Self {
        Self {
            objects: wrap(self.objects()),
            ..self.clone()
        }
    }
}

/// The URL without anything secret.
impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.name)
    }
}

/// The scheme of a URL, in lower case, and the rest.
fn scheme(url: &str) -> Result<(String, &str), Error> {
    let split = url.split_once(':');
    let (scheme, rest) = split.ok_or_else(|| Error::Url {
        url: url.to_owned(),
        problem: "it has no scheme".to_owned(),
    })?;
    Ok((scheme.to_ascii_lowercase(), rest))
}

fn open_memory(url: &str, rest: &str, given: &BTreeMap<String, String>) -> Result<Store, Error> {
    options::refuse_all(StoreKind::Memory, given)?;
    let refuse = |problem: String| Error::Url {
        url: url.to_owned(),
        problem,
    };
    if rest.contains(['@', '?', '#'])
        || rest
            .strip_prefix("//")
            .is_some_and(|host| !matches!(host.chars().next(), None | Some('/')))
    {
        return Err(refuse(
            "a memory: store takes nothing but a path".to_owned(),
        ));
    }
    let prefix = Path::parse(rest.trim_matches('/')).map_err(|error| refuse(error.to_string()))?;
    let name = if prefix.as_ref().is_empty() {
        "memory:".to_owned()
    } else {
        format!("memory:///{prefix}")
    };
    Ok(Store {
        kind: StoreKind::Memory,
        name: name.into(),
        objects: Arc::new(InMemory::new()),
        prefix,
    })
}

/// The folder that a URL names.
fn folder(url: &str, rest: &str, given: &BTreeMap<String, String>) -> Result<PathBuf, Error> {
    options::refuse_all(StoreKind::File, given)?;
    let refuse = |problem: &str| Error::Url {
        url: url.to_owned(),
        problem: problem.to_owned(),
    };
    if rest.contains(['?', '#']) {
        return Err(refuse(
            "a folder's URL cannot hold ? or # (write them as %3F and %23)",
        ));
    }
    if rest.starts_with("//") && !rest.starts_with("///") && !rest.starts_with("//localhost/") {
        return Err(refuse(
            "two slashes are followed by a host; write file:folder for a relative folder and file:///folder for an absolute one",
        ));
    }
    if rest.is_empty() {
        return Err(refuse("it names no folder; file:. is the working folder"));
    }
    let here = std::env::current_dir()
        .ok()
        .and_then(|here| Url::from_directory_path(here).ok());
    let full = match here {
        Some(here) if !rest.starts_with('/') => here.join(&format!("./{rest}")),
        None if !rest.starts_with('/') => {
            return Err(refuse(
                "the working folder cannot be read; use an absolute one",
            ));
        }
        _ => Url::parse(&format!("file:{rest}")),
    };
    let full = full.map_err(|error| refuse(&error.to_string()))?;
    let folder = full
        .to_file_path()
        .map_err(|()| refuse("it is not the path of a folder"))?;
    Ok(folder)
}

fn open_file(url: &str, rest: &str, given: &BTreeMap<String, String>) -> Result<Store, Error> {
    let folder = folder(url, rest, given)?;
    let store = file::FileStore::open(&folder).map_err(|source| Error::Folder {
        url: url.to_owned(),
        source,
    })?;
    let name = format!("file://{}", store.root().display());
    Ok(Store {
        kind: StoreKind::File,
        name: name.into(),
        objects: Arc::new(store),
        prefix: Path::default(),
    })
}

fn open_remote(
    text: &str,
    given: &BTreeMap<String, String>,
    io: Option<Handle>,
    patience: Patience,
) -> Result<Store, Error> {
    // Not echoed before it is known to hold no credentials.
    let url = Url::parse(text).map_err(|error| {
        let scheme = text.split(':').next().unwrap_or_default();
        Error::Url {
            url: format!("{scheme}:..."),
            problem: error.to_string(),
        }
    })?;
    if !SCHEMES.contains(&url.scheme()) || url.host_str().is_none() {
        let problem = match url.host_str() {
            None if SCHEMES.contains(&url.scheme()) => "it names no bucket or container".to_owned(),
            _ => format!("{:?} is not the scheme of a store", url.scheme()),
        };
        return Err(Error::Url {
            url: format!("{}:...", url.scheme()),
            problem,
        });
    }
    let name = public_name(&url);
    let refuse = |problem: String| Error::Url {
        url: name.clone(),
        problem,
    };
    let (scheme, prefix) =
        ObjectStoreScheme::parse(&url).map_err(|error| refuse(error.to_string()))?;
    let (kind, example) = match scheme {
        ObjectStoreScheme::AmazonS3 => (StoreKind::S3, "aws_access_key_id and aws_secret_access_key"),
        ObjectStoreScheme::GoogleCloudStorage => (StoreKind::Gcs, "google_service_account"),
        ObjectStoreScheme::MicrosoftAzure => (StoreKind::Azure, "azure_storage_account_key"),
        _ => return Err(refuse("a plain web server cannot keep a cluster's data (for an S3 server at another address use s3://bucket with the option aws_endpoint)".to_owned())),
    };
    refuse_credentials(&url, kind, &name, example)?;
    let setup = |source| Error::Setup {
        url: name.clone(),
        source,
    };
    let retry = RetryConfig {
        max_retries: patience.retries,
        retry_timeout: patience.retry_for,
        ..RetryConfig::default()
    };
    let objects: Arc<dyn ObjectStore> = match kind {
        StoreKind::S3 => {
            let mut builder = AmazonS3Builder::from_env().with_retry(retry);
            if let Some(io) = io {
                builder = builder.with_http_connector(SpawnedReqwestConnector::new(io));
            }
            let set = |builder: AmazonS3Builder, key, value: &str| builder.with_config(key, value);
            Arc::new(
                options::apply(kind, given, builder, set)?
                    .with_url(url.as_str())
                    .build()
                    .map_err(setup)?,
            )
        }
        StoreKind::Gcs => {
            let mut builder = GoogleCloudStorageBuilder::from_env().with_retry(retry);
            if let Some(io) = io {
                builder = builder.with_http_connector(SpawnedReqwestConnector::new(io));
            }
            let set = |builder: GoogleCloudStorageBuilder, key, value: &str| {
                builder.with_config(key, value)
            };
            Arc::new(
                options::apply(kind, given, builder, set)?
                    .with_url(url.as_str())
                    .build()
                    .map_err(setup)?,
            )
        }
        _ => {
            let mut builder = MicrosoftAzureBuilder::from_env().with_retry(retry);
            if let Some(io) = io {
                builder = builder.with_http_connector(SpawnedReqwestConnector::new(io));
            }
            let set =
                |builder: MicrosoftAzureBuilder, key, value: &str| builder.with_config(key, value);
            Arc::new(
                options::apply(kind, given, builder, set)?
                    .with_url(url.as_str())
                    .build()
                    .map_err(setup)?,
            )
        }
    };
    Ok(Store {
        kind,
        name: name.into(),
        objects,
        prefix,
    })
}

/// In `abfss://container@account.dfs.core.windows.net` the user's place holds the container: that one is no secret.
fn refuse_credentials(
    url: &Url,
    kind: StoreKind,
    name: &str,
    example: &'static str,
) -> Result<(), Error> {
    let container =
        kind == StoreKind::Azure && url.host_str().is_some_and(|host| host.contains('.'));
    let what = if url.password().is_some() {
        "a password"
    } else if !url.username().is_empty() && !container {
        "a user name or key"
    } else if url.query().is_some() || url.fragment().is_some() {
        "a query (the place of signatures and keys)"
    } else {
        return Ok(());
    };
    Err(Error::Credentials {
        url: name.to_owned(),
        what,
        example,
    })
}

fn public_name(url: &Url) -> String {
    let container = match url.host_str() {
        Some(host)
            if url.scheme().starts_with("abfs")
                && host.contains('.')
                && !url.username().is_empty() =>
        {
            format!("{}@", url.username())
        }
        _ => String::new(),
    };
    let port = url
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    let path = url.path().trim_end_matches('/');
    format!(
        "{}://{container}{}{port}{path}",
        url.scheme(),
        url.host_str().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests;
