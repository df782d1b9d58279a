//! The table of routes, and how a request finds its own.

use std::sync::OnceLock;

use ::http::header::{ALLOW, CONTENT_LENGTH};
use ::http::{HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};

use super::deploy::Step;
use super::{HEADERS_MAX, HttpOptions, Problem, Shared, calls, deploy, guest, host, origin, views};
use crate::config::units::Size;
use crate::metrics;
use crate::transport::Command;

/// A route.
#[derive(Debug)]
pub struct Route {
    /// Its method; none where it takes every one. Routes with GET answer HEAD too, and every route OPTIONS.
    pub method: Option<Method>,
    /// Its path; at most one segment is a parameter in braces. `{method}` and `{path}` take the rest of the path, slashes too.
    pub path: &'static str,
    /// What it does.
    pub summary: &'static str,
    action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Call,
    Query,
    Guest,
    Index,
    Health,
    Ready,
    Metrics,
    OpenApi,
    Status,
    Assignments,
    Lookup,
    Shard,
    Move,
    Restart,
    DurableSeq,
    Durable,
    Nodes,
    Drain,
    Cordon,
    Uncordon,
    Modules,
    Upload,
    Revisions,
    Record,
    Revision,
    Prune,
    PruneOne,
    Rollout,
    Deploy,
    Promote,
    Pause,
    Resume,
    Abort,
}

/// Every route, the hot ones first.
pub const ROUTES: &[Route] = &[
    route(
        Method::POST,
        "/v1/call/{method}",
        Action::Call,
        "Call a method of a shard's guest",
    ),
    route(
        Method::POST,
        "/v1/query/{method}",
        Action::Query,
        "Run a read-only query of a shard's guest",
    ),
    Route {
        method: None,
        path: "/http/{path}",
        summary: "An HTTP request to a shard's guest",
        action: Action::Guest,
    },
    route(Method::GET, "/", Action::Index, "List the routes"),
    route(
        Method::GET,
        "/health",
        Action::Health,
        "Whether this process answers",
    ),
    route(
        Method::GET,
        "/ready",
        Action::Ready,
        "Whether this node's shards run, and why not",
    ),
    route(
        Method::GET,
        "/metrics",
        Action::Metrics,
        "Metrics in Prometheus' text format",
    ),
    route(
        Method::GET,
        "/openapi.json",
        Action::OpenApi,
        "This API as an OpenAPI document",
    ),
    route(
        Method::GET,
        "/v1/status",
        Action::Status,
        "How the cluster is, shard by shard",
    ),
    route(
        Method::GET,
        "/v1/assignments",
        Action::Assignments,
        "Where every shard is",
    ),
    route(
        Method::GET,
        "/v1/lookup",
        Action::Lookup,
        "Where the shard of a key is",
    ),
    route(
        Method::GET,
        "/v1/shards/{shard}",
        Action::Shard,
        "How a shard is",
    ),
    route(
        Method::POST,
        "/v1/shards/{shard}/move",
        Action::Move,
        "Move a shard to a node, where it stays",
    ),
    route(
        Method::POST,
        "/v1/shards/{shard}/restart",
        Action::Restart,
        "Restart a shard; heals a quarantine",
    ),
    route(
        Method::GET,
        "/v1/shards/{shard}/durable-seq",
        Action::DurableSeq,
        "Up to which write everything is durable",
    ),
    route(
        Method::GET,
        "/v1/shards/{shard}/durable",
        Action::Durable,
        "Wait until a write is durable",
    ),
    route(
        Method::GET,
        "/v1/nodes",
        Action::Nodes,
        "The nodes of the cluster",
    ),
    route(
        Method::POST,
        "/v1/nodes/{node}/drain",
        Action::Drain,
        "Have a node hand over its shards, and take none",
    ),
    route(
        Method::POST,
        "/v1/nodes/{node}/cordon",
        Action::Cordon,
        "Have a node take no further shards",
    ),
    route(
        Method::POST,
        "/v1/nodes/{node}/uncordon",
        Action::Uncordon,
        "Have a node take shards again",
    ),
    route(
        Method::GET,
        "/v1/modules",
        Action::Modules,
        "The components in the bucket",
    ),
    route(
        Method::POST,
        "/v1/modules",
        Action::Upload,
        "Store a component",
    ),
    route(
        Method::GET,
        "/v1/revisions",
        Action::Revisions,
        "The revisions, the newest first",
    ),
    route(
        Method::POST,
        "/v1/revisions",
        Action::Record,
        "Record a revision without rolling it out",
    ),
    route(
        Method::GET,
        "/v1/revisions/{revision}",
        Action::Revision,
        "A revision",
    ),
    route(
        Method::POST,
        "/v1/revisions/prune",
        Action::Prune,
        "Remove old revisions, and modules that no other one needs",
    ),
    route(
        Method::POST,
        "/v1/revisions/{revision}/prune",
        Action::PruneOne,
        "Remove a revision",
    ),
    route(
        Method::GET,
        "/v1/rollout",
        Action::Rollout,
        "How the rollout goes",
    ),
    route(
        Method::POST,
        "/v1/rollout",
        Action::Deploy,
        "Begin to roll out a revision",
    ),
    route(
        Method::POST,
        "/v1/rollout/promote",
        Action::Promote,
        "Have the rest of a canary follow",
    ),
    route(
        Method::POST,
        "/v1/rollout/pause",
        Action::Pause,
        "Reach no further shard for now",
    ),
    route(
        Method::POST,
        "/v1/rollout/resume",
        Action::Resume,
        "Go on with a rollout",
    ),
    route(
        Method::POST,
        "/v1/rollout/abort",
        Action::Abort,
        "Have a rollout go back",
    ),
];

