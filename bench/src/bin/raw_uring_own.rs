//! The least an echo server can do on io_uring if each connection receives into *memory of its own*, as a
//! blocking `read(&mut buffer)` in a coroutine does: a request for each receive, which lands there and nowhere
//! else.
//!
//! [`raw-uring`](harness::raw_uring) asks once for all that a connection will ever receive, and the kernel picks
//! from a few buffers that are always in the cache. What this one takes beside it is what the kernel has for such
//! reads; no scheduler, no stack and no switch are in it.
//!
//! ```text
//!  receive done ─► send from there ─► send done ─► receive
//! ```
//! There was nothing left to receive when the last receive was done, so the next waits at once and does not try
//! (`IORING_RECVSEND_POLL_FIRST`). It measures and does not defend.

#![allow(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use clap::Parser;
use harness::listen::listen;
use harness::raw_ring::{self, Submissions};
use io_uring::types::Fd;
use io_uring::{opcode, squeue};
use rustix::net::{SocketFlags, sockopt};

/// `user_data` of the accept; every other value is a descriptor.
const ACCEPT: u64 = u64::MAX;
/// `user_data` of a send is the descriptor with this bit.
const SEND: u64 = 1 << 32;
/// Wait for readiness before the first try (`ioprio` of a receive).
const POLL_FIRST: u16 = 1;

#[derive(Parser)]
#[command(
    about = "The least an echo server can do on io_uring that receives into each connection's own memory"
)]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
}

/// Where a connection receives to: a page of its own, as the top of a stack is.
#[repr(align(4096))]
struct Space([u8; 2048]);

/// A connection, at the index of its descriptor.
struct Connection {
    space: Box<Space>,
    /// What of it is still to be sent.
    unsent: std::ops::Range<u32>,
}

fn main() -> io::Result<()> {
    let listener = listen(Arguments::parse().listen, SocketFlags::empty())?;
    // Declared before the ring, so that it is dropped after it.
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut ring = raw_ring::open()?;
    let (submitter, queue, mut completions) = ring.split();
    let mut submissions = Submissions::new(submitter, queue);
    push(
        &mut submissions,
        &opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).build().user_data(ACCEPT),
    );
    loop {
        submissions.submit_and_wait()?;
        completions.sync();
        for completion in &mut completions {
            let (token, result) = (completion.user_data(), completion.result());
            if token == ACCEPT {
                if result < 0 {
                    return Err(io::Error::from_raw_os_error(-result));
                }
                let connection = open(&mut connections, result);
                push(&mut submissions, &receive(result, connection, 0));
                continue;
            }
            let socket = token as u32 as RawFd;
            let connection = connections[socket as usize].as_mut().expect("it is open");
            if result <= 0 {
                connections[socket as usize] = None;
                // SAFETY: at any time it has one request, and this was its last.
                drop(unsafe { OwnedFd::from_raw_fd(socket) });
                continue;
            }
            let next = if token & SEND == 0 {
                connection.unsent = 0..result as u32;
                send(socket, connection)
            } else {
                connection.unsent.start += result as u32;
                if connection.unsent.is_empty() {
                    receive(socket, connection, POLL_FIRST)
                } else {
                    send(socket, connection)
                }
            };
            push(&mut submissions, &next);
        }
        completions.sync();
    }
}

fn open(connections: &mut Vec<Option<Connection>>, socket: RawFd) -> &mut Connection {
    let index = socket as usize;
    if connections.len() <= index {
        connections.resize_with(index + 1, || None);
    }
    // SAFETY: we have just got this descriptor, and only its last request closes it.
    let _ = sockopt::set_tcp_nodelay(unsafe { BorrowedFd::borrow_raw(socket) }, true);
    connections[index].insert(Connection { space: Box::new(Space([0; 2048])), unsent: 0..0 })
}

#[inline]
fn receive(socket: RawFd, connection: &mut Connection, how: u16) -> squeue::Entry {
    let space = &mut connection.space.0;
    opcode::Recv::new(Fd(socket), space.as_mut_ptr(), space.len() as u32)
        .ioprio(how)
        .build()
        .user_data(socket as u64)
}

#[inline]
fn send(socket: RawFd, connection: &Connection) -> squeue::Entry {
    let unsent = &connection.space.0[connection.unsent.start as usize..];
    opcode::Send::new(Fd(socket), unsent.as_ptr(), connection.unsent.len() as u32)
        .build()
        .user_data(SEND | socket as u64)
}

#[inline]
fn push(submissions: &mut Submissions<'_>, entry: &squeue::Entry) {
    // SAFETY: a request has the space of a connection, which has one request at a time and is kept until the last.
    unsafe { submissions.push(entry) }
}
