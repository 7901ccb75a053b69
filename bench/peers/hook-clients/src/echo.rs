//! The servers: the echo over coracle's own sockets and over those of std, line by line the same; and one that
//! takes its time.

use coracle::demux::Backend;
use coracle::{Loop, run_on, spawn};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// The read buffer of a connection; the same as the other peers'.
const BUFFER_BYTES: usize = 4096;

/// How long an answer takes.
const PAUSE: Duration = Duration::from_millis(100);

fn on(backend: Backend, main: impl FnOnce() -> io::Result<()> + 'static) -> io::Result<()> {
    run_on(&Loop::builder().backend(backend).build()?, main)
}

/// Over coracle's own sockets.
pub(crate) fn own(backend: Backend, address: SocketAddr) -> io::Result<()> {
    on(backend, move || {
        let listener = coracle::coro::net::TcpListener::bind(address)?;
        loop {
            let (mut stream, _peer) = listener.accept()?;
            stream.set_nodelay(true)?;
            spawn(move || {
                let mut buffer = [0; BUFFER_BYTES];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    stream.write_all(&buffer[..count])?;
                }
                io::Result::Ok(())
            });
        }
    })
}

/// Over those of std.
pub(crate) fn hooked(backend: Backend, address: SocketAddr) -> io::Result<()> {
    on(backend, move || {
        let listener = std::net::TcpListener::bind(address)?;
        loop {
            let (mut stream, _peer) = listener.accept()?;
            stream.set_nodelay(true)?;
            spawn(move || {
                let mut buffer = [0; BUFFER_BYTES];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    stream.write_all(&buffer[..count])?;
                }
                io::Result::Ok(())
            });
        }
    })
}

/// Answers requests for anything, after a pause, and hangs up.
pub(crate) fn answer(address: SocketAddr) -> io::Result<()> {
    on(Backend::Epoll, move || {
        let listener = coracle::coro::net::TcpListener::bind(address)?;
        loop {
            let (mut stream, _peer) = listener.accept()?;
            spawn(move || {
                let (mut head, mut buffer) = (Vec::new(), [0; BUFFER_BYTES]);
                while !head.ends_with(b"\r\n\r\n") {
                    let count @ 1.. = stream.read(&mut buffer)? else { return Ok(()) };
                    head.extend_from_slice(&buffer[..count]);
                }
                coracle::sleep(PAUSE)?;
                stream.write_all(
                    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nahoy\n",
                )
            });
        }
    })
}
