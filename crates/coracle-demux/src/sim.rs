//! A kernel that is made up from a seed: the same contract, a virtual clock, and everything that can go
//! wrong.
//!
//! A [`Kernel`] is a small world of sockets, files, children and signals in memory. Its demultiplexers
//! keep the contract of [`Demux`](crate::Demux), so that loops, coroutines and whole servers run on it
//! unchanged, deterministically, and without waiting: the clock jumps to the next event.
//!
//! ```text
//!   seed ──► Random ──┬──► Done or Pending, delays, short counts, resets, …  (Faults)
//!                     ▼
//!   loop 1 ─► SimDemux ─┐   ┌────────────────── World ──────────────────┐
//!                       ├──►│ clock · events · sockets · files · children │
//!   loop 2 ─► SimDemux ─┘   └───────────────────────────────────────────┘
//! ```
//!
//! The same seed and the same calls give the same completions at the same virtual times. A test that
//! panics prints its seed. Time stands still while the program works, and a wait that finds something at
//! once takes a microsecond: a loop that is never idle still sees its timers come due.
//!
//! # Several loops on one kernel
//! All demultiplexers of a kernel share its clock and its network, and live on one thread. Whoever waits
//! moves the clock for all, and what becomes due meanwhile is put into the queue of whom it concerns. A
//! fair test therefore never lets one loop sleep while another has work:
//!
//! ```
//! use coracle_demux::sim::Kernel;
//! use coracle_demux::Demux;
//! use std::time::Duration;
//!
//! # fn main() -> std::io::Result<()> {
//! let kernel = Kernel::new(1);
//! let mut loops = [kernel.demux(), kernel.demux()];
//! loop {
//!     let mut quiet = true;
//!     for demux in &mut loops {
//!         demux.wait(Some(Duration::ZERO))?;
//!         while let Some(completion) = demux.next() {
//!             quiet = false;
//!             drop(completion); // the loop's work
//!         }
//!     }
//!     // All are idle: let time pass, up to the next event. With timers, up to whichever is sooner.
//!     if quiet && !kernel.advance_to_next_event() {
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is outside
//! Descriptors of the operating system (except as passengers of a message), threads, and sockets of std
//! that a coroutine uses through the hooks. Blocking work has to run on the kernel's thread to be part of
//! a replay.
//!
//! # Where to read on
//! `faults.rs` what may go wrong · `world.rs` clock, events, waiting · `in_flight.rs` the life of an
//! operation · `perform.rs` trying one · `descriptor.rs`, `stream.rs`, `datagram.rs`, `names.rs`, `files.rs`
//! what there is · `demux.rs` the contract · `alarm.rs` wake-ups from other threads · `random.rs`.

mod alarm;
mod datagram;
mod demux;
mod descriptor;
mod faults;
mod files;
mod in_flight;
mod names;
mod perform;
mod random;
mod stream;
#[cfg(test)]
mod tests;
mod world;

pub use demux::SimDemux;
pub use faults::{Fault, Faults, Injected};

use descriptor::Id;
use rustix::io::Errno;
use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use world::{Orphans, World};

/// A simulated kernel; clones are the same one. It never leaves the thread that made it.
///
/// ```
/// use coracle_demux::sim::Kernel;
/// use coracle_demux::{Demux, Operation, Outcome, Payload, Submitted};
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// let kernel = Kernel::new(42);
/// let mut demux = kernel.demux();
///
/// // An hour passes in no time.
/// while kernel.elapsed() < Duration::from_secs(3600) {
///     demux.wait(Some(Duration::from_secs(3600) - kernel.elapsed()))?;
/// }
///
/// // Two sockets talk; how many steps that takes is up to the seed.
/// let (a, b) = demux.socket_pair()?;
/// demux.submit(Operation::Shutdown { socket: a, how: std::net::Shutdown::Write });
/// let mut ended = false;
/// while !ended {
///     let space = vec![0; 16].into();
///     match demux.submit(Operation::Receive { socket: b, space }) {
///         Submitted::Done(finished) => {
///             ended = matches!(finished.result?, Outcome::Count(0));
///         }
///         Submitted::Pending(token) => loop {
///             demux.wait(None)?;
///             if let Some(completion) = demux.next() && completion.token == token {
///                 ended = matches!(completion.result?, Outcome::Count(0));
///                 break;
///             }
///         },
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Threads
/// Not `Send`: other threads may hold a [`Waker`](crate::Waker), nothing else.
/// ```compile_fail
/// fn send(_: impl Send) {}
/// send(coracle_demux::sim::Kernel::new(1));
/// ```
#[derive(Clone)]
pub struct Kernel {
    world: Rc<RefCell<World>>,
}

