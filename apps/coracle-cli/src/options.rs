//! What all servers of the program have in common on the command line.

use coracle::demux::Backend;
use coracle::net::{Server, ServerHandle};
use std::io;
use std::time::Duration;

/// Where a server listens, and with what it serves.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ServeOptions {
    /// Where to listen: HOST:PORT, [IPv6]:PORT, :PORT (everywhere), unix:PATH or unix:@NAME. May be repeated.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<String>,
    /// uring, epoll, poll or select; by default $CORACLE_BACKEND, else the best the kernel allows.
    #[arg(long)]
    pub(crate) backend: Option<Backend>,
    /// How many loops, each on a thread; by default one per core.
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// How long connections may take to finish when the server is asked to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) drain: u64,
}

impl ServeOptions {
    /// The server these options describe, listening on `default` unless they say where.
    pub(crate) fn server(&self, default: &str) -> io::Result<Server> {
        let addresses =
            if self.listen.is_empty() { vec![default.to_owned()] } else { self.listen.clone() };
        let mut server = Server::bind(addresses.as_slice())?.drain(Duration::from_secs(self.drain));
        if let Some(backend) = self.backend {
            server = server.backend(backend);
        }
        if let Some(threads) = self.threads {
            server = server.loops(threads);
        }
        Ok(server)
    }
}

/// Says where and on what a server runs, and how to talk to it.
pub(crate) fn announce(name: &str, handle: &ServerHandle) {
    let loops = match handle.loops() {
        1 => "1 loop".to_owned(),
        loops => format!("{loops} loops"),
    };
    for address in handle.local_addresses() {
        println!("coracle {name}: listening on {address}, on {}, {loops}", handle.backend());
        if let Some(ip) = address.ip() {
            let host =
                if ip.ip().is_unspecified() { "127.0.0.1".into() } else { ip.ip().to_string() };
            println!("talk to it: nc {host} {}; stop it: Ctrl-C", ip.port());
        }
        if let Some(path) = address.path() {
            println!("talk to it: nc -U {}; stop it: Ctrl-C", path.display());
        }
    }
}
