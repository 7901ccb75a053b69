//! Sockets of all families, their addresses and their errors.

use crate::harness::{Harness, Submission, count, errno};
use coracle_demux::{
    Address, Handle, Memory, Message, Operation, Outcome, Outgoing, Payload, SocketKind,
    SocketOption,
};
use rustix::io::Errno;
use std::net::Shutdown;
use std::time::{Duration, Instant};

pub(crate) fn rule_07_both_directions_work_at_once(h: &mut Harness) {
    let (a, b) = h.connection();
    let on_a = h.submit(Operation::Receive { socket: a, space: vec![0; 5].into() }).token();
    let on_b = h.submit(Operation::Receive { socket: b, space: vec![0; 5].into() }).token();
    h.send_all(a, b"there");
    h.send_all(b, b"again");
    let (to_b, to_a) = (h.next_of(on_b), h.next_of(on_a));
    let (n, m) = (count(to_b.result), count(to_a.result));
    assert_eq!(to_b.payload.into_vec()[..n], b"there"[..n]);
    assert_eq!(to_a.payload.into_vec()[..m], b"again"[..m]);
}

pub(crate) fn rule_13_connect_to_nobody_is_refused(h: &mut Harness) {
    let (listener, address) = h.listen();
    h.close(listener);
    let socket = h.demux.socket(SocketKind::Tcp4).unwrap();
    let result = h.run(Operation::Connect { socket, address });
    assert_eq!(errno(result), Errno::CONNREFUSED.raw_os_error());
}

/// It would look like the end of the stream.
pub(crate) fn rule_13_receive_without_space_is_refused(h: &mut Harness) {
    let (a, b) = h.connection();
    h.send_all(a, b"ahoy");
    for (space, error) in [
        (Memory::from(Vec::with_capacity(4096)), Errno::INVAL),
        (Memory::from(&b"only for sending"[..]), Errno::FAULT),
    ] {
        match h.submit(Operation::Receive { socket: b, space }) {
            Submission::Done(finished) => {
                assert_eq!(errno(finished.result), error.raw_os_error());
            }
            Submission::Pending(_) => panic!("accepted"),
        }
    }
    assert_eq!(h.receive_exactly(b, 4), b"ahoy");
}

pub(crate) fn rule_13_reset_is_an_error_of_the_receive(h: &mut Harness) {
    let (a, b) = h.connection();
    let receive = h.submit(Operation::ReceiveLent { socket: b }).token();
    h.demux.set_option(a, SocketOption::ResetOnClose(true)).unwrap();
    h.close(a);
    let completion = h.next_of(receive);
    assert!(!completion.more);
    assert_eq!(errno(completion.result), Errno::CONNRESET.raw_os_error());
}

pub(crate) fn rule_13_address_in_use_is_an_error_of_bind(h: &mut Harness) {
    let (_listener, address) = h.listen();
    let second = h.demux.socket(SocketKind::Tcp4).unwrap();
    assert_eq!(errno(h.demux.bind(second, &address)), Errno::ADDRINUSE.raw_os_error());
}

pub(crate) fn half_closed_connection_still_answers(h: &mut Harness) {
    for _ in 0..50 {
        let (client, server) = h.connection();
        let receive = h.submit(Operation::ReceiveLent { socket: server }).token();
        h.send_all(client, b"question");
        h.run(Operation::Shutdown { socket: client, how: Shutdown::Write }).unwrap();
        let mut question = Vec::new();
        let mut token = receive;
        loop {
            let completion = h.next_of(token);
            let Ok(Outcome::Lent(bytes)) = completion.result else { panic!("not lent") };
            if bytes.is_empty() {
                break;
            }
            question.extend_from_slice(&bytes);
            if !completion.more {
                token = h.submit(Operation::ReceiveLent { socket: server }).token();
            }
        }
        assert_eq!(question, b"question");
        h.send_all(server, b"answer");
        h.close(server);
        assert_eq!(h.receive_exactly(client, 6), b"answer");
        assert_eq!(h.receive(client, 1).unwrap(), b"");
        h.close(client);
    }
}

