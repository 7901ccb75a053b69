//! F4: datagram sockets, servers and clients.

use crate::harness::{Harness, any};
use coracle_loop::demux::sim::{Fault, Faults, Kernel};
use coracle_loop::demux::{Address, SocketKind};
use coracle_loop::{HookKind, Loop};
use coracle_net::{Datagram, Udp, UdpSettings};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const EIO: i32 = 5;

/// What has come to a socket.
#[derive(Clone, Default)]
struct Inbox(Rc<RefCell<Vec<Letter>>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Letter {
    bytes: Vec<u8>,
    from: Option<Address>,
    truncated: bool,
}

impl Inbox {
    fn callback(&self) -> impl FnMut(&Loop, &Udp, Datagram<'_>) + use<> {
        let inbox = self.clone();
        move |_, _, datagram| inbox.add(datagram)
    }

    fn add(&self, datagram: Datagram<'_>) {
        let Datagram { bytes, from, truncated } = datagram;
        let letter = Letter { bytes: bytes.to_vec(), from: from.cloned(), truncated };
        self.0.borrow_mut().push(letter);
    }

    fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Waits for the `count`-th, and takes them all.
    fn take(&self, h: &Harness, count: usize) -> Vec<Letter> {
        let look = self.clone();
        h.run_until(move || look.len() >= count);
        self.0.take()
    }

    /// Waits for one, which must be alone.
    fn only(&self, h: &Harness) -> Letter {
        let mut letters = self.take(h, 1);
        assert_eq!(letters.len(), 1, "{letters:?}");
        letters.pop().expect("one")
    }
}

/// What a socket has complained of.
#[derive(Clone, Default)]
struct Errors(Rc<RefCell<Vec<io::Error>>>);

impl Errors {
    fn of(udp: &Udp) -> Errors {
        let errors = Errors::default();
        let list = errors.clone();
        udp.on_error(move |_, _, error| list.0.borrow_mut().push(error));
        errors
    }

    fn len(&self) -> usize {
        self.0.borrow().len()
    }

    fn first(&self, h: &Harness) -> io::Error {
        let look = self.clone();
        h.run_until(move || look.len() > 0);
        self.0.borrow_mut().remove(0)
    }
}

/// A socket at `address` and what comes to it.
fn open(h: &Harness, address: &Address) -> (Udp, Inbox) {
    open_with(h, address, UdpSettings::default())
}

fn open_with(h: &Harness, address: &Address, settings: UdpSettings) -> (Udp, Inbox) {
    let inbox = Inbox::default();
    let udp = Udp::bind_with(&h.lp, address, settings, inbox.callback()).expect("bind");
    (udp, inbox)
}

fn connect(h: &Harness, peer: &Address) -> (Udp, Inbox) {
    let inbox = Inbox::default();
    let udp = Udp::connect(&h.lp, peer, inbox.callback()).expect("connect");
    (udp, inbox)
}

/// A socket that sends back what it gets.
fn echo(h: &Harness, address: &Address) -> (Udp, Address) {
    let udp = Udp::bind(&h.lp, address, |lp, udp, datagram| {
        udp.send_to(lp, datagram.bytes, datagram.from.expect("it has an address"));
    });
    let udp = udp.expect("bind");
    let address = udp.local_address(&h.lp).expect("address");
    (udp, address)
}

/// An address that only this case on this backend has, and that is free when the case leaves it.
fn own_address(h: &Harness, case: u8) -> Address {
    let host = 10 + h.backend as u8;
    format!("127.94.{case}.{host}:7000").parse().expect("an address")
}

// --- Talking -------------------------------------------------------------------------------------------

fn converse(h: &Harness, server: &Address, clients: [&Address; 2]) {
    let (echo, address) = echo(h, server);
    for (number, client) in clients.into_iter().enumerate() {
        let (client, inbox) = open(h, client);
        let question = format!("question {number}").into_bytes();
        client.send_to(&h.lp, &question, &address);
        let answer = inbox.only(h);
        assert_eq!(
            answer,
            Letter { bytes: question, from: Some(address.clone()), truncated: false }
        );
        client.close(&h.lp);
    }
    assert_eq!((echo.dropped(), echo.failed(), echo.queued()), (0, 0, 0));
}

pub(crate) fn f4_server_answers_its_clients(h: &Harness) {
    converse(h, &any(), [&any(), &any()]);
}

pub(crate) fn f4_ipv6(h: &Harness) {
    let any = "[::1]:0".parse().unwrap();
    converse(h, &any, [&any, &any]);
}

pub(crate) fn f4_unix_datagrams(h: &Harness) {
    let name = |which| h.unix_name(which);
    converse(h, &name("server"), [&name("a"), &name("b")]);
    // One without a name can be heard, but not answered.
    let (_server, inbox) = open(h, &name("other"));
    let (client, _) = connect(h, &name("other"));
    client.send(&h.lp, b"guess who");
    let letter = inbox.only(h);
    assert_eq!((letter.bytes.as_slice(), letter.from), (&b"guess who"[..], None));
}

pub(crate) fn f4_connected_socket_hears_its_peer_only(h: &Harness) {
    let (server, server_inbox) = open(h, &any());
    let (stranger, _) = open(h, &any());
    let (client, inbox) = connect(h, &server.local_address(&h.lp).unwrap());
    client.send(&h.lp, b"ahoy");
    let client_address = server_inbox.only(h).from.expect("UDP has addresses");
    stranger.send_to(&h.lp, b"psst", &client_address);
    h.run_for(2 * MS);
    server.send_to(&h.lp, b"ahoy yourself", &client_address);
    assert_eq!(inbox.only(h).bytes, b"ahoy yourself");
}

pub(crate) fn f4_batch_arrives_whole_and_in_order(h: &Harness) {
    let (server, inbox) = open(h, &any());
    let (client, _) = open(h, &any());
    let to = server.local_address(&h.lp).unwrap();
    // Of all lengths, nothing included, and fewer than the smallest receive buffer takes.
    let all: Vec<Vec<u8>> = (0..100u8).map(|n| vec![n; usize::from(n) * 3 % 50]).collect();
    for bytes in &all {
        client.send_to(&h.lp, bytes, &to);
    }
    let got: Vec<Vec<u8>> = inbox.take(h, 100).into_iter().map(|letter| letter.bytes).collect();
    assert_eq!(got, all);
    assert_eq!((client.dropped(), client.failed(), client.queued()), (0, 0, 0));
}

pub(crate) fn f4_busy_socket_does_not_hold_the_loop(h: &Harness) {
    const BUDGET: usize = 4;
    let settings = UdpSettings { budget: BUDGET, ..UdpSettings::default() };
    let (server, inbox) = open_with(h, &any(), settings);
    let to = server.local_address(&h.lp).unwrap();
    let (client, _) = open(h, &any());
    for n in 0..100u8 {
        client.send_to(&h.lp, &[n], &to);
    }
    let (most, before) = (Rc::new(Cell::new(0)), Cell::new(0));
    let (record, count) = (Rc::clone(&most), inbox.clone());
    h.lp.on_turn(HookKind::Prepare, move |_| {
        let now = count.len();
        record.set(record.get().max(now - before.replace(now)));
    });
    let look = inbox.clone();
    h.run_until(move || look.len() == 100);
    // A turn has two places where it may go on: what it has put off, and what the kernel tells. A completion
    // brings one more.
    assert!(most.get() <= 2 * BUDGET + 1, "{} in one turn", most.get());
}

// --- Queues --------------------------------------------------------------------------------------------

/// Unix datagrams wait for their receiver on every backend; UDP would lose them on a real one.
pub(crate) fn f4_full_queue_drops_and_counts(h: &Harness) {
    const LIMIT: usize = 10;
    const SENT: u16 = 2000;
    let (receiver, to) = h.bound(SocketKind::UnixDatagram, &h.unix_name("slow"));
    let settings = UdpSettings {
        limit_output_datagrams: LIMIT,
        send_buffer_bytes: Some(8 << 10),
        ..UdpSettings::default()
    };
    let (sender, _) = open_with(h, &h.unix_name("fast"), settings);
    for n in 0..SENT {
        let mut bytes = vec![0; 100];
        bytes[..2].copy_from_slice(&n.to_be_bytes());
        sender.send_to(&h.lp, &bytes, &to);
        assert!(sender.queued() <= LIMIT);
        if n % 16 == 0 {
            h.lp.run_ready().unwrap();
        }
    }
    assert_eq!(sender.queued(), LIMIT, "nobody reads");
    let dropped = sender.dropped();
    assert!(dropped > 0);
    // What was not dropped arrives, once there is room, and in order.
    let mut got = Vec::new();
    for _ in 0..u64::from(SENT) - dropped {
        let bytes = h.receive_datagram(receiver);
        assert_eq!(bytes.len(), 100);
        got.push(u16::from_be_bytes([bytes[0], bytes[1]]));
    }
    assert!(got.is_sorted() && got[0] == 0, "{got:?}");
    let look = sender.clone();
    h.run_until(move || look.queued() == 0);
    assert_eq!((sender.dropped(), sender.failed()), (dropped, 0));
    // And from here on it is as before.
    sender.send_to(&h.lp, b"again", &to);
    assert_eq!(h.receive_datagram(receiver), b"again");
}

pub(crate) fn f4_bytes_in_the_queue_are_bounded(h: &Harness) {
    let (receiver, to) = h.bound(SocketKind::UnixDatagram, &h.unix_name("slow"));
    let settings = UdpSettings {
        limit_output_bytes: 3000,
        send_buffer_bytes: Some(8 << 10),
        ..UdpSettings::default()
    };
    let (sender, _) = open_with(h, &h.unix_name("fast"), settings);
    let mut sent = 0;
    for round in 1..=3 {
        while sender.dropped() < round {
            sender.send_to(&h.lp, &[0; 1000], &to);
            h.lp.run_ready().unwrap();
            sent += 1;
            assert!(sent < 10_000, "never full");
        }
        assert_eq!(sender.queued(), 3);
        while round < 3 && sent > sender.dropped() {
            assert_eq!(h.receive_datagram(receiver), [0; 1000]);
            sent -= 1;
        }
    }
    // What is dropped as it closes is counted, too; so is the one the kernel had not taken.
    sender.close(&h.lp);
    h.run_for(2 * MS);
    assert!(sender.dropped() >= 6, "{sender:?}");
    for _ in 0..sent - sender.dropped() {
        assert_eq!(h.receive_datagram(receiver), [0; 1000]);
    }
}

pub(crate) fn f4_order_is_kept_while_the_queue_is_sent(h: &Harness) {
    let (receiver, inbox) = open(h, &h.unix_name("receiver"));
    let to = receiver.local_address(&h.lp).unwrap();
    let settings = UdpSettings { budget: 1, ..UdpSettings::default() };
    let (sender, _) = open_with(h, &h.unix_name("sender"), settings);
    // In the first stage of a turn, when the rest of the queue has been put off to the third.
    let next = Cell::new(0u16);
    let repeat = sender.clone();
    let timer = h.lp.every(Duration::from_micros(20), move |lp| {
        for _ in 0..5 {
            if next.get() < 600 {
                repeat.send_to(lp, &next.get().to_be_bytes(), &to);
                next.set(next.get() + 1);
            }
        }
    });
    let letters = inbox.take(h, 600);
    timer.cancel();
    let got = letters.iter().map(|letter| [letter.bytes[0], letter.bytes[1]]);
    assert!(got.map(u16::from_be_bytes).eq(0..600), "{letters:?}");
    assert_eq!((sender.dropped(), sender.failed()), (0, 0));
}

pub(crate) fn f4_truncated_datagram_says_so(h: &Harness) {
    let settings = UdpSettings { limit_datagram_bytes: 4, ..UdpSettings::default() };
    let (server, inbox) = open_with(h, &any(), settings);
    let (client, _) = open(h, &any());
    for bytes in [&b"0123456789"[..], b"next", b""] {
        client.send_to(&h.lp, bytes, &server.local_address(&h.lp).unwrap());
    }
    let got: Vec<(Vec<u8>, bool)> =
        inbox.take(h, 3).into_iter().map(|letter| (letter.bytes, letter.truncated)).collect();
    assert_eq!(got, [(b"0123".to_vec(), true), (b"next".to_vec(), false), (vec![], false)]);
}

// --- Errors --------------------------------------------------------------------------------------------

pub(crate) fn f4_refusal_is_told_and_receiving_goes_on(h: &Harness) {
    let address = own_address(h, 1);
    let (client, inbox) = connect(h, &address);
    let errors = Errors::of(&client);
    let before = h.lp.now();
    for round in 0..20 {
        client.send(&h.lp, b"is anybody there?");
        let error = errors.first(h);
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "round {round}");
        assert!(error.to_string().ends_with(": connection refused"), "{error}");
        h.run_for(MS);
        errors.0.take();
    }
    if h.is_simulated() {
        assert!(h.lp.now() - before < 60 * MS, "nothing is wrong with the socket: no pause");
    }
    let (_server, address) = echo(h, &address);
    client.send(&h.lp, b"and now?");
    let letter = inbox.only(h);
    assert_eq!((letter.bytes.as_slice(), letter.from), (&b"and now?"[..], Some(address)));
}

