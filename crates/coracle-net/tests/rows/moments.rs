//! Rows E7, E12, H1, I1, I2, I5: inconvenient moments. Two connections in one callback, an end in the middle of a
//! handover, a panic where nobody expects one.

use crate::harness::Harness;
use crate::peers::{Notes, Noting, Pair, echo};
use coracle_loop::demux::sim::Faults;
use coracle_loop::demux::{Address, Operation, SocketKind, SocketOption};
use coracle_net::{Buffer, Conn, ConnHandle, Listener, Protocol, Settings, attach};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

pub(crate) fn h1_two_connections_in_one_callback_keep_their_bytes_apart(h: &Harness) {
    let other = Pair::new(h, Settings::default(), echo);
    let handle = other.server.clone();
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        let lp = conn.lp().clone();
        for _ in 0..100 {
            conn.write_slice(b"one ");
            let done = handle.with(&lp, |other| {
                other.write_slice(b"for the other ");
                conn.write_slice(b"two ");
                assert!(conn.output_bytes() >= 4, "what waits is counted");
            });
            assert!(done.is_some(), "the other is not in a callback");
            conn.write_slice(b"three ");
        }
        conn.close();
        Ok(())
    });
    pair.send(b"x");
    assert_eq!(String::from_utf8_lossy(&pair.receive_all()), "one two three ".repeat(100));
    let all = "for the other ".repeat(100);
    assert_eq!(other.receive(all.len()), all);
}

pub(crate) fn i1_connection_opened_inside_a_callback_gets_none_of_its_bytes(h: &Harness) {
    struct Greeting;
    impl Protocol for Greeting {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            conn.write("hello");
            Ok(())
        }
        fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
            Ok(())
        }
    }
    let (client, socket) = h.connection();
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        conn.write("mine ");
        attach(conn.lp(), socket, Settings::default(), Greeting)?;
        conn.write("still mine");
        conn.close();
        Ok(())
    });
    pair.send(b"x");
    assert_eq!(String::from_utf8_lossy(&pair.receive_all()), "mine still mine");
    assert_eq!(h.receive(client, 5), b"hello");
}

pub(crate) fn h1_connection_in_its_own_callback_is_not_called_again(h: &Harness) {
    let own: Rc<RefCell<Option<ConnHandle>>> = Rc::default();
    let handle = Rc::clone(&own);
    let called = Rc::new(Cell::new(false));
    let flag = Rc::clone(&called);
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        conn.abort();
        let handle = handle.borrow();
        let inner = handle.as_ref().expect("it is there").with(conn.lp(), |_| flag.set(true));
        assert!(inner.is_none(), "not inside its own callback");
        Ok(())
    });
    *own.borrow_mut() = Some(pair.server.clone());
    pair.send(b"x");
    assert_eq!(pair.over(), ["open", "data", "close: aborted"]);
    assert!(!called.get());
}

pub(crate) fn i2_switch_after_the_end_is_told_the_end(h: &Harness) {
    struct Patient(Notes);
    impl Protocol for Patient {
        fn on_data(&mut self, _: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            input.take_all();
            Ok(())
        }
        fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            self.0.borrow_mut().push("first end".to_owned());
            conn.switch(Noting { notes: Rc::clone(&self.0), on_data: echo });
            Ok(())
        }
    }
    let notes = Notes::default();
    let pair = Pair::with(h, Settings::default(), Patient(Rc::clone(&notes)), notes);
    pair.send(b"x");
    pair.end();
    assert_eq!(pair.receive_all(), b"");
    assert_eq!(pair.over(), ["first end", "open", "end", "close: closed"]);
}

