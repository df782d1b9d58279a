//! Runs the simulator for as long as wanted. `--help` says how.

#[path = "simulator.rs"]
mod simulator;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use quarry_core::rules::Mutation;
use simulator::setup::Climate;
use simulator::world::{Figures, Outcome};

const HELP: &str = "\
Simulates clusters that are out of luck, one for each seed, and stops at the first broken promise.

  --seeds N        how many seeds (default 1000)
  --from S         the first seed (default 0)
  --seed S         this seed only
  --trace          print everything that happens
  --climate NAME   in a world that is bad in one way above all: usual, pauses, outages, slowopens, latewrites, lostrecords,
                   crowded, restarts
  --mutation NAME  with one rule broken on purpose; `list` names all
  --keep-going     do not stop at the first broken promise
  --jobs N         threads (default: all processors)
  --json           figures and failures as JSON lines on stdout";

struct Options {
    from: u64,
    seeds: u64,
    trace: bool,
    climate: Climate,
    mutation: Option<Mutation>,
    keep_going: bool,
    jobs: usize,
    json: bool,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let stop = Arc::new(AtomicBool::new(false));
    let _ = signal_hook::flag::register_conditional_shutdown(
        signal_hook::consts::SIGINT,
        130,
        Arc::clone(&stop),
    );
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))
    {
        eprintln!("Ctrl-C will not print a summary: {error}");
    }
    let failures = run(&options, &stop);
    if failures == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs all seeds on all threads; how many broke a promise.
fn run(options: &Options, stop: &AtomicBool) -> u64 {
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    let halt = AtomicBool::new(false);
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Outcome>(1024);
    let (mut total, mut done, mut failures) = (Figures::default(), 0u64, 0u64);
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            let (sender, next, halt) = (sender.clone(), &next, &halt);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) && !halt.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= options.seeds {
                        break;
                    }
                    let outcome = simulator::run(
                        options.from.wrapping_add(index),
                        options.climate,
                        options.mutation,
                        options.trace,
                    );
                    if sender.send(outcome).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut told = Instant::now();
        for outcome in receiver {
            done += 1;
            total.add(&outcome.figures);
            if outcome.violation.is_some() {
                failures += 1;
                tell(options, &outcome);
                if !options.keep_going {
                    halt.store(true, Ordering::Relaxed);
                }
            }
            if told.elapsed().as_secs() >= 10 {
                told = Instant::now();
                eprintln!(
                    "{done} of {} seeds, {failures} failed, {:.0} seeds/s",
                    options.seeds,
                    done as f64 / begun.elapsed().as_secs_f64()
                );
            }
        }
    });
    summary(
        options,
        &total,
        done,
        failures,
        begun.elapsed().as_secs_f64(),
    );
    failures
}

fn tell(options: &Options, outcome: &Outcome) {
    let words = outcome.describe(options.climate, options.mutation);
    match &outcome.violation {
        Some(violation) if options.json => println!(
            "{{\"seed\":{},\"oracle\":{:?},\"at_ns\":{},\"words\":{:?}}}",
            outcome.setup.seed, violation.oracle, violation.at, violation.words
        ),
        _ => println!("{words}\n"),
    }
}

fn summary(options: &Options, total: &Figures, done: u64, failures: u64, seconds: f64) {
    // Each thread has a processor for itself, or the figure is too small.
    let cpu_hours = seconds * options.jobs as f64 / 3600.0;
    let rate = done as f64 / seconds;
    let hours = total.node_hours();
    if options.json {
        println!(
            "{{\"seeds\":{done},\"failures\":{failures},\"seconds\":{seconds:.3},\"seeds_per_second\":{rate:.1},\"node_hours\":{hours:.1},\"node_hours_per_cpu_hour\":{:.0},\"events\":{},\"requests\":{},\"claims\":{},\"claims_lost\":{},\"opens\":{},\"calls\":{},\"calls_done\":{},\"calls_unknown\":{},\"probes\":{},\"moves\":{},\"moves_least\":{},\"steady_rounds\":{},\"steady_requests\":{}}}",
            hours / cpu_hours,
            total.events,
            total.requests,
            total.claims,
            total.claims_lost,
            total.opens,
            total.calls,
            total.calls_done,
            total.calls_unknown,
            total.probes,
            total.moves,
            total.moves_least,
            total.steady_rounds,
            total.steady_requests
        );
        return;
    }
    println!(
        "{done} seeds in {seconds:.1} s ({rate:.0}/s), {failures} failed; {hours:.0} node-hours, {:.0} for each CPU-hour",
        hours / cpu_hours
    );
    println!("{total:#?}");
}

fn options() -> Result<Option<Options>, String> {
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut options = Options {
        from: 0,
        seeds: 1000,
        trace: false,
        climate: Climate::Usual,
        mutation: None,
        keep_going: false,
        jobs,
        json: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = |what: &str| {
            let text = arguments
                .next()
                .ok_or_else(|| format!("{argument} wants {what}"))?;
            text.parse::<u64>()
                .map_err(|_| format!("{argument} wants {what}, not {text:?}"))
        };
        match argument.as_str() {
            "--seeds" => options.seeds = number("a number of seeds")?,
            "--from" => options.from = number("a seed")?,
            "--seed" => (options.from, options.seeds) = (number("a seed")?, 1),
            "--jobs" => {
                options.jobs =
                    usize::try_from(number("a number of threads")?.clamp(1, 1024)).unwrap_or(1)
            }
            "--trace" => options.trace = true,
            "--keep-going" => options.keep_going = true,
            "--json" => options.json = true,
            "--climate" => {
                let name = arguments.next().unwrap_or_default();
                options.climate = simulator::teeth::climate(&name)
                    .ok_or_else(|| format!("there is no climate {name:?}"))?;
            }
            "--mutation" => match arguments.next().as_deref() {
                Some("list") => {
                    Mutation::ALL
                        .iter()
                        .for_each(|mutation| println!("{mutation:?}"));
                    return Ok(None);
                }
                Some(name) => {
                    options.mutation = Some(simulator::teeth::mutation(name).ok_or_else(|| {
                        format!("there is no mutation {name:?}; `--mutation list` names all")
                    })?);
                }
                None => return Err("--mutation wants a name".into()),
            },
            "--help" | "-h" => {
                println!("{HELP}");
                return Ok(None);
            }
            other => return Err(format!("there is no option {other:?}")),
        }
    }
    Ok(Some(options))
}
