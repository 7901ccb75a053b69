//! Row R3: two connections that are one.

use crate::harness::Harness;
use coracle_loop::Loop;
use coracle_loop::demux::{Handle, Operation, Outcome, Payload};
use coracle_net::{Buffer, Conn, ConnHandle, Relay, attach};
use std::net::Shutdown;

/// A client and a server that are joined by the two halves of a relay.
struct Relayed<'a> {
    h: &'a Harness,
    client: Handle,
    server: Handle,
    near: ConnHandle,
    far: ConnHandle,
}

impl<'a> Relayed<'a> {
    fn new(h: &'a Harness) -> Relayed<'a> {
        let ((client, coming), (server, going)) = (h.connection(), h.connection());
        let waiting = |_: &mut Conn<'_>, _: &mut Buffer| Ok(());
        let near = attach(&h.lp, coming, Relay::settings(), waiting).expect("the client's");
        let (relay, facing) = Relay::facing(near.clone());
        let far = attach(&h.lp, going, Relay::settings(), facing).expect("the server's");
        relay.join(far.clone());
        near.with(&h.lp, |conn| conn.switch(relay)).expect("it is there");
        Relayed { h, client, server, near, far }
    }

    fn end(&self, socket: Handle) {
        self.h.operate(Operation::Shutdown { socket, how: Shutdown::Write }).result.expect("end");
    }

    /// Runs until neither of the two connections is there any more.
    fn over(&self) {
        let state = (self.h.lp.clone(), self.near.clone(), self.far.clone());
        self.h.run_until(&state, |(lp, near, far)| {
            [near, far].iter().all(|half| half.with(lp, |_| ()).is_none())
        });
    }
}

pub(crate) fn r3_each_direction_ends_by_itself(h: &Harness) {
    for client_first in [true, false] {
        let relayed = Relayed::new(h);
        let ends = (relayed.client, relayed.server);
        let (first, second) = if client_first { ends } else { (ends.1, ends.0) };
        h.send(first, b"ahoy");
        assert_eq!(h.receive(second, 4), b"ahoy");
        h.send(first, b"the last of it");
        relayed.end(first);
        assert_eq!(h.receive(second, usize::MAX >> 1), b"the last of it");
        // The other direction goes on.
        h.send(second, b"aye");
        assert_eq!(h.receive(first, 3), b"aye");
        h.send(second, b"aye again");
        relayed.end(second);
        assert_eq!(h.receive(first, usize::MAX >> 1), b"aye again");
        relayed.over();
    }
}

pub(crate) fn r3_who_is_not_read_is_not_read_from(h: &Harness) {
    const ALL: usize = 32 << 20;
    fn pour(lp: &Loop, socket: Handle, left: usize) {
        let payload = Payload::from(vec![7; left.min(256 << 10)]);
        lp.operate(Operation::Send { socket, payload }, move |lp, finished| {
            let Ok(Outcome::Count(sent)) = finished.result else { panic!("{finished:?}") };
            if left > sent {
                pour(lp, socket, left - sent);
            }
        });
    }
    let relayed = Relayed::new(h);
    let most = Relay::settings().high_mark_bytes;
    pour(&h.lp, relayed.client, ALL);
    let state = (h.lp.clone(), relayed.far.clone());
    h.run_until(&state, move |(lp, far)| {
        far.with(lp, |conn| conn.output_bytes()).expect("it is there") > most
    });
    let mut received = 0;
    while received < ALL {
        received += h.receive(relayed.server, (ALL - received).min(1 << 20)).len();
        let waiting = relayed.far.with(&h.lp, |conn| conn.output_bytes()).expect("it is there");
        assert!(waiting <= most + (1 << 20), "{waiting} bytes wait: the client was not paused");
    }
    relayed.end(relayed.client);
    assert_eq!(h.receive(relayed.server, 1), b"");
    relayed.end(relayed.server);
    relayed.over();
}

pub(crate) fn r3_end_of_one_is_the_end_of_both(h: &Harness) {
    for broken in [true, false] {
        let relayed = Relayed::new(h);
        h.send(relayed.client, b"ahoy");
        assert_eq!(h.receive(relayed.server, 4), b"ahoy");
        let near = relayed.near.clone();
        h.lp.defer(move |lp| {
            near.with(lp, |conn| if broken { conn.abort() } else { conn.close() });
        });
        h.close(relayed.client);
        relayed.over();
        h.close(relayed.server);
    }
}
