//! Tries out what a store promises before data is trusted to it.
//!
//! A store that takes a second create, or an update with a stale etag, loses data without an error: nothing else would
//! notice. The checks cost about 25 small requests on scratch keys under `<path>/_quarry/probe/`, which are removed again.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload, PutResult, UpdateVersion,
};
use serde::Serialize;

use super::{Error, Store, StoreKind};
use crate::clock;

/// How many creates race for one key.
const RACERS: usize = 8;
/// The metadata key that SlateDB uses to tell its own put from another's.
const ATTRIBUTE: &str = "slatedbputid";

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As promised.
    Passed,
    /// Not as hoped, and safe.
    Warned,
    /// Data would be at risk.
    Failed,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its stable name.
    pub name: &'static str,
    /// What it found.
    pub outcome: Outcome,
    /// What was seen, in words.
    pub detail: String,
    /// How long it took.
    #[serde(rename = "took_us", serialize_with = "micros")]
    pub took: Duration,
}

/// What a probe found. Checks that come after one which makes them pointless are absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProbeReport {
    /// The store, without credentials.
    pub store: String,
    /// The checks, in the order in which they ran.
    pub checks: Vec<Check>,
}

impl ProbeReport {
    /// Whether no check failed. Warnings pass.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failure().is_none()
    }

    /// The report as a result.
    ///
    /// # Errors
    ///
    /// [`Error::Probe`] for the first check that failed: it names the store, the check, and what to do.
    pub fn into_result(self) -> Result<Self, Error> {
        match self.failure() {
            None => Ok(self),
            Some(check) => Err(Error::Probe {
                check: check.name,
                detail: check.detail.clone(),
                advice: advice(check.name),
                store: self.store,
            }),
        }
    }

    fn failure(&self) -> Option<&Check> {
        self.checks
            .iter()
            .find(|check| check.outcome == Outcome::Failed)
    }
}

/// Runs the checks under `<path>/_quarry/probe/`, in at most `deadline` (cleaning up may take a second more).
///
/// Costs about 25 requests. Never fails as a call: see [`ProbeReport::into_result`].
pub async fn probe(store: &Store, path: &str, deadline: Duration) -> ProbeReport {
    let scratch = store.path(&format!(
        "{path}/_quarry/probe/{:032x}",
        rand::random::<u128>()
    ));
    let mut run = Run {
        store,
        scratch,
        checks: Vec::new(),
        current: "create",
        since: crate::clock::now(),
    };
    if clock::timeout(deadline, run.all()).await.is_err() {
        let detail = format!("no answer within the {deadline:?} that all checks together may take");
        run.record(Outcome::Failed, detail);
    }
    run.clean_up().await;
    ProbeReport {
        store: store.to_string(),
        checks: run.checks,
    }
}

struct Run<'a> {
    store: &'a Store,
    scratch: Path,
    checks: Vec<Check>,
    current: &'static str,
    since: std::time::Instant,
}

/// What a check found wrong, in words.
type Found = Result<String, String>;

