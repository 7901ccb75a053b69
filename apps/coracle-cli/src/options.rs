//! What all servers of the program have in common on the command line.

use crate::placement::Placement;
use crate::say;
use crate::style::Style;
use coracle::demux::Backend;
use coracle::net::{Address, Server, ServerHandle, available_cores};
use std::io;
use std::time::Duration;

/// Where a server listens, and with what it serves.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ServeOptions {
    /// Where to listen: HOST:PORT, [IPv6]:PORT, :PORT (everywhere), unix:PATH or unix:@NAME. May be repeated.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<String>,
    /// uring, epoll, poll or select; by default $CORACLE_BACKEND, else the best the kernel allows.
    #[arg(long)]
    pub(crate) backend: Option<Backend>,
    /// How many loops, each on a thread; by default one per core, shared out among the processes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// Each loop stays on a core, in turn, from the first on: for a machine that serves and does nothing else.
    #[arg(long)]
    pub(crate) pin_threads: bool,
    /// Serve with so many processes, which are started again when they die, and replaced one by one on SIGHUP.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) processes: Option<u32>,
    /// How connections are spread over the loops. [default: reuse-port]
    #[arg(long, value_name = "HOW")]
    pub(crate) placement: Option<Placement>,
    /// How long connections may take to finish when the server is asked to stop.
    /// [default: 10]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) drain: Option<u64>,
    /// Whether TLS is spoken; and where, beside that, it is not.
    #[arg(skip)]
    pub(crate) tls: Option<Vec<String>>,
}

impl ServeOptions {
    /// The server these options describe, listening on `default` unless they say where.
    pub(crate) fn server(&self, default: &str) -> io::Result<Server> {
        let addresses = self.addresses(default);
        let server = Server::bind(addresses.as_slice()).map_err(suggest_another)?;
        let mut server = server.drain(self.drain()).pin_threads(self.pin_threads);
        if let Some(backend) = self.backend {
            server = server.backend(backend);
        }
        if self.threads.is_some() || self.processes.is_some() {
            server = server.loops(self.loops());
        }
        if let Some(placement) = self.placement {
            server = server.placement(placement.into());
        }
        Ok(server)
    }

    /// Where to listen, as it was written; on `default` if nothing was.
    pub(crate) fn addresses(&self, default: &str) -> Vec<String> {
        if self.listen.is_empty() { vec![default.to_owned()] } else { self.listen.clone() }
    }

    /// How long connections may take to finish.
    pub(crate) fn drain(&self) -> Duration {
        Duration::from_secs(self.drain.unwrap_or(10))
    }

    /// How many loops each process has.
    pub(crate) fn loops(&self) -> usize {
        let (cores, processes) = (available_cores(), self.processes.unwrap_or(1) as usize);
        match self.threads {
            Some(threads) => threads as usize,
            // Two on a core would stay there.
            None if self.pin_threads => (cores / processes).max(1),
            None => cores.div_ceil(processes),
        }
    }
}

/// Why it cannot listen, and what to do about it.
pub(crate) fn suggest_another(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            io::Error::new(error.kind(), format!("{error}; choose another with --listen"))
        }
        _ => error,
    }
}

/// Says where and on what a server runs, and how to talk to it.
pub(crate) fn announce(name: &str, handle: &ServerHandle) {
    tell(name, handle.local_addresses(), handle.backend(), handle.loops(), Style::Callback);
}

/// The same of a server in any style.
pub(crate) fn tell(
    name: &str,
    addresses: &[Address],
    backend: Backend,
    loops: usize,
    style: Style,
) {
    tell_of(name, addresses, backend, &format!("{}{}", count(loops, "loop"), style.told()));
}

/// The same of a server that is several processes.
pub(crate) fn announce_processes(
    name: &str,
    addresses: &[Address],
    backend: Backend,
    processes: usize,
    loops: usize,
) {
    let (processes, loops) = (count(processes, "process"), count(loops, "loop"));
    tell_of(name, addresses, backend, &format!("{processes}, {loops} each"));
}

fn tell_of(name: &str, addresses: &[Address], backend: Backend, workforce: &str) {
    for address in addresses {
        tell_where(name, address, backend, workforce);
        if let Some(ip) = address.ip() {
            let host =
                if ip.ip().is_unspecified() { "127.0.0.1".into() } else { ip.ip().to_string() };
            say(format_args!("talk to it: nc {host} {}; stop it: Ctrl-C", ip.port()));
        }
        if let Some(path) = address.path() {
            say(format_args!("talk to it: nc -U {}; stop it: Ctrl-C", path.display()));
        }
    }
}

/// The first line of every server.
pub(crate) fn tell_where(name: &str, address: &Address, backend: Backend, workforce: &str) {
    say(format_args!("coracle {name}: listening on {address}, on {backend}, {workforce}"));
}

/// So many of something, in words.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {noun}{plural}")
}
