//! Bytes and messages from one to another.

use crate::harness::{Harness, MS, crowd};
use crate::streams::{byte, pair, pattern, settle, write_until_it_fails};
use coracle_coro::net::{
    TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use coracle_coro::{current, park, sleep, spawn};
use coracle_loop::Loop;
use coracle_loop::demux::{Backend, Memory, Operation, Outcome, Payload, SocketOption};
use std::cell::Cell;
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

pub(crate) fn s29_echo_over_tcp(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = spawn(move || {
            let (stream, _) = listener.accept()?;
            io::copy(&mut &stream, &mut &stream)
        });
        let mut client = TcpStream::connect(address)?;
        client.set_nodelay(true)?;
        for len in [1, 8, 100, 4096, 5000] {
            let bytes = pattern(len);
            client.write_all(&bytes)?;
            let mut echo = vec![0; len];
            client.read_exact(&mut echo)?;
            assert_eq!(echo, bytes);
        }
        client.shutdown(Shutdown::Write)?;
        assert_eq!(client.read(&mut [0; 8])?, 0);
        assert_eq!(server.join().unwrap()?, 9205);
        Ok(())
    });
}

pub(crate) fn s29_much_is_echoed_and_nothing_is_lost(h: &Harness) {
    let len = if h.lp.backend() == Backend::Sim { 200_000 } else { 8_000_000 };
    h.run(move || {
        let (client, server) = pair()?;
        spawn(move || {
            io::copy(&mut &server, &mut &server)?;
            server.shutdown(Shutdown::Write)
        });
        let writing = client.try_clone()?;
        let writer = spawn(move || {
            (&writing).write_all(&pattern(len))?;
            writing.shutdown(Shutdown::Write)
        });
        let mut echo = Vec::new();
        (&client).read_to_end(&mut echo)?;
        assert!(echo == pattern(len));
        writer.join().unwrap()
    });
}

/// An abstract name of its own.
fn name(what: &str, backend: Backend) -> SocketAddr {
    SocketAddr::from_abstract_name(format!("coracle-coro {what} {backend} {}", std::process::id()))
        .unwrap()
}

pub(crate) fn s29_echo_over_a_unix_socket(h: &Harness) {
    let address = name("stream", h.lp.backend());
    h.run(move || {
        let listener = UnixListener::bind_addr(&address)?;
        let server = spawn(move || {
            let (stream, _) = listener.accept()?;
            io::copy(&mut &stream, &mut &stream)
        });
        let mut client = UnixStream::connect_addr(&address)?;
        client.write_all(b"ahoy")?;
        client.shutdown(Shutdown::Write)?;
        let mut echo = String::new();
        client.read_to_string(&mut echo)?;
        assert_eq!(echo, "ahoy");
        assert_eq!(server.join().unwrap()?, 4);
        Ok(())
    });
}

pub(crate) fn s29_vectored_writes_are_one_stream(h: &Harness) {
    h.run(|| {
        let (client, mut server) = pair()?;
        let reader = spawn(move || {
            let mut heard = Vec::new();
            server.read_to_end(&mut heard)?;
            Ok::<_, io::Error>(heard)
        });
        // A small one, which is sent as one, and a large one, which is a list.
        let large = pattern(5000);
        let small = (&client).write_vectored(&[IoSlice::new(b"head "), IoSlice::new(b"body ")])?;
        let mut expected = b"head body "[..small].to_vec();
        let sent = (&client).write_vectored(&[IoSlice::new(b"head "), IoSlice::new(&large)])?;
        expected.extend_from_slice(&[b"head ", &*large].concat()[..sent]);
        drop(client);
        assert_eq!(reader.join().unwrap()?, expected);
        Ok(())
    });
}

