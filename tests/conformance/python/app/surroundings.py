"""The commands of everything but the database."""

from __future__ import annotations

import os
import sys
import time

from quarry_guest import QuarryError, cluster, context, durability, log, metrics, timers
from quarry_guest.codec import to_json

from . import ends
from .form import Args, Failure, flag, invalid, number, number_of, option
from .script import Command, Script

#: Random bytes that a step may ask for.
_RANDOM_MAX = 1024
_FOR_EVER_MS = (1 << 64) - 1
_KINDS: dict[str, object] = {"call": False, "query": True}
_LEVELS: dict[str, object] = {level: level for level in ("trace", "debug", "info", "warn", "error")}
_STREAMS: dict[str, object] = {"out": "stdout", "err": "stderr"}


def _durable_seq(_: Script, __: Args) -> list[bytes]:
    return [number(durability.durable_seq())]


def _notify(script: Script, args: Args) -> list[bytes]:
    seq = args.bytes()
    durability.notify_when_durable(number_of(seq) if seq else script.last_seq, args.number())
    return []


def _set_timer(_: Script, args: Args) -> list[bytes]:
    name, after_ms, payload = args.text(), args.number(), args.bytes()
    timers.set(name, after_ms, payload)
    return []


def _set_durable_timer(script: Script, args: Args) -> list[bytes]:
    name, after_ms, payload = args.text(), args.number(), args.bytes()
    return script.wrote(timers.set_durable(name, after_ms, payload))


def _cancel_timer(_: Script, args: Args) -> list[bytes]:
    return [flag(timers.cancel(args.text()))]


def _timer_due(_: Script, args: Args) -> list[bytes]:
    due = timers.due_ms(args.text())
    return [option(None if due is None else number(due))]


def _to_shard(_: Script, args: Args) -> list[bytes]:
    is_query, shard, key = args.choice(_KINDS), args.number(), args.option()
    method, payload = args.text(), args.bytes()
    run = cluster.query_shard if is_query else cluster.call_shard
    return [run(shard, method, payload, key=key)]


def _to_key(_: Script, args: Args) -> list[bytes]:
    is_query, key = args.choice(_KINDS), args.bytes()
    method, payload = args.text(), args.bytes()
    return [(cluster.query if is_query else cluster.call)(key, method, payload)]


def _measure(_: Script, args: Args) -> list[bytes]:
    what, name = args.text(), args.text()
    if what == "describe":
        metrics.describe(name, args.text())
    elif what == "add":
        by = args.number()
        metrics.add(name, by, **args.pairs())
    elif what == "set":
        value = args.decimal()
        metrics.set(name, value, **args.pairs())
    elif what == "observe":
        value = args.decimal()
        metrics.observe(name, value, **args.pairs())
    else:
        raise invalid()
    return []


def _log(_: Script, args: Args) -> list[bytes]:
    level, message = str(args.choice(_LEVELS)), args.text()
    enabled = log.enabled(level)
    getattr(log, level)(message, **args.pairs())
    return [flag(enabled)]


def _print(_: Script, args: Args) -> list[bytes]:
    stream, text = str(args.choice(_STREAMS)), args.text()
    print(text, file=getattr(sys, stream))
    return []


def _place(_: Script, __: Args) -> list[bytes]:
    owned_for = context.owned_for()
    owned_ms = _FOR_EVER_MS if owned_for == float("inf") else round(owned_for * 1000)
    return [
        context.cluster().encode(),
        number(context.shard()),
        number(context.shard_count()),
        context.node().encode(),
        number(context.generation()),
        context.module().encode(),
        number(context.revision()),
        to_json(context.options()),
        context.status().encode(),
        number(owned_ms),
    ]


def _shard_for(_: Script, args: Args) -> list[bytes]:
    return [number(context.shard_for(args.bytes()))]


def _this_call(script: Script, args: Args) -> list[bytes]:
    left, traceparent, header = script.call.time_left, script.call.traceparent, script.call.header(args.text())
    left_ms = None if left is None else number(round(left * 1000))
    return [option(left_ms), *(option(None if text is None else text.encode()) for text in (traceparent, header))]


def _set_content_type(script: Script, args: Args) -> list[bytes]:
    script.media_type = args.text()
    return []


def _reply_when_applied(script: Script, _: Args) -> list[bytes]:
    script.is_applied = True
    return []


def _memory(script: Script, args: Args) -> list[bytes]:
    value = args.option()
    if value is not None:
        script.state.memory = value
    return [script.state.memory]


def _seen(script: Script, _: Args) -> list[bytes]:
    return list(script.state.seen)


def _clock(_: Script, __: Args) -> list[bytes]:
    return [number(time.time_ns() // 1_000_000), number(time.monotonic_ns())]


def _random(_: Script, args: Args) -> list[bytes]:
    count = args.number()
    if count > _RANDOM_MAX:
        raise invalid()
    return [os.urandom(count)]


def _raise(_: Script, args: Args) -> list[bytes]:
    code, message, retryable = args.text(), args.text(), args.flag()
    raise Failure(code, message, retryable=retryable)


def _throw(_: Script, args: Args) -> list[bytes]:
    raise ValueError(args.text())


COMMANDS: dict[str, Command] = {
    "durability.durable-seq": _durable_seq,
    "durability.notify-when-durable": _notify,
    "timers.set": _set_timer,
    "timers.set-durable": _set_durable_timer,
    "timers.cancel": _cancel_timer,
    "timers.due-ms": _timer_due,
    "cluster": _to_shard,
    "cluster-key": _to_key,
    "metrics": _measure,
    "log": _log,
    "print": _print,
    "shard": _place,
    "shard.shard-for": _shard_for,
    "current-call": _this_call,
    "current-call.set-content-type": _set_content_type,
    "current-call.reply-when-applied": _reply_when_applied,
    "memory": _memory,
    "seen": _seen,
    "clock": _clock,
    "random": _random,
    "raise": _raise,
    "throw": _throw,
    "abort": lambda _, __: ends.abort(),
    "recurse": lambda _, __: [number(ends.recurse(0))],
    "allocate": lambda _, __: ends.allocate(),
    "spin": lambda _, __: ends.spin(),
}
