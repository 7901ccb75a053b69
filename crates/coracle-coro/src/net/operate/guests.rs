//! Sockets of others on a loop: what a hooked call does is then the same as a call of this crate's sockets.
//!
//! ```text
//!   recv(7, …) ──► guest of number 7 ──► Socket ──► the loop        on every backend
//!                        │                              └──► io_uring: the kernel does it
//!                        └─ none, or refused ──► the hook tries, and polls
//! ```
//!
//! A guest stays its owner's. It is known by its number and the generation of that, and forgotten when the number
//! is closed; whoever waits on it is then told `EBADF`. Somebody may close it past libc, and epoll would never say
//! a word: so a receive that has waited for a while has its number looked at, once, and if that has become
//! something else, the call is made in the other way.

use super::{Caller, Landing, READING, Single, Socket, with_caller};
use crate::current::{self, Frame};
use crate::failures;
use crate::scheduler::Scheduler;
use crate::unasked::{Ask, Unasked};
use crate::waits_for::WaitsFor;
use coracle_loop::demux::{AcceptPlace, Address, Backend, Lease, Operation, Outcome, Submitted};
use coracle_loop::{Loop, LoopHandle, is_older};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::ptr::null;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// A receive that has waited for so long, and at most twice that, has its number looked at.
const PATIENCE: Duration = Duration::from_millis(50);

/// So many are looked at in one go, which is a system call each; the others have to wait.
const LOOKS_AT_ONCE: usize = 256;

thread_local! {
    /// By number.
    static GUESTS: RefCell<Vec<Option<Guest>>> = const { RefCell::new(Vec::new()) };
}

/// A socket of somebody else's.
struct Guest {
    generation: u32,
    socket: Rc<Socket>,
    /// How often something was asked of it that may last.
    calls: Cell<u32>,
    /// The call that waited when this was last passed by, and the last for which the number was looked at.
    seen: Cell<u32>,
    looked: Cell<u32>,
}

impl Drop for Guest {
    /// It is not ours to close. Who waits for it finds that it is gone.
    fn drop(&mut self) {
        self.socket.home.set(null());
    }
}

/// A descriptor of somebody else's: its number, and how often that was closed before.
#[derive(Debug, Clone, Copy)]
pub struct Number {
    /// The number.
    pub fd: i32,
    /// Which of those that have had it.
    pub generation: u32,
    /// What changes before it is closed.
    pub closes: &'static AtomicU32,
    /// Told when a loop has this number from now on, and with which it can be told of its close.
    pub on_lend: fn(i32, LoopHandle),
}

/// What came of an operation, or its `errno`: `EAGAIN` if its own time is over.
pub type Answer = Result<usize, i32>;

/// Nothing is to be known of a number any more: it is closed, or about to be. Only this thread's.
pub fn forget(fd: i32) {
    let guest = GUESTS.try_with(|guests| {
        let mut guests = guests.try_borrow_mut().ok()?;
        guests.get_mut(usize::try_from(fd).ok()?)?.take()
    });
    drop(guest);
}

/// The same for a number that was closed by another thread, and has this generation now.
pub fn forget_older(fd: i32, generation: u32) {
    let old = GUESTS.try_with(|guests| {
        let guests = guests.try_borrow().ok()?;
        let known = guests.get(usize::try_from(fd).ok()?)?.as_ref()?.generation;
        Some(is_older(known, generation))
    });
    if old.is_ok_and(|old| old == Some(true)) {
        forget(fd);
    }
}

/// Whether a coroutine calls on whose loop sockets can be guests: where the kernel has the socket itself, and not
/// only its number, which may be that of another before the loop hears of a close by another thread. On io_uring
/// it has it from when a request is handed over, which is up to a turn after the call. What is done by number at
/// last, a send that goes with others, or a receive, is done, or handed over, if nobody has closed that meanwhile
/// ([`Lease`]).
#[inline]
pub fn has_guests() -> bool {
    let keeps = |backend| matches!(backend, Backend::Uring | Backend::Epoll);
    current::with(|frame| frame.is_some_and(|frame| keeps(frame.lp().backend())))
}

/// Whether a coroutine calls on whose loop it is the kernel that does the work.
#[inline]
pub fn is_on_uring() -> bool {
    current::with(|frame| frame.is_some_and(|frame| frame.lp().backend() == Backend::Uring))
}

