//! The heads of HTTP requests and answers on their way between nodes. What is read is checked as if it came from outside.

use http::uri::PathAndQuery;
use serde::{Deserialize, Serialize};

use super::Malformed;
use crate::guest::http::{FIELDS_MAX, from_text, to_text};
use crate::guest::{HttpAnswer, HttpHead};

/// Header fields of a request: those of the client, and what its node adds.
const REQUEST_FIELDS_MAX: usize = FIELDS_MAX + 4;

/// A request, but for its body.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HeadWord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    method: String,
    target: String,
    authority: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
}

/// An answer, but for its body.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AnswerWord {
    status: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
}

impl From<&HttpHead> for HeadWord {
    fn from(head: &HttpHead) -> Self {
        Self {
            module: head.module.clone(),
            method: head.method.as_str().into(),
            target: head.target.as_str().into(),
            authority: head.authority.clone(),
            headers: to_text(&head.headers),
        }
    }
}

impl HeadWord {
    pub(super) fn read(self) -> Result<HttpHead, Malformed> {
        let wrong = |what: &str| Malformed(format!("the head of the HTTP request has {what}"));
        let method = self.method.parse();
        let target = self.target.parse::<PathAndQuery>();
        let headers = from_text(&self.headers, REQUEST_FIELDS_MAX);
        Ok(HttpHead {
            module: self.module,
            method: method.map_err(|_| wrong("a method that is none"))?,
            target: target.map_err(|_| wrong("a path that is none"))?,
            authority: self.authority,
            headers: headers.ok_or_else(|| wrong("too many headers, or some that are none"))?,
        })
    }
}

impl From<&HttpAnswer> for AnswerWord {
    fn from(answer: &HttpAnswer) -> Self {
        Self {
            status: answer.status,
            headers: to_text(&answer.headers),
        }
    }
}

impl AnswerWord {
    pub(super) fn read(self) -> Result<HttpAnswer, Malformed> {
        let headers = from_text(&self.headers, FIELDS_MAX);
        match headers {
            Some(headers) if (200..=999).contains(&self.status) => Ok(HttpAnswer {
                status: self.status,
                headers,
            }),
            _ => Err(Malformed(format!(
                "the answer over HTTP has the status {}, and {} headers; valid are 200 to 999, and {FIELDS_MAX} headers at most",
                self.status,
                self.headers.len()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_arrive_as_they_were_sent() {
        let mut headers = http::HeaderMap::new();
        headers.append("set-cookie", "a".parse().expect("a value"));
        headers.append("set-cookie", "b".parse().expect("a value"));
        let head = HttpHead {
            module: Some("web".into()),
            method: "PURGE".parse().expect("a method"),
            target: "/a%20b/?q=\u{e4}"
                .replace('\u{e4}', "%C3%A4")
                .parse()
                .expect("a path"),
            authority: "localhost:7070".into(),
            headers: headers.clone(),
        };
        assert_eq!(HeadWord::from(&head).read(), Ok(head));
        let answer = HttpAnswer {
            status: 599,
            headers,
        };
        assert_eq!(AnswerWord::from(&answer).read(), Ok(answer));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let many = vec![r#"["a","b"]"#; REQUEST_FIELDS_MAX + 1].join(",");
        let request = |method: &str, target: &str, headers: &str| {
            let text = format!(
                r#"{{"method":"{method}","target":"{target}","authority":"a","headers":[{headers}]}}"#
            );
            let word: HeadWord = serde_json::from_str(&text).expect("JSON");
            word.read().is_ok()
        };
        for (method, target, headers, fine) in [
            ("GET", "/", "", true),
            ("GET", "/", r#"["a","b"],["a","b"]"#, true),
            ("", "/", "", false),
            ("G T", "/", "", false),
            ("GET", "/a b", "", false),
            ("GET", "/", r#"["a b","c"]"#, false),
            ("GET", "/", r#"["a","\r\nb: c"]"#, false),
            ("GET", "/", many.as_str(), false),
        ] {
            assert_eq!(request(method, target, headers), fine, "{method} {target}");
        }
        let many = vec![r#"["a","b"]"#; FIELDS_MAX + 1].join(",");
        for (status, headers, fine) in [
            (200, "", true),
            (999, "", true),
            (199, "", false),
            (1000, "", false),
            (0, "", false),
            (200, many.as_str(), false),
        ] {
            let text = format!(r#"{{"status":{status},"headers":[{headers}]}}"#);
            let word: AnswerWord = serde_json::from_str(&text).expect("JSON");
            assert_eq!(word.read().is_ok(), fine, "{status}");
        }
    }
}
