//! Rows E5, F11, F12 and I: what a protocol is told, and what it can ask for.

use crate::harness::Harness;
use crate::peers::{Notes, Pair, echo, receive_some};
use coracle_loop::demux::{Address, Descriptor, Handle};
use coracle_net::{
    Buffer, Conn, KeepAlive, Protocol, Reason, Settings, SocketOption, TcpInfo, attach,
};
use rustix::net::sockopt;
use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

pub(crate) fn i1_callbacks_come_in_order_and_the_last_is_on_close(h: &Harness) {
    let pair = Pair::new(h, Settings::default(), echo);
    pair.send(b"ahoy");
    assert_eq!(pair.receive(4), "ahoy");
    pair.end();
    assert_eq!(pair.receive_all(), b"");
    assert_eq!(pair.over(), ["open", "data", "end", "close: closed"]);
}

pub(crate) fn i1_error_of_a_callback_closes_after_what_was_written(h: &Harness) {
    let pair = Pair::new(h, Settings::default(), |conn, input| {
        input.take_all();
        conn.write("last words");
        Err(io::Error::other("no more"))
    });
    pair.send(b"x");
    assert_eq!(pair.receive_all(), b"last words");
    pair.close();
    assert_eq!(pair.over(), ["open", "data", "close: closed by the protocol: no more"]);
}

pub(crate) fn i1_panic_closes_that_connection_only(h: &Harness) {
    let other = Pair::new(h, Settings::default(), echo);
    let pair = Pair::new(h, Settings::default(), |_, input| {
        input.take_all();
        resume_unwind(Box::new("on purpose"));
    });
    pair.send(b"x");
    assert_eq!(pair.over(), ["open", "data", "close: the protocol panicked"]);
    other.send(b"still there");
    assert_eq!(other.receive(11), "still there");
}

pub(crate) fn i1_panic_that_is_caught_loses_nothing_that_was_written_before(h: &Harness) {
    let pair = Pair::new(h, Settings::default(), |conn, input| {
        input.take_all();
        conn.write("before, ");
        let panicking = AssertUnwindSafe(|| {
            conn.write_with(|out| {
                out.push(b"half of");
                resume_unwind(Box::new("on purpose"));
            });
        });
        catch_unwind(panicking).expect_err("it panics");
        conn.write("after");
        Ok(())
    });
    pair.send(b"x");
    assert_eq!(pair.receive(13), "before, after");
}

pub(crate) fn i1_function_is_a_protocol(h: &Harness) {
    let (client, socket) = h.connection();
    attach(&h.lp, socket, Settings::default(), |conn: &mut Conn<'_>, input: &mut Buffer| {
        conn.write(input.take_all());
        Ok(())
    })
    .expect("attach");
    h.send(client, b"ahoy");
    assert_eq!(h.receive(client, 4), b"ahoy");
}

pub(crate) fn e5_half_a_message_stays_for_the_next_time(h: &Harness) {
    let pair = Pair::new(h, Settings::default(), |conn, input| {
        while let Some(line) = input.take_line() {
            let answer = format!("<{}>", String::from_utf8_lossy(line));
            conn.write(answer);
        }
        Ok(())
    });
    for byte in b"one\r\ntw" {
        pair.send(&[*byte]);
    }
    assert_eq!(pair.receive(5), "<one>");
    pair.send(b"o\nthree\n");
    assert_eq!(pair.receive(12), "<two><three>");
}

pub(crate) fn e5_protocol_that_keeps_its_input_starves_nobody(h: &Harness) {
    let kept: Rc<RefCell<Vec<Buffer>>> = Rc::default();
    let keep = Rc::clone(&kept);
    let keeper = Pair::new(h, Settings::default(), move |conn, input| {
        conn.write(vec![b'.'; input.len()]);
        keep.borrow_mut().push(std::mem::take(input));
        Ok(())
    });
    for number in 0..600 {
        keeper.send(format!("{number:3}").as_bytes());
        assert_eq!(keeper.receive(3), "...");
    }
    let other = Pair::new(h, Settings::default(), echo);
    other.send(b"ahoy");
    assert_eq!(other.receive(4), "ahoy");
    let all: Vec<u8> = kept.borrow().iter().flat_map(|it| it.unread().to_vec()).collect();
    let expected: String = (0..600).map(|number| format!("{number:3}")).collect();
    assert_eq!(String::from_utf8_lossy(&all), expected);
}

pub(crate) fn e5_message_beyond_the_limit_ends_the_connection(h: &Harness) {
    let settings = Settings { limit_input_bytes: 100, ..Settings::default() };
    let pair = Pair::new(h, settings, |_, _| Ok(()));
    pair.send(&[b'x'; 100]);
    pair.run_until_noted("data");
    assert_eq!(pair.notes.borrow().last().unwrap(), "data", "the limit is not reached");
    pair.send(b"y");
    assert_eq!(
        pair.over(),
        ["open", "data", "close: the peer sent more than any message may have"]
    );
}

