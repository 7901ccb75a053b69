//! The records of FastCGI 1.0, to bytes and from bytes: no I/O, no clock.
//!
//! ```text
//!   version  type  request id  content length  padding  0 │ content … │ padding …
//!      1      1        2              2           1      1 │           │             a head of eight bytes
//! ```
//!
//! One request at a time on a connection, with the number 1. Who has read one record has not read to the end of a
//! stream: that is an empty record of its type.

use std::fmt;

const VERSION: u8 = 1;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const GET_VALUES_RESULT: u8 = 10;
const UNKNOWN_TYPE: u8 = 11;

/// The number that our only request has.
const ID: u16 = 1;

const RESPONDER: u16 = 1;
const KEEP_CONN: u8 = 1;

const HEAD_BYTES: usize = 8;

/// The body of the record that ends a request.
const END_BYTES: usize = 8;

/// What a record of ours has at most: a multiple of eight, so that none needs padding.
pub(super) const CONTENT_BYTES: usize = 0xfff8;

fn head(out: &mut Vec<u8>, kind: u8, len: usize) {
    let [id, length] = [ID, len as u16].map(u16::to_be_bytes);
    out.extend_from_slice(&[VERSION, kind, id[0], id[1], length[0], length[1], 0, 0]);
}

/// Begins a request; the connection is kept for the next, or closed behind it.
pub(crate) fn begin(out: &mut Vec<u8>, keep: bool) {
    head(out, BEGIN_REQUEST, 8);
    let role = RESPONDER.to_be_bytes();
    out.extend_from_slice(&[role[0], role[1], if keep { KEEP_CONN } else { 0 }, 0, 0, 0, 0, 0]);
}

/// All variables, and their end.
pub(crate) fn params<'a>(out: &mut Vec<u8>, variables: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
    let mut content = Vec::new();
    for (name, value) in variables {
        for length in [name.len(), value.len()] {
            match u8::try_from(length) {
                Ok(short @ ..128) => content.push(short),
                _ => content.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
            }
        }
        content.extend_from_slice(name);
        content.extend_from_slice(value);
    }
    for piece in content.chunks(CONTENT_BYTES) {
        head(out, PARAMS, piece.len());
        out.extend_from_slice(piece);
    }
    head(out, PARAMS, 0);
}

/// A piece of the body, of [`CONTENT_BYTES`] at most; an empty one is its end.
pub(crate) fn stdin(out: &mut Vec<u8>, piece: &[u8]) {
    debug_assert!(piece.len() <= CONTENT_BYTES);
    head(out, STDIN, piece.len());
    out.extend_from_slice(piece);
}

/// What the other side has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// Some of the answer: never empty.
    Stdout(&'a [u8]),
    /// Something for the log: never empty.
    Stderr(&'a [u8]),
    /// The request is over.
    End {
        /// As a process returns it.
        status: u32,
        how: Ending,
    },
}

/// Why a request is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Complete,
    /// The other side has one already on this connection.
    CannotMultiplex,
    Overloaded,
    UnknownRole,
    Other(u8),
}

/// Why records cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordError(&'static str);

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Reads records, whose contents it hands on as they come.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    kind: u8,
    /// Of the record that is being read.
    content: usize,
    padding: usize,
}

impl Decoder {
    /// Looks at what has come: how much of it is done with, and what it says, of which at most `limit` bytes. With
    /// neither, more has to come first.
    pub(crate) fn next<'a>(
        &mut self,
        input: &'a [u8],
        limit: usize,
    ) -> Result<(usize, Option<Event<'a>>), RecordError> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            if self.content > 0 {
                match self.kind {
                    STDOUT | STDERR => {
                        let piece = &rest[..rest.len().min(self.content).min(limit)];
                        if piece.is_empty() {
                            return Ok((used, None));
                        }
                        self.content -= piece.len();
                        let event = match self.kind {
                            STDOUT => Event::Stdout(piece),
                            _ => Event::Stderr(piece),
                        };
                        return Ok((used + piece.len(), Some(event)));
                    }
                    END_REQUEST => {
                        let Some((end, _)) = rest.split_first_chunk::<END_BYTES>() else {
                            return Ok((used, None));
                        };
                        self.content = 0;
                        return Ok((used + END_BYTES, Some(ended(*end))));
                    }
                    _ => {
                        let skipped = rest.len().min(self.content);
                        self.content -= skipped;
                        used += skipped;
                        if self.content > 0 {
                            return Ok((used, None));
                        }
                    }
                }
            } else if self.padding > 0 {
                let skipped = rest.len().min(self.padding);
                self.padding -= skipped;
                used += skipped;
                if self.padding > 0 {
                    return Ok((used, None));
                }
            } else {
                let Some((head, _)) = rest.split_first_chunk::<HEAD_BYTES>() else {
                    return Ok((used, None));
                };
                self.begin(*head)?;
                used += HEAD_BYTES;
            }
        }
    }

    /// Whether all of the last record was there, its padding included.
    pub(crate) fn is_between(&self) -> bool {
        self.content == 0 && self.padding == 0
    }

    fn begin(&mut self, head: [u8; HEAD_BYTES]) -> Result<(), RecordError> {
        let [version, kind, id_high, id_low, length_high, length_low, padding, _] = head;
        if version != VERSION {
            return Err(RecordError("it does not speak FastCGI 1"));
        }
        let id = u16::from_be_bytes([id_high, id_low]);
        let length = usize::from(u16::from_be_bytes([length_high, length_low]));
        match (kind, id) {
            (STDOUT | STDERR, ID) => {}
            (END_REQUEST, ID) if length == END_BYTES => {}
            (END_REQUEST, ID) => {
                return Err(RecordError("the end of a request has another length"));
            }
            (STDOUT | STDERR | END_REQUEST, _) => {
                return Err(RecordError("it answers a request that there was not"));
            }
            (GET_VALUES_RESULT | UNKNOWN_TYPE, 0) => {} // nobody has asked
            _ => return Err(RecordError("a record is of a kind that only we send, or nobody")),
        }
        (self.kind, self.content, self.padding) = (kind, length, padding.into());
        Ok(())
    }
}

