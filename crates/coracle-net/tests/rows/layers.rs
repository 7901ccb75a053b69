//! Rows I9 and E10: what stands between socket and protocol changes the bytes, and nothing else.

use crate::harness::Harness;
use crate::peers::{Notes, Noting, Pair, echo};
use crate::sample_layers::{Frames, Handshake, Xor, frame, frames, pattern, unframe, xor};
use coracle_loop::Loop;
use coracle_loop::demux::sim::Faults;
use coracle_loop::demux::{Handle, OpenOptions, Operation, Outcome};
use coracle_net::{
    Buffer, Conn, Layer, Layered, Listener, Packet, Protocol, RateLimit, Settings, attach,
};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

fn layered<'a, L: Layer>(
    h: &'a Harness,
    settings: Settings,
    layer: L,
    on_data: impl FnMut(&mut Conn<'_>, &mut Buffer) -> io::Result<()> + 'static,
) -> Pair<'a> {
    let notes = Notes::default();
    let protocol = Noting { notes: Rc::clone(&notes), on_data };
    Pair::with(h, settings, Layered::new(layer, protocol), notes)
}

pub(crate) fn i9_layer_changes_the_bytes_of_both_directions(h: &Harness) {
    let pair = layered(h, Settings::default(), Xor, |conn, input| {
        while let Some(line) = input.take_line() {
            let answer = format!("<{}>", String::from_utf8_lossy(line));
            conn.write_slice(answer.as_bytes());
            conn.write(answer);
        }
        Ok(())
    });
    pair.send(&xor(b"ahoy\nhal"));
    assert_eq!(pair.h.receive(pair.client, 12), xor(b"<ahoy><ahoy>"));
    pair.send(&xor(b"f\n"));
    assert_eq!(pair.h.receive(pair.client, 12), xor(b"<half><half>"));
    pair.end();
    assert_eq!(pair.receive_all(), b"");
    assert_eq!(pair.over(), ["open", "data", "end", "close: closed"]);
}

pub(crate) fn e10_bytes_are_held_back_until_a_frame_is_whole(h: &Harness) {
    let pieces = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&pieces);
    let pair = layered(h, Settings::default(), Frames::default(), move |conn, input| {
        seen.borrow_mut().push(input.len());
        echo(conn, input)
    });
    for byte in frame(b"one") {
        pair.send(&[byte]);
    }
    assert_eq!(pair.h.receive(pair.client, 5), frame(b"one"));
    assert_eq!(*pieces.borrow(), [3], "not before it is whole");
    let long = pattern(2500);
    pair.send(&frames(&long));
    // How it was cut is up to how it came; what it says is not.
    let mut wire = Vec::new();
    while wire.len() < 2 || unframe_whole(&wire).is_none_or(|plain| plain.len() < 2500) {
        wire.extend(pair.h.receive(pair.client, 1));
    }
    assert!(unframe(&wire) == long);
}

/// What `wire` says, if its last frame is whole.
fn unframe_whole(mut wire: &[u8]) -> Option<Vec<u8>> {
    let whole = wire;
    while !wire.is_empty() {
        let (head, rest) = wire.split_first_chunk::<2>()?;
        wire = rest.get(u16::from_be_bytes(*head).into()..)?;
    }
    Some(unframe(whole))
}

pub(crate) fn i9_handshake_comes_before_plain_bytes(h: &Harness) {
    struct Greets(Notes);
    impl Protocol for Greets {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            self.0.borrow_mut().push("open".to_owned());
            conn.write("welcome ");
            Ok(())
        }
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            echo(conn, input)
        }
    }
    let notes = Notes::default();
    let protocol = Layered::new(Handshake::default(), Greets(Rc::clone(&notes)));
    let pair = Pair::with(h, Settings::default(), protocol, notes);
    assert_eq!(pair.receive(6), "hello\n", "it speaks first");
    assert_eq!(*pair.notes.borrow(), ["open"], "told at once");
    pair.send(b"hel");
    pair.send(b"lo\n");
    assert_eq!(pair.receive(7), "secret\n");
    pair.send(b"secret\nahoy");
    assert_eq!(pair.receive(12), "welcome ahoy");
    pair.send(b"are you there? ");
    let mut answer: Vec<u8> = pair.receive(15).into_bytes();
    answer.sort_unstable();
    let mut expected = b"are you there! ".to_vec();
    expected.sort_unstable();
    assert_eq!(answer, expected, "answered in the middle of reading");
}

