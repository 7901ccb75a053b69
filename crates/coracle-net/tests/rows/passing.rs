//! Row F6: descriptors travel with the bytes of a Unix connection.

use crate::harness::Harness;
use crate::peers::{Notes, Noting, Pair};
use crate::sample_layers::Xor;
use coracle_loop::demux::{Handle, Message, Operation, Outcome, Outgoing, Payload};
use coracle_net::{Buffer, Conn, Packet, Protocol, Reason, Settings, attach};
use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// A protocol that accepts so many descriptors, and is otherwise another.
struct Accepting<P>(usize, P);

impl<P: Protocol> Protocol for Accepting<P> {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        conn.accept_descriptors(self.0);
        self.1.on_open(conn)
    }
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        self.1.on_data(conn, input)
    }
    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.1.on_end(conn)
    }
    fn on_close(&mut self, reason: &Reason) {
        self.1.on_close(reason);
    }
}

/// The two ends of a Unix connection, of which one accepts `limit` descriptors and is served by `on_data`.
fn pair(
    h: &Harness,
    limit: usize,
    on_data: impl FnMut(&mut Conn<'_>, &mut Buffer) -> io::Result<()> + 'static,
) -> Pair<'_> {
    let (client, socket) = h.lp.socket_pair().expect("a pair");
    let notes = Notes::default();
    let protocol = Accepting(limit, Noting { notes: Rc::clone(&notes), on_data });
    let server = attach(&h.lp, socket, Settings::default(), protocol).expect("it is served");
    Pair { h, client, server, notes }
}

fn pass(pair: &Pair<'_>, bytes: &[u8], descriptors: Vec<OwnedFd>) {
    let payload = Payload::from(bytes.to_vec());
    let message = Box::new(Outgoing { payload, to: None, descriptors });
    let sent = pair.h.operate(Operation::SendMessage { socket: pair.client, message }).result;
    assert!(matches!(sent, Ok(Outcome::Count(count)) if count == bytes.len()), "{sent:?}");
}

fn receive_message(h: &Harness, socket: Handle) -> (Message, Vec<u8>) {
    let space = vec![0; 1 << 20].into();
    let finished = h.operate(Operation::ReceiveMessage { socket, space, limit_descriptors: 8 });
    let Ok(Outcome::Message(message)) = finished.result else { panic!("{:?}", finished.result) };
    let bytes = finished.payload.into_vec()[..message.count].to_vec();
    (*message, bytes)
}

/// Something to pass, and where it can be seen that it has arrived.
fn pipe() -> (PipeReader, OwnedFd) {
    let (reader, writer) = io::pipe().expect("a pipe");
    (reader, writer.into())
}

/// Everything that is written to a pipe until its last writer is closed.
fn all(mut reader: PipeReader) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("it is read");
    text
}

pub(crate) fn f6_descriptors_travel_both_ways(h: &Harness) {
    let (answers, writer) = pipe();
    let mut writer = Some(writer);
    let pair = pair(h, 2, move |conn, input| {
        for descriptor in conn.take_descriptors() {
            File::from(descriptor).write_all(input.unread())?;
        }
        assert!(conn.take_descriptors().is_empty(), "they are taken once");
        input.take_all();
        conn.write(Packet::descriptors("yours", writer.take().into_iter().collect()));
        Ok(())
    });
    let (first, first_writer) = pipe();
    let (second, second_writer) = pipe();
    pass(&pair, b"ours", vec![first_writer, second_writer]);
    let (message, bytes) = receive_message(h, pair.client);
    assert_eq!((bytes.as_slice(), message.descriptors.len()), (&b"yours"[..], 1));
    assert_eq!((all(first).as_str(), all(second).as_str()), ("ours", "ours"));
    for descriptor in message.descriptors {
        File::from(descriptor).write_all(b"thanks").expect("it is open");
    }
    assert_eq!(all(answers), "thanks", "and no copy is left here");
    // Bytes alone, as ever.
    pair.send(b"and");
    assert_eq!(pair.receive(5), "yours");
    pair.end();
    assert_eq!(pair.over(), ["open", "data", "end", "close: closed"]);
}

pub(crate) fn f6_descriptors_keep_their_place_among_bytes(h: &Harness) {
    let (answers, writer) = pipe();
    let mut writer = Some(writer);
    let pair = pair(h, 0, move |conn, input| {
        input.take_all();
        conn.write(vec![b'a'; 1 << 20]); // more than the socket takes at once
        conn.write("b");
        conn.write(Packet::descriptors(vec![b'c'; 1 << 20], writer.take().into_iter().collect()));
        conn.write_slice(b"d");
        conn.close();
        Ok(())
    });
    pair.send(b"x");
    let (mut stream, mut passed) = (Vec::new(), Vec::new());
    loop {
        let (message, bytes) = receive_message(h, pair.client);
        if bytes.is_empty() {
            break;
        }
        let range = stream.len()..stream.len() + bytes.len();
        stream.extend(bytes);
        passed.extend(message.descriptors.into_iter().map(|it| (range.clone(), it)));
    }
    assert_eq!(stream.len(), (2 << 20) + 2);
    assert!(stream[1 << 20..].starts_with(b"bccc") && stream.ends_with(b"cccd"));
    let (range, descriptor) = passed.pop().expect("one has come");
    assert!(passed.is_empty(), "and one alone");
    assert!(range.contains(&((1 << 20) + 1)), "with the first byte of its packet: {range:?}");
    File::from(descriptor).write_all(b"thanks").expect("it is open");
    assert_eq!(all(answers), "thanks");
}

pub(crate) fn f6_descriptors_that_nobody_asked_for_are_closed(h: &Harness) {
    let pair = pair(h, 0, |conn, input| {
        assert!(conn.take_descriptors().is_empty());
        conn.write(input.take_all());
        Ok(())
    });
    let (reader, writer) = pipe();
    pass(&pair, b"for you", vec![writer]);
    assert_eq!(pair.receive(7), "for you");
    assert_eq!(all(reader), "");
}

pub(crate) fn f6_more_descriptors_than_may_wait_end_the_connection(h: &Harness) {
    let pair = pair(h, 2, |_, _| Ok(())); // takes none
    let (reader, writer) = pipe();
    let copy = || writer.try_clone().expect("a copy");
    pass(&pair, b"one", vec![copy()]);
    pass(&pair, b"two", vec![copy()]);
    pair.run_until_noted("data");
    pass(&pair, b"three", vec![copy()]);
    let end = "close: the peer sent more than any message may have";
    assert_eq!(pair.over(), ["open", "data", end]);
    drop(writer);
    assert_eq!(all(reader), "", "all of them are closed");
}

pub(crate) fn f6_descriptors_do_not_pass_through_a_layer(h: &Harness) {
    let pair = pair(h, 0, |conn, input| {
        input.take_all();
        conn.push_layer(Xor);
        conn.write(Packet::descriptors("secret", vec![pipe().1]));
        Ok(())
    });
    pair.send(b"x");
    let end =
        "close: closed by the protocol: descriptors cannot pass through layers, which change bytes";
    assert_eq!(pair.receive_all(), b"");
    pair.end();
    assert_eq!(pair.over(), ["open", "data", end]);
}
