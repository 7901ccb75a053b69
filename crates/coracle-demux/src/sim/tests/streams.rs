//! Connections: made, half closed, reset, full, handed over.

use super::*;
use crate::operation::{Interest, Readiness};
use crate::socket::SocketOption;
use rustix::io::Errno;
use std::net::Shutdown;
use std::time::Duration;

#[test]
fn bytes_go_both_ways_over_every_kind_of_stream() {
    for (kind, at) in [
        (SocketKind::Tcp4, "127.0.0.1:0"),
        (SocketKind::Tcp6, "[::1]:0"),
        (SocketKind::UnixStream, "unix:/run/test.sock"),
        (SocketKind::UnixStream, "unix:@test"),
    ] {
        on_kernels(|rig| {
            let (client, server) = rig.connection(kind, at);
            for (from, to) in [(client, server), (server, client)] {
                rig.send_all(from, b"hello");
                let mut all = Vec::new();
                while all.len() < 5 {
                    all.extend(rig.receive(to).unwrap());
                }
                assert_eq!(all, b"hello");
            }
            rig.close(client);
            rig.close(server);
            assert_eq!(rig.kernel.open_descriptors(), 0);
        });
    }
}

#[test]
fn each_end_knows_both_addresses() {
    on_kernels(|rig| {
        let (client, server) = rig.connection(SocketKind::Tcp4, "0.0.0.0:80");
        let demux = &rig.demux;
        assert_eq!(demux.local_address(server).unwrap().to_string(), "127.0.0.1:80");
        assert_eq!(demux.peer_address(client).unwrap().to_string(), "127.0.0.1:80");
        assert_eq!(demux.peer_address(server).unwrap(), demux.local_address(client).unwrap());
    });
}

#[test]
fn an_ipv6_listener_sees_ipv4_clients_in_disguise() {
    let mut rig = Rig::kind();
    let (listener, _) = rig.listener(SocketKind::Tcp6, "[::]:80");
    let client = rig.demux.socket(SocketKind::Tcp4).unwrap();
    let address = "127.0.0.1:80".parse().unwrap();
    rig.result(Operation::Connect { socket: client, address }).unwrap();
    let accept = rig.start(Operation::Accept { listener });
    let Ok(Outcome::Accepted(server)) = rig.take(accept).result else { panic!("not accepted") };
    let peer = rig.demux.peer_address(server).unwrap().to_string();
    assert!(peer.starts_with("[::ffff:127.0.0.1]:"), "{peer}");
}

#[test]
fn connecting_to_nobody_is_refused() {
    on_kernels(|rig| {
        for (kind, at, error) in [
            (SocketKind::Tcp4, "127.0.0.1:1", Errno::CONNREFUSED),
            (SocketKind::UnixStream, "unix:@nobody", Errno::CONNREFUSED),
            (SocketKind::UnixStream, "unix:/nobody", Errno::NOENT),
            (SocketKind::Tcp4, "[::1]:1", Errno::AFNOSUPPORT),
        ] {
            let socket = rig.demux.socket(kind).unwrap();
            let address = at.parse().unwrap();
            assert_eq!(rig.errno(Operation::Connect { socket, address }), error, "{at}");
        }
    });
}

#[test]
fn an_address_in_use_is_refused_and_comes_free_with_the_close() {
    on_kernels(|rig| {
        let (listener, address) = rig.listener(SocketKind::Tcp4, "127.0.0.1:0");
        let second = rig.demux.socket(SocketKind::Tcp4).unwrap();
        let error = rig.demux.bind(second, &address).unwrap_err();
        assert_eq!(errno(&error), Errno::ADDRINUSE);
        rig.close(listener);
        rig.demux.bind(second, &address).unwrap();
    });
}

#[test]
fn a_full_backlog_makes_tcp_try_again_and_then_give_up() {
    let mut rig = Rig::kind();
    let (listener, address) = rig.listener(SocketKind::Tcp4, "127.0.0.1:80");
    rig.demux.listen(listener, 1).unwrap();
    let sockets = [(); 3].map(|()| rig.demux.socket(SocketKind::Tcp4).unwrap());
    let connect = |socket| Operation::Connect { socket, address: address.clone() };
    rig.result(connect(sockets[0])).unwrap();
    let second = rig.start(connect(sockets[1]));
    let accept = rig.start(Operation::Accept { listener });
    rig.take(accept).result.unwrap();
    rig.take(second).result.unwrap(); // the first was accepted, which made room
    rig.demux.cancel(accept);
    rig.settle();

    rig.result(connect(sockets[2])).map(drop).unwrap_or_default();
    let fourth = rig.demux.socket(SocketKind::Tcp4).unwrap();
    let before = rig.kernel.elapsed();
    assert_eq!(rig.errno(connect(fourth)), Errno::TIMEDOUT);
    assert_eq!((rig.kernel.elapsed() - before).as_secs(), 127);
}

