//! Where a parked coroutine is told what came of its receive, or of a send that [goes with others](crate::due):
//! the shortest way from a completion to who waits.
//!
//! ```text
//!   the coroutine: space, landing ──► await_receive ──► in the descriptor's own slot, and in no table
//!        ▲                                                        │ bytes, the end, an error, a cancel
//!        └──── go_on ◄── the loop ◄── Arrival::Landed ◄── landed ─┘
//! ```
//!
//! Such a receive has no token, no target and no payload: who waits cannot go away before it is told, so its
//! address is all that is needed. At most one is in flight per descriptor, and the descriptor names it. A send is
//! over before its turn is, and needs no name.
#![allow(unsafe_code)]

use crate::lease::Lease;
use crate::memory::Space;
use crate::operation::Completion;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::ptr::NonNull;

/// Where the result of a receive or a send lands.
pub struct Landing {
    landed: Cell<Landed>,
    /// Where the bytes go, while somebody waits for them.
    space: Cell<Option<Space>>,
    /// For how long the number of the socket is what it is, if that is lent.
    lease: Cell<Option<Lease>>,
    go_on: unsafe fn(NonNull<Landing>),
}

/// What has landed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Landed {
    /// Nothing yet.
    #[default]
    Nothing,
    /// So many bytes, 0 at the end of the stream.
    Count(usize),
    /// It has failed, with this number of the system's: `ECANCELED` if it was cancelled.
    Failed(i32),
}

impl Landing {
    /// One whose owner goes on when `go_on` is called with it.
    ///
    /// ```
    /// use coracle_demux::{Landed, Landing};
    ///
    /// let landing = Landing::new(|_| println!("something has landed"));
    /// assert_eq!(landing.take(), Landed::Nothing);
    /// ```
    #[inline]
    pub const fn new(go_on: unsafe fn(NonNull<Landing>)) -> Landing {
        let (landed, space) = (Cell::new(Landed::Nothing), Cell::new(None));
        Landing { landed, space, lease: Cell::new(None), go_on }
    }

    /// How many bytes have landed since it was last asked. `None`, and nothing is taken, if it is something else.
    #[inline]
    pub fn take_count(&self) -> Option<usize> {
        let Landed::Count(count) = self.landed.get() else { return None };
        self.landed.set(Landed::Nothing);
        Some(count)
    }

    /// What it is lent for next is about a socket that is lent, whose number is what it is as long as this lasts.
    #[inline]
    pub fn set_lease(&self, lease: Lease) {
        self.lease.set(Some(lease));
    }

    /// What has landed since it was last asked.
    #[inline]
    pub fn take(&self) -> Landed {
        self.landed.replace(Landed::Nothing)
    }
}

impl fmt::Debug for Landing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Landing({:?})", self.landed.get())
    }
}

/// A landing that somebody waits at, lent for one receive or send.
#[derive(Debug)]
pub struct Awaited(NonNull<Landing>);

impl Awaited {
    /// Lends a landing.
    ///
    /// # Safety
    /// It stays where it is, and is not lent again, until [`go_on`](Awaited::go_on) was called or the
    /// demultiplexer is gone. Its function may be called with this very pointer, on this thread, when the result
    /// was taken from the demultiplexer. Only a parked coroutine can promise that.
    #[inline]
    pub unsafe fn new(landing: NonNull<Landing>) -> Awaited {
        Awaited(landing)
    }

    /// Leaves the result.
    #[inline]
    pub(crate) fn land(&self, landed: Landed) {
        self.landing().landed.set(landed);
    }

    /// Whether the number of a socket that is lent has become another's.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.landing().lease.get().is_some_and(|lease| lease.is_over())
    }

    #[inline]
    fn landing(&self) -> &Landing {
        // SAFETY: whoever has lent it keeps it where it is, until `go_on`; it is only ever shared.
        unsafe { self.0.as_ref() }
    }

    /// Has the one who waits go on. The loop does so with whatever has landed, when nothing of it is borrowed.
    #[inline]
    pub fn go_on(self) {
        // SAFETY: as in `landing`; and this is what the function is for.
        unsafe { (self.0.as_ref().go_on)(self.0) }
    }
}

/// What a demultiplexer has for its loop.
#[derive(Debug)]
pub enum Arrival {
    /// What came of an operation.
    Completion(Completion),
    /// An awaited receive or send is over, and its result has landed.
    Landed(Awaited),
}

impl Arrival {
    /// The completion, if it is one.
    pub(crate) fn into_completion(self) -> Option<Completion> {
        match self {
            Arrival::Completion(completion) => Some(completion),
            Arrival::Landed(_) => None,
        }
    }
}

/// A receive that is awaited, in its descriptor's slot: eight bytes, for its space is kept at its landing.
pub(crate) struct Receive(Awaited);

impl Receive {
    #[inline]
    pub(crate) fn new(space: Space, awaited: Awaited) -> Receive {
        let receive = Receive(awaited);
        receive.put_back(space);
        receive
    }

    /// The space to be filled, for one try.
    #[inline]
    pub(crate) fn take_space(&self) -> Space {
        self.0.landing().space.take().expect("a receive has its space until it is over")
    }

    /// Where the space begins, and how long it is: for a request that is in the kernel's hands until it is over.
    #[inline]
    pub(crate) fn parts(&self) -> (*mut u8, usize) {
        // SAFETY: the cell is this thread's alone, and nobody fills or empties it while it is looked at.
        let space = unsafe { &*self.0.landing().space.as_ptr() };
        space.as_ref().expect("a receive has its space until it is over").parts()
    }

    /// Nothing came of that, and it goes on.
    #[inline]
    pub(crate) fn put_back(&self, space: Space) {
        self.0.landing().space.set(Some(space));
    }

    /// Whether the number of a socket that is lent has become another's.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// It is over.
    #[inline]
    pub(crate) fn into_awaited(self) -> Awaited {
        self.0
    }
}

/// How an end that somebody has asked for lands.
pub(crate) const CANCELLED: Landed = Landed::Failed(libc::ECANCELED);

/// One line of [`Demux::describe`](crate::Demux::describe).
pub(crate) fn describe(what: &str, fd: i32, out: &mut dyn fmt::Write) -> fmt::Result {
    writeln!(out, "awaited: {what} on descriptor {fd}")
}

/// How a failure lands.
#[cold]
pub(crate) fn failed(error: &io::Error) -> Landed {
    Landed::Failed(error.raw_os_error().unwrap_or(libc::EIO))
}