impl Number {
    /// recv(2) without flags: into `space`, and in at most `own` time. `None` if the loop cannot do it.
    ///
    /// # Safety
    /// The descriptor is open, and a socket. A coroutine calls that may be parked.
    #[inline]
    pub unsafe fn receive(self, space: &mut [u8], own: Option<Duration>) -> Option<Answer> {
        if own.is_some() {
            return self.receive_within(space, own);
        }
        let socket = self.find(true)?;
        socket.read_timeout.set(None);
        current::with(|frame| frame.into_iter().for_each(look_soon));
        match socket.receive(space) {
            Ok(count) => Some(Ok(count)),
            Err(error) => self.tell(&socket, &error, None),
        }
    }

    #[inline(never)]
    fn receive_within(self, space: &mut [u8], own: Option<Duration>) -> Option<Answer> {
        self.with_guest(own, |socket| {
            socket.read_timeout.set(own);
            current::with(|frame| frame.into_iter().for_each(look_soon));
            socket.receive(space)
        })
    }

    /// The same if it is not known how much time it has: `ask` is, if it lasts.
    ///
    /// # Safety
    /// As [`receive`](Number::receive).
    pub unsafe fn receive_unasked(self, space: &mut [u8], ask: Ask) -> Option<Answer> {
        let call = Unasked::new(self.fd, ask);
        let socket = self.find(true)?;
        let confirmed = current::with(|frame| frame?.lp().confirm_number(socket.handle).ok());
        if confirmed.is_none() {
            self.forget_with_others();
            return None;
        }
        socket.read_timeout.set(None);
        current::with(|frame| frame.into_iter().for_each(look_soon));
        match socket.receive(space) {
            Ok(count) => Some(Ok(count)),
            Err(error) => self.tell(&socket, &error, call.deadline()),
        }
    }

    /// send(2) together with what others send in this turn, without a signal: as much of `bytes` as there is room
    /// for, 0 if there is none or it cannot be done in this way.
    ///
    /// # Safety
    /// As [`receive`](Number::receive).
    #[inline]
    pub unsafe fn send(self, bytes: &[u8]) -> Option<Answer> {
        let socket = self.find(false)?;
        match with_caller(|caller| socket.send_together(caller, bytes)) {
            Ok(count) => Some(Ok(count)),
            Err(error) => self.tell(&socket, &error, None),
        }
    }

    /// connect(2). Only [on io_uring](is_on_uring).
    ///
    /// # Safety
    /// As [`receive`](Number::receive).
    pub unsafe fn connect(self, address: Address, own: Option<Duration>) -> Option<Answer> {
        self.with_guest(own, |socket| socket.connect(address, own).map(|()| 0))
    }

    /// accept4(2): the number of the new socket. Only [on io_uring](is_on_uring).
    ///
    /// # Safety
    /// As [`receive`](Number::receive).
    pub unsafe fn accept(self, place: AcceptPlace, own: Option<Duration>) -> Option<Answer> {
        self.with_guest(own, |socket| {
            let listener = socket.handle;
            let single = Rc::new(Single { landing: Landing::new(WaitsFor::Read(listener)) });
            with_caller(|caller| {
                let limit = caller.limit(own);
                let _turn = socket.take_turn(caller, READING, limit)?;
                let accept = Operation::AcceptNumber { listener, place };
                match caller.lp().submit(accept, &single, 0) {
                    Submitted::Done(finished) => caller.done(&single.landing, finished),
                    Submitted::Pending(token) => caller.wait_within(&single.landing, token, limit),
                }
            })?;
            match single.landing.other.take() {
                Some(Ok(Outcome::Taken(fd))) => Ok(fd.into_raw_fd() as usize),
                other => unreachable!("an accept does not give {other:?}"),
            }
        })
    }

    /// Has `act` done with the guest of this number.
    #[inline]
    fn with_guest(
        self,
        own: Option<Duration>,
        act: impl FnOnce(&Rc<Socket>) -> io::Result<usize>,
    ) -> Option<Answer> {
        let own =
            own.and_then(|own| current::with(|frame| frame.map(|frame| frame.lp().deadline(own))));
        let socket = self.find(true)?;
        match act(&socket) {
            Ok(count) => Some(Ok(count)),
            Err(error) => self.tell(&socket, &error, own),
        }
    }

    /// The guest of this number; who calls may have to wait for long.
    #[inline]
    fn find(self, waits: bool) -> Option<Rc<Socket>> {
        current::with(|frame| {
            let frame = frame?;
            let socket = self.guest(Caller { frame }, waits)?;
            frame.landing.set_lease(Lease::new(self.closes)); // to be lent has changed it
            Some(socket)
        })
    }

