//! Frames of HTTP/2, put together and taken apart by hand.

use std::io::{Read, Write};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The kinds of frames that are spoken of here.
#[allow(dead_code)] // not in all suites
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Fields, written out.
pub(crate) fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0); // a literal, with a name that is one
        for text in [name, value] {
            assert!(text.len() < 127, "longer ones are written otherwise");
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// A GET.
#[allow(dead_code)] // not in all suites
pub(crate) fn get(stream: u32) -> Vec<u8> {
    let block =
        fields(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")]);
    frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block)
}

/// The preface and the first settings.
pub(crate) fn hello() -> Vec<u8> {
    [PREFACE, &frame(kind::SETTINGS, 0, 0, b"")].concat()
}

/// The next frame of what `take` gives, so many bytes at a time: its kind, its flags, its stream, and what is in
/// it. None at the end.
pub(crate) fn next(mut take: impl FnMut(usize) -> Vec<u8>) -> Option<Frame> {
    let head: [u8; 9] = take(9).try_into().ok()?;
    let [a, b, c, kind, flags, s0, s1, s2, s3] = head;
    let payload = take(u32::from_be_bytes([0, a, b, c]) as usize);
    Some(Frame { kind, flags, stream: u32::from_be_bytes([s0, s1, s2, s3]), payload })
}

/// Reads frames and answers pings, until the end.
#[allow(dead_code)] // not in all suites
pub(crate) fn rest(stream: &mut (impl Read + Write)) -> Vec<Frame> {
    let take = |stream: &mut dyn Read, count| {
        let mut bytes = vec![0; count];
        let whole = stream.read_exact(&mut bytes);
        if whole.is_ok() { bytes } else { Vec::new() }
    };
    let mut all = Vec::new();
    while let Some(it) = next(|count| take(stream, count)) {
        if it.kind == kind::PING && it.flags == 0 {
            stream.write_all(&frame(kind::PING, 1, 0, &it.payload)).expect("it listens");
        }
        all.push(it);
    }
    all
}

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    #[allow(dead_code)] // not in all suites
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}
