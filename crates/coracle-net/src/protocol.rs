//! What a user writes: one value per connection, and the loop calls it.
//!
//! ```text
//!   on_open ──► on_data … on_ready … on_idle … on_end … on_shutdown ──► on_close
//!   once        as often as there is something to say                   once, always, and last
//! ```

use crate::{Buffer, Conn};
use std::fmt;
use std::io;

/// One connection's side of a protocol. Its state is `self`: there is no table to look it up in.
///
/// Only [`on_data`](Protocol::on_data) must be written. All callbacks of a connection run on its loop, one at a
/// time. An error they return closes the connection, after what was written before it has been sent; a panic
/// closes it at once. Neither touches any other connection.
pub trait Protocol: 'static {
    /// The connection is there.
    fn on_open(&mut self, _conn: &mut Conn<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Bytes have come. Take from `input` what makes a whole message; what is left stays for the next time.
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()>;

    /// What waited to be sent is mostly gone: [`Conn::writable`] is true again.
    fn on_ready(&mut self, _conn: &mut Conn<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Nothing has come for the connection's time-out. Closes it, unless this does something else.
    ///
    /// That is also called while the connection is [paused](Conn::pause), or not read because its peer takes too
    /// little: nothing comes then, whatever the peer does. Who pauses for longer than the time-out does not close
    /// here, or [turns it off](Conn::set_idle_timeout) meanwhile.
    fn on_idle(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        conn.close();
        Ok(())
    }

    /// The peer has sent everything it is going to send. Closes the connection once everything is sent to the
    /// peer, unless this does something else.
    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        conn.close();
        Ok(())
    }

    /// The server is about to stop: finish what is under way. Closes the connection, unless this does something
    /// else.
    fn on_shutdown(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        conn.close();
        Ok(())
    }

    /// The connection is gone. Nothing is called after this.
    fn on_close(&mut self, _reason: &Reason) {}
}

/// A function is a protocol that has only [`on_data`](Protocol::on_data).
impl<F> Protocol for F
where
    F: FnMut(&mut Conn<'_>, &mut Buffer) -> io::Result<()> + 'static,
{
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        self(conn, input)
    }
}

/// Why a connection has ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reason {
    /// We closed it, and everything was sent.
    Closed,
    /// We aborted it.
    Aborted,
    /// The kernel reported an error, such as a reset by the peer; or a [layer](crate::Layer) did.
    Failed(io::Error),
    /// A callback returned an error.
    Refused(io::Error),
    /// A callback panicked.
    Panic,
    /// More waited to be sent than may: the peer does not read.
    SlowReader,
    /// More came than may wait to be read: no message is that long.
    InputLimit,
    /// There was no memory for what waits on it, because of what waits on all connections together
    /// ([`MemoryLimit`](crate::MemoryLimit)).
    MemoryLimit,
    /// It did not end in the time it was given for that.
    Deadline,
    /// The loop it lived on is gone.
    Stopped,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Closed => f.write_str("closed"),
            Reason::Aborted => f.write_str("aborted"),
            Reason::Failed(error) => write!(f, "failed: {error}"),
            Reason::Refused(error) => write!(f, "closed by the protocol: {error}"),
            Reason::Panic => f.write_str("the protocol panicked"),
            Reason::SlowReader => f.write_str("the peer does not read what is sent to it"),
            Reason::InputLimit => f.write_str("the peer sent more than any message may have"),
            Reason::MemoryLimit => f.write_str("there is no memory for what waits on it"),
            Reason::Deadline => f.write_str("it did not end in time"),
            Reason::Stopped => f.write_str("its loop is gone"),
        }
    }
}
