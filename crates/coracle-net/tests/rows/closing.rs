//! Rows E12, F13, G9 and I1: every connection ends once, and no answer is lost on the way.

use crate::harness::Harness;
use crate::peers::{Notes, Noting, Pair, echo};
use coracle_loop::demux::Operation;
use coracle_net::{Buffer, Conn, Protocol, Settings, attach};
use std::cell::Cell;
use std::io;
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
}

/// Much less time to close than the cases below take.
fn impatient() -> Settings {
    let drain = Duration::from_millis(20);
    Settings { drain, limit_output_bytes: 64 << 20, ..Settings::default() }
}

pub(crate) fn e12_long_answer_is_whole_however_late_it_is_taken(h: &Harness) {
    let len = if h.is_simulated() { 1 << 20 } else { 16 << 20 }; // more than sockets take
    let answer: Vec<u8> = (0..len).map(|at| (at * 31 % 251) as u8).collect();
    let whole = answer.clone();
    let pair = Pair::new(h, impatient(), move |conn, input| {
        input.take_all();
        conn.write(answer.clone());
        conn.close();
        Ok(())
    });
    pair.send(b"x");
    pair.end();
    let mut all = Vec::new();
    loop {
        h.run_for(Duration::from_millis(50));
        let piece = h.receive(pair.client, len / 4);
        if piece.is_empty() {
            break;
        }
        all.extend(piece);
    }
    assert!(all == whole, "{} bytes of {len}", all.len());
}

pub(crate) fn i4_idle_connection_is_still_sent_its_answer(h: &Harness) {
    struct Answers(Notes, bool);
    impl Protocol for Answers {
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            input.take_all();
            conn.write(vec![b'a'; 16 << 20]);
            self.1 = true;
            Ok(())
        }
        fn on_idle(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            if self.1 {
                self.0.borrow_mut().push("idle".to_owned());
                conn.close(); // as it is by default
            }
            Ok(())
        }
    }
    let settings = Settings { idle_timeout: Some(Duration::from_millis(20)), ..impatient() };
    let notes = Notes::default();
    let pair = Pair::with(h, settings, Answers(Rc::clone(&notes), false), notes);
    pair.send(b"x");
    pair.run_until_noted("idle");
    h.run_for(Duration::from_millis(50));
    assert_eq!(pair.receive_all().len(), 16 << 20);
}

pub(crate) fn e12_work_under_way_is_waited_for(h: &Harness) {
    let pair = Pair::new(h, impatient(), |conn, input| {
        input.take_all();
        conn.offload(
            || std::thread::sleep(Duration::from_millis(200)),
            |conn, _| {
                conn.write("done");
                Ok(())
            },
        )?;
        Ok(())
    });
    pair.send(b"x");
    pair.end();
    assert_eq!(pair.receive_all(), b"done");
}

pub(crate) fn e12_peer_that_takes_nothing_meets_a_deadline_all_the_same(h: &Harness) {
    // The one there is: that of writing, or, without it, that of closing.
    let write_timeout = Some(Duration::from_millis(40));
    let late = "close: the peer does not read what is sent to it";
    let never = "close: it did not end in time";
    for (write_timeout, expected) in [(write_timeout, late), (None, never)] {
        let settings = Settings { write_timeout, ..impatient() };
        let pair = Pair::new(h, settings, |conn, input| {
            input.take_all();
            conn.write(vec![b'a'; 32 << 20]);
            conn.close();
            Ok(())
        });
        pair.send(b"x");
        assert_eq!(pair.over().last().unwrap(), expected);
        pair.close();
    }
}

pub(crate) fn e5_what_nobody_reads_any_more_does_not_count(h: &Harness) {
    // What is behind the request is more than may wait; but it is not waiting for this protocol.
    let settings = || Settings { limit_input_bytes: 10, ..Settings::default() };
    let request = [b'r'; 500];
    let pair = Pair::new(h, settings(), |conn, input| {
        input.take_exact(1);
        conn.write("answer");
        conn.close();
        Ok(())
    });
    pair.send(&request);
    assert_eq!(pair.receive_all(), b"answer");
    pair.close();
    assert_eq!(pair.over().last().unwrap(), "close: closed");

    let taken = Rc::new(Cell::new(0));
    let count = Rc::clone(&taken);
    let pair = Pair::new(h, settings(), move |conn, input| {
        input.take_exact(1);
        conn.write("yours");
        let count = Rc::clone(&count);
        conn.hijack(move |lp, socket, input| {
            count.set(input.len());
            lp.operate(Operation::Close { handle: socket }, |_, _| ());
        });
        Ok(())
    });
    pair.send(&request);
    assert_eq!(pair.receive(5), "yours");
    h.run_until(&taken, |taken| taken.get() > 10);

    let pair = Pair::new(h, settings(), |conn, input| {
        input.take_exact(1);
        conn.write("next");
        conn.switch(echo);
        Ok(())
    });
    pair.send(&request);
    assert_eq!(pair.receive(4), "next");
    assert_eq!(pair.receive(499).len(), 499, "the next one takes the rest");
}
