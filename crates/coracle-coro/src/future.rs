//! `async` and `await` on the same loop: beside coroutines and callbacks, without another runtime.
//!
//! Each of the three can start the others and wait for them, on one thread:
//!
//! | | in a coroutine | in a future | in a callback |
//! |---|---|---|---|
//! | start a coroutine | [`spawn`](crate::spawn()) | the same | the same |
//! | start a future | [`spawn_future`] | the same | the same |
//! | wait for a coroutine | [`join`](crate::JoinHandle::join) | `handle.await` | start one that waits |
//! | wait for a future | [`block_on`], [`join`](FutureHandle::join) | `.await` | start one that waits |
//! | receive a message | [`recv`][recv] | [`recv_async`][recv_async] | [`try_recv`][try_recv] |
//!
//! [recv]: crate::sync::Receiver::recv
//! [recv_async]: crate::sync::Receiver::recv_async
//! [try_recv]: crate::sync::Receiver::try_recv
//!
//! ```
//! use coracle_coro::future::{block_on, spawn_future};
//! use coracle_coro::{run, spawn, sync::channel};
//!
//! run(|| {
//!     let (sender, receiver) = channel(1);
//!     spawn(move || sender.send("ahoy")); // a coroutine sends
//!     let heard = spawn_future(async move { receiver.recv_async().await }); // a future receives
//!     assert_eq!(block_on(heard)??.unwrap(), "ahoy"); // a coroutine waits for the future
//!     Ok(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What futures are here
//! A spawned future belongs to its loop and its loop's thread, needs no `Send`, and is dropped there. It has no
//! stack: it is smaller than a coroutine, and can only wait where it says `.await`. Futures of other crates run
//! as long as they bring their own reactor or need none (`futures`, `async-channel`, …); those that ask for
//! tokio's runtime do not.
//!
//! # Cancelling
//! A future is cancelled by being dropped: [`FutureHandle::cancel`] has the loop do it. So code after an
//! `.await` may never run, unlike in a coroutine, whose wait fails and who walks out by itself. What is here is
//! written for that: a message that was handed to a future which is dropped goes to the next who waits.

mod block_on;
pub(crate) mod listing;
pub mod net;
mod outcome;
mod queued;
mod spawn;
pub(crate) mod table;
mod thread_time;
mod time;
pub(crate) mod wait;

pub use block_on::block_on;
pub use listing::{FutureInfo, futures};
pub use spawn::{FutureError, FutureHandle, spawn_future, spawn_future_on};
pub use time::{Interval, Sleep, interval, sleep, sleep_until, timeout};