pub(crate) fn i2_switch_hands_over_what_is_left(h: &Harness) {
    struct Upper;
    impl Protocol for Upper {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            conn.write("switched ");
            Ok(())
        }
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            let loud = input.take_all().to_ascii_uppercase();
            conn.write(loud);
            Ok(())
        }
    }
    let pair = Pair::new(h, Settings::default(), |conn, input| {
        if input.take_line() == Some(b"SWITCH") {
            conn.switch(Upper);
        }
        Ok(())
    });
    pair.send(b"SWITCH\nahoy");
    assert_eq!(pair.receive(13), "switched AHOY");
    pair.send(b" there");
    assert_eq!(pair.receive(6), " THERE");
    assert!(!pair.notes.borrow().iter().any(|note| note.starts_with("close")), "it goes on");
}

pub(crate) fn i3_state_is_dropped_with_its_connection(h: &Harness) {
    struct Stateful(Rc<Cell<u32>>);
    impl Protocol for Stateful {
        fn on_data(&mut self, _: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            input.take_all();
            Ok(())
        }
        fn on_close(&mut self, _: &Reason) {
            self.0.set(self.0.get() + 1);
        }
    }
    impl Drop for Stateful {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 10);
        }
    }
    let count = Rc::new(Cell::new(0));
    let (client, socket) = h.connection();
    attach(&h.lp, socket, Settings::default(), Stateful(Rc::clone(&count))).expect("attach");
    h.close(client);
    h.run_until(&count, |count| count.get() >= 11);
    assert_eq!(count.get(), 11, "closed once, dropped once");
}

pub(crate) fn i5_hijack_comes_after_the_output_and_with_the_rest_of_the_input(h: &Harness) {
    let taken = Rc::new(RefCell::new(None::<(Handle, Vec<u8>)>));
    let slot = Rc::clone(&taken);
    let answer = vec![b'a'; 3 << 20]; // more than a socket takes
    let len = answer.len();
    let pair = Pair::new(
        h,
        Settings { limit_output_bytes: 8 << 20, ..Settings::default() },
        move |conn, input| {
            input.take_exact(1);
            conn.write(answer.clone());
            let slot = Rc::clone(&slot);
            conn.hijack(move |_, socket, mut input| {
                *slot.borrow_mut() = Some((socket, input.take_all().to_vec()));
            });
            Ok(())
        },
    );
    pair.send(b"xleft");
    assert_eq!(h.receive(pair.client, len).len(), len);
    h.run_until(&taken, |taken| taken.borrow().is_some());
    let (socket, left) = taken.take().expect("it was taken");
    assert_eq!(left, b"left");
    // The socket is the taker's: it works, and the old protocol hears nothing.
    pair.send(b"raw");
    assert_eq!(receive_some(h, socket, 16), b"raw");
    assert!(!pair.notes.borrow().iter().any(|note| note.starts_with("close")));
    h.close(socket);
}

pub(crate) fn i5_foreign_descriptor_becomes_a_connection(h: &Harness) {
    // Simulated, of another loop; otherwise of somebody who knows nothing of loops.
    let elsewhere = h.builder().build().expect("a loop");
    let (ours, theirs) = if h.is_simulated() {
        let (a, b) = elsewhere.socket_pair().expect("a pair");
        let detach = |handle| elsewhere.detach(handle).expect("nothing is in flight on it");
        (detach(a), detach(b))
    } else {
        let (a, b) = std::os::unix::net::UnixStream::pair().expect("a pair");
        (std::os::fd::OwnedFd::from(a).into(), std::os::fd::OwnedFd::from(b).into())
    };
    let [ours, theirs] = [ours, theirs].map(|it| h.lp.adopt(it).expect("it is adopted"));
    attach(&h.lp, ours, Settings::default(), echo).expect("attach");
    h.send(theirs, b"ahoy");
    assert_eq!(h.receive(theirs, 4), b"ahoy");
    h.close(theirs);
}

pub(crate) fn f12_addresses_are_told(h: &Harness) {
    let told: Rc<RefCell<Option<(Address, Address)>>> = Rc::default();
    let slot = Rc::clone(&told);
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        *slot.borrow_mut() = Some((conn.peer_address()?, conn.local_address()?));
        Ok(())
    });
    pair.send(b"who?");
    h.run_until(&told, |told| told.borrow().is_some());
    let (peer, local) = told.take().expect("told");
    assert_eq!(peer, h.lp.local_address(pair.client).unwrap());
    assert_eq!(local, h.lp.peer_address(pair.client).unwrap());
}

