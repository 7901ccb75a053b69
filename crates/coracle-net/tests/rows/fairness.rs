//! Row E9: a peer that sends without end, or takes everything at once, leaves the others their turn.

use crate::harness::Harness;
use crate::peers::{Pair, echo};
use bytes::Bytes;
use coracle_loop::HookKind;
use coracle_loop::Loop;
use coracle_loop::demux::sim::Faults;
use coracle_loop::demux::{Handle, OpenOptions, Operation, Outcome};
use coracle_net::{Buffer, Conn, Listener, Packet, Settings};
use std::cell::Cell;
use std::io;
use std::rc::Rc;

/// What a connection sends at most before it is somebody else's turn.
const BYTES_PER_TURN: u64 = 1 << 20;

/// That much may be too much: the last packet of it is not cut.
const PACKET: usize = 64 << 10;

/// Sends again whenever there is room.
fn flood(lp: &Loop, socket: Handle, bytes: &Bytes) {
    let (again, payload) = (bytes.clone(), bytes.to_vec().into());
    lp.operate(Operation::Send { socket, payload }, move |lp, done| {
        if done.result.is_ok() {
            flood(lp, socket, &again);
        }
    });
}

/// Receives whatever comes.
fn drain(lp: &Loop, socket: Handle, received: &Rc<Cell<usize>>) {
    let received = Rc::clone(received);
    let operation = Operation::Receive { socket, space: vec![0; 1 << 20].into() };
    lp.operate(operation, move |lp, done| {
        if let Ok(Outcome::Count(count @ 1..)) = done.result {
            received.set(received.get() + count);
            drain(lp, socket, &received);
        }
    });
}

pub(crate) fn e9_peer_that_floods_leaves_others_their_turn(h: &Harness) {
    // All that the loop lends at a time: nobody can have more before somebody else has something. And what comes
    // while a question is on its way, in the turn in which it is sent and the one in which it arrives.
    const LENT: u64 = 3 * (1 << 20);
    let flooded = Rc::new(Cell::new(0));
    let count = Rc::clone(&flooded);
    let greedy = Pair::new(h, Settings::default(), move |_, input| {
        count.set(count.get() + input.take_all().len() as u64);
        Ok(())
    });
    let asked = Rc::new(Cell::new(0));
    let (before, seen) = (Rc::clone(&asked), Rc::clone(&flooded));
    let quiet = Pair::new(h, Settings::default(), move |conn, input| {
        let meanwhile = seen.get() - before.get();
        assert!(meanwhile <= LENT, "{meanwhile} bytes of another came first");
        echo(conn, input)
    });
    flood(&h.lp, greedy.client, &Bytes::from(vec![b'x'; 8 << 20]));
    for _ in 0..100 {
        asked.set(flooded.get());
        quiet.send(b"?");
        assert_eq!(quiet.receive(1), "?");
    }
    let total = if h.is_simulated() { 10_000 } else { 10 << 20 };
    h.run_until(&flooded, move |flooded| flooded.get() > total);
    assert!(!quiet.notes.borrow().iter().any(|note| note.starts_with("close")));
}

