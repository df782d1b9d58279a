//! A real disk that is full, or read-only: a small file system in memory, which only root may mount.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::process::{Setup, folder, skipped};

/// A file system of its own.
struct Disk(TempDir);

impl Disk {
    /// None where it cannot be mounted, after saying so.
    fn mount(size: &str) -> Option<Self> {
        let folder = folder();
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder.path())
            .output();
        match output {
            Ok(output) if output.status.success() => Some(Self(folder)),
            Ok(output) => {
                skipped(&format!(
                    "no small disk can be mounted here: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                ));
                None
            }
            Err(error) => {
                skipped(&format!("no `mount` here: {error}"));
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn remount(&self, options: &str) {
        let done = Command::new("mount")
            .args(["-o", &format!("remount,{options}")])
            .arg(self.path())
            .status()
            .expect("mount");
        assert!(done.success(), "no remount with {options}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: whatever still has a file open keeps it, and nobody else sees it.
        _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_costs_no_acknowledged_write() {
    let Some(disk) = Disk::mount("16m") else {
        return;
    };
    let setup =
        Setup::in_folder("kv", &disk.path().join("data"), 2).with(&["--set", "call.timeout=4s"]);
    let node = setup.start().await;
    let value = |number: usize| format!("{number} {}", "v".repeat(64 << 10));
    let mut acked = Vec::new();
    let error = loop {
        let number = acked.len();
        assert!(number < 2_000, "the disk does not fill up");
        match node
            .call("put", &format!("key {number}"), &value(number))
            .await
        {
            Ok(_) => acked.push(number),
            Err(error) => break error.to_string(),
        }
    };
    assert!(
        acked.len() > 20,
        "only {} writes before {error}",
        acked.len()
    );
    assert!(error.contains("No space left on device"), "{error}");
    node.process
        .complains(|text| text.contains("No space left on device").then_some(()))
        .await;
    // What is there can be read meanwhile, without a wait.
    let seen = node.client.status().await.expect("status");
    assert_eq!(
        seen["shards"].as_object().map(|shards| shards.len()),
        Some(2),
        "{seen}"
    );

    disk.remount("size=256m");
    node.ready_again().await;
    node.call("put", "after", "space").await.expect("put");
    for number in &acked {
        assert_eq!(
            node.query("get", &format!("key {number}"))
                .await
                .expect("get"),
            value(*number)
        );
    }
    node.kill().await;
    let node = setup.start().await;
    for number in &acked {
        assert_eq!(
            node.query("get", &format!("key {number}"))
                .await
                .expect("get"),
            value(*number)
        );
    }
    assert_eq!(node.query("get", "after").await.expect("get"), "space");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_read_only_or_full_is_named_at_the_start() {
    let Some(disk) = Disk::mount("1m") else {
        return;
    };
    let data = disk.path().join("data");
    std::fs::create_dir(&data).expect("a folder");
    let setup = Setup::in_folder("kv", &data, 2);
    disk.remount("ro");
    let ended = setup.refused().await.with(1);
    assert!(
        ended.stderr.contains("Read-only file system")
            && ended.stderr.contains(&data.display().to_string()),
        "{ended:#?}"
    );
    disk.remount("rw");
    // Writes until there is no byte left.
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![1; 2 << 20]).expect_err("2 MiB on 1 MiB");
    let ended = setup.refused().await.with(1);
    assert!(
        ended.stderr.contains("No space left on device")
            && ended.stderr.contains(&data.display().to_string()),
        "{ended:#?}"
    );
    std::fs::remove_file(&ballast).expect("room again");
    let node = setup.start().await;
    node.call("put", "a", "x").await.expect("put");
    node.stop().await;
}
