//! Row E8: no connection is faster than it may be, and none much slower.

use crate::harness::Harness;
use crate::layers::send_all;
use crate::peers::{Noting, echo};
use coracle_loop::demux::sim::Faults;
use coracle_loop::demux::{Handle, OpenOptions, Operation, Outcome};
use coracle_net::{
    Buffer, Conn, ConnHandle, Packet, Protocol, RateGroup, RateLimit, Settings, attach,
};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

const RATE: u64 = 100_000;
const BURST: u64 = RATE / 10;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 % 251) as u8).collect()
}

fn sending(rate: u64) -> RateLimit {
    RateLimit { send_bytes_per_second: Some(rate), burst_bytes: rate / 10, ..RateLimit::default() }
}

fn receiving(rate: u64) -> RateLimit {
    let burst_bytes = rate / 10;
    RateLimit { receive_bytes_per_second: Some(rate), burst_bytes, ..RateLimit::default() }
}

/// Closing may take as long as the rate has it.
fn patient() -> Settings {
    Settings { drain: Duration::from_secs(100), ..Settings::default() }
}

/// A client, and a server with a limit. The server counts what it receives, and echoes if it is to.
fn limited(h: &Harness, limit: RateLimit, echoes: bool) -> (Handle, ConnHandle, Rc<Cell<usize>>) {
    let (client, socket) = h.connection();
    let received = Rc::new(Cell::new(0));
    let count = Rc::clone(&received);
    let protocol = Noting {
        notes: Rc::default(),
        on_data: move |conn: &mut Conn<'_>, input: &mut Buffer| {
            count.set(count.get() + input.len());
            match echoes {
                true => {
                    conn.pause();
                    conn.resume(); // changes nothing
                    echo(conn, input)
                }
                false => {
                    input.take_all();
                    Ok(())
                }
            }
        },
    };
    let server = attach(&h.lp, socket, patient(), protocol).expect("attach");
    with(h, &server, move |conn| conn.limit_rate(&limit));
    (client, server, received)
}

