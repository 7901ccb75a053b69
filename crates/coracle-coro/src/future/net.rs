//! Sockets for futures, with the traits of `futures-io`; with the feature `tokio-io`, those of `tokio::io`, too.
//!
//! The kernel is never given a pointer into a future, because that may be dropped at any time: bytes are
//! received into buffers of the loop's and copied, and what is written and cannot be sent at once is copied,
//! too. Each stream has a bounded buffer for either direction.

mod door;
mod stream;
mod tcp;
#[cfg(feature = "tokio-io")]
mod tokio_io;
mod udp;
mod unix;
mod wire;

pub use stream::{ReadHalf, WriteHalf};
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixListener, UnixStream};
