//! Unmodified blocking Rust parks only its coroutine: libc's calls, taken over where a coroutine makes them.
//!
//! ```no_run
//! use std::io::{Read, Write};
//! use std::net::TcpListener;
//!
//! fn main() -> std::io::Result<()> {
//!     // SAFETY: nothing in this program takes its thread for its own over a call that may wait.
//!     unsafe { coracle_hook::enable() };
//!     coracle_coro::run(|| {
//!         let listener = TcpListener::bind("127.0.0.1:7000")?; // std's
//!         loop {
//!             let (mut stream, _) = listener.accept()?; // waits, and holds no thread
//!             coracle_coro::spawn(move || {
//!                 let mut space = [0; 4096];
//!                 while let Ok(count @ 1..) = stream.read(&mut space) {
//!                     stream.write_all(&space[..count])?;
//!                 }
//!                 std::io::Result::Ok(())
//!             });
//!         }
//!     })
//! }
//! ```
//!
//! This crate defines functions with the names of libc's: `recv`, `connect`, `poll`, … The linker gives them to
//! everybody in the program: to std, to crates, to C libraries. Called outside a coroutine, or before
//! [`enable`], each of them calls libc's own, and nothing is different. Called in a coroutine, it tries, and if
//! that would wait, the coroutine is parked until it would not.
//!
//! # What parks
//! | | |
//! |---|---|
//! | sockets | `read write readv writev recv send recvfrom sendto recvmsg sendmsg recvmmsg sendmmsg` |
//! | connections | `accept accept4 connect` |
//! | pipes, eventfds and their kin | `read write readv writev` |
//! | several | `poll ppoll select pselect epoll_wait epoll_pwait epoll_pwait2` |
//! | time | `clock_nanosleep`, by which std sleeps; if [asked for](Settings::sleeping) `nanosleep usleep sleep` |
//! | children | `waitpid wait wait3 wait4 waitid` |
//! | names | `getaddrinfo getnameinfo gethostbyname*`, on [threads of their own](coracle_coro::names) |
//!
//! What never parks: regular files, locks (futexes), the descriptors 0 to 2 of the standard streams, and
//! anything while a panic unwinds. It blocks its thread, as ever; if a lock, `fsync`, `flock` or `open` holds a
//! loop for long, that is [counted](Holds), and the log says so.
//!
//! # What stays as it is
//! The meaning of calls is the kernel's. A descriptor that is non-blocking says `EAGAIN`; `SO_RCVTIMEO` and
//! `SO_SNDTIMEO` are kept, and there is no other time-out; a blocking send sends everything. What a coroutine
//! adds: when it is [cancelled](coracle_coro::JoinHandle::cancel), its calls fail with `ECANCELED`, and when a
//! [deadline](coracle_coro::timeout) around them has passed, with `ETIMEDOUT`. A sleep has no way to fail: it
//! ends early, and the next call fails.
//!
//! Of sockets that were not made here since hooks are enabled (inherited, passed on, copied by `dup`) nothing is
//! known, and the kernel is asked: whether one is non-blocking, before every wait; for its time-out, when a wait
//! has lasted a while. Who is accepted is made here, whatever the listener is. A time-out that was set before
//! hooks were enabled, or past libc, may so be told up to 50 milliseconds late, if it is shorter than that; one
//! that was set through libc, up to two, if it is shorter than that.
//!
//! # Copies of a process
//! In a child made by `fork` hooks are off, until it enables them itself: it has none of the loops of its
//! parent. In one made by `vfork` they are off until it starts a program, though it has the memory of its
//! parent meanwhile (on x86-64: elsewhere `vfork` is not hooked, and such a child must only `exec` or `_exit`).
//! A program that is started by `exec` begins anew.

#[macro_use]
mod real;

mod accept;
mod bytes;
mod cache;
mod child;
mod close;
mod connect;
mod copy;
mod fork;
mod gate;
mod guest;
mod hold;
mod poll;
mod raw;
mod receive;
mod resolve;
mod seats;
mod send;
mod settings;
mod sleep;
mod status;
mod symbols;
mod wait;

mod enable;

#[doc(hidden)]
pub use cache::remember;
pub use enable::{enable, enable_with, off, on, status};
pub use hold::Holds;
pub use settings::Settings;
pub use status::Status;

use sleep::is_sleeping;

/// What each file defines.
static TABLES: &[&[symbols::Symbol]] = &[
    accept::SYMBOLS,
    cache::SYMBOLS,
    child::SYMBOLS,
    close::SYMBOLS,
    connect::SYMBOLS,
    copy::SYMBOLS,
    fork::SYMBOLS,
    fork::BY_HAND,
    hold::SYMBOLS,
    poll::SYMBOLS,
    receive::SYMBOLS,
    resolve::SYMBOLS,
    send::SYMBOLS,
    sleep::SYMBOLS,
];
