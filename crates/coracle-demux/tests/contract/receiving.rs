//! Receiving and accepting: statements 3, 4, 6 and 7.

use crate::harness::{Harness, Submission, count, errno};
use coracle_demux::{Completion, Descriptor, Handle, Operation, Outcome, SocketKind, Token};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::collections::HashMap;
use std::io::Write;
use std::net::Shutdown;

/// Takes completions of lent receives until `wanted` bytes are there, and submits ended ones again.
fn collect_lent(h: &mut Harness, socket: Handle, mut token: Token, wanted: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < wanted {
        let Completion { result, more, .. } = h.next_of(token);
        let Ok(Outcome::Lent(bytes)) = result else { panic!("{result:?}") };
        assert!(!bytes.is_empty(), "the stream ended after {} bytes", all.len());
        all.extend_from_slice(&bytes);
        drop(bytes);
        if !more {
            token = h.submit(Operation::ReceiveLent { socket }).token();
        }
    }
    all
}

pub(crate) fn rule_03_lent_receive_goes_on_until_the_end_of_the_stream(h: &mut Harness) {
    let (a, b) = h.connection();
    let mut token = h.submit(Operation::ReceiveLent { socket: b }).token();
    for message in [&b"one"[..], b"two", b"three"] {
        h.send_all(a, message);
        let mut got = Vec::new();
        while got.len() < message.len() {
            let completion = h.next_of(token);
            let Ok(Outcome::Lent(bytes)) = completion.result else { panic!("not lent") };
            got.extend_from_slice(&bytes);
            if !completion.more {
                token = h.submit(Operation::ReceiveLent { socket: b }).token();
            }
        }
        assert_eq!(got, message);
    }
    h.run(Operation::Shutdown { socket: a, how: Shutdown::Write }).unwrap();
    let end = h.next_of(token);
    assert!(matches!(&end.result, Ok(Outcome::Lent(bytes)) if bytes.is_empty()), "{end:?}");
    assert!(!end.more);
    assert!(h.settle().is_empty(), "nothing follows a final completion");
}

pub(crate) fn rule_03_accept_takes_one_connection_after_another(h: &mut Harness) {
    let (listener, address) = h.listen();
    let mut accept = h.submit(Operation::Accept { listener }).token();
    for _ in 0..20 {
        let clients: Vec<Handle> =
            (0..5).map(|_| h.demux.socket(SocketKind::Tcp4).unwrap()).collect();
        for &socket in &clients {
            h.run(Operation::Connect { socket, address: address.clone() }).unwrap();
        }
        for _ in &clients {
            let completion = h.next_of(accept);
            let Ok(Outcome::Accepted(server)) = completion.result else { panic!("not accepted") };
            if !completion.more {
                accept = h.submit(Operation::Accept { listener }).token();
            }
            h.close(server);
        }
        clients.into_iter().for_each(|client| h.close(client));
    }
}

pub(crate) fn rule_04_cancelled_receive_gives_its_memory_back(h: &mut Harness) {
    let (_a, b) = h.connection();
    let receive = h.submit(Operation::Receive { socket: b, space: vec![5; 64].into() }).token();
    h.settle();
    h.demux.cancel(receive);
    let completion = h.next_of(receive);
    assert!(!completion.more);
    assert_eq!(errno(completion.result), Errno::CANCELED.raw_os_error());
    assert_eq!(completion.payload.into_vec(), vec![5; 64]);
    // The descriptor is free for the next one.
    let again = h.submit(Operation::Receive { socket: b, space: vec![0; 1].into() }).token();
    h.demux.cancel(again);
    h.next_of(again);
}

/// Bytes arrive and the receive is cancelled, in a race; every byte is delivered all the same, by it or
/// by the next one.
pub(crate) fn rule_04_cancelled_lent_receive_loses_no_byte(h: &mut Harness) {
    let (a, b) = h.connection();
    let mut sent = 0u32;
    let mut received = Vec::new();
    for round in 0..200 {
        let token = h.submit(Operation::ReceiveLent { socket: b }).token();
        h.send_all(a, &sent.to_be_bytes());
        sent += 1;
        if round % 3 == 0 {
            h.demux.wait(Some(std::time::Duration::ZERO)).unwrap();
        }
        h.demux.cancel(token);
        loop {
            let completion = h.next_of(token);
            match completion.result {
                Ok(Outcome::Lent(bytes)) => received.extend_from_slice(&bytes),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(Errno::CANCELED.raw_os_error()))
                }
                other => panic!("{other:?}"),
            }
            if !completion.more {
                break;
            }
        }
    }
    let rest = 4 * sent as usize - received.len();
    if rest > 0 {
        let token = h.submit(Operation::ReceiveLent { socket: b }).token();
        received.extend(collect_lent(h, b, token, rest));
    }
    let expected: Vec<u8> = (0..sent).flat_map(u32::to_be_bytes).collect();
    assert!(received == expected, "bytes were lost, doubled or changed places");
}

