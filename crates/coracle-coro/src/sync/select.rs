//! Whichever of several is first.
//!
//! ```text
//!   ┌─► try each arm ──── one can be done ────► chosen
//!   │        │
//!   │   join the line of each     (one can be done by now: wake ourselves)
//!   │        │
//!   │      wait ◄──────── whoever serves one of the lines, if his wake counts
//!   │        │
//!   └── leave all lines ── one was served ────► chosen
//! ```
//!
//! Nobody is chosen twice, because a waker's first wake is the only one that counts: whoever wants to hand
//! something to one arm, while another has just been chosen, learns from `wake` that it was in vain, and turns
//! to the next in its line. That is all there is to "an arm that loses consumes nothing".
//!
//! An arm is whatever implements `Wait`: the two ends of channels, sockets (in `net`), and time.

use crate::budget;
use crate::sync::chance;
use crate::sync::deadline;
use crate::sync::failure::Failure;
use crate::waiter::{Waiter, Waker, Woken};
use crate::waits_for::WaitsFor;
use std::io;
use std::time::{Duration, Instant};

/// Waits for several things at once, and does the one that comes first.
///
/// Each arm is `pattern = thing => body`. A thing is
///
/// - `&receiver`: a message is received. The pattern gets what [`Receiver::recv`](crate::sync::Receiver::recv)
///   returns.
/// - [`sender.sending(&mut slot)`](crate::sync::Sender::sending): the message in the slot is sent. The pattern
///   gets a `Result<(), _>`.
/// - [`stream.readable()`](crate::net::TcpStream::readable), `writable()`: a read or a write would not wait. The
///   pattern gets an `io::Result<()>`.
/// - [`listener.accepting()`](crate::net::TcpListener::accepting): a connection is accepted. The pattern gets what
///   `accept` returns.
/// - [`after(duration)`](crate::sync::after): so much time has passed. The pattern gets `()`.
/// - `&tick`: a [`Tick`](crate::sync::Tick) is due, again and again or once. The pattern gets when that was.
/// - `&signals`: a [signal](crate::signals()) has arrived. The pattern gets a `Result<(), _>`.
///
/// and the last arm may be `default => body`, for when nothing else can be done at once.
///
/// ```
/// use coracle_coro::select;
/// use coracle_coro::sync::{after, channel};
/// use std::time::Duration;
///
/// let (jobs, inbox) = channel(8);
/// let (_stop, stopped) = channel::<()>(1);
/// for n in 1..=3 {
///     jobs.send(n)?;
/// }
/// drop(jobs);
///
/// let mut total = 0;
/// loop {
///     select! {
///         job = &inbox => match job {
///             Ok(n) => total += n,
///             Err(_) => break, // every sender is gone
///         },
///         _ = &stopped => break,
///         () = after(Duration::from_secs(30)) => println!("idle"),
///     }
/// }
/// assert_eq!(total, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Bodies run in the caller: `break`, `continue`, `?` and `return` do what they do elsewhere. The whole is an
/// expression.
///
/// One arm is done, and the others are as if they had never been there: nothing was received, and what was to
/// be sent is still in its slot. If several can be done, chance decides, and time that has
/// come is one of them. Waiting arms have their places in the lines of their channels, like everybody else.
///
/// If the coroutine is cancelled, or a [`timeout`](crate::timeout) around it is over before the time of an arm,
/// the first arm that can fail is told so (`Cancelled`, `Deadline`). Time cannot fail: if there are no other arms,
/// the first is chosen.
///
/// There may be sixteen arms. For more, or for a number that is not known beforehand:
/// [`Select`](crate::sync::Select).
#[macro_export]
macro_rules! select {
    (@read [$($arm:tt)+] [$($name:ident)*]) => {
        $crate::select!(@run [$($arm)+] __choose
            ::core::unreachable!("one of the arms is chosen"))
    };
    (@read [$($arm:tt)+] [$($name:ident)*] default => $body:expr $(,)?) => {
        $crate::select!(@run [$($arm)+] __choose_now $body)
    };
    (@read [$($arm:tt)*] [$name:ident $($names:ident)*]
        $pattern:pat = $thing:expr => $body:block, $($rest:tt)*) => {
        $crate::select!(@read
            [$($arm)* ($name ($pattern) ($thing) ($body))] [$($names)*] $($rest)*)
    };
    (@read [$($arm:tt)*] [$name:ident $($names:ident)*]
        $pattern:pat = $thing:expr => $body:block $($rest:tt)*) => {
        $crate::select!(@read
            [$($arm)* ($name ($pattern) ($thing) ($body))] [$($names)*] $($rest)*)
    };
    (@read [$($arm:tt)*] [$name:ident $($names:ident)*]
        $pattern:pat = $thing:expr => $body:expr, $($rest:tt)*) => {
        $crate::select!(@read
            [$($arm)* ($name ($pattern) ($thing) ($body))] [$($names)*] $($rest)*)
    };
    (@read [$($arm:tt)*] [$name:ident $($names:ident)*]
        $pattern:pat = $thing:expr => $body:expr) => {
        $crate::select!(@read
            [$($arm)* ($name ($pattern) ($thing) ($body))] [$($names)*])
    };
    // A chain of `if`, and not a labelled block or a closure: bodies must be able to `break`.
    (@run [$(($name:ident ($pattern:pat) ($thing:expr) ($body:expr)))+]
        $choose:ident $otherwise:expr) => {
        match ($($crate::sync::IntoArm::into_arm($thing),)+) {
            ($(mut $name,)+) => {
                $crate::sync::$choose(&mut [$(&mut $name as &mut dyn $crate::sync::Wait),+]);
                $(if $crate::sync::Wait::is_chosen(&$name) {
                    let $pattern = $crate::sync::Arm::output(&mut $name);
                    $body
                } else)+ {
                    $otherwise
                }
            }
        }
    };
    (@read $($rest:tt)*) => {
        ::core::compile_error!(
            "an arm of select! is `pattern = thing => body`, and the last may be `default => body`; \
             there are one to sixteen of them"
        )
    };
    ($($arms:tt)+) => {
        $crate::select!(@read [] [a b c d e f g h i j k l m n o p] $($arms)+)
    };
}

