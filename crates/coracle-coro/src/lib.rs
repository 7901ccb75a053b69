//! Wait without holding the thread: coroutines on a loop, with the names of `std::thread`.
//!
//! A coroutine is a plain function with a stack of its own. When it waits, only it waits: its loop runs
//! others, and timers, and callbacks, until what it waits for has happened. So a thousand of them cost one
//! thread, and what they do is written as if each had its own.
//!
//! ```
//! use coracle_coro::{run, sleep, spawn};
//! use std::time::{Duration, Instant};
//!
//! fn main() -> std::io::Result<()> {
//!     run(|| {
//!         let begin = Instant::now();
//!         let sleepers: Vec<_> = (0..1000).map(|_| spawn(|| sleep(Duration::from_millis(50)))).collect();
//!         for sleeper in sleepers {
//!             sleeper.join().expect("it does not panic")?;
//!         }
//!         assert!(begin.elapsed() < Duration::from_secs(50)); // one after the other it would be just that
//!         Ok(())
//!     })
//! }
//! ```
//!
//! | `std::thread` | here |
//! |---|---|
//! | `main` | [`run`](run()), [`run_on`]: the first coroutine; returns when all are over |
//! | | [`Runtime`]: on several loops, a thread each; [`loops`], [`spawn_anywhere`] |
//! | `spawn`, `Builder` | [`spawn`](spawn()), [`Builder`]; [`spawn_on`] for another loop |
//! | `JoinHandle` | [`JoinHandle`] |
//! | `scope` | [`scope`](scope()): children that borrow; the first error cancels the rest |
//! | | [`race`](race()), [`race_all`], [`join_all`](join_all()): children in one line |
//! | `sleep`, `sleep_until`, `yield_now` | [`sleep`](sleep()), [`sleep_until`], [`yield_now`] |
//! | `park`, `park_timeout` | [`park`](park()), [`park_timeout`] |
//! | `Thread`, `current` | [`Coroutine`], [`current`](current()) |
//! | `thread_local!` | [`coroutine_local!`], inherited if the key asks for it; [`in_span`] for `tracing` |
//! | | [`JoinHandle::cancel`], [`timeout`], [`deadline`](deadline()), [`shield`](shield()): ends of waits |
//! | | [`on_big_stack`], [`no_park`](no_park()); [`stack_use`](stack_use()), [`set_stacks`] |
//! | | [`seeing`]: lists, backtraces, counters, a watchdog |
//! | `std::net`, `std::os::unix::net` | [`net`]: sockets on which only the coroutine waits |
//! | `std::sync` | [`sync`]: locks, channels, [`select!`], between coroutines and threads alike |
//! | | [`signals`](signals()): waiting for a signal of the system |
//! | `std::fs` | [`fs`]: files; [`offload`](offload()): any work that blocks, on a thread of the worker pool |
//! | | [`lookup_host`], [`names`]: names of hosts; [`conn_pool`]: connections that are kept |
//! | | [`future`]: `async` and `await` on the same loop: [`block_on`], [`spawn_future`] |
//! | | [`Generator`]: a function that hands out values on its way; needs no loop |
//!
//! # A coroutine stays where it is
//! It belongs to the loop it was spawned on, and to that loop's thread. So `spawn` asks for no `Send`, and
//! thread-locals, `Rc`s and lock guards stay valid across a wait. What is different from a thread: others of
//! the same thread run whenever it waits, and only then.
//!
//! # Where one can wait
//! In a coroutine, and in a plain thread that has nothing to do with loops: both can wait for each other. Not
//! in a callback of a loop (a timer, a posted job, a `Protocol`), which would stop the loop: there every wait
//! panics at once, and says what to do.
//!
//! # Cancelling
//! Cancelling a coroutine, or the end of a [`timeout`] around its code, makes its waits fail: `ECANCELED`,
//! `TimedOut`. An error is handed on by `?`, and destructors run; nothing is unwound by force. What has to wait
//! even so, to clean up, does it in a [`shield`](shield()); [`is_cancelled`] tells that error from others. A
//! coroutine that was started is never dropped: it ends, or is leaked, and the log names it, if its loop goes
//! before it, or if it is cancelled and goes on waiting: the 33rd such wait never ends. A [`scope`](scope())
//! around it does not end either, then, and [`run`](run()) ends the process.
//!
//! # Taking turns
//! Nobody is interrupted: a coroutine has its loop to itself until it waits. What turns out not to have to wait,
//! since the message is there or the lock is free, is counted: after 64 such operations in a row, the others that
//! are ready go first, and now and then the loop's timers and sockets. That is also a moment at which a cancel or
//! a [`timeout`] strikes: the next operation is an error, though it could have been done. So code that always
//! finds something to do neither starves its loop nor outlives its end. Three things never fail for that: a lock
//! that is free, so that clean-up can rely on it; the end of a coroutine that is over; a future that is ready. And
//! what is called `try_…` never lets anybody run. A long calculation calls [`yield_now`].
//!
//! ```
//! use coracle_coro::{is_cancelled, run, spawn, sync::channel, yield_now};
//!
//! run(|| {
//!     let (sender, receiver) = channel(1);
//!     let busy = spawn(move || -> std::io::Result<()> {
//!         loop {
//!             sender.send("always room")?;
//!             receiver.recv()?; // and always a message
//!         }
//!     });
//!     yield_now(); // it goes on for a while, and then it is our turn
//!     busy.cancel();
//!     assert!(is_cancelled(&busy.join().unwrap().unwrap_err()));
//!     Ok(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Panics
//! A panic ends only its coroutine. [`JoinHandle::join`] has it, and the log, with the coroutine's name. A
//! wait in a destructor that runs because of a panic fails at once, as if cancelled.
//!
//! # Forks
//! A copy of a process that was made by `fork` runs none of the coroutines of the original. If it was one of
//! them that forked, that one goes on in the copy, and all its waits fail with `ECANCELED`; when it is over,
//! [`run`](run()) returns an error there. So a copy should do what copies do: `exec`, or end.

