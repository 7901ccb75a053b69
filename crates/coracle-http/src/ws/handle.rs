//! A WebSocket, as it is reached from anywhere.

use super::handler::checked;
use super::line::Line;
use super::{Close, Encoded};
use coracle_loop::{Loop, LoopHandle};
use coracle_net::ConnHandle;
use std::fmt;
use std::sync::Arc;

/// Names a WebSocket: from other sockets, other loops, any thread. It does not keep it open.
///
/// ```
/// use coracle_http::ws::{Handle, Peer};
/// use std::time::Duration;
///
/// fn remind(peer: &mut Peer<'_>) {
///     let handle = peer.handle();
///     std::thread::spawn(move || {
///         std::thread::sleep(Duration::from_secs(60));
///         handle.send("a minute has passed");
///     });
/// }
/// # let _ = remind;
/// ```
#[derive(Clone)]
pub struct Handle {
    conn: ConnHandle,
    pub(super) lp: LoopHandle,
    pub(super) line: Arc<Line>,
}

impl Handle {
    pub(super) fn new(conn: ConnHandle, lp: LoopHandle, line: Arc<Line>) -> Handle {
        Handle { conn, lp, line }
    }

    /// Sends a message, in a later turn of its loop, if it is still there. Any thread.
    ///
    /// Nobody waits for a peer that does not read:
    /// [`Settings::when_full`](super::Settings::when_full) says what becomes of it.
    pub fn send(&self, message: impl Into<Encoded>) {
        let (message, line) = (message.into(), Arc::clone(&self.line));
        self.conn.run(
            move |conn| {
                let _ = line.send_encoded(conn, &message); // or it is closed
                Ok(())
            },
            || (),
        );
    }

    /// Sends a message at once, if it lives on `lp`, is open, and is not in a callback of its own; or whether it
    /// did not. Loop thread only.
    pub fn send_now(&self, lp: &Loop, message: &Encoded) -> bool {
        self.conn.with(lp, |conn| self.line.send_encoded(conn, message).is_ok()) == Some(true)
    }

    /// The same with several messages, which are sent in one piece.
    pub(super) fn send_together(&self, lp: &Loop, messages: &[Encoded]) {
        let mut left = messages;
        while !left.is_empty() {
            let sent = self.conn.with(lp, |conn| self.line.send_together(conn, left));
            left = &left[sent.unwrap_or(left.len())..]; // or it is gone
        }
    }

    /// Says that nothing more is said. Any thread.
    ///
    /// # Panics
    /// When the code is none that [can be sent](super::CloseCode::can_be_sent).
    pub fn close(&self, close: impl Into<Close>) {
        let (close, line) = (checked(close.into()), Arc::clone(&self.line));
        self.conn.run(
            move |conn| {
                line.close(conn, close);
                Ok(())
            },
            || (),
        );
    }

    /// Whether both name the same WebSocket.
    pub fn is_same(&self, other: &Handle) -> bool {
        self.conn.is_same(&other.conn)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.conn).finish()
    }
}
