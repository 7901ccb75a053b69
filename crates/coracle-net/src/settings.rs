//! What can be chosen about connections, and what is chosen for those who do not.

use crate::{MemoryLimit, TurnedAway};
use bytes::Bytes;
use std::io;
use std::time::Duration;

/// How the connections of a service behave. All limits are per connection, unless they say otherwise.
///
/// ```
/// use coracle_net::Settings;
/// use std::time::Duration;
///
/// let settings = Settings { idle_timeout: Some(Duration::from_secs(30)), ..Settings::default() };
/// assert!(settings.check().is_ok());
/// let wrong = Settings { low_mark_bytes: 1 << 30, ..Settings::default() };
/// assert!(wrong.check().unwrap_err().to_string().contains("low_mark_bytes"));
/// ```
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many bytes [`on_data`](crate::Protocol::on_data) may leave unread. More end the connection
    /// ([`Reason::InputLimit`](crate::Reason::InputLimit)). What comes in one piece (4 KiB on io_uring, 64 KiB
    /// elsewhere) is shown whatever its length: who has a limit for a message looks at it. What comes in before a
    /// [pause](crate::Conn::pause) takes effect is not judged until it is shown.
    pub limit_input_bytes: usize,
    /// How many bytes may wait to be sent. More end the connection
    /// ([`Reason::SlowReader`](crate::Reason::SlowReader)).
    pub limit_output_bytes: usize,
    /// From how many waiting bytes on the peer is not read, and [`Conn::writable`](crate::Conn::writable) is
    /// false.
    pub high_mark_bytes: usize,
    /// At how many waiting bytes that ends, and [`on_ready`](crate::Protocol::on_ready) is called.
    pub low_mark_bytes: usize,
    /// Read the peer between the marks all the same: for who writes what others say, not answers to what is read.
    /// A proxy must, or a peer that sends all before it reads would wait for ever.
    pub read_when_full: bool,
    /// After how long without input [`on_idle`](crate::Protocol::on_idle) is called; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// How long output may wait without the peer taking any of it
    /// ([`Reason::SlowReader`](crate::Reason::SlowReader)); `None`: for ever.
    pub write_timeout: Option<Duration>,
    /// How long a connection that is closed waits for the peer to end its side, once everything is sent; and how
    /// long, before that, nothing may happen at all where no other time-out is watching (a layer that waits for
    /// its peer, output without a [`write_timeout`](Settings::write_timeout)).
    pub drain: Duration,
    /// How many connections the service has on one loop; those above are turned away. How many a whole server has
    /// follows from its [capacity](crate::Server::capacity).
    pub limit_connections: usize,
    /// How many bytes may wait on this connection and on all others that have the same limit, in both directions.
    /// `None`: no more than each of them may have, or what their
    /// [server](crate::Server::limit_memory_bytes) says.
    pub limit_memory: Option<MemoryLimit>,
    /// What a connection that is turned away, for want of room or memory, is told before it is closed.
    pub busy_message: Bytes,
    /// Who is told of each connection that is told this message. All that are turned away are
    /// [counted](crate::Stats::turned_away), those without a word included.
    pub on_turned_away: Option<TurnedAway>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            limit_input_bytes: 1 << 20,
            limit_output_bytes: 16 << 20,
            high_mark_bytes: 256 << 10,
            low_mark_bytes: 64 << 10,
            read_when_full: false,
            idle_timeout: None,
            write_timeout: Some(Duration::from_secs(60)),
            drain: Duration::from_secs(5),
            limit_connections: usize::MAX,
            limit_memory: None,
            busy_message: Bytes::new(),
            on_turned_away: None,
        }
    }
}

impl Settings {
    /// Whether these settings make sense together.
    ///
    /// # Errors
    /// `InvalidInput`, with the name of the setting and what is wrong with it.
    pub fn check(&self) -> io::Result<()> {
        let wrong = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.limit_input_bytes == 0 {
            return wrong("limit_input_bytes is 0: nothing could ever be received");
        }
        if self.high_mark_bytes > self.limit_output_bytes {
            return wrong(
                "high_mark_bytes is above limit_output_bytes: connections would end before they pause",
            );
        }
        if self.low_mark_bytes > self.high_mark_bytes {
            return wrong(
                "low_mark_bytes is above high_mark_bytes: a paused connection could never go on",
            );
        }
        if self.idle_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return wrong(
                "idle_timeout is 0: every connection would be idle at once; None turns it off",
            );
        }
        if self.write_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return wrong("write_timeout is 0: no peer is that fast; None turns it off");
        }
        if self.limit_connections == 0 {
            return wrong("limit_connections is 0: everybody would be turned away");
        }
        Ok(())
    }
}