/// Something that [`select!`](crate::select!) and [`Select`] can wait for.
///
/// ```
/// use coracle_coro::sync::{Arm, Select, channel};
///
/// let (sender, receiver) = channel(1);
/// sender.send("hello")?;
/// let mut arm = receiver.receiving();
/// let mut select = Select::new();
/// select.arm(&mut arm);
/// select.wait()?;
/// assert_eq!(arm.output()?, "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It is implemented here only.
#[diagnostic::on_unimplemented(
    message = "`select!` cannot wait for `{Self}`",
    label = "not an arm",
    note = "time is `after(duration)`; a message `&receiver`, or `sender.sending(&mut slot)`; a socket \
            `stream.readable()`, `stream.writable()`, `listener.accepting()`",
    note = "of whole functions, `race` runs several until the first has ended"
)]
pub trait Arm: Wait {
    /// What comes of it.
    type Output;

    /// What has come of it, for who was told that this arm is chosen. Once.
    ///
    /// # Panics
    /// If it was not chosen, or was asked before.
    fn output(&mut self) -> Self::Output;
}

/// What can stand in an arm of [`select!`](crate::select!): every [`Arm`], and `&Receiver`.
///
/// ```
/// use coracle_coro::sync::{IntoArm, channel};
///
/// let (_sender, receiver) = channel::<u32>(1);
/// let _arm = (&receiver).into_arm(); // the same as receiver.receiving()
/// ```
#[diagnostic::on_unimplemented(
    message = "`select!` cannot wait for `{Self}`",
    label = "not an arm",
    note = "time is `after(duration)`; a message `&receiver`, or `sender.sending(&mut slot)`; a socket \
            `stream.readable()`, `stream.writable()`, `listener.accepting()`",
    note = "of whole functions, `race` runs several until the first has ended"
)]
pub trait IntoArm {
    /// The arm it becomes.
    type Arm: Arm;

