//! What can be chosen about an HTTP server, and what is chosen for those who do not.

use crate::Http2Settings;
use std::io;
use std::time::Duration;

/// Limits and time-outs of an HTTP server. Each has an answer when it is reached; docs/reference/limits.md lists
/// them.
///
/// ```
/// use coracle_http::Settings;
///
/// let settings = Settings { limit_body_bytes: 64 << 20, ..Settings::default() };
/// assert!(settings.check().is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many bytes the head of a request may have, its first line included (431).
    pub limit_header_bytes: usize,
    /// How many header fields a request may have (431); no more than 256.
    pub limit_headers: usize,
    /// How long the target of a request may be: path and query (414).
    pub limit_target_bytes: usize,
    /// How long the name of a method may be (501).
    pub limit_method_bytes: usize,
    /// How long the body of a request may be (413), unless the [plan](crate::Plan::limit_body_bytes) of a route
    /// says otherwise.
    pub limit_body_bytes: u64,
    /// How many bytes of bodies may be in memory at once, of all connections of the server (503).
    pub limit_bodies_bytes: usize,
    /// How long the extensions of one chunk may be (400).
    pub limit_chunk_extension_bytes: usize,
    /// How long the extensions of all chunks of a body may be together (400).
    pub limit_chunk_extensions_bytes: usize,
    /// How many bytes of fields there may be behind a body (400).
    pub limit_trailer_bytes: usize,
    /// How many of them there may be (400).
    pub limit_trailers: usize,
    /// How much may be received of what follows a request that is being answered: then reading pauses.
    pub limit_ahead_bytes: usize,
    /// How long the head of a request may take, from its first byte on (408).
    pub header_timeout: Duration,
    /// How long a body may take beyond what [its rate](Settings::min_body_rate) gives it (408).
    pub body_timeout: Duration,
    /// How many bytes of a body must come in a second, on average, once the time-out is over.
    pub min_body_rate: u32,
    /// How long a connection may be silent between requests: then it is closed.
    pub idle_timeout: Duration,
    /// How long a client may take none of its answer: then the connection is cut.
    pub write_timeout: Duration,
    /// When the server stops: how long a connection that has not asked anything yet may still do so. Its request
    /// may be on its way.
    pub stop_timeout: Duration,
    /// How many bytes of its answer a client must take in a second, on average over a
    /// [write time-out](Settings::write_timeout): else the connection is cut.
    pub min_send_rate: u32,
    /// How long a handler may take. Then what it waits for fails with `ETIMEDOUT`. `None`: as long as it likes.
    pub handler_timeout: Option<Duration>,
    /// How long a request may take in all, from the first byte of its head until the last of its answer is with
    /// the kernel: 408 while it is received, and the connection is cut after that, as if the client were gone.
    /// `None`: as long as its parts may. An answer that goes on for ever, such as a stream of events, has to end
    /// in it, too; another protocol (WebSocket) has not. In HTTP/2 it is the stream that is reset; and the last
    /// 64 KiB of its answer have [their own time](Settings::write_timeout) when all before them was sent.
    pub request_timeout: Option<Duration>,
    /// How long a connection that is closed may take to end, from when everything is sent.
    pub drain: Duration,
    /// How many connections there may be on one loop; those above are told so (503) and closed.
    pub limit_connections: usize,
    /// How many connections one address may have on all loops of a [`Server`](crate::Server), a network of 64 bits
    /// counting as one address; those above are told so (503) and closed. `None`: as many as it likes, as behind a
    /// proxy.
    pub limit_connections_per_address: Option<usize>,
    /// How many requests are answered on one connection: then it is closed.
    pub limit_requests: u64,
    /// What only HTTP/2 has.
    pub http2: Http2Settings,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            limit_header_bytes: 32 << 10,
            limit_headers: 100,
            limit_target_bytes: 8 << 10,
            limit_method_bytes: 32,
            limit_body_bytes: 1 << 20,
            limit_bodies_bytes: 256 << 20,
            limit_chunk_extension_bytes: 256,
            limit_chunk_extensions_bytes: 4 << 10,
            limit_trailer_bytes: 8 << 10,
            limit_trailers: 32,
            limit_ahead_bytes: 64 << 10,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(20),
            min_body_rate: 500,
            idle_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(2),
            min_send_rate: 500,
            handler_timeout: None,
            request_timeout: None,
            drain: Duration::from_secs(5),
            limit_connections: usize::MAX,
            limit_connections_per_address: None,
            limit_requests: u64::MAX,
            http2: Http2Settings::default(),
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
        if self.limit_headers == 0 || self.limit_headers > crate::h1::head::LIMIT_FIELDS {
            return wrong("limit_headers is not between 1 and 256");
        }
        if self.limit_header_bytes < 64 {
            return wrong("limit_header_bytes is below 64: no head is that short");
        }
        if self.limit_header_bytes > 1 << 20 {
            return wrong("limit_header_bytes is above 1 MiB: that belongs into a body");
        }
        if self.min_body_rate == 0 || self.min_send_rate == 0 {
            return wrong("a rate is 0: 1 is the slowest there is");
        }
        let times = [
            (self.header_timeout, "header_timeout is 0"),
            (self.body_timeout, "body_timeout is 0"),
            (self.idle_timeout, "idle_timeout is 0"),
            (self.write_timeout, "write_timeout is 0"),
        ];
        if self.request_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return wrong("request_timeout is 0: no request would be answered; None turns it off");
        }
        for (time, text) in times {
            if time.is_zero() {
                return wrong(&format!("{text}: nobody is that fast"));
            }
        }
        self.http2.check()
    }

    /// The same, with what is longer or larger than anything reduced to what can be counted with.
    pub(crate) fn bounded(mut self) -> Settings {
        for time in [
            &mut self.header_timeout,
            &mut self.body_timeout,
            &mut self.idle_timeout,
            &mut self.write_timeout,
            &mut self.stop_timeout,
            &mut self.drain,
        ] {
            *time = (*time).min(LONGEST);
        }
        for time in [&mut self.handler_timeout, &mut self.request_timeout] {
            *time = time.map(|time| time.min(LONGEST));
        }
        self.http2.ping_timeout = self.http2.ping_timeout.min(LONGEST);
        self.http2.ping_interval = self.http2.ping_interval.map(|time| time.min(LONGEST));
        for size in [
            &mut self.limit_target_bytes,
            &mut self.limit_method_bytes,
            &mut self.limit_chunk_extension_bytes,
            &mut self.limit_chunk_extensions_bytes,
            &mut self.limit_trailer_bytes,
            &mut self.limit_ahead_bytes,
        ] {
            *size = (*size).min(LARGEST);
        }
        self
    }

    /// How the connections under it behave.
    pub(crate) fn connections(&self) -> coracle_net::Settings {
        let input =
            self.limit_header_bytes.max(self.limit_ahead_bytes).max(self.limit_trailer_bytes);
        coracle_net::Settings {
            // What was received before reading could be paused is more: on io_uring, what its buffers hold.
            limit_input_bytes: input + (2 << 20),
            idle_timeout: None, // it is kept here, for all of them
            write_timeout: Some(self.write_timeout),
            drain: self.drain,
            limit_connections: self.limit_connections,
            busy_message: BUSY.into(),
            ..coracle_net::Settings::default()
        }
    }
}

/// No time is longer than 34 years: so it can be added to any other.
pub(crate) const LONGEST: Duration = Duration::from_secs(1 << 30);

/// No buffer is larger.
const LARGEST: usize = usize::MAX / 4;

/// What a client is told for whom there is no room.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\n\
    content-length: 0\r\nconnection: close\r\n\r\n";
