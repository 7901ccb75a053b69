//! Rows E: what is written arrives, whole and in order, and never without bound.

use crate::harness::Harness;
use crate::peers::{Pair, echo};
use bytes::Bytes;
use coracle_loop::demux::sim::Faults;
use coracle_loop::demux::{OpenOptions, Operation, Outcome, SocketOption};
use coracle_net::{Buffer, Conn, Listener, Packet, Protocol, Reason, Settings};
use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Text that is different everywhere, so that nothing can be lost, doubled or moved unnoticed.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 % 251) as u8).collect()
}

pub(crate) fn e1_answer_larger_than_the_socket_arrives_whole(h: &Harness) {
    let answer = pattern(5 << 20);
    let whole = answer.clone();
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        conn.write(answer.clone());
        conn.close();
        Ok(())
    });
    pair.send(b"x");
    assert!(pair.receive_all() == whole, "it arrives whole");
}

pub(crate) fn e1_answer_is_tried_at_once_and_waits_only_without_room(h: &Harness) {
    let much = if h.is_simulated() { 1 << 20 } else { 32 << 20 };
    let faultless = h.is_simulated().then(|| h.simulated(Faults::none()));
    let h = faultless.as_ref().unwrap_or(h);
    let settings = Settings { limit_output_bytes: 64 << 20, ..Settings::default() };
    let pair = Pair::new(h, settings, echo);
    let write = |len: usize| {
        pair.server.with(&h.lp, |conn| conn.write(vec![b'a'; len])).expect("it is open");
        pair.server.with(&h.lp, |conn| conn.output_bytes()).expect("it is open")
    };
    assert_eq!(write(100), 0, "it was sent, and no turn was needed for it");
    assert!(write(much) > 0, "there is no room for so much: it waits");
    assert_eq!(h.receive(pair.client, 100 + much).len(), 100 + much);
    h.run_for(Duration::from_millis(1));
    assert_eq!(write(100), 0, "and at once again");
}

pub(crate) fn e2_owned_shared_and_borrowed_bytes_arrive_in_order(h: &Harness) {
    let shared = Bytes::from(pattern(100_000));
    let expected = [&b"head "[..], &shared, b" tail ", &shared, &pattern(9000), b"."].concat();
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        conn.write("head ");
        conn.write(shared.clone());
        conn.write(b" tail ");
        conn.write(shared.clone());
        conn.write(pattern(9000));
        conn.write_slice(b".");
        conn.close();
        Ok(())
    });
    pair.send(b"x");
    assert!(pair.receive_all() == expected);
}

pub(crate) fn e2_what_is_put_together_arrives_in_order(h: &Harness) {
    let shared = Bytes::from(pattern(100_000));
    let expected = [&b"head: "[..], &pattern(9000), b"; ", &shared, b"tail", b"."].concat();
    let other = Pair::new(h, Settings::default(), echo);
    let told = other.server.clone();
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        conn.write_with(|out| out.append(&mut b"head".to_vec())); // nothing is before it
        let lp = conn.lp().clone();
        conn.write_with(|out| {
            out.push(b": ");
            told.with(&lp, |other| other.write_slice(b"meanwhile")).expect("it is open");
            out.append(&mut pattern(9000));
        });
        conn.write_slice(b"; ");
        conn.write(shared.clone()); // what follows cannot be written to where that was
        let written = conn.write_with(|out| {
            out.push(b"tail");
            out.len()
        });
        assert_eq!(written, 4);
        conn.write_with(|out| out.push(b"."));
        conn.close();
        Ok(())
    });
    pair.send(b"x");
    assert!(pair.receive_all() == expected);
    assert_eq!(other.receive(9), "meanwhile");
}

/// Bytes that say when nobody needs them any more.
struct Treasure(Vec<u8>, Arc<AtomicBool>);