pub(crate) fn f4_refusal_of_one_datagram_does_not_cost_the_next(h: &Harness) {
    let address = own_address(h, 2);
    let (server, _) = h.bound(SocketKind::Udp4, &address);
    let (client, _) = connect(h, &address);
    client.send(&h.lp, b"first");
    assert_eq!(h.receive_datagram(server), b"first", "it is connected");
    h.close(server);
    client.send(&h.lp, b"nobody is there");
    let (_server, inbox) = open(h, &address);
    client.send(&h.lp, b"somebody is there");
    h.run_until(move || inbox.0.borrow().iter().any(|letter| letter.bytes == b"somebody is there"));
    assert_eq!((client.dropped(), client.failed()), (0, 0));
}

pub(crate) fn f4_datagram_that_cannot_be_sent_is_told_and_counted(h: &Harness) {
    let (server, inbox) = open(h, &any());
    let to = server.local_address(&h.lp).unwrap();
    let (client, _) = open(h, &any());
    let errors = Errors::of(&client);
    client.send_to(&h.lp, &vec![0; 70_000], &to);
    assert_eq!(errors.len(), 0, "not from inside the call");
    client.send_to(&h.lp, b"short", &to);
    assert_eq!(inbox.only(h).bytes, b"short");
    let expected = format!("cannot send 70000 bytes to {to}: message too long");
    assert_eq!(errors.first(h).to_string(), expected);
    assert_eq!((client.failed(), client.dropped()), (1, 0));
    client.send(&h.lp, b"to whom?"); // it is not connected
    let expected = "cannot send 8 bytes: destination address required";
    assert_eq!(errors.first(h).to_string(), expected);
    assert_eq!((client.failed(), client.dropped()), (2, 0));
}

