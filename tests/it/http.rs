//! HTTP requests to guests, through the port of a node.

use quarry::Cluster;
use quarry::config::Config;
use quarry::http::{HttpOptions, HttpServer};
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use tokio::runtime::Handle;

use crate::support::guests;
use crate::support::store::within;

mod answers;
mod endings;
mod headers;
mod nodes;
pub mod outgoing;
mod swaps;

/// A node's port, and a client of it.
pub struct Door {
    pub cluster: Cluster,
    server: HttpServer,
    client: reqwest::Client,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Door {
    /// Of a node with a guest.
    pub async fn open(config: Config, guest: &str) -> Self {
        Self::of(guests::start(config, guest).await).await
    }

    /// Of a node.
    pub async fn of(cluster: Cluster) -> Self {
        let options = HttpOptions {
            listen: "127.0.0.1:0".parse().expect("an address"),
            ..HttpOptions::from(cluster.config())
        };
        let server = HttpServer::bind(options, cluster.clone(), &Handle::current())
            .await
            .expect("a free port");
        let client = reqwest::Client::builder().no_proxy().build();
        Self {
            cluster,
            server,
            client: client.expect("a client"),
        }
    }

    /// A request, whole path and all.
    pub fn ask(&self, method: &str, path: &str) -> RequestBuilder {
        let method: Method = method.parse().expect("a method");
        let at = self.server.local_addr();
        self.client.request(method, format!("http://{at}{path}"))
    }

    /// A GET under shard 0.
    pub async fn get(&self, path: &str) -> Answer {
        answer(self.ask("GET", &format!("/http/shard/0{path}"))).await
    }

    /// A POST under shard 0.
    pub async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        answer(self.ask("POST", &format!("/http/shard/0{path}")).body(body)).await
    }

    pub async fn close(self) {
        self.server.stop(std::time::Duration::from_secs(5)).await;
        self.cluster.stop().await;
    }
}

/// Sends a request, and takes all that comes back.
pub async fn answer(request: RequestBuilder) -> Answer {
    let response = within(request.send()).await.expect("an answer");
    Answer {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        body: within(response.text()).await.expect("a body"),
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("text"))
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of problem details.
    pub fn code(&self) -> String {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        self.json()["code"].as_str().expect("a code").to_owned()
    }
}
