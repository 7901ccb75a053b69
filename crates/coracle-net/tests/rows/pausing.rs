//! Rows E6 and E7: what must not get lost around a pause; and connections that reach for each other.

use crate::harness::Harness;
use crate::peers::{Notes, Noting, Pair};
use crate::sample_layers::Xor;
use coracle_loop::demux::Operation;
use coracle_net::{Buffer, Conn, Layered, Settings, attach};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

pub(crate) fn e7_end_that_comes_during_a_pause_is_told_after_the_input(h: &Harness) {
    let came: Rc<RefCell<Vec<u8>>> = Rc::default();
    let (slot, first) = (Rc::clone(&came), Cell::new(true));
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        if first.replace(false) {
            conn.pause(); // and leaves all of it for later
        } else {
            slot.borrow_mut().extend_from_slice(input.take_all());
        }
        Ok(())
    });
    let socket = pair.client;
    let end = Operation::Shutdown { socket, how: Shutdown::Write };
    let mut then = Some(end);
    let next = if h.is_simulated() { None } else { then.take() }; // it may let the end overtake the bytes
    let send = Operation::Send { socket, payload: b"last words".to_vec().into() };
    h.lp.operate(send, move |lp, _| {
        then.into_iter().for_each(|end| drop(lp.operate(end, |_, _| ())));
    });
    // Elsewhere both are there before the server has looked once.
    next.into_iter().for_each(|end| drop(h.lp.operate(end, |_, _| ())));
    pair.run_until_noted("data");
    h.run_for(Duration::from_millis(50));
    assert_eq!(*pair.notes.borrow(), ["open", "data"], "paused is paused");
    pair.server.run(
        |conn| {
            conn.resume();
            Ok(())
        },
        || panic!("it is there"),
    );
    assert_eq!(pair.receive_all(), b"");
    assert_eq!(came.borrow().escape_ascii().to_string(), "last words");
    assert_eq!(pair.over(), ["open", "data", "end", "close: closed"]);
}

pub(crate) fn e7_what_was_left_is_shown_again_though_nothing_is_read(h: &Harness) {
    let seen: Rc<RefCell<Vec<String>>> = Rc::default();
    let slot = Rc::clone(&seen);
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        conn.pause();
        slot.borrow_mut().push(String::from_utf8_lossy(input.unread()).into_owned());
        if slot.borrow().len() > 1 {
            input.consume(3);
        }
        Ok(())
    });
    let again = |count: usize| {
        pair.server.with(&h.lp, |conn| conn.show_again());
        h.run_until(&seen, move |seen| seen.borrow().len() == count);
    };
    pair.send(b"abcdef");
    h.run_until(&seen, |seen| seen.borrow().concat() == "abcdef");
    pair.send(b"ghi"); // which is not received
    again(2);
    again(3);
    assert_eq!(*seen.borrow(), ["abcdef", "abcdef", "def"]);
    pair.server.with(&h.lp, |conn| conn.show_again()); // of nothing
    h.run_for(Duration::from_millis(5));
    assert_eq!(seen.borrow().len(), 3);
    pair.server.with(&h.lp, |conn| conn.resume());
    h.run_until(&seen, |seen| seen.borrow().len() == 4);
    assert_eq!(seen.borrow()[3], "ghi");
}

pub(crate) fn e6_full_connection_is_read_if_asked_for(h: &Harness) {
    let settings = Settings {
        read_when_full: true,
        high_mark_bytes: 1 << 10,
        low_mark_bytes: 0,
        limit_output_bytes: 64 << 20,
        ..Settings::default()
    };
    let received = Rc::new(Cell::new(0));
    let count = Rc::clone(&received);
    let pair = Pair::new(h, settings, move |conn, input| {
        if count.get() == 0 {
            conn.write(vec![b'a'; 32 << 20]); // more than any socket takes
        }
        count.set(count.get() + input.take_all().len());
        Ok(())
    });
    let total = 8 << 20; // likewise: it is taken only if it is read
    pair.send(&vec![b'q'; total]);
    h.run_until(&received, move |received| received.get() == total);
    assert_eq!(h.receive(pair.client, 32 << 20).len(), 32 << 20);
}

pub(crate) fn connection_in_its_own_callback_is_out_of_reach(h: &Harness) {
    let reached = Rc::new(Cell::new(false));
    let slot = Rc::clone(&reached);
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        let own = conn.handle();
        conn.abort();
        slot.set(own.with(conn.lp(), |_| ()).is_some());
        assert!(conn.peer_address().is_ok(), "nothing is done before the callback returns");
        Ok(())
    });
    pair.send(b"x");
    assert_eq!(pair.over(), ["open", "data", "close: aborted"]);
    assert!(!reached.get());
}