impl AsRef<[u8]> for Treasure {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Treasure {
    fn drop(&mut self) {
        self.1.store(true, Ordering::SeqCst);
    }
}

pub(crate) fn e2_bytes_are_sent_from_where_they_are_and_then_released(h: &Harness) {
    let len = if h.is_simulated() { 100_000 } else { 12 << 20 }; // more than a socket takes
    let released = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&released);
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        conn.write(Bytes::from_owner(Treasure(vec![b't'; len], Arc::clone(&flag))));
        Ok(())
    });
    pair.send(b"x");
    pair.run_until_noted("data");
    assert!(!released.load(Ordering::SeqCst), "they wait where they are: they were not copied");
    assert_eq!(h.receive(pair.client, len).len(), len);
    h.run_until(&released, |released| released.load(Ordering::SeqCst));
    // So are those of a connection that ends before they are sent.
    released.store(false, Ordering::SeqCst);
    pair.send(b"x");
    h.run_for(Duration::from_millis(5));
    pair.close();
    h.run_until(&released, |released| released.load(Ordering::SeqCst));
}

pub(crate) fn e3_packets_of_a_callback_are_sent_together(h: &Harness) {
    const PACKETS: usize = 60;
    let faults = Faults { limit_send_buffer_bytes: 16 << 20, ..Faults::benign() };
    let roomy = h.is_simulated().then(|| h.simulated(faults));
    let h = roomy.as_ref().unwrap_or(h);
    let packet = |number: usize| pattern(10_000 + number); // too long to be copied next to each other
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        (0..PACKETS).for_each(|number| conn.write(packet(number)));
        Ok(())
    });
    let before = h.is_simulated().then(|| h.kernel().operations());
    let expected: Vec<u8> = (0..PACKETS).flat_map(packet).collect();
    pair.send(b"x");
    assert!(h.receive(pair.client, expected.len()) == expected);
    if let Some(before) = before {
        let operations = h.kernel().operations() - before;
        assert!(operations < PACKETS as u64, "{operations} operations for {PACKETS} packets");
    }
}

pub(crate) fn e3_room_is_reserved_behind_what_was_received(h: &Harness) {
    // A decoder puts what it makes behind what it has, and what comes later goes behind that.
    let pair = Pair::new(h, Settings::default(), |conn, input| {
        if input.unread().ends_with(b".") {
            conn.write(input.take_all());
        } else if input.len() == 3 {
            let room = input.reserve(100);
            room[..4].copy_from_slice(b"more");
            input.commit(4);
        }
        Ok(())
    });
    pair.send(b"one");
    pair.run_until_noted("data");
    pair.send(b" end.");
    assert_eq!(pair.receive(12), "onemore end.");
}

pub(crate) fn e2_file_is_sent_between_bytes(h: &Harness) {
    let path =
        std::env::temp_dir().join(format!("coracle-file-{}-{}", std::process::id(), h.backend));
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
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        conn.write("<");
        conn.write(Packet::file(file, 10, len - 10));
        conn.write(">");
        conn.close();
        Ok(())
    });
    pair.send(b"x");
    assert!(pair.receive_all() == [b"<", &content[10..], b">"].concat());
    h.close(file);
    let _ = std::fs::remove_file(path);
}

/// A file costs no memory while it waits, however long it is.
pub(crate) fn e2_file_larger_than_the_limit_of_output_is_sent(h: &Harness) {
    let path =
        std::env::temp_dir().join(format!("coracle-large-{}-{}", std::process::id(), h.backend));
    let content = pattern(3_000_000);
    if h.is_simulated() {
        h.kernel().add_file(&path, content.clone());
    } else {
        std::fs::write(&path, &content).expect("a file");
    }
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let opened = h.operate(Operation::Open { path: path.clone(), options });
    let Ok(Outcome::Opened(file)) = opened.result else { panic!("{opened:?}") };
    let settings =
        Settings { limit_output_bytes: 100_000, high_mark_bytes: 100_000, ..Settings::default() };
    let pair = Pair::new(h, settings, move |conn, input| {
        input.take_all();
        conn.write(Packet::file(file, 0, 3_000_000));
        assert_eq!((conn.output_bytes(), conn.unsent_bytes()), (0, 3_000_000));
        conn.write_urgent("!");
        conn.close();
        Ok(())
    });
    pair.send(b"x");
    let all = pair.receive_all();
    assert_eq!(all.len(), content.len() + 1);
    assert!(all == [&b"!"[..], &content].concat() || all == [&content, &b"!"[..]].concat());
    h.close(file);
    let _ = std::fs::remove_file(path);
}