#[test]
fn a_half_close_keeps_what_was_sent_and_the_other_direction() {
    on_kernels(|rig| {
        for (a, b) in [rig.tcp(), rig.demux.socket_pair().unwrap()] {
            rig.send_all(a, b"last words");
            rig.result(Operation::Shutdown { socket: a, how: Shutdown::Write }).unwrap();
            assert_eq!(
                rig.errno(Operation::Send { socket: a, payload: b"x".to_vec().into() }),
                Errno::PIPE
            );
            let (all, end) = rig.receive_all(b);
            assert_eq!(all, b"last words");
            end.unwrap();
            rig.send_all(b, b"answer");
            rig.close(b);
            let (all, end) = rig.receive_all(a);
            assert_eq!(all, b"answer");
            end.unwrap();
        }
    });
}

#[test]
fn closing_with_unread_data_resets_the_peer() {
    on_kernels(|rig| {
        for (a, b) in [rig.tcp(), rig.demux.socket_pair().unwrap()] {
            rig.send_all(a, b"never read");
            rig.send_all(b, b"read");
            rig.close(b);
            // What had arrived before the reset can still be read, then the error is told, once.
            let (all, end) = rig.receive_all(a);
            assert_eq!(all, b"read");
            assert_eq!(errno(&end.unwrap_err()), Errno::CONNRESET);
            assert_eq!(rig.receive(a).unwrap(), b"");
            assert_eq!(
                rig.errno(Operation::Send { socket: a, payload: b"x".to_vec().into() }),
                Errno::PIPE
            );
        }
    });
}

#[test]
fn a_close_can_be_asked_to_reset() {
    on_kernels(|rig| {
        let (a, b) = rig.tcp();
        rig.demux.set_option(b, SocketOption::ResetOnClose(true)).unwrap();
        rig.close(b);
        assert_eq!(errno(&rig.receive(a).unwrap_err()), Errno::CONNRESET);
    });
}

#[test]
fn sending_to_a_peer_that_has_closed_fails() {
    on_kernels(|rig| {
        for (a, b) in [rig.tcp(), rig.demux.socket_pair().unwrap()] {
            rig.close(b);
            let payload = b"x".to_vec().into();
            assert_eq!(rig.errno(Operation::Send { socket: a, payload }), Errno::PIPE);
        }
    });
}

#[test]
fn sends_to_a_closed_peer_may_be_lost_before_the_one_reset_comes() {
    let second = Duration::from_secs(1);
    let faults = Faults { lost_send: 1.0, delay: second..=second, ..Faults::none() };
    let mut rig = Rig::new(Kernel::with_faults(1, faults));
    let (a, b) = rig.tcp();
    rig.close(b);
    rig.send_all(a, b"into the void");
    rig.kernel.advance(second / 2);
    rig.send_all(a, b"into the void");
    rig.kernel.advance(second / 2);
    // Whoever has seen the end of the stream sees it again; the error is for the sender.
    assert_eq!(rig.receive(a).unwrap(), b"");
    let payload = || b"x".to_vec().into();
    assert_eq!(rig.errno(Operation::Send { socket: a, payload: payload() }), Errno::PIPE);
    rig.kernel.advance(second);
    let poll = rig.result(Operation::Poll { handle: a, interest: Interest::READ }).unwrap();
    let Outcome::Ready(ready) = poll else { panic!("a poll tells readiness") };
    assert!(!ready.contains(Readiness::ERROR), "the second reset finds nobody to tell");
}

#[test]
fn a_reset_loses_a_tail_of_what_was_sent_and_doubles_nothing() {
    let (mut resets, mut cut) = (0, 0);
    for seed in 0..200 {
        let faults = Faults {
            reset: 0.03,
            reset_overtakes: 0.5,
            exhaust_descriptors: 0.0,
            ..Faults::hostile()
        };
        let mut rig = Rig::new(Kernel::with_faults(seed, faults));
        let (a, b) = rig.demux.socket_pair().unwrap();
        let message: Vec<u8> = (0..=255).cycle().take(2000).collect();
        let (mut sent, mut received) = (0, Vec::new());
        let end = loop {
            if sent < message.len() {
                let payload = message[sent..message.len().min(sent + 100)].to_vec().into();
                match rig.result(Operation::Send { socket: a, payload }) {
                    Ok(Outcome::Count(count)) => sent += count,
                    Ok(other) => panic!("a send counts, and not {other:?}"),
                    Err(error) => break Some(errno(&error)),
                }
            } else {
                break None;
            }
            match rig.receive(b) {
                Ok(bytes) => received.extend(bytes),
                Err(error) => break Some(errno(&error)),
            }
        };
        let (rest, _) = rig.receive_all_or_stop(b, sent - received.len());
        received.extend(rest);
        assert!(received.len() <= sent, "seed {seed}: more than was sent");
        assert!(message.starts_with(&received), "seed {seed}: out of order");
        if end == Some(Errno::CONNRESET) {
            resets += 1;
            cut += usize::from(received.len() < sent);
        }
    }
    assert!(resets > 20 && cut > 5, "{resets} resets, {cut} of them lost something");
}

