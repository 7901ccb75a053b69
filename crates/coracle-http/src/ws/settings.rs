//! What can be chosen about a WebSocket, and what is chosen for those who do not.

use std::io;
use std::time::Duration;

/// Limits and time-outs of a WebSocket, of either side. docs/reference/limits.md lists them.
///
/// ```
/// use coracle_http::ws::{Deflate, Settings};
///
/// let settings = Settings {
///     limit_message_bytes: 16 << 20,
///     limit_frame_bytes: 16 << 20,
///     deflate: Some(Deflate::default()),
///     ..Settings::default()
/// };
/// assert!(settings.check().is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long a frame may be (1009).
    pub limit_frame_bytes: usize,
    /// How long a message may be, of all its frames together, and after it is decompressed (1009).
    pub limit_message_bytes: usize,
    /// After how long without a word the peer is asked whether it is there, by a ping; `None`: never.
    pub ping_interval: Option<Duration>,
    /// How long it may be silent after that: then it is taken for dead, and the connection is cut.
    pub pong_timeout: Duration,
    /// How long the peer may take to answer a close: then the connection is cut.
    pub close_timeout: Duration,
    /// How many pings and pongs a peer may send in a second, and at once (1008).
    pub limit_controls: u32,
    /// How many bytes may wait for a peer that does not read, before messages
    /// [for many](super::Encoded) are not added to them.
    pub limit_backlog_bytes: usize,
    /// What becomes of a peer over that limit.
    pub when_full: WhenFull,
    /// Whether messages may be compressed (permessage-deflate, RFC 7692).
    pub deflate: Option<Deflate>,
}

/// What becomes of a peer for which too much waits, and that is told something [many](super::Encoded) are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It is closed (1013), so that it can come again and begin anew.
    Close,
    /// It does not get this message.
    Skip,
}

/// How messages are compressed.
///
/// ```
/// use coracle_http::ws::Deflate;
///
/// let deflate = Deflate { keep_context: true, ..Deflate::default() };
/// assert_eq!(deflate.least_bytes, 64);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deflate {
    /// Whether a message may refer to those before it. It makes short messages that are like each other much
    /// shorter, and takes some 300 KiB for each connection. Unless it is set, both sides are asked to begin
    /// anew with each message, and an idle connection has no compressor.
    pub keep_context: bool,
    /// How hard to try: from 1, which is fast, to 9.
    pub level: u32,
    /// Shorter messages are sent as they are.
    pub least_bytes: usize,
}

impl Default for Deflate {
    fn default() -> Deflate {
        Deflate { keep_context: false, level: 3, least_bytes: 64 }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            limit_frame_bytes: 1 << 20,
            limit_message_bytes: 1 << 20,
            ping_interval: Some(Duration::from_secs(30)),
            pong_timeout: Duration::from_secs(20),
            close_timeout: Duration::from_secs(5),
            limit_controls: 100,
            limit_backlog_bytes: 1 << 20,
            when_full: WhenFull::Close,
            deflate: None,
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
        if self.limit_controls == 0 {
            return wrong("limit_controls is 0: nobody could answer a ping");
        }
        if self.ping_interval.is_some_and(|interval| interval.is_zero()) {
            return wrong("ping_interval is 0: nobody is that fast; None turns it off");
        }
        if self.pong_timeout.is_zero() || self.close_timeout.is_zero() {
            return wrong("pong_timeout or close_timeout is 0: nobody is that fast");
        }
        if self.deflate.as_ref().is_some_and(|deflate| !(1..=9).contains(&deflate.level)) {
            return wrong("the level of deflate is not between 1 and 9");
        }
        Ok(())
    }

    /// The same, with what is larger than anything reduced to what can be counted with.
    pub(super) fn bounded(mut self) -> Settings {
        for size in [
            &mut self.limit_frame_bytes,
            &mut self.limit_message_bytes,
            &mut self.limit_backlog_bytes,
        ] {
            *size = (*size).min(usize::MAX / 4);
        }
        for time in [&mut self.pong_timeout, &mut self.close_timeout] {
            *time = (*time).min(crate::settings::LONGEST);
        }
        self.ping_interval = self.ping_interval.map(|it| it.min(crate::settings::LONGEST));
        self
    }
}
