//! Plain blocking Rust at event-loop speed.
//!
//! coracle is a network server framework: one loop per core; io_uring, epoll, poll or select chosen at run
//! time, behind one contract, with a simulated kernel as a fifth. This crate is the paved path: it re-exports
//! what programs need and has no logic of its own.
//!
//! A server is one value per connection ([`net::Protocol`]); here it is a function:
//!
//! ```no_run
//! use coracle::net::{Buffer, Conn, Server};
//!
//! fn main() -> std::io::Result<()> {
//!     Server::bind("127.0.0.1:7000")?.serve(|_peer| {
//!         |conn: &mut Conn<'_>, input: &mut Buffer| {
//!             conn.write(input.take_all());
//!             Ok(())
//!         }
//!     })
//! }
//! ```
//!
//! Under it is a loop, which can be used by itself:
//!
//! ```
//! use coracle::Loop;
//! use std::time::Duration;
//!
//! # fn main() -> std::io::Result<()> {
//! let lp = Loop::new()?;
//! println!("running on {}", lp.backend());
//! lp.repeat(Duration::from_millis(1), 3, |_| println!("tick"), |lp| lp.stop());
//! lp.run()
//! # }
//! ```
//!
//! On the same loop, a coroutine waits without holding the thread:
//!
//! ```
//! use std::time::Duration;
//!
//! # fn main() -> std::io::Result<()> {
//! coracle::run(|| {
//!     let slow = coracle::spawn(|| coracle::sleep(Duration::from_millis(5)));
//!     coracle::sleep(Duration::from_millis(5))?; // both at the same time
//!     slow.join().expect("it does not panic")
//! })
//! # }
//! ```
//!
//! So a server is what it would be with a thread for each connection ([`coro::net`]):
//!
//! ```no_run
//! use coracle::coro::net::serve;
//! use std::io;
//!
//! fn main() -> io::Result<()> {
//!     coracle::run(|| serve("127.0.0.1:7000", |stream| io::copy(&mut &stream, &mut &stream)))
//! }
//! ```
//!
//! | module | what is there |
//! |---|---|
//! | [`http`] | HTTP servers: apps that are functions; WebSocket, server-sent events; a client, a reverse proxy |
//! | [`net`] | in callbacks: servers, connections, protocols, datagrams, outgoing connections |
//! | here | [`Loop`] (whose turn is it?): timers, signals, posted jobs, foreign descriptors |
//! | [`generator`] | [`Generator`]: a function with a stack of its own, that hands out values on its way |
//! | here | [`run`], [`spawn`], [`scope`], [`sleep`], …: coroutines, with the names of `std::thread` |
//! | [`coro::net`] | sockets for coroutines, with the names of `std::net`; `serve` |
//! | [`coro::Builder`] | a coroutine with a name or a stack of another size ([`Builder`] makes loops) |
//! | [`seeing`] | what coroutines and loops do: lists, backtraces, counters, a watchdog |
//! | [`future`] | [`block_on`], [`spawn_future`], …: `async` and `await` on the same loop |
//! | [`sync`] | locks, channels and [`select!`], between coroutines and threads |
//! | [`fs`], [`offload`] | files, and any work that blocks, on threads; only the coroutine waits |
//! | [`names`], [`conn_pool`] | names of hosts, looked up once; connections that are kept |
//! | [`coro`] | everything for coroutines, also what is not here |
//! | [`pool`] | threads for work that blocks |
//! | `tls` | with the feature `tls`: TLS, as a layer of connections and as a stream |
//! | `hook` | with the feature `hook`: blocking calls of std and of other crates park their coroutine |
//! | [`demux`] | what has the kernel done for us? operations and backends; `sim`, the simulated kernel |
//!
//! The pages of these modules are those of the crates they come from: what is `coracle_net::Server` there is
//! `coracle::net::Server` for who depends on `coracle`.
//!
//! What is worth a line in the log is told through the crate `tracing`. A program that sets up no subscriber does
//! not see it.

pub use coracle_coro as coro;
pub use coracle_coro::{
    Coroutine, Generator, JoinError, JoinHandle, Runtime, SpawnOn, block_on, coroutine_local,
    coroutines, current, deadline, in_span, is_cancelled, join_all, lookup_host, loops, no_park,
    offload, offload_scoped, on_big_stack, park, park_timeout, race, race_all, run, run_on, scope,
    select, shield, shield_until, signals, sleep, sleep_until, spawn, spawn_anywhere, spawn_future,
    spawn_now, spawn_on, timeout, yield_now,
};
#[doc(no_inline)]
pub use coracle_coro::{conn_pool, fs, future, generator, names, seeing, sync};
#[doc(no_inline)]
pub use coracle_demux as demux;
#[cfg(feature = "hook")]
#[doc(no_inline)]
pub use coracle_hook as hook;
pub use coracle_http as http;
pub use coracle_loop::{
    Builder, Complete, Hook, HookKind, IdleTimer, Loop, LoopHandle, OffloadError, Overloaded,
    PostError, RemoteTimer, SignalListener, Ticket, Timer, Trigger, Watch, Watched,
};
#[doc(no_inline)]
pub use coracle_loop::{pool, wheel};
pub use coracle_net as net;
#[doc(no_inline)]
pub use coracle_net::Bytes;
#[cfg(feature = "tls")]
pub use coracle_tls as tls;
