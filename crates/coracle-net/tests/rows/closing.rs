//! Rows E12, F13, G9 and I1: every connection ends once, and no answer is lost on the way.

use crate::harness::Harness;
use crate::peers::{Notes, Noting, Pair, echo};
use coracle_loop::demux::Operation;
use coracle_net::{Settings, attach};
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) fn e12_answer_survives_unread_input(h: &Harness) {
    for _ in 0..20 {
        let pair = Pair::new(h, Settings::default(), |conn, input| {
            input.take_exact(1);
            conn.write("goodbye");
            conn.close();
            Ok(())
        });
        // Much more than the server reads: closing at once would reset the connection.
        pair.send(&[b'x'; 50_000]);
        assert_eq!(pair.receive_all(), b"goodbye");
        pair.close();
        assert_eq!(pair.over().last().unwrap(), "close: closed");
    }
}

pub(crate) fn e12_peer_that_never_ends_meets_the_deadline(h: &Harness) {
    let settings = Settings { drain: Duration::from_millis(50), ..Settings::default() };
    let pair = Pair::new(h, settings, |conn, input| {
        input.take_all();
        conn.close();
        Ok(())
    });
    pair.send(b"x");
    assert_eq!(pair.over(), ["open", "data", "close: it did not end in time"]);
}

pub(crate) fn e12_abort_throws_away_what_waits(h: &Harness) {
    let pair = Pair::new(
        h,
        Settings { limit_output_bytes: 64 << 20, ..Settings::default() },
        |conn, input| {
            input.take_all();
            conn.write(vec![b'a'; 32 << 20]);
            conn.abort();
            Ok(())
        },
    );
    pair.send(b"x");
    assert_eq!(pair.over(), ["open", "data", "close: aborted"]);
}

pub(crate) fn f13_half_close_is_answered_fifty_times(h: &Harness) {
    for _ in 0..50 {
        let pair = Pair::new(h, Settings::default(), echo);
        pair.send(b"request");
        pair.end();
        assert_eq!(pair.receive_all(), b"request");
        pair.close();
        assert_eq!(pair.over().last().unwrap(), "close: closed");
    }
}

pub(crate) fn f13_our_side_can_end_first(h: &Harness) {
    let pair = Pair::new(h, Settings::default(), |conn, input| {
        if input.take_line() == Some(b"end") {
            conn.write("last");
            conn.close_write();
            conn.write("never sent");
        }
        Ok(())
    });
    pair.send(b"end\n");
    assert_eq!(pair.receive_all(), b"last");
    // The other direction is open still.
    pair.notes.borrow_mut().clear();
    pair.send(b"more");
    pair.run_until_noted("data");
    pair.close();
    assert!(pair.over().last().unwrap().starts_with("close"));
}

pub(crate) fn i1_reset_is_told_once(h: &Harness) {
    for _ in 0..10 {
        let pair = Pair::new(h, Settings::default(), |conn, input| {
            input.take_all();
            conn.write(vec![0; 100_000]);
            Ok(())
        });
        pair.send(b"x");
        pair.run_until_noted("data");
        pair.close(); // with unread bytes: a reset
        let notes = pair.over();
        assert_eq!(notes.iter().filter(|note| note.starts_with("close")).count(), 1, "{notes:?}");
        h.run_for(Duration::from_millis(1));
        assert_eq!(*pair.notes.borrow(), notes, "nothing comes after it");
    }
}

pub(crate) fn a10_stale_handle_does_not_reach_the_next_connection(h: &Harness) {
    let first = Pair::new(h, Settings::default(), echo);
    first.close();
    first.over();
    h.run_for(Duration::from_millis(1));
    let second = Pair::new(h, Settings::default(), echo); // the same descriptor, most likely
    let gone = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&gone);
    first.server.run(
        |conn| {
            conn.abort();
            Ok(())
        },
        move || {
            count.fetch_add(1, Ordering::SeqCst);
        },
    );
    h.run_until(&gone, |gone| gone.load(Ordering::SeqCst) == 1);
    second.send(b"ahoy");
    assert_eq!(second.receive(4), "ahoy");
    assert!(!first.server.is_same(&second.server));
}

pub(crate) fn a10_recycled_descriptor_starts_clean(h: &Harness) {
    for _ in 0..5 {
        let settings = Settings { limit_output_bytes: 64 << 20, ..Settings::default() };
        let first = Pair::new(h, settings, |conn, input| {
            input.take_exact(1);
            conn.write_urgent(vec![b'u'; 8 << 20]);
            conn.write(vec![b'a'; 8 << 20]);
            Ok(())
        });
        first.send(b"x and something that is not read");
        first.run_until_noted("data");
        first.close(); // in the middle of it
        first.over();
        // The next has its descriptor, most likely, and nothing else of it.
        let second = Pair::new(h, Settings::default(), echo);
        second.send(b"ahoy");
        second.end();
        assert_eq!(second.receive_all(), b"ahoy");
        second.close();
        assert_eq!(second.over(), ["open", "data", "end", "close: closed"]);
    }
}

pub(crate) fn g9_loop_that_is_dropped_tells_its_connections(h: &Harness) {
    let notes = Notes::default();
    let lp = h.builder().build().expect("a loop");
    let (_client, server) = lp.socket_pair().expect("a pair");
    let noting = Noting { notes: Rc::clone(&notes), on_data: echo };
    attach(&lp, server, Settings::default(), noting).expect("attach");
    drop(lp);
    assert_eq!(*notes.borrow(), ["open", "close: its loop is gone"]);
    let _ = (Operation::Close { handle: server }, Shutdown::Both);
}