impl Rig {
    /// At most `limit` bytes that are still there.
    fn receive_all_or_stop(&mut self, socket: Handle, limit: usize) -> (Vec<u8>, io::Result<()>) {
        let mut all = Vec::new();
        while all.len() < limit {
            match self.receive(socket) {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => all.extend(bytes),
                Err(error) => return (all, Err(error)),
            }
        }
        (all, Ok(()))
    }
}

#[test]
fn a_slow_reader_blocks_its_sender() {
    let mut rig = Rig::kind();
    let (a, b) = rig.demux.socket_pair().unwrap();
    rig.demux.set_option(a, SocketOption::SendBuffer(10)).unwrap();
    let send = |payload: &[u8]| Operation::Send { socket: a, payload: payload.to_vec().into() };
    assert_eq!(count(rig.result(send(b"0123456789abc"))), 10);
    let waiting = rig.start(send(b"abc"));
    assert_eq!(rig.errno(send(b"second")), Errno::ALREADY);
    assert_eq!(rig.receive(b).unwrap(), b"0123456789");
    assert_eq!(count(rig.take(waiting).result), 3);
}

#[test]
fn one_receive_and_one_send_at_a_time_and_any_number_of_polls() {
    on_kernels(|rig| {
        let (a, _b) = rig.tcp();
        rig.start(Operation::ReceiveLent { socket: a });
        let receive = || Operation::Receive { socket: a, space: space(1) };
        assert_eq!(rig.errno(receive()), Errno::ALREADY);
        for _ in 0..3 {
            let poll = Operation::Poll { handle: a, interest: Interest::READ };
            assert!(matches!(rig.demux.submit(poll), Submitted::Pending(_)));
        }
    });
}

#[test]
fn a_close_ends_everything_in_flight_and_comes_last() {
    on_kernels(|rig| {
        let (a, b) = rig.tcp();
        let mut waiting = vec![rig.start(Operation::ReceiveLent { socket: a })];
        let interest = Interest::READ;
        for _ in 0..3 {
            if let Submitted::Pending(poll) =
                rig.demux.submit(Operation::Poll { handle: a, interest })
            {
                waiting.push(poll);
            }
        }
        let close = rig.start(Operation::Close { handle: a });
        assert_eq!(rig.errno(Operation::Close { handle: a }), Errno::BADF);
        let last = rig.take(close);
        last.result.unwrap();
        for token in waiting {
            let at = rig.kept.iter().position(|kept| kept.token == token && !kept.more);
            let completion = rig.kept.remove(at.expect("it ended before the close"));
            if let Err(error) = completion.result {
                assert_eq!(errno(&error), Errno::CANCELED);
            }
        }
        assert_eq!(rig.receive(b).unwrap(), b"");
        assert_eq!(rig.demux.in_flight(), 0);
    });
}

#[test]
fn a_listener_that_closes_resets_whom_it_has_not_accepted() {
    on_kernels(|rig| {
        let (listener, address) = rig.listener(SocketKind::Tcp4, "127.0.0.1:80");
        let client = rig.demux.socket(SocketKind::Tcp4).unwrap();
        rig.result(Operation::Connect { socket: client, address }).unwrap();
        rig.close(listener);
        assert_eq!(errno(&rig.receive(client).unwrap_err()), Errno::CONNRESET);
        rig.close(client);
        assert_eq!(rig.kernel.open_descriptors(), 0);
    });
}