pub(crate) fn f4_payload_is_sent_without_a_copy_to_many(h: &Harness) {
    let sockets: Vec<(Udp, Inbox)> = (0..5).map(|_| open(h, &any())).collect();
    let (sender, _) = open(h, &any());
    let news = bytes::Bytes::from(b"the same for everybody".to_vec());
    for (udp, _) in &sockets {
        let to = udp.local_address(&h.lp).unwrap();
        sender.send_payload(&h.lp, news.clone(), Some(&to));
    }
    for (_, inbox) in &sockets {
        assert_eq!(inbox.only(h).bytes, news);
    }
    h.run_until(move || news.is_unique()); // nothing of it is kept
}

// --- The end -------------------------------------------------------------------------------------------

pub(crate) fn f4_closed_socket_is_quiet_and_gives_its_address_back(h: &Harness) {
    let open_before = h.open_descriptors();
    let (client, _) = open(h, &any());
    let inbox = Inbox::default();
    let owned = Rc::new(());
    let (held, list) = (Rc::clone(&owned), inbox.clone());
    let address = own_address(h, 3);
    let server = Udp::bind(&h.lp, &address, move |_, _, datagram| {
        let _held = &held;
        list.add(datagram);
    });
    let server = server.expect("bind");
    client.send_to(&h.lp, b"heard", &address);
    assert_eq!(inbox.only(h).bytes, b"heard");
    client.send_to(&h.lp, b"too late", &address);
    server.close(&h.lp);
    server.close(&h.lp); // twice is no harm
    server.send_to(&h.lp, b"nothing", &address);
    assert_eq!(server.dropped(), 1);
    assert_eq!(Rc::strong_count(&owned), 1, "the callback is gone");
    h.run_for(3 * MS);
    assert_eq!(inbox.len(), 0);
    assert!(server.local_address(&h.lp).is_err());
    let inbox = Inbox::default();
    let again = loop {
        match Udp::bind(&h.lp, &address, inbox.callback()) {
            Ok(again) => break again,
            Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}"),
        }
        h.run_for(MS); // the close is under way
    };
    client.send_to(&h.lp, b"somebody else", &address);
    let letters = inbox.take(h, 1);
    assert_eq!(letters.last().map(|letter| letter.bytes.as_slice()), Some(&b"somebody else"[..]));
    again.close(&h.lp);
    client.close(&h.lp);
    h.lp.run_until_idle().unwrap();
    assert_eq!(h.open_descriptors(), open_before);
}