pub(crate) fn i2_switch_when_something_was_sent_comes_before_the_next_bytes(h: &Harness) {
    struct Loud;
    impl Protocol for Loud {
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            conn.write(input.take_all().to_ascii_uppercase());
            Ok(())
        }
    }
    // More than a socket takes, so that the last of it is sent much later.
    let len = 6 << 20;
    let pair = Pair::new(
        h,
        Settings { limit_output_bytes: 16 << 20, ..Settings::default() },
        move |conn, input| {
            if input.take_line().is_some() {
                conn.write_then(vec![b'.'; len], |conn| {
                    conn.switch(Loud);
                    Ok(())
                });
            }
            Ok(())
        },
    );
    pair.send(b"switch\n");
    assert_eq!(h.receive(pair.client, len).len(), len);
    pair.send(b"ahoy");
    assert_eq!(pair.receive(4), "AHOY");
}

pub(crate) fn e7_end_is_not_told_before_the_bytes_that_came_before_it(h: &Harness) {
    // A kernel that has three bytes and the end of the stream ready at once, each by itself.
    let faults = Faults { early: 1.0, lent_buffer_bytes: 1, ..Faults::none() };
    let h = &h.simulated(faults);
    let read: Rc<RefCell<Vec<u8>>> = Rc::default();
    let bytes = Rc::clone(&read);
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        let first = bytes.borrow().is_empty();
        bytes.borrow_mut().extend_from_slice(input.take_all());
        if first {
            conn.pause();
        }
        Ok(())
    });
    // Not one after the other: the loop must not have its turn in between.
    assert_eq!(h.lp.try_send(pair.client, b"abc").expect("a send"), 3);
    pair.end();
    h.run_for(Duration::from_millis(1));
    assert_eq!(*pair.notes.borrow(), ["open", "data"], "paused");
    let resume = |conn: &mut Conn<'_>| {
        conn.resume();
        Ok(())
    };
    pair.server.run(resume, || panic!("it is there"));
    assert_eq!(pair.over(), ["open", "data", "end", "close: closed"]);
    assert_eq!(*read.borrow(), b"abc");
}

pub(crate) fn i5_hijack_survives_the_end_of_the_stream(h: &Harness) {
    for _ in 0..20 {
        let taken: Rc<RefCell<Option<Vec<u8>>>> = Rc::default();
        let slot = Rc::clone(&taken);
        let pair = Pair::new(h, Settings::default(), move |conn, input| {
            input.take_exact(1);
            let slot = Rc::clone(&slot);
            conn.hijack(move |lp, socket, mut input| {
                *slot.borrow_mut() = Some(input.take_all().to_vec());
                lp.operate(Operation::Close { handle: socket }, |_, _| ());
            });
            Ok(())
        });
        pair.send(b"x");
        pair.end();
        h.run_until(&taken, |taken| taken.borrow().is_some());
        assert_eq!(*pair.notes.borrow(), ["open", "data"], "the end is for who has the socket");
        pair.close();
    }
}

pub(crate) fn i5_panic_of_a_taker_closes_the_socket(h: &Harness) {
    let pair = Pair::new(h, Settings::default(), |conn, input| {
        input.take_all();
        conn.hijack(|_, _, _| std::panic::resume_unwind(Box::new("on purpose")));
        Ok(())
    });
    pair.send(b"x");
    assert_eq!(pair.receive_all(), b"");
}

pub(crate) fn e12_what_follows_a_write_is_sent_while_it_closes(h: &Harness) {
    fn go_on(conn: &mut Conn<'_>, left: u32) {
        if left > 0 {
            conn.write_then(vec![b'0' + left as u8; 1 << 20], move |conn| {
                go_on(conn, left - 1);
                Ok(())
            });
        }
    }
    let pair = Pair::new(h, Settings::default(), |conn, input| {
        input.take_all();
        go_on(conn, 5);
        conn.close();
        conn.write("never sent");
        Ok(())
    });
    pair.send(b"x");
    assert_eq!(pair.receive_all().len(), 5 << 20);
    pair.close();
    assert_eq!(pair.over().last().unwrap(), "close: closed");
}

