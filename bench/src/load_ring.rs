//! The ring of a load generator: sends, receives and waits as cheaply as a client can (`ping`, `ask`).
#![allow(unsafe_code)]

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use io_uring::cqueue::CompletionQueue;
use io_uring::squeue::SubmissionQueue;
use io_uring::types::{Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Submitter, opcode, squeue};
use rustix::net::sockopt;

use crate::cpu_clock::cpu_time;
use crate::pause;

/// Submissions that fit one turn; a longer turn submits in between.
pub const SUBMISSIONS: u32 = 4096;
/// Completions the kernel can post before it has to set some aside.
const COMPLETIONS: u32 = 32 * 1024;
/// The buffer group of the receives.
pub const GROUP: u16 = 0;
/// A place without a descriptor.
const NOBODY: RawFd = -1;
/// How long to spin for an answer before sleeping.
const LIMIT_SPIN: Duration = Duration::from_micros(500);
/// `user_data` of a failed send is the connection's with this bit; that of a receive is the connection's.
pub const SEND: u64 = 1 << 32;

/// `user_data` of a connection that has come.
pub const ACCEPT: u64 = 1 << 33;

/// A ring to which these sockets are known by their places.
///
/// # Errors
/// The kernel does not have what it takes.
pub fn open(sockets: &[TcpStream]) -> io::Result<IoUring> {
    open_with_room(sockets, 0)
}

/// The same with room for so many more behind them ([`Submissions::put`]).
///
/// # Errors
/// Likewise.
pub fn open_with_room(sockets: &[TcpStream], room: usize) -> io::Result<IoUring> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_no_sqarray()
        .setup_cqsize(COMPLETIONS)
        .build(SUBMISSIONS)?;
    let nobody = std::iter::repeat_n(NOBODY, room);
    let descriptors: Vec<RawFd> = sockets.iter().map(AsRawFd::as_raw_fd).chain(nobody).collect();
    ring.submitter().register_files(&descriptors)?;
    Ok(ring)
}

/// Refuses to load anybody else's machine.
///
/// # Errors
/// It is not a loopback address.
pub fn check_loopback(address: SocketAddr) -> io::Result<()> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let text = format!("will not load {address}: only loopback addresses are allowed");
    Err(io::Error::other(text))
}

/// A socket of ours, set up.
///
/// # Errors
/// It is not one of TCP.
pub fn prepared(socket: TcpStream) -> io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    // Cheaper than BBR, where that is the default; fails where it is not allowed.
    let _ = sockopt::set_tcp_congestion(&socket, "reno");
    Ok(socket)
}

/// What went wrong on a connection; `result` is a completion's.
pub fn fault(index: u32, what: &str, result: i32) -> io::Error {
    let reason = match result {
        0.. => format!("{result} bytes"),
        _ => io::Error::from_raw_os_error(-result).to_string(),
    };
    io::Error::other(format!("connection {index}: {what} ({reason})"))
}

/// What goes to the kernel.
pub struct Submissions<'ring> {
    submitter: Submitter<'ring>,
    queue: SubmissionQueue<'ring>,
}

