//! `raw-epoll-proxy`: the least a proxy can do on epoll. The limit that proxies on epoll are compared with.
//!
//! As `raw-epoll` (see [`harness::raw_epoll`]): one thread, one buffer, each connection registered once and
//! edge-triggered, nothing asked twice. A message costs one `recv`, one `send` to the other side, and its share
//! of one `epoll_wait`. Writability is asked for from the start: its edge comes only after a send that found no
//! room. When one of the two sides ends, so does the other.
//!
//! ```text
//! cargo run --release --bin raw-epoll-proxy -- --listen 127.0.0.1:7000 --to 127.0.0.1:7001
//! ```

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use clap::Parser;
use harness::listen::listen;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send, sockopt};

/// Events taken from the kernel by one wait.
const EVENTS: usize = 1024;
/// The receive buffer.
const BUFFER_BYTES: usize = 16 * 1024;
/// The event data of the listening socket; every other value is a descriptor.
const LISTENER: u64 = u64::MAX;

#[derive(Parser)]
#[command(about = "The least a proxy can do on epoll")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
    /// Where to connect to.
    #[arg(long, default_value = "127.0.0.1:7001")]
    to: SocketAddr,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let listener = listen(arguments.listen, SocketFlags::NONBLOCK)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN | EventFlags::ET)?;
    let mut proxy = Proxy { epoll, sides: Vec::new(), buffer: vec![0; BUFFER_BYTES] };
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        match epoll::wait(&proxy.epoll, rustix::buffer::spare_capacity(&mut events), None) {
            // Interrupted: a debugger (`strace`, `steps`) has attached.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => proxy.accept_all(&listener, arguments.to)?,
                descriptor => proxy.serve(descriptor as usize, event.flags),
            }
        }
    }
}

struct Proxy {
    epoll: OwnedFd,
    /// Indexed by descriptor.
    sides: Vec<Option<Side>>,
    buffer: Vec<u8>,
}

struct Side {
    socket: OwnedFd,
    /// The descriptor of the other side.
    other: usize,
    /// What this side was too slow to take. While there is any, the other side is not read.
    unsent: Vec<u8>,
}

impl Proxy {
    fn accept_all(&mut self, listener: &TcpListener, to: SocketAddr) -> io::Result<()> {
        loop {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let client = match accept_with(listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            // On loopback this does not wait, and it happens once a connection.
            let Ok(server) = TcpStream::connect(to) else { continue };
            server.set_nonblocking(true)?;
            let server = OwnedFd::from(server);
            let (a, b) = (client.as_raw_fd() as usize, server.as_raw_fd() as usize);
            self.open(client, b)?;
            self.open(server, a)?;
        }
    }

    fn open(&mut self, socket: OwnedFd, other: usize) -> io::Result<()> {
        sockopt::set_tcp_nodelay(&socket, true)?;
        let descriptor = socket.as_raw_fd() as usize;
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, &socket, EventData::new_u64(descriptor as u64), interest)?;
        if self.sides.len() <= descriptor {
            self.sides.resize_with(descriptor + 1, || None);
        }
        self.sides[descriptor] = Some(Side { socket, other, unsent: Vec::new() });
        Ok(())
    }

    #[inline]
    fn serve(&mut self, descriptor: usize, flags: EventFlags) {
        let Some(side) = &mut self.sides[descriptor] else { return };
        let other = side.other;
        let open = (side.unsent.is_empty() || self.catch_up(descriptor))
            && (!flags.contains(EventFlags::IN) || self.forward(descriptor, flags));
        if !open {
            self.sides[descriptor] = None;
            self.sides[other] = None;
        }
    }

    /// Passes on what has arrived; returns whether both sides are still open.
    #[inline]
    fn forward(&mut self, from: usize, flags: EventFlags) -> bool {
        // When the peer has ended its side, read on until the end is seen: no other edge will come.
        let ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        let Some(side) = &self.sides[from] else { return false };
        let Some(other) = &self.sides[side.other] else { return false };
        if !other.unsent.is_empty() {
            return true;
        }
        loop {
            let received = match recv(&side.socket, &mut *self.buffer, RecvFlags::empty()) {
                Ok((0, _)) => return false,
                Ok((received, _)) => received,
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => continue,
                Err(_) => return false,
            };
            match send(&other.socket, &self.buffer[..received], SendFlags::NOSIGNAL) {
                Ok(sent) if sent == received => {}
                Ok(sent) => return self.fall_behind(from, sent, received),
                Err(Errno::AGAIN) => return self.fall_behind(from, 0, received),
                Err(_) => return false,
            }
            if received < self.buffer.len() && !ending {
                return true;
            }
        }
    }

    /// Keeps what the other side of `from` does not take.
    #[cold]
    fn fall_behind(&mut self, from: usize, start: usize, end: usize) -> bool {
        let other = self.sides[from].as_ref().map(|side| side.other);
        let Some(other) = other.and_then(|other| self.sides[other].as_mut()) else { return false };
        other.unsent.extend_from_slice(&self.buffer[start..end]);
        true
    }

    /// Sends what is unsent; when all of it is gone, the other side is read again.
    #[cold]
    fn catch_up(&mut self, descriptor: usize) -> bool {
        let Some(side) = &mut self.sides[descriptor] else { return false };
        while !side.unsent.is_empty() {
            match send(&side.socket, &side.unsent, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(side.unsent.drain(..sent)),
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        let other = side.other;
        self.forward(other, EventFlags::RDHUP)
    }
}
