//! As much of WebSocket (RFC 6455) as a load needs: the opening, and frames of binary messages.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The example of the RFC, and what follows from it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pplmbitxaq9kygzzhzrbk+xoo=";
/// A server answers within this time.
const LIMIT_ANSWER: Duration = Duration::from_secs(20);
/// A last fragment with bytes in it.
const FIN_BINARY: u8 = 0x82;
/// What clients mark their frames with.
const MASKED: u8 = 0x80;
/// Any mask is as good as another.
const MASK: [u8; 4] = [0x1d, 0x5a, 0xc3, 0x72];

/// Opens a WebSocket.
///
/// # Errors
/// The server does not agree.
pub fn open(server: SocketAddr, path: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(LIMIT_ANSWER))?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let (mut head, mut byte) = (Vec::new(), [0]);
    // A byte at a time: what follows the head stays where it is.
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let agreed = format!("\r\nsec-websocket-accept: {ACCEPT}\r\n");
    match head.starts_with("http/1.1 101 ") && head.contains(&agreed) {
        true => Ok(stream),
        false => Err(io::Error::other(format!("no WebSocket: {head}"))),
    }
}

/// The frame in which a server sends these bytes.
///
/// # Panics
/// There are more than 64 KiB of them.
pub fn from_server(payload: &[u8]) -> Vec<u8> {
    let mut frame = head(payload.len(), 0);
    frame.extend_from_slice(payload);
    frame
}

/// The frame in which a client sends these bytes.
///
/// # Panics
/// There are more than 64 KiB of them.
pub fn from_client(payload: &[u8]) -> Vec<u8> {
    let mut frame = head(payload.len(), MASKED);
    frame.extend(MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

fn head(len: usize, masked: u8) -> Vec<u8> {
    match len {
        0..126 => vec![FIN_BINARY, masked | len as u8],
        _ => {
            let [high, low] = u16::try_from(len).expect("a message is short").to_be_bytes();
            vec![FIN_BINARY, masked | 126, high, low]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{from_client, from_server};

    #[test]
    fn frames_are_those_of_the_rfc() {
        assert_eq!(from_server(b"ahoy"), b"\x82\x04ahoy");
        let long = from_server(&[7; 256]);
        assert_eq!((&long[..4], long.len()), (&[0x82, 126, 1, 0][..], 260));
        let masked = from_client(b"ahoy");
        assert_eq!(masked[..2], [0x82, 0x84]);
        let bytes: Vec<u8> = (0..4).map(|at| masked[6 + at] ^ masked[2 + at]).collect();
        assert_eq!(bytes, b"ahoy");
    }
}
