//! The heads that most answers have, as bytes: of a 200 whose only field is a content type that is written in the
//! source of the program.
//!
//! ```text
//!   HTTP/1.1 200 OK ␍␊ content-type: … ␍␊ date: … ␍␊ content-length:  │ 13 ␍␊ ␍␊
//!   └───────────────────── the same for a second ───────────────────┘  until a length is another
//! ```

use crate::date::Date;
use coracle_net::WriteBuffer;
use std::cell::RefCell;
use std::time::Instant;

/// How many are kept.
const KEEP: usize = 8;

#[derive(Default)]
pub(crate) struct Leads(RefCell<[Lead; KEEP]>);

#[derive(Default)]
struct Lead {
    content_type: &'static str,
    /// Until when its date is true.
    until: Option<Instant>,
    bytes: Vec<u8>,
    /// How many of them are there whatever the length of the body is, and which that is.
    begin: usize,
    len: u64,
}

impl Leads {
    /// Writes the head of such an answer, whose body has `len` bytes, on a connection that goes on after it.
    #[inline(always)] // with every answer
    pub(crate) fn write_head(
        &self,
        out: &mut WriteBuffer,
        date: &Date,
        now: Instant,
        content_type: &'static str,
        len: u64,
    ) {
        let lead = &mut self.0.borrow_mut()[content_type.len() % KEEP];
        let is_it = std::ptr::eq(lead.content_type, content_type);
        if !is_it || lead.until.is_none_or(|until| now >= until) {
            lead.renew(date, now, content_type);
        }
        if lead.len != len {
            lead.set_len(len);
        }
        out.push(&lead.bytes);
    }
}

impl Lead {
    #[inline(never)]
    fn renew(&mut self, date: &Date, now: Instant, content_type: &'static str) {
        const BEGIN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: ";
        let date_line = date.line(now);
        (self.content_type, self.until) = (content_type, date.until());
        self.bytes.clear();
        for piece in [BEGIN, content_type.as_bytes(), b"\r\n", &date_line, b"content-length: "] {
            self.bytes.extend_from_slice(piece);
        }
        self.begin = self.bytes.len();
        self.set_len(0);
    }

    #[inline(never)]
    fn set_len(&mut self, len: u64) {
        self.len = len;
        self.bytes.truncate(self.begin);
        self.bytes.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
        self.bytes.extend_from_slice(b"\r\n\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::answer::{Context, write_head};
    use crate::{Headers, Method, Status};
    use std::time::Duration;

    #[test]
    fn j1_a_head_that_is_kept_is_what_would_be_written() {
        let (leads, date, now) = (Leads::default(), Date::new(), Instant::now());
        // Two of them have the same place.
        let types = ["text/plain", "text/html", "text/plain", "text/plain; charset"];
        for seconds in [0, 0, 1, 5] {
            let now = now + Duration::from_secs(seconds);
            for content_type in types {
                for len in [0, 1, 13, 1234, 12_345_678, u64::MAX] {
                    let mut kept = WriteBuffer::default();
                    leads.write_head(&mut kept, &date, now, content_type, len);
                    let mut headers = Headers::new();
                    headers.insert_static("content-type", content_type);
                    let date = date.line(now);
                    let method = Method::Get;
                    let context = Context { method, modern: true, keep_alive: true, date: &date };
                    let mut written = WriteBuffer::default();
                    write_head(&mut written, &context, Status::OK, &headers, Some(len));
                    assert_eq!(kept.as_slice(), written.as_slice());
                }
            }
        }
    }
}
