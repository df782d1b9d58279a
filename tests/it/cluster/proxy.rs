//! A way to a server that can be cut: as in a network that loses everything, connections stay and nothing comes through.

use std::net::Ipv4Addr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Ends with its drop.
pub struct Proxy {
    pub port: u16,
    cut: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// On a free port, to a port of this machine.
    pub async fn to(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let cut = watch::Sender::new(false);
        let cuts = cut.subscribe();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server, cuts.clone()));
            }
        });
        Self { port, cut, task }
    }

    /// From now on nothing comes through.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// New connections come through again, those of before end.
    pub fn heal(&self) {
        self.cut.send_replace(false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Errors of either side end the connection, as they do without a proxy.
async fn pass(mut client: TcpStream, server: u16, mut cuts: watch::Receiver<bool>) {
    let mut cut = cuts.clone();
    let through = async {
        if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await {
            _ = copy_bidirectional(&mut client, &mut server).await;
        }
    };
    let is_cut = tokio::select! {
        biased;
        cut = async { cut.wait_for(|cut| *cut).await.is_ok() } => cut,
        () = through => false,
    };
    if is_cut {
        _ = cuts.wait_for(|cut| !cut).await;
    }
}
