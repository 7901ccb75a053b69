//! The small services every server framework begins with: echo, discard, chargen.

use coracle::net::{Buffer, Conn, Protocol};
use std::io;

/// Sends back whatever arrives.
pub(crate) struct Echo;

impl Protocol for Echo {
    #[inline]
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        conn.write_slice(input.take_all());
        Ok(())
    }
}

/// Reads, and says nothing (RFC 863).
pub(crate) struct Discard;

impl Protocol for Discard {
    fn on_data(&mut self, _conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        input.take_all();
        Ok(())
    }
}

/// Sends lines of characters as fast as they are read (RFC 864).
#[derive(Default)]
pub(crate) struct Chargen {
    line: usize,
}

/// The printable characters of ASCII, of which each line shows 72.
const FIRST: u8 = b' ';
const CHARACTERS: usize = 95;
const WIDTH: usize = 72;

impl Chargen {
    /// Writes lines until the peer has enough.
    fn fill(&mut self, conn: &mut Conn<'_>) {
        while conn.writable() {
            let mut lines = Vec::with_capacity(64 * (WIDTH + 2));
            for _ in 0..64 {
                lines.extend((0..WIDTH).map(|at| FIRST + ((self.line + at) % CHARACTERS) as u8));
                lines.extend_from_slice(b"\r\n");
                self.line = (self.line + 1) % CHARACTERS;
            }
            conn.write(lines);
        }
    }
}

impl Protocol for Chargen {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.fill(conn);
        Ok(())
    }

    fn on_data(&mut self, _conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        input.take_all();
        Ok(())
    }

    fn on_ready(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.fill(conn);
        Ok(())
    }

    fn on_end(&mut self, _conn: &mut Conn<'_>) -> io::Result<()> {
        Ok(()) // it may read on
    }
}