pub(crate) fn e12_small_answer_that_finds_no_room_is_not_lost(h: &Harness) {
    // The peer has ended its side and reads nothing. Small answers, one in each callback, until one of them is on
    // its way and has no room: it is not the connection's any more, and nothing else keeps the socket.
    struct Open(Rc<Cell<bool>>);
    impl Protocol for Open {
        fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
            Ok(())
        }
        fn on_end(&mut self, _: &mut Conn<'_>) -> io::Result<()> {
            self.0.set(true);
            Ok(())
        }
    }
    const ANSWER: usize = 4000;
    let ended = Rc::new(Cell::new(false));
    let (client, socket) = h.connection();
    h.lp.set_option(socket, SocketOption::SendBuffer(4 << 10)).expect("an option");
    let server = attach(&h.lp, socket, Settings::default(), Open(Rc::clone(&ended)));
    let server = server.expect("attach");
    let end = Operation::Shutdown { socket: client, how: Shutdown::Write };
    h.operate(end).result.expect("shutdown");
    h.run_until(&ended, |ended| ended.get());
    let (mut count, mut waiting) = (0, 0);
    while waiting == 0 {
        if is_carrying(h) {
            h.run_for(Duration::from_millis(30)); // the network may find some room yet
        }
        if is_carrying(h) {
            break;
        }
        count += 1;
        server.with(&h.lp, |conn| conn.write_slice(&[b'a'; ANSWER])).expect("it is open");
        waiting = server.with(&h.lp, |conn| conn.output_bytes()).expect("it is open");
        h.run_for(Duration::from_millis(1));
    }
    server.with(&h.lp, |conn| conn.close()).expect("it is open");
    h.run_for(Duration::from_millis(20)); // in which nothing may be given up
    assert_eq!(h.receive(client, usize::MAX >> 1).len(), count * ANSWER);
    h.close(client);
}

/// Whether the loop has more to do than operations: sends that it carries for somebody who was told they are sent.
fn is_carrying(h: &Harness) -> bool {
    let dump = h.lp.dump();
    let count =
        dump.split(": ").nth(1).and_then(|text| text.split(' ').next()?.parse::<usize>().ok());
    count.expect("a number of operations") > dump.matches("\noperation ").count()
}

pub(crate) fn endless_writer_leaves_others_their_turn(h: &Harness) {
    fn go_on(conn: &mut Conn<'_>, left: u32, seen: Rc<Cell<Option<u32>>>, turn: Rc<Cell<bool>>) {
        if turn.get() && seen.get().is_none() {
            seen.set(Some(left));
        }
        if left > 0 {
            conn.write_then("x", move |conn| {
                go_on(conn, left - 1, seen, turn);
                Ok(())
            });
        }
    }
    let (seen, turn) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(false)));
    let (slot, other) = (Rc::clone(&seen), Rc::clone(&turn));
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        let flag = Rc::clone(&other);
        conn.lp().defer(move |_| flag.set(true));
        go_on(conn, 5000, Rc::clone(&slot), Rc::clone(&other));
        Ok(())
    });
    pair.send(b"x");
    assert_eq!(pair.receive(5000).len(), 5000);
    assert!(seen.get().is_some_and(|left| left > 1000), "others had to wait: {:?}", seen.get());
}

pub(crate) fn i1_panic_of_the_maker_ends_that_connection_only(h: &Harness) {
    let first = Cell::new(true);
    let any: Address = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(&h.lp, &any, Settings::default(), move |_| {
        if first.replace(false) {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        echo as fn(&mut Conn<'_>, &mut Buffer) -> io::Result<()>
    })
    .expect("it listens");
    let address = listener.local_address(&h.lp).expect("an address");
    let connect = || {
        let socket = h.lp.socket(SocketKind::Tcp4).expect("a socket");
        let operation = Operation::Connect { socket, address: address.clone() };
        h.operate(operation).result.expect("it connects");
        socket
    };
    let unlucky = connect();
    assert_eq!(h.receive(unlucky, 1), b"", "it is closed");
    let next = connect();
    h.send(next, b"ahoy");
    assert_eq!(h.receive(next, 4), b"ahoy");
    assert_eq!((listener.stats().panics, listener.stats().open()), (1, 1));
}
