//! The server behind a reverse proxy, at the other end of `ask`: it answers every request head with the same page.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::answer::Answer;
use crate::canned::ANSWER;
use crate::load_ring::prepared;

/// How often to look for a connection.
const LOOK: Duration = Duration::from_millis(1);
/// A proxy says what it has to say within this time.
const LIMIT_REQUEST: Duration = Duration::from_secs(10);
/// The end of a head.
const END: &[u8] = b"\r\n\r\n";

/// Counts the heads of requests in what comes in pieces. There are no bodies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heads {
    /// How much of the end of a head has come.
    matched: usize,
}

impl Heads {
    /// How many heads end in this piece.
    #[inline]
    pub fn count(&mut self, piece: &[u8]) -> usize {
        let mut heads = 0;
        for &byte in piece {
            self.matched = match byte == END[self.matched] {
                true => self.matched + 1,
                false => usize::from(byte == END[0]),
            };
            if self.matched == END.len() {
                self.matched = 0;
                heads += 1;
            }
        }
        heads
    }
}

/// Asks once through a proxy, and answers behind it: what came through, and the connections that the proxy has
/// made for that, which it may want to use again.
///
/// # Errors
/// The proxy does not hand it on.
pub fn probe(
    listener: &TcpListener,
    proxy: SocketAddr,
    request: &[u8],
) -> io::Result<(Answer, Vec<TcpStream>)> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let behind = scope.spawn(|| -> io::Result<Vec<TcpStream>> {
            let mut sockets = Vec::new();
            while !over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((socket, _)) => sockets.push(serve_one(socket)?),
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    Err(_) => thread::sleep(LOOK),
                }
            }
            Ok(sockets)
        });
        let answer = Answer::probe(proxy, request);
        over.store(true, Ordering::Relaxed);
        let sockets = behind.join().expect("it does not panic");
        Ok((answer?, sockets?))
    })
}

fn serve_one(mut socket: TcpStream) -> io::Result<TcpStream> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(LIMIT_REQUEST))?;
    let (mut heads, mut bytes) = (Heads::default(), [0; 4096]);
    loop {
        let len = socket.read(&mut bytes)?;
        if heads.count(&bytes[..len]) > 0 {
            socket.write_all(ANSWER.as_bytes())?;
            return prepared(socket);
        }
        if len == 0 {
            return Ok(socket); // it has changed its mind
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Heads;

    #[test]
    fn heads_are_counted_however_they_come() {
        let bytes = b"GET / HTTP/1.1\r\nA: b\r\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        for cut in 0..bytes.len() {
            let mut heads = Heads::default();
            let (front, behind) = bytes.split_at(cut);
            assert_eq!(heads.count(front) + heads.count(behind), 2, "{cut}");
        }
        assert_eq!(Heads::default().count(b"GET / HTTP/1.1\r\n"), 0);
    }
}
