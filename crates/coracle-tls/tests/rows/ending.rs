//! How a connection ends, and how it must not.

use crate::client::{Authority, Client};
use crate::harness::Harness;
use coracle_net::{Buffer, Conn, Protocol, Settings};
use coracle_tls::ServerTls;
use std::io;

fn shaken<'a>(h: &'a Harness) -> Client<'a> {
    let authority = Authority::new("root");
    let tls = ServerTls::new(authority.identity("a.example")).unwrap();
    let client = Client::new(h, &tls, authority.client().layer("a.example").unwrap());
    client.shake_hands().unwrap();
    client.check_echo();
    client
}

pub(crate) fn m4_both_sides_say_the_end(h: &Harness) {
    let client = shaken(h);
    client.end();
    assert_eq!(client.receive(1).expect("a clean end"), b"");
    client.end_wire();
    assert_eq!(client.over(), ["open", "end", "close: closed"]);
}

/// Says much when it has heard the end.
struct Late;

impl Protocol for Late {
    fn on_data(&mut self, _conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        input.take_all();
        Ok(())
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        conn.write(vec![7; 200_000]);
        conn.close();
        Ok(())
    }
}

pub(crate) fn m4_half_closed_peer_is_still_sent_everything(h: &Harness) {
    let authority = Authority::new("root");
    let tls = ServerTls::new(authority.identity("a.example")).unwrap();
    let layer = authority.client().layer("a.example").unwrap();
    let client = Client::with(h, &tls, layer, Settings::default(), |_| Late);
    client.shake_hands().unwrap();
    client.send(b"that is all");
    client.end();
    client.end_wire();
    assert_eq!(client.receive(usize::MAX).expect("a clean end"), vec![7; 200_000]);
}

pub(crate) fn m4_cut_stream_is_an_error_and_no_end(h: &Harness) {
    let client = shaken(h);
    client.end_wire();
    let over = client.over();
    assert_eq!(over.len(), 2, "the protocol is not told of an end: {over:?}");
    assert!(over[1].contains("close_notify"), "{over:?}");
}

pub(crate) fn m4_forged_record_ends_the_connection(h: &Harness) {
    let client = shaken(h);
    let mut forged = client.encrypted(b"attack at dawn");
    let last = forged.len() - 1;
    forged[last] ^= 1;
    client.send_wire(&forged);
    let over = client.over();
    assert!(over[1].starts_with("close: failed"), "{over:?}");
    let error = client.receive(1).unwrap_err();
    assert!(error.to_string().contains("BadRecordMac"), "the peer is told: {error}");
}

pub(crate) fn m4_nothing_is_heard_after_the_end(h: &Harness) {
    let client = shaken(h);
    client.end();
    client.send_wire(b"what is no record");
    assert_eq!(client.receive(10).expect("a clean end"), b"");
}
