//! How a coroutine waits for a descriptor that is not the loop's: a poll, told by the loop.
//!
//! Each loop keeps the descriptors that were waited for *lent* to its backend, by number, so that the next wait
//! needs no new registration. Nothing relies on it: a poll has the kernel look at the number anew
//! (`EPOLL_CTL_MOD`, or a request of io_uring's), which fails if it has become another descriptor since, and
//! then it is lent again.
#![allow(unsafe_code)]

use crate::accept;
use crate::cache::{self, Facts};
use crate::fork;
use crate::gate;
use crate::raw::{self, Kind};
use crate::seats::{self, Sitting};
use coracle_coro::WaitsFor;
use coracle_coro::hooking::{self, Ended, Unasked, Wait, Wake};
use coracle_loop::demux::{Backend, Completion, Interest, Operation, Submitted, Token};
use coracle_loop::{Complete, Loop};
use libc::{c_int, c_short};
use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Where the loop cannot be told, one looks again after a pause, which grows up to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// Why a wait has ended without what was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The caller's own time is over: what that means is for the call to say.
    TimedOut,
    /// This descriptor was closed, and its number may be somebody else's by now.
    Closed(c_int),
    /// Something that is told as it is: `ECANCELED`, `ETIMEDOUT` of a deadline around.
    Error(c_int),
}

impl Stop {
    /// With `late` for the end of the caller's own time.
    pub(crate) fn errno(self, late: c_int) -> c_int {
        match self {
            Stop::TimedOut => late,
            Stop::Closed(_) => libc::EBADF,
            Stop::Error(error) => error,
        }
    }
}

/// When a wait is over at the latest.
#[derive(Clone, Copy)]
enum Until<'a> {
    Known(Option<Instant>),
    /// It is found out if it lasts.
    Unasked(&'a Unasked),
}

impl Until<'_> {
    /// As far as it is known.
    fn deadline(self) -> Option<Instant> {
        match self {
            Until::Known(deadline) => deadline,
            Until::Unasked(call) => call.deadline(),
        }
    }

    fn wait(self, wait: Wait) -> Ended {
        match self {
            Until::Known(deadline) => wait.wait(deadline),
            Until::Unasked(call) => wait.wait_unasked(call),
        }
    }
}

/// The loop of the coroutine that calls.
pub(crate) fn lp() -> Loop {
    Loop::current().expect("a coroutine that may be parked is in a turn of its loop")
}

/// Waits until one of several descriptors is ready for what is wanted of it, or may be.
pub(crate) fn any_ready(
    wanted: &[(c_int, Interest)],
    deadline: Option<Instant>,
) -> Result<(), Stop> {
    any_ready_as(what(wanted), wanted, Until::Known(deadline))
}

fn any_ready_as(
    what: WaitsFor,
    wanted: &[(c_int, Interest)],
    until: Until<'_>,
) -> Result<(), Stop> {
    gate::note_wait();
    let lp = lp();
    match polled(&lp, what, wanted, until) {
        Some(ended) => ended,
        None => looked(&lp, what, &wanted.iter().map(events).collect::<Vec<_>>(), until),
    }
}

/// The same for what a loop cannot wait for by itself, as poll(2) is asked for it: `make_set` makes an epoll
/// set of them, which it can.
pub(crate) fn any_ready_in(
    wanted: &[(c_int, c_short)],
    make_set: impl FnOnce() -> Result<OwnedFd, c_int>,
    deadline: Option<Instant>,
) -> Result<(), Stop> {
    gate::note_wait();
    let lp = lp();
    match polled_in(&lp, wanted, make_set, deadline) {
        Some(ended) => ended,
        None => looked(&lp, what(wanted), wanted, Until::Known(deadline)),
    }
}

/// Waits until `fd` is ready.
pub(crate) fn ready(fd: c_int, interest: Interest, deadline: Option<Instant>) -> Result<(), Stop> {
    any_ready(&[(fd, interest)], deadline)
}

