//! What a guest may import, and what it exports. The WIT files say the same; a test compares.

/// The interfaces of `quarry:shard` that a guest may import, with their functions.
pub(super) const IMPORTS: [(&str, &[&str]); 9] = [
    ("quarry:shard/types", &[]),
    (
        "quarry:shard/shard",
        &[
            "cluster",
            "number",
            "count",
            "shard-for",
            "node",
            "generation",
            "module",
            "revision",
            "options",
            "status",
            "owned-for-ms",
        ],
    ),
    (
        "quarry:shard/current-call",
        &[
            "deadline-ms",
            "traceparent",
            "header",
            "set-content-type",
            "reply-when-applied",
        ],
    ),
    (
        "quarry:shard/db",
        &[
            "get",
            "get-versioned",
            "get-many",
            "put",
            "put-for",
            "remove",
            "merge",
            "write",
            "scan",
            "scan-prefix",
            "open-snapshot",
            "begin",
            "[method]cursor.next",
            "[method]snapshot.seq",
            "[method]snapshot.get",
            "[method]snapshot.get-many",
            "[method]snapshot.scan",
            "[method]snapshot.scan-prefix",
            "[method]transaction.get",
            "[method]transaction.get-many",
            "[method]transaction.put",
            "[method]transaction.put-for",
            "[method]transaction.remove",
            "[method]transaction.merge",
            "[method]transaction.scan",
            "[method]transaction.scan-prefix",
            "[method]transaction.commit",
        ],
    ),
    (
        "quarry:shard/durability",
        &["durable-seq", "notify-when-durable"],
    ),
    (
        "quarry:shard/timers",
        &["set", "set-durable", "cancel", "due-ms"],
    ),
    (
        "quarry:shard/cluster",
        &["call", "call-key", "query", "query-key"],
    ),
    ("quarry:shard/log", &["enabled", "write"]),
    (
        "quarry:shard/metrics",
        &["describe", "add", "set", "observe"],
    ),
];

const CALL: &str = "func(method: string, key: option<list<u8>>, payload: list<u8>) -> \
                    result<list<u8>, record { code: string, message: string, retryable: bool }>";

/// The functions of the export for calls, with their types.
pub(super) const HANDLER_FUNCTIONS: [(&str, &str); 1] = [("call", CALL)];

/// The functions of the export for HTTP, with their types.
pub(super) const HTTP_HANDLER_FUNCTIONS: [(&str, &str); 1] = [(
    "handle",
    "func(request: a resource, response-out: a resource)",
)];

/// An interface, and its functions with their types.
type Interface = (&'static str, &'static [(&'static str, &'static str)]);

/// The optional exports, in the order of [`crate::guest::Exports`].
pub(super) const OPTIONAL_EXPORTS: [Interface; 7] = [
    ("quarry:shard/queries", &[("query", CALL)]),
    (
        "quarry:shard/lifecycle",
        &[
            (
                "start",
                "func() -> result<_, record { code: string, message: string, retryable: bool }>",
            ),
            ("stop", "func(reason: string)"),
        ],
    ),
    (
        "quarry:shard/options",
        &[("validate", "func(options: string) -> result<_, string>")],
    ),
    (
        "quarry:shard/durable-events",
        &[("durable", "func(tags: list<u64>)")],
    ),
    (
        "quarry:shard/timer-events",
        &[(
            "fire",
            "func(name: string, payload: list<u8>, due-ms: u64) -> result<_, record { code: string, message: string, retryable: bool }>",
        )],
    ),
    (
        "quarry:shard/handoff",
        &[
            (
                "suspend",
                "func() -> result<list<u8>, record { code: string, message: string, retryable: bool }>",
            ),
            (
                "resume",
                "func(from-revision: u64, state: list<u8>) -> result<_, record { code: string, message: string, retryable: bool }>",
            ),
        ],
    ),
    (
        "quarry:shard/migration",
        &[(
            "migrate",
            "func(from-revision: u64) -> result<bool, record { code: string, message: string, retryable: bool }>",
        )],
    ),
];

/// The interfaces of WASI 0.2 that can be linked. Those for files and sockets are there for the standard libraries that import them
/// unasked; they hold no file, no folder and no network. HTTP goes out to the hosts that a revision is granted, and to no other.
pub(in crate::guest::wasm) const WASI_IMPORTS: [&str; 29] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/stderr",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:cli/terminal-stderr",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:http/outgoing-handler",
    "wasi:http/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/random",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
    "wasi:sockets/tcp-create-socket",
    "wasi:sockets/udp",
    "wasi:sockets/udp-create-socket",
];

/// All that is offered, for an error.
pub(super) fn list() -> String {
    let names: Vec<_> = IMPORTS.iter().map(|(interface, _)| *interface).collect();
    format!(
        "{}, and WASI 0.2 (cli, clocks, filesystem, http, io, random, sockets; without files, and without network but for HTTP to granted hosts)",
        names.join(", ")
    )
}
