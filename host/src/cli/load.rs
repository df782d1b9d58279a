//! `quarry load`: a call per line of a file, at most N at a time; what failed is listed line by line.
//!
//! A line is sent once. One whose connection ended before the reply came counts as failed, since nobody knows whether it ran. The
//! number of a line is written to `--acked` only after its reply came.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use tokio::io::{AsyncBufRead, BufReader};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use super::args::{Durability, Load};
use super::{Error, Exit, Output};
use crate::call::{self, Target};
use crate::client::{self, Client};
use crate::clock;
use crate::config::units::Span;

mod lines;
mod progress;
mod tally;

use lines::{Keyed, Line, Lines, Splitter};
use progress::Progress;
use tally::{Ended, Tally};

/// Calls the method once per line.
pub(super) async fn run(args: Load, out: Output) -> Result<Exit, Error> {
    let client = Client::new(&args.server.server)?;
    let (input, size) = open(&args.file).await?;
    let splitter = Splitter::new(args.format, args.key.as_deref()).map_err(Error::Usage)?;
    let acked = args.acked.as_deref().map(Record::create).transpose()?;
    let failed = args.failed.as_deref().map(Record::create).transpose()?;
    let progress = Progress::new(size);
    let tally = Tally::new(clock::now());
    let mut load = Running {
        client,
        args,
        out,
        lines: Lines::new(input),
        splitter,
        acked,
        failed,
        progress,
        tally,
        in_flight: JoinSet::new(),
        sent: BTreeSet::new(),
    };
    let ended = load.work().await?;
    load.progress.finish();
    let summary = load.tally.summary(ended, clock::now());
    if out.json {
        out.json(&summary)?;
    } else {
        out.bytes(summary.to_string().as_bytes())?;
    }
    match ended {
        Ended::Interrupted => Ok(Exit::Interrupted),
        Ended::GaveUp => Ok(Exit::Unreachable),
        Ended::Unreadable => Ok(Exit::Failed),
        Ended::Done if load.tally.lost() > 0 => Ok(Exit::Unreachable),
        Ended::Done if summary.failed > 0 => Ok(Exit::Refused),
        Ended::Done => Ok(Exit::Done),
    }
}

/// What became of a line.
struct Outcome {
    line: u64,
    took: std::time::Duration,
    result: Result<client::Reply, client::Error>,
}

struct Running<R> {
    client: Client,
    args: Load,
    out: Output,
    lines: Lines<R>,
    splitter: Splitter,
    acked: Option<Record>,
    failed: Option<Record>,
    progress: Progress,
    tally: Tally,
    in_flight: JoinSet<Outcome>,
    /// The numbers of their lines.
    sent: BTreeSet<u64>,
}

