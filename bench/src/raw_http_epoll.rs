//! The least a web server can do on epoll, without reading what it is asked: one receive, one send that is always
//! the same. The limit that web servers on epoll are compared with.
//!
//! It measures and does not defend: a client that does not read is cut off.
//!
//! It comes in two forms, as [`raw_epoll`](crate::raw_epoll) does, and for the same reason: in
//! `raw-http-epoll-called` the function that serves a connection is called, and so returns.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use clap::Parser;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send, sockopt};

use crate::canned::Canned;
use crate::listen::listen;

/// Events taken from the kernel by one wait.
const EVENTS: usize = 1024;
/// The receive buffer.
const BUFFER_BYTES: usize = 16 * 1024;
/// The event data of the listening socket; every other value is a descriptor.
const LISTENER: u64 = u64::MAX;

#[derive(Parser)]
#[command(about = "The least a web server can do on epoll")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

struct Connection {
    socket: OwnedFd,
    /// How much of a request is there that is not whole.
    pending: usize,
}

/// Serves until it is killed. `CALLED` says which of the two forms this is.
///
/// # Errors
/// When the address cannot be listened on.
#[inline(always)]
pub fn run<const CALLED: bool>() -> io::Result<()> {
    let listener = listen(Arguments::parse().listen, SocketFlags::NONBLOCK)?;
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let interest = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
    epoll::add(&queue, &listener, EventData::new_u64(LISTENER), interest)?;
    let canned = Canned::default();
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        match epoll::wait(&queue, rustix::buffer::spare_capacity(&mut events), None) {
            // Interrupted: a debugger (`strace`, `steps`) has attached.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let (data, flags) = (event.data.u64(), event.flags);
            if data != LISTENER {
                let place = &mut connections[data as usize];
                let Some(it) = place else { continue };
                let served = if CALLED {
                    serve_called(it, flags, &canned, &mut buffer)
                } else {
                    serve(it, flags, &canned, &mut buffer)
                };
                if served.is_none() {
                    *place = None;
                }
                continue;
            }
            while let Ok(socket) =
                accept_with(&listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
            {
                sockopt::set_tcp_nodelay(&socket, true)?;
                let index = socket.as_raw_fd() as usize;
                epoll::add(&queue, &socket, EventData::new_u64(index as u64), interest)?;
                if connections.len() <= index {
                    connections.resize_with(index + 1, || None);
                }
                connections[index] = Some(Connection { socket, pending: 0 });
            }
        }
    }
}

#[inline(never)]
fn serve_called(
    it: &mut Connection,
    flags: EventFlags,
    canned: &Canned,
    buffer: &mut [u8],
) -> Option<()> {
    serve(it, flags, canned, buffer)
}

/// Answers what has arrived; nothing when the connection is over.
#[inline]
fn serve(it: &mut Connection, flags: EventFlags, canned: &Canned, buffer: &mut [u8]) -> Option<()> {
    // When the peer has ended its side, read on until the end is seen: no other edge will come.
    let ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
    loop {
        let received = match recv(&it.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => return None,
            Ok((received, _)) => received,
            Err(Errno::AGAIN) => return Some(()),
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        };
        let answers = canned.answers(&mut it.pending, received);
        if !answers.is_empty() {
            send(&it.socket, answers, SendFlags::NOSIGNAL)
                .ok()
                .filter(|&sent| sent == answers.len())?;
        }
        if received < buffer.len() && !ending {
            return Some(());
        }
    }
}