    /// The arm.
    fn into_arm(self) -> Self::Arm;
}

impl<A: Arm> IntoArm for A {
    type Arm = A;

    fn into_arm(self) -> A {
        self
    }
}

/// How an arm is tried, and waited for. Not for others: it may change.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`select!` cannot wait for `{Self}`",
    label = "not an arm"
)]
pub trait Wait {
    /// Does it, if that can be done at once. It is chosen then. Called while no arm is in a line.
    fn attempt(&mut self) -> bool;

    /// As [`attempt`](Wait::attempt), for who will not wait after it: it may take a turn of the loop to find out.
    fn attempt_now(&mut self) -> bool {
        self.attempt()
    }

    /// Joins a line, unless it can be done by now: then it does nothing, and says false.
    fn join(&mut self, party: &Party) -> bool;

    /// Leaves the line it is in, if any. If somebody has served it there, it is chosen.
    fn leave(&mut self);

    /// Whether this arm is the one.
    fn is_chosen(&self) -> bool;

    /// When it is due, for arms that are only a matter of time.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// What is waited for in it.
    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Something
    }

    /// Whether its output can tell of a failure.
    fn can_fail(&self) -> bool {
        true
    }

    /// It is chosen because the wait ended like this.
    fn end(&mut self, failure: Failure);
}

/// Whom to wake, and who that is.
#[doc(hidden)]
pub struct Party {
    pub(crate) waker: Waker,
    /// The same for all arms of one select, and nobody else's while it waits.
    pub(crate) name: usize,
}

/// Chooses among arms: does one of them, or waits until another does. The index of the one that is chosen.
pub(super) fn choose(arms: &mut [&mut dyn Wait]) -> Result<usize, Failure> {
    budget::begin()?;
    let ((due, own), outer) = (earliest(arms), deadline::limit());
    loop {
        if let Some(index) = try_each(arms) {
            return Ok(index);
        }
        let woken = wait(arms, own);
        if let Some(index) = arms.iter().position(|arm| arm.is_chosen()) {
            return Ok(index);
        }
        match Failure::of(woken) {
            // By ourselves, or because the other end of a channel is gone: trying again will tell.
            None => {}
            Some(Failure::TimedOut) if deadline::is_first(own, outer) => {
                arms[due].end(Failure::TimedOut);
                return Ok(due);
            }
            Some(failure) => return Err(failure),
        }
    }
}

/// Tries each arm once, beginning anywhere.
pub(super) fn try_each(arms: &mut [&mut dyn Wait]) -> Option<usize> {
    let count = arms.len();
    let first = if count > 1 { chance::below(count) } else { 0 };
    (first..count).chain(0..first).find(|&index| arms[index].attempt())
}

/// The same for who will not wait after it.
fn try_each_now(arms: &mut [&mut dyn Wait]) -> Option<usize> {
    let count = arms.len();
    let first = if count > 1 { chance::below(count) } else { 0 };
    (first..count).chain(0..first).find(|&index| arms[index].attempt_now())
}

/// Which arm is due first, and when.
fn earliest(arms: &[&mut dyn Wait]) -> (usize, Option<Instant>) {
    let due = |index: usize| arms[index].deadline().map(|deadline| (deadline, index));
    match (0..arms.len()).filter_map(due).min() {
        Some((deadline, index)) => (index, Some(deadline)),
        None => (0, None),
    }
}

/// The one thing that is waited for beside time, or how many there are.
fn what(arms: &[&mut dyn Wait]) -> WaitsFor {
    let mut others = arms.iter().filter(|arm| arm.deadline().is_none());
    match (others.next(), others.next()) {
        (Some(only), None) => only.waits_for(),
        (None, _) if arms.len() == 1 => arms[0].waits_for(),
        _ => WaitsFor::Arms(arms.len()),
    }
}

