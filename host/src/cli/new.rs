//! `quarry new`: the project of a new guest, from templates that are part of the program.

use std::{fs, io::Write, path::Path};

use serde_json::json;

use super::{Error, Exit, Output, args::New, language::Language};

mod name;
pub(super) mod sdk;
pub(super) mod templates;

pub(super) fn run(args: &New, out: Output) -> Result<Exit, Error> {
    let name = name::of(&args.path, args.lang)?;
    let sdk = match (args.lang, &args.sdk_path) {
        (Language::Rust, given) => sdk::rust(given.as_deref())?,
        // The others carry theirs. A variable of the environment that is meant for Rust is no fault.
        _ => String::new(),
    };
    let files = create(&args.path, &name, args.lang, &sdk)?;
    let folder = args.path.display().to_string();
    if out.json {
        out.json(&json!({"name": name, "path": folder, "files": files}))?;
    } else {
        out.line(&folder)?;
        let first = first(args.lang, &folder);
        out.note(&format!(
            "Made {name}. Run it with: {first}quarry dev {folder}"
        ));
    }
    Ok(Exit::Done)
}

/// What has to be run once before the first build.
fn first(language: Language, folder: &str) -> String {
    match language {
        Language::Rust | Language::C | Language::Go => String::new(),
        Language::Ts | Language::Js => format!("npm ci --prefix {folder} && "),
        Language::Python => format!(
            "python3 -m venv {folder}/.venv && {folder}/.venv/bin/pip install -r {folder}/requirements.txt && "
        ),
    }
}

/// Writes the project and returns the paths of its files. Never overwrites anything.
fn create(folder: &Path, name: &str, language: Language, sdk: &str) -> Result<Vec<String>, Error> {
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
    let (template, copied) = templates::of(language);
    let filled = template.iter().map(|(path, text)| {
        let text = text.replace("{{name}}", name).replace("{{sdk}}", sdk);
        (*path, text)
    });
    let copied = copied
        .iter()
        .map(|(path, text)| (*path, (*text).to_owned()));
    let mut written = Vec::new();
    for (path, text) in filled.chain(copied) {
        let place = folder.join(path);
        let above = place.parent().unwrap_or(folder);
        fs::create_dir_all(above).map_err(io(format!("cannot make {}", above.display())))?;
        let file =
            fs::File::create_new(&place).and_then(|mut file| file.write_all(text.as_bytes()));
        file.map_err(io(format!("cannot write {}", place.display())))?;
        written.push(path.to_owned());
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn a_project_is_whole_and_its_settings_load() {
        for language in Language::value_variants() {
            let home = tempfile::tempdir().unwrap();
            let folder = home.path().join("deep/my-guest");
            let written = create(&folder, "my-guest", *language, "{ path = \"/sdk\" }").unwrap();
            let (template, copied) = templates::of(*language);
            assert_eq!(written.len(), template.len() + copied.len());
            for (path, _) in template {
                let text = fs::read_to_string(folder.join(path)).unwrap();
                for placeholder in ["{{name}}", "{{sdk}}"] {
                    assert!(!text.contains(placeholder), "{path} has {placeholder} left");
                }
            }
            let sources = crate::config::Sources {
                file: crate::config::FileSource::Required(folder.join("quarry.toml")),
                ..Default::default()
            };
            let loaded = crate::config::Config::load(&sources).unwrap();
            let named = Language::of(&loaded.config.module.language);
            assert_eq!(named, Some(*language));
        }
    }

    #[test]
    fn the_manifests_parse_and_have_the_name() {
        let home = tempfile::tempdir().unwrap();
        let of = |language, file: &str| {
            let folder = home.path().join(format!("{language:?}"));
            create(&folder, "my-guest", language, "{ path = \"/sdk\" }").unwrap();
            fs::read_to_string(folder.join(file)).unwrap()
        };
        let manifest: toml::Table = of(Language::Rust, "Cargo.toml").parse().unwrap();
        assert_eq!(manifest["package"]["name"].as_str(), Some("my-guest"));
        assert_eq!(
            manifest["dependencies"]["quarry-guest"]["path"].as_str(),
            Some("/sdk")
        );
        for (language, file) in [
            (Language::Ts, "package.json"),
            (Language::Js, "package-lock.json"),
        ] {
            let manifest: serde_json::Value = serde_json::from_str(&of(language, file)).unwrap();
            assert_eq!(manifest["name"], "my-guest");
        }
    }

    #[test]
    fn what_exists_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let empty = home.path().join("empty");
        fs::create_dir(&empty).unwrap();
        create(&empty, "empty", Language::Rust, "\"0.1\"").unwrap();
        let before = fs::read_to_string(empty.join("src/lib.rs")).unwrap();
        let error = create(&empty, "empty", Language::Rust, "\"0.2\"").unwrap_err();
        assert!(error.to_string().contains("not empty"), "{error}");
        assert_eq!(
            fs::read_to_string(empty.join("src/lib.rs")).unwrap(),
            before
        );
        let file = home.path().join("file");
        fs::write(&file, "mine").unwrap();
        assert!(matches!(
            create(&file, "file", Language::Rust, "\"0.1\""),
            Err(Error::Io { .. })
        ));
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    }
}