pub(crate) fn s29_udp_has_messages_and_senders(h: &Harness) {
    h.run(|| {
        let (here, there) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        let to = there.local_addr()?;
        let receiver = spawn(move || {
            let mut space = [7; 6];
            let (count, from) = there.recv_from(&mut space)?;
            assert_eq!((count, &space), (3, b"one\x07\x07\x07"));
            let (count, _) = there.recv_from(&mut space)?; // which is cut off
            assert_eq!((count, &space), (6, b"second"));
            assert_eq!(there.recv_from(&mut space)?.0, 0); // an empty message is one
            there.send_to(b"and back", from)
        });
        settle()?;
        assert_eq!(here.send_to(b"one", to)?, 3);
        here.send_to(b"second one", to)?;
        here.send_to(b"", to)?;
        let mut space = [0; 16];
        let (count, from) = here.recv_from(&mut space)?;
        assert_eq!((&space[..count], from), (&b"and back"[..], to));
        assert_eq!(receiver.join().unwrap()?, 8);
        Ok(())
    });
}

pub(crate) fn s29_connected_udp(h: &Harness) {
    h.run(|| {
        let (here, there) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        here.connect(there.local_addr()?)?;
        there.connect(here.local_addr()?)?;
        assert_eq!(here.peer_addr()?, there.local_addr()?);
        for message in [&b"one"[..], b"two"] {
            here.send(message)?;
            let mut space = [0; 16];
            let count = there.recv(&mut space)?;
            assert_eq!(&space[..count], message);
        }
        Ok(())
    });
}

pub(crate) fn s29_unix_datagrams(h: &Harness) {
    let address = name("datagram", h.lp.backend());
    h.run(move || {
        let (here, there) = (UnixDatagram::unbound()?, UnixDatagram::bind_addr(&address)?);
        here.send_to_addr(b"ahoy", &address)?;
        let mut space = [0; 16];
        let (count, from) = there.recv_from(&mut space)?;
        assert_eq!(&space[..count], b"ahoy");
        assert!(from.is_unnamed());
        here.connect_addr(&address)?;
        // More than fits: the sender waits for the receiver.
        let sender =
            spawn(move || (0..300_u16).try_for_each(|n| here.send(&n.to_le_bytes()).map(|_| ())));
        for n in 0..300_u16 {
            let mut space = [0; 2];
            assert_eq!(there.recv(&mut space)?, 2);
            assert_eq!(u16::from_le_bytes(space), n);
        }
        sender.join().unwrap()
    });
}

pub(crate) fn s29_half_close_in_both_directions(h: &Harness) {
    h.run(|| {
        let (mut client, mut server) = pair()?;
        client.write_all(b"question")?;
        client.shutdown(Shutdown::Write)?;
        let mut heard = String::new();
        server.read_to_string(&mut heard)?;
        assert_eq!(heard, "question");
        server.write_all(b"answer")?; // the other direction is open
        drop(server);
        heard.clear();
        client.read_to_string(&mut heard)?;
        assert_eq!(heard, "answer");
        assert_eq!(write_until_it_fails(&client)?.kind(), io::ErrorKind::BrokenPipe);
        Ok(())
    });
}

pub(crate) fn s29_dropped_write_half_ends_its_direction(h: &Harness) {
    h.run(|| {
        let (client, mut server) = pair()?;
        let (mut reading, mut writing) = client.into_split();
        writing.write_all(b"all there is")?;
        drop(writing);
        let mut heard = String::new();
        server.read_to_string(&mut heard)?;
        assert_eq!(heard, "all there is");
        server.write_all(b"!")?;
        assert_eq!(byte(&mut reading)?, b'!');
        Ok(())
    });
}

pub(crate) fn s29_descriptor_changes_its_owner(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        (&client).write_all(b"a")?;
        let other = client.try_clone()?;
        let refused = client.into_descriptor().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        let mut adopted = TcpStream::from_descriptor(other.into_descriptor()?)?;
        adopted.write_all(b"b")?;
        assert_eq!((byte(&server)?, byte(&server)?), (b'a', b'b'));
        (&server).write_all(b"c")?;
        assert_eq!(byte(&adopted)?, b'c');
        Ok(())
    });
}

