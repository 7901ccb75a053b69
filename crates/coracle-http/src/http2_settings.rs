//! What can be chosen about HTTP/2, and what is chosen for those who do not.

use std::io;
use std::time::Duration;

/// Limits and time-outs of connections that speak HTTP/2. What both protocols have, such as the size of a body and
/// the time it may take, is in [`Settings`](crate::Settings).
///
/// ```
/// use coracle_http::{Http2Settings, Settings};
///
/// let http2 = Http2Settings { limit_streams: 32, ..Http2Settings::default() };
/// let settings = Settings { http2, ..Settings::default() };
/// assert!(settings.check().is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct Http2Settings {
    /// Whether a connection may begin with HTTP/2 that has agreed on nothing by TLS (prior knowledge). Else such a
    /// beginning is a bad request of HTTP/1.
    pub prior_knowledge: bool,
    /// How many requests of a connection may be under way at once; more are refused (`REFUSED_STREAM`).
    pub limit_streams: u32,
    /// How many requests a client may take back in [ten seconds](Http2Settings::limit_control_frames): more end
    /// the connection (`ENHANCE_YOUR_CALM`).
    pub limit_resets: u32,
    /// How many frames that ask for nothing may come in ten seconds: `SETTINGS`, `PING`, `PRIORITY`, `DATA` and
    /// `CONTINUATION` without anything in them, frames that nobody knows, and `WINDOW_UPDATE` beyond what the
    /// answers give reason for. More end the connection (`ENHANCE_YOUR_CALM`).
    pub limit_control_frames: u32,
    /// How much of a body a client may send before it is read.
    pub stream_window_bytes: u32,
    /// How much of all bodies of a connection may come before they are read.
    pub connection_window_bytes: u32,
    /// How much of one answer waits for the client's windows at a time: the rest stays with who writes it. More
    /// than 64 KiB are as if they were 64 KiB.
    pub limit_send_bytes: usize,
    /// After how long without anything from the client it is asked whether it is there. `None`: never.
    pub ping_interval: Option<Duration>,
    /// How long it may take to say so: then the connection is closed.
    pub ping_timeout: Duration,
}

impl Default for Http2Settings {
    fn default() -> Http2Settings {
        Http2Settings {
            prior_knowledge: true,
            limit_streams: 128,
            limit_resets: 200,
            limit_control_frames: 1000,
            stream_window_bytes: 256 << 10,
            connection_window_bytes: 1 << 20,
            limit_send_bytes: 128 << 10,
            ping_interval: None,
            ping_timeout: Duration::from_secs(20),
        }
    }
}

impl Http2Settings {
    pub(crate) fn check(&self) -> io::Result<()> {
        /// No window is larger (RFC 9113, 6.9.1).
        const LARGEST_WINDOW: u32 = (1 << 31) - 1;
        let wrong = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.limit_streams == 0 {
            return wrong("http2.limit_streams is 0: nothing could be asked");
        }
        for (window, text) in [
            (self.stream_window_bytes, "http2.stream_window_bytes"),
            (self.connection_window_bytes, "http2.connection_window_bytes"),
        ] {
            if !(1..=LARGEST_WINDOW).contains(&window) {
                return wrong(&format!("{text} is not between 1 and 2147483647"));
            }
        }
        if self.limit_send_bytes == 0 || self.limit_send_bytes > LARGEST_WINDOW as usize {
            return wrong("http2.limit_send_bytes is not between 1 and 2147483647");
        }
        if self.ping_interval.is_some_and(|interval| interval.is_zero()) {
            return wrong("http2.ping_interval is 0: leave it out to ask never");
        }
        Ok(())
    }
}
