//! The frames of a client, counted as they pass: who sends many that cost it nothing is told to calm down.
//!
//! What a frame means is `h2`'s business; here it is seen where one begins, of what kind it is and how long. So
//! neither a reset for each request (CVE-2023-44487) nor a flood of settings costs more than a look at nine bytes.
//!
//! ```text
//!   preface  length │ type │ flags │ stream │ payload …  length │ type │ …
//!   24 bytes   3        1      1        4     skipped
//! ```

use crate::Http2Settings;
use std::time::{Duration, Instant};

/// What a client says first.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const FRAME_HEAD: usize = 9;

/// How long a count lasts.
const WINDOW: Duration = Duration::from_secs(10);

/// For so many bytes of answers a client may move a window once.
const BYTES_PER_WINDOW_UPDATE: u64 = 1 << 10;

/// What the kinds of frames are called in them.
mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const WINDOW_UPDATE: u8 = 8;
    pub(super) const CONTINUATION: u8 = 9;
}

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Who reads along.
pub(super) struct Watch {
    /// How much of the preface is missing.
    preface: usize,
    head: [u8; FRAME_HEAD],
    head_len: usize,
    /// How much of the payload is missing.
    payload: usize,
    /// The frame is of a header.
    is_header: bool,
    /// A header has begun, and more frames of it follow.
    in_header: bool,
    /// Since when something is awaited without which nothing can be asked: the preface, or the rest of a header.
    pub(super) awaits_since: Option<Instant>,
    /// The last stream that the client has begun.
    pub(super) last_stream: u32,
    since: Option<Instant>,
    resets: u32,
    control_frames: u32,
    window_updates: u64,
    /// How much had been sent when the count began.
    sent_before: u64,
}

/// It is too much.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flood(pub(super) &'static str);

impl Watch {
    pub(super) fn new(now: Instant) -> Watch {
        Watch {
            preface: PREFACE.len(),
            head: [0; FRAME_HEAD],
            head_len: 0,
            payload: 0,
            is_header: false,
            in_header: false,
            awaits_since: Some(now),
            last_stream: 0,
            since: None,
            resets: 0,
            control_frames: 0,
            window_updates: 0,
            sent_before: 0,
        }
    }

    /// Looks at what has come, after `sent` bytes were sent in all.
    pub(super) fn look(
        &mut self,
        mut bytes: &[u8],
        now: Instant,
        sent: u64,
        settings: &Http2Settings,
    ) -> Result<(), Flood> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            self.since = Some(now);
            (self.resets, self.control_frames, self.window_updates) = (0, 0, 0);
            self.sent_before = sent;
        }
        while !bytes.is_empty() {
            if self.preface > 0 {
                bytes = skip(bytes, &mut self.preface);
            } else if self.payload > 0 {
                bytes = skip(bytes, &mut self.payload);
            } else {
                let count = (FRAME_HEAD - self.head_len).min(bytes.len());
                self.head[self.head_len..self.head_len + count].copy_from_slice(&bytes[..count]);
                self.head_len += count;
                bytes = &bytes[count..];
                if self.head_len == FRAME_HEAD {
                    self.head_len = 0;
                    self.begin_frame(sent, settings)?;
                }
            }
        }
        let awaits = self.preface > 0 || self.in_header || (self.is_header && self.payload > 0);
        self.awaits_since = if awaits { self.awaits_since.or(Some(now)) } else { None };
        Ok(())
    }

    fn begin_frame(&mut self, sent: u64, settings: &Http2Settings) -> Result<(), Flood> {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = self.head;
        self.payload = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
        self.is_header = matches!(kind, kind::HEADERS | kind::CONTINUATION);
        match kind {
            kind::HEADERS => {
                self.awaits_since = None; // each has its own time
                self.last_stream = self.last_stream.max(stream);
                self.in_header = flags & END_HEADERS == 0;
            }
            kind::CONTINUATION => {
                self.in_header = flags & END_HEADERS == 0;
                if self.payload == 0 {
                    self.count_control(settings)?;
                }
            }
            kind::DATA if self.payload > 0 || flags & END_STREAM != 0 => {}
            kind::RST_STREAM => {
                self.resets += 1;
                if self.resets > settings.limit_resets {
                    return Err(Flood("too many requests are taken back"));
                }
            }
            kind::WINDOW_UPDATE => {
                self.window_updates += 1;
                let earned = (sent - self.sent_before) / BYTES_PER_WINDOW_UPDATE;
                if self.window_updates > earned {
                    self.window_updates -= 1;
                    self.count_control(settings)?;
                }
            }
            _ => self.count_control(settings)?,
        }
        Ok(())
    }

    fn count_control(&mut self, settings: &Http2Settings) -> Result<(), Flood> {
        self.control_frames += 1;
        match self.control_frames > settings.limit_control_frames {
            true => Err(Flood("too many frames ask for nothing")),
            false => Ok(()),
        }
    }
}

