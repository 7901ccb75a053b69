//! One event, as lines of text. WHATWG HTML, "Server-sent events".

use std::io::{self, Write};
use std::time::Duration;

/// Something that happened, as a client of [server-sent events](super) is told: data, and what it is called.
///
/// ```
/// use coracle_http::sse::Event;
/// use std::time::Duration;
///
/// let event = Event::data("two\nlines").id("7").event("tick").retry(Duration::from_secs(3));
/// let mut text = Vec::new();
/// event.write(&mut text).unwrap();
/// assert_eq!(text, b"id: 7\nevent: tick\nretry: 3000\ndata: two\ndata: lines\n\n");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    comment: Option<String>,
    id: Option<String>,
    event: Option<String>,
    retry: Option<Duration>,
    data: Option<String>,
}

impl Event {
    /// With this text, of as many lines as it likes.
    pub fn data(text: impl Into<String>) -> Event {
        Event { data: Some(text.into()), ..Event::default() }
    }

    /// No event, but a line that clients do not look at.
    pub fn comment(text: impl Into<String>) -> Event {
        Event { comment: Some(text.into()), ..Event::default() }
    }

    /// Names it: a client that comes back says the last name it knows
    /// ([`last_event_id`](crate::Request::last_event_id)). A line without a NUL.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Event {
        self.id = Some(id.into());
        self
    }

    /// What kind of event it is; `message`, if nothing is said. A line.
    #[must_use]
    pub fn event(mut self, name: impl Into<String>) -> Event {
        self.event = Some(name.into());
        self
    }

    /// How long a client is to wait before it comes back, when it has lost us. In milliseconds.
    #[must_use]
    pub fn retry(mut self, pause: Duration) -> Event {
        self.retry = Some(pause);
        self
    }

    /// Whether it can be sent.
    ///
    /// # Errors
    /// `InvalidInput`: there is a line end in its id or its name, or a NUL in its id.
    pub fn check(&self) -> io::Result<()> {
        let wrong = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.id.as_ref().is_some_and(|id| id.contains(['\r', '\n', '\0'])) {
            return wrong("the id of an event has a line end or a NUL in it");
        }
        if self.event.as_ref().is_some_and(|name| name.contains(['\r', '\n'])) {
            return wrong("the name of an event has a line end in it");
        }
        Ok(())
    }

    /// Writes it as it is sent.
    ///
    /// # Errors
    /// Those of `out`, and as [`check`](Event::check).
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.check()?;
        if let Some(comment) = &self.comment {
            lines(comment).try_for_each(|line| writeln!(out, ": {line}"))?;
        }
        if let Some(id) = &self.id {
            writeln!(out, "id: {id}")?;
        }
        if let Some(name) = &self.event {
            writeln!(out, "event: {name}")?;
        }
        if let Some(pause) = self.retry {
            writeln!(out, "retry: {}", pause.as_millis())?;
        }
        if let Some(data) = &self.data {
            lines(data).try_for_each(|line| writeln!(out, "data: {line}"))?;
        }
        out.write_all(b"\n")
    }
}

/// The lines of a text, as a client of events takes it apart: by CR LF, CR or LF. An empty text is one line.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(at) = memchr::memchr2(b'\r', b'\n', text.as_bytes()) else { return rest.take() };
        let end = if text[at..].starts_with("\r\n") { 2 } else { 1 };
        rest = Some(&text[at + end..]);
        Some(&text[..at])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(event: &Event) -> String {
        let mut text = Vec::new();
        event.write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn k5_data_of_many_lines_is_one_event() {
        for (data, text) in [
            ("", "data: \n\n"),
            ("a", "data: a\n\n"),
            (" a ", "data:  a \n\n"),
            ("a\nb", "data: a\ndata: b\n\n"),
            ("a\r\nb\rc\n", "data: a\ndata: b\ndata: c\ndata: \n\n"),
            ("\n\nid: 7", "data: \ndata: \ndata: id: 7\n\n"),
            ("ä\u{2028}b", "data: ä\u{2028}b\n\n"),
        ] {
            assert_eq!(written(&Event::data(data)), text);
        }
        assert_eq!(written(&Event::comment("a\ndata: b")), ": a\n: data: b\n\n");
        assert_eq!(written(&Event::default().id("")), "id: \n\n", "which resets it");
    }

    #[test]
    fn k5_names_cannot_become_other_lines() {
        for wrong in [
            Event::data("x").id("1\ndata: y"),
            Event::data("x").id("1\r"),
            Event::data("x").id("\0"),
            Event::data("x").event("a\n\nb"),
        ] {
            let error = wrong.write(&mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{wrong:?}");
        }
    }
}