    /// What an error means to whoever called; `None` if the call is to be made in another way.
    #[cold]
    fn tell(self, socket: &Rc<Socket>, error: &io::Error, own: Option<Instant>) -> Option<Answer> {
        let Some(error) = error.raw_os_error() else {
            debug_assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            let around = current::with(|frame| frame?.deadline.get());
            if own.is_none_or(|own| around.is_some_and(|around| around < own)) {
                return Some(Err(Errno::TIMEDOUT.raw_os_error()));
            }
            failures::forgive(); // the time of the call itself: nothing was cut short
            return Some(Err(Errno::AGAIN.raw_os_error()));
        };
        match Errno::from_raw_os_error(error) {
            // It was forgotten, which says why; or it has become something else without a word.
            Errno::BADF if socket.is_gone() => Some(Err(error)),
            Errno::BADF | Errno::NOTSOCK | Errno::ALREADY | Errno::OPNOTSUPP => {
                self.forget_with_others();
                None
            }
            _ => Some(Err(error)),
        }
    }

    /// The number may have become something else. Whoever waits on what it was is told, for nobody else would.
    #[cold]
    fn forget_with_others(self) {
        // SAFETY: it is only used for the call; a number that is closed is refused by the kernel.
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.fd) };
        current::with(|frame| frame.into_iter().for_each(|it| it.lp().check_number(descriptor)));
        forget(self.fd);
    }

    #[inline]
    fn guest(self, caller: Caller<'_>, waits: bool) -> Option<Rc<Socket>> {
        let home = std::ptr::from_ref(caller.frame.scheduler());
        let found = GUESTS.with(|guests| {
            let guests = guests.borrow();
            let guest = guests.get(self.fd as usize)?.as_ref()?;
            if guest.generation != self.generation || guest.socket.home.get() != home {
                return None;
            }
            guest.calls.set(guest.calls.get().wrapping_add(waits.into()));
            Some(Rc::clone(&guest.socket))
        });
        found.or_else(|| self.make_guest(caller.lp()))
    }

    #[cold]
    fn make_guest(self, lp: &Loop) -> Option<Rc<Socket>> {
        if lp.backend() == Backend::Sim {
            return None; // a simulated kernel has no descriptors of the real one
        }
        // SAFETY: it is only used for the call; a number that is closed is refused by the kernel.
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.fd) };
        lp.check_number(descriptor); // a poll may have lent it, long ago
        (self.on_lend)(self.fd, lp.handle()); // before: who closes it now tells us
        let handle = lp.lend_number(descriptor, self.generation).ok()?;
        let socket = Socket::new(lp, handle);
        let guest = Guest {
            generation: self.generation,
            socket: Rc::clone(&socket),
            calls: Cell::new(1),
            seen: Cell::new(0),
            looked: Cell::new(0),
        };
        let index = self.fd as usize;
        let before = GUESTS.with(|guests| {
            let mut guests = guests.borrow_mut();
            if index >= guests.len() {
                guests.resize_with(index + 1, || None);
            }
            guests[index].replace(guest)
        });
        drop(before);
        Some(socket)
    }
}

/// Has the guests of a coroutine's loop looked at in a while.
#[inline]
fn look_soon(frame: &Frame) {
    if !frame.scheduler().looks_at_guests.get() {
        look_later(frame.lp(), frame.scheduler());
    }
}

#[cold]
fn look_later(lp: &Loop, scheduler: &Scheduler) {
    scheduler.looks_at_guests.set(true);
    lp.after(PATIENCE, look);
}

/// Looks at the numbers of those who have waited for long. As soon as nobody is left to be looked at, this ends.
fn look(lp: &Loop) {
    let scheduler = Scheduler::of(lp);
    let (mut others, mut waiting) = (false, Vec::new());
    GUESTS.with_borrow(|guests| {
        let guests =
            guests.iter().enumerate().filter_map(|(fd, guest)| Some((fd, guest.as_ref()?)));
        for (fd, guest) in guests {
            let (socket, call) = (&guest.socket, guest.calls.get());
            let here = std::ptr::eq(socket.home.get(), Rc::as_ptr(&scheduler));
            if !here || socket.reading.is_free() || guest.looked.get() == call {
                continue;
            }
            if guest.seen.replace(call) != call || waiting.len() >= LOOKS_AT_ONCE {
                others = true;
                continue;
            }
            guest.looked.set(call);
            waiting.push(fd as i32);
        }
    });
    for fd in waiting {
        // SAFETY: it is only used for the call; a number that is closed is refused by the kernel.
        lp.check_number(unsafe { BorrowedFd::borrow_raw(fd) });
    }
    scheduler.looks_at_guests.set(false);
    if others {
        look_later(lp, &scheduler);
    }
}
