//! The least an echo server or a proxy can do on io_uring. The limit that io_uring servers are compared with.
//!
//! One thread, no parsing and no allocation per message. One multishot accept, one multishot receive per
//! connection; the kernel picks a buffer from a ring ([`BufferRing`]) and the answer is sent straight
//! from it. All submissions of a turn go to the kernel with the call that waits for the next completions.
//!
//! ```text
//!  receive done (buffer 7) ─► send from buffer 7 ─► send done ─► buffer 7 back to the ring
//!                        └─► another send is in flight: queue buffer 7 behind it
//! ```
//! The buffers are few on purpose. The ring is a queue: a buffer comes round again after all the others,
//! so a pool larger than the cache is always cold. With 4,096 buffers of 4 KiB the kernel's copy of 8 bytes
//! took 216 ns, with 256 of 2 KiB it takes 40.
//!
//! One send is in flight per connection, because two may interleave. Sends keep their completion: without
//! it nobody could say when the kernel has done with the buffer.
//!
//! `raw-uring` sends back to where a message came from, `raw-uring-proxy` on to the connection it has made for
//! that one; that is all they differ in. When one of the two ends, so does the other.
//!
//! It measures and does not defend: a client that never reads can hold every buffer.

#![allow(unsafe_code)]

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use clap::Parser;
use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, shutdown, sockopt};

use crate::buffer_ring::BufferRing;
use crate::listen::listen;
use crate::raw_ring::{self, Submissions};

/// The buffer group of the receives.
const GROUP: u16 = 0;
/// The end of a list of buffers.
const NONE: u16 = u16::MAX;
/// The other end of nobody.
const NOBODY: RawFd = -1;

#[derive(Parser)]
#[command(about = "The least an echo server or a proxy can do on io_uring")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
    /// Where a proxy connects to.
    #[arg(long, default_value = "127.0.0.1:7001")]
    to: SocketAddr,
    /// How many receive buffers: a power of two, enough for the answers of one turn.
    #[arg(long, default_value_t = 256)]
    buffers: u16,
    /// The size of each.
    #[arg(long, default_value_t = 2048)]
    buffer_bytes: u32,
}

/// Serves until it is killed, as an echo server or as a proxy.
///
/// # Errors
/// When the address cannot be listened on, or the kernel has no io_uring.
#[inline(always)]
pub fn run<const PROXY: bool>() -> io::Result<()> {
    let arguments = Arguments::parse();
    let listener = listen(arguments.listen, SocketFlags::empty())?;
    // Declared before the ring, so that it is dropped after it.
    let buffers;
    let mut ring = raw_ring::open()?;
    buffers =
        BufferRing::register(&ring.submitter(), GROUP, arguments.buffers, arguments.buffer_bytes)?;
    let (submitter, queue, mut completions) = ring.split();
    let mut server = Server::<PROXY> {
        submissions: Submissions::new(submitter, queue),
        listener: listener.as_raw_fd(),
        to: arguments.to,
        connections: Vec::new(),
        pieces: vec![
            Piece { descriptor: -1, offset: 0, len: 0, next: NONE };
            buffers.count().into()
        ],
        buffers,
        starved: Vec::new(),
    };

    server.push(&accept(server.listener));
    loop {
        server.submissions.submit_and_wait()?;
        completions.sync();
        for completion in &mut completions {
            server.complete(&completion);
        }
        completions.sync();
        if server.buffers.publish() {
            server.feed_starved();
        }
    }
}

/// Whose completion it is, packed into the 64 bits the kernel hands back.
mod token {
    pub(super) const ACCEPT: u64 = 0;
    pub(super) const RECEIVE: u64 = 1;
    pub(super) const SEND: u64 = 2;

    /// `value` is a descriptor (receive) or a buffer (send).
    #[inline]
    pub(super) fn pack(kind: u64, value: u32) -> u64 {
        kind << 32 | u64::from(value)
    }

    #[inline]
    pub(super) fn unpack(token: u64) -> (u64, u32) {
        (token >> 32, token as u32)
    }
}

struct Server<'ring, const PROXY: bool> {
    submissions: Submissions<'ring>,
    listener: RawFd,
    to: SocketAddr,
    /// Indexed by descriptor.
    connections: Vec<Connection>,
    /// Indexed by buffer: what of it is still to be sent, and to whom.
    pieces: Vec<Piece>,
    buffers: BufferRing,
    /// Connections whose receive ended because no buffer was free.
    starved: Vec<RawFd>,
}

/// The buffers a connection has still to send: a list through `Piece::next`.
#[derive(Clone)]
struct Connection {
    /// The buffer whose send is in flight.
    first: u16,
    last: u16,
    /// Where what it receives is sent: to itself, or to the connection made for it.
    other: RawFd,
    /// The receive has ended; close when nothing is in flight.
    ended: bool,
}

#[derive(Clone)]
struct Piece {
    descriptor: RawFd,
    offset: u32,
    len: u32,
    next: u16,
}