pub(crate) fn s29_socket_of_std_and_back(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        (&client).write_all(b"a")?; // on io_uring this is with the seam still
        let mut std: std::net::TcpStream = client.into_std()?;
        let thread = std::thread::spawn(move || {
            std.write_all(b"b").unwrap();
            std.read_exact(&mut [0]).unwrap(); // blocks, as sockets of std do
            std
        });
        assert_eq!((byte(&server)?, byte(&server)?), (b'a', b'b'));
        (&server).write_all(b"!")?;
        while !thread.is_finished() {
            sleep(MS)?;
        }
        let mut client = TcpStream::from_std(thread.join().unwrap())?;
        client.write_all(b"c")?;
        assert_eq!(byte(&server)?, b'c');
        Ok(())
    });
}

pub(crate) fn s29_addresses_are_told(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (server, peer) = listener.accept()?;
        assert_eq!(client.peer_addr()?, listener.local_addr()?);
        assert_eq!((server.peer_addr()?, peer), (client.local_addr()?, client.local_addr()?));
        let text = format!("{server:?}");
        assert!(text.contains("TcpStream") && text.contains(&peer.to_string()), "{text}");
        Ok(())
    });
}

pub(crate) fn s29_nobody_listens(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        drop(listener);
        settle()?;
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        // The first that answers.
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(&[address, listener.local_addr()?][..])?;
        assert_eq!(stream.peer_addr()?, listener.local_addr()?);
        Ok(())
    });
}

pub(crate) fn s29_reset_is_an_error(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let reader = spawn(move || byte(client));
        settle()?;
        server.set_option(SocketOption::ResetOnClose(true))?;
        drop(server);
        assert_eq!(reader.join().unwrap().unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        Ok(())
    });
}

pub(crate) fn s29_write_to_one_who_is_gone_is_epipe(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        drop(server);
        let told = write_until_it_fails(&client)?.kind();
        assert!(
            matches!(told, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset),
            "{told}"
        );
        // And no signal has ended us.
        assert_eq!(write_until_it_fails(&client)?.kind(), io::ErrorKind::BrokenPipe);
        Ok(())
    });
}

pub(crate) fn t4_read_fills_what_it_was_given_and_no_more(h: &Harness) {
    h.run(|| {
        let (client, mut server) = pair()?;
        let writer = spawn(move || {
            for _ in 0..50 {
                (&client).write_all(&pattern(10))?;
                sleep(MS)?;
            }
            Ok::<_, io::Error>(())
        });
        let mut heard = Vec::new();
        for round in 0_usize.. {
            let (mut on_the_stack, mut on_the_heap) = ([0xEE; 32], vec![0xEE; 32]);
            let space = if round % 2 == 0 { &mut on_the_stack[..] } else { &mut on_the_heap[..] };
            let (begin, end) = (round % 7, 8 + round % 24);
            let count = server.read(&mut space[begin..end])?;
            assert!(space[..begin].iter().all(|&byte| byte == 0xEE));
            assert!(space[begin + count..].iter().all(|&byte| byte == 0xEE));
            heard.extend_from_slice(&space[begin..begin + count]);
            if count == 0 {
                break;
            }
        }
        assert_eq!(heard, pattern(10).repeat(50));
        writer.join().unwrap()
    });
}

pub(crate) fn g5_thousand_coroutines_talk_at_once(h: &Harness) {
    // select cannot watch more than a thousand descriptors.
    let is_select = h.lp.backend() == Backend::Select;
    let count = if is_select { 100 } else { 400 };
    let _crowd = (!is_select).then(crowd);
    h.run(move || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        spawn(move || -> io::Result<()> {
            for stream in listener.incoming().take(count) {
                let stream = stream?;
                spawn(move || io::copy(&mut &stream, &mut &stream));
            }
            Ok(())
        });
        let clients: Vec<_> = (0..count)
            .map(|number| {
                spawn(move || -> io::Result<()> {
                    let mut stream = TcpStream::connect(address)?;
                    for round in 0..20 {
                        let bytes = format!("{number}: {round}");
                        stream.write_all(bytes.as_bytes())?;
                        let mut echo = vec![0; bytes.len()];
                        stream.read_exact(&mut echo)?;
                        assert_eq!(echo, bytes.as_bytes());
                    }
                    Ok(())
                })
            })
            .collect();
        clients.into_iter().try_for_each(|client| client.join().unwrap())
    });
}

