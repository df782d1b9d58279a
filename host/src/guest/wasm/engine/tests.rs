use super::super::tests::wat::Wat;
use super::*;

pub(in crate::guest::wasm) fn options(instances: u32) -> (RuntimeOptions, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    (
        RuntimeOptions {
            instances,
            writers: 1,
            compile_threads: 1,
            cache_dir: Some(dir.path().join("cache")),
        },
        dir,
    )
}

#[tokio::test]
async fn a_component_is_compiled_once_however_many_ask() {
    let (options, _dir) = options(4);
    let runtime = Runtime::new(options).expect("an engine");
    let bytes = Bytes::from(Wat::default().build());
    let load = |revision| runtime.load(bytes.clone(), "main".into(), revision, Arc::default());
    let (one, two, three) = tokio::join!(load(1), load(2), load(3));
    let (one, two, three) = (
        one.expect("loaded"),
        two.expect("loaded"),
        three.expect("loaded"),
    );
    assert!(Arc::ptr_eq(&one.slot, &two.slot) && Arc::ptr_eq(&two.slot, &three.slot));
    assert_eq!(
        one.inspection().expect("compiled").digest,
        inspect::digest(&bytes)
    );
    assert_eq!(
        (three.info.revision, three.info.digest.as_ref()),
        (3, inspect::digest(&bytes).as_str())
    );
    assert_eq!(runtime.compiled.lock().expect("lock").len(), 1);

    drop((one, two, three));
    let other = runtime
        .load(
            Wat::call("(unreachable)").into(),
            "main".into(),
            4,
            Arc::default(),
        )
        .await
        .expect("loaded");
    assert_eq!(
        runtime.compiled.lock().expect("lock").len(),
        1,
        "what nobody runs is forgotten"
    );
    drop(other);
}

#[tokio::test]
async fn a_component_that_does_not_fit_is_refused() {
    let (options, _dir) = options(4);
    let runtime = Runtime::new(options).expect("an engine");
    let wrong_type = r#"(import "quarry:shard/shard@0.1.0" (instance (export "number" (func (result string)))))"#;
    for (bytes, code) in [
        (b"no component".to_vec(), "not-wasm"),
        (
            Wat {
                imports: wrong_type,
                ..Wat::default()
            }
            .build(),
            "link-failed",
        ),
    ] {
        for attempt in 0..2 {
            let error = runtime
                .load(bytes.clone().into(), "main".into(), 1, Arc::default())
                .await
                .err()
                .expect("refused");
            assert_eq!(error.code(), code, "attempt {attempt}: {error}");
        }
    }
}

#[tokio::test]
async fn every_wasi_interface_that_is_offered_links() {
    let (options, _dir) = options(4);
    let runtime = Runtime::new(options).expect("an engine");
    for interface in inspect::WASI_IMPORTS {
        let text = format!(r#"(component (import "{interface}@0.2.0" (instance)))"#);
        let component = Component::new(&runtime.engine, text_to_bytes(&text)).expect("compiled");
        runtime
            .linker
            .instantiate_pre(&component)
            .unwrap_or_else(|error| panic!("{interface}: {error:#}"));
        // An empty instance links with anything; one that has to have a function no host has does not.
        let text = format!(
            r#"(component (import "{interface}@0.2.0" (instance (export "no-such-function" (func)))))"#
        );
        let component = Component::new(&runtime.engine, text_to_bytes(&text)).expect("compiled");
        let error = runtime
            .linker
            .instantiate_pre(&component)
            .err()
            .expect("refused");
        assert!(
            format!("{error:#}").contains("no-such-function"),
            "{interface} is not linked at all: {error:#}"
        );
    }
}

#[test]
fn options_out_of_range_are_refused() {
    for instances in [0, INSTANCES_MAX + 1] {
        let (options, _dir) = options(instances);
        let error = Runtime::new(options).err().expect("refused");
        assert_eq!(error.code(), "engine-failed");
        assert!(error.to_string().contains("1 to 12000"), "{error}");
    }
}

#[tokio::test]
async fn a_cache_that_cannot_be_is_no_error_and_one_that_can_is_used() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("file");
    std::fs::write(&file, "in the way").expect("written");
    let options = RuntimeOptions {
        instances: 1,
        writers: 1,
        compile_threads: 1,
        cache_dir: Some(file.join("cache")),
    };
    let runtime = Runtime::new(options).expect("an engine");
    runtime
        .load(
            Wat::default().build().into(),
            "main".into(),
            1,
            Arc::default(),
        )
        .await
        .expect("loaded");

    let cache = dir.path().join("cache");
    let options = RuntimeOptions {
        instances: 1,
        writers: 1,
        compile_threads: 1,
        cache_dir: Some(cache.clone()),
    };
    let runtime = Runtime::new(options).expect("an engine");
    runtime
        .load(
            Wat::default().build().into(),
            "main".into(),
            1,
            Arc::default(),
        )
        .await
        .expect("loaded");
    let kept = std::fs::read_dir(cache)
        .expect("the folder of the cache")
        .count();
    assert!(kept > 0, "nothing was kept");
}

fn text_to_bytes(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the text is a component")
}

#[test]
fn the_largest_pool_fits_this_machine() {
    let (options, _dir) = options(INSTANCES_MAX);
    Runtime::new(options).expect("an engine");
}