/// Serves `answer` to one client that takes whatever comes, and looks after each turn how much was sent in it.
fn expect_turns(
    h: &Harness,
    settings: Settings,
    len: usize,
    answer: impl Fn(&mut Conn<'_>) + 'static,
) {
    let answer = Rc::new(answer);
    let any = "127.0.0.1:0".parse().expect("an address");
    let make = move |_: &_| {
        let answer = Rc::clone(&answer);
        move |conn: &mut Conn<'_>, input: &mut Buffer| -> io::Result<()> {
            input.take_all();
            answer(conn);
            conn.close();
            Ok(())
        }
    };
    let listener = Listener::bind(&h.lp, &any, settings, make).expect("it listens");
    let address = listener.local_address(&h.lp).expect("an address");
    let most = Rc::new(Cell::new(0));
    let (sent, max, stats) = (Cell::new(0), Rc::clone(&most), listener.clone());
    h.lp.on_turn(HookKind::Prepare, move |_| {
        let now = stats.stats().sent_bytes;
        max.set(max.get().max(now - sent.replace(now)));
    });
    let client = h.lp.socket(coracle_loop::demux::SocketKind::Tcp4).expect("a socket");
    h.operate(Operation::Connect { socket: client, address }).result.expect("it connects");
    // From here on in one run: at its end, what was deferred has a turn without a wait.
    let payload = vec![b'x'].into();
    h.lp.operate(Operation::Send { socket: client, payload }, |_, _| ());
    let received = Rc::new(Cell::new(0));
    drain(&h.lp, client, &received);
    h.run_until(&received, move |received| received.get() >= len);
    // Once when the socket has room, and once when the rest has its turn.
    let limit = 2 * (BYTES_PER_TURN + PACKET as u64);
    assert!(most.get() <= limit, "{} bytes were sent in one turn", most.get());
    h.close(client);
    listener.close(&h.lp);
}

/// A socket that takes all there is would hold a server for as long as that lasts.
fn roomy(h: &Harness, case: impl FnOnce(&Harness)) {
    if !h.is_simulated() {
        return case(h);
    }
    case(&h.simulated(Faults { limit_send_buffer_bytes: 16 << 20, ..Faults::benign() }));
}

pub(crate) fn e9_peer_that_takes_everything_leaves_others_their_turn(h: &Harness) {
    const PACKETS: usize = 128;
    roomy(h, |h| {
        let settings = Settings { limit_output_bytes: 16 << 20, ..Settings::default() };
        let packet = Bytes::from(vec![b'a'; PACKET]);
        expect_turns(h, settings, PACKETS * PACKET, move |conn| {
            (0..PACKETS).for_each(|_| conn.write(packet.clone()));
        });
    });
}

pub(crate) fn e9_file_leaves_others_their_turn(h: &Harness) {
    const LEN: usize = 8 << 20;
    roomy(h, |h| {
        let name = format!("coracle-turns-{}-{}", std::process::id(), h.backend);
        let path = std::env::temp_dir().join(name);
        if h.is_simulated() {
            h.kernel().add_file(&path, vec![b'f'; LEN]);
        } else {
            std::fs::write(&path, vec![b'f'; LEN]).expect("a file");
        }
        let options = OpenOptions { read: true, ..OpenOptions::default() };
        let opened = h.operate(Operation::Open { path: path.clone(), options });
        let Ok(Outcome::Opened(file)) = opened.result else { panic!("{opened:?}") };
        expect_turns(h, Settings::default(), LEN, move |conn| {
            conn.write(Packet::file(file, 0, LEN));
        });
        h.close(file);
        let _ = std::fs::remove_file(path);
    });
}

pub(crate) fn e9_peers_that_do_not_read_leave_others_their_turn(h: &Harness) {
    let slow: Vec<Pair<'_>> = (0..6)
        .map(|_| {
            Pair::new(h, Settings::default(), |conn, input| {
                input.take_all();
                conn.write(vec![b'x'; 12 << 20]); // more than a socket takes
                Ok(())
            })
        })
        .collect();
    for pair in &slow {
        pair.send(b"x");
        pair.run_until_noted("data");
    }
    let waits = |pair: &Pair<'_>| pair.server.with(&h.lp, |conn| conn.output_bytes() > 0);
    assert!(slow.iter().all(|pair| waits(pair) == Some(true)), "all wait for their peers");
    let quiet = Pair::new(h, Settings::default(), echo);
    for _ in 0..20 {
        quiet.send(b"?");
        assert_eq!(quiet.receive(1), "?");
    }
    assert!(slow.iter().all(|pair| waits(pair) == Some(true)), "nobody had to read for that");
}
