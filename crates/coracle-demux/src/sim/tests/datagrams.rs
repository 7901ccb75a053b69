//! Messages: whole, with their sender, and lost only on purpose.

use super::*;
use crate::operation::Message;
use crate::operation::Outgoing;
use crate::socket::SocketOption;
use rustix::io::Errno;

impl Rig {
    fn datagram_socket(&mut self, kind: SocketKind, at: &str) -> Handle {
        let socket = self.demux.socket(kind).unwrap();
        self.demux.bind(socket, &at.parse().unwrap()).unwrap();
        socket
    }

    fn receive_message(&mut self, socket: Handle, bytes: usize) -> (Box<Message>, Vec<u8>) {
        let space = space(bytes);
        let finished = self.run(Operation::ReceiveMessage { socket, space, limit_descriptors: 0 });
        let Ok(Outcome::Message(message)) = finished.result else { panic!("no message") };
        let mut bytes = finished.payload.into_vec();
        bytes.truncate(message.count);
        (message, bytes)
    }
}

fn message(socket: Handle, bytes: &[u8], to: &str) -> Operation {
    let to = Some(to.parse().unwrap());
    let message =
        Box::new(Outgoing { payload: bytes.to_vec().into(), to, descriptors: Vec::new() });
    Operation::SendMessage { socket, message }
}

#[test]
fn messages_keep_their_boundaries_and_their_sender() {
    for (kind, a, b) in [
        (SocketKind::Udp4, "127.0.0.1:1000", "127.0.0.1:2000"),
        (SocketKind::Udp6, "[::1]:1000", "[::1]:2000"),
        (SocketKind::UnixDatagram, "unix:@a", "unix:/b"),
    ] {
        on_kernels(|rig| {
            let (from, to) = (rig.datagram_socket(kind, a), rig.datagram_socket(kind, b));
            for bytes in [&b"one"[..], b"", b"three"] {
                assert_eq!(count(rig.result(message(from, bytes, b))), bytes.len());
            }
            for bytes in [&b"one"[..], b"", b"three"] {
                let (message, received) = rig.receive_message(to, 16);
                assert_eq!(received, bytes);
                assert!(!message.truncated);
                assert_eq!(message.from.unwrap().to_string(), a);
            }
        });
    }
}

#[test]
fn a_message_longer_than_the_space_is_cut_and_says_so() {
    let mut rig = Rig::kind();
    let (from, to) = (
        rig.datagram_socket(SocketKind::Udp4, "127.0.0.1:1"),
        rig.datagram_socket(SocketKind::Udp4, "127.0.0.1:2"),
    );
    rig.result(message(from, b"too long", "127.0.0.1:2")).unwrap();
    rig.result(message(from, b"next", "127.0.0.1:2")).unwrap();
    let (message, bytes) = rig.receive_message(to, 3);
    assert!(message.truncated);
    assert_eq!(bytes, b"too");
    assert_eq!(rig.receive_message(to, 16).1, b"next");
}

#[test]
fn a_sender_without_an_address_gets_one_and_is_answered() {
    let mut rig = Rig::kind();
    let server = rig.datagram_socket(SocketKind::Udp4, "0.0.0.0:53");
    let client = rig.demux.socket(SocketKind::Udp4).unwrap();
    let address = "127.0.0.1:53".parse().unwrap();
    rig.result(Operation::Connect { socket: client, address }).unwrap();
    rig.result(Operation::Send { socket: client, payload: b"who?".to_vec().into() }).unwrap();
    let from = rig.receive_message(server, 16).0.from.unwrap().to_string();
    rig.result(message(server, b"you", &from)).unwrap();
    assert_eq!(rig.receive(client).unwrap(), b"you");
    // A connected socket hears nobody else.
    let stranger = rig.datagram_socket(SocketKind::Udp4, "127.0.0.1:666");
    rig.result(message(stranger, b"psst", &from)).unwrap();
    let receive = rig.start(Operation::Receive { socket: client, space: space(16) });
    assert!(rig.demux.wait(None).is_err(), "nothing arrives");
    rig.demux.cancel(receive);
}

