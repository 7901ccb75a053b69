//! Plain blocking Rust at event-loop speed.
//!
//! coracle is a network server framework: one loop per core; io_uring, epoll, poll or select chosen at run
//! time, behind one contract, with a simulated kernel as a fifth. This crate is the paved path: it re-exports
//! what programs need and has no logic of its own.
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
//! Below it: [`coracle_loop`] (whose turn is it?) over [`coracle_demux`] (what has the kernel done for us?).

#[doc(no_inline)]
pub use coracle_demux as demux;
pub use coracle_loop::{
    Builder, Complete, Hook, HookKind, IdleTimer, Loop, LoopHandle, OffloadError, Overloaded,
    PostError, RemoteTimer, SignalListener, Ticket, Timer, Trigger, Watch, Watched,
};
#[doc(no_inline)]
pub use coracle_loop::{pool, wheel};
pub use coracle_net as net;
