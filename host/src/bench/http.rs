//! A client for the bench: one keep-alive connection, one request at a time, nothing that would measure itself.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection.
pub(super) struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl Connection {
    pub async fn open(address: SocketAddr, path: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let request =
            format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\n\r\n")
                .into_bytes();
        Ok(Self {
            stream,
            request,
            buffer: Vec::with_capacity(4096),
        })
    }

    /// Sends the request, reads the reply, and says whether its status is 200.
    pub async fn call(&mut self) -> io::Result<bool> {
        self.stream.write_all(&self.request).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(head) = find(&self.buffer, b"\r\n\r\n")
                && self.buffer.len() >= head + 4 + content_length(&self.buffer[..head])?
            {
                return Ok(self.buffer.starts_with(b"HTTP/1.1 200"));
            }
        }
    }
}

fn content_length(head: &[u8]) -> io::Result<usize> {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .unwrap_or("0")
        .trim()
        .parse();
    length.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len())
        .position(|window| window == wanted)
}
