//! What cases talk over.

use coracle_coro::net::{TcpListener, TcpStream, UnixStream};
use std::io::{self, Read, Write};
use std::time::Duration;

/// Two ends of a TCP connection.
pub(crate) fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    Ok((one, other))
}

/// Bytes that tell their place.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Two ends of a connection whose peer has no more room for what the first writes; and how much that was.
pub(crate) fn full_pair() -> io::Result<(UnixStream, UnixStream, usize)> {
    let (one, other) = UnixStream::pair()?;
    let (mut total, bytes) = (0, pattern(64 << 10));
    loop {
        match coracle_coro::timeout(Duration::from_millis(10), || (&one).write(&bytes)) {
            Ok(count) => total += count,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Ok((one, other, total));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Writes until that fails: it may be a later write that is told.
pub(crate) fn write_until_it_fails(mut stream: impl Write) -> io::Result<io::Error> {
    loop {
        match stream.write_all(b"is anybody there?") {
            Ok(()) => settle()?,
            Err(error) => return Ok(error),
        }
    }
}

/// Reads one byte.
pub(crate) fn byte(mut stream: impl Read) -> io::Result<u8> {
    let mut space = [0];
    stream.read_exact(&mut space)?;
    Ok(space[0])
}

/// Lets everybody else go as far as they can without time passing.
pub(crate) fn settle() -> io::Result<()> {
    coracle_coro::sleep(Duration::from_millis(2))
}