pub(crate) fn e4_urgent_packet_goes_between_packets(h: &Harness) {
    // More than any socket takes at once: something waits when the urgent one comes.
    let pair = Pair::new(
        h,
        Settings { limit_output_bytes: 64 << 20, ..Settings::default() },
        |conn, input| {
            input.take_all();
            for _ in 0..3 {
                conn.write(vec![b'a'; 8 << 20]);
            }
            conn.write("b");
            conn.write_urgent("URGENT1");
            conn.write_urgent("URGENT2");
            conn.close();
            Ok(())
        },
    );
    pair.send(b"x");
    let all = pair.receive_all();
    let at = all.iter().position(|&byte| byte == b'U').expect("it is there");
    assert_eq!(&all[at..at + 14], b"URGENT1URGENT2", "in their order");
    assert_eq!(at % (8 << 20), 0, "between packets");
    assert_eq!(all.len(), (24 << 20) + 15);
    assert_eq!(all.last(), Some(&b'b'));
}

/// Produces so many bytes, stopping at the high mark.
struct Producer {
    left: usize,
    stops: Rc<Cell<u32>>,
    most: Rc<Cell<usize>>,
}

impl Producer {
    fn go_on(&mut self, conn: &mut Conn<'_>) {
        while self.left > 0 && conn.writable() {
            let chunk = self.left.min(10_000);
            conn.write(vec![b'p'; chunk]);
            self.left -= chunk;
            self.most.set(self.most.get().max(conn.output_bytes()));
        }
        if self.left > 0 {
            self.stops.set(self.stops.get() + 1);
        } else {
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

pub(crate) fn e6_producer_stops_at_the_high_mark_and_goes_on(h: &Harness) {
    let (stops, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let producer = Producer { left: 20 << 20, stops: Rc::clone(&stops), most: Rc::clone(&most) };
    let pair = Pair::with(h, Settings::default(), producer, Rc::default());
    pair.send(b"x");
    assert_eq!(pair.receive_all().len(), 20 << 20);
    assert!(stops.get() > 3, "it was stopped: {}", stops.get());
    let high = Settings::default().high_mark_bytes;
    assert!(most.get() <= high + 10_000, "it stopped at the mark: {}", most.get());
}

pub(crate) fn e6_peer_that_does_not_read_is_not_read(h: &Harness) {
    let settings = Settings { high_mark_bytes: 64 << 10, low_mark_bytes: 0, ..Settings::default() };
    let received = Rc::new(Cell::new(0));
    let count = Rc::clone(&received);
    let pair = Pair::new(h, settings, move |conn, input| {
        count.set(count.get() + input.len());
        echo(conn, input)
    });
    // Sends without reading until nothing moves any more; then reads all of it.
    let total = 64 << 20;
    let sent = Rc::new(Cell::new(None));
    let slot = Rc::clone(&sent);
    let sending = h.lp.operate(
        Operation::Send { socket: pair.client, payload: vec![b'e'; total].into() },
        move |_, finished| match finished.result {
            Ok(Outcome::Count(count)) => slot.set(Some(count)),
            other => panic!("{other:?}"),
        },
    );
    h.run_for(Duration::from_millis(300));
    assert!(received.get() < total / 2, "the server stopped reading: {}", received.get());
    sending.cancel();
    h.run_until(&sent, |sent| sent.get().is_some());
    let sent = sent.get().expect("how much was sent");
    assert_eq!(h.receive(pair.client, sent).len(), sent, "and goes on when the peer reads");
}

pub(crate) fn e6_slow_reader_is_closed_at_the_limit(h: &Harness) {
    let settings =
        Settings { limit_output_bytes: 1 << 20, high_mark_bytes: 1 << 20, ..Settings::default() };
    let pair = Pair::new(h, settings, |conn, input| {
        input.take_all();
        conn.write(vec![0; 64 << 20]);
        Ok(())
    });
    pair.send(b"x");
    pair.run_until_noted("data");
    // More than may wait is waiting, so nothing more is read.
    pair.send(b"y");
    assert_eq!(pair.over(), ["open", "data", "close: the peer does not read what is sent to it"]);
}

/// Many small packets of one turn: more than may wait, but the kernel has room for them all, and takes them.
pub(crate) fn e6_reader_is_not_slow_before_the_kernel_was_asked(h: &Harness) {
    let calm = h.is_simulated().then(|| h.simulated(Faults::benign()));
    let h = calm.as_ref().unwrap_or(h);
    let settings = Settings {
        limit_output_bytes: 4 << 10,
        high_mark_bytes: 4 << 10,
        low_mark_bytes: 1 << 10,
        ..Settings::default()
    };
    let pair = Pair::new(h, settings, |_, input| {
        input.take_all();
        Ok(())
    });
    pair.send(b"x");
    pair.run_until_noted("data");
    let mut written = String::new();
    for number in 0..1000 {
        let line = format!("line {number}, in a callback of its own\n");
        pair.server.with(&h.lp, |conn| conn.write(line.as_str())).expect("it is open");
        written += &line;
    }
    let received = pair.receive(written.len());
    assert!(received == written, "{} of {}, {:?}", received.len(), written.len(), pair.notes);
    h.run_for(Duration::from_millis(10));
    let notes = pair.notes.borrow();
    assert!(notes.iter().all(|note| !note.starts_with("close")), "{notes:?}");
}

pub(crate) fn e6_stalled_reader_is_closed_on_time(h: &Harness) {
    let settings = Settings {
        limit_output_bytes: 128 << 20,
        write_timeout: Some(Duration::from_secs(3)),
        ..Settings::default()
    };
    let pair = Pair::new(h, settings, |conn, input| {
        input.take_all();
        conn.write(vec![0; 64 << 20]);
        Ok(())
    });
    pair.send(b"x");
    let start = h.lp.now();
    assert_eq!(pair.over(), ["open", "data", "close: the peer does not read what is sent to it"]);
    let after = h.lp.now() - start;
    assert!((2..=4).contains(&after.as_secs()), "{after:?}");
}

/// A kernel says that there is room when a good part of its buffer is free; long before that, the peer takes a
/// little all the time.
pub(crate) fn e6_reader_that_takes_a_little_is_waited_for(h: &Harness) {
    match h.is_simulated() {
        true => take_a_little_in_simulated_time(h),
        false => take_a_little_through_a_small_window(h),
    }
}

/// A hundred bytes a second, where half of the buffer must be free.
fn take_a_little_in_simulated_time(h: &Harness) {
    let faults = Faults { least_room_bytes: 32 << 10, ..Faults::benign() };
    let h = &h.simulated(faults);
    let settings = Settings { write_timeout: Some(Duration::from_secs(3)), ..Settings::default() };
    let pair = Pair::new(h, settings, |conn, input| {
        input.take_all();
        conn.write(pattern(200_000));
        Ok(())
    });
    pair.send(b"x");
    let mut received = Vec::new();
    for _ in 0..100 {
        h.run_for(Duration::from_secs(1));
        received.extend(h.receive(pair.client, 100));
    }
    assert!(received == pattern(200_000)[..10_000], "every byte in its place");
    // And now it takes nothing any more.
    let start = h.lp.now();
    assert_eq!(pair.over(), ["open", "data", "close: the peer does not read what is sent to it"]);
    let after = h.lp.now() - start;
    assert!((2..=6).contains(&after.as_secs()), "{after:?}");
}

/// The windows of a real network. Whoever reads does it in a timer of the same loop, so that it has its turn
/// before the time-out however slow the machine is.
fn take_a_little_through_a_small_window(h: &Harness) {
    const TOTAL: usize = 1 << 20;
    struct Flood(Rc<Cell<bool>>);
    impl Protocol for Flood {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            conn.set_option(SocketOption::SendBuffer(1 << 20))?;
            conn.write(pattern(TOTAL));
            Ok(())
        }
        fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
            Ok(())
        }
        fn on_close(&mut self, _: &Reason) {
            self.0.set(true);
        }
    }
    let timeout = Duration::from_millis(400);
    let settings = Settings { write_timeout: Some(timeout), ..Settings::default() };
    let (cut, closed) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let note = Rc::clone(&closed);
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(&h.lp, &any, settings, move |_| Flood(Rc::clone(&note)));
    let listener = listener.expect("it listens");
    let address = listener.local_address(&h.lp).unwrap().ip().expect("an IP address");
    let mut stream = std::net::TcpStream::connect(address).expect("it connects");
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).expect("a small window");
    stream.set_nonblocking(true).expect("it does not wait");
    let received: Rc<RefCell<Vec<u8>>> = Rc::default();
    let (all, end) = (Rc::clone(&received), Rc::clone(&cut));
    let mut read = move || {
        let mut space = vec![0; 64 << 10];
        match stream.read(&mut space) {
            Ok(0) => end.set(true),
            Ok(count) => all.borrow_mut().extend_from_slice(&space[..count]),
            Err(error) => end.set(error.kind() != io::ErrorKind::WouldBlock),
        }
    };
    let (calm, hurry) = (timeout / 4, Rc::new(Cell::new(false)));
    let fast = Rc::clone(&hurry);
    h.lp.every(Duration::from_millis(1), {
        let mut last = h.lp.now();
        move |lp| {
            if fast.get() || lp.now() - last >= calm {
                last = lp.now();
                read();
            }
        }
    });
    h.run_for(4 * timeout);
    assert!(!cut.get() && !closed.get(), "cut after {} bytes", received.borrow().len());
    hurry.set(true);
    let (all, end) = (Rc::clone(&received), Rc::clone(&cut));
    h.run_until(&(all, end), |(all, end)| all.borrow().len() == TOTAL || end.get());
    assert!(*received.borrow() == pattern(TOTAL), "every byte in its place");
    listener.close(&h.lp);
}

pub(crate) fn e7_paused_connection_gets_nothing_until_resumed(h: &Harness) {
    let pair = Pair::new(h, Settings::default(), |conn, input| {
        if input.take_line() == Some(b"pause") {
            conn.pause();
        } else {
            conn.write(input.take_all());
        }
        Ok(())
    });
    pair.send(b"pause\n");
    pair.run_until_noted("data");
    pair.notes.borrow_mut().clear();
    pair.send(b"ahoy");
    h.run_for(Duration::from_millis(50));
    assert!(pair.notes.borrow().is_empty(), "paused: {:?}", pair.notes.borrow());
    pair.server.run(
        |conn| {
            conn.resume();
            Ok(())
        },
        || panic!("it is there"),
    );
    assert_eq!(pair.receive(4), "ahoy");
}

pub(crate) fn write_then_is_called_when_everything_before_it_is_sent(h: &Harness) {
    let pair = Pair::new(
        h,
        Settings { limit_output_bytes: 16 << 20, ..Settings::default() },
        |conn, input| {
            input.take_all();
            conn.write_then(vec![b'a'; 6 << 20], |conn| {
                assert_eq!(conn.output_bytes(), 0, "nothing is before it");
                conn.write_then("b", |conn| {
                    conn.write("c");
                    conn.close();
                    Ok(())
                });
                Ok(())
            });
            Ok(())
        },
    );
    pair.send(b"x");
    let all = pair.receive_all();
    assert_eq!(all.len(), (6 << 20) + 2);
    assert!(all.ends_with(b"abc"));
    let _ = Reason::Closed;
}

pub(crate) fn e2_nothing_follows_a_head_that_could_not_be_sent(h: &Harness) {
    const RESET: i32 = 104;
    let h = &h.simulated(Faults::none());
    let path = std::path::PathBuf::from("/head/file");
    h.kernel().add_file(&path, pattern(10_000));
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let opened = h.operate(Operation::Open { path, options });
    let Ok(Outcome::Opened(file)) = opened.result else { panic!("{opened:?}") };
    let kernel = h.kernel().clone();
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        conn.write("head");
        conn.write(Packet::file(file, 0, 10_000));
        kernel.fail_nth(kernel.operations() + 1, RESET);
        Ok(())
    });
    pair.send(b"x");
    assert_eq!(pair.receive_all(), b"", "a file without its head");
    let notes = pair.over();
    assert!(notes.last().unwrap().starts_with("close: failed: "), "{notes:?}");
}
