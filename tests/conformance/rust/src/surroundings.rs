//! The commands of everything but the database.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::bindings::quarry::shard::log::{self, Level};
use crate::bindings::quarry::shard::shard::{self, ShardStatus};
use crate::bindings::quarry::shard::types::Error;
use crate::bindings::quarry::shard::{cluster, current_call, durability, metrics, timers};
use crate::broken::broken;
use crate::form::option;
use crate::script::{Args, Refused, Script, Values, bad, error, flag, number};
use crate::{ends, state};

/// Random bytes that a step may ask for.
const RANDOM_MAX: usize = 1_024;

thread_local! {
    static BEGAN: Instant = Instant::now();
}

/// Runs a command, where it is one of these.
pub fn run(script: &mut Script, command: &str, args: &mut Args) -> Option<Result<Values, Refused>> {
    Some(match command {
        "durability.durable-seq" => Ok(vec![number(durability::durable_seq())]),
        "durability.notify-when-durable" => notify(script, args),
        "timers.set" => set_timer(args),
        "timers.set-durable" => set_durable_timer(script, args),
        "timers.cancel" => cancel_timer(args),
        "timers.due-ms" => timer_due(args),
        "cluster" => to_shard(args),
        "cluster-key" => to_key(args),
        "metrics" => measure(args),
        "log" => write_log(args),
        "print" => print(args),
        "shard" => Ok(place()),
        "shard.shard-for" => args.bytes().map(|key| vec![number(shard::shard_for(key))]),
        "current-call" => this_call(args),
        "current-call.set-content-type" => args.text().map(|media_type| {
            current_call::set_content_type(media_type);
            Vec::new()
        }),
        "current-call.reply-when-applied" => {
            current_call::reply_when_applied();
            Ok(Vec::new())
        }
        "memory" => args
            .option()
            .map(|value| vec![state::memory(value.map(<[u8]>::to_vec))]),
        "seen" => Ok(state::seen()),
        "clock" => Ok(clock()),
        "random" => random(args),
        "raise" => raise(args),
        "throw" if broken("throw-swallowed") => Ok(Vec::new()),
        "throw" => args.text().map(|message| ends::throw(message)),
        "abort" if broken("abort-is-error") => {
            Err(Refused::Call(error("aborted", "not really".into())))
        }
        "abort" => ends::abort(),
        "recurse" if broken("recursion-ends") => Ok(vec![number(1)]),
        "recurse" => Ok(vec![number(ends::recurse(0))]),
        "allocate" if broken("memory-ends") => Ok(Vec::new()),
        "allocate" => ends::allocate(),
        "spin" if broken("loop-is-error") => Err(Refused::Call(error(
            "cpu-time",
            "the runtime cut a loop off".into(),
        ))),
        "spin" => ends::spin(),
        _ => return None,
    })
}

/// Milliseconds since the Unix epoch.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

fn notify(script: &Script, args: &mut Args) -> Result<Values, Refused> {
    let seq = args.text()?;
    let seq = if seq.is_empty() {
        script.last_seq
    } else {
        seq.parse().map_err(|_| bad())?
    };
    nothing(durability::notify_when_durable(seq, args.number()?))
}

fn set_timer(args: &mut Args) -> Result<Values, Refused> {
    nothing(timers::set(args.text()?, args.number()?, args.bytes()?))
}

fn set_durable_timer(script: &mut Script, args: &mut Args) -> Result<Values, Refused> {
    let (name, after_ms, payload) = (args.text()?, args.number()?, args.bytes()?);
    if broken("timers-volatile") {
        timers::set(name, after_ms, payload)?;
        return Ok(vec![number(1)]);
    }
    Ok(script.wrote(timers::set_durable(name, after_ms, payload)?))
}

fn cancel_timer(args: &mut Args) -> Result<Values, Refused> {
    Ok(vec![flag(timers::cancel(args.text()?)?)])
}

fn timer_due(args: &mut Args) -> Result<Values, Refused> {
    Ok(vec![option(timers::due_ms(args.text()?)?.map(number))])
}