/// In the lines of all arms, until woken.
fn wait(arms: &mut [&mut dyn Wait], deadline: Option<Instant>) -> Woken {
    let waiter = Waiter::new().waiting_for(what(arms));
    // Every wait that goes on at the same time has its arms elsewhere.
    let party = Party { waker: waiter.waker(), name: arms.as_ptr().addr() };
    let lines = Lines(arms);
    for arm in lines.0.iter_mut() {
        if !arm.join(&party) {
            // If this does not count, somebody has chosen an arm that is in its line already.
            party.waker.wake();
            break;
        }
    }
    waiter.wait(deadline)
}

/// Arms in their lines, which they leave in any case.
struct Lines<'a, 'b>(&'a mut [&'b mut dyn Wait]);

impl Drop for Lines<'_, '_> {
    fn drop(&mut self) {
        for arm in self.0.iter_mut() {
            arm.leave();
        }
    }
}

/// What `select!` does without `default`.
#[doc(hidden)]
pub fn __choose(arms: &mut [&mut dyn Wait]) {
    if let Err(failure) = choose(arms) {
        let teller = arms.iter().position(|arm| arm.can_fail()).unwrap_or(0);
        arms[teller].end(failure);
    }
}

/// What `select!` does with `default`.
#[doc(hidden)]
pub fn __choose_now(arms: &mut [&mut dyn Wait]) {
    try_each_now(arms);
}

/// An arm that is due after `timeout`. See [`select!`](crate::select!).
///
/// ```
/// use coracle_coro::{select, sync::{after, channel}};
/// use std::time::Duration;
///
/// let (_sender, receiver) = channel::<u32>(1);
/// select! {
///     _ = &receiver => unreachable!(),
///     () = after(Duration::from_millis(1)) => {}
/// }
/// ```
///
/// The time begins when this is called. In a loop that is anew every time: for one limit on the whole, use
/// [`After::at`].
pub fn after(timeout: Duration) -> After {
    After { deadline: deadline::after(timeout), chosen: false, patient: false }
}

/// The same for who prefers all other arms, however late it is.
pub(super) fn at_last(timeout: Duration) -> After {
    After { patient: true, ..after(timeout) }
}

/// An arm that is a matter of time. See [`after`].
#[derive(Debug)]
pub struct After {
    /// `None` for never.
    deadline: Option<Instant>,
    chosen: bool,
    /// It is chosen only when nothing else can be.
    patient: bool,
}

impl After {
    /// An arm that is due at `deadline`.
    ///
    /// ```
    /// use coracle_coro::{select, sync::{After, channel}};
    /// use std::time::{Duration, Instant};
    ///
    /// let (ticks, inbox) = channel(4);
    /// ticks.send(1)?;
    /// let deadline = Instant::now() + Duration::from_millis(5);
    /// let mut count = 0;
    /// loop {
    ///     select! {
    ///         tick = &inbox => count += tick?,
    ///         () = After::at(deadline) => break,
    ///     }
    /// }
    /// assert_eq!(count, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn at(deadline: Instant) -> After {
        After { deadline: Some(deadline), chosen: false, patient: false }
    }
}

impl Wait for After {
    fn attempt(&mut self) -> bool {
        self.chosen = !self.patient && self.deadline.is_some_and(deadline::is_over);
        self.chosen // else the wait will tell
    }

    fn join(&mut self, _: &Party) -> bool {
        true
    }

    fn leave(&mut self) {}

    fn is_chosen(&self) -> bool {
        self.chosen
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn waits_for(&self) -> WaitsFor {
        self.deadline.map_or(WaitsFor::Something, WaitsFor::Time)
    }

    fn can_fail(&self) -> bool {
        false
    }

    fn end(&mut self, _: Failure) {
        self.chosen = true;
    }
}

impl Arm for After {
    type Output = ();

