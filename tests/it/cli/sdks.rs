//! What `build` says that needs no toolchain: which SDK a project has, what brings it up to date, and why a build failed.

use super::error;
use crate::support::process::{Process, folder, quarry};

#[tokio::test(flavor = "multi_thread")]
async fn a_project_is_stamped_and_its_sdk_brought_up_to_date() {
    let folder = folder();
    for language in ["js", "ts", "python", "c", "go"] {
        let project = folder.path().join(language);
        let path = project.display().to_string();
        Process::spawn(quarry(&["new", &path, "--lang", language]))
            .ended()
            .await
            .with(0);
        let stamp = project.join("quarry_guest/VERSION");
        let own = std::fs::read_to_string(&stamp).expect("a stamp");
        assert_eq!(own.trim(), env!("CARGO_PKG_VERSION"), "{language}");

        for (version, part) in [
            ("99.0.0", "newer than this program"),
            ("0.0.1", "does not build any more"),
            ("soon", "holds \"soon\""),
        ] {
            std::fs::write(&stamp, version).expect("a stamp");
            let refused = Process::spawn(quarry(&["build", &path, "--json"]))
                .ended()
                .await
                .with(2);
            let message = error(&refused.stderr)["message"].to_string();
            let advice = format!("quarry build --update-sdk {path}");
            let part = part.replace('"', "\\\"");
            assert!(
                message.contains(&part) && message.contains(&advice),
                "{message}"
            );
        }

        // Without any tool on the way: the SDK is that of the program, and the tool that is missing is said.
        std::fs::write(project.join("quarry_guest/mine"), "mine").expect("a change");
        let mut update = quarry(&["build", "--update-sdk", &path]);
        update.env("PATH", "").env_remove("VIRTUAL_ENV");
        let updated = Process::spawn(update).ended().await.with(1);
        assert!(
            updated.stderr.contains("target/quarry_guest.before")
                && updated.stderr.contains("install it with: "),
            "{updated:#?}"
        );
        assert_eq!(std::fs::read_to_string(&stamp).expect("a stamp"), own);
        assert!(!project.join("quarry_guest/mine").exists());
        assert!(project.join("target/quarry_guest.before/mine").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_has_the_compilers_own_text() {
    let folder = folder();
    let said = "main.x:3:1: error: expected something";
    let toml = format!("[module]\nbuild = \"echo '{said}' >&2; exit 3\"\npath = \"out.wasm\"\n");
    std::fs::write(folder.path().join("quarry.toml"), toml).expect("quarry.toml");
    let path = folder.path().display().to_string();
    let failed = Process::spawn(quarry(&["build", &path, "--json"]))
        .ended()
        .await
        .with(1);
    let told = error(&failed.stderr);
    assert_eq!(told["code"], "build");
    assert_eq!(told["output"], format!("{said}\n"));
    // For people it stands where the compiler said it, and not once more behind.
    let plain = Process::spawn(quarry(&["build", &path]))
        .ended()
        .await
        .with(1);
    assert_eq!(plain.stderr.matches(said).count(), 2, "{plain:#?}");
    let lines: Vec<_> = plain.stderr.lines().collect();
    assert_eq!(lines.first(), Some(&said), "{plain:#?}");
}