const fn route(method: Method, path: &'static str, action: Action, summary: &'static str) -> Route {
    Route {
        method: Some(method),
        path,
        summary,
        action,
    }
}

impl Route {
    /// The parameter of a path of this route, empty where it has none; nothing when it is the path of another.
    fn matches<'p>(&self, path: &'p str) -> Option<&'p str> {
        let Some((prefix, rest)) = self.path.split_once('{') else {
            return (self.path == path).then_some("");
        };
        let (name, suffix) = rest.split_once('}').unwrap_or((rest, ""));
        if name == "path" && prefix.strip_suffix('/') == Some(path) {
            return Some("");
        }
        let parameter = path.strip_prefix(prefix)?.strip_suffix(suffix)?;
        (matches!(name, "method" | "path") || !parameter.contains('/')).then_some(parameter)
    }
}

/// Where a request leads.
#[derive(Debug, PartialEq, Eq)]
enum Found<'p> {
    /// To the route of this index, with the parameter of its path.
    Route(usize, &'p str),
    /// To a path whose routes have other methods: these.
    OtherMethod(&'static str),
    /// Nowhere.
    Nothing,
}

fn find<'p>(method: &Method, path: &'p str) -> Found<'p> {
    let (mut reads, mut writes) = (false, false);
    for (index, route) in ROUTES.iter().enumerate() {
        if let Some(parameter) = route.matches(path) {
            let Some(own) = &route.method else {
                return Found::Route(index, parameter);
            };
            if own == method || (*method == Method::HEAD && *own == Method::GET) {
                return Found::Route(index, parameter);
            }
            reads |= *own == Method::GET;
            writes |= *own == Method::POST;
        }
    }
    match (reads, writes) {
        (true, true) => Found::OtherMethod("GET, HEAD, POST, OPTIONS"),
        (true, false) => Found::OtherMethod("GET, HEAD, OPTIONS"),
        (false, true) => Found::OtherMethod("POST, OPTIONS"),
        (false, false) => Found::Nothing,
    }
}

/// Answers a request.
pub(super) async fn answer(shared: &Shared, request: Request<Incoming>) -> Response<Full<Bytes>> {
    // The parts move into the handlers; the path is needed beside them, and cloning it only counts a reference.
    let uri = request.uri().clone();
    let head = *request.method() == Method::HEAD;
    let (route, outcome) = match check(&request, &shared.options) {
        Err(problem) => (ROUTES.len(), Err(problem)),
        Ok(()) => match find(request.method(), uri.path()) {
            Found::Route(index, parameter) => (
                index,
                act(
                    shared,
                    ROUTES[index].action,
                    parameter,
                    uri.query().unwrap_or(""),
                    request,
                )
                .await,
            ),
            Found::OtherMethod(allow) if *request.method() == Method::OPTIONS => {
                (ROUTES.len(), Ok(options(allow)))
            }
            Found::OtherMethod(allow) => (
                ROUTES.len(),
                Err(not_allowed(request.method(), uri.path(), allow)),
            ),
            Found::Nothing if *request.method() == Method::OPTIONS && uri.path() == "*" => {
                (ROUTES.len(), Ok(options("GET, HEAD, POST, OPTIONS")))
            }
            Found::Nothing => (ROUTES.len(), Err(not_found(uri.path()))),
        },
    };
    let mut response = outcome.unwrap_or_else(Problem::respond);
    if let Some(node) = &shared.node {
        response
            .headers_mut()
            .entry("quarry-node")
            .or_insert_with(|| node.clone());
    }
    if head {
        let length = response.body().size_hint().exact().unwrap_or(0);
        // A guest may have said already how long it would have been.
        let headers = response.headers_mut();
        headers.entry(CONTENT_LENGTH).or_insert(length.into());
        *response.body_mut() = Full::default();
    }
    shared.counts.count(route, response.status());
    response
}

