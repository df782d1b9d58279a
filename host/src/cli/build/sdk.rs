//! The SDK that a project builds with: whether it fits this program, and bringing a copy of it up to date.
//!
//! A project in another language than Rust has a copy of its SDK in `quarry_guest`, stamped with the version of the program that made it.
//! Of one in Rust, cargo says which version it took.

use std::{
    cmp::Ordering,
    fs, io,
    io::{Read, Write},
    path::Path,
};

use super::Error;
use crate::{
    cli::{language::Language, new::templates},
    config::Module,
};

/// The folder of the copy, in the project.
const FOLDER: &str = "quarry_guest";
const STAMP: &str = "VERSION";
/// Far more than a version has.
const STAMP_MAX_BYTES: u64 = 64;
/// The version of this program, and of the SDKs that are part of it.
const OWN: &str = env!("CARGO_PKG_VERSION");

/// The SDK of a project's copy: nothing when it is this program's, what a person should know when it is an older one that fits.
///
/// # Errors
/// When it is newer than this program, or of an older line.
pub(super) fn check(dir: &Path, module: &Module) -> Result<Option<String>, Error> {
    let copied =
        matches!(Language::of(&module.language), Some(language) if language != Language::Rust);
    let home = dir.join(FOLDER);
    if !copied || module.build.is_some() || !home.is_dir() {
        return Ok(None);
    }
    let update = format!("`quarry build --update-sdk {}`", dir.display());
    let shown = home.display();
    match stamp(&home.join(STAMP)) {
        Ok(Some(version)) => verdict(
            OWN,
            &format!("the SDK in {shown}"),
            &version,
            &format!("{update} puts this program's there"),
        ),
        Ok(None) => Ok(Some(format!(
            "warning: the SDK in {shown} has no {STAMP}, as those from before {OWN}: {update} brings it up to date"
        ))),
        Err(why) => Err(Error::Project(format!(
            "{}/{STAMP} does not say which version the SDK is: {why}; {update} puts this program's there",
            home.display()
        ))),
    }
}

/// The same for the package that cargo took.
pub(super) fn check_rust(version: &str) -> Result<Option<String>, Error> {
    let update =
        "`cargo update quarry-guest`, or another version or path in Cargo.toml, changes that";
    verdict(OWN, "the package quarry-guest", version, update)
}

/// Puts this program's SDK in the place of the project's copy, and says where the copy is now.
///
/// # Errors
/// Where the project has none of its own, and where it cannot be replaced. The copy is then as it was.
pub(super) fn update(dir: &Path, module: &Module) -> Result<String, Error> {
    let known = Language::of(&module.language).ok_or_else(|| {
        Error::Project(format!(
            "there is no SDK for module.language {:?}: there is one for {}",
            module.language,
            Language::known()
        ))
    })?;
    let home = dir.join(FOLDER);
    if known == Language::Rust {
        return Err(Error::Project(
            "a project in Rust has no copy of the SDK: `cargo update quarry-guest`, or another version or path in Cargo.toml, changes it".into(),
        ));
    }
    let shown = home.display();
    if fs::symlink_metadata(&home).is_ok_and(|found| !found.is_dir()) {
        return Err(Error::Project(format!(
            "{shown} is a link, and no copy of the SDK: update what it leads to"
        )));
    }
    let fault = |error: io::Error| Error::Project(format!("cannot update {shown}: {error}"));
    // Beside it, so that it gets there whole by being renamed.
    let fresh = tempfile::Builder::new()
        .prefix(".quarry_guest-")
        .tempdir_in(dir)
        .map_err(fault)?;
    let (_, files) = templates::of(known);
    for (path, text) in files {
        let place = fresh.path().join(path);
        let made = fs::create_dir_all(place.parent().unwrap_or(fresh.path()));
        made.and_then(|()| fs::File::create_new(&place)?.write_all(text.as_bytes()))
            .map_err(fault)?;
    }
    // What its owner changed in it is not lost.
    let before = dir.join("target/quarry_guest.before");
    let _ = fs::remove_dir_all(&before);
    let had_one = home.is_dir();
    if had_one {
        fs::create_dir_all(dir.join("target"))
            .and_then(|()| fs::rename(&home, &before))
            .map_err(fault)?;
    }
    fs::rename(fresh.path().join(FOLDER), &home).map_err(|error| {
        if had_one {
            let _ = fs::rename(&before, &home);
        }
        fault(error)
    })?;
    let kept = if had_one {
        format!("; the one before is in {}", before.display())
    } else {
        String::new()
    };
    Ok(format!("{shown} is the SDK of {OWN} now{kept}"))
}

/// What a copy says that it is; none where it says nothing.
fn stamp(path: &Path) -> Result<Option<String>, String> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = String::new();
    file.take(STAMP_MAX_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    let text = text.trim();
    match numbers(text) {
        Some(_) => Ok(Some(text.to_owned())),
        None => Err(format!("it holds {text:?}")),
    }
}

