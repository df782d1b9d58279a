use object_store::ObjectStoreExt;

use super::*;

fn open(url: &str, options: &[(&str, &str)]) -> Result<Store, Error> {
    let options = options
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    Store::open(url, &options)
}

const KEY: &str = "AKIASECRETSECRET";

#[test]
fn remote_urls() {
    let s3 = &[
        ("aws_region", "us-east-1"),
        ("aws_access_key_id", "id"),
        ("aws_secret_access_key", KEY),
    ][..];
    let azure = &[
        ("azure_storage_account_name", "account"),
        ("azure_storage_account_key", "c2VjcmV0"),
    ][..];
    let gcs = &[("google_skip_signature", "true")][..];
    for (url, options, kind, name, prefix) in [
        ("s3://bucket", s3, StoreKind::S3, "s3://bucket", ""),
        (
            "s3://bucket/a/b/",
            s3,
            StoreKind::S3,
            "s3://bucket/a/b",
            "a/b",
        ),
        ("s3a://bucket/a", s3, StoreKind::S3, "s3a://bucket/a", "a"),
        (
            "https://s3.us-east-1.amazonaws.com/bucket/a",
            s3,
            StoreKind::S3,
            "https://s3.us-east-1.amazonaws.com/bucket/a",
            "a",
        ),
        ("gs://bucket/a", gcs, StoreKind::Gcs, "gs://bucket/a", "a"),
        (
            "az://container/a",
            azure,
            StoreKind::Azure,
            "az://container/a",
            "a",
        ),
        (
            "azure://container/a",
            azure,
            StoreKind::Azure,
            "azure://container/a",
            "a",
        ),
        (
            "abfss://container@account.dfs.core.windows.net/a",
            azure,
            StoreKind::Azure,
            "abfss://container@account.dfs.core.windows.net/a",
            "a",
        ),
    ] {
        let store = open(url, options).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(
            (store.kind(), store.prefix().as_ref()),
            (kind, prefix),
            "{url}"
        );
        assert_eq!(store.to_string(), name);
        assert!(!format!("{store:?}").contains(KEY), "{store:?}");
    }
}