async fn act(
    shared: &Shared,
    action: Action,
    parameter: &str,
    query: &str,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Problem> {
    match action {
        Action::Call => calls::call(shared, parameter, query, request).await,
        Action::Query => calls::query(shared, parameter, query, request).await,
        Action::Guest => guest::serve(shared, parameter, query, request).await,
        Action::Index => views::index(shared, query),
        Action::Health => views::health(shared, query),
        Action::Ready => views::ready(shared, query).await,
        Action::Metrics => views::metrics(shared, query),
        Action::OpenApi => views::openapi(query),
        Action::Status => views::status(shared, query).await,
        Action::Assignments => views::assignments(shared, query),
        Action::Lookup => views::lookup(shared, query),
        Action::Shard => views::shard(shared, parameter, query).await,
        Action::Move => views::move_shard(shared, parameter, query).await,
        Action::Restart => views::restart(shared, parameter, query).await,
        Action::DurableSeq => views::durable_seq(shared, parameter, query).await,
        Action::Durable => views::durable(shared, parameter, query).await,
        Action::Nodes => views::nodes(shared, query).await,
        Action::Drain => views::order(shared, parameter, Command::Drain, query).await,
        Action::Cordon => views::order(shared, parameter, Command::Cordon, query).await,
        Action::Uncordon => views::order(shared, parameter, Command::Uncordon, query).await,
        Action::Modules => deploy::modules(shared, query).await,
        Action::Upload => deploy::upload(shared, query, request).await,
        Action::Revisions => deploy::revisions(shared, query).await,
        Action::Record => deploy::record(shared, query, request).await,
        Action::Revision => deploy::revision(shared, parameter, query).await,
        Action::Prune => deploy::prune(shared, query).await,
        Action::PruneOne => deploy::prune_revision(shared, parameter, query).await,
        Action::Rollout => deploy::rollout(shared, query).await,
        Action::Deploy => deploy::deploy(shared, query, request).await,
        Action::Promote => deploy::order(shared, Step::Promote, query).await,
        Action::Pause => deploy::order(shared, Step::Pause, query).await,
        Action::Resume => deploy::order(shared, Step::Resume, query).await,
        Action::Abort => deploy::order(shared, Step::Abort, query).await,
    }
}

/// Checks what every request is bound to.
fn check<B>(request: &Request<B>, options: &HttpOptions) -> Result<(), Problem> {
    host::check(request, options)?;
    origin::check(request, &options.allow_origins)?;
    let most = options.max_uri;
    let path = request
        .uri()
        .path_and_query()
        .map_or(0, |path| path.as_str().len());
    if path > most {
        let detail = format!(
            "the path and query have {path} bytes; at most {} are allowed (`http.max_uri`)",
            Size(most as u64)
        );
        return Err(Problem::host(
            StatusCode::URI_TOO_LONG,
            "uri-too-long",
            detail,
        ));
    }
    let fields = request.headers().len();
    if fields > HEADERS_MAX {
        let detail =
            format!("the request has {fields} header fields; at most {HEADERS_MAX} are allowed");
        return Err(Problem::host(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers-too-large",
            detail,
        ));
    }
    let most = options.max_header;
    let bytes: usize = request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if bytes > most {
        let detail = format!(
            "the headers have {bytes} bytes; at most {} are allowed (`http.max_header`)",
            Size(most as u64)
        );
        return Err(Problem::host(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers-too-large",
            detail,
        ));
    }
    Ok(())
}

fn options(allow: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allow));
    response
}

fn not_allowed(method: &Method, path: &str, allow: &'static str) -> Problem {
    let path: String = path.chars().take(64).collect();
    let detail = format!("{path} does not answer {method}; it answers {allow}");
    Problem {
        allow: Some(allow),
        ..Problem::host(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail)
    }
}

fn not_found(path: &str) -> Problem {
    let path: String = path.chars().take(64).collect();
    Problem::host(
        StatusCode::NOT_FOUND,
        "not-found",
        format!("there is no route {path}; GET / lists the routes"),
    )
}

/// Status codes that have a counter of their own.
const STATUSES: [u16; 19] = [
    200, 204, 400, 403, 404, 405, 408, 409, 413, 414, 422, 429, 431, 500, 501, 502, 503, 504, 0,
];

/// The counters of requests, each made when it is first needed.
pub(super) struct Counts(Box<[[OnceLock<::metrics::Counter>; STATUSES.len()]]>);

