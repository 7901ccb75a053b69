//! What has the kernel done for us? One completion contract over io_uring, epoll, poll, select and a
//! simulated kernel.
//!
//! A loop [submits](Demux::submit) an [`Operation`] and is told what came of it, at once or later as a
//! [`Completion`]. On io_uring the kernel does the work; on epoll, poll and select one shared adaptor
//! does it when the descriptor is ready; the simulator makes it up from a seed. The loop cannot tell
//! them apart, which is the point: **all** of coracle's I/O passes through the [`Demux`] trait, so all
//! of it can run under a simulated kernel with a virtual clock and injected faults.
//!
//! ```text
//!            submit(Operation) ──► Done(Finished)          it finished at once
//!   loop ───────────────────────► Pending(Token)           it is in flight
//!     ▲      wait(timeout), then next(), next(), …
//!     └─────────────────────────── Completion { token, more, result, payload }
//! ```
//!
//! # Example
//! ```
//! use coracle_demux::{Demux, Operation, Outcome, Payload, Settings, Submitted};
//!
//! # fn main() -> std::io::Result<()> {
//! let mut demux = coracle_demux::open(Settings::default())?; // io_uring, else epoll, else poll
//! let (a, b) = demux.socket_pair()?;
//!
//! let Submitted::Pending(receive) = demux.submit(Operation::ReceiveLent { socket: b }) else {
//!     unreachable!("a multishot operation is pending, unless it is refused");
//! };
//! demux.submit(Operation::Send { socket: a, payload: Payload::from(b"ahoy".to_vec()) });
//!
//! 'received: loop {
//!     demux.wait(None)?;
//!     while let Some(completion) = demux.next() {
//!         if completion.token == receive {
//!             let Outcome::Lent(bytes) = completion.result? else { unreachable!() };
//!             assert_eq!(&bytes[..], b"ahoy");
//!             break 'received;
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Where to read on
//! The contract is on [`Demux`]. `readiness.rs` keeps it over epoll, poll and select, `uring.rs` over
//! io_uring, `sim.rs` over nothing at all; `tests/contract/main.rs` holds all five to it.

mod address;
mod affinity;
mod alarm;
mod attempt;
mod backend;
mod descriptor;
mod due;
mod epoll;
mod few;
mod file;
mod fork;
mod landing;
mod lease;
mod lent;
#[doc(hidden)]
pub mod lock;
mod mailbox;
mod memory;
mod operation;
mod poll;
mod quay;
mod readiness;
mod resident;
mod retry;
mod select;
mod signal;
pub mod sim;
mod socket;
mod tcp;
mod thread;
mod uring;
mod wakeup;