#[test]
fn a_poll_tells_exactly_what_is_so() {
    let mut rig = Rig::kind();
    let (a, b) = rig.tcp();
    let poll = |rig: &mut Rig, handle, interest| match rig
        .result(Operation::Poll { handle, interest })
        .unwrap()
    {
        Outcome::Ready(ready) => ready,
        other => panic!("a poll tells readiness, and not {other:?}"),
    };
    let both = Interest::READ | Interest::WRITE;
    assert_eq!(poll(&mut rig, a, both), Readiness::WRITE);
    let waiting = rig.start(Operation::Poll { handle: a, interest: Interest::READ });
    rig.send_all(b, b"x");
    let Ok(Outcome::Ready(ready)) = rig.take(waiting).result else { panic!("not ready") };
    assert_eq!(ready, Readiness::READ);

    rig.result(Operation::Shutdown { socket: b, how: Shutdown::Write }).unwrap();
    let ready = poll(&mut rig, a, both);
    assert_eq!(ready, Readiness::READ | Readiness::WRITE | Readiness::READ_CLOSED);
    rig.receive(a).unwrap();
    rig.result(Operation::Shutdown { socket: a, how: Shutdown::Write }).unwrap();
    assert!(poll(&mut rig, a, both).contains(Readiness::CLOSED));

    let (a, b) = rig.tcp();
    rig.send_all(a, b"unread");
    rig.close(b);
    let ready = poll(&mut rig, a, Interest::READ);
    assert!(ready.contains(Readiness::ERROR | Readiness::CLOSED | Readiness::READ_CLOSED));
}

#[test]
fn a_spurious_poll_does_not_lie() {
    let faults = Faults { spurious_poll: 1.0, ..Faults::none() };
    let mut rig = Rig::new(Kernel::with_faults(1, faults));
    let (a, _b) = rig.tcp();
    let poll = rig.result(Operation::Poll { handle: a, interest: Interest::READ });
    assert!(matches!(poll, Ok(Outcome::Ready(ready)) if ready.is_empty()));
}

#[test]
fn a_unix_peer_notices_what_a_tcp_peer_cannot() {
    let mut rig = Rig::kind();
    let send = |socket| Operation::Send { socket, payload: b"x".to_vec().into() };
    let closed = |rig: &mut Rig, handle| {
        let interest = Interest::READ;
        match rig.result(Operation::Poll { handle, interest }).unwrap() {
            Outcome::Ready(ready) => ready.contains(Readiness::CLOSED),
            other => panic!("a poll tells readiness, and not {other:?}"),
        }
    };
    for is_unix in [false, true] {
        let pair = |rig: &mut Rig| {
            if is_unix { rig.demux.socket_pair().unwrap() } else { rig.tcp() }
        };
        let (a, b) = pair(&mut rig);
        rig.result(Operation::Shutdown { socket: b, how: Shutdown::Read }).unwrap();
        assert_eq!(rig.result(send(a)).is_err(), is_unix, "TCP cannot say that it will not read");
        let (a, b) = pair(&mut rig);
        rig.close(b);
        assert_eq!(closed(&mut rig, a), is_unix, "TCP cannot tell a close from a half-close");
    }
}

#[test]
fn a_detached_descriptor_lives_on_elsewhere() {
    on_kernels(|rig| {
        let (a, b) = rig.tcp();
        rig.send_all(b, b"before");
        let waiting = rig.start(Operation::ReceiveLent { socket: b });
        assert_eq!(errno(&rig.demux.detach(b).unwrap_err()), Errno::BUSY);
        rig.demux.cancel(waiting);
        while rig.take(waiting).more {}
        let b = rig.demux.detach(b).unwrap();

        let mut other = Rig::new(rig.kernel.clone());
        let b = other.demux.adopt(b).unwrap();
        rig.send_all(a, b"after");
        let mut all = Vec::new();
        while all.len() < 5 {
            all.extend(other.receive(b).unwrap());
        }
        assert_eq!(all, b"after");
        rig.close(a);
        other.close(b);
        assert_eq!(rig.kernel.open_descriptors(), 0);
    });
}

#[test]
fn a_detached_descriptor_that_is_dropped_is_closed() {
    on_kernels(|rig| {
        let (a, b) = rig.demux.socket_pair().unwrap();
        let b = rig.demux.detach(b).unwrap();
        assert_eq!(rig.kernel.open_descriptors(), 2);
        drop(b);
        assert_eq!(rig.kernel.open_descriptors(), 1);
        assert_eq!(rig.receive(a).unwrap(), b"");
    });
}

#[test]
fn a_detached_descriptor_may_cross_threads() {
    fn is_send<T: Send>() {}
    is_send::<crate::Descriptor>();
}