pub(crate) fn addresses_of_both_ends_agree(h: &mut Harness) {
    let (client, server) = h.connection();
    assert_eq!(h.demux.local_address(client).unwrap(), h.demux.peer_address(server).unwrap());
    assert_eq!(h.demux.peer_address(client).unwrap(), h.demux.local_address(server).unwrap());
    assert!(h.demux.local_address(client).unwrap().ip().unwrap().ip().is_loopback());
}

fn unix_round_trip(h: &mut Harness, address: Address) {
    let listener = h.demux.socket(SocketKind::UnixStream).unwrap();
    h.demux.bind(listener, &address).unwrap();
    h.demux.listen(listener, 16).unwrap();
    assert_eq!(h.demux.local_address(listener).unwrap(), address);
    let accept = h.submit(Operation::Accept { listener }).token();
    let client = h.demux.socket(SocketKind::UnixStream).unwrap();
    h.run(Operation::Connect { socket: client, address }).unwrap();
    let Ok(Outcome::Accepted(server)) = h.next_of(accept).result else { panic!("not accepted") };
    h.send_all(client, b"ahoy");
    assert_eq!(h.receive_exactly(server, 4), b"ahoy");
}

pub(crate) fn unix_listener_accepts(h: &mut Harness) {
    let path = std::env::temp_dir().join(format!(
        "coracle-unix-{}-{}",
        std::process::id(),
        h.demux.backend().name()
    ));
    let _ = std::fs::remove_file(&path);
    unix_round_trip(h, format!("unix:{}", path.display()).parse().unwrap());
    let _ = std::fs::remove_file(&path);
}

pub(crate) fn abstract_unix_name_accepts(h: &mut Harness) {
    let name = format!("unix:@coracle-test-{}-{}", std::process::id(), h.demux.backend().name());
    unix_round_trip(h, name.parse().unwrap());
}

fn datagram_socket(h: &mut Harness) -> (Handle, Address) {
    let socket = h.demux.socket(SocketKind::Udp4).unwrap();
    h.demux.bind(socket, &"127.0.0.1:0".parse().unwrap()).unwrap();
    let address = h.demux.local_address(socket).unwrap();
    (socket, address)
}

fn send_to(h: &mut Harness, socket: Handle, bytes: &[u8], to: &Address) {
    let message = Box::new(Outgoing {
        payload: Payload::from(bytes.to_vec()),
        to: Some(to.clone()),
        descriptors: Vec::new(),
    });
    assert_eq!(count(h.run(Operation::SendMessage { socket, message })), bytes.len());
}

fn receive_message(h: &mut Harness, submission: Submission) -> (Box<Message>, Vec<u8>) {
    let finished = h.finish(submission);
    let Ok(Outcome::Message(message)) = finished.result else { panic!("{:?}", finished.result) };
    let mut bytes = finished.payload.into_vec();
    bytes.truncate(message.count);
    (message, bytes)
}

pub(crate) fn datagrams_carry_their_sender(h: &mut Harness) {
    let (a, a_address) = datagram_socket(h);
    let (b, b_address) = datagram_socket(h);
    // One that waits, and one that finds the message there.
    for wait_first in [true, false] {
        let receive = Operation::ReceiveMessage {
            socket: b,
            space: vec![0; 100].into(),
            limit_descriptors: 0,
        };
        let submission = if wait_first {
            let submission = h.submit(receive);
            send_to(h, a, b"hello", &b_address);
            submission
        } else {
            send_to(h, a, b"hello", &b_address);
            h.submit(receive)
        };
        let (message, bytes) = receive_message(h, submission);
        assert_eq!(bytes, b"hello");
        assert_eq!(message.from.as_ref(), Some(&a_address));
        assert!(!message.truncated);
    }
}