fn ended(content: [u8; END_BYTES]) -> Event<'static> {
    let [a, b, c, d, how, ..] = content;
    let how = match how {
        0 => Ending::Complete,
        1 => Ending::CannotMultiplex,
        2 => Ending::Overloaded,
        3 => Ending::UnknownRole,
        other => Ending::Other(other),
    };
    Event::End { status: u32::from_be_bytes([a, b, c, d]), how }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o2_request_is_written_as_the_specification_has_it() {
        let mut out = Vec::new();
        begin(&mut out, true);
        assert_eq!(out, [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
        out.clear();
        params(&mut out, [(&b"AB"[..], &b"xyz"[..])].into_iter());
        assert_eq!(out, b"\x01\x04\0\x01\0\x07\0\0\x02\x03ABxyz\x01\x04\0\x01\0\0\0\0");
        out.clear();
        let long = vec![b'v'; 70_000];
        params(&mut out, [(&b"N"[..], &long[..])].into_iter());
        assert_eq!(out[8..13], [1, 0x80, 1, 0x11, 0x70], "a length of four bytes");
        assert_eq!(out.len(), 3 * 8 + 1 + 4 + 1 + 70_000, "two records, and an empty one");
        out.clear();
        stdin(&mut out, b"");
        assert_eq!(out, [1, 5, 0, 1, 0, 0, 0, 0]);
    }

    fn record(kind: u8, id: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let [high, low] = (content.len() as u16).to_be_bytes();
        let mut record = vec![1, kind, 0, id, high, low, padding, 0];
        record.extend_from_slice(content);
        record.resize(record.len() + usize::from(padding), 0xff);
        record
    }

    /// The answer, what is for the log, and the ends.
    type Heard = (Vec<u8>, Vec<u8>, Vec<(u32, Ending)>);

    fn read(bytes: &[u8], step: usize) -> Result<Heard, RecordError> {
        let (mut out, mut log, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let (mut decoder, mut input) = (Decoder::default(), Vec::new());
        for piece in bytes.chunks(step) {
            input.extend_from_slice(piece);
            loop {
                let (used, event) = decoder.next(&input, 3)?;
                match event {
                    Some(Event::Stdout(piece)) => out.extend_from_slice(piece),
                    Some(Event::Stderr(piece)) => log.extend_from_slice(piece),
                    Some(Event::End { status, how }) => ends.push((status, how)),
                    None => {}
                }
                let over = event.is_none();
                input.drain(..used);
                if over {
                    break;
                }
            }
        }
        Ok((out, log, ends))
    }

    #[test]
    fn o2_records_are_read_in_whatever_pieces_they_come() {
        let mut bytes = record(STDOUT, 1, b"hello ", 2);
        bytes.extend(record(STDERR, 1, b"careful", 0));
        bytes.extend(record(UNKNOWN_TYPE, 0, b"12345678", 5));
        bytes.extend(record(STDOUT, 1, b"world", 255));
        bytes.extend(record(STDOUT, 1, b"", 0));
        bytes.extend(record(END_REQUEST, 1, &[0, 0, 0, 7, 2, 0, 0, 0], 0));
        for step in [1, 2, 3, 7, 8, 9, 1000] {
            let (out, log, ends) = read(&bytes, step).unwrap();
            assert_eq!((&*out, &*log), (&b"hello world"[..], &b"careful"[..]));
            assert_eq!(ends, [(7, Ending::Overloaded)]);
        }
    }

    #[test]
    fn o2_records_that_are_none_are_refused() {
        for bytes in [
            b"HTTP/1.1 400 Bad".to_vec(),
            record(STDOUT, 2, b"x", 0),
            record(END_REQUEST, 1, b"short", 0),
            record(STDIN, 1, b"x", 0),
            record(99, 1, b"", 0),
            record(UNKNOWN_TYPE, 1, b"", 0),
        ] {
            assert!(read(&bytes, 5).is_err(), "{bytes:?}");
        }
    }
}