impl<const PROXY: bool> Server<'_, PROXY> {
    #[inline]
    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what it points at is a buffer of the ring, and stays untouched until its completion gives the
        // buffer back.
        unsafe { self.submissions.push(entry) }
    }

    #[inline]
    fn complete(&mut self, completion: &cqueue::Entry) {
        let (kind, value) = token::unpack(completion.user_data());
        match kind {
            token::RECEIVE => self.received(value as RawFd, completion),
            token::SEND => self.sent(value as u16, completion.result()),
            _ => self.accepted(completion),
        }
    }

    #[cold]
    fn accepted(&mut self, completion: &cqueue::Entry) {
        let result = completion.result();
        if result >= 0 {
            if PROXY {
                // On loopback this does not wait, and it happens once a connection.
                match TcpStream::connect(self.to) {
                    Ok(other) => {
                        let other = other.into_raw_fd();
                        self.open(result, other);
                        self.open(other, result);
                    }
                    Err(_) => close(result),
                }
            } else {
                self.open(result, result);
            }
        } else if result != -Errno::CONNABORTED.raw_os_error() {
            panic!("cannot accept: {}", io::Error::from_raw_os_error(-result));
        }
        if !cqueue::more(completion.flags()) {
            self.push(&accept(self.listener));
        }
    }

    #[cold]
    fn open(&mut self, descriptor: RawFd, other: RawFd) {
        let index = descriptor as usize;
        let free = Connection { first: NONE, last: NONE, other: NOBODY, ended: false };
        if self.connections.len() <= index {
            self.connections.resize(index + 1, free.clone());
        }
        self.connections[index] = Connection { other, ..free };
        // SAFETY: we have just got this descriptor, and only `close` ends it.
        let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
        // Refused only when the peer has gone already; the receive will say so.
        let _ = sockopt::set_tcp_nodelay(socket, true);
        self.push(&receive(descriptor));
    }

    #[inline]
    fn received(&mut self, descriptor: RawFd, completion: &cqueue::Entry) {
        let (result, flags) = (completion.result(), completion.flags());
        if result > 0 {
            let buffer =
                cqueue::buffer_select(flags).expect("a receive with data names its buffer");
            if PROXY {
                match self.connections[descriptor as usize].other {
                    NOBODY => self.buffers.recycle(buffer),
                    other => self.answer(other, buffer, result as u32),
                }
            } else {
                self.answer(descriptor, buffer, result as u32);
            }
            if !cqueue::more(flags) {
                self.push(&receive(descriptor));
            }
        } else {
            self.receive_ended(descriptor, result);
        }
    }

    #[inline]
    fn answer(&mut self, descriptor: RawFd, buffer: u16, len: u32) {
        self.pieces[usize::from(buffer)] = Piece { descriptor, offset: 0, len, next: NONE };
        let connection = &mut self.connections[descriptor as usize];
        if connection.first == NONE {
            (connection.first, connection.last) = (buffer, buffer);
            self.send(buffer);
        } else {
            let last = usize::from(connection.last);
            connection.last = buffer;
            self.pieces[last].next = buffer;
        }
    }

    #[inline]
    fn send(&mut self, buffer: u16) {
        let piece = &self.pieces[usize::from(buffer)];
        let start = self.buffers.address(buffer).wrapping_add(piece.offset as usize);
        let send = opcode::Send::new(Fd(piece.descriptor), start, piece.len - piece.offset)
            .build()
            .user_data(token::pack(token::SEND, buffer.into()));
        self.push(&send);
    }

    #[inline]
    fn sent(&mut self, buffer: u16, result: i32) {
        let piece = &mut self.pieces[usize::from(buffer)];
        let (descriptor, next) = (piece.descriptor, piece.next);
        if result < 0 {
            return self.send_failed(descriptor);
        }
        piece.offset += result as u32;
        if piece.offset < piece.len {
            return self.send(buffer);
        }
        self.buffers.recycle(buffer);
        let connection = &mut self.connections[descriptor as usize];
        connection.first = next;
        if next != NONE {
            self.send(next);
        } else if connection.ended {
            close(descriptor);
        }
    }

    /// Drops what is queued and ends the receive, which then closes the connection.
    #[cold]
    fn send_failed(&mut self, descriptor: RawFd) {
        let connection = &mut self.connections[descriptor as usize];
        let mut buffer = std::mem::replace(&mut connection.first, NONE);
        while buffer != NONE {
            self.buffers.recycle(buffer);
            buffer = self.pieces[usize::from(buffer)].next;
        }
        if connection.ended {
            close(descriptor);
        } else {
            // SAFETY: open until `close`, which waits for the end of the receive.
            let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
            // Fails when the peer has reset the connection; then the receive has ended too.
            let _ = shutdown(socket, Shutdown::Both);
        }
    }

    #[cold]
    fn receive_ended(&mut self, descriptor: RawFd, result: i32) {
        if result == -Errno::NOBUFS.raw_os_error() {
            self.starved.push(descriptor);
            return;
        }
        let connection = &mut self.connections[descriptor as usize];
        connection.ended = true;
        let other = std::mem::replace(&mut connection.other, NOBODY);
        if connection.first == NONE {
            close(descriptor);
        }
        if PROXY && other != NOBODY {
            self.connections[other as usize].other = NOBODY;
            // SAFETY: the other is open, for it would have let go of us: this ends its receive, which closes it.
            let _ = shutdown(unsafe { BorrowedFd::borrow_raw(other) }, Shutdown::Both);
        }
    }

    /// Receives again where buffers had run out, now that the finished ones are back in the ring.
    #[inline]
    fn feed_starved(&mut self) {
        while let Some(descriptor) = self.starved.pop() {
            self.push(&receive(descriptor));
        }
    }
}

fn accept(listener: RawFd) -> squeue::Entry {
    opcode::AcceptMulti::new(Fd(listener)).build().user_data(token::pack(token::ACCEPT, 0))
}

fn receive(descriptor: RawFd) -> squeue::Entry {
    opcode::RecvMulti::new(Fd(descriptor), GROUP)
        .build()
        .user_data(token::pack(token::RECEIVE, descriptor as u32))
}

fn close(descriptor: RawFd) {
    // SAFETY: the receive has ended and no send is in flight, so nothing uses the descriptor any more.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
}
