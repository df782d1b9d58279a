//! A component in the folder of an OCI image layout, as registries and their tools write it. What is read is bounded, and is what its digest
//! says.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use bytes::Bytes;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::super::Error;
use crate::deploy::objects::MAX_MODULE_BYTES;

/// The file that tells the folder of a layout.
const MARK: &str = "oci-layout";
/// The longest index or manifest that is read, in bytes.
const JSON_MAX: u64 = 1 << 20;
/// Media types of layers that are components.
const COMPONENTS: [&str; 2] = [
    "application/wasm",
    "application/vnd.wasm.content.layer.v1+wasm",
];

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    #[serde(rename = "mediaType", default)]
    media_type: String,
    digest: String,
    size: u64,
}

/// Whether a folder is one.
pub(super) fn is_layout(folder: &Path) -> bool {
    folder.join(MARK).is_file()
}

/// The one component in it.
pub(super) fn component(folder: &Path) -> Result<Bytes, Error> {
    let refused = |why: String| Error::Failed(format!("{}: {why}", folder.display()));
    let text = read(&folder.join("index.json"), JSON_MAX)?;
    let index: Index = parse(&text).map_err(|why| refused(format!("index.json: {why}")))?;
    let manifest = only(&index.manifests, "manifest in index.json").map_err(refused)?;
    let text = blob(folder, manifest, JSON_MAX)?;
    let found: Manifest = parse(&text).map_err(|why| refused(format!("its manifest: {why}")))?;
    let layers: Vec<&Descriptor> = found
        .layers
        .iter()
        .filter(|layer| COMPONENTS.contains(&layer.media_type.as_str()))
        .collect();
    let what = format!("layer of the type {}", COMPONENTS[0]);
    let layer = only(&layers, &what).map_err(refused)?;
    Ok(blob(folder, layer, MAX_MODULE_BYTES)?.into())
}

fn only<'l, T>(list: &'l [T], what: &str) -> Result<&'l T, String> {
    match list {
        [one] => Ok(one),
        [] => Err(format!("there is no {what}")),
        several => Err(format!(
            "there are {} of this kind, and one is expected: {what}",
            several.len()
        )),
    }
}

/// A blob, which has the size and the digest that its descriptor says.
fn blob(folder: &Path, of: &Descriptor, most: u64) -> Result<Vec<u8>, Error> {
    let refused = |why: String| Error::Failed(format!("{}: {why}", folder.display()));
    let plain = |hex: &&str| {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        hex.len() == 64 && hex.bytes().all(digit)
    };
    let hex = of.digest.strip_prefix("sha256:").filter(plain);
    let Some(hex) = hex else {
        let shown: String = of.digest.chars().take(80).collect();
        let why = format!("the digest {shown:?} is not `sha256:` and 64 hex digits");
        return Err(refused(why));
    };
    if of.size > most {
        let why = format!(
            "the blob {hex} has {} bytes; at most {most} are read",
            of.size
        );
        return Err(refused(why));
    }
    let bytes = read(&folder.join("blobs/sha256").join(hex), most)?;
    let found: String = Sha256::digest(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if bytes.len() as u64 != of.size || found != hex {
        let why = format!("the blob {hex} is not what its name says: it was changed or cut");
        return Err(refused(why));
    }
    Ok(bytes)
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Io {
        what: format!("cannot read {}", path.display()),
        source,
    };
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(Error::Failed(format!(
            "{} has more than {most} bytes, the most that is read",
            path.display()
        )));
    }
    Ok(bytes)
}

fn parse<T: for<'de> Deserialize<'de>>(text: &[u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Layout(tempfile::TempDir);

    impl Layout {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("folder");
            fs::create_dir_all(folder.path().join("blobs/sha256")).expect("blobs");
            fs::write(
                folder.path().join(MARK),
                r#"{"imageLayoutVersion":"1.0.0"}"#,
            )
            .expect("mark");
            Self(folder)
        }

        fn blob(&self, bytes: &[u8]) -> (String, usize) {
            let hex: String = Sha256::digest(bytes)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            fs::write(self.0.path().join("blobs/sha256").join(&hex), bytes).expect("blob");
            (format!("sha256:{hex}"), bytes.len())
        }

        /// With a manifest of these layers.
        fn manifest(&self, layers: &[(&str, (String, usize))]) {
            let layers: Vec<_> = layers
                .iter()
                .map(|(media, (digest, size))| json!({"mediaType": media, "digest": digest, "size": size}))
                .collect();
            let (digest, size) = self.blob(
                json!({"schemaVersion": 2, "layers": layers})
                    .to_string()
                    .as_bytes(),
            );
            let index = json!({"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": size}]});
            fs::write(self.0.path().join("index.json"), index.to_string()).expect("index");
        }

        fn refused(&self) -> String {
            component(self.0.path()).expect_err("refused").to_string()
        }
    }

    #[test]
    fn the_component_of_a_layout_is_found() {
        let layout = Layout::new();
        assert!(is_layout(layout.0.path()));
        let wasm = layout.blob(b"\0asm...");
        let config = layout.blob(b"{}");
        layout.manifest(&[("application/json", config), (COMPONENTS[0], wasm)]);
        let found = component(layout.0.path()).expect("one");
        assert_eq!(found, &b"\0asm..."[..]);
    }

    #[test]
    fn what_is_not_as_it_should_be_is_named() {
        let layout = Layout::new();
        assert!(layout.refused().contains("index.json"));
        layout.manifest(&[]);
        assert!(
            layout
                .refused()
                .contains("there is no layer of the type application/wasm")
        );
        let (wasm, other) = (layout.blob(b"a"), layout.blob(b"b"));
        layout.manifest(&[(COMPONENTS[0], wasm.clone()), (COMPONENTS[1], other)]);
        assert!(layout.refused().contains("there are 2 of this kind"));
        layout.manifest(&[(COMPONENTS[0], ("sha256:../../x".into(), 1))]);
        assert!(
            layout
                .refused()
                .contains("is not `sha256:` and 64 hex digits")
        );
        layout.manifest(&[(COMPONENTS[0], (wasm.0.clone(), 2))]);
        assert!(layout.refused().contains("changed or cut"));
        layout.manifest(&[(COMPONENTS[0], (wasm.0.clone(), usize::MAX))]);
        assert!(layout.refused().contains("at most 268435456"));
        let path = layout.0.path().join("blobs/sha256").join(&wasm.0[7..]);
        fs::write(path, b"c").expect("tampered");
        layout.manifest(&[(COMPONENTS[0], wasm)]);
        assert!(layout.refused().contains("is not what its name says"));
        fs::write(layout.0.path().join("index.json"), "[]").expect("index");
        assert!(layout.refused().contains("index.json"));
    }
}
