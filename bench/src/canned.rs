//! What the limits of W1 answer: always the same bytes, as often as they were asked.

use crate::ask::request;

/// The same 13 bytes as everybody's, with the fields that everybody sends.
pub const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 13\r\ncontent-type: text/plain; charset=utf-8\r\n\
                      date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nHello, World!";
/// As many answers as are ever sent at once.
const LIMIT_ANSWERS: usize = 64;

/// Answers without reading: how many requests there are follows from how many bytes have come.
pub struct Canned {
    answers: Vec<u8>,
    request_bytes: usize,
}

impl Default for Canned {
    fn default() -> Canned {
        let answers = ANSWER.as_bytes().repeat(LIMIT_ANSWERS);
        Canned { answers, request_bytes: request("/").len() }
    }
}

impl Canned {
    /// The answers to what has come: `pending` bytes of a request that was not whole, and `received` more. What
    /// is left over is in `pending` again.
    #[inline]
    pub fn answers(&self, pending: &mut usize, received: usize) -> &[u8] {
        let bytes = *pending + received;
        *pending = bytes % self.request_bytes;
        &self.answers[..bytes / self.request_bytes * ANSWER.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::{ANSWER, Canned};

    #[test]
    fn there_are_as_many_answers_as_requests() {
        let (canned, mut pending) = (Canned::default(), 0);
        let whole = crate::ask::request("/").len();
        assert_eq!(canned.answers(&mut pending, whole), ANSWER.as_bytes());
        assert_eq!(canned.answers(&mut pending, whole - 1), b"");
        assert_eq!(canned.answers(&mut pending, whole + 1).len(), 2 * ANSWER.len());
        assert_eq!(pending, 0);
    }
}