pub use address::Address;
pub use affinity::{Processors, pin_thread};
pub use backend::{Backend, Features, Job, Settings, Threads, open};
#[doc(hidden)]
pub use descriptor::identity;
pub use fork::ForkGuard;
pub use landing::{Arrival, Awaited, Landed, Landing};
pub use lease::Lease;
pub use lent::Lent;
pub use memory::{AcceptPlace, Memory, Payload, Space, copy_short};
pub use operation::{
    Completion, FileKind, Finished, Handle, Interest, Message, Metadata, OpenOptions, Operation,
    Outcome, Outgoing, Readiness, Submitted, Token,
};
pub use signal::force_exit_on_second;
pub use socket::{SocketKind, SocketOption, set_option};
pub use tcp::{KeepAlive, TcpInfo};
pub use thread::thread_id;
pub use wakeup::{Waker, WakeupKind};

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The contract between a loop and a kernel. Loop thread only: a `Demux` is made, used and dropped on
/// one thread; other threads hold its [`Waker`].
///
/// # The contract
///
/// A sixth backend must keep these; `tests/contract/main.rs` checks them by number.
///
/// 1. **Everything passes here.** Sockets, files, children, signals, time and randomness: nothing above
///    this trait asks the kernel for I/O by another way. Descriptors are named by [`Handle`], which is
///    generation-checked: a stale one is answered with `EBADF` and touches nothing.
/// 2. **Submit** answers [`Done`](Submitted::Done) or [`Pending`](Submitted::Pending). Nothing of the
///    caller's runs inside `submit` or `cancel`. A backend may say either wherever the operation can
///    finish at once (io_uring mostly says `Pending`, the readiness backends `Done`, the simulator tosses
///    a coin); multishot operations are always `Pending` unless refused.
/// 3. **Exactly one final completion** (`more == false`) follows each `Pending`. The multishot operations
///    `Accept`, `ReceiveLent` and `Signal` may have any number before it, and may end at any time without
///    an error (the final completion then carries an ordinary outcome): whoever wants more submits again. An
///    operation is in flight, and its token and the token's index are in use, until its final completion has
///    been taken.
/// 4. **Cancel asks.** The final completion still comes: `ECANCELED` if nothing was done, and otherwise
///    what was done; bytes, an accepted connection or a short count are never thrown away. Memory comes
///    back in `payload` either way, unless it was only lent, and nothing the kernel may still touch is freed
///    before that.
/// 5. **Close is an operation.** From `adopt` (or `socket`, or `Accepted`) to the completion of `Close`
///    the seam owns the descriptor. `Close` makes the handle stale at once, cancels everything in flight
///    on it, awaits each final completion, then closes; its own completion is the last that concerns it.
///    [Lent](Demux::lend) descriptors are forgotten, not closed.
/// 6. **Three ways to receive.** *Lent*: into a buffer of the seam's that goes back when the [`Lent`] is
///    dropped; running out of buffers is a pause until one is back, never an error, and whoever keeps many
///    is given copies, so that a pause is over when the turn is. *Into memory* the
///    operation owns, or that a parked coroutine lends ([awaited](Demux::await_receive), it ends as an
///    operation does, but without a token: 4, 5 and 7 hold for it, too). *Readiness*
///    ([`Operation::Poll`]), for foreign code that does its own I/O.
/// 7. **Order.** At most one receiving (accept, receive, receive message) and one sending operation
///    (connect, send, send message, send file) in flight per descriptor; a second one is refused with
///    `EALREADY`. Any number of polls. Sends try first; receives wait first unless the last one filled
///    its space.
/// 8. **A poll is one-shot**, and levels are reported: if the descriptor is ready when it is submitted, it
///    completes. It may complete spuriously, it is never lost. A peer's half-close is told apart from data
///    and from errors ([`Readiness::READ_CLOSED`]).
/// 9. **send_file** sends what is in the page cache without waiting for the disk; what is not is read by a
///    [thread](Threads) first.
/// 10. **Wait** returns when a completion may be there, the time-out is over, a [`Waker`] was used, or for
///     no reason at all. `Some(Duration::ZERO)` never sleeps but does look; `None` sleeps without
///     a system call until something happens. A wake-up is never lost: one that came since the last wait
///     returned makes the next return at once. After it, [`next`](Demux::next) gives the completions one
///     at a time; those not taken are kept. What a callback does to later operations of the same batch
///     (cancel, close) is respected: nothing is done for them any more, and what was received for them
///     by then is told before their end.
/// 11. **Blocking work is never done inline.** File operations on backends that cannot do them without
///     waiting run on a thread of [`Settings::threads`]. If none is to be had, they fail with `EAGAIN`.
/// 12. **Signals** only set a flag and wake the loop; the completion does the work. A signal submitted
///     twice completes both. Several arrivals may become one completion.
/// 13. **Refusals are ordinary.** `EINTR` never surfaces and `EAGAIN` only as in 11; `ECONNABORTED` in
///     accept is skipped; `EMFILE`, `ENFILE`, `ENOBUFS` and `ENOMEM` end an accept with that error and
///     nothing is lost: waiting connections stay in the backlog. A full completion queue is drained. A Unix
///     socket whose backlog is full refuses with `ECONNREFUSED`.
/// 14. **After a fork** the child must not use it: every call answers `EOWNERDEAD`, and dropping it there
///     leaves the parent's kernel objects alone.
/// 15. **Time** is monotonic and [`now`](Demux::now) never goes back. The simulator's is virtual.
pub trait Demux {
    /// Which backend this is.
    fn backend(&self) -> Backend;

    /// What this backend can do and what it costs.
    fn features(&self) -> Features;

    /// The present, on the monotonic clock that time-outs are measured by.
    fn now(&self) -> Instant;

    /// A random number for seeding hash keys and jitter; from the simulator, the same in each replay.
    fn seed(&mut self) -> u64;

    // --- Calls that never wait ---------------------------------------------------------------------

    /// Makes a socket: close-on-exec, and never blocking the thread.
    fn socket(&mut self, kind: SocketKind) -> io::Result<Handle>;

    /// Makes two connected Unix stream sockets.
    fn socket_pair(&mut self) -> io::Result<(Handle, Handle)>;

    /// Gives a socket its local address.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EACCES`, `EADDRNOTAVAIL`, …: as bind(2).
    fn bind(&mut self, socket: Handle, address: &Address) -> io::Result<()>;

    /// Lets a bound socket accept connections.
    fn listen(&mut self, socket: Handle, backlog: i32) -> io::Result<()>;