pub(crate) fn f4_callback_may_close_its_own_socket(h: &Harness) {
    let count = Rc::new(Cell::new(0));
    let counter = Rc::clone(&count);
    let server = Udp::bind(&h.lp, &any(), move |lp, udp, _| {
        counter.set(counter.get() + 1);
        if counter.get() == 3 {
            udp.close(lp);
        }
    });
    let server = server.expect("bind");
    let to = server.local_address(&h.lp).unwrap();
    let (client, _) = open(h, &any());
    for n in 0..20u8 {
        client.send_to(&h.lp, &[n], &to);
    }
    let look = Rc::clone(&count);
    h.run_until(move || look.get() >= 3);
    h.run_for(3 * MS);
    assert_eq!(count.get(), 3);
    assert_eq!(Rc::strong_count(&count), 1, "the callback is gone");
    drop(server);
}

pub(crate) fn f4_panic_in_a_callback_costs_one_datagram(h: &Harness) {
    let inbox = Inbox::default();
    let list = inbox.clone();
    let server = Udp::bind(&h.lp, &any(), move |_, _, datagram| {
        assert_ne!(datagram.bytes, b"poison");
        list.add(datagram);
    });
    let to = server.expect("bind").local_address(&h.lp).unwrap();
    let (client, _) = open(h, &any());
    for bytes in [&b"before"[..], b"poison", b"poison", b"after"] {
        client.send_to(&h.lp, bytes, &to);
    }
    let got: Vec<Vec<u8>> = inbox.take(h, 2).into_iter().map(|letter| letter.bytes).collect();
    assert_eq!(got, [b"before".to_vec(), b"after".to_vec()]);
}