pub(crate) fn i9_handshake_goes_on_while_output_waits_and_reading_is_paused(h: &Harness) {
    // Far over the high mark before the first byte can pass; and paused by the protocol itself.
    struct Speaks {
        closes: bool,
    }
    impl Protocol for Speaks {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            conn.write_then(pattern(1 << 20), |conn| {
                conn.close();
                Ok(())
            });
            conn.pause();
            if self.closes {
                conn.close();
            }
            Ok(())
        }
        fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
            panic!("it is paused")
        }
    }
    for closes in [false, true] {
        let protocol = Layered::new(Handshake::default(), Speaks { closes });
        let pair = Pair::with(h, Settings::default(), protocol, Rc::default());
        assert_eq!(pair.receive(6), "hello\n");
        pair.send(b"hello\n");
        assert_eq!(pair.receive(7), "secret\n");
        pair.send(b"secret\n");
        assert!(pair.receive_all() == pattern(1 << 20));
    }
}

pub(crate) fn i9_paused_protocol_gets_nothing_though_its_layer_is_read(h: &Harness) {
    struct Paused(Notes);
    impl Protocol for Paused {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            conn.pause();
            Ok(())
        }
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            self.0.borrow_mut().push("data".to_owned());
            echo(conn, input)
        }
    }
    let notes = Notes::default();
    let protocol = Layered::new(Handshake::default(), Paused(Rc::clone(&notes)));
    let pair = Pair::with(h, Settings::default(), protocol, notes);
    pair.send(b"hello\n");
    assert_eq!(pair.receive(13), "hello\nsecret\n");
    pair.send(b"secret\nahoy");
    h.run_for(Duration::from_millis(30));
    assert!(pair.notes.borrow().is_empty(), "paused");
    resume(&pair);
    assert_eq!(pair.receive(4), "ahoy");
}

fn resume(pair: &Pair<'_>) {
    pair.server.run(
        |conn| {
            conn.resume();
            Ok(())
        },
        || panic!("it is there"),
    );
}

pub(crate) fn e10_layers_stack(h: &Harness) {
    struct Both(Notes);
    impl Protocol for Both {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            conn.push_layer(Xor);
            conn.push_layer(Frames::default());
            conn.write("hi");
            Ok(())
        }
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            echo(conn, input)
        }
        fn on_close(&mut self, reason: &coracle_net::Reason) {
            self.0.borrow_mut().push(format!("close: {reason}"));
        }
    }
    let notes = Notes::default();
    let pair = Pair::with(h, Settings::default(), Both(Rc::clone(&notes)), notes);
    assert_eq!(pair.h.receive(pair.client, 4), xor(&frame(b"hi")), "frames, and then changed");
    pair.send(&xor(&frame(b"ahoy")));
    assert_eq!(pair.h.receive(pair.client, 6), xor(&frame(b"ahoy")));
    pair.send(&xor(&frame(b"")));
    assert_eq!(pair.receive_all(), xor(&frame(b"")), "the upper one's last words pass the lower");
    pair.close();
    assert_eq!(pair.over(), ["close: closed"]);
}