impl Run<'_> {
    async fn all(&mut self) {
        self.begin("create");
        let found = self.create().await;
        let first = self.settle(found);
        let Some(first) = first else { return };
        self.begin("second create");
        let found = self.second_create().await;
        self.settle(found);
        self.begin("racing creates");
        let found = self.racing_creates().await;
        self.settle(found);
        self.begin("read back");
        let found = self.read_back().await;
        self.settle(found);
        let seen = first.e_tag.clone();
        self.begin("conditional read");
        let found = self.conditional_read(seen).await;
        self.end(found);
        self.begin("attributes");
        let (outcome, detail) = self.attributes().await;
        self.record(outcome, detail);
        self.begin("update");
        let found = self.update(first.clone().into(), "second").await;
        let updated = found.is_ok();
        self.end(found.map(|_| "an update with the present etag was taken".to_owned()));
        if updated {
            self.begin("stale update");
            let found = self.stale_update(first.into()).await;
            self.end(found);
        }
        self.begin("list");
        let found = self.list().await;
        self.settle(found);
        self.begin("delete");
        let found = self.delete().await;
        self.settle(found);
    }

    async fn create(&self) -> Result<(String, PutResult), String> {
        let result = self
            .put(&self.key("object"), "first", PutMode::Create)
            .await
            .map_err(seen)?;
        Ok(("a new object was created".to_owned(), result))
    }

    async fn second_create(&self) -> Result<(String, ()), String> {
        match self.put(&self.key("object"), "intruder", PutMode::Create).await {
            Err(object_store::Error::AlreadyExists { .. }) => Ok(("creating it again was refused".to_owned(), ())),
            Ok(_) => Err("creating an object that exists was accepted: two owners of one shard could both write".to_owned()),
            Err(error) => Err(format!("creating it again gave another error than \"already exists\": {error}")),
        }
    }

    async fn racing_creates(&self) -> Result<(String, ()), String> {
        let key = self.key("race");
        let bodies: Vec<String> = (0..RACERS).map(|racer| format!("racer {racer}")).collect();
        let results = join_all(
            bodies
                .iter()
                .map(|body| self.put(&key, body, PutMode::Create)),
        )
        .await;
        let winners: Vec<&String> = bodies
            .iter()
            .zip(&results)
            .filter(|(_, result)| result.is_ok())
            .map(|(body, _)| body)
            .collect();
        let [winner] = winners[..] else {
            let error = results.iter().find_map(|result| match result {
                Err(object_store::Error::AlreadyExists { .. }) | Ok(_) => None,
                Err(error) => Some(format!(" ({error})")),
            });
            return Err(format!(
                "of {RACERS} creates at once {} succeeded instead of 1{}",
                winners.len(),
                error.unwrap_or_default()
            ));
        };
        let kept = self.get(&key).await.map_err(seen)?;
        if kept != winner.as_bytes() {
            return Err("the create that succeeded is not the one whose body was kept".to_owned());
        }
        Ok((format!("of {RACERS} creates at once 1 succeeded"), ()))
    }

    async fn read_back(&self) -> Result<(String, ()), String> {
        let body = self.get(&self.key("object")).await.map_err(seen)?;
        if body != "first" {
            return Err("a read returned other bytes than were written last".to_owned());
        }
        Ok(("a read returned what was written".to_owned(), ()))
    }

    async fn conditional_read(&self, e_tag: Option<String>) -> Found {
        let e_tag = e_tag.ok_or("a put returned no etag")?;
        let options = GetOptions {
            if_none_match: Some(e_tag),
            ..GetOptions::default()
        };
        match self.objects().get_opts(&self.key("object"), options).await {
            Err(object_store::Error::NotModified { .. }) => {
                Ok("a read of an unchanged object was answered so".to_owned())
            }
            Ok(_) => Err(
                "a conditional read (If-None-Match) returned an object that had not changed"
                    .to_owned(),
            ),
            Err(error) => Err(seen(error)),
        }
    }

    async fn attributes(&self) -> (Outcome, String) {
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::Metadata(ATTRIBUTE.into()), "probe".into());
        let options = PutOptions {
            mode: PutMode::Create,
            attributes: attributes.clone(),
            ..PutOptions::default()
        };
        let put = self
            .objects()
            .put_opts(&self.key("attributes"), "attributes".into(), options)
            .await;
        let kept = match put {
            Ok(_) => self
                .objects()
                .get(&self.key("attributes"))
                .await
                .map(|result| result.attributes),
            Err(error) => Err(error),
        };
        match kept {
            Ok(kept)
                if kept.get(&Attribute::Metadata(ATTRIBUTE.into()))
                    == attributes.get(&Attribute::Metadata(ATTRIBUTE.into())) =>
            {
                (Outcome::Passed, "user metadata is kept".to_owned())
            }
            Ok(_) if self.store.kind() == StoreKind::File => (
                Outcome::Passed,
                "user metadata is not kept, and not needed where no reply can be lost".to_owned(),
            ),
            Ok(_) => (
                Outcome::Warned,
                format!("user metadata is not kept: {SPURIOUS}"),
            ),
            Err(error) => (
                Outcome::Warned,
                format!("user metadata cannot be written or read ({error}): {SPURIOUS}"),
            ),
        }
    }

    async fn update(
        &self,
        version: UpdateVersion,
        body: &'static str,
    ) -> Result<PutResult, String> {
        match self
            .put(&self.key("object"), body, PutMode::Update(version))
            .await
        {
            Ok(result) => Ok(result),
            Err(object_store::Error::Precondition { .. }) => {
                Err("an update with the present etag (If-Match) was refused".to_owned())
            }
            Err(error) => Err(seen(error)),
        }
    }

    async fn stale_update(&self, version: UpdateVersion) -> Found {
        match self.put(&self.key("object"), "third", PutMode::Update(version)).await {
            Err(object_store::Error::Precondition { .. }) => Ok("an update with a stale etag was refused".to_owned()),
            Ok(_) => Err("an update with a stale etag (If-Match) was accepted: two nodes could hold one lease".to_owned()),
            Err(error) => Err(format!("an update with a stale etag gave another error than \"precondition failed\": {error}")),
        }
    }

    async fn list(&self) -> Result<(String, ()), String> {
        let key = self.key("object");
        let found: Vec<_> = self
            .objects()
            .list(Some(&self.scratch))
            .try_collect()
            .await
            .map_err(seen)?;
        if !found.iter().any(|object| object.location == key) {
            return Err("a listing does not show an object written before".to_owned());
        }
        Ok(("a listing shows what was written".to_owned(), ()))
    }

    async fn delete(&self) -> Result<(String, ()), String> {
        let key = self.key("object");
        self.objects().delete(&key).await.map_err(seen)?;
        match self.objects().get(&key).await {
            Err(object_store::Error::NotFound { .. }) => {
                Ok(("a deleted object is gone".to_owned(), ()))
            }
            Ok(_) => Err("a deleted object can still be read".to_owned()),
            Err(error) => Err(seen(error)),
        }
    }

    fn objects(&self) -> std::sync::Arc<dyn ObjectStore> {
        self.store.objects()
    }

    fn key(&self, name: &'static str) -> Path {
        self.scratch.clone().join(name)
    }

    async fn put(&self, key: &Path, body: &str, mode: PutMode) -> object_store::Result<PutResult> {
        let payload = PutPayload::from(Bytes::copy_from_slice(body.as_bytes()));
        self.objects()
            .put_opts(key, payload, PutOptions::from(mode))
            .await
    }

    async fn get(&self, key: &Path) -> object_store::Result<Bytes> {
        self.objects().get(key).await?.bytes().await
    }

    fn settle<T>(&mut self, found: Result<(String, T), String>) -> Option<T> {
        let (found, value) = match found {
            Ok((detail, value)) => (Ok(detail), Some(value)),
            Err(detail) => (Err(detail), None),
        };
        self.end(found);
        value
    }

    fn begin(&mut self, name: &'static str) {
        self.current = name;
        self.since = crate::clock::now();
    }

    fn end(&mut self, found: Found) {
        match found {
            Ok(detail) => self.record(Outcome::Passed, detail),
            Err(detail) => self.record(Outcome::Failed, detail),
        }
    }

    fn record(&mut self, outcome: Outcome, detail: String) {
        self.checks.push(Check {
            name: self.current,
            outcome,
            detail,
            took: self.since.elapsed(),
        });
    }

    /// What stays behind when this fails is a few bytes under a name that nothing else uses.
    async fn clean_up(&self) {
        let keys = ["object", "race", "attributes"].map(|name| Ok(self.key(name)));
        let deleted = self
            .objects()
            .delete_stream(futures::stream::iter(keys).boxed());
        let _ = clock::timeout(CLEAN_UP, deleted.for_each(|_| std::future::ready(()))).await;
    }
}

const CLEAN_UP: Duration = Duration::from_secs(1);

const SPURIOUS: &str =
    "after a lost reply a shard may take its own write for another owner's and reopen";

fn advice(check: &str) -> &'static str {
    match check {
        "second create" | "racing creates" => {
            "Use a store that enforces If-None-Match on puts (Amazon S3, Google Cloud Storage, Azure Blob Storage, SeaweedFS, current MinIO and R2 do)"
        }
        "update" | "stale update" => {
            "Use a store that enforces If-Match on puts (Amazon S3, Google Cloud Storage, Azure Blob Storage, SeaweedFS, current MinIO and R2 do)"
        }
        "read back" | "conditional read" | "list" | "delete" => {
            "Use a store whose reads and listings show the last write at once, and no cache or replica in front of it"
        }
        _ => {
            "Check that its address is right and reachable, that the bucket exists, and that the credentials allow put, get, list and delete under the path"
        }
    }
}

fn seen(error: impl Display) -> String {
    error.to_string()
}

fn micros<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(took.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
