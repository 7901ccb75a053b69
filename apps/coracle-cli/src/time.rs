//! `coracle time`: answers each message with the time and the message.

use coracle::net::{Buffer, Conn, Protocol};
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// `[2026-11-15 20:15:00]server reply: ` and what was received, byte for byte.
pub(crate) struct Time;

impl Protocol for Time {
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        let now = chrono::Local::now().format("%Y-%m-%d %H:%M:%S");
        conn.write(format!("[{now}]server reply: "));
        conn.write_slice(input.take_all());
        Ok(())
    }
}

/// The length of `[2026-11-15 20:15:00]server reply: `.
pub(crate) const HEAD_BYTES: usize = 35;

/// What stands in front of an answer, made anew when the second is another.
#[derive(Default)]
pub(crate) struct Head {
    second: Option<u64>,
}

impl Head {
    /// Writes it to `place`, where the last one still is, if there was one.
    pub(crate) fn write_to(&mut self, mut place: &mut [u8]) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|it| it.as_secs());
        if now.is_some() && now == self.second {
            return Ok(());
        }
        self.second = now;
        let now = chrono::Local::now().format("%Y-%m-%d %H:%M:%S");
        write!(place, "[{now}]server reply: ")
    }
}
