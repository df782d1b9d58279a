//! `quarry new`: the project of a new guest, from templates that are part of the program.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{
    Error, Exit, Output,
    args::{Language, New},
};

/// The SDK of the checkout that this program was built from.
const SDK_OF_CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest-sdk");

/// Path in the project, template. `Cargo.toml.in` because cargo takes a folder with a `Cargo.toml` for a package.
const RUST: [(&str, &str); 5] = [
    (
        "Cargo.toml",
        include_str!("../../templates/rust/Cargo.toml.in"),
    ),
    ("src/lib.rs", include_str!("../../templates/rust/lib.rs")),
    (
        "quarry.toml",
        include_str!("../../templates/rust/quarry.toml"),
    ),
    ("README.md", include_str!("../../templates/rust/README.md")),
    (".gitignore", include_str!("../../templates/rust/gitignore")),
];

pub(super) fn run(args: &New, out: Output) -> Result<Exit, Error> {
    let Language::Rust = args.lang;
    let name = project_name(&args.path)?;
    let sdk = sdk(args.sdk_path.as_deref())?;
    let files = create(&args.path, &name, &sdk)?;
    let folder = args.path.display().to_string();
    if out.json {
        out.json(&json!({"name": name, "path": folder, "files": files}))?;
    } else {
        out.line(&folder)?;
        out.note(&format!("Made {name}. Run it with: quarry dev {folder}"));
    }
    Ok(Exit::Done)
}

/// Writes the project and returns the paths of its files. Never overwrites anything.
fn create(folder: &Path, name: &str, sdk: &str) -> Result<Vec<String>, Error> {
    let io = |what: String| move |source| Error::Io { what, source };
    match fs::read_dir(folder) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                let folder = folder.display();
                return Err(Error::Usage(format!(
                    "{folder} exists and is not empty: give another name"
                )));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(source) => {
            return Err(io(format!("cannot make a project at {}", folder.display()))(source));
        }
    }
    fs::create_dir_all(folder.join("src"))
        .map_err(io(format!("cannot make {}", folder.display())))?;
    let mut written = Vec::new();
    for (path, template) in RUST {
        let text = template.replace("{{name}}", name).replace("{{sdk}}", sdk);
        let place = folder.join(path);
        let file =
            fs::File::create_new(&place).and_then(|mut file| file.write_all(text.as_bytes()));
        file.map_err(io(format!("cannot write {}", place.display())))?;
        written.push(path.to_owned());
    }
    Ok(written)
}

/// The last part of the path, if a package can have it as its name.
fn project_name(path: &Path) -> Result<String, Error> {
    const TAKEN: &[&str] = &[
        "abstract",
        "alloc",
        "as",
        "async",
        "await",
        "become",
        "box",
        "break",
        "build",
        "const",
        "continue",
        "core",
        "crate",
        "deps",
        "do",
        "dyn",
        "else",
        "enum",
        "examples",
        "extern",
        "false",
        "final",
        "fn",
        "for",
        "gen",
        "if",
        "impl",
        "in",
        "incremental",
        "let",
        "loop",
        "macro",
        "match",
        "mod",
        "move",
        "mut",
        "override",
        "priv",
        "proc-macro",
        "proc_macro",
        "pub",
        "quarry-guest",
        "quarry_guest",
        "ref",
        "return",
        "self",
        "static",
        "std",
        "struct",
        "super",
        "test",
        "trait",
        "true",
        "try",
        "type",
        "typeof",
        "unsafe",
        "unsized",
        "use",
        "virtual",
        "where",
        "while",
        "yield",
    ];
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let rules = "use 1 to 64 of a-z, 0-9, - and _, beginning with a letter";
    let begins = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase());
    let fits = name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte));
    if !begins || !fits || name.len() > 64 {
        return Err(Error::Usage(format!(
            "{:?} cannot be a project's name: {rules}",
            path.display().to_string()
        )));
    }
    if TAKEN.contains(&name) {
        return Err(Error::Usage(format!(
            "{name:?} cannot be a project's name, it means something to Rust: {rules}"
        )));
    }
    Ok(name.to_owned())
}