/// Waits until `fd` is readable: when the process `pid` has ended.
pub(crate) fn ended(fd: c_int, pid: c_int) -> Result<(), Stop> {
    any_ready_as(WaitsFor::Child(pid), &[(fd, Interest::READ)], Until::Known(None))
}

/// Waits until `deadline`, which is its end and no error.
pub(crate) fn pause(deadline: Instant) -> Result<(), Stop> {
    gate::note_wait();
    over(Wait::new(WaitsFor::Time(deadline)).wait(Some(deadline)))
}

/// The same for somebody who will look at `fd` afterwards: `EBADF` if that is closed meanwhile.
fn pause_at(fd: c_int, deadline: Instant) -> Result<(), Stop> {
    gate::note_wait();
    let wait = Wait::new(WaitsFor::Descriptor(fd));
    let sitting = Sitting::new(fd, wait.waker());
    let ended = over(wait.wait(Some(deadline)));
    closed_among([&sitting]).unwrap_or(ended)
}

fn over(ended: Ended) -> Result<(), Stop> {
    match told(ended) {
        Err(Stop::TimedOut) => Ok(()),
        other => other,
    }
}

/// Fails the wait of a cancelled coroutine, as all its waits do: if it goes on and on, not at once.
pub(crate) fn refuse_cancelled() -> c_int {
    let ended = Wait::new(WaitsFor::Something).wait(Some(lp().now()));
    told(ended).map_or_else(|stop| stop.errno(libc::ECANCELED), |()| libc::ECANCELED)
}

pub(crate) fn told(ended: Ended) -> Result<(), Stop> {
    match ended {
        Ended::Woken => Ok(()),
        Ended::TimedOut => Err(Stop::TimedOut),
        Ended::Late => Err(Stop::Error(libc::ETIMEDOUT)),
        Ended::Cancelled => Err(Stop::Error(libc::ECANCELED)),
    }
}

/// By polls of the loop; `None` if it cannot watch one of them.
fn polled(
    lp: &Loop,
    what: WaitsFor,
    wanted: &[(c_int, Interest)],
    until: Until<'_>,
) -> Option<Result<(), Stop>> {
    if lp.backend() == Backend::Sim {
        return None; // a simulated kernel has no descriptors of the real one
    }
    poll_all(lp, Wait::new(what), wanted, until)
}

/// By a poll of an epoll set; `None` if there is none, or the loop cannot watch it.
fn polled_in(
    lp: &Loop,
    wanted: &[(c_int, c_short)],
    make_set: impl FnOnce() -> Result<OwnedFd, c_int>,
    deadline: Option<Instant>,
) -> Option<Result<(), Stop>> {
    if lp.backend() == Backend::Sim {
        return None;
    }
    let wait = Wait::new(what(wanted));
    // Before they are in the set, which forgets a descriptor that is closed without a word.
    let sit = |&(fd, _): &(c_int, c_short)| Sitting::new(fd, wait.waker());
    let sittings: Vec<Sitting> = wanted.iter().map(sit).collect();
    let polled = make_set().ok().and_then(|set| {
        poll_all(lp, wait, &[(set.as_raw_fd(), Interest::READ)], Until::Known(deadline))
    });
    let ended = polled.map(|ended| match ended {
        Err(Stop::Closed(_)) => Ok(()), // ours, by somebody who closes all there are: another is made
        ended => ended,
    });
    closed_among(&sittings).or(ended)
}

fn poll_all(
    lp: &Loop,
    wait: Wait,
    wanted: &[(c_int, Interest)],
    until: Until<'_>,
) -> Option<Result<(), Stop>> {
    let ready = Rc::new(Ready { wake: RefCell::new(Some(wait.waker())) });
    let mut polls = Polls::default();
    for &(fd, interest) in wanted {
        let sitting = Sitting::new(fd, wait.waker());
        match poll(lp, fd, interest, &ready) {
            Some(Submitted::Pending(token)) => polls.add(sitting, token),
            Some(Submitted::Done(finished)) if finished.result.is_ok() => {
                ready.answer();
                break;
            }
            _ => {
                ready.wake.take();
                polls.cancel(lp);
                // It may be refused because it was closed: who looks at the number next may find a stranger.
                return closed_among(polls.all().map(|(sitting, _)| sitting).chain([&sitting]));
            }
        }
    }
    let ended = told(until.wait(wait));
    ready.wake.take();
    polls.cancel(lp);
    Some(closed_among(polls.all().map(|(sitting, _)| sitting)).unwrap_or(ended))
}