pub(crate) fn i9_pushed_in_the_middle_it_gets_what_was_not_read(h: &Harness) {
    let pair = Pair::new(h, Settings::default(), |conn, input| {
        while let Some(line) = input.take_line() {
            match line {
                b"STARTXOR" => {
                    conn.write_slice(b"go ahead\n");
                    conn.push_layer(Xor);
                    conn.write_slice(b"changed\n");
                    return Ok(()); // what is left is the layer's
                }
                line => {
                    let answer = format!("<{}>", String::from_utf8_lossy(line));
                    conn.write(answer);
                }
            }
        }
        Ok(())
    });
    pair.send(
        &[b"plain\nSTARTXOR\n".to_vec(), xor(b"one\nSTARTXOR\n"), b"two\n".to_vec()].concat(),
    );
    assert_eq!(pair.receive(16), "<plain>go ahead\n");
    assert_eq!(pair.h.receive(pair.client, 8), xor(b"changed\n"));
    assert_eq!(pair.h.receive(pair.client, 5), xor(b"<one>"));
    // The second one undoes what the first does.
    assert_eq!(pair.h.receive(pair.client, 9), xor(b"go ahead\n"));
    assert_eq!(pair.receive(13), "changed\n<two>");
}

pub(crate) fn i9_pushed_behind_output_that_waits_it_leaves_that_alone(h: &Harness) {
    let plain = pattern(3 << 20); // more than a socket takes
    let before = plain.clone();
    let settings = Settings { limit_output_bytes: 8 << 20, ..Settings::default() };
    let pair = Pair::new(h, settings, move |conn, input| {
        input.take_all();
        conn.write(before.clone());
        conn.push_layer(Xor);
        conn.write(before.clone());
        conn.push_layer(Frames::default());
        conn.write("end");
        conn.close();
        Ok(())
    });
    pair.send(b"x");
    let all = pair.receive_all();
    let expected = [plain.clone(), xor(&plain), xor(&frame(b"end")), xor(&frame(b""))].concat();
    assert!(all == expected, "{} bytes of {}", all.len(), expected.len());
}

pub(crate) fn i9_layer_that_fails_says_so_and_ends_the_connection(h: &Harness) {
    let pair = layered(h, Settings::default(), Handshake::default(), echo);
    pair.send(b"nonsense\nahoy");
    assert_eq!(pair.receive_all(), b"hello\nalert\n", "what it said before it failed");
    pair.close();
    assert_eq!(pair.over(), ["open", "close: failed: a bad handshake"]);
}

pub(crate) fn i9_layer_that_fails_is_the_reason_though_the_peer_resets_then(h: &Harness) {
    let pair = layered(h, Settings::default(), Handshake::default(), echo);
    pair.send(b"nonsense\nahoy");
    assert_eq!(pair.receive(7), "hello\na", "it has failed");
    pair.close(); // with unread bytes: a reset
    assert_eq!(pair.over(), ["open", "close: failed: a bad handshake"]);
}

pub(crate) fn i9_what_came_before_an_error_is_shown(h: &Harness) {
    let pair = layered(h, Settings::default(), Frames::default(), echo);
    pair.send(&[frame(b"good"), vec![0xff; 100]].concat());
    assert_eq!(pair.receive_all(), frame(b"good"));
    pair.close();
    assert_eq!(pair.over(), ["open", "data", "close: failed: a frame of that length"]);
}

pub(crate) fn i9_layer_that_fails_lets_nothing_out_that_was_meant_for_it(h: &Harness) {
    struct Breaks;
    impl Layer for Breaks {
        fn receive(&mut self, _: &mut Buffer, _: &mut Buffer, _: &mut Vec<u8>) -> io::Result<()> {
            Ok(())
        }
        fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
            match plain[0] {
                b'x' => Err(io::Error::other("worn out")),
                _ => {
                    wire.extend(xor(&plain[..1]));
                    Ok(1)
                }
            }
        }
    }
    struct Speaks(Notes);
    impl Protocol for Speaks {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            let answered = conn.offload(
                || (),
                |conn, _| {
                    conn.write("plain!");
                    Ok(())
                },
            );
            answered.expect("the pool has room");
            conn.write("abcxyz");
            Ok(())
        }
        fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
            Ok(())
        }
        fn on_close(&mut self, reason: &coracle_net::Reason) {
            self.0.borrow_mut().push(format!("close: {reason}"));
        }
    }
    let notes = Notes::default();
    let protocol = Layered::new(Breaks, Speaks(Rc::clone(&notes)));
    let pair = Pair::with(h, Settings::default(), protocol, notes);
    assert_eq!(pair.receive_all(), xor(b"abc"));
    pair.close();
    assert_eq!(pair.over(), ["close: failed: worn out"]);
}

