//! Takes an address to listen at, for whatever listens.

use std::io;
use std::net::{SocketAddr, TcpListener};

use tokio::net::TcpSocket;
use tokio::runtime::Handle;

/// How many connections the system keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// Takes an address. Within a Tokio runtime.
///
/// # Errors
/// When it is in use or not this machine's, or this is no thread of a Tokio runtime.
pub(crate) fn reserve(wanted: SocketAddr) -> io::Result<TcpListener> {
    Handle::try_current().map_err(io::Error::other)?;
    let socket = match wanted {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // As for every listener: connections of a predecessor that linger do not keep the address.
    socket.set_reuseaddr(true)?;
    socket.bind(wanted)?;
    // With that option, on Linux, two can bind; only one that listens keeps others away.
    socket.listen(BACKLOG)?.into_std()
}