#[test]
fn messages_to_nobody_vanish_or_are_refused() {
    let mut rig = Rig::kind();
    let udp = rig.demux.socket(SocketKind::Udp4).unwrap();
    assert_eq!(count(rig.result(message(udp, b"x", "127.0.0.1:9"))), 1);
    let send = |socket| Operation::Send { socket, payload: b"x".to_vec().into() };
    assert_eq!(rig.errno(send(udp)), Errno::DESTADDRREQ);
    let address = "127.0.0.1:9".parse().unwrap();
    rig.result(Operation::Connect { socket: udp, address }).unwrap();
    rig.result(send(udp)).unwrap();
    assert_eq!(rig.errno(send(udp)), Errno::CONNREFUSED, "the answer to the one before");

    let unix = rig.demux.socket(SocketKind::UnixDatagram).unwrap();
    assert_eq!(rig.errno(message(unix, b"x", "unix:/nobody")), Errno::NOENT);
    assert_eq!(rig.errno(message(unix, b"x", "unix:@nobody")), Errno::CONNREFUSED);
    assert_eq!(rig.errno(message(udp, &[0; 70_000], "127.0.0.1:9")), Errno::MSGSIZE);
}

#[test]
fn a_full_queue_makes_senders_wait_until_there_is_room_or_nobody() {
    on_kernels(|rig| {
        let to = rig.datagram_socket(SocketKind::UnixDatagram, "unix:@to");
        let senders = [(); 4].map(|()| {
            let sender = rig.demux.socket(SocketKind::UnixDatagram).unwrap();
            rig.demux.set_option(sender, SocketOption::SendBuffer(20)).unwrap();
            sender
        });
        let send = |sender: usize| message(senders[sender], &[sender as u8; 9], "unix:@to");
        rig.result(send(0)).unwrap();
        rig.result(send(1)).unwrap();
        let waiting = rig.start(send(2));
        assert_eq!(rig.receive_message(to, 16).1, [0; 9]);
        assert_eq!(count(rig.take(waiting).result), 9);
        let waiting = rig.start(send(3));
        rig.close(to);
        assert_eq!(errno(&rig.take(waiting).result.unwrap_err()), Errno::CONNREFUSED);
    });
}

#[test]
fn udp_loses_and_reorders_only_if_the_faults_say_so() {
    let run = |faults: Faults| {
        let mut rig = Rig::new(Kernel::with_faults(3, faults));
        let from = rig.datagram_socket(SocketKind::Udp4, "127.0.0.1:1");
        let to = rig.datagram_socket(SocketKind::Udp4, "127.0.0.1:2");
        for number in 0..100u8 {
            rig.result(message(from, &[number], "127.0.0.1:2")).unwrap();
        }
        rig.close(from);
        let receive = rig.start(Operation::ReceiveLent { socket: to });
        rig.demux.cancel(receive);
        rig.settle();
        let mut numbers = Vec::new();
        loop {
            let space = space(4);
            match rig.demux.submit(Operation::Receive { socket: to, space }) {
                Submitted::Done(finished) => numbers.push(finished.payload.into_vec()[0]),
                Submitted::Pending(_) => return numbers,
            }
        }
    };
    let all: Vec<u8> = (0..100).collect();
    assert_eq!(run(Faults::none()), all);
    let lost = run(Faults { drop_datagram: 0.5, ..Faults::none() });
    assert!(lost.len() > 20 && lost.len() < 80 && lost.is_sorted());
    let mut reordered = run(Faults { reorder_datagram: 0.5, ..Faults::none() });
    assert!(!reordered.is_sorted());
    reordered.sort();
    assert_eq!(reordered, all);
}
