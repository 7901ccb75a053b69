//! `std::net` and `std::os::unix::net`, unmodified.

use crate::harness::Harness;
use coracle_coro::spawn;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// How many coroutines talk at once.
const MANY: usize = 50;

pub(crate) fn s32_std_tcp_echo(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = spawn(move || {
            let serving: Vec<_> = (0..MANY)
                .map(|_| {
                    let (mut stream, _) = listener.accept().expect("accept");
                    spawn(move || {
                        let mut space = [0; 256];
                        loop {
                            let count = stream.read(&mut space).expect("read");
                            if count == 0 {
                                return;
                            }
                            stream.write_all(&space[..count]).expect("write");
                        }
                    })
                })
                .collect();
            serving.into_iter().for_each(|one| one.join().expect("a connection"));
        });
        let clients: Vec<_> = (0..MANY)
            .map(|me| {
                spawn(move || {
                    let mut stream = TcpStream::connect(address).expect("connect");
                    for round in 0..10 {
                        let line = format!("{me}: {round}\n");
                        stream.write_all(line.as_bytes()).expect("write");
                        let mut back = vec![0; line.len()];
                        stream.read_exact(&mut back).expect("read");
                        assert_eq!(back, line.as_bytes());
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|one| one.join().expect("a client"));
        server.join().expect("the server");
        Ok(())
    });
}
