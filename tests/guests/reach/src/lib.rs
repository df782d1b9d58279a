//! A guest that reaches for files, the network and the host's environment. None of it may be there.
//!
//! Apart from the others, because it is the one that imports `wasi:filesystem` and `wasi:sockets`.
//!
//! | method | payload | |
//! |---|---|---|
//! | `read-file`, `write-file`, `list-folder` | a path | error `refused`, or what it found |
//! | `connect` | an address, as `127.0.0.1:80` | error `refused` |
//! | `resolve` | a name with a port | error `refused` |
//! | `listen`, `send-udp` | - | error `refused` |
//! | `env`, `args` | - | a JSON list, which has to be empty |
//! | `stdin` | - | how many bytes there were, which has to be 0 |

use std::io::{self, Read as _};
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};

use quarry_guest::prelude::*;

#[derive(Default)]
struct Reach;

impl Guest for Reach {
    fn call(&mut self, call: Call) -> Result<Reply> {
        let text = call.text()?;
        match call.method() {
            "read-file" => outcome(std::fs::read(text).map(|bytes| bytes.len())),
            "write-file" => outcome(std::fs::write(text, "x").map(|()| 1)),
            "list-folder" => outcome(std::fs::read_dir(text).map(Iterator::count)),
            "connect" => outcome(TcpStream::connect(text).map(|_| 1)),
            "resolve" => outcome(text.to_socket_addrs().map(Iterator::count)),
            "listen" => outcome(TcpListener::bind("127.0.0.1:0").map(|_| 1)),
            "send-udp" => outcome(
                UdpSocket::bind("127.0.0.1:0")
                    .and_then(|socket| socket.send_to(b"x", "127.0.0.1:9")),
            ),
            "env" => Reply::json(&std::env::vars().collect::<Vec<_>>()),
            "args" => Reply::json(&std::env::args().collect::<Vec<_>>()),
            "stdin" => outcome(io::stdin().read_to_end(&mut Vec::new())),
            other => Err(Error::unknown_method(other)),
        }
    }
}

quarry_guest::export!(Reach);

/// What the outside gave, or the error `refused`.
fn outcome(result: io::Result<usize>) -> Result<Reply> {
    match result {
        Ok(what) => Ok(Reply::text(what)),
        Err(why) => Err(Error::new("refused", why.to_string())),
    }
}
