//! A layer that both sides wear, and what bytes look like in it.
//!
//! ```text
//!   wire, in both directions   [HELLO] [bytes, each changed by the key and by where it is]
//! ```
//!
//! It keeps everything to itself until the other side has said hello, and takes what it is given in bites.

use crate::random::Random;
use coracle_net::{Buffer, Layer};
use std::io;

/// What each side says first. No answer begins like this, nor does being turned away.
pub(crate) const HELLO: &[u8] = b"\xd1ola";

/// How byte `at` is changed, and changed back.
fn change(key: u8, at: usize, byte: u8) -> u8 {
    byte ^ key.wrapping_add((at * 7 + (at >> 8)) as u8)
}

/// What `bytes` are on the wire, below coats with these keys, the innermost first.
pub(crate) fn put_on(keys: &[u8], bytes: &[u8]) -> Vec<u8> {
    keys.iter().fold(bytes.to_vec(), |bytes, &key| {
        let changed = bytes.iter().enumerate().map(|(at, &byte)| change(key, at, byte));
        HELLO.iter().copied().chain(changed).collect()
    })
}

/// The reverse, of a beginning; `None` if it is none.
pub(crate) fn take_off(keys: &[u8], wire: &[u8]) -> Option<Vec<u8>> {
    keys.iter().rev().try_fold(wire.to_vec(), |wire, &key| {
        let Some(bytes) = wire.strip_prefix(HELLO) else {
            return HELLO.starts_with(&wire).then(Vec::new);
        };
        Some(bytes.iter().enumerate().map(|(at, &byte)| change(key, at, byte)).collect())
    })
}

/// The server's side of one coat.
pub(crate) struct Coat {
    key: u8,
    random: Random,
    greeted: bool,
    received: usize,
    sent: usize,
}

impl Coat {
    pub(crate) fn new(key: u8, random: Random) -> Coat {
        Coat { key, random, greeted: false, received: 0, sent: 0 }
    }

    fn bite(&mut self, len: usize) -> usize {
        if self.random.chance(0.5) { len } else { 1 + self.random.below(len as u64) as usize }
    }
}

impl Layer for Coat {
    fn receive(
        &mut self,
        wire: &mut Buffer,
        plain: &mut Buffer,
        reply: &mut Vec<u8>,
    ) -> io::Result<()> {
        if !self.greeted {
            let Some(hello) = wire.take_exact(HELLO.len()) else { return Ok(()) };
            if hello != HELLO {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "not a greeting"));
            }
            self.greeted = true;
            reply.extend_from_slice(HELLO);
        }
        if !wire.is_empty() {
            let bite = self.bite(wire.len());
            for byte in wire.take_exact(bite).expect("no more than there is") {
                plain.extend_from_slice(&[change(self.key, self.received, *byte)]);
                self.received += 1;
            }
        }
        Ok(())
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
        if !self.greeted || plain.is_empty() {
            return Ok(0);
        }
        let bite = self.bite(plain.len());
        let start = self.sent;
        wire.extend(
            plain[..bite].iter().zip(start..).map(|(byte, at)| change(self.key, at, *byte)),
        );
        self.sent += bite;
        Ok(bite)
    }

    fn is_ready(&self) -> bool {
        self.greeted
    }

    fn wire_ended(&mut self, unread: usize) -> io::Result<()> {
        match self.greeted && unread == 0 {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