impl<R: AsyncBufRead + Unpin> Running<R> {
    async fn work(&mut self) -> Result<Ended, Error> {
        let mut reading = true;
        let mut ended = Ended::Done;
        // Watched for all the time: a signal between two rounds is not missed.
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|source| Error::Io {
            what: "cannot watch for Ctrl-C".into(),
            source,
        })?;
        while reading || !self.in_flight.is_empty() {
            let room = reading && self.in_flight.len() < usize::from(self.args.concurrency);
            tokio::select! {
                // Ctrl-C first; then what is done, so that the list of acknowledged lines is never far behind.
                biased;
                _ = interrupt.recv() => {
                    if ended == Ended::Interrupted {
                        self.abandon().await?;
                        break;
                    }
                    (ended, reading) = (Ended::Interrupted, false);
                    let left = self.in_flight.len();
                    self.progress.say(&format!("interrupted: no further line is sent; waiting for {left} in progress (Ctrl-C again to leave them)"));
                }
                Some(done) = self.in_flight.join_next() => {
                    let done = done.map_err(|error| Error::Failed(format!("a call's task failed: {error}")))?;
                    self.settle(done)?;
                    if self.tally.lost_in_a_row() >= self.args.give_up_after && reading {
                        (ended, reading) = (Ended::GaveUp, false);
                        let (count, server) = (self.tally.lost_in_a_row(), self.client.server());
                        self.progress.say(&format!("{count} calls in a row did not reach {server}: no further line is sent"));
                    }
                }
                line = self.lines.next(), if room => match line {
                    Ok(Some(line)) => self.begin(line)?,
                    Ok(None) => reading = false,
                    Err(source) => {
                        // What was sent before is still waited for and counted.
                        reading = false;
                        ended = Ended::Unreadable;
                        self.fail(self.lines.number() + 1, "cannot-read", &format!("{} cannot be read any further: {source}", self.args.file.display()))?;
                    }
                },
            }
            let counted = self.tally.counts();
            self.progress.tick(self.lines.bytes(), counted);
        }
        Ok(ended)
    }

    /// Sends a line, if it can be.
    fn begin(&mut self, line: Line) -> Result<(), Error> {
        let number = line.number;
        let keyed = line.text.and_then(|text| self.splitter.split(text));
        let Keyed { key, payload } = match keyed {
            Ok(Some(keyed)) => keyed,
            // A blank line or the header.
            Ok(None) => return Ok(()),
            Err(fault) => return self.fail(number, "bad-line", &fault),
        };
        let call = client::Call {
            method: self.args.method.clone(),
            target: Target::Key(key),
            payload,
            timeout: self.args.timeout.map(|Span(timeout)| timeout),
            headers: Vec::new(),
            revision: None,
        };
        let durability = self.args.durability.map(|durability| match durability {
            Durability::Applied => call::Durability::Applied,
            Durability::Durable => call::Durability::Durable,
        });
        let client = self.client.clone();
        self.sent.insert(number);
        self.in_flight.spawn(async move {
            let began = clock::now();
            let result = client.call(call, durability).await;
            Outcome {
                line: number,
                took: clock::now().saturating_duration_since(began),
                result,
            }
        });
        Ok(())
    }

    fn settle(&mut self, outcome: Outcome) -> Result<(), Error> {
        self.sent.remove(&outcome.line);
        match outcome.result {
            Ok(_) => {
                self.tally.acknowledged(outcome.took);
                self.acked
                    .as_mut()
                    .map_or(Ok(()), |acked| acked.line(&outcome.line.to_string()))
            }
            Err(error) => {
                self.tally.answered(error.is_connection(), outcome.took);
                self.fail(outcome.line, error.code(), &error.to_string())
            }
        }
    }

    fn fail(&mut self, line: u64, code: &str, message: &str) -> Result<(), Error> {
        self.tally.failed(code);
        let text = if self.out.json {
            serde_json::json!({"line": line, "code": code, "message": message}).to_string()
        } else {
            format!(
                "line {line}: {code}: {}",
                message.replace(['\n', '\r'], " ")
            )
        };
        match &mut self.failed {
            Some(failed) => failed.line(&text),
            None => {
                self.progress.say(&text);
                Ok(())
            }
        }
    }

    /// Leaves the calls in progress: they count as failed, since nobody knows whether they run.
    async fn abandon(&mut self) -> Result<(), Error> {
        self.in_flight.shutdown().await;
        let left = self.sent.len();
        for line in std::mem::take(&mut self.sent) {
            let message = "it was left in progress by a second Ctrl-C; it may have run";
            self.fail(line, "abandoned", message)?;
        }
        self.progress.say(&format!(
            "{left} calls in progress were left; they may have run"
        ));
        Ok(())
    }
}

type Input = BufReader<Box<dyn tokio::io::AsyncRead + Unpin + Send>>;

/// The lines' source, and its size where it is known.
async fn open(file: &Path) -> Result<(Input, Option<u64>), Error> {
    if file == Path::new("-") {
        return Ok((
            BufReader::with_capacity(64 << 10, Box::new(tokio::io::stdin())),
            None,
        ));
    }
    let fault = |source| Error::Io {
        what: format!("cannot open {}", file.display()),
        source,
    };
    let input = tokio::fs::File::open(file).await.map_err(fault)?;
    let about = input.metadata().await.map_err(fault)?;
    if about.is_dir() {
        return Err(Error::Usage(format!(
            "{} is a folder; give a file, or - for standard input",
            file.display()
        )));
    }
    let size = about.is_file().then_some(about.len());
    Ok((BufReader::with_capacity(64 << 10, Box::new(input)), size))
}

/// A file that gets a line at once, so that what it says holds even when this process is killed.
struct Record {
    file: std::fs::File,
    path: PathBuf,
}

impl Record {
    fn create(path: &Path) -> Result<Self, Error> {
        let file = std::fs::File::create(path).map_err(|source| Error::Io {
            what: format!("cannot create {}", path.display()),
            source,
        })?;
        Ok(Self {
            file,
            path: path.into(),
        })
    }

    fn line(&mut self, text: &str) -> Result<(), Error> {
        let written = self.file.write_all(format!("{text}\n").as_bytes());
        written.map_err(|source| Error::Io {
            what: format!("cannot write to {}", self.path.display()),
            source,
        })
    }
}

/// Whether a person watches standard error.
fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Seconds since a moment, never zero.
fn seconds(since: Instant, now: Instant) -> f64 {
    now.saturating_duration_since(since).as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests;
