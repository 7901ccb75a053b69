//! The time, as a header says it. Made once a second, and only if somebody answers in it.

use http::HeaderValue;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime};

/// A line `date: …`, and until when it is true.
pub(crate) struct Date {
    line: Cell<Line>,
    until: Cell<Option<Instant>>,
    /// The same, as HTTP/2 has it, once somebody has asked.
    value: RefCell<Option<HeaderValue>>,
}

/// `date: Sun, 06 Nov 1994 08:49:37 GMT` and the end of the line.
pub(crate) type Line = [u8; 37];

impl Date {
    pub(crate) fn new() -> Date {
        Date { line: Cell::new([0; 37]), until: Cell::new(None), value: RefCell::default() }
    }

    /// The line, at the loop's time.
    #[inline]
    pub(crate) fn line(&self, now: Instant) -> Line {
        if self.until.get().is_none_or(|until| now >= until) {
            self.renew(now);
        }
        self.line.get()
    }

    /// Until when the line is true that was last asked for.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until.get()
    }

    /// What is behind the colon.
    pub(crate) fn value(&self, now: Instant) -> HeaderValue {
        let line = self.line(now);
        let made = || {
            let text = line.strip_prefix(b"date: ").unwrap_or_default().trim_ascii_end();
            HeaderValue::from_bytes(text).unwrap_or(HeaderValue::from_static(""))
        };
        self.value.borrow_mut().get_or_insert_with(made).clone()
    }

    #[cold]
    fn renew(&self, now: Instant) {
        let wall = SystemTime::now();
        let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let rest = Duration::from_secs(1) - Duration::from_nanos(since.subsec_nanos().into());
        let text = format!("date: {}\r\n", httpdate::fmt_http_date(wall));
        if let Ok(line) = text.as_bytes().try_into() {
            self.line.set(line);
        }
        self.until.set(Some(now + rest));
        self.value.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_made_once_a_second() {
        let (date, now) = (Date::new(), Instant::now());
        let line = date.line(now);
        assert!(line.starts_with(b"date: ") && line.ends_with(b" GMT\r\n"));
        let mut other = line;
        other[6] = b'x'; // to see whether it is made again
        date.line.set(other);
        assert_eq!(date.line(now)[6], b'x');
        assert_ne!(date.line(now + Duration::from_secs(1))[6], b'x');
    }
}