/// Whether an SDK of this version fits a program of version `own`: one of the same line and not newer does.
fn verdict(own: &str, what: &str, version: &str, update: &str) -> Result<Option<String>, Error> {
    let Some((mine, other)) = numbers(own).zip(numbers(version)) else {
        return Ok(None);
    };
    let line = |[major, minor, _]: [u64; 3]| if major == 0 { (0, minor) } else { (major, 0) };
    match other.cmp(&mine) {
        Ordering::Equal => Ok(None),
        Ordering::Less if line(other) == line(mine) => Ok(Some(format!(
            "warning: {what} is {version}, and this program has {own}: {update}"
        ))),
        Ordering::Less => Err(Error::Project(format!(
            "{what} is {version}, which this program ({own}) does not build any more: {update}"
        ))),
        Ordering::Greater => Err(Error::Project(format!(
            "{what} is {version}, newer than this program ({own}): update quarry; or {update}"
        ))),
    }
}

/// Major, minor and patch; what comes behind (`-rc.1`) is left out.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let plain = version.split(['-', '+']).next()?;
    let mut parts = plain.split('.').map(|part| part.parse().ok());
    let found = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(language: &str) -> Module {
        Module {
            language: language.into(),
            ..Module::default()
        }
    }

    fn stamped(version: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(FOLDER)).unwrap();
        fs::write(home.path().join(FOLDER).join(STAMP), version).unwrap();
        home
    }

    #[test]
    fn an_sdk_of_another_version_is_told_from_this_ones() {
        let [major, minor, patch] = numbers(OWN).unwrap();
        let next = format!("{major}.{minor}.{}", patch + 1);
        let later = format!("{}.0.0", major + 1);
        for (version, expected) in [
            (format!("{OWN}\n"), Ok("")),
            (
                next.clone(),
                Err("update quarry; or `quarry build --update-sdk"),
            ),
            (later, Err("newer than this program")),
            (
                "0.0.9".into(),
                Err("does not build any more: `quarry build --update-sdk"),
            ),
            ("soon".into(), Err("it holds \"soon\"")),
            ("1.2".into(), Err("it holds \"1.2\"")),
            ("9".repeat(1000), Err("it holds \"999")),
        ] {
            let home = stamped(&version);
            for language in ["c", "go", "python", "typescript"] {
                match (check(home.path(), &module(language)), expected) {
                    (Ok(None), Ok("")) => {}
                    (Err(error), Err(part)) => {
                        assert!(
                            error.is_usage() && error.to_string().contains(part),
                            "{error}"
                        );
                    }
                    (found, _) => panic!("{version}: {found:?}"),
                }
            }
            assert!(matches!(check(home.path(), &module("rust")), Ok(None)));
        }
        assert!(
            check_rust(&next)
                .unwrap_err()
                .to_string()
                .contains("cargo update")
        );
        assert!(check_rust(OWN).unwrap().is_none());
    }

    #[test]
    fn within_a_line_an_older_one_is_warned_of() {
        for (version, own, expected) in [
            (
                "0.1.0",
                "0.1.3",
                Some("warning: it is 0.1.0, and this program has 0.1.3: do"),
            ),
            ("0.1.9", "0.2.0", None),
            ("1.1.9", "1.2.0", Some("warning: it is 1.1.9")),
            ("1.9.9", "2.0.0", None),
        ] {
            match (verdict(own, "it", version, "do"), expected) {
                (Ok(Some(said)), Some(part)) => assert!(said.starts_with(part), "{said}"),
                (Err(error), None) => {
                    assert!(
                        error.to_string().contains("does not build any more: do"),
                        "{error}"
                    );
                }
                (found, _) => panic!("{version} on {own}: {found:?}"),
            }
        }
        assert!(
            verdict("0.1.3-rc.1", "it", "0.1.3", "do")
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_copy_without_a_stamp_is_warned_of() {
        let home = tempfile::tempdir().unwrap();
        assert!(check(home.path(), &module("c")).unwrap().is_none());
        fs::create_dir(home.path().join(FOLDER)).unwrap();
        let warned = check(home.path(), &module("c")).unwrap().unwrap();
        assert!(
            warned.contains("has no VERSION") && warned.contains("--update-sdk"),
            "{warned}"
        );
        let own_way = Module {
            build: Some("make".into()),
            ..module("c")
        };
        assert!(check(home.path(), &own_way).unwrap().is_none());
    }

    #[test]
    fn a_copy_is_replaced_whole_and_kept() {
        for language in ["c", "go", "python", "javascript"] {
            let home = stamped("0.0.1");
            let mine = home.path().join(FOLDER).join("mine.txt");
            fs::write(&mine, "mine").unwrap();
            let said = update(home.path(), &module(language)).unwrap();
            assert!(
                said.contains(OWN) && said.contains("quarry_guest.before"),
                "{said}"
            );
            assert!(!mine.exists());
            let kept = home.path().join("target/quarry_guest.before/mine.txt");
            assert_eq!(fs::read_to_string(kept).unwrap(), "mine");
            assert!(check(home.path(), &module(language)).unwrap().is_none());
            let left = fs::read_dir(home.path()).unwrap().count();
            assert_eq!(left, 2, "quarry_guest and target");
        }
        let home = tempfile::tempdir().unwrap();
        let error = update(home.path(), &module("rust")).unwrap_err();
        assert!(error.to_string().contains("cargo update"), "{error}");
        assert!(update(home.path(), &module("cobol")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let real = stamped("0.0.1");
        std::os::unix::fs::symlink(real.path().join(FOLDER), home.path().join(FOLDER)).unwrap();
        let error = update(home.path(), &module("c")).unwrap_err();
        assert!(error.to_string().contains("is a link"), "{error}");
        assert!(real.path().join(FOLDER).join(STAMP).exists());
    }
}