#[test]
fn bad_urls_name_the_problem() {
    let long = format!("s3://bucket/{}", "x".repeat(3000));
    for (url, text) in [
        ("", "no scheme"),
        ("bucket", "no scheme"),
        ("ftp://host/a", "\"ftp\" is not the scheme of a store"),
        ("s3:bucket", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("http://example.com/a", "aws_endpoint"),
        ("https://example.com/a", "plain web server"),
        ("memory://host/a", "nothing but a path"),
        ("memory:a?b", "nothing but a path"),
        ("file:", "names no folder"),
        ("file://folder", "two slashes are followed by a host"),
        ("file:///a?b", "%3F"),
        ("s3://bucket/a//b", "empty path segment"),
        (&long, "more than the limit of 2048"),
    ] {
        let error = open(url, &[]).expect_err(url).to_string();
        assert!(
            error.contains(text) && error.contains("valid forms are memory:"),
            "{url}: {error}"
        );
    }
}

#[test]
fn credentials_in_a_url_are_refused_and_not_repeated() {
    for url in [
        format!("s3://{KEY}@bucket/a"),
        format!("s3://id:{KEY}@bucket/a"),
        format!("s3://bucket/a?secret={KEY}"),
        format!("gs://bucket/a#{KEY}"),
        format!("az://container/a?sig={KEY}"),
        format!("az://account:{KEY}@container/a"),
        format!("abfss://container:{KEY}@account.dfs.core.windows.net/a"),
        format!("https://{KEY}@s3.us-east-1.amazonaws.com/bucket"),
        format!("https://container:{KEY}@example.com/a"),
        format!("s3:{KEY}"),
        format!("zz://{KEY}@host"),
    ] {
        let error = open(&url, &[]).expect_err(&url);
        for text in [error.to_string(), format!("{error:?}")] {
            assert!(!text.contains(KEY), "{text}");
        }
        if let Error::Credentials { .. } = error {
            assert!(
                error.to_string().contains("give credentials as options"),
                "{error}"
            );
        } else {
            assert!(matches!(error, Error::Url { .. }), "{error}");
        }
    }
}

#[test]
fn options_are_checked() {
    for (url, option, text) in [
        ("s3://bucket", "aws_regoin", "did you mean \"aws_region\"?"),
        (
            "s3://bucket",
            "AWS_ENDPONT",
            "did you mean \"aws_endpoint\"?",
        ),
        (
            "s3://bucket",
            "azure_storage_account_key",
            "valid options are aws_access_key_id",
        ),
        ("gs://bucket", "aws_region", "google_service_account"),
        ("az://container", "zebra", "azure_storage_account_name"),
        ("memory:", "aws_region", "it has no options"),
        ("file:.", "fsync", "it has no options"),
        ("s3://bucket", "aws_bucket", "the URL names the bucket"),
        ("gs://bucket", "bucket_name", "the URL names the bucket"),
        (
            "az://container",
            "azure_container_name",
            "the URL names the container",
        ),
        ("s3://bucket", "aws_conditional_put", "fencing"),
        ("s3://bucket", "Conditional_Put", "fencing"),
    ] {
        let error = open(url, &[(option, "value")])
            .expect_err(option)
            .to_string();
        assert!(
            error.contains(&format!("{option:?}")) && error.contains(text),
            "{url} {option}: {error}"
        );
    }
    let error = open(
        "s3://bucket",
        &[("aws_allow_http", "perhaps"), ("aws_region", "x")],
    )
    .expect_err("not a boolean");
    assert!(
        error.to_string().contains("s3://bucket") && error.to_string().contains("perhaps"),
        "{error}"
    );
}

#[tokio::test]
async fn memory_is_new_each_time_and_has_prefixes() {
    let (one, two) = (
        open("memory:", &[]).expect("one"),
        open("memory://", &[]).expect("two"),
    );
    one.objects()
        .put(&one.path("a"), "x".into())
        .await
        .expect("put");
    one.clone()
        .objects()
        .head(&one.path("a"))
        .await
        .expect("clones share");
    two.objects()
        .head(&two.path("a"))
        .await
        .expect_err("another store");
    let store = open("memory:///x/y", &[]).expect("prefix");
    assert_eq!(
        (store.to_string().as_str(), store.kind()),
        ("memory:///x/y", StoreKind::Memory)
    );
    for (child, path) in [
        ("", "x/y"),
        ("a", "x/y/a"),
        ("a/b", "x/y/a/b"),
        ("/a//b/", "x/y/a/b"),
    ] {
        assert_eq!(store.path(child).as_ref(), path, "{child}");
    }
}

#[tokio::test]
async fn folders_are_created() {
    let folder = tempfile::tempdir().expect("folder");
    let root = folder.path().canonicalize().expect("root");
    let url = format!("file://{}/new%20one/deep", root.display());
    let store = open(&url, &[]).expect("absolute");
    assert_eq!(
        store.to_string(),
        format!("file://{}/new one/deep", root.display())
    );
    store
        .objects()
        .put(&store.path("a"), "x".into())
        .await
        .expect("put");
    assert!(root.join("new one/deep/a").is_file());
    let error = open(&format!("file://{}/new%20one/deep/a", root.display()), &[])
        .expect_err("a file")
        .to_string();
    assert!(error.contains("deep/a is not a folder"), "{error}");
}

/// Relative folders are relative to the working folder, which a test does not change: it goes up from it instead.
#[test]
fn folders_can_be_relative() {
    let folder = tempfile::tempdir().expect("folder");
    let root = folder.path().canonicalize().expect("root");
    let up = std::env::current_dir()
        .expect("here")
        .components()
        .skip(1)
        .map(|_| "..")
        .collect::<Vec<_>>()
        .join("/");
    for url in [
        format!("file:{up}{}", root.display()),
        format!("file:./{up}{}/x", root.display()),
    ] {
        let store = open(&url, &[]).expect("relative");
        assert!(
            store
                .to_string()
                .starts_with(&format!("file://{}", root.display())),
            "{store}"
        );
    }
}