/// What a wait is told if one of these was closed, whatever has ended it.
fn closed_among<'a>(sittings: impl IntoIterator<Item = &'a Sitting>) -> Option<Result<(), Stop>> {
    let closed = sittings.into_iter().find(|sitting| sitting.is_closed())?;
    Some(Err(Stop::Closed(closed.fd())))
}

/// The polls of one wait: nearly always one, which needs no list.
#[derive(Default)]
struct Polls {
    first: Option<(Sitting, Token)>,
    rest: Vec<(Sitting, Token)>,
}

impl Polls {
    fn add(&mut self, sitting: Sitting, token: Token) {
        if self.first.is_none() {
            self.first = Some((sitting, token));
        } else {
            self.rest.push((sitting, token));
        }
    }

    fn all(&self) -> impl Iterator<Item = &(Sitting, Token)> {
        self.first.iter().chain(&self.rest)
    }

    /// Ends those that are not over: the tokens of others are stale, and mean nothing.
    fn cancel(&self, lp: &Loop) {
        self.all().for_each(|(_, token)| lp.cancel(*token));
    }
}

/// By looking now and then: for descriptors that the loop cannot watch, and in the simulator.
fn looked(
    lp: &Loop,
    what: WaitsFor,
    wanted: &[(c_int, c_short)],
    until: Until<'_>,
) -> Result<(), Stop> {
    let simulated = lp.backend() == Backend::Sim;
    let mut pause = Duration::from_millis(1);
    loop {
        // Simulated time flies: a moment of the real one for a pause of the other.
        if looks_ready(
            wanted,
            if simulated { pause.min(Duration::from_millis(1)) } else { Duration::ZERO },
        ) {
            return Ok(());
        }
        let deadline = until.deadline();
        if deadline.is_some_and(|deadline| deadline <= lp.now()) {
            return Err(Stop::TimedOut);
        }
        let next = lp.deadline(pause);
        let wait = Wait::new(what);
        let sittings: Vec<Sitting> =
            wanted.iter().map(|&(fd, _)| Sitting::new(fd, wait.waker())).collect();
        let ended = wait.wait(Some(deadline.map_or(next, |deadline| deadline.min(next))));
        // This is the only place where a close is told.
        match closed_among(&sittings).unwrap_or_else(|| told(ended)) {
            Ok(()) | Err(Stop::TimedOut) => {}
            Err(error) => return Err(error),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn looks_ready(wanted: &[(c_int, c_short)], patience: Duration) -> bool {
    let entry = |&(fd, events): &(c_int, c_short)| libc::pollfd { fd, events, revents: 0 };
    let mut list: Vec<libc::pollfd> = wanted.iter().map(entry).collect();
    raw::poll(&mut list, patience) != Ok(0)
}

/// What poll(2) is asked for.
fn events(&(fd, interest): &(c_int, Interest)) -> (c_int, c_short) {
    let read = if interest.contains(Interest::READ) { libc::POLLIN } else { 0 };
    let write = if interest.contains(Interest::WRITE) { libc::POLLOUT } else { 0 };
    (fd, read | write)
}

fn what<T>(wanted: &[(c_int, T)]) -> WaitsFor {
    wanted.first().map_or(WaitsFor::Something, |&(fd, _)| WaitsFor::Descriptor(fd))
}

/// Several polls of one wait. Holds nothing of the caller's, so that nobody has to wait for their ends.
struct Ready {
    wake: RefCell<Option<Wake>>,
}

impl Ready {
    fn answer(&self) {
        let wake = self.wake.take();
        if let Some(wake) = wake {
            wake.wake();
        }
    }
}

impl Complete for Ready {
    fn complete(self: Rc<Self>, _: &Loop, _tag: u32, _: Completion) {
        // Whatever came of it: if the descriptor was taken back, the next attempt finds out why.
        self.answer();
    }
}

/// Starts a poll; `None` if the loop cannot watch this descriptor.
fn poll(lp: &Loop, fd: c_int, interest: Interest, ready: &Rc<Ready>) -> Option<Submitted> {
    // SAFETY: it is only used for the call; a number that is closed is refused by the kernel.
    let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
    let submit = |handle| lp.submit(Operation::Poll { handle, interest }, ready, 0);
    match lp.poll_number(descriptor, seats::note_lent(fd), submit) {
        Ok(Submitted::Done(finished)) if finished.result.is_err() => None,
        Ok(submitted) => Some(submitted),
        Err(_) => None,
    }
}

/// The descriptor is about to be closed: the loop of this thread takes it out of its set, and all who wait on it,
/// anywhere, are told `EBADF`.
pub(crate) fn closing(fd: c_int) {
    if fd < 0 || !seats::matters(fd) || fork::is_elsewhere() {
        return;
    }
    let homes = seats::closing(fd);
    let generation = seats::generation(fd);
    let here = Loop::current();
    if let Some(lp) = &here {
        hooking::forget(fd);
        lp.reclaim_number(fd);
    }
    for home in homes {
        if !here.as_ref().is_some_and(|lp| home.is_of(lp)) {
            // One that is gone has closed everything.
            let _ = home.post(move |lp| {
                hooking::forget_older(fd, generation);
                lp.reclaim_older(fd, generation);
            });
        }
    }
}

/// Those descriptors were closed: see [`seats::closed`]. `errno` is as before.
pub(crate) fn closed(first: c_int, last: c_int) {
    if first >= 0 && !fork::is_borrower() {
        let errno = raw::errno();
        seats::closed(first, last);
        raw::set_errno(errno);
    }
}

/// How long a call on a descriptor may wait, found out when it first has to.
pub(crate) struct Patience {
    fd: c_int,
    interest: Interest,
    known: bool,
    /// What is remembered of the number is about sockets: this is none.
    asking: bool,
    deadline: Option<Instant>,
    /// The kernel is asked for the deadline if it lasts.
    unasked: Option<Unasked>,
    /// How often it was told that the descriptor is ready, and it was not.
    fruitless: u32,
}

/// After so many a pause is made: a Unix socket is always ready to send, though its peer has no room.
const FREE_FRUITLESS: u32 = 2;

impl Patience {
    pub(crate) fn new(fd: c_int, interest: Interest) -> Patience {
        Patience {
            fd,
            interest,
            known: false,
            asking: false,
            deadline: None,
            unasked: None,
            fruitless: 0,
        }
    }

    /// A cancelled coroutine is told so before it tries.
    pub(crate) fn begin(fd: c_int, interest: Interest) -> Result<Patience, c_int> {
        if coracle_coro::hooking::is_cancelled()
            && raw::kind(fd)? != Kind::Other
            && !accept::is_nonblocking(fd)?
        {
            return Err(refuse_cancelled());
        }
        Ok(Patience::new(fd, interest))
    }

    /// For what is no socket: the kernel is asked, whatever the number was before.
    pub(crate) fn asking(mut self) -> Patience {
        self.asking = true;
        self
    }

    /// Finds out whether the call may wait at all.
    ///
    /// # Errors
    /// `EAGAIN`: the user has made the descriptor non-blocking.
    pub(crate) fn look(&mut self) -> Result<(), c_int> {
        if !self.known {
            let facts = if self.asking { Facts::default() } else { cache::facts(self.fd) };
            let nonblocking = if facts.is_known() {
                facts.is_nonblocking()
            } else {
                accept::is_nonblocking(self.fd)?
            };
            if nonblocking {
                return Err(libc::EAGAIN);
            }
            self.known = true;
            let receiving = self.interest == Interest::READ;
            let ask = if receiving { receive_timeout } else { send_timeout };
            if !facts.is_known() {
                self.unasked = Some(Unasked::new(self.fd, ask));
            } else if facts.has_timeout(receiving) {
                self.deadline = ask(self.fd).map(|time| lp().deadline(time));
            }
        }
        Ok(())
    }

    fn until(&self) -> Until<'_> {
        self.unasked.as_ref().map_or(Until::Known(self.deadline), Until::Unasked)
    }

    /// Waits until the descriptor may be ready.
    ///
    /// # Errors
    /// `EAGAIN` if it is non-blocking, or its own time-out has passed, as in the kernel; else what has struck.
    pub(crate) fn wait(&mut self) -> Result<(), c_int> {
        self.look()?;
        if self.fruitless >= FREE_FRUITLESS {
            self.pause()?;
        }
        self.fruitless += 1;
        let wanted = [(self.fd, self.interest)];
        any_ready_as(what(&wanted), &wanted, self.until()).map_err(|stop| stop.errno(libc::EAGAIN))
    }

    /// Something was done: the next wait is a new one.
    pub(crate) fn progress(&mut self) {
        self.fruitless = 0;
    }

    /// Waits a while, longer each time, where nobody can tell when to try again.
    ///
    /// # Errors
    /// As [`wait`](Patience::wait).
    pub(crate) fn pause(&mut self) -> Result<(), c_int> {
        self.look()?;
        let pause = Duration::from_millis(1 << self.fruitless.min(5)).min(LONGEST_PAUSE);
        self.fruitless += 1;
        let lp = lp();
        let deadline = self.until().deadline();
        if deadline.is_some_and(|deadline| deadline <= lp.now()) {
            return Err(libc::EAGAIN);
        }
        let until = lp.deadline(pause);
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        pause_at(self.fd, until).map_err(|stop| stop.errno(libc::EAGAIN))
    }
}

/// What the kernel says when it is asked how long a receive may wait.
pub(crate) fn receive_timeout(fd: c_int) -> Option<Duration> {
    raw::socket_timeout(fd, libc::SO_RCVTIMEO)
}

/// The same for a send.
pub(crate) fn send_timeout(fd: c_int) -> Option<Duration> {
    raw::socket_timeout(fd, libc::SO_SNDTIMEO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;

    /// What a wait is told if its descriptor is closed when it has just sat down, its number becomes somebody
    /// else's, and then this is what the loop is to watch.
    fn told_of(set: impl FnOnce() -> Result<OwnedFd, c_int> + Send + 'static) -> Result<(), Stop> {
        let waiting = move || {
            let (own, _peer) = UnixStream::pair().unwrap();
            let (stranger, _other) = UnixStream::pair().unwrap();
            let fd = own.into_raw_fd();
            let make_set = || {
                drop(seats::closing(fd)); // as a hooked close does
                // SAFETY: both are ours. The first is closed, and its number is the second one's.
                assert_eq!(unsafe { libc::dup2(stranger.as_raw_fd(), fd) }, fd);
                set()
            };
            let soon = lp().deadline(Duration::from_millis(100));
            let told = any_ready_in(&[(fd, libc::POLLIN)], make_set, Some(soon));
            // SAFETY: it is ours, and nobody has it any more.
            unsafe { libc::close(fd) };
            Ok(told.map_err(|stop| if stop == Stop::Closed(fd) { Stop::Closed(0) } else { stop }))
        };
        coracle_coro::run(waiting).unwrap()
    }

    #[test]
    fn s33_close_is_told_where_there_is_no_set() {
        assert_eq!(told_of(|| Err(libc::EBADF)), Err(Stop::Closed(0)));
    }

    #[test]
    fn s33_close_is_told_where_a_loop_cannot_watch() {
        // A regular file: epoll(7) has none of them.
        let file = || Ok(File::open("/proc/self/exe").unwrap().into());
        assert_eq!(told_of(file), Err(Stop::Closed(0)));
    }
}
