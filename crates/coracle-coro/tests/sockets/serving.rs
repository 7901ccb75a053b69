//! A server: a coroutine for each connection.

use crate::harness::{Harness, Log};
use crate::streams::{byte, settle};
use coracle_coro::net::{TcpListener, TcpStream, serve_on};
use coracle_coro::spawn;
use std::io::{self, Read, Write};

pub(crate) fn g5_serve_has_a_coroutine_for_each_connection(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = spawn(|| serve_on(listener, |stream| io::copy(&mut &stream, &mut &stream)));
        let streams =
            (0..20).map(|_| TcpStream::connect(address)).collect::<io::Result<Vec<_>>>()?;
        for (number, mut stream) in streams.iter().enumerate().rev() {
            stream.write_all(&[number as u8])?;
            assert_eq!(usize::from(byte(stream)?), number); // although those before it say nothing
        }
        server.cancel();
        server.join().unwrap()
    });
}

pub(crate) fn g5_error_and_panic_end_one_connection(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = spawn(|| {
            serve_on(listener, |mut stream| {
                loop {
                    match byte(&stream)? {
                        b'p' => panic!("on purpose"),
                        b'e' => return Err(io::Error::other("on purpose")) as io::Result<()>,
                        other => stream.write_all(&[other])?,
                    }
                }
            })
        });
        let mut good = TcpStream::connect(address)?;
        for bad in [b"p", b"e"] {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(bad)?;
            assert_eq!(stream.read(&mut [0])?, 0);
            good.write_all(b"!")?;
            assert_eq!(byte(&good)?, b'!');
        }
        server.cancel();
        server.join().unwrap()
    });
}

pub(crate) fn g5_cancelled_server_lets_its_connections_end(h: &Harness) {
    let log = Log::default();
    let noted = log.clone();
    h.run(move || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let said = noted.clone();
        let server = spawn(|| {
            serve_on(listener, move |stream| {
                let copied = io::copy(&mut &stream, &mut &stream);
                said.add("over");
                copied
            })
        });
        let mut client = TcpStream::connect(address)?;
        client.write_all(b"1")?;
        byte(&client)?;
        server.cancel();
        server.join().unwrap()?;
        noted.add("stopped");
        settle()?;
        assert_eq!(
            TcpStream::connect(address).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        client.write_all(b"2")?;
        assert_eq!(byte(&client)?, b'2');
        Ok(()) // and `run` waits for the connection
    });
    assert_eq!(log.take(), ["stopped", "over"]);
}
