//! The least a web server can do on io_uring, without reading what it is asked: multishot receives into provided
//! buffers, and a send that is always the same. The limit that web servers on io_uring are compared with.
//!
//! What is sent never changes, so that nobody has to know when a send is done: only a failed one completes.
//! It measures and does not defend.

#![allow(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use clap::Parser;
use harness::buffer_ring::BufferRing;
use harness::canned::Canned;
use harness::listen::listen;
use harness::raw_ring::{self, Submissions};
use io_uring::squeue::Flags;
use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};
use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};

/// The buffer group of the receives.
const GROUP: u16 = 0;
/// `user_data` of the accept; every other value is a descriptor.
const ACCEPT: u64 = u64::MAX;
/// `user_data` of a failed send is the descriptor with this bit.
const SEND: u64 = 1 << 32;

#[derive(Parser)]
#[command(about = "The least a web server can do on io_uring")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

fn main() -> io::Result<()> {
    let listener = listen(Arguments::parse().listen, SocketFlags::empty())?;
    let canned = Canned::default();
    // Declared before the ring, so that it is dropped after it.
    let mut buffers;
    let mut ring = raw_ring::open()?;
    buffers = BufferRing::register(&ring.submitter(), GROUP, 256, 2048)?;
    let (submitter, queue, mut completions) = ring.split();
    let mut submissions = Submissions::new(submitter, queue);
    // Indexed by descriptor: how much of a request is there that is not whole.
    let mut pending: Vec<usize> = Vec::new();
    let mut starved: Vec<RawFd> = Vec::new();
    let accept = opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).build().user_data(ACCEPT);
    push(&mut submissions, &accept);
    loop {
        submissions.submit_and_wait()?;
        completions.sync();
        for completion in &mut completions {
            let (token, result) = (completion.user_data(), completion.result());
            let more = cqueue::more(completion.flags());
            if token == ACCEPT {
                if result >= 0 {
                    if pending.len() <= result as usize {
                        pending.resize(result as usize + 1, 0);
                    }
                    pending[result as usize] = 0;
                    // SAFETY: we have just got this descriptor, and only the end of its receive closes it.
                    let socket = unsafe { BorrowedFd::borrow_raw(result) };
                    let _ = sockopt::set_tcp_nodelay(socket, true);
                    push(&mut submissions, &receive(result));
                }
                if !more {
                    push(&mut submissions, &accept);
                }
                continue;
            }
            if token & SEND != 0 {
                continue; // the receive will end as well
            }
            let socket = token as RawFd;
            if result > 0 {
                let id = cqueue::buffer_select(completion.flags()).expect("data comes in a buffer");
                buffers.recycle(id);
                let answers = canned.answers(&mut pending[socket as usize], result as usize);
                if !answers.is_empty() {
                    let send =
                        opcode::Send::new(Fd(socket), answers.as_ptr(), answers.len() as u32)
                            .flags(libc::MSG_WAITALL)
                            .build()
                            .flags(Flags::SKIP_SUCCESS)
                            .user_data(SEND | token);
                    push(&mut submissions, &send);
                }
                if !more {
                    push(&mut submissions, &receive(socket));
                }
            } else if result == -Errno::NOBUFS.raw_os_error() {
                starved.push(socket);
            } else {
                // SAFETY: the receive has ended, and sends name the descriptor only until they are submitted.
                drop(unsafe { OwnedFd::from_raw_fd(socket) });
            }
        }
        completions.sync();
        if buffers.publish() {
            for socket in starved.drain(..) {
                push(&mut submissions, &receive(socket));
            }
        }
    }
}

#[inline]
fn push(submissions: &mut Submissions<'_>, entry: &squeue::Entry) {
    // SAFETY: a send points at the canned answers, which live as long as the program.
    unsafe { submissions.push(entry) }
}

fn receive(socket: RawFd) -> squeue::Entry {
    opcode::RecvMulti::new(Fd(socket), GROUP).build().user_data(socket as u64)
}
