//! `coracle time`: answers each message with the time and the message.

use coracle::net::{Buffer, Conn, Protocol};
use std::io;

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
