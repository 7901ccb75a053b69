//! Much at once: whole, in order, and no more in memory than may be.

use crate::client::{Authority, Client, Notes};
use crate::harness::Harness;
use coracle_loop::demux::sim::Faults;
use coracle_net::{Buffer, Conn, Protocol, Reason, Settings};
use coracle_tls::ServerTls;
use sha2::{Digest, Sha256};
use std::io;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 % 251) as u8).collect()
}

fn server(authority: &Authority) -> ServerTls {
    ServerTls::new(authority.identity("a.example")).unwrap()
}

pub(crate) fn m1_much_is_echoed_in_small_pieces(h: &Harness) {
    let authority = Authority::new("root");
    let mut client =
        Client::new(h, &server(&authority), authority.client().layer("a.example").unwrap());
    client.shake_hands().unwrap();
    client.step = 777;
    for len in [1, 100, 16 << 10, (16 << 10) + 1, 100_000] {
        let content = pattern(len);
        client.send(&content);
        assert!(client.receive(len).unwrap() == content, "{len}");
    }
    client.end();
    assert_eq!(client.over(), ["open", "end", "close: closed"]);
}

/// Sends a great deal, as fast as it is taken.
struct Source {
    left: usize,
    notes: Notes,
}

impl Source {
    fn pour(&mut self, conn: &mut Conn<'_>) {
        while self.left > 0 && conn.writable() {
            let piece = self.left.min(100_000);
            self.left -= piece;
            conn.write(vec![b'x'; piece]);
            assert!(conn.output_bytes() < 1 << 20, "what waits is bounded");
        }
        if self.left == 0 {
            conn.close();
        }
    }
}

impl Protocol for Source {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.pour(conn);
        Ok(())
    }

    fn on_data(&mut self, _conn: &mut Conn<'_>, _input: &mut Buffer) -> io::Result<()> {
        Ok(())
    }

    fn on_ready(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.pour(conn);
        Ok(())
    }

    fn on_close(&mut self, reason: &Reason) {
        self.notes.borrow_mut().push(format!("close: {reason}"));
    }
}

pub(crate) fn m1_much_is_whole_with_a_slow_reader(h: &Harness) {
    const MUCH: usize = 8 << 20;
    let authority = Authority::new("root");
    let layer = authority.client().layer("a.example").unwrap();
    let client = Client::with(h, &server(&authority), layer, Settings::default(), |notes| Source {
        left: MUCH,
        notes,
    });
    client.shake_hands().unwrap();
    h.run_for(std::time::Duration::from_millis(20)); // it fills what it can
    let (mut hash, mut count) = (Sha256::new(), 0);
    loop {
        let piece = client
            .receive(50_000)
            .unwrap_or_else(|error| panic!("{error}: {:?} {count}", client.notes));
        if piece.is_empty() {
            break;
        }
        count += piece.len();
        hash.update(&piece);
    }
    assert_eq!(count, MUCH);
    assert_eq!(hash.finalize(), Sha256::digest(vec![b'x'; MUCH]));
}

/// Answers everything in two hundred small pieces.
struct Crumbs;

impl Protocol for Crumbs {
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        input.take_all();
        for _ in 0..100 {
            conn.write_slice(b"crumb");
            conn.write("crumb");
        }
        Ok(())
    }
}

pub(crate) fn m1_small_writes_share_a_record(h: &Harness) {
    let authority = Authority::new("root");
    let layer = authority.client().layer("a.example").unwrap();
    let client = Client::with(h, &server(&authority), layer, Settings::default(), |_| Crumbs);
    client.shake_hands().unwrap();
    client.send(b"?");
    let mut records = 0;
    while client.plain_len() < 1000 {
        assert!(client.receive_wire(64 << 10));
        let wire = client.unread_wire();
        let mut at = 0;
        while let Some(head) = wire.get(at..at + 5) {
            let len = usize::from(u16::from_be_bytes([head[3], head[4]]));
            if wire.len() < at + 5 + len {
                break;
            }
            records += 1;
            at += 5 + len;
        }
        client.work().unwrap();
    }
    assert!(records <= 8, "{records} records for 200 writes (and up to four tickets)");
}

pub(crate) fn m1_faulty_kernel_loses_nothing(h: &Harness) {
    let h = h.simulated(Faults { short_receive: 0.5, short_send: 0.5, ..Faults::benign() });
    let authority = Authority::new("root");
    let client =
        Client::new(&h, &server(&authority), authority.client().layer("a.example").unwrap());
    client.shake_hands().unwrap();
    let content = pattern(300_000);
    let wire = client.encrypted(&content);
    for piece in wire.chunks(40_000) {
        client.send_wire(piece);
    }
    assert!(client.receive(content.len()).unwrap() == content);
    client.end();
    assert_eq!(client.over(), ["open", "end", "close: closed"]);
}