pub(crate) fn f4_address_in_use_is_named(h: &Harness) {
    let (first, _) = open(h, &any());
    let address = first.local_address(&h.lp).unwrap();
    let open_before = h.open_descriptors();
    let error = Udp::bind(&h.lp, &address, |_, _, _| ()).expect_err("it is in use");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert_eq!(error.to_string(), format!("cannot bind {address}: address already in use"));
    h.run_for(2 * MS);
    assert_eq!(h.open_descriptors(), open_before, "and nothing is left of it");
}

pub(crate) fn f4_several_sockets_share_a_port(h: &Harness) {
    let settings = UdpSettings { reuse_port: true, ..UdpSettings::default() };
    let (first, first_inbox) = open_with(h, &any(), settings.clone());
    let address = first.local_address(&h.lp).unwrap();
    let (_second, second_inbox) = open_with(h, &address, settings);
    let (client, _) = open(h, &any());
    for n in 0..20u8 {
        client.send_to(&h.lp, &[n], &address);
    }
    // Who of them hears it is the kernel's business; somebody does.
    h.run_until(move || first_inbox.len() + second_inbox.len() == 20);
}

// --- In the simulator ----------------------------------------------------------------------------------

/// A conversation in which every datagram may be lost, and is repeated until it is answered.
fn persist(h: &Harness, until: usize) -> bool {
    let Ok(server) = Udp::bind(&h.lp, &any(), |lp, udp, datagram| {
        if let Some(from) = datagram.from {
            udp.send_to(lp, datagram.bytes, from);
        }
    }) else {
        return false;
    };
    let Ok(address) = server.local_address(&h.lp) else {
        server.close(&h.lp);
        return false;
    };
    let inbox = Inbox::default();
    let Ok(client) = Udp::connect(&h.lp, &address, inbox.callback()) else {
        server.close(&h.lp);
        return false;
    };
    let repeat = client.clone();
    let timer = h.lp.every(100 * MS, move |lp| repeat.send(lp, b"ahoy"));
    let look = inbox.clone();
    let give_up = h.kernel().elapsed() + Duration::from_secs(600);
    let kernel: Kernel = h.kernel().clone();
    h.run_until(move || look.len() >= until || kernel.elapsed() > give_up);
    timer.cancel();
    for letter in inbox.0.borrow().iter() {
        assert_eq!(letter.bytes, b"ahoy", "made up");
    }
    let arrived = inbox.len() >= until;
    server.close(&h.lp);
    client.close(&h.lp);
    arrived
}