/// The SDK as a value of a Cargo dependency.
pub(super) fn sdk(given: Option<&Path>) -> Result<String, Error> {
    let at = |path: PathBuf| {
        format!(
            "{{ path = {} }}",
            toml::Value::from(path.to_string_lossy().into_owned())
        )
    };
    match given {
        Some(path) => {
            if !path.join("Cargo.toml").is_file() {
                let path = path.display();
                return Err(Error::Usage(format!(
                    "{path} is not the guest SDK: it has no Cargo.toml"
                )));
            }
            let source = |source| Error::Io {
                what: format!("cannot find {}", path.display()),
                source,
            };
            Ok(at(path.canonicalize().map_err(source)?))
        }
        None => Path::new(SDK_OF_CHECKOUT).canonicalize().map(at).map_err(|_| {
            Error::Usage(format!(
                "the guest SDK is not at {SDK_OF_CHECKOUT}, where this program was built: give its folder with --sdk-path"
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in [
            "greeter",
            "my-guest",
            "a",
            "x/y/my_guest2",
            "./greeter",
            "greeter/",
        ] {
            assert!(project_name(Path::new(good)).is_ok(), "{good}");
        }
        for bad in [
            "",
            "..",
            "/",
            "Greeter",
            "9lives",
            "-x",
            "my guest",
            "my.guest",
            "fn",
            "test",
            "quarry-guest",
            "ünder",
        ] {
            let error = project_name(Path::new(bad)).unwrap_err();
            assert_eq!(error.exit(), Exit::Usage, "{bad}");
            assert!(
                error.to_string().contains(&format!("{bad:?}")),
                "{bad}: {error}"
            );
        }
        assert!(project_name(Path::new(&"a".repeat(65))).is_err());
    }

    #[test]
    fn a_project_is_whole_and_its_manifest_parses() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("deep/my-guest");
        let written = create(&folder, "my-guest", "{ path = \"/sdk\" }").unwrap();
        assert_eq!(written, RUST.map(|(path, _)| path.to_owned()));
        for path in &written {
            let text = fs::read_to_string(folder.join(path)).unwrap();
            assert!(
                !text.contains("{{") || path == "src/lib.rs",
                "{path} has a placeholder left"
            );
        }
        let manifest: toml::Table = fs::read_to_string(folder.join("Cargo.toml"))
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(manifest["package"]["name"].as_str(), Some("my-guest"));
        assert_eq!(
            manifest["dependencies"]["quarry-guest"]["path"].as_str(),
            Some("/sdk")
        );
        let sources = crate::config::Sources {
            file: crate::config::FileSource::Required(folder.join("quarry.toml")),
            ..Default::default()
        };
        let loaded = crate::config::Config::load(&sources).unwrap();
        assert_eq!(loaded.config.module.language, "rust");
    }

    #[test]
    fn what_exists_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let empty = home.path().join("empty");
        fs::create_dir(&empty).unwrap();
        create(&empty, "empty", "\"0.1\"").unwrap();
        let before = fs::read_to_string(empty.join("src/lib.rs")).unwrap();
        let error = create(&empty, "empty", "\"0.2\"").unwrap_err();
        assert!(error.to_string().contains("not empty"), "{error}");
        assert_eq!(
            fs::read_to_string(empty.join("src/lib.rs")).unwrap(),
            before
        );
        let file = home.path().join("file");
        fs::write(&file, "mine").unwrap();
        assert!(matches!(
            create(&file, "file", "\"0.1\""),
            Err(Error::Io { .. })
        ));
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    }

    #[test]
    fn the_sdk_is_looked_for() {
        let home = tempfile::tempdir().unwrap();
        let error = sdk(Some(home.path())).unwrap_err();
        assert!(error.to_string().contains("has no Cargo.toml"), "{error}");
        fs::write(home.path().join("Cargo.toml"), "").unwrap();
        let value = sdk(Some(home.path())).unwrap();
        let parsed: toml::Table = format!("sdk = {value}").parse().unwrap();
        assert_eq!(
            Path::new(parsed["sdk"]["path"].as_str().unwrap()),
            home.path().canonicalize().unwrap()
        );
    }
}