pub(crate) fn rule_04_cancelled_accept_loses_no_connection(h: &mut Harness) {
    let (listener, address) = h.listen();
    let mut accepted = 0;
    let clients: Vec<Handle> = (0..50)
        .map(|_| {
            let accept = h.submit(Operation::Accept { listener }).token();
            let socket = h.demux.socket(SocketKind::Tcp4).unwrap();
            h.run(Operation::Connect { socket, address: address.clone() }).unwrap();
            h.demux.cancel(accept);
            loop {
                let completion = h.next_of(accept);
                match completion.result {
                    Ok(Outcome::Accepted(_)) => accepted += 1,
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(Errno::CANCELED.raw_os_error()));
                    }
                    other => panic!("{other:?}"),
                }
                if !completion.more {
                    return socket;
                }
            }
        })
        .collect();
    let mut accept = h.submit(Operation::Accept { listener }).token();
    while accepted < clients.len() {
        let completion = h.next_of(accept);
        assert!(matches!(completion.result, Ok(Outcome::Accepted(_))));
        accepted += 1;
        if !completion.more {
            accept = h.submit(Operation::Accept { listener }).token();
        }
    }
    h.demux.cancel(accept);
    h.next_of(accept);
    assert!(h.settle().is_empty(), "no connection twice");
}

pub(crate) fn rule_04_stale_cancel_is_ignored(h: &mut Harness) {
    let (a, b) = h.connection();
    let old = h.submit(Operation::Receive { socket: b, space: vec![0; 4].into() }).token();
    h.send_all(a, b"past");
    assert_eq!(count(h.next_of(old).result), 4);
    let new = h.submit(Operation::Receive { socket: b, space: vec![0; 4].into() }).token();
    h.demux.cancel(old);
    h.send_all(a, b"next");
    assert_eq!(count(h.next_of(new).result), 4);
}

pub(crate) fn rule_06_large_transfer_arrives_whole(h: &mut Harness) {
    let (a, b) = h.connection();
    let bytes: Vec<u8> = (0..2_000_000u32).map(|n| (n % 253) as u8).collect();
    let mut receive = h.submit(Operation::ReceiveLent { socket: b }).token();
    let mut received = Vec::new();
    let mut rest = &bytes[..];
    let mut sending: Option<Token> = None;
    while received.len() < bytes.len() {
        if sending.is_none() && !rest.is_empty() {
            let payload = rest[..rest.len().min(60_000)].to_vec().into();
            match h.submit(Operation::Send { socket: a, payload }) {
                Submission::Done(finished) => rest = &rest[count(finished.result)..],
                Submission::Pending(token) => sending = Some(token),
            }
        }
        // Lent bytes are taken as they come: whoever keeps them keeps their buffers.
        let Completion { token, more, result, .. } = h.next();
        if Some(token) == sending {
            sending = None;
            rest = &rest[count(result)..];
            continue;
        }
        let Ok(Outcome::Lent(lent)) = result else { panic!("not lent") };
        received.extend_from_slice(&lent);
        if !more {
            receive = h.submit(Operation::ReceiveLent { socket: b }).token();
        }
    }
    assert!(received == bytes);
    h.demux.cancel(receive);
}