impl Kernel {
    /// A kernel with the [default](Faults::default) faults: unpleasant, but nothing breaks.
    pub fn new(seed: u64) -> Kernel {
        Kernel::with_faults(seed, Faults::default())
    }

    /// A kernel as unkind as `faults` says.
    pub fn with_faults(seed: u64, faults: Faults) -> Kernel {
        Kernel { world: Rc::new(RefCell::new(World::new(seed, faults))) }
    }

    /// A demultiplexer of this kernel. There may be several, which then share clock and network.
    pub fn demux(&self) -> SimDemux {
        SimDemux::new(&self.world)
    }

    /// The seed this kernel was made from.
    pub fn seed(&self) -> u64 {
        self.world.borrow().seed
    }

    /// How long, in real time, a wait that nothing in the simulation can end gives others to use a
    /// [`Waker`](crate::Waker) they hold, before it is a deadlock. Ten seconds; zero is right where there is no
    /// other thread.
    pub fn set_patience(&self, patience: Duration) {
        self.world.borrow_mut().patience = patience;
    }

    // --- Time ------------------------------------------------------------------------------------------

    /// The present, in virtual time.
    pub fn now(&self) -> Instant {
        self.world.borrow().now()
    }

    /// How much virtual time has passed since the kernel was made.
    pub fn elapsed(&self) -> Duration {
        self.world.borrow().elapsed
    }

    /// Lets `duration` pass; what becomes due is put into the queues of whom it concerns.
    pub fn advance(&self, duration: Duration) {
        self.world.borrow_mut().advance(duration);
    }

    /// Lets time pass until the next event has happened, or says `false`: nothing is scheduled.
    ///
    /// The timers of a loop are not events, for the kernel knows them only as the time-out of a wait:
    /// before this, [`advance`](Kernel::advance) to the earliest timer if that comes first.
    pub fn advance_to_next_event(&self) -> bool {
        let mut world = self.world.borrow_mut();
        world.close_orphans();
        match world.next_event() {
            Some(at) => {
                world.advance_to(at);
                true
            }
            None => false,
        }
    }

    /// When the next event is due, counted like [`elapsed`](Kernel::elapsed).
    pub fn next_event(&self) -> Option<Duration> {
        self.world.borrow().next_event()
    }

    // --- What comes from outside -----------------------------------------------------------------------

    /// Sends a signal: completes every [`Operation::Signal`](crate::Operation::Signal) for it. Where none
    /// was ever submitted it is ignored.
    pub fn raise(&self, signal: i32) {
        self.world.borrow_mut().raise(signal);
    }

    /// Starts a child that ends after a while; gives the process id that
    /// [`Operation::ChildExit`](crate::Operation::ChildExit) wants.
    pub fn spawn_child(&self, after: Duration, status: ExitStatus) -> u32 {
        self.world.borrow_mut().spawn_child(after, status)
    }

    /// Puts a file into the file system, replacing what was there. Directories need not be made.
    pub fn add_file(&self, path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>) {
        let mut world = self.world.borrow_mut();
        let now = world.elapsed;
        world.files.put(path.as_ref(), bytes.into(), now);
    }

    /// The contents of a file, or `None` if there is no such file.
    pub fn file(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.world.borrow().files.contents(path.as_ref())
    }

    // --- Failing on purpose ----------------------------------------------------------------------------