impl<'ring> Submissions<'ring> {
    /// Those of a ring.
    pub fn new(submitter: Submitter<'ring>, queue: SubmissionQueue<'ring>) -> Submissions<'ring> {
        Submissions { submitter, queue }
    }

    /// Accepts what comes from now on, without a place yet ([`ACCEPT`]). It may end: say it again then.
    pub fn accept(&mut self, listener: &TcpListener) {
        let accept = opcode::AcceptMulti::new(Fd(listener.as_raw_fd()))
            .flags(libc::SOCK_CLOEXEC)
            .build()
            .user_data(ACCEPT);
        // SAFETY: it points at nothing; the address of the peer is not asked for.
        unsafe { self.push(&accept) };
    }

    /// Puts a connection into a place, or takes it out of there.
    ///
    /// # Errors
    /// There is no such place.
    pub fn put(&mut self, index: u32, socket: Option<&TcpStream>) -> io::Result<()> {
        let descriptor = socket.map_or(NOBODY, AsRawFd::as_raw_fd);
        self.submitter.register_files_update(index, &[descriptor])?;
        Ok(())
    }

    /// Receives on a connection from now on, into the buffers of [`GROUP`].
    #[inline]
    pub fn receive(&mut self, index: u32) {
        let receive = opcode::RecvMulti::new(Fixed(index), GROUP).build();
        // SAFETY: it points at nothing; the buffers are the ring's own.
        unsafe { self.push(&receive.user_data(index.into())) };
    }

    /// Sends all of this on a connection. There is a completion only if it fails.
    ///
    /// # Safety
    /// The bytes stay where and as they are until what they lead to has been received.
    #[inline]
    pub unsafe fn send(&mut self, index: u32, bytes: &[u8]) {
        // MSG_WAITALL makes a short send a failure, so a skipped completion means that all has gone.
        let send = opcode::Send::new(Fixed(index), bytes.as_ptr(), bytes.len() as u32)
            .flags(libc::MSG_WAITALL)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(SEND | u64::from(index));
        // SAFETY: the caller's promise.
        unsafe { self.push(&send) };
    }

    /// # Safety
    /// What the entry points at stays until the kernel is done with it.
    #[inline]
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the caller's promise.
        while unsafe { self.queue.push(entry) }.is_err() {
            self.make_room();
        }
    }

    #[cold]
    fn make_room(&mut self) {
        self.queue.sync();
        self.submitter.submit().expect("io_uring takes well-formed entries");
        self.queue.sync();
    }

    /// Submits, and returns when something has completed, or after a second.
    ///
    /// It spins before it sleeps. A sleeping client would have to be woken, the server would pay for
    /// that (some microseconds for an interrupt to another core), and the more so the slower it is.
    ///
    /// # Errors
    /// The kernel's.
    pub fn submit_and_wait(&mut self, completions: &mut CompletionQueue<'_>) -> io::Result<()> {
        self.enter(0)?;
        completions.sync();
        let start = Instant::now();
        while CompletionQueue::is_empty(completions) {
            if self.queue.taskrun() {
                self.enter(0)?;
            } else if start.elapsed() > LIMIT_SPIN {
                self.enter(1)?;
                completions.sync();
                return Ok(());
            } else {
                std::hint::spin_loop();
            }
            completions.sync();
        }
        Ok(())
    }

    /// Submits all, runs what the kernel has put off for us, and waits for `want` completions, for a second at
    /// most.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enter(&mut self, want: u32) -> io::Result<()> {
        self.queue.sync();
        let second = Timespec::new().sec(1);
        let arguments = SubmitArgs::new().timespec(&second);
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // SAFETY: EXT_ARG says that the argument is of the type given.
        let result = unsafe {
            self.submitter.enter(self.queue.len() as u32, want, flags.bits(), Some(&arguments))
        };
        self.queue.sync();
        match result {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends what is queued to a server that stands still, lets it go, and sleeps until there are `want`
    /// completions: how long they took. (An answer in two pieces ends the wait too early for another; the next
    /// round waits for it.)
    ///
    /// # Errors
    /// The kernel's, or there is no such server.
    pub fn burst(&mut self, server: &[u32], want: u32) -> io::Result<Duration> {
        pause::stop(server)?;
        self.enter(0)?;
        let start = Instant::now();
        pause::go_on(server)?;
        // From here on we sleep until the last answer is there, and what we use is what it takes to take them in.
        // (What it took to let the server go is not taken off: the server was working by then.)
        let used = cpu_time(std::process::id())?;
        self.enter(want)?;
        let used = cpu_time(std::process::id())? - used;
        Ok(start.elapsed().saturating_sub(used))
    }
}
