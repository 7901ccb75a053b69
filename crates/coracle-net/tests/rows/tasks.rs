//! Rows G2, H1 and H4: reaching a connection from elsewhere or later, and work done elsewhere for a connection.

use crate::harness::Harness;
use crate::peers::{Pair, echo};
use coracle_net::{Conn, Settings, attach};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) fn h1_task_runs_on_its_connection(h: &Harness) {
    let a = Pair::new(h, Settings::default(), echo);
    let b = Pair::new(h, Settings::default(), echo);
    let handle = b.server.clone();
    let poster = move || {
        handle.run(
            |conn| {
                conn.write("from elsewhere");
                Ok(())
            },
            || panic!("it is there"),
        );
    };
    if h.is_simulated() {
        poster();
    } else {
        std::thread::spawn(poster).join().expect("it posts");
    }
    assert_eq!(b.receive(14), "from elsewhere");
    a.send(b"untouched");
    assert_eq!(a.receive(9), "untouched");
}

pub(crate) fn h1_task_of_a_connection_that_is_gone_falls_back(h: &Harness) {
    let pair = Pair::new(h, Settings::default(), echo);
    pair.close();
    pair.over();
    let gone = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&gone);
    pair.server.run(
        |_| panic!("it is gone"),
        move || {
            count.fetch_add(1, Ordering::SeqCst);
        },
    );
    h.run_until(&gone, |gone| gone.load(Ordering::SeqCst) > 0);
    h.run_for(Duration::from_millis(1));
    assert_eq!(gone.load(Ordering::SeqCst), 1);
}

pub(crate) fn h1_task_of_a_loop_that_is_gone_falls_back(h: &Harness) {
    let lp = h.builder().build().expect("a loop");
    let (_client, server) = lp.socket_pair().expect("a pair");
    let handle = attach(&lp, server, Settings::default(), echo).expect("attach");
    drop(lp);
    let gone = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&gone);
    handle.run(
        |_| panic!("it is gone"),
        move || {
            count.fetch_add(1, Ordering::SeqCst);
        },
    );
    assert_eq!(gone.load(Ordering::SeqCst), 1);
}

pub(crate) fn g2_answers_of_offloaded_work_keep_their_order(h: &Harness) {
    let pair = Pair::new(h, Settings::default(), |conn, input| {
        while let Some(line) = input.take_line() {
            let number: u64 = String::from_utf8_lossy(line).parse().expect("a number");
            conn.offload(
                move || {
                    std::thread::sleep(Duration::from_millis(10 - number)); // the first takes longest
                    number
                },
                |conn, number| {
                    conn.write(format!("{} ", number.expect("no panic")));
                    Ok(())
                },
            )?;
        }
        Ok(())
    });
    pair.send(b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    assert_eq!(pair.receive(20), "0 1 2 3 4 5 6 7 8 9 ");
}

pub(crate) fn g2_connection_that_closes_sends_the_answers_first(h: &Harness) {
    let pair = Pair::new(h, Settings::default(), |conn, input| {
        input.take_all();
        for number in 0..3 {
            conn.offload(
                move || {
                    std::thread::sleep(Duration::from_millis(5));
                    number
                },
                |conn, number| {
                    conn.write(format!("{} ", number.expect("no panic")));
                    Ok(())
                },
            )?;
        }
        Ok(())
    });
    pair.send(b"x");
    pair.end(); // and on_end closes while they are being worked on
    assert_eq!(pair.receive_all(), b"0 1 2 ");
    assert_eq!(pair.over(), ["open", "data", "end", "close: closed"]);
}

/// Offloads three pieces of work, each answered by its number.
fn offload_three(conn: &mut Conn<'_>) -> io::Result<()> {
    for number in 0..3 {
        conn.offload(
            move || {
                std::thread::sleep(Duration::from_millis(5));
                number
            },
            |conn, number| {
                conn.write(format!("{} ", number.expect("no panic")));
                Ok(())
            },
        )?;
    }
    Ok(())
}

pub(crate) fn g2_our_side_ends_after_the_answers(h: &Harness) {
    let pair = Pair::new(h, Settings::default(), |conn, input| {
        if input.take_line().is_some() {
            offload_three(conn)?;
            conn.close_write();
        }
        Ok(())
    });
    pair.send(b"x\n");
    assert_eq!(pair.receive_all(), b"0 1 2 ");
    // The other direction is open still.
    pair.notes.borrow_mut().clear();
    pair.send(b"more");
    pair.run_until_noted("data");
    pair.end();
    assert_eq!(pair.over().last().unwrap(), "close: closed");
}

pub(crate) fn g2_what_is_written_after_the_end_is_not_sent_with_the_answers(h: &Harness) {
    for half in [true, false] {
        let pair = Pair::new(h, Settings::default(), move |conn, input| {
            input.take_all();
            conn.write("first ");
            offload_three(conn)?;
            if half {
                conn.close_write();
            } else {
                conn.close();
            }
            conn.write("never sent");
            Ok(())
        });
        pair.send(b"x");
        assert_eq!(pair.receive_all(), b"first 0 1 2 ", "half: {half}");
        pair.end();
        assert_eq!(pair.over().last().unwrap(), "close: closed");
    }
}

pub(crate) fn h4_something_is_done_later_and_every_so_often(h: &Harness) {
    const LATER: Duration = Duration::from_millis(20);
    let pair = Pair::new(h, Settings::default(), |conn, input| {
        input.take_all();
        let (later, often) = (conn.handle(), conn.handle());
        conn.lp().after(LATER, move |_| later.write("later "));
        conn.lp().repeat(Duration::from_millis(5), 3, move |_| often.write("tick "), |_| ());
        Ok(())
    });
    let start = h.lp.now();
    pair.send(b"x");
    let text = pair.receive(21);
    assert!(h.lp.now() - start >= LATER, "not early");
    assert_eq!((text.matches("tick ").count(), text.matches("later ").count()), (3, 1), "{text}");
}

pub(crate) fn i1_panic_of_a_fallback_ends_nothing_else(h: &Harness) {
    let gone = Pair::new(h, Settings::default(), echo);
    gone.close();
    gone.over();
    h.run_for(Duration::from_millis(1));
    let other = Pair::new(h, Settings::default(), echo);
    let called = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&called);
    gone.server.run(
        |_| Ok(()),
        move || {
            count.fetch_add(1, Ordering::SeqCst);
            std::panic::resume_unwind(Box::new("on purpose"));
        },
    );
    h.run_until(&called, |called| called.load(Ordering::SeqCst) == 1);
    other.send(b"still there");
    assert_eq!(other.receive(11), "still there");
}