fn skip<'a>(bytes: &'a [u8], left: &mut usize) -> &'a [u8] {
    let count = bytes.len().min(*left);
    *left -= count;
    &bytes[count..]
}

/// Where the frames that are sent end: only there one of ours can be put between them.
#[derive(Debug, Default)]
pub(super) struct Boundary {
    head: [u8; 3],
    head_len: usize,
    payload: usize,
}

impl Boundary {
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.payload > 0 {
                bytes = skip(bytes, &mut self.payload);
                continue;
            }
            // Mostly all of it is there.
            if let ([a, b, c, rest @ ..], 0) = (bytes, self.head_len) {
                self.begin_frame([*a, *b, *c]);
                bytes = rest;
                continue;
            }
            self.head[self.head_len] = bytes[0];
            self.head_len += 1;
            bytes = &bytes[1..];
            if self.head_len == 3 {
                self.head_len = 0;
                self.begin_frame(self.head);
            }
        }
    }

    fn begin_frame(&mut self, [a, b, c]: [u8; 3]) {
        self.payload = u32::from_be_bytes([0, a, b, c]) as usize + FRAME_HEAD - 3;
    }

    pub(super) fn is_between_frames(&self) -> bool {
        self.head_len == 0 && self.payload == 0
    }
}

/// The last words to a client that floods: `GOAWAY`, with `ENHANCE_YOUR_CALM`.
pub(super) fn goaway(last_stream: u32, why: &str) -> Vec<u8> {
    const GOAWAY: u8 = 7;
    const ENHANCE_YOUR_CALM: u32 = 0xb;
    let len = 8 + why.len() as u32;
    let mut frame = Vec::with_capacity(FRAME_HEAD + len as usize);
    frame.extend_from_slice(&len.to_be_bytes()[1..]);
    frame.extend_from_slice(&[GOAWAY, 0, 0, 0, 0, 0]);
    frame.extend_from_slice(&last_stream.to_be_bytes());
    frame.extend_from_slice(&ENHANCE_YOUR_CALM.to_be_bytes());
    frame.extend_from_slice(why.as_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, flags]);
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        frame
    }

    fn watched(bytes: &[u8], piece: usize, sent: u64) -> (Watch, Result<(), Flood>) {
        let (now, settings) = (Instant::now(), Http2Settings::default());
        let mut watch = Watch::new(now);
        let mut result = watch.look(PREFACE, now, 0, &settings);
        for bytes in bytes.chunks(piece) {
            result = result.and_then(|()| watch.look(bytes, now, sent, &settings));
        }
        (watch, result)
    }

    #[test]
    fn j13_frames_are_told_apart_in_pieces_of_any_size() {
        let mut bytes = frame(1, 4, 1, b"fields");
        bytes.extend(frame(0, 0, 1, &[3; 70]));
        bytes.extend(frame(1, 0, 7, b"half"));
        for piece in 1..bytes.len() {
            let (watch, result) = watched(&bytes, piece, 0);
            assert_eq!(result, Ok(()));
            assert_eq!((watch.last_stream, watch.in_header), (7, true));
            assert!(watch.awaits_since.is_some());
        }
        bytes.extend(frame(9, 4, 7, b"rest"));
        assert!(watched(&bytes, 5, 0).0.awaits_since.is_none());
        // Half a frame is half a header, too.
        assert!(watched(&bytes[..bytes.len() - 1], 5, 0).0.awaits_since.is_some());
        assert!(watched(&frame(1, 4, 1, b"fields")[..10], 5, 0).0.awaits_since.is_some());
        assert!(watched(&frame(0, 4, 1, b"a body")[..10], 5, 0).0.awaits_since.is_none());
    }

    #[test]
    fn j13_each_header_has_its_own_time() {
        let (now, settings) = (Instant::now(), Http2Settings::default());
        let mut watch = Watch::new(now);
        watch.look(PREFACE, now, 0, &settings).expect("no flood");
        let header = frame(1, 4, 1, b"fields");
        // The end of one and the beginning of the next come together, again and again.
        let mut stream = header.repeat(10);
        stream.rotate_left(12);
        watch.look(&header[..12], now, 0, &settings).expect("no flood");
        for second in 1..10 {
            let now = now + Duration::from_secs(second);
            watch.look(&stream[..header.len()], now, 0, &settings).expect("no flood");
            assert_eq!(watch.awaits_since, Some(now));
        }
    }

    #[test]
    fn j13_each_flood_has_its_limit() {
        let many = |frame: Vec<u8>, count: usize| watched(&frame.repeat(count), 4096, 0).1;
        let limits = Http2Settings::default();
        let (resets, control) =
            (limits.limit_resets as usize, limits.limit_control_frames as usize);
        assert_eq!(many(frame(3, 0, 1, &[0; 4]), resets), Ok(()));
        assert!(many(frame(3, 0, 1, &[0; 4]), resets + 1).is_err());
        let floods = [
            frame(4, 0, 0, b""),      // SETTINGS
            frame(6, 0, 0, &[0; 8]),  // PING
            frame(2, 0, 1, &[0; 5]),  // PRIORITY
            frame(8, 0, 1, &[0; 4]),  // WINDOW_UPDATE
            frame(0, 0, 1, b""),      // DATA
            frame(9, 0, 1, b""),      // CONTINUATION
            frame(99, 0, 1, b"what"), // nobody knows it
        ];
        for flood in floods {
            assert_eq!(many(flood.clone(), control), Ok(()));
            assert!(many(flood, control + 1).is_err());
        }
        // Bodies are no flood, however many frames they have.
        assert_eq!(many(frame(0, 0, 1, b"x"), 10 * control), Ok(()));
    }

    #[test]
    fn j13_windows_may_move_as_answers_are_taken() {
        let updates = frame(8, 0, 0, &[0; 4]).repeat(50_000);
        assert!(watched(&updates, 4096, 0).1.is_err());
        assert_eq!(watched(&updates, 4096, 50 << 20).1, Ok(()));
    }

    #[test]
    fn j13_a_count_ends_with_its_time() {
        let (now, settings) = (Instant::now(), Http2Settings::default());
        let mut watch = Watch::new(now);
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frame(3, 0, 1, &[0; 4]).repeat(settings.limit_resets as usize));
        assert_eq!(watch.look(&bytes, now, 0, &settings), Ok(()));
        let one = frame(3, 0, 1, &[0; 4]);
        assert_eq!(watch.look(&one, now + WINDOW, 0, &settings), Ok(()));
        let bytes = one.repeat(settings.limit_resets as usize);
        assert!(watch.look(&bytes, now + WINDOW, 0, &settings).is_err());
    }

    #[test]
    fn j13_the_end_of_a_frame_is_known() {
        let bytes = [frame(1, 4, 1, b"fields"), frame(0, 1, 1, b""), goaway(1, "calm")].concat();
        for piece in 1..bytes.len() {
            let mut boundary = Boundary::default();
            bytes.chunks(piece).for_each(|bytes| boundary.pass(bytes));
            assert!(boundary.is_between_frames());
            boundary.pass(&bytes[..piece.min(12)]);
            assert!(!boundary.is_between_frames());
        }
    }
}