pub(crate) fn f12_what_the_kernel_knows_is_told(h: &Harness) {
    let told: Rc<RefCell<Option<io::Result<TcpInfo>>>> = Rc::default();
    let slot = Rc::clone(&told);
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        if input.take_line() == Some(b"how far?") {
            *slot.borrow_mut() = Some(conn.tcp_info());
        }
        echo(conn, input)
    });
    pair.send(b"x");
    assert_eq!(pair.receive(1), "x");
    pair.send(b"how far?\n");
    h.run_until(&told, |told| told.borrow().is_some());
    match told.take().expect("told") {
        Ok(info) => {
            assert!(info.rtt > Duration::ZERO && info.rtt < Duration::from_secs(60), "{info:?}");
            assert!(info.congestion_window > 0 && info.maximum_segment_bytes > 0, "{info:?}");
            assert!(info.retransmission_timeout >= info.rtt, "{info:?}");
        }
        Err(error) => {
            assert!(h.is_simulated(), "{error}");
            assert_eq!(
                error.kind(),
                io::ErrorKind::Unsupported,
                "a simulated network has no packets"
            );
        }
    }
}

pub(crate) fn f11_option_is_set_on_a_live_connection(h: &Harness) {
    let socket: Rc<RefCell<Option<Descriptor>>> = Rc::default();
    let slot = Rc::clone(&socket);
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        let minute = Duration::from_secs(60);
        let probes = KeepAlive { interval: Some(minute * 2), ..KeepAlive::from(minute * 3) };
        conn.set_option(SocketOption::KeepAlive(Some(probes)))?;
        conn.set_option(SocketOption::NoDelay(true))?;
        let slot = Rc::clone(&slot);
        conn.hijack(move |lp, socket, _| *slot.borrow_mut() = lp.detach(socket).ok());
        Ok(())
    });
    pair.send(b"x");
    h.run_until(&socket, |socket| socket.borrow().is_some());
    let Some(Descriptor::Os(socket)) = socket.take() else {
        return assert!(h.is_simulated(), "only there are descriptors of another kind");
    };
    assert!(sockopt::socket_keepalive(&socket).unwrap() && sockopt::tcp_nodelay(&socket).unwrap());
    assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), Duration::from_secs(180));
    assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap(), Duration::from_secs(120));
}

pub(crate) fn i4_idle_connection_is_closed_on_time(h: &Harness) {
    // A real clock is held to "never early".
    let timeout = Duration::from_millis(if h.is_simulated() { 2000 } else { 100 });
    let settings = Settings { idle_timeout: Some(timeout), ..Settings::default() };
    let pair = Pair::new(h, settings, echo);
    let start = h.lp.now();
    pair.send(b"x");
    assert_eq!(pair.receive(1), "x");
    let last = h.lp.now();
    assert_eq!(pair.receive_all(), b"");
    let closed = h.lp.now();
    assert!(closed - start >= timeout, "early: {:?}", closed - start);
    let late = closed - last > timeout + Duration::from_millis(100);
    assert!(!h.is_simulated() || !late, "late: {:?}", closed - last);
    pair.close();
    assert_eq!(pair.over().last().unwrap(), "close: closed");
}

pub(crate) fn i4_idle_connection_may_be_asked_instead(h: &Harness) {
    struct Asking(u32);
    impl Protocol for Asking {
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            assert_eq!(input.take_all(), b"pong");
            self.0 = 0;
            conn.write("thanks ");
            Ok(())
        }
        fn on_idle(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            self.0 += 1;
            if self.0 == 3 {
                conn.close()
            } else {
                conn.write("ping ")
            }
            Ok(())
        }
    }
    let settings =
        Settings { idle_timeout: Some(Duration::from_millis(30)), ..Settings::default() };
    let pair = Pair::with(h, settings, Asking(0), Notes::default());
    assert_eq!(pair.receive(5), "ping ");
    pair.send(b"pong");
    // It may have been asked once more before its answer came.
    let rest = String::from_utf8(pair.receive_all()).expect("text");
    assert!(rest.trim_start_matches("ping ").starts_with("thanks ping ping "), "{rest}");
}

pub(crate) fn i4_input_and_touch_put_it_off(h: &Harness) {
    let settings = Settings { idle_timeout: Some(Duration::from_secs(2)), ..Settings::default() };
    let notes = Notes::default();
    let pair = Pair::with(
        h,
        settings,
        crate::peers::Noting { notes: Rc::clone(&notes), on_data: echo },
        notes,
    );
    for _ in 0..5 {
        h.run_for(Duration::from_millis(1500));
        pair.send(b"x");
        assert_eq!(pair.receive(1), "x");
    }
    for _ in 0..5 {
        h.run_for(Duration::from_millis(1500));
        pair.server.run(
            |conn| {
                conn.touch();
                Ok(())
            },
            || panic!("it is there"),
        );
    }
    h.run_for(Duration::from_millis(1900));
    assert_eq!(*pair.notes.borrow(), ["open", "data"]);
    h.run_for(Duration::from_millis(300));
    pair.close();
    assert_eq!(pair.over(), ["open", "data", "close: closed"]);
}