/// Thousands of messages lie waiting when receiving begins: more than any backend has buffers for.
pub(crate) fn rule_06_bursts_beyond_the_buffers_lose_nothing(h: &mut Harness) {
    const CONNECTIONS: usize = 40;
    const BYTES: usize = 20_000;
    let pairs: Vec<(Handle, Handle)> =
        (0..CONNECTIONS).map(|_| h.demux.socket_pair().unwrap()).collect();
    let mut sending: Vec<(Handle, Submission)> = Vec::new();
    for &(a, _) in &pairs {
        let payload = vec![b'z'; BYTES].into();
        sending.push((a, h.submit(Operation::Send { socket: a, payload })));
    }
    let mut sent = 0;
    let mut received = 0;
    let mut tokens: HashMap<Token, Handle> = pairs
        .iter()
        .map(|&(_, b)| (h.submit(Operation::ReceiveLent { socket: b }).token(), b))
        .collect();
    let mut pending: HashMap<Token, ()> = HashMap::new();
    for (_, submission) in sending {
        match submission {
            Submission::Done(finished) => sent += count(finished.result),
            Submission::Pending(token) => drop(pending.insert(token, ())),
        }
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(300);
    while received < sent || !pending.is_empty() {
        assert!(std::time::Instant::now() < deadline, "{received} of {sent}:\n{}", h.dump());
        while let Some(completion) = h.demux.next() {
            if pending.remove(&completion.token).is_some() {
                sent += count(completion.result);
                continue;
            }
            let socket = tokens[&completion.token];
            let Ok(Outcome::Lent(bytes)) = completion.result else { panic!("not lent") };
            received += bytes.len();
            drop(bytes);
            if !completion.more {
                tokens.remove(&completion.token);
                tokens.insert(h.submit(Operation::ReceiveLent { socket }).token(), socket);
            }
        }
        h.demux.wait(Some(std::time::Duration::from_millis(50))).unwrap();
    }
    assert_eq!(received, sent);
    assert!(sent >= CONNECTIONS);
}

/// A caller that keeps every buffer it is lent, more than any backend has, gets all that comes; so do others.
pub(crate) fn rule_06_kept_buffers_starve_nobody(h: &mut Harness) {
    let (a, b) = h.connection();
    let (c, d) = h.connection();
    let mut token = h.submit(Operation::ReceiveLent { socket: b }).token();
    let other = h.submit(Operation::ReceiveLent { socket: d }).token();
    let mut kept = Vec::new();
    for number in 0..600 {
        let message = format!("message {number:3}");
        h.send_all(a, message.as_bytes());
        let mut missing = message.len();
        while missing > 0 {
            let completion = h.next_of(token);
            let Ok(Outcome::Lent(bytes)) = completion.result else { panic!("not lent") };
            missing -= bytes.len();
            kept.push(bytes);
            if !completion.more {
                token = h.submit(Operation::ReceiveLent { socket: b }).token();
            }
        }
    }
    h.send_all(c, b"ahoy");
    assert_eq!(collect_lent(h, d, other, 4), b"ahoy");
    let all: Vec<u8> = kept.iter().flat_map(|bytes| bytes.to_vec()).collect();
    let expected: String = (0..600).map(|number| format!("message {number:3}")).collect();
    assert_eq!(String::from_utf8_lossy(&all), expected, "and nobody has written over it");
}

pub(crate) fn rule_06_receive_into_memory_is_short_when_little_is_there(h: &mut Harness) {
    let (a, b) = h.connection();
    h.send_all(a, b"abc");
    let receive = h.submit(Operation::Receive { socket: b, space: vec![0; 100].into() });
    let finished = h.finish(receive);
    let count = count(finished.result);
    assert!((1..=3).contains(&count));
    assert_eq!(finished.payload.into_vec()[..count], b"abc"[..count]);
}

pub(crate) fn rule_06_receive_at_the_end_of_the_stream_gives_nothing(h: &mut Harness) {
    let (a, b) = h.connection();
    h.send_all(a, b"end");
    h.close(a);
    assert_eq!(h.receive_exactly(b, 3), b"end");
    assert_eq!(h.receive(b, 8).unwrap(), b"");
    assert_eq!(h.receive(b, 8).unwrap(), b"", "and again");
}

pub(crate) fn rule_07_second_receive_is_refused(h: &mut Harness) {
    let (a, b) = h.connection();
    let first = h.submit(Operation::Receive { socket: b, space: vec![0; 4].into() }).token();
    let second = h.run(Operation::Receive { socket: b, space: vec![0; 4].into() });
    assert_eq!(errno(second), Errno::ALREADY.raw_os_error());
    assert_eq!(errno(h.run(Operation::ReceiveLent { socket: b })), Errno::ALREADY.raw_os_error());
    h.send_all(a, b"mine");
    assert_eq!(count(h.next_of(first).result), 4);
}

pub(crate) fn rule_07_receive_after_a_full_one_finds_the_rest(h: &mut Harness) {
    let (a, b) = h.connection();
    h.send_all(a, b"0123456789");
    h.settle();
    for digit in b"0123456789" {
        assert_eq!(h.receive_exactly(b, 1), [*digit]);
    }
}

pub(crate) fn rule_06_bytes_behind_an_urgent_one_are_received(h: &mut Harness) {
    if h.is_simulated() {
        return; // which has no urgent bytes, and no sockets that others could send them to
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let own = Descriptor::from(OwnedFd::from(listener.accept().unwrap().0));
    let socket = h.demux.adopt(own).unwrap();
    for round in 0..3 {
        // Nothing is asked for until all of it is there: one event tells of everything.
        peer.write_all(b"ab").unwrap();
        assert_eq!(rustix::net::send(&peer, b"!", SendFlags::OOB), Ok(1));
        peer.write_all(b"cd").unwrap();
        assert_eq!(h.receive(socket, 1).unwrap(), b"a", "round {round}");
        h.settle();
        assert_eq!(h.receive_exactly(socket, 3), b"bcd", "round {round}");
    }
    let token = h.submit(Operation::ReceiveLent { socket }).token();
    h.settle();
    peer.write_all(b"ab").unwrap();
    assert_eq!(rustix::net::send(&peer, b"!", SendFlags::OOB), Ok(1));
    peer.write_all(b"cd").unwrap();
    assert_eq!(collect_lent(h, socket, token, 4), b"abcd");
}