pub(crate) fn connection_reaches_another_of_its_loop(h: &Harness) {
    let (client, socket) = h.connection();
    let quiet = |_: &mut coracle_net::Conn<'_>, _: &mut coracle_net::Buffer| Ok(());
    let other = attach(&h.lp, socket, Settings::default(), quiet).expect("attach");
    let notes = Notes::default();
    let heard = Rc::clone(&notes);
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        conn.write("own ");
        let text = input.take_all().to_vec();
        let sent = other.with(conn.lp(), |other| other.write(text));
        heard.borrow_mut().push(format!("{sent:?}"));
        conn.write("words");
        Ok(())
    });
    pair.send(b"for the other");
    assert_eq!(h.receive(client, 13), b"for the other");
    assert_eq!(pair.receive(9), "own words", "what one writes is not the other's");
    assert_eq!(*notes.borrow(), ["Some(())"]);
}

pub(crate) fn h1_callback_does_something_with_another_connection(h: &Harness) {
    let quiet = |_: &mut coracle_net::Conn<'_>, _: &mut coracle_net::Buffer| Ok(());
    let (client, socket) = h.connection();
    let marks = Settings { high_mark_bytes: 8, low_mark_bytes: 4, ..Settings::default() };
    let other = attach(&h.lp, socket, marks, quiet).expect("attach");
    let lp = h.builder().build().expect("a loop");
    let (_peer, socket) = lp.socket_pair().expect("a pair");
    let far = attach(&lp, socket, Settings::default(), quiet).expect("attach");
    let notes = Notes::default();
    let (heard, to) = (Rc::clone(&notes), other.clone());
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        let room = conn.with(&to, |other| {
            let before = other.writable();
            other.write_slice(input.take_all());
            (before, other.writable())
        });
        let own = conn.with(&conn.handle(), |_| ());
        let far = conn.with(&far, |_| ());
        heard.borrow_mut().push(format!("{room:?} {own:?} {far:?}"));
        input.take_all();
        Ok(())
    });
    pair.send(b"ahoy");
    assert_eq!(h.receive(client, 4), b"ahoy");
    pair.send(b"more than eight");
    assert_eq!(h.receive(client, 15), b"more than eight");
    other.with(&h.lp, |other| other.abort()).expect("it is open");
    pair.send(b"to nobody");
    h.run_until(&notes, |notes| notes.borrow().len() == 3);
    let expected =
        ["Some((true, true)) None None", "Some((true, false)) None None", "None None None"];
    assert_eq!(*notes.borrow(), expected);
}

pub(crate) fn e7_peer_that_is_ahead_of_a_paused_protocol_is_not_punished(h: &Harness) {
    let serve = |settings, protocol| {
        let notes = Notes::default();
        Pair::with(h, settings, Noting { notes: Rc::clone(&notes), on_data: protocol }, notes)
    };
    is_not_punished(h, serve);
    let serve = |settings, protocol| {
        let notes = Notes::default();
        let protocol = Noting { notes: Rc::clone(&notes), on_data: protocol };
        Pair::with(h, settings, Layered::new(Xor, protocol), notes)
    };
    is_not_punished(h, serve);
    // Who is not paused, and leaves so much, has a message that is too long.
    let settings = Settings { limit_input_bytes: 2000, ..Settings::default() };
    let pair = Pair::new(h, settings, |_, _| Ok(()));
    pair.send(&vec![b'm'; 3000]);
    let notes = pair.over();
    assert_eq!(notes.last().unwrap(), "close: the peer sent more than any message may have");
}

type OnData = Box<dyn FnMut(&mut Conn<'_>, &mut Buffer) -> io::Result<()>>;

fn is_not_punished<'a>(h: &Harness, serve: impl Fn(Settings, OnData) -> Pair<'a>) {
    // One message at a time, and a pause after each. Much more than may wait has come by then.
    const MESSAGES: usize = 64;
    let settings = Settings { limit_input_bytes: 2000, ..Settings::default() };
    let count = Rc::new(Cell::new(0));
    let taken = Rc::clone(&count);
    let on_data = move |conn: &mut Conn<'_>, input: &mut Buffer| {
        if input.take_exact(1000).is_none() {
            return Ok(());
        }
        taken.set(taken.get() + 1);
        conn.pause();
        let handle = conn.handle();
        conn.lp().after(Duration::from_millis(1), move |lp| {
            handle.with(lp, |conn| conn.resume());
        });
        Ok(())
    };
    let pair = serve(settings, Box::new(on_data));
    let payload = vec![b'm'; MESSAGES * 1000].into();
    h.lp.operate(Operation::Send { socket: pair.client, payload }, |_, _| ());
    let (notes, all) = (Rc::clone(&pair.notes), Rc::clone(&count));
    h.run_until(&all, move |count| count.get() == MESSAGES || notes.borrow().len() > 2);
    assert_eq!((count.get(), pair.notes.borrow().len()), (MESSAGES, 2), "{:?}", pair.notes);
}