pub(crate) fn s56_callback_and_coroutine_talk_over_a_socket(h: &Harness) {
    h.run(|| {
        let lp = Loop::current().unwrap();
        let (one, other) = lp.socket_pair()?;
        let mut stream = UnixStream::from_descriptor(lp.detach(one)?)?;
        // A callback answers.
        let space = Memory::from(vec![0; 16]);
        lp.operate(Operation::Receive { socket: other, space }, move |lp, finished| {
            let Ok(Outcome::Count(count)) = finished.result else {
                panic!("{:?}", finished.result)
            };
            let mut bytes = finished.payload.into_vec();
            bytes.truncate(count);
            bytes.reverse();
            lp.operate(Operation::Send { socket: other, payload: Payload::from(bytes) }, |_, _| ());
        });
        stream.write_all(b"ahoy")?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer)?;
        assert_eq!(&answer, b"yoha");
        Ok(())
    });
}

pub(crate) fn s29_callback_makes_sockets_and_cannot_wait(h: &Harness) {
    h.run(|| {
        let main = current();
        let seen = Rc::new(Cell::new(false));
        let set = Rc::clone(&seen);
        Loop::current().unwrap().defer(move |_| {
            let (one, _other) = UnixStream::pair().unwrap();
            let payload = catch_unwind(AssertUnwindSafe(|| (&one).read(&mut [0])))
                .expect_err("it would wait");
            let text = payload.downcast_ref::<String>().expect("a formatted text");
            set.set(text.contains("`spawn` a coroutine"));
            main.unpark();
        });
        park()?;
        assert!(seen.get());
        Ok(())
    });
}

pub(crate) fn s29_thread_without_a_loop_is_told(h: &Harness) {
    let refused = TcpListener::bind("127.0.0.1:0").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    assert!(refused.to_string().contains("`std::net` in a plain thread"), "{refused}");
    // A socket that comes out of its loop.
    let mut kept = coracle_coro::run_on(&h.lp, || Ok(UnixStream::pair()?.0)).unwrap();
    assert_eq!(kept.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::Unsupported);
    assert_eq!(kept.local_addr().unwrap_err().kind(), io::ErrorKind::Unsupported);
}

pub(crate) fn s29_socket_of_another_loop_is_refused(h: &Harness) {
    let mut foreign = coracle_coro::run_on(&h.lp, || Ok(UnixStream::pair()?.0)).unwrap();
    let other = h.another_loop();
    let refused =
        coracle_coro::run_on(&other, move || Ok(foreign.read(&mut [0]).unwrap_err())).unwrap();
    assert!(refused.to_string().contains("stays on its loop"), "{refused}");
}

pub(crate) fn s29_busy_socket_leaves_others_their_turn(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let (over, stop) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let (set, stopped) = (Rc::clone(&over), Rc::clone(&stop));
        let writer = spawn(move || -> io::Result<()> {
            while !set.get() {
                (&client).write_all(&[7; 8])?;
            }
            Ok(())
        });
        let reader = spawn(move || -> io::Result<()> {
            while server_read(&server)? > 0 {}
            Ok(())
        });
        spawn(move || {
            stopped.set(true); // it had its turn
            over.set(true);
        });
        writer.join().unwrap()?;
        reader.join().unwrap()?;
        assert!(stop.get());
        Ok(())
    });
}

fn server_read(mut server: &TcpStream) -> io::Result<usize> {
    server.read(&mut [0; 8])
}

pub(crate) fn f7_name_is_looked_up_beside_the_loop(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(("localhost", listener.local_addr()?.port()))?;
        assert_eq!(stream.peer_addr()?, listener.local_addr()?);
        let refused = TcpStream::connect("no port").unwrap_err();
        assert!(refused.to_string().contains("use name:port"), "{refused}");
        Ok(())
    });
}