fn assert_no_leak(h: &Harness) {
    h.lp.run_until_idle().unwrap();
    assert_eq!(h.open_descriptors(), 0, "{}", h.lp.dump());
}

pub(crate) fn f4_any_failure_is_survived_and_leaks_nothing(h: &Harness) {
    let total = {
        let h = h.simulated(5, Faults::none());
        assert!(persist(&h, 5));
        assert_no_leak(&h);
        (h.kernel().operations(), h.kernel().calls())
    };
    let mut connected = 0;
    for n in 1..=total.0 {
        let h = h.simulated(5, Faults::none());
        h.kernel().fail_nth(n, EIO);
        // Only a connect that failed is not made up for by sending again.
        connected += u64::from(persist(&h, 5));
        assert_no_leak(&h);
    }
    assert_eq!(connected, total.0 - 1);
    for n in 1..=total.1 {
        let h = h.simulated(5, Faults::none());
        h.kernel().fail_nth_call(n, EIO);
        assert!(!persist(&h, 5), "call {n} was not needed");
        assert_no_leak(&h);
    }
}

pub(crate) fn f4_unkind_kernels_lose_datagrams_and_make_up_none(h: &Harness) {
    let mut arrived = 0;
    for seed in 0..200 {
        let faults = Faults { time_out_connect: 0.0, refuse_connect: 0.0, ..Faults::hostile() };
        let h = h.simulated(seed, faults);
        arrived += u32::from(persist(&h, 5));
        assert_no_leak(&h);
    }
    // Sometimes there is no descriptor to begin with.
    assert!(arrived > 150, "{arrived} of 200");
}

pub(crate) fn f4_broken_socket_does_not_keep_the_loop_busy(h: &Harness) {
    let h = h.simulated(1, Faults::none());
    let (server, inbox) = open(&h, &any());
    let errors = Errors::of(&server);
    let first = h.kernel().operations() + 1;
    for n in first..first + 30 {
        h.kernel().fail_nth(n, EIO);
    }
    h.run_for(Duration::from_secs(1));
    assert!(h.kernel().operations() < first + 30, "it tried in vain all the time");
    assert!(errors.len() > 1, "and said so");
    h.run_for(Duration::from_secs(10));
    let (client, _) = open(&h, &any());
    client.send_to(&h.lp, b"well again?", &server.local_address(&h.lp).unwrap());
    assert_eq!(inbox.only(&h).bytes, b"well again?");
    // Closed while it is left alone, it leaves no timer behind.
    let next = h.kernel().operations() + 1;
    for n in next + 1..next + 30 {
        h.kernel().fail_nth(n, EIO);
    }
    client.send_to(&h.lp, b"ill again", &server.local_address(&h.lp).unwrap());
    h.run_for(MS);
    assert!(h.lp.dump().contains("1 timers"), "{}", h.lp.dump());
    server.close(&h.lp);
    assert!(h.lp.dump().contains("0 timers"), "{}", h.lp.dump());
}

pub(crate) fn f4_failures_between_datagrams_do_not_add_up(h: &Harness) {
    let h = h.simulated(1, Faults::none());
    let (server, inbox) = open(&h, &any());
    let (client, _) = open(&h, &any());
    h.run_for(MS);
    let before = h.lp.now();
    for round in 1..=5 {
        let send = h.kernel().operations() + 1;
        for receive in send + 1..=send + 10 {
            h.kernel().fail_nth(receive, EIO);
        }
        client.send_to(&h.lp, b"ahoy", &server.local_address(&h.lp).unwrap());
        let look = inbox.clone();
        h.run_until(move || look.len() == round);
        h.run_for(MS);
    }
    assert_eq!(h.kernel().injected().count(Fault::FailNth), 50);
    assert!(h.lp.now() - before < 60 * MS, "no pause");
}
