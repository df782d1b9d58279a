//! Lines to load, and the list of those that were acknowledged.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use futures::StreamExt;

use super::process::{Node, Process, quarry, until};

/// Calls at a time that read back.
const READERS: usize = 32;

/// A file of lines, each a key and a value.
pub struct Lines {
    file: PathBuf,
    acked: PathBuf,
    failed: PathBuf,
    /// How many there are.
    pub count: usize,
}

impl Lines {
    /// Writes the file into a folder.
    pub fn write(folder: &Path, count: usize) -> Self {
        let mut text = String::new();
        for number in 1..=count {
            _ = writeln!(text, "{}\t{}", key(number), value(number));
        }
        let file = folder.join("lines.tsv");
        std::fs::write(&file, text).expect("a file of lines");
        Self {
            file,
            acked: folder.join("acked"),
            failed: folder.join("failed"),
            count,
        }
    }

    /// Starts `quarry load` of them.
    pub fn load(&self, node: &Node) -> Process {
        let mut command = quarry(&[
            "load",
            "--json",
            "--format",
            "tsv",
            "--method",
            "put",
            "--concurrency",
            "64",
            "--server",
            &node.url,
        ]);
        command
            .arg("--acked")
            .arg(&self.acked)
            .arg("--failed")
            .arg(&self.failed)
            .arg(&self.file);
        Process::spawn(command)
    }

    /// The numbers of the lines that were acknowledged so far.
    pub fn acked(&self) -> Vec<usize> {
        let text = std::fs::read_to_string(&self.acked).unwrap_or_default();
        // A line without its end is being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| line.parse().expect("a line's number"))
            .collect()
    }

    /// Waits until so many were acknowledged.
    pub async fn acked_so_far(&self, count: usize) {
        until(&format!("{count} acknowledged lines"), || {
            (self.acked().len() >= count).then_some(())
        })
        .await;
    }

    /// What `quarry load` said of the lines that failed.
    pub fn failed(&self) -> String {
        std::fs::read_to_string(&self.failed).unwrap_or_default()
    }

    /// Reads lines back from a node; fails when one is not there as it was.
    pub async fn check(&self, node: &Node, numbers: &[usize]) {
        let lost: Vec<String> = futures::stream::iter(numbers)
            .map(|&number| async move {
                match node.query("get", &key(number)).await {
                    Ok(found) if found == value(number) => None,
                    Ok(found) => Some(format!("line {number} reads {found:?}")),
                    Err(error) => Some(format!("line {number}: {error}")),
                }
            })
            .buffer_unordered(READERS)
            .filter_map(async |lost| lost)
            .collect()
            .await;
        assert!(
            lost.is_empty(),
            "{} of {} acknowledged lines are lost: {:?}",
            lost.len(),
            numbers.len(),
            &lost[..lost.len().min(10)]
        );
    }
}

fn key(number: usize) -> String {
    format!("key-{number}")
}

fn value(number: usize) -> String {
    format!("value {number} {}", "x".repeat(number % 100))
}