#[test]
fn descriptors_of_others_are_refused_with_advice() {
    let mut rig = Rig::kind();
    let file = std::fs::File::open("/dev/null").unwrap();
    let error = rig.demux.lend(std::os::fd::AsFd::as_fd(&file)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    let error = rig.demux.adopt(file.into()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    assert!(error.to_string().contains("add_file"), "{error}");

    let mut other = Rig::kind();
    let (a, _b) = other.demux.socket_pair().unwrap();
    let descriptor = other.demux.detach(a).unwrap();
    assert_eq!(errno(&rig.demux.adopt(descriptor).unwrap_err()), Errno::XDEV);
    assert_eq!(other.kernel.open_descriptors(), 1, "closed on error");
}

#[test]
fn a_message_carries_descriptors() {
    on_kernels(|rig| {
        use crate::operation::Outgoing;
        let (a, b) = rig.demux.socket_pair().unwrap();
        let null = || std::os::fd::OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let payload = b"here".to_vec().into();
        let message =
            Box::new(Outgoing { payload, to: None, descriptors: vec![null(), null(), null()] });
        let sent = count(rig.result(Operation::SendMessage { socket: a, message }));
        let receive =
            Operation::ReceiveMessage { socket: b, space: space(16), limit_descriptors: 2 };
        let Ok(Outcome::Message(message)) = rig.result(receive) else { panic!("no message") };
        assert!(message.count <= sent && message.count > 0);
        assert_eq!(message.descriptors.len(), 2);
    });
}

#[test]
fn lent_receives_pause_when_all_buffers_are_out() {
    let faults = Faults { limit_lent_buffers: 1, lent_buffer_bytes: 4, ..Faults::none() };
    let mut rig = Rig::new(Kernel::with_faults(1, faults));
    let (a, b) = rig.demux.socket_pair().unwrap();
    rig.send_all(a, b"12345678");
    rig.result(Operation::Shutdown { socket: a, how: Shutdown::Write }).unwrap();
    let receive = rig.start(Operation::ReceiveLent { socket: b });
    let (c, d) = rig.demux.socket_pair().unwrap();
    rig.send_all(c, b"9");
    let other = rig.start(Operation::ReceiveLent { socket: d });
    // One of them fills the only buffer; the other pauses until that was looked at, though it is kept.
    let kept = [rig.take(receive), rig.take(receive), rig.take(other)].map(|it| it.result);
    for (result, expected) in kept.iter().zip([&b"1234"[..], b"5678", b"9"]) {
        assert!(matches!(result, Ok(Outcome::Lent(lent)) if lent[..] == *expected));
    }
    assert!(rig.kernel.injected().count(crate::sim::Fault::PauseLent) > 0);
    let last = rig.take(receive);
    assert!(!last.more && matches!(&last.result, Ok(Outcome::Lent(lent)) if lent.is_empty()));
}

#[test]
fn a_cancel_that_comes_too_late_delivers_the_result() {
    let faults = Faults { cancel_loses: 1.0, pending: 1.0, ..Faults::none() };
    let mut rig = Rig::new(Kernel::with_faults(1, faults));
    let (a, b) = rig.demux.socket_pair().unwrap();
    let send = rig.start(Operation::Send { socket: a, payload: b"x".to_vec().into() });
    rig.demux.cancel(send);
    assert_eq!(count(rig.take(send).result), 1);
    let receive = rig.start(Operation::ReceiveLent { socket: b });
    rig.demux.cancel(receive);
    let completion = rig.take(receive);
    assert!(!completion.more, "what a cancelled multishot operation has is its last");
    assert!(matches!(completion.result, Ok(Outcome::Lent(lent)) if lent[..] == *b"x"));
    // With nothing to deliver, the cancel cannot lose.
    let receive = rig.start(Operation::ReceiveLent { socket: b });
    rig.demux.cancel(receive);
    assert_eq!(errno(&rig.take(receive).result.unwrap_err()), Errno::CANCELED);
}

#[test]
fn a_close_later_in_the_same_batch_is_respected() {
    // Results are fixed when taken, so the second receive finds itself cancelled.
    let mut rig = Rig::kind();
    let ends = [rig.demux.socket_pair().unwrap(), rig.demux.socket_pair().unwrap()];
    let receives = ends.map(|(_, b)| rig.start(Operation::Receive { socket: b, space: space(1) }));
    for (a, _) in ends {
        rig.send_all(a, b"x");
    }
    rig.demux.wait(None).unwrap();
    assert_eq!(rig.demux.next().unwrap().token, receives[0]);
    let close = rig.start(Operation::Close { handle: ends[1].1 });
    let second = rig.demux.next().unwrap();
    assert_eq!(second.token, receives[1]);
    assert_eq!(errno(&second.result.unwrap_err()), Errno::CANCELED);
    rig.take(close).result.unwrap();
}
