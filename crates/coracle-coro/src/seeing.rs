//! Seeing what coroutines do, from outside: lists, backtraces, counters, and a watchdog.
//!
//! | | |
//! |---|---|
//! | [`coroutines`] | those of this loop: name, state, age, place, what it waits for |
//! | [`look_at`], [`look_at_all`] | the same of another loop, or of all, with backtraces; from any thread |
//! | [`stats`] | counters of this loop |
//! | [`Watchdog`] | reports a loop that is held, with the user's own frames; a dump of everything on SIGQUIT |
//! | [`dump_on_sigquit`] | the latter alone |
//!
//! ```
//! use coracle_coro::seeing::look_at_all;
//! use std::time::Duration;
//!
//! coracle_coro::run(|| {
//!     let parked = coracle_coro::Builder::new().name("parked").spawn(coracle_coro::park)?;
//!     coracle_coro::yield_now();
//!     let dump = look_at_all(Duration::from_secs(1)).to_string();
//!     assert!(dump.contains("'parked' is Waiting for an unpark"), "{dump}");
//!     parked.coroutine().unpark();
//!     parked.join().unwrap()
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What it costs
//! Who does not look pays, in each wait, for a few stores that say what is waited for; and for each switch an
//! addition, and a look whether somebody looks. Nothing is allocated or formatted before.

mod dump;
mod listing;
pub(crate) mod look;
mod sample;
mod stats;
mod trace;
mod unwind;
mod watchdog;

pub use dump::{Dump, LoopDump, look_at, look_at_all};
pub(crate) use listing::list;
pub use listing::{CoroutineInfo, coroutines};
pub(crate) use stats::Counters;
pub use stats::{Stats, stats};
pub use trace::{Trace, TraceFrame};
pub(crate) use watchdog::threads;
pub use watchdog::{Held, Watchdog, Watching, dump_on_sigquit};
