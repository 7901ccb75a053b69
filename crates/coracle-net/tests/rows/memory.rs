//! Row E11: what waits on all connections together is bounded.

use crate::harness::Harness;
use crate::peers::{Pair, echo};
use coracle_loop::demux::{Handle, Operation, SocketKind};
use coracle_net::{Buffer, Conn, Listener, MemoryLimit, Settings};
use std::io;

/// Reads nothing before the last byte is there, and then everything.
fn read_late(conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
    if input.unread().ends_with(b"!") {
        input.take_all();
        conn.write("ok");
    }
    Ok(())
}

fn settings(limit: &MemoryLimit) -> Settings {
    Settings {
        limit_input_bytes: 64 << 20,
        limit_output_bytes: 256 << 20,
        limit_memory: Some(limit.clone()),
        busy_message: "no memory\n".into(),
        ..Settings::default()
    }
}

const CLOSED: &str = "close: there is no memory for what waits on it";

pub(crate) fn e11_connection_that_has_more_to_keep_pays(h: &Harness) {
    let limit = MemoryLimit::new(200_000);
    let first = Pair::new(h, settings(&limit), read_late);
    let second = Pair::new(h, settings(&limit), read_late);
    first.send(&[b'x'; 150_000]);
    h.run_until(&limit, |limit| limit.used_bytes() >= 150_000);
    second.h.lp.operate(
        Operation::Send { socket: second.client, payload: vec![b'x'; 150_000].into() },
        |_, _| (), // it may be closed before it has sent all
    );
    assert_eq!(second.over(), ["open", "data", CLOSED]);
    first.send(b"!");
    assert_eq!(first.receive(2), "ok", "the other is none the worse");
    let third = Pair::new(h, settings(&limit), read_late);
    third.send(&[b'x'; 150_000]);
    third.send(b"!");
    assert_eq!(third.receive(2), "ok", "and what it has read is free again");
}

pub(crate) fn e11_output_that_nobody_reads_counts(h: &Harness) {
    let limit = MemoryLimit::new(1 << 20);
    let pair = Pair::new(h, settings(&limit), |conn, input| {
        input.take_all();
        conn.write(vec![b'x'; 64 << 20]);
        Ok(())
    });
    pair.send(b"x");
    assert_eq!(pair.over(), ["open", "data", CLOSED]);
    h.run_until(&limit, |limit| limit.used_bytes() < 100_000);
}

pub(crate) fn e11_much_that_passes_in_pieces_is_not_refused(h: &Harness) {
    let limit = MemoryLimit::new(2 << 20);
    let pair = Pair::new(h, settings(&limit), echo);
    for _ in 0..40 {
        pair.send(&[b'x'; 100_000]);
        assert_eq!(pair.receive(100_000).len(), 100_000);
    }
    assert!(limit.used_bytes() < 100_000, "nothing waits: {}", limit.used_bytes());
}

pub(crate) fn e11_without_memory_new_connections_are_turned_away(h: &Harness) {
    type ReadLate = fn(&mut Conn<'_>, &mut Buffer) -> io::Result<()>;
    let limit = MemoryLimit::new(200_000);
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(&h.lp, &any, settings(&limit), |_| read_late as ReadLate);
    let listener = listener.expect("it listens");
    let address = listener.local_address(&h.lp).expect("an address");
    let connect = || -> Handle {
        let socket = h.lp.socket(SocketKind::Tcp4).expect("a socket");
        let operation = Operation::Connect { socket, address: address.clone() };
        h.operate(operation).result.expect("it connects");
        socket
    };
    let first = connect();
    h.send(first, &[b'x'; 199_900]);
    h.run_until(&limit, |limit| limit.used_bytes() >= 199_900);
    let second = connect();
    assert_eq!(h.receive(second, 1000), b"no memory\n");
    assert_eq!(listener.stats().turned_away, 1);
    h.send(first, b"!");
    assert_eq!(h.receive(first, 2), b"ok");
    let third = connect();
    h.send(third, b"!");
    assert_eq!(h.receive(third, 2), b"ok", "there is memory again");
    assert_eq!(listener.stats().out_of_memory, 0);
}