    fn output(&mut self) {
        assert!(std::mem::take(&mut self.chosen), "this arm was not chosen");
    }
}

/// [`select!`](crate::select!) for a number of arms that is not known beforehand.
///
/// ```
/// use coracle_coro::sync::{Arm, Receiver, Select, channel};
///
/// let (senders, receivers): (Vec<_>, Vec<_>) = (0..100).map(|_| channel(1)).unzip();
/// senders[42].send("here")?;
///
/// let mut arms: Vec<_> = receivers.iter().map(Receiver::receiving).collect();
/// let mut select = Select::new();
/// for arm in &mut arms {
///     select.arm(arm);
/// }
/// let chosen = select.wait()?;
/// assert_eq!((chosen, arms[chosen].output()?), (42, "here"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The arm that is chosen has done what it is for when `wait` returns, and keeps what came of it. If that is
/// not asked for, it is lost: a message was received, and is dropped with its arm.
#[derive(Default)]
pub struct Select<'a> {
    arms: Vec<&'a mut dyn Wait>,
}

impl<'a> Select<'a> {
    /// Without arms.
    ///
    /// ```
    /// # use coracle_coro::sync::Select;
    /// assert_eq!(Select::new().try_wait(), None);
    /// ```
    pub fn new() -> Select<'a> {
        Select::default()
    }

    /// Adds an arm, and says which number it has: 0, 1, 2 and so on.
    ///
    /// ```
    /// # use coracle_coro::sync::{Select, after, channel};
    /// # use std::time::Duration;
    /// # let (_sender, receiver) = channel::<u32>(0);
    /// let (mut message, mut late) = (receiver.receiving(), after(Duration::from_millis(1)));
    /// let mut select = Select::new();
    /// assert_eq!(select.arm(&mut message), 0);
    /// assert_eq!(select.arm(&mut late), 1);
    /// assert_eq!(select.wait()?, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn arm(&mut self, arm: &'a mut impl Arm) -> usize {
        self.arms.push(arm);
        self.arms.len() - 1
    }

    /// Waits until one of the arms is chosen, and says which.
    ///
    /// ```
    /// # use coracle_coro::sync::{Arm, Select, channel};
    /// # let (sender, receiver) = channel(1);
    /// # sender.send(7)?;
    /// let mut arm = receiver.receiving();
    /// let mut select = Select::new();
    /// select.arm(&mut arm);
    /// assert_eq!(select.wait()?, 0);
    /// assert_eq!(arm.output()?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `ECANCELED` if the coroutine is cancelled while it waits, `TimedOut` if a [`timeout`](crate::timeout)
    /// around it is over.
    pub fn wait(mut self) -> io::Result<usize> {
        Ok(choose(&mut self.arms)?)
    }

    /// The arm that can be done at once, if there is one.
    ///
    /// ```
    /// # use coracle_coro::sync::{Select, channel};
    /// # let (_sender, receiver) = channel::<u32>(1);
    /// let mut arm = receiver.receiving();
    /// let mut select = Select::new();
    /// select.arm(&mut arm);
    /// assert_eq!(select.try_wait(), None);
    /// ```
    pub fn try_wait(mut self) -> Option<usize> {
        try_each_now(&mut self.arms)
    }

    /// As [`wait`](Select::wait), but no longer than `timeout`.
    ///
    /// ```
    /// # use coracle_coro::sync::{Select, channel};
    /// # use std::{io::ErrorKind, time::Duration};
    /// # let (_sender, receiver) = channel::<u32>(1);
    /// let mut arm = receiver.receiving();
    /// let mut select = Select::new();
    /// select.arm(&mut arm);
    /// let error = select.wait_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// ```
    ///
    /// # Errors
    /// `TimedOut`, or as for [`wait`](Select::wait).
    pub fn wait_timeout(self, timeout: Duration) -> io::Result<usize> {
        let (count, mut late) = (self.arms.len(), at_last(timeout));
        let mut arms: Vec<&mut dyn Wait> = Vec::with_capacity(count + 1);
        for arm in self.arms {
            arms.push(arm);
        }
        arms.push(&mut late);
        let chosen = choose(&mut arms)?;
        if chosen == count { Err(Failure::TimedOut.into()) } else { Ok(chosen) }
    }
}

impl std::fmt::Debug for Select<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Select({} arms)", self.arms.len())
    }
}