mod big_stack;
mod budget;
mod cancelled;
pub mod conn_pool;
mod coroutine;
mod current;
mod deadline;
mod deadlock;
mod ending;
mod extras;
mod failures;
pub mod fs;
pub mod future;
pub mod generator;
mod group;
mod hold;
#[doc(hidden)]
pub mod hooking;
mod inbox;
mod inherit;
mod join;
mod join_all;
mod kept;
mod leak;
mod local;
mod must_not_unwind;
pub mod names;
pub mod net;
mod no_park;
mod offload;
mod park;
mod place;
mod placing;
mod prefetch;
mod primitive;
mod race;
mod ready;
mod run;
mod runtime;
mod scheduler;
mod scope;
mod scopes;
pub mod seeing;
mod shield;
mod signals;
mod sleep;
mod sleeper;
mod span;
mod spare;
mod spawn;
mod spawn_now;
mod stack_use;
mod stacks;
pub mod sync;
mod task;
mod unasked;
mod waiter;
mod waits_for;
mod way;
mod yielder;

pub use big_stack::on_big_stack;
pub use cancelled::is_cancelled;
pub use coroutine::{Coroutine, CoroutineId, current, may_wait};
pub use deadline::{deadline, timeout};
#[doc(inline)]
pub use future::{block_on, spawn_future};
#[doc(inline)]
pub use generator::Generator;
pub use join::{JoinError, JoinHandle};
pub use join_all::join_all;
pub use local::LocalKey;
#[doc(inline)]
pub use names::lookup_host;
pub use no_park::no_park;
pub use offload::{offload, offload_scoped};
pub use park::{park, park_timeout, yield_now};
pub use placing::{SpawnOn, loops, spawn_anywhere};
pub use race::{race, race_all};
pub use run::{run, run_on};
pub use runtime::Runtime;
pub use scope::{Scope, scope};
pub use seeing::{CoroutineInfo, coroutines};
pub use shield::{shield, shield_until};
pub use signals::{Signals, signals};
pub use sleep::{sleep, sleep_until};
pub use span::in_span;
pub use spawn::{Builder, spawn, spawn_on};
pub use spawn_now::{Spawner, begin_anew, spawn_now};
pub use stack_use::{StackUse, stack_use};
pub use stacks::{set_stacks, stack_stats};
pub use task::State;
pub use waits_for::WaitsFor;