/// Does something with a connection, at once.
fn with(h: &Harness, server: &ConnHandle, f: impl FnOnce(&mut Conn<'_>) + 'static) {
    server.with(&h.lp, f).expect("it is there");
}

/// How long `case` takes by the loop's clock.
fn time(h: &Harness, case: impl FnOnce()) -> Duration {
    let start = h.lp.now();
    case();
    h.lp.now() - start
}

#[track_caller]
fn assert_between(time: Duration, least: f64, most: f64) {
    let seconds = time.as_secs_f64();
    assert!((least..=most).contains(&seconds), "{seconds} s, not {least} to {most}");
}

pub(crate) fn e8_sending_keeps_to_the_rate(h: &Harness) {
    let (client, server, _) = limited(h, sending(RATE), false);
    let whole = pattern(1_000_000);
    let bytes = whole.clone();
    let turns = h.count_turns();
    let after = time(h, || {
        with(h, &server, move |conn| conn.write(bytes));
        assert!(h.receive(client, 1_000_000) == whole);
    });
    assert_between(after, 9.9, 10.1);
    assert!(turns.get() < 3000, "it slept in between: {} turns", turns.get());
}

pub(crate) fn e8_many_small_packets_keep_to_the_rate(h: &Harness) {
    let (client, server, _) = limited(h, sending(RATE), false);
    let whole = pattern(1_000_000);
    let bytes = whole.clone();
    let after = time(h, || {
        with(h, &server, move |conn| {
            for piece in bytes.chunks(777) {
                conn.write_slice(piece);
                conn.write(Packet::from(&b""[..]));
            }
            conn.close();
        });
        assert!(h.receive(client, usize::MAX >> 1) == whole);
    });
    assert_between(after, 9.9, 10.1);
}

pub(crate) fn e8_receiving_keeps_to_the_rate(h: &Harness) {
    let (client, _server, received) = limited(h, receiving(RATE), false);
    let turns = h.count_turns();
    let after = time(h, || {
        send_all(&h.lp, client, pattern(1_000_000));
        h.run_until(&received, |received| received.get() >= 1_000_000);
    });
    assert_eq!(received.get(), 1_000_000);
    assert_between(after, 9.9, 10.1);
    assert!(turns.get() < 3000, "it slept in between: {} turns", turns.get());
}

pub(crate) fn e8_what_was_not_sent_after_all_is_not_counted(h: &Harness) {
    let h = h.simulated(Faults { short_send: 0.5, short_receive: 0.5, ..Faults::benign() });
    e8_sending_keeps_to_the_rate(&h);
    e8_receiving_keeps_to_the_rate(&h);
}

pub(crate) fn e8_never_more_than_the_rate_and_one_burst(h: &Harness) {
    let (client, _server, received) = limited(h, receiving(RATE), false);
    send_all(&h.lp, client, pattern(1_000_000));
    let start = h.lp.now();
    for _ in 0..50 {
        h.run_for(Duration::from_millis(37));
        let allowed = (h.lp.now() - start).as_secs_f64() * RATE as f64 + BURST as f64;
        assert!(received.get() as f64 <= allowed + 1.0, "{} of {allowed}", received.get());
        assert!(received.get() as f64 >= allowed - 0.2 * RATE as f64, "and not much less");
    }
}

pub(crate) fn e8_slow_rate_is_exact_over_an_hour(h: &Harness) {
    // Three bytes a second: a drift of a thousandth would show.
    let limit = RateLimit { burst_bytes: 6, ..sending(3) };
    let (client, server, _) = limited(h, limit, false);
    let after = time(h, || {
        with(h, &server, |conn| conn.write(pattern(10_806)));
        h.receive(client, 10_806);
    });
    assert_between(after, 3600.0, 3602.0);
}

pub(crate) fn e8_file_keeps_to_the_rate(h: &Harness) {
    let path = std::path::PathBuf::from("/rates/file");
    let content = pattern(500_000);
    h.kernel().add_file(&path, content.clone());
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let opened = h.operate(Operation::Open { path, options });
    let Ok(Outcome::Opened(file)) = opened.result else { panic!("{opened:?}") };
    let (client, server, _) = limited(h, sending(RATE), false);
    let after = time(h, || {
        with(h, &server, move |conn| conn.write(Packet::file(file, 0, 500_000)));
        assert!(h.receive(client, 500_000) == content);
    });
    assert_between(after, 4.9, 5.1);
}

pub(crate) fn e8_group_shares_its_rate_in_turn(h: &Harness) {
    let group = RateGroup::new(&h.lp, &sending(RATE));
    let (mut servers, mut counts) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let (client, server, _) = limited(h, RateLimit::default(), false);
        servers.push(server);
        let received = Rc::new(Cell::new(0));
        let count = Rc::clone(&received);
        let counting = move |_: &mut Conn<'_>, input: &mut Buffer| {
            count.set(count.get() + input.take_all().len());
            Ok(())
        };
        attach(&h.lp, client, Settings::default(), counting).expect("attach");
        counts.push(received);
    }
    let start = h.lp.now();
    for server in servers {
        let group = group.clone();
        with(h, &server, move |conn| {
            conn.join_rate_group(&group);
            conn.write(pattern(250_000));
        });
    }
    for second in 1..=9 {
        let passed = Duration::from_secs(second);
        h.run_for(passed - (h.lp.now() - start));
        // Each has a quarter, give or take some turns; the first had the burst.
        let quarter = second as usize * RATE as usize / 4;
        for count in counts.iter().map(|count| count.get()) {
            assert!(count.abs_diff(quarter) <= 30_000, "{count}, not {quarter}");
        }
    }
    h.run_until(&counts, |counts| counts.iter().all(|count| count.get() >= 250_000));
    assert_between(h.lp.now() - start, 9.9, 10.1);
}

pub(crate) fn e8_group_receives_by_its_rate(h: &Harness) {
    let group = RateGroup::new(&h.lp, &receiving(RATE));
    let mut counts = Vec::new();
    let start = h.lp.now();
    for _ in 0..4 {
        let (client, server, received) = limited(h, RateLimit::default(), false);
        let group = group.clone();
        with(h, &server, move |conn| conn.join_rate_group(&group));
        send_all(&h.lp, client, pattern(250_000));
        counts.push(received);
    }
    h.run_until(&counts, |counts| counts.iter().all(|count| count.get() >= 250_000));
    let after = h.lp.now() - start;
    // Four pieces may be on the way when the bucket is empty.
    assert_between(after, 9.9 - 4.0 * 0.17, 10.2);
}

pub(crate) fn e8_silence_saves_up_one_burst_and_no_more(h: &Harness) {
    let (client, server, _) = limited(h, sending(RATE), false);
    with(h, &server, |conn| conn.write(pattern(50_000)));
    h.receive(client, 50_000);
    h.run_for(Duration::from_secs(1000));
    let after = time(h, || {
        with(h, &server, |conn| conn.write(pattern(110_000)));
        h.receive(client, 110_000);
    });
    assert_between(after, 1.0, 1.05);
}

pub(crate) fn e8_limit_can_be_changed_and_taken_away(h: &Harness) {
    let (client, server, _) = limited(h, sending(RATE), false);
    let after = time(h, || {
        with(h, &server, |conn| conn.write(pattern(1_000_000)));
        h.receive(client, 110_000); // a second
        with(h, &server, |conn| conn.limit_rate(&RateLimit::default()));
        h.receive(client, 890_000);
    });
    assert_between(after, 1.0, 1.2);
}