    /// Sets a socket option.
    fn set_option(&mut self, socket: Handle, option: SocketOption) -> io::Result<()>;

    /// The address the socket is bound to.
    fn local_address(&self, socket: Handle) -> io::Result<Address>;

    /// The address of the other end.
    fn peer_address(&self, socket: Handle) -> io::Result<Address>;

    /// What the kernel knows of a TCP connection. `EOPNOTSUPP` for other sockets, and for those of a simulated
    /// kernel, whose network has neither packets nor windows.
    fn tcp_info(&self, socket: Handle) -> io::Result<TcpInfo>;

    /// How many bytes that were sent on a stream socket its peer has not acknowledged (SIOCOUTQ, see tcp(7)); in a
    /// simulated kernel, has not read. By this it can be seen that a peer takes something, though too little to
    /// make room for a send that waits: a kernel says that there is room when a good part of its buffer is free.
    /// Of a Unix socket it is the memory that they need.
    fn unacknowledged_bytes(&self, socket: Handle) -> io::Result<usize>;

    /// Whether the seam has bytes of a [tried send](Demux::try_send) that the kernel has not taken yet, which a
    /// `Close` now might give up; or knows of a failure of one that nobody was told.
    fn is_carrying(&self, _socket: Handle) -> bool {
        false
    }

    /// The number that the operating system has for a descriptor, to be shown to people. A simulated one has none.
    fn number(&self, _handle: Handle) -> Option<i32> {
        None
    }

    /// Takes over a descriptor: from here until its `Close` completes the seam owns it.
    ///
    /// # Errors
    /// The descriptor is closed on error. select refuses descriptors of `FD_SETSIZE` (1024) and above.
    fn adopt(&mut self, descriptor: Descriptor) -> io::Result<Handle>;

