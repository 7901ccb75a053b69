//! Sockets for coroutines, with the names of `std::net` and `std::os::unix::net`.
//!
//! A call that would hold up a thread there holds up only the coroutine here. What is read goes straight into
//! the caller's slice, on io_uring by the kernel itself.
//!
//! ```
//! use coracle_coro::net::{TcpListener, TcpStream};
//! use std::io::{self, Read, Write};
//!
//! coracle_coro::run(|| {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     let server = coracle_coro::spawn(move || {
//!         let (stream, _peer) = listener.accept()?;
//!         io::copy(&mut &stream, &mut &stream)
//!     });
//!
//!     let mut client = TcpStream::connect(address)?;
//!     client.write_all(b"ahoy")?;
//!     client.shutdown(std::net::Shutdown::Write)?;
//!     let mut echo = String::new();
//!     client.read_to_string(&mut echo)?;
//!     assert_eq!(echo, "ahoy");
//!     assert_eq!(server.join().unwrap()?, 4);
//!     Ok(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Reading ahead
//! [`read_ahead`](TcpStream::read_ahead) makes a `BufRead` of a stream: the loop receives whatever comes, and
//! keeps it until somebody reads. That is for lines and for many small messages.
//!
//! # Whose they are
//! A socket belongs to the loop of the coroutine that made it, and is not `Send`. `into_std` and `from_std` take
//! it to another loop, or to a thread. In a plain thread there is no loop to make one on: that is an error which
//! says so. In a callback of a loop sockets can be made, and waiting is a panic, as everywhere.
//!
//! # Several coroutines, one socket
//! `&TcpStream` reads and writes as well, and `try_clone` is another owner of the same socket. One coroutine may
//! read while another writes. Of several who read, each has its turn in the order they came, and so have those
//! who write: one call is a turn.
//!
//! # Time
//! Every call ends with `TimedOut` when a [`timeout`](crate::timeout) or [`deadline`](crate::deadline()) around
//! it is over; `set_read_timeout` and `set_write_timeout` are limits for each call. (The error is
//! `ErrorKind::TimedOut`, where std has `WouldBlock`.)
//!
//! # Ends
//! When the last owner of a socket is dropped, it is closed, and what was written is still sent. `close` does the
//! same while others use it: who waits on it, and who uses it later, is told `EBADF`. `shutdown` makes a
//! waiting read return the end of the stream. A write to a peer who is gone is `EPIPE`, and never a signal. A
//! cancelled coroutine is told `ECANCELED`; an operation that had done something by then is delivered first.
//!
//! A small write over TCP is done when the loop has it: a failure may be told to the next, and if the loop
//! itself goes while the peer has no room, it is lost. `shutdown` waits until everything is out.

mod accept;
mod addresses;
mod arms;
mod datagram;
mod halves;
pub(crate) mod operate;
pub(crate) mod pause;
mod read_ahead;
mod serve;
mod socket;
mod stream;
mod tcp;
mod udp;
mod unix;

pub use accept::Accepting;
pub use addresses::ToSocketAddrs;
pub use arms::{Readable, Writable};
pub use halves::{ReadHalf, WriteHalf};
pub use read_ahead::ReadAhead;
pub use serve::{serve, serve_on};
pub use tcp::{Incoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixListener, UnixStream};