pub(crate) fn i9_layer_that_panics_ends_its_connection_only(h: &Harness) {
    struct Panics;
    impl Layer for Panics {
        fn receive(
            &mut self,
            wire: &mut Buffer,
            _: &mut Buffer,
            _: &mut Vec<u8>,
        ) -> io::Result<()> {
            match wire.is_empty() {
                true => Ok(()),
                false => std::panic::resume_unwind(Box::new("on purpose")),
            }
        }
        fn send(&mut self, plain: &[u8], _: &mut Vec<u8>) -> io::Result<usize> {
            Ok(plain.len())
        }
    }
    let other = Pair::new(h, Settings::default(), echo);
    let pair = layered(h, Settings::default(), Panics, echo);
    pair.send(b"x");
    assert_eq!(pair.over(), ["open", "close: the protocol panicked"]);
    other.send(b"still there");
    assert_eq!(other.receive(11), "still there");
}

pub(crate) fn i9_clean_end_is_told_and_answered(h: &Harness) {
    let pair = layered(h, Settings::default(), Frames::default(), echo);
    // The end is a frame of its own: the socket stays open.
    pair.send(&[frame(b"last"), frame(b""), b"what comes after is nothing".to_vec()].concat());
    assert_eq!(pair.receive_all(), [frame(b"last"), frame(b"")].concat());
    pair.close();
    assert_eq!(pair.over(), ["open", "data", "end", "close: closed"]);
}

pub(crate) fn i9_stream_that_is_cut_off_is_an_error(h: &Harness) {
    let pair = layered(h, Settings::default(), Frames::default(), echo);
    pair.send(&[frame(b"whole"), frame(b"half")[..3].to_vec()].concat());
    pair.end();
    let notes = pair.over();
    assert_eq!(notes, ["open", "data", "close: failed: cut off"], "and no end");
    // The layer's own opinion is the usual one: bytes that were not taken are missing something.
    let mut plain = WithoutEnd;
    assert!(plain.wire_ended(0).is_ok());
    assert_eq!(plain.wire_ended(1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

pub(crate) fn i9_end_in_the_middle_of_a_handshake_is_an_error(h: &Harness) {
    // Whether much waits for it (and nothing is read for that), or it is being closed, or neither.
    struct Speaks(usize, Notes);
    impl Protocol for Speaks {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            conn.write(pattern(self.0));
            if self.0 == 2 {
                conn.close();
            }
            Ok(())
        }
        fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
            Ok(())
        }
        fn on_close(&mut self, reason: &coracle_net::Reason) {
            self.1.borrow_mut().push(format!("close: {reason}"));
        }
    }
    for len in [1, 2, 1 << 20] {
        let notes = Notes::default();
        let protocol = Layered::new(Handshake::default(), Speaks(len, Rc::clone(&notes)));
        let pair = Pair::with(h, Settings::default(), protocol, notes);
        pair.send(b"hello\n");
        assert_eq!(pair.receive(13), "hello\nsecret\n");
        pair.send(b"sec");
        pair.end();
        let notes = pair.over();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("close: failed: "), "{len}: {notes:?}");
        pair.close();
    }
}

struct WithoutEnd;

impl Layer for WithoutEnd {
    fn receive(&mut self, _: &mut Buffer, _: &mut Buffer, _: &mut Vec<u8>) -> io::Result<()> {
        Ok(())
    }
    fn send(&mut self, _: &[u8], _: &mut Vec<u8>) -> io::Result<usize> {
        Ok(0)
    }
}

