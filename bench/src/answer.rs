//! A right answer of an HTTP server: found out by asking once, and compared with every other, but for its date.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

/// How long a server may take to answer the first time.
const LIMIT_ANSWER: Duration = Duration::from_secs(20);
/// `Sun, 06 Nov 1994 08:49:37 GMT`
const DATE_BYTES: usize = 29;

/// What every answer looks like.
#[derive(Clone, Debug)]
pub struct Answer {
    bytes: Vec<u8>,
    /// Where it may differ.
    date: Range<usize>,
    body: usize,
}

impl Answer {
    /// Asks once, by the same request that the load will make.
    ///
    /// # Errors
    /// When the answer is not 200, or does not tell its length.
    pub fn probe(server: SocketAddr, request: &[u8]) -> io::Result<Answer> {
        let mut stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(LIMIT_ANSWER))?;
        Answer::ask(&mut stream, request)
    }

    /// The same on a connection that is there, and stays.
    ///
    /// # Errors
    /// Likewise.
    pub fn ask(stream: &mut (impl Read + Write), request: &[u8]) -> io::Result<Answer> {
        stream.write_all(request)?;
        let mut bytes = Vec::new();
        loop {
            if let Some(answer) = Answer::parse(&bytes)? {
                return Ok(answer);
            }
            let mut piece = [0; 16 * 1024];
            match stream.read(&mut piece)? {
                0 => return Err(io::Error::other("closed by the server")),
                len => bytes.extend_from_slice(&piece[..len]),
            }
        }
    }

    /// An answer that is whole, or nothing yet.
    fn parse(bytes: &[u8]) -> io::Result<Option<Answer>> {
        let Some(end) = find(bytes, b"\r\n\r\n") else { return Ok(None) };
        let body = end + 4;
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        if !head.starts_with("http/1.1 200") {
            return Err(io::Error::other(format!("not 200: {head}")));
        }
        let value = |name: &str| head.find(name).map(|at| at + name.len());
        let length =
            value("\r\ncontent-length: ").and_then(|at| head[at..].lines().next()?.parse().ok());
        let Some(length): Option<usize> = length else {
            return Err(io::Error::other(format!("no Content-Length: {head}")));
        };
        if bytes.len() < body + length {
            return Ok(None);
        }
        let date = value("\r\ndate: ").map_or(0..0, |at| at..at + DATE_BYTES);
        Ok(Some(Answer { bytes: bytes[..body + length].to_vec(), date, body }))
    }

    /// Of all of it.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Never: there is a head at least.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What is behind the head.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body..]
    }

    /// Whether `piece` is what is to come after the first `received` bytes.
    #[inline]
    pub fn continues(&self, received: usize, piece: &[u8]) -> bool {
        let Some(expected) = self.bytes.get(received..received + piece.len()) else { return false };
        if received >= self.date.end || received + piece.len() <= self.date.start {
            return expected == piece;
        }
        let start = self.date.start.saturating_sub(received).min(piece.len());
        let end = self.date.end.saturating_sub(received).min(piece.len());
        expected[..start] == piece[..start] && expected[end..] == piece[end..]
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::Answer;

    const ANSWER: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nabc";

    #[test]
    fn only_the_date_may_differ() {
        assert!(Answer::parse(&ANSWER[..ANSWER.len() - 1]).unwrap().is_none());
        let answer = Answer::parse(&[ANSWER, b"HTTP"].concat()).unwrap().unwrap();
        assert_eq!((answer.len(), answer.body()), (ANSWER.len(), &b"abc"[..]));
        let later = String::from_utf8(ANSWER.to_vec()).unwrap().replace("08:49:37", "08:49:38");
        let wrong = later.replace("abc", "abd");
        for cut in 0..later.len() {
            let (front, behind) = later.as_bytes().split_at(cut);
            assert!(answer.continues(0, front) && answer.continues(cut, behind), "{cut}");
            let (front, behind) = wrong.as_bytes().split_at(cut);
            assert!(!(answer.continues(0, front) && answer.continues(cut, behind)), "{cut}");
        }
        assert!(!answer.continues(1, ANSWER), "it is too long");
        assert!(Answer::parse(b"HTTP/1.1 404 No\r\n\r\n").is_err());
    }
}
