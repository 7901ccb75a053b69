//! Layers to try: one that changes every byte, one that makes frames, one that shakes hands first.

use coracle_net::{Buffer, Layer};
use std::io;

pub(crate) const KEY: u8 = 0x5a;

pub(crate) fn xor(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte ^ KEY).collect()
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 % 251) as u8).collect()
}

/// Changes every byte.
pub(crate) struct Xor;

impl Layer for Xor {
    fn receive(
        &mut self,
        wire: &mut Buffer,
        plain: &mut Buffer,
        _reply: &mut Vec<u8>,
    ) -> io::Result<()> {
        plain.extend_from_slice(&xor(wire.take_all()));
        Ok(())
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
        wire.extend(xor(plain));
        Ok(plain.len())
    }
}

/// Frames of two bytes of length and so many bytes; one without bytes is the end. Takes at most 1000 bytes at a
/// time, in both directions.
#[derive(Default)]
pub(crate) struct Frames {
    ended: bool,
}

pub(crate) fn frame(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

/// All frames of `bytes`, as the layer makes them.
pub(crate) fn frames(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(1000).flat_map(frame).collect()
}

/// What whole frames say, without the end.
pub(crate) fn unframe(mut wire: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some((head, rest)) = wire.split_first_chunk::<2>() {
        let (bytes, rest) = rest.split_at(u16::from_be_bytes(*head).into());
        all.extend_from_slice(bytes);
        wire = rest;
    }
    all
}

impl Layer for Frames {
    fn receive(
        &mut self,
        wire: &mut Buffer,
        plain: &mut Buffer,
        _reply: &mut Vec<u8>,
    ) -> io::Result<()> {
        let Some(head) = wire.unread().first_chunk::<2>() else { return Ok(()) };
        let len = usize::from(u16::from_be_bytes(*head));
        if len > 1000 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame of that length"));
        }
        if let Some(whole) = wire.take_exact(2 + len) {
            plain.extend_from_slice(&whole[2..]);
            self.ended = len == 0;
        }
        Ok(())
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
        let taken = plain.len().min(1000);
        wire.extend(frame(&plain[..taken]));
        Ok(taken)
    }

    fn end(&mut self, wire: &mut Vec<u8>) {
        wire.extend(frame(b""));
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn wire_ended(&mut self, _unread: usize) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "cut off"))
    }
}

/// Lets nothing pass before it has said "hello", heard "hello", said "secret" and heard "secret". Answers every
/// `?` in the bytes it gets with `!`.
#[derive(Default)]
pub(crate) struct Handshake {
    steps: u8,
    begun: bool,
}

impl Layer for Handshake {
    fn receive(
        &mut self,
        wire: &mut Buffer,
        plain: &mut Buffer,
        reply: &mut Vec<u8>,
    ) -> io::Result<()> {
        if !std::mem::replace(&mut self.begun, true) {
            reply.extend_from_slice(b"hello\n");
        }
        while self.steps < 2 {
            let expected: &[u8] = [&b"hello"[..], b"secret"][usize::from(self.steps)];
            let Some(line) = wire.take_line() else { return Ok(()) };
            if line != expected {
                reply.extend_from_slice(b"alert\n");
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a bad handshake"));
            }
            self.steps += 1;
            if self.steps == 1 {
                reply.extend_from_slice(b"secret\n");
            }
        }
        for &byte in wire.take_all() {
            match byte {
                b'?' => reply.push(b'!'),
                _ => plain.extend_from_slice(&[byte]),
            }
        }
        Ok(())
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
        if !self.is_ready() {
            return Ok(0);
        }
        wire.extend_from_slice(plain);
        Ok(plain.len())
    }

    fn is_ready(&self) -> bool {
        self.steps == 2
    }
}