/// Makes a thousand bytes of one, at most ten of them at a time.
struct Grows;

impl Layer for Grows {
    fn receive(
        &mut self,
        wire: &mut Buffer,
        plain: &mut Buffer,
        _reply: &mut Vec<u8>,
    ) -> io::Result<()> {
        for &byte in wire.take_bytes(10).iter() {
            plain.extend_from_slice(&[byte; 1000]);
        }
        Ok(())
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
        wire.extend_from_slice(plain);
        Ok(plain.len())
    }
}

pub(crate) fn e5_decoded_bytes_count_for_the_limit(h: &Harness) {
    let settings = Settings { limit_input_bytes: 100_000, ..Settings::default() };
    let most = Rc::new(Cell::new(0));
    let seen = Rc::clone(&most);
    let pair = layered(h, settings, Grows, move |_, input| {
        seen.set(seen.get().max(input.len()));
        Ok(())
    });
    pair.send(&[b'x'; 5000]); // five million
    assert_eq!(
        pair.over(),
        ["open", "data", "close: the peer sent more than any message may have"]
    );
    assert!(most.get() <= 200_000, "it was stopped in time: {}", most.get());
}

pub(crate) fn e7_paused_protocol_has_nothing_decoded(h: &Harness) {
    let (most, total) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (seen, count) = (Rc::clone(&most), Rc::clone(&total));
    let settings = Settings { limit_input_bytes: 200_000, ..Settings::default() };
    let pair = layered(h, settings, Grows, move |conn, input| {
        seen.set(seen.get().max(input.len()));
        count.set(count.get() + input.len());
        input.take_all();
        conn.pause(); // after every piece
        let handle = conn.handle();
        conn.lp().after(Duration::from_millis(1), move |_| {
            let go_on = |conn: &mut Conn<'_>| {
                conn.resume();
                Ok(())
            };
            handle.run(go_on, || ());
        });
        Ok(())
    });
    pair.send(&[b'x'; 2000]); // two million, ten times what may wait
    h.run_until(&total, |total| total.get() >= 2_000_000);
    assert_eq!(total.get(), 2_000_000);
    assert!(most.get() <= 100_000, "a piece at a time: {}", most.get());
}

pub(crate) fn e1_much_passes_a_layer_whole_and_a_slow_reader_is_waited_for(h: &Harness) {
    struct Producer {
        bytes: Vec<u8>,
        sent: usize,
        most: Rc<Cell<usize>>,
    }
    impl Producer {
        fn go_on(&mut self, conn: &mut Conn<'_>) {
            while self.sent < self.bytes.len() && conn.writable() {
                let next = self.bytes.len().min(self.sent + 10_000);
                conn.write(&self.bytes[self.sent..next]);
                self.sent = next;
                self.most.set(self.most.get().max(conn.output_bytes()));
            }
            if self.sent == self.bytes.len() {
                conn.close();
            }
        }
    }
    impl Protocol for Producer {
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            input.take_all();
            self.go_on(conn);
            Ok(())
        }
        fn on_ready(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            self.go_on(conn);
            Ok(())
        }
    }
    let most = Rc::new(Cell::new(0));
    let whole = pattern(5 << 20);
    let producer = Producer { bytes: whole.clone(), sent: 0, most: Rc::clone(&most) };
    let settings = Settings { drain: Duration::from_secs(50), ..Settings::default() };
    let notes = Notes::default();
    let pair = Pair::with(h, settings, Layered::new(Frames::default(), producer), notes);
    pair.send(&frame(b"go"));
    let mut all = Vec::new();
    loop {
        let piece = h.receive(pair.client, 300_000);
        all.extend_from_slice(&piece);
        if piece.len() < 300_000 {
            break;
        }
        h.run_for(Duration::from_millis(1));
    }
    assert!(all.ends_with(&frame(b"")), "the last words are last");
    assert!(unframe(&all) == whole, "it arrives whole");
    let high = Settings::default().high_mark_bytes;
    assert!(most.get() <= high + 20_000, "it stopped at the mark: {}", most.get());
}