fn to_shard(args: &mut Args) -> Result<Values, Refused> {
    let (query, shard, key) = (is_query(args)?, args.number()?, args.option()?);
    let (method, payload) = (args.text()?, args.bytes()?);
    let reply = if query {
        cluster::query(shard, method, key, payload)
    } else {
        cluster::call(shard, method, key, payload)
    };
    Ok(vec![reply?])
}

fn to_key(args: &mut Args) -> Result<Values, Refused> {
    let (query, key) = (is_query(args)?, args.bytes()?);
    let (method, payload) = (args.text()?, args.bytes()?);
    let reply = if query {
        cluster::query_key(key, method, payload)
    } else {
        cluster::call_key(key, method, payload)
    };
    Ok(vec![reply?])
}

fn is_query(args: &mut Args) -> Result<bool, Refused> {
    match args.text()? {
        "call" => Ok(false),
        "query" => Ok(true),
        _ => Err(bad()),
    }
}

fn measure(args: &mut Args) -> Result<Values, Refused> {
    let (what, name) = (args.text()?, args.text()?);
    match what {
        "describe" => metrics::describe(name, args.text()?),
        "add" => {
            let by = args.number()?;
            metrics::add(name, &args.pairs()?, by);
        }
        "set" => {
            let value = args.number()?;
            metrics::set(name, &args.pairs()?, value);
        }
        "observe" => {
            let value = args.number()?;
            metrics::observe(name, &args.pairs()?, value);
        }
        _ => return Err(bad()),
    }
    Ok(Vec::new())
}

fn write_log(args: &mut Args) -> Result<Values, Refused> {
    let level = match args.text()? {
        "trace" => Level::Trace,
        "debug" => Level::Debug,
        "info" => Level::Info,
        "warn" => Level::Warn,
        "error" => Level::Error,
        _ => return Err(bad()),
    };
    let enabled = log::enabled(level);
    log::write(level, args.text()?, &args.pairs()?);
    Ok(vec![flag(enabled)])
}

fn print(args: &mut Args) -> Result<Values, Refused> {
    let (to, text) = (args.text()?, args.text()?);
    let written = match to {
        "out" => writeln!(io::stdout(), "{text}"),
        "err" => writeln!(io::stderr(), "{text}"),
        _ => return Err(bad()),
    };
    written.map_err(|why| error("write-failed", why.to_string()))?;
    Ok(Vec::new())
}

fn place() -> Values {
    let status = match shard::status() {
        ShardStatus::Running => "running",
        ShardStatus::Stopping => "stopping",
        ShardStatus::Fenced => "fenced",
    };
    vec![
        shard::cluster().into_bytes(),
        number(shard::number()),
        number(shard::count()),
        shard::node().into_bytes(),
        number(shard::generation()),
        shard::module().into_bytes(),
        number(shard::revision()),
        shard::options().into_bytes(),
        status.into(),
        number(shard::owned_for_ms()),
    ]
}

fn this_call(args: &mut Args) -> Result<Values, Refused> {
    let name = args.text()?;
    let header = current_call::header(name).filter(|_| !broken("header-lost"));
    Ok(vec![
        option(current_call::deadline_ms().map(number)),
        option(current_call::traceparent()),
        option(header),
    ])
}

fn clock() -> Values {
    let nanos = BEGAN.with(Instant::elapsed).as_nanos();
    vec![number(wall_ms()), number(nanos)]
}

/// From the only door that the standard library has to the host's random.
fn random(args: &mut Args) -> Result<Values, Refused> {
    let count: usize = args.number()?;
    if count > RANDOM_MAX {
        return Err(bad());
    }
    let words = (0..count.div_ceil(8) as u64).map(|word| RandomState::new().hash_one(word));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(count);
    Ok(vec![bytes])
}

fn raise(args: &mut Args) -> Result<Values, Refused> {
    Err(Refused::Call(Error {
        code: args.text()?.into(),
        message: args.text()?.into(),
        retryable: args.flag()?,
    }))
}

fn nothing(outcome: Result<(), Error>) -> Result<Values, Refused> {
    outcome.map(|()| Vec::new()).map_err(Refused::Host)
}