impl Counts {
    pub(super) fn new() -> Self {
        Self(
            (0..=ROUTES.len())
                .map(|_| [const { OnceLock::new() }; STATUSES.len()])
                .collect(),
        )
    }

    fn count(&self, route: usize, status: StatusCode) {
        let status = status.as_u16();
        let place = STATUSES
            .iter()
            .position(|known| *known == status)
            .unwrap_or(STATUSES.len() - 1);
        let counter = self.0[route][place].get_or_init(|| {
            let name = ROUTES.get(route).map_or("none", |route| route.path);
            metrics::http_requests(name, STATUSES[place])
        });
        counter.increment(1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_request_finds_its_route() {
        let found = |method, path| match find(method, path) {
            Found::Route(index, parameter) => format!("{} {parameter}", ROUTES[index].path),
            other => format!("{other:?}"),
        };
        let (get, post) = (&Method::GET, &Method::POST);
        for (method, path, expected) in [
            (post, "/v1/call/put", "/v1/call/{method} put"),
            (post, "/v1/call/main/put", "/v1/call/{method} main/put"),
            (post, "/v1/call/", "/v1/call/{method} "),
            (post, "/v1/query/get", "/v1/query/{method} get"),
            (get, "/", "/ "),
            (get, "/http", "/http/{path} "),
            (post, "/http/", "/http/{path} "),
            (get, "/http/a//b/", "/http/{path} a//b/"),
            (&Method::OPTIONS, "/http/a", "/http/{path} a"),
            (&Method::TRACE, "/http/a", "/http/{path} a"),
            (get, "/https", "Nothing"),
            (&Method::HEAD, "/health", "/health "),
            (get, "/v1/shards/3", "/v1/shards/{shard} 3"),
            (get, "/v1/shards/3/durable", "/v1/shards/{shard}/durable 3"),
            (
                get,
                "/v1/shards/3/durable-seq",
                "/v1/shards/{shard}/durable-seq 3",
            ),
            (post, "/v1/shards/3/restart", "/v1/shards/{shard}/restart 3"),
            (
                get,
                "/v1/shards/3/restart",
                "OtherMethod(\"POST, OPTIONS\")",
            ),
            (get, "/v1/call/put", "OtherMethod(\"POST, OPTIONS\")"),
            (post, "/health", "OtherMethod(\"GET, HEAD, OPTIONS\")"),
            (post, "/v1/call", "Nothing"),
            (get, "/health/", "Nothing"),
            (get, "/v1/shards/3/other", "Nothing"),
            (get, "/v2/status", "Nothing"),
            (get, "", "Nothing"),
            (get, "/v1/shards/durable", "/v1/shards/{shard} durable"),
            (get, "/v1/rollout", "/v1/rollout "),
            (post, "/v1/rollout", "/v1/rollout "),
            (post, "/v1/revisions/prune", "/v1/revisions/prune "),
            (
                post,
                "/v1/revisions/3/prune",
                "/v1/revisions/{revision}/prune 3",
            ),
            (
                &Method::DELETE,
                "/v1/modules",
                "OtherMethod(\"GET, HEAD, POST, OPTIONS\")",
            ),
        ] {
            assert_eq!(found(method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn no_two_routes_are_the_same() {
        let routes = ROUTES.iter();
        let different: BTreeSet<_> = routes
            .map(|route| (route.method.as_ref().map(Method::as_str), route.path))
            .collect();
        assert_eq!(different.len(), ROUTES.len());
    }

    #[test]
    fn what_is_over_a_limit_is_named() {
        let options = HttpOptions {
            max_header: 1000,
            max_uri: 2000,
            ..HttpOptions::from(&crate::config::Config::default())
        };
        let request = |path: &str, fields: usize, bytes: usize| {
            let mut request = Request::builder().uri(path);
            for field in 0..fields {
                request = request.header(format!("h-{field}"), "v".repeat(bytes));
            }
            request.body(()).expect("request")
        };
        assert!(check(&request("/", 2, 400), &options).is_ok());
        for (request, status, part) in [
            (
                request(&format!("/{}", "p".repeat(2000)), 0, 0),
                414,
                "2001 bytes; at most 2000B are allowed (`http.max_uri`)",
            ),
            (request("/", 65, 1), 431, "65 header fields; at most 64"),
            (
                request("/", 1, 1000),
                431,
                "1003 bytes; at most 1000B are allowed (`http.max_header`)",
            ),
        ] {
            let problem = check(&request, &options).expect_err(part);
            assert_eq!(problem.status.as_u16(), status);
            assert!(problem.detail.contains(part), "{}", problem.detail);
        }
    }
}