pub(crate) fn e1_much_is_echoed_through_two_layers(h: &Harness) {
    struct Echo;
    impl Protocol for Echo {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            conn.push_layer(Xor);
            conn.push_layer(Frames::default());
            Ok(())
        }
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            echo(conn, input)
        }
    }
    let pair = Pair::with(h, Settings::default(), Echo, Rc::default());
    let whole = pattern(5 << 20);
    let wire = xor(&[frames(&whole), frame(b"")].concat());
    send_all(&h.lp, pair.client, wire);
    let all = xor(&pair.receive_all());
    assert!(unframe(&all) == whole);
}

/// Sends while the case does something else.
pub(crate) fn send_all(lp: &Loop, socket: Handle, bytes: Vec<u8>) {
    lp.operate(Operation::Send { socket, payload: bytes.into() }, move |lp, finished| {
        let Ok(Outcome::Count(sent)) = finished.result else { return };
        let left = finished.payload.into_vec().split_off(sent);
        if !left.is_empty() {
            send_all(lp, socket, left);
        }
    });
}

pub(crate) fn e2_file_passes_through_a_layer(h: &Harness) {
    let name = format!("coracle-layer-{}-{}", std::process::id(), h.backend);
    let path = std::env::temp_dir().join(name);
    let content = pattern(300_000);
    if h.is_simulated() {
        h.kernel().add_file(&path, content.clone());
    } else {
        std::fs::write(&path, &content).expect("a file");
    }
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let opened = h.operate(Operation::Open { path: path.clone(), options });
    let Ok(Outcome::Opened(file)) = opened.result else { panic!("{opened:?}") };
    let len = content.len();
    let sent = Rc::new(Cell::new(false));
    let slot = Rc::clone(&sent);
    let pair = layered(h, Settings::default(), Xor, move |conn, input| {
        input.take_all();
        conn.write("<");
        conn.write(Packet::file(file, 10, len - 10));
        let slot = Rc::clone(&slot);
        conn.write_then(">", move |conn| {
            assert_eq!(conn.output_bytes(), 0, "nothing is before it");
            slot.set(true);
            conn.close();
            Ok(())
        });
        conn.write_urgent("!");
        Ok(())
    });
    pair.send(b"x");
    let all = xor(&pair.receive_all());
    assert!(all == [b"!<", &content[10..], b">"].concat(), "{} bytes", all.len());
    assert!(sent.get(), "and it was told");

    // One that is shorter than it should be ends the connection.
    let pair = layered(h, Settings::default(), Xor, move |conn, input| {
        input.take_all();
        conn.write(Packet::file(file, len as u64 - 100, 200));
        Ok(())
    });
    pair.send(b"x");
    assert_eq!(
        pair.over(),
        ["open", "data", "close: failed: a file that was being sent became shorter"]
    );
    h.close(file);
    let _ = std::fs::remove_file(path);
}

pub(crate) fn i9_connection_with_a_layer_cannot_be_given_away(h: &Harness) {
    let pair = layered(h, Settings::default(), Xor, |conn, input| {
        input.take_all();
        conn.hijack(|_, _, _| panic!("the layer's bytes are the layer's"));
        Ok(())
    });
    pair.send(b"x");
    assert_eq!(pair.receive_all(), b"");
    pair.close();
    let notes = pair.over();
    assert!(notes.last().unwrap().contains("cannot be given away"), "{notes:?}");
}

pub(crate) fn i9_our_side_can_end_first_with_last_words(h: &Harness) {
    let pair = layered(h, Settings::default(), Frames::default(), |conn, input| {
        if input.take_line() == Some(b"end") {
            conn.write("last");
            conn.close_write();
        }
        Ok(())
    });
    pair.send(&frame(b"end\n"));
    assert_eq!(pair.receive_all(), [frame(b"last"), frame(b"")].concat());
    pair.notes.borrow_mut().clear();
    pair.send(&frame(b"more"));
    pair.run_until_noted("data");
    pair.send(&frame(b""));
    pair.run_until_noted("end");
    pair.close();
    assert_eq!(pair.over(), ["data", "end", "close: closed"]);
}

