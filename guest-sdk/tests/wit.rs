//! The crate carries a copy of `wit/`, because a published crate has only what lies in its own folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[test]
fn the_copy_of_the_wit_is_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let original = folder.join("../wit");
    // A published crate has nothing beside it to compare with.
    if !original.exists() {
        return;
    }
    let (original, copy) = (files(&original), files(&folder.join("wit")));
    assert!(!original.is_empty());
    assert_eq!(
        original.keys().collect::<Vec<_>>(),
        copy.keys().collect::<Vec<_>>(),
        "guest-sdk/wit has other files than wit: rm -r guest-sdk/wit && cp -r wit guest-sdk/wit"
    );
    for (name, text) in original {
        assert!(
            copy[&name] == text,
            "guest-sdk/wit/{name} differs from wit/{name}: cp wit/{name} guest-sdk/wit/{name}"
        );
    }
}

fn files(folder: &Path) -> BTreeMap<String, String> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (
                path.file_name().unwrap().to_str().unwrap().to_owned(),
                fs::read_to_string(&path).unwrap(),
            )
        })
        .collect()
}