    /// Makes the `n`-th operation fail with `errno`, counted from 1 over all demultiplexers since the
    /// kernel was made. Run a scenario with each `n` up to [`operations`](Kernel::operations), and every
    /// error path has run once. A `Close` fails like close(2): the descriptor is gone all the same.
    ///
    /// ```
    /// use coracle_demux::sim::{Faults, Kernel};
    /// use coracle_demux::{Demux, Operation, Submitted};
    ///
    /// let kernel = Kernel::with_faults(1, Faults::none());
    /// let mut demux = kernel.demux();
    /// let (a, _b) = demux.socket_pair().unwrap();
    /// kernel.fail_nth(1, 5); // EIO
    /// match demux.submit(Operation::Send { socket: a, payload: b"hello".to_vec().into() }) {
    ///     Submitted::Done(finished) => assert_eq!(finished.result.unwrap_err().raw_os_error(), Some(5)),
    ///     Submitted::Pending(_) => unreachable!("without faults, what can finish does"),
    /// }
    /// ```
    ///
    /// # Panics
    /// When the `n`-th operation has been submitted already.
    pub fn fail_nth(&self, n: u64, errno: i32) {
        let mut world = self.world.borrow_mut();
        assert!(n > world.submitted, "operation {n} has been submitted already");
        world.failing_operations.insert(n, Errno::from_raw_os_error(errno));
    }

    /// How many operations have been submitted so far.
    pub fn operations(&self) -> u64 {
        self.world.borrow().submitted
    }

    /// As [`fail_nth`](Kernel::fail_nth), but for the calls that never wait: `socket`, `socket_pair`,
    /// `bind`, `listen`, `set_option`, `local_address`, `peer_address`, `adopt`, `detach`.
    ///
    /// # Panics
    /// When the `n`-th call has been made already.
    pub fn fail_nth_call(&self, n: u64, errno: i32) {
        let mut world = self.world.borrow_mut();
        assert!(n > world.called, "call {n} has been made already");
        world.failing_calls.insert(n, Errno::from_raw_os_error(errno));
    }

    /// How many calls that never wait have been made so far.
    pub fn calls(&self) -> u64 {
        self.world.borrow().called
    }

    // --- Looking in ------------------------------------------------------------------------------------

    /// How many descriptors are open: held by a demultiplexer, or detached and not dropped. Connections
    /// that wait to be accepted are nobody's descriptors.
    pub fn open_descriptors(&self) -> usize {
        let mut world = self.world.borrow_mut();
        world.close_orphans();
        world.open_descriptors()
    }

    /// How many faults of each kind have been injected so far.
    pub fn injected(&self) -> Injected {
        self.world.borrow().injected.clone()
    }

    /// The injected faults in one line: `Pending 3, ShortReceive 2`.
    pub fn describe_faults(&self) -> String {
        self.world.borrow().injected.to_string()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.world.borrow();
        f.debug_struct("Kernel")
            .field("seed", &world.seed)
            .field("elapsed", &world.elapsed)
            .field("operations", &world.submitted)
            .finish_non_exhaustive()
    }
}

/// A descriptor of a simulated kernel between two of its demultiplexers; dropping it closes it.
pub struct SimDescriptor {
    // `None` once adopted.
    id: Option<Id>,
    orphans: Arc<Orphans>,
}

impl SimDescriptor {
    fn new(id: Id, orphans: &Arc<Orphans>) -> SimDescriptor {
        SimDescriptor { id: Some(id), orphans: Arc::clone(orphans) }
    }

    fn into_id(mut self) -> Id {
        self.id.take().expect("only this takes it")
    }
}

impl Drop for SimDescriptor {
    fn drop(&mut self) {
        // The kernel closes it at its next call; from here it cannot be reached.
        if let Some(id) = self.id.take() {
            self.orphans.add(id);
        }
    }
}

impl fmt::Debug for SimDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(Id(number)) => write!(f, "SimDescriptor({number})"),
            None => f.write_str("SimDescriptor(adopted)"),
        }
    }
}