pub(crate) fn datagram_too_long_is_marked_truncated(h: &mut Harness) {
    let (a, _) = datagram_socket(h);
    let (b, b_address) = datagram_socket(h);
    send_to(h, a, b"0123456789", &b_address);
    send_to(h, a, b"next", &b_address);
    let space = || vec![0; 4].into();
    let receive = Operation::ReceiveMessage { socket: b, space: space(), limit_descriptors: 0 };
    let submission = h.submit(receive);
    let (message, bytes) = receive_message(h, submission);
    assert_eq!((bytes.as_slice(), message.truncated), (&b"0123"[..], true));
    let receive = Operation::ReceiveMessage { socket: b, space: space(), limit_descriptors: 0 };
    let submission = h.submit(receive);
    let (message, bytes) = receive_message(h, submission);
    assert_eq!((bytes.as_slice(), message.truncated), (&b"next"[..], false));
}

pub(crate) fn descriptors_travel_with_messages(h: &mut Harness) {
    use std::io::{Read, Write};
    let (a, b) = h.demux.socket_pair().unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let message = Box::new(Outgoing {
        payload: Payload::from(b"a pipe".to_vec()),
        to: None,
        descriptors: vec![writer.into()],
    });
    assert_eq!(count(h.run(Operation::SendMessage { socket: a, message })), 6);
    let submission = h.submit(Operation::ReceiveMessage {
        socket: b,
        space: vec![0; 16].into(),
        limit_descriptors: 4,
    });
    let (mut message, bytes) = receive_message(h, submission);
    assert_eq!(bytes, b"a pipe");
    assert_eq!(message.descriptors.len(), 1);
    let mut file = std::fs::File::from(message.descriptors.pop().unwrap());
    file.write_all(b"through it").unwrap();
    drop(file);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "through it");
}

/// The sender polls writable and cannot send: nothing tells when the receiver has room again.
pub(crate) fn send_to_a_full_unix_datagram_socket_waits_without_spinning(h: &mut Harness) {
    let name = format!("unix:@coracle-full-{}-{}", std::process::id(), h.demux.backend().name());
    let address: Address = name.parse().unwrap();
    let receiver = h.demux.socket(SocketKind::UnixDatagram).unwrap();
    h.demux.bind(receiver, &address).unwrap();
    let sender = h.demux.socket(SocketKind::UnixDatagram).unwrap();
    let send = |h: &mut Harness| {
        let message = Box::new(Outgoing {
            payload: Payload::from(vec![b'x'; 1000]),
            to: Some(address.clone()),
            descriptors: Vec::new(),
        });
        h.submit(Operation::SendMessage { socket: sender, message })
    };
    let mut sent = 0;
    let blocked = loop {
        match send(h) {
            Submission::Done(finished) => assert_eq!(count(finished.result), 1000),
            Submission::Pending(token) => match h.settle().pop() {
                Some(completion) => assert_eq!(count(completion.result), 1000),
                None => break token,
            },
        }
        sent += 1;
        assert!(sent < 100_000, "the queue never fills");
    };
    if !h.is_simulated() {
        let (start, mut waits) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(100) {
            h.demux.wait(Some(Duration::from_secs(1))).unwrap();
            assert!(h.demux.next().is_none(), "there is no room");
            waits += 1;
        }
        assert!(waits < 1000, "{waits} waits in a tenth of a second");
    }
    for received in 0..=sent {
        if received == 1 {
            assert_eq!(count(h.next_of(blocked).result), 1000, "there is room now");
        }
        assert_eq!(h.receive(receiver, 2000).unwrap().len(), 1000);
    }
    // One that waits can be cancelled, and goes with its socket.
    for close in [false, true] {
        let blocked = loop {
            if let Submission::Pending(token) = send(h)
                && h.settle().is_empty()
            {
                break token;
            }
        };
        if close {
            let closing = h.submit(Operation::Close { handle: sender });
            assert_eq!(errno(h.next_of(blocked).result), Errno::CANCELED.raw_os_error());
            h.finish(closing).result.unwrap();
        } else {
            h.demux.cancel(blocked);
            assert_eq!(errno(h.next_of(blocked).result), Errno::CANCELED.raw_os_error());
        }
    }
}