    /// Borrows a descriptor until [`reclaim`](Demux::reclaim): for [`Operation::Poll`], and if it is a socket for
    /// [`Operation::Receive`] and [`await_send`](Demux::await_send), which do not make it non-blocking. Where
    /// [completions](Features::completions) are the kernel's, it also connects and accepts
    /// ([`Operation::AcceptNumber`]). Everything else is refused with `EBADF`.
    ///
    /// The number must stay open meanwhile; the loop's guard sees to that by owning its owner.
    fn lend(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<Handle>;

    /// Ends a [`lend`](Demux::lend): what is in flight completes with `ECANCELED`, and from the moment this
    /// returns the kernel watches the descriptor no more on behalf of this handle.
    fn reclaim(&mut self, handle: Handle);

    /// Has the kernel look whether the number of a lent descriptor is still the one that was lent, and tell anew
    /// what it is ready for. Where the kernel looks a number up for each request, there is nothing to do.
    ///
    /// # Errors
    /// It is not: it was closed, and may be somebody else's by now.
    #[inline]
    fn confirm(&mut self, _handle: Handle) -> io::Result<()> {
        Ok(())
    }

    /// As [`reclaim`](Demux::reclaim), for a number that was closed by others meanwhile: it may be another
    /// descriptor by now, one of this demultiplexer even, whose registration stays as it is.
    fn abandon(&mut self, handle: Handle) {
        self.reclaim(handle);
    }

    /// Gives up a descriptor so that another loop can [`adopt`](Demux::adopt) it.
    ///
    /// # Errors
    /// `EBUSY` while an operation is in flight on it: cancel and await that first.
    fn detach(&mut self, handle: Handle) -> io::Result<Descriptor>;

    // --- Operations ------------------------------------------------------------------------------------

    /// Starts an operation.
    fn submit(&mut self, operation: Operation) -> Submitted;

    /// Starts a receive into a coroutine's space, by the shortest way: where there is nothing to do but to wait
    /// for bytes. It takes the receiving place of its descriptor as an [`Operation::Receive`] does, and ends as
    /// one; but it has no token, and its result lands where it is [awaited](Awaited): `ECANCELED` if the
    /// [lease](Landing::set_lease) of a socket that is lent is over before. False in all other cases, and then
    /// nothing was done: an `Operation::Receive` is to be [submitted](Demux::submit).
    #[inline]
    fn await_receive(&mut self, _socket: Handle, _space: Space, _awaited: Awaited) -> bool {
        false
    }

    /// Has a coroutine's bytes sent together with what others send, soon and in this turn: as many as there is
    /// room for then, 0 if there is none, and so many land where it is [awaited](Awaited). Only for
    /// [lent](Demux::lend) sockets, whose owners count on it that the kernel has what was sent; `ECANCELED` if its
    /// [lease](Landing::set_lease) is over before. False in all other cases, and then nothing was done.
    #[inline]
    fn await_send(&mut self, _socket: Handle, _bytes: Memory, _awaited: Awaited) -> bool {
        false
    }

    /// Asks for the end of the awaited receive of a descriptor, if there is one; its result still lands.
    fn cancel_receive(&mut self, _socket: Handle) {}

    /// Sends as much of `bytes` as can be sent at once, as send(2) on a non-blocking socket, and says how much
    /// that was; the caller keeps the bytes. The rest is the business of [`Operation::Send`].
    ///
    /// "Sent" means what it means to send(2): the kernel has them, or the seam has copied them and hands them over
    /// with the next batch, when the turn is over. Sends and a `Shutdown` that are submitted later come later. A
    /// failure is told to the next sender. `Close` gives bytes up that the peer has no room for; who wants to be
    /// sure waits for a `Shutdown` first, if the seam [has any](Demux::is_carrying). `Ok(0)` when nothing can be
    /// sent now, or the backend does not try.
    ///
    /// # Errors
    /// As [`Operation::Send`].
    fn try_send(&mut self, socket: Handle, bytes: &[u8]) -> io::Result<usize>;

    /// The same for who submits an [`Operation::SendFile`] right after it: both should leave together, as with
    /// `MSG_MORE`. If nothing follows, the bytes leave a little later all the same.
    ///
    /// # Errors
    /// As [`Operation::Send`].
    fn try_send_before_file(&mut self, socket: Handle, bytes: &[u8]) -> io::Result<usize> {
        self.try_send(socket, bytes)
    }

    /// Asks for the end of an operation in flight; a stale token is ignored.
    fn cancel(&mut self, token: Token);

    /// Waits until something has happened, at most for `timeout`.
    ///
    /// # Errors
    /// Only what cannot be answered otherwise: the kernel object is broken, or (simulator) nothing can
    /// ever happen any more.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Waits until something has happened, at most until `deadline`. Cheaper than [`wait`](Demux::wait) if that is
    /// far away: who waits again for the same or a later one does not set the kernel's timer again.
    ///
    /// # Errors
    /// Those of [`wait`](Demux::wait).
    fn wait_until(&mut self, deadline: Instant) -> io::Result<()> {
        self.wait(Some(deadline.saturating_duration_since(self.now())))
    }

    /// The next completion, if one is there. Does not wait.
    fn next(&mut self) -> Option<Completion>;

    /// The same for who may have awaited receives in flight: is told, too, where one has landed. `next` passes
    /// over those, but their results have landed all the same.
    #[inline]
    fn next_arrival(&mut self) -> Option<Arrival> {
        self.next().map(Arrival::Completion)
    }

    /// Ends a [`wait`](Demux::wait) from any thread.
    fn waker(&self) -> Waker;

    /// Hands over what is queued or carried, without waiting: before somebody else waits for
    /// [`as_fd`](Demux::as_fd).
    fn flush(&mut self) {}

    // --- Looking in ------------------------------------------------------------------------------------

    /// How many operations are in flight, and tried sends that are not over.
    fn in_flight(&self) -> usize;

    /// Whether the next [`wait`](Demux::wait) would not sleep because of something that is known already, so that
    /// [`as_fd`](Demux::as_fd) need not tell of it.
    fn is_busy(&self) -> bool {
        false
    }

    /// How long until the next [`wait`](Demux::wait) has something to do that [`as_fd`](Demux::as_fd) does not
    /// tell of: a send to a Unix datagram socket that was full is tried again. `None`: nothing.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// What is in flight, a line each: `token operation on descriptor`.
    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result;

    /// A descriptor that polls readable when [`wait`](Demux::wait) would find something, for embedding
    /// this loop in another; `None` where the backend has none (poll, select, simulator).
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// A descriptor on its way into, out of, or between demultiplexers.
#[derive(Debug)]
pub enum Descriptor {
    /// A descriptor of the operating system.
    Os(OwnedFd),
    /// A descriptor of a simulated kernel.
    Sim(sim::SimDescriptor),
}

impl Descriptor {
    /// The operating system's descriptor, or an error for one that only a simulated kernel knows.
    fn into_os(self) -> io::Result<OwnedFd> {
        match self {
            Descriptor::Os(fd) => Ok(fd),
            Descriptor::Sim(_) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a simulated descriptor can only be adopted by a demultiplexer of its own kernel",
            )),
        }
    }
}

impl<T: Into<OwnedFd>> From<T> for Descriptor {
    fn from(fd: T) -> Descriptor {
        Descriptor::Os(fd.into())
    }
}
