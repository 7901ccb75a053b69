//! What somebody waits for, in a word: set by who waits, read by who wants to know why nothing happens.
//!
//! Setting it costs two stores in a wait; nothing is allocated or formatted before somebody looks.

use crate::coroutine::CoroutineId;
use coracle_loop::demux::Handle;
use std::fmt;
use std::time::Instant;

/// What a coroutine waits for.
///
/// ```
/// use coracle_coro::{WaitsFor, coroutines, park, spawn, yield_now};
///
/// coracle_coro::run(|| {
///     let parked = spawn(park);
///     yield_now();
///     let all = coroutines();
///     let info = all.iter().find(|info| info.coroutine.id() == parked.coroutine().id()).unwrap();
///     assert_eq!(info.waits_for, Some(WaitsFor::Unpark));
///     assert_eq!(WaitsFor::Unpark.to_string(), "an unpark");
///     parked.coroutine().unpark();
///     parked.join().unwrap()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// Whoever wrote the wait did not say.
    Something,
    /// A point in time.
    Time(Instant),
    /// The end of a coroutine.
    End(CoroutineId),
    /// The end of the children of a [`scope`](crate::scope()).
    Children,
    /// An [`unpark`](crate::Coroutine::unpark).
    Unpark,
    /// Nothing: it is cancelled, has ignored that, and is [made to wait](crate::JoinHandle::cancel).
    BackOff,
    /// A [`Mutex`](crate::sync::Mutex).
    Mutex,
    /// A [`RwLock`](crate::sync::RwLock), to read.
    ReadLock,
    /// A [`RwLock`](crate::sync::RwLock), to write.
    WriteLock,
    /// Permits of a [`Semaphore`](crate::sync::Semaphore), so many.
    Permits(usize),
    /// A [`Condvar`](crate::sync::Condvar).
    Condvar,
    /// A [`Barrier`](crate::sync::Barrier).
    Barrier,
    /// Somebody else's work in a [`Once`](crate::sync::Once) or [`OnceLock`](crate::sync::OnceLock).
    Once,
    /// A [`WaitGroup`](crate::sync::WaitGroup).
    WaitGroup,
    /// Room in a [`channel`](crate::sync::channel).
    Room,
    /// A message from a [`channel`](crate::sync::channel).
    Message,
    /// One of so many arms of a [`select!`](crate::select!).
    Arms(usize),
    /// A connection on this listening socket. Its number is in [`CoroutineInfo`](crate::CoroutineInfo).
    Accept(Handle),
    /// The connection of this socket to somewhere.
    Connect(Handle),
    /// Bytes from this socket.
    Read(Handle),
    /// Room for bytes in this socket.
    Write(Handle),
    /// Work that is done by another thread: [`offload`](crate::offload()), or a [file](crate::fs).
    Offload,
    /// The addresses of a [host](crate::names).
    Name,
    /// A connection of a [pool](crate::conn_pool), all of which are in use.
    Pooled,
    /// A [signal](crate::signals()) of the system, with this number.
    Signal(i32),
    /// A future.
    Future,
    /// A descriptor that is not the loop's, with this number: in a call that is hooked (`coracle-hook`).
    Descriptor(i32),
    /// The end of a child process: in a call that is hooked.
    Child(i32),
}

impl WaitsFor {
    /// The socket, if it waits for one.
    pub(crate) fn socket(self) -> Option<Handle> {
        match self {
            WaitsFor::Accept(socket)
            | WaitsFor::Connect(socket)
            | WaitsFor::Read(socket)
            | WaitsFor::Write(socket) => Some(socket),
            _ => None,
        }
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fixed = match self {
            WaitsFor::Something => "something",
            WaitsFor::Time(_) => "time to pass",
            WaitsFor::End(whose) => return write!(f, "the end of #{whose}"),
            WaitsFor::Children => "the end of its children",
            WaitsFor::Unpark => "an unpark",
            WaitsFor::BackOff => "a while, because it is cancelled and goes on waiting",
            WaitsFor::Mutex => "a Mutex",
            WaitsFor::ReadLock => "a RwLock, to read",
            WaitsFor::WriteLock => "a RwLock, to write",
            WaitsFor::Permits(1) => "a permit of a Semaphore",
            WaitsFor::Permits(count) => return write!(f, "{count} permits of a Semaphore"),
            WaitsFor::Condvar => "a Condvar",
            WaitsFor::Barrier => "the others at a Barrier",
            WaitsFor::Once => "a Once",
            WaitsFor::WaitGroup => "a WaitGroup",
            WaitsFor::Room => "room in a channel",
            WaitsFor::Message => "a message from a channel",
            WaitsFor::Arms(count) => return write!(f, "one of {count} arms of a select"),
            WaitsFor::Accept(_) => "a connection on a listening socket",
            WaitsFor::Connect(_) => "its connection",
            WaitsFor::Read(_) => "bytes from a socket",
            WaitsFor::Write(_) => "room to write to a socket",
            WaitsFor::Offload => "work on another thread",
            WaitsFor::Name => "the addresses of a host",
            WaitsFor::Pooled => "a connection of a pool",
            WaitsFor::Signal(number) => return write!(f, "signal {number}"),
            WaitsFor::Future => "a future",
            WaitsFor::Descriptor(number) => return write!(f, "descriptor {number}"),
            WaitsFor::Child(pid) => return write!(f, "the end of process {pid}"),
        };
        f.write_str(fixed)
    }
}

/// It is stored in every wait.
const _: () = assert!(size_of::<WaitsFor>() <= 16);