pub(crate) fn e8_what_waits_for_the_rate_counts_for_the_marks(h: &Harness) {
    struct Producer(usize, Rc<Cell<usize>>);
    impl Protocol for Producer {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            conn.limit_rate(&RateLimit { burst_bytes: 50_000, ..sending(5_000_000) });
            self.on_ready(conn)
        }
        fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
            Ok(())
        }
        fn on_ready(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            while self.0 > 0 && conn.writable() {
                self.0 -= 1;
                conn.write(vec![b'p'; 10_000]);
                self.1.set(self.1.get().max(conn.output_bytes()));
            }
            Ok(())
        }
    }
    let (client, socket) = h.connection();
    let most = Rc::new(Cell::new(0));
    let producer = Producer(100, Rc::clone(&most));
    attach(&h.lp, socket, Settings::default(), producer).expect("attach");
    assert_eq!(h.receive(client, 1_000_000).len(), 1_000_000);
    let high = Settings::default().high_mark_bytes;
    assert!((high..=high + 10_000).contains(&most.get()), "stopped at the mark: {}", most.get());
}

pub(crate) fn e8_limited_echo_is_whole(h: &Harness) {
    let limit = RateLimit {
        receive_bytes_per_second: Some(5_000_000),
        send_bytes_per_second: Some(4_000_000),
        burst_bytes: 100_000,
    };
    let (client, server, _) = limited(h, limit, true);
    let whole = pattern(1_000_000);
    let start = h.lp.now();
    send_all(&h.lp, client, whole.clone());
    assert!(h.receive(client, 1_000_000) == whole);
    // Never faster; how much slower is up to the machine.
    let least = (1_000_000.0 - 100_000.0) / 4_000_000.0;
    assert!((h.lp.now() - start).as_secs_f64() >= least - 0.001, "{:?}", h.lp.now() - start);
    with(h, &server, |conn| conn.close());
    assert_eq!(h.receive(client, 1), b"");
}

pub(crate) fn e8_limited_connection_is_given_away_with_all_it_received(h: &Harness) {
    let whole = pattern(200_000);
    let (client, socket) = h.connection();
    let seen = Rc::new(Cell::new(0));
    let count = Rc::clone(&seen);
    let leaving = move |_: &mut Conn<'_>, input: &mut Buffer| {
        count.set(input.len());
        Ok(())
    };
    let server = attach(&h.lp, socket, patient(), leaving).expect("attach");
    let limit = receiving(10_000_000);
    with(h, &server, move |conn| conn.limit_rate(&limit));
    send_all(&h.lp, client, whole.clone());
    h.run_until(&seen, |seen| seen.get() >= 10_000);
    // Now: in the middle of receiving, and not in a callback.
    let taken = Rc::new(RefCell::new(None::<(Handle, Vec<u8>)>));
    let slot = Rc::clone(&taken);
    with(h, &server, move |conn| {
        conn.hijack(move |_, socket, mut input| {
            *slot.borrow_mut() = Some((socket, input.take_all().to_vec()));
        });
    });
    h.run_until(&taken, |taken| taken.borrow().is_some());
    let (socket, mut all) = taken.take().expect("it was given away");
    all.extend(h.receive(socket, whole.len() - all.len()));
    assert!(all == whole, "nothing is lost on the way");
    h.close(socket);
}

pub(crate) fn e8_limit_of_others_does_not_slow_a_connection(h: &Harness) {
    let (slow, slow_server, _) = limited(h, sending(1000), false);
    let (fast, fast_server, _) = limited(h, RateLimit::default(), false);
    with(h, &slow_server, |conn| conn.write(pattern(100_000)));
    with(h, &fast_server, |conn| conn.write(pattern(1_000_000)));
    assert!(h.receive(fast, 1_000_000) == pattern(1_000_000));
    with(h, &slow_server, |conn| {
        assert!(conn.output_bytes() > 0, "a minute and more is left of it");
        conn.abort();
    });
    h.receive(slow, 100);
}

pub(crate) fn e8_mark_is_called_when_what_is_before_it_is_sent(h: &Harness) {
    // A byte a second, and a hundred to begin with: what is behind the mark takes long.
    let limit = RateLimit { burst_bytes: 100, ..sending(1) };
    let (client, server, _) = limited(h, limit, false);
    let called = Rc::new(Cell::new(false));
    let flag = Rc::clone(&called);
    let after = time(h, || {
        with(h, &server, move |conn| {
            conn.write_then(pattern(100), move |_| {
                flag.set(true);
                Ok(())
            });
            conn.write(pattern(1000));
        });
        h.run_until(&called, |called| called.get());
    });
    assert_between(after, 0.0, 0.5);
    assert!(h.receive(client, 100) == pattern(100));
}
