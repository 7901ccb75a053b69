//! The least an echo server can do on epoll. The limit that epoll servers are compared with.
//!
//! One thread, one fixed buffer, no parsing and no allocation per message. Each connection is
//! registered once, edge-triggered. A receive that does not fill the buffer has emptied the socket, so
//! the server waits next instead of asking again and being told `EAGAIN`. A message therefore costs one
//! `recv` and one `send`, and its share of one `epoll_wait`.
//!
//! It comes in two forms that differ in one instruction per message. In `raw-epoll` everything is one
//! function. In `raw-epoll-called` the function that serves a connection is called, and so returns, as in
//! any program that has parts: docs/benchmarks/returns.md tells what that one return costs, and why.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use clap::Parser;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send, sockopt};

use crate::listen::listen;

/// Events taken from the kernel by one wait.
const EVENTS: usize = 1024;
/// The receive buffer. A message that fits is echoed with one receive and one send.
const BUFFER_BYTES: usize = 16 * 1024;
/// The event data of the listening socket; every other value is a descriptor.
const LISTENER: u64 = u64::MAX;

#[derive(Parser)]
#[command(about = "The least an echo server can do on epoll")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
}

/// Serves until it is killed. `CALLED` says which of the two forms this is.
///
/// # Errors
/// When the address cannot be listened on.
#[inline(always)]
pub fn run<const CALLED: bool>() -> io::Result<()> {
    let listener = listen(Arguments::parse().listen, SocketFlags::NONBLOCK)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let edge_in = EventFlags::IN | EventFlags::ET;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), edge_in)?;

    let mut server = Server { epoll, connections: Vec::new(), buffer: vec![0; BUFFER_BYTES] };
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        match epoll::wait(&server.epoll, rustix::buffer::spare_capacity(&mut events), None) {
            // Interrupted: a debugger (`strace`, `steps`) has attached.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let (data, flags) = (event.data.u64(), event.flags);
            if data == LISTENER {
                server.accept_all(&listener)?;
            } else {
                if CALLED {
                    server.serve_called(data as usize, flags);
                } else {
                    server.serve(data as usize, flags);
                }
            }
        }
    }
}

struct Server {
    epoll: OwnedFd,
    /// Indexed by descriptor.
    connections: Vec<Option<Connection>>,
    buffer: Vec<u8>,
}

struct Connection {
    socket: OwnedFd,
    /// What the peer was too slow to take. Empty, and never allocated, as long as the peer reads.
    unsent: Vec<u8>,
}

/// What to do with a connection next.
enum Next {
    Wait,
    Close,
}

impl Server {
    fn accept_all(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = match accept_with(listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            sockopt::set_tcp_nodelay(&socket, true)?;
            let descriptor = socket.as_raw_fd() as usize;
            let data = EventData::new_u64(descriptor as u64);
            epoll::add(&self.epoll, &socket, data, interest(false))?;
            if self.connections.len() <= descriptor {
                self.connections.resize_with(descriptor + 1, || None);
            }
            self.connections[descriptor] = Some(Connection { socket, unsent: Vec::new() });
        }
    }

    #[inline(never)]
    fn serve_called(&mut self, descriptor: usize, flags: EventFlags) {
        self.serve(descriptor, flags);
    }

    #[inline]
    fn serve(&mut self, descriptor: usize, flags: EventFlags) {
        let Some(connection) = &mut self.connections[descriptor] else { return };
        let next = if connection.unsent.is_empty() {
            connection.echo(&self.epoll, flags, &mut self.buffer)
        } else {
            connection.catch_up(&self.epoll, &mut self.buffer)
        };
        if let Next::Close = next {
            self.connections[descriptor] = None;
        }
    }
}

impl Connection {
    /// Echoes what has arrived.
    #[inline]
    fn echo(&mut self, epoll: &OwnedFd, flags: EventFlags, buffer: &mut [u8]) -> Next {
        // When the peer has ended its side, read on until the end is seen: no other edge will come.
        let ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        loop {
            let received = match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return Next::Close,
                Ok((received, _)) => received,
                Err(Errno::AGAIN) => return Next::Wait,
                Err(Errno::INTR) => continue,
                Err(_) => return Next::Close,
            };
            match send(&self.socket, &buffer[..received], SendFlags::NOSIGNAL) {
                Ok(sent) if sent == received => {}
                Ok(sent) => return self.fall_behind(epoll, &buffer[sent..received]),
                Err(Errno::AGAIN) => return self.fall_behind(epoll, &buffer[..received]),
                Err(_) => return Next::Close,
            }
            if received < buffer.len() && !ending {
                return Next::Wait;
            }
        }
    }

    /// Keeps `rest` and stops reading until the peer has taken it.
    #[cold]
    fn fall_behind(&mut self, epoll: &OwnedFd, rest: &[u8]) -> Next {
        self.unsent.extend_from_slice(rest);
        self.watch(epoll, true)
    }

    /// Sends what is unsent; when all of it is gone, reads again.
    #[cold]
    fn catch_up(&mut self, epoll: &OwnedFd, buffer: &mut [u8]) -> Next {
        while !self.unsent.is_empty() {
            match send(&self.socket, &self.unsent, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(Errno::AGAIN) => return Next::Wait,
                Err(Errno::INTR) => {}
                Err(_) => return Next::Close,
            }
        }
        match self.watch(epoll, false) {
            // What arrived meanwhile has had its edge: read to the end.
            Next::Wait => self.echo(epoll, EventFlags::RDHUP, buffer),
            Next::Close => Next::Close,
        }
    }

    /// Asks for writability too (`output`), or no longer.
    #[cold]
    fn watch(&self, epoll: &OwnedFd, output: bool) -> Next {
        let data = EventData::new_u64(self.socket.as_raw_fd() as u64);
        match epoll::modify(epoll, self.socket.as_fd(), data, interest(output)) {
            Ok(()) => Next::Wait,
            Err(_) => Next::Close,
        }
    }
}

fn interest(output: bool) -> EventFlags {
    let input = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
    if output { input | EventFlags::OUT } else { input }
}
