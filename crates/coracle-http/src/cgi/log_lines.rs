//! What a script says on its standard error: to the log, line by line, and not without end.

use std::rc::Rc;

/// Longer lines are cut in two.
const LIMIT_LINE_BYTES: usize = 1 << 10;

/// So much of what a script says for one request is logged.
const LIMIT_LOGGED_BYTES: usize = 64 << 10;

/// Puts lines together.
pub(crate) struct LogLines {
    script: Rc<str>,
    line: Vec<u8>,
    left: usize,
}

impl LogLines {
    pub(crate) fn new(script: Rc<str>) -> LogLines {
        LogLines { script, line: Vec::new(), left: LIMIT_LOGGED_BYTES }
    }

    /// Takes what has come.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match self.left.checked_sub(1) {
                None => return,
                Some(0) => {
                    self.write();
                    tracing::warn!(script = &*self.script, "it says more, which is not logged");
                    self.left = 0;
                    return;
                }
                Some(left) => self.left = left,
            }
            match byte {
                b'\n' => self.write(),
                _ => self.line.push(byte),
            }
            if self.line.len() == LIMIT_LINE_BYTES {
                self.write();
            }
        }
    }

    fn write(&mut self) {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        if !line.is_empty() {
            tracing::warn!(script = &*self.script, "{}", escape(line));
        }
        self.line.clear();
    }
}

/// The last line may have no end.
impl Drop for LogLines {
    fn drop(&mut self) {
        self.write();
    }
}

/// Text as it is, but for what would do something to a terminal.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '\t' => text.push(c),
            _ if c.is_control() => text.extend(c.escape_default()),
            _ => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o1_what_is_logged_does_nothing_to_a_terminal() {
        assert_eq!(escape("a\x1b[2J\tü\u{9b}\0".as_bytes()), "a\\u{1b}[2J\tü\\u{9b}\\u{0}");
    }

    #[test]
    fn o1_what_is_logged_has_an_end() {
        let mut lines = LogLines::new("x".into());
        for _ in 0..10 {
            lines.push(&vec![b'x'; LIMIT_LOGGED_BYTES]);
            assert!(lines.line.len() < LIMIT_LINE_BYTES);
        }
        assert_eq!(lines.left, 0);
    }
}
