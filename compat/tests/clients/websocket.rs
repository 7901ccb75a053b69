//! `tungstenite`: both ends are coroutines of one thread.

use crate::helping::{MANY, MS, many, on_each};
use coracle::spawn;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};

#[test]
pub(crate) fn t3_tungstenite() {
    on_each(|_| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = spawn(move || {
            for stream in listener.incoming().take(MANY) {
                spawn(move || {
                    let stream = stream.expect("a connection");
                    let mut socket = tungstenite::accept(stream).expect("accept");
                    while let Ok(message) = socket.read() {
                        if message.is_text() {
                            socket.send(message).expect("send");
                        }
                    }
                });
            }
        });
        many(move |me| {
            let stream = TcpStream::connect(address).expect("connect");
            let socket = tungstenite::client(format!("ws://{address}/"), stream);
            let (mut socket, _) = socket.expect("a handshake");
            for round in 0..5 {
                let text = format!("{me}.{round}");
                socket.send(tungstenite::Message::text(text.clone())).expect("send");
                assert_eq!(socket.read().expect("read").into_text().expect("text").as_str(), text);
            }
            // Nothing comes, for so long; and the connection is as good as before.
            socket.get_ref().set_read_timeout(Some(5 * MS)).expect("a time-out");
            match socket.read() {
                Err(tungstenite::Error::Io(error)) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock)
                }
                other => panic!("{other:?}"),
            }
            socket.get_ref().set_read_timeout(None).expect("no time-out");
            socket.close(None).expect("close");
            while socket.read().is_ok() {}
        });
        server.join().expect("the server");
        Ok(())
    });
}