pub(crate) fn i9_nothing_behind_what_has_begun_holds_up_the_end(h: &Harness) {
    let whole = pattern(5 << 20);
    let bytes = whole.clone();
    let pair = layered(h, Settings::default(), Frames::default(), move |conn, input| {
        input.take_all();
        conn.write(bytes.clone());
        let handle = conn.handle();
        conn.lp().defer(move |lp| {
            let close = |conn: &mut Conn<'_>| {
                assert!(conn.output_bytes() > 0, "it has begun, and is not over");
                conn.write_slice(b"");
                conn.write_then("", |conn| {
                    conn.close();
                    Ok(())
                });
            };
            assert!(handle.with(lp, close).is_some());
        });
        Ok(())
    });
    pair.send(&frame(b"go"));
    let all = pair.receive_all();
    assert!(all.ends_with(&frame(b"")), "the last words are said");
    assert!(unframe(&all) == whole, "it arrives whole");
    pair.end();
    assert_eq!(pair.over().last().map(String::as_str), Some("close: closed"));
}

pub(crate) fn i9_service_puts_a_layer_on_every_connection(h: &Harness) {
    let address = "127.0.0.1:0".parse().expect("an address");
    let make = |_: &_| Layered::new(Xor, echo);
    let listener = Listener::bind(&h.lp, &address, Settings::default(), make).expect("bind");
    let address = listener.local_address(&h.lp).expect("an address");
    for _ in 0..3 {
        let kind = coracle_loop::demux::SocketKind::Tcp4;
        let client = h.lp.socket(kind).expect("a socket");
        let connect = Operation::Connect { socket: client, address: address.clone() };
        h.operate(connect).result.expect("connect");
        h.send(client, b"ahoy");
        assert_eq!(h.receive(client, 4), b"ahoy", "changed twice");
        h.close(client);
    }
    listener.close(&h.lp);
}

pub(crate) fn i9_layer_and_rate_go_together(h: &Harness) {
    let (client, socket) = h.connection();
    let limit = RateLimit {
        receive_bytes_per_second: Some(2_000_000),
        send_bytes_per_second: Some(2_000_000),
        burst_bytes: 50_000,
    };
    struct Slow(RateLimit);
    impl Protocol for Slow {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            conn.push_layer(Frames::default());
            conn.limit_rate(&self.0);
            Ok(())
        }
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            echo(conn, input)
        }
    }
    attach(&h.lp, socket, Settings::default(), Slow(limit)).expect("attach");
    let whole = pattern(300_000);
    send_all(&h.lp, client, [frames(&whole), frame(b"")].concat());
    let all = h.receive(client, usize::MAX >> 1);
    assert!(unframe(&all) == whole);
}

pub(crate) fn e2_file_that_nobody_can_read_now_is_read_later(h: &Harness) {
    const AGAIN: i32 = 11;
    let h = &h.simulated(Faults::none());
    let path = std::path::PathBuf::from("/layers/file");
    let content = pattern(300_000);
    h.kernel().add_file(&path, content.clone());
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let opened = h.operate(Operation::Open { path, options });
    let Ok(Outcome::Opened(file)) = opened.result else { panic!("{opened:?}") };
    let kernel = h.kernel().clone();
    let pair = layered(h, Settings::default(), Xor, move |conn, input| {
        input.take_all();
        conn.write(Packet::file(file, 0, 300_000));
        conn.close();
        kernel.fail_nth(kernel.operations() + 1, AGAIN); // as a worker pool that is full
        Ok(())
    });
    pair.send(b"x");
    let all = xor(&pair.receive_all());
    assert!(all == content, "{} bytes", all.len());
    pair.close();
    assert_eq!(pair.over().last().unwrap(), "close: closed");
}
