//! Sockets as futures: what arrives, what waits, and what is left when they are dropped.

use crate::harness::{ECANCELED, HOUR, Harness, MS, errno, now};
use coracle_coro::future::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};
use coracle_coro::future::{block_on, sleep, spawn_future, timeout};
use coracle_coro::sync::channel;
use coracle_coro::{spawn, yield_now};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use coracle_loop::demux::sim::{Faults, Kernel};
use futures::{AsyncReadExt, AsyncWriteExt, join};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;

/// Any free port; the simulator has the same.
fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Two ends of a connection.
async fn connected() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(anywhere())?;
    let address = listener.local_addr()?;
    let (client, server) = join!(TcpStream::connect(address), listener.accept());
    let (server, peer) = server?;
    let client = client?;
    assert_eq!(client.local_addr()?, peer);
    assert_eq!(client.peer_addr()?, server.local_addr()?);
    Ok((client, server))
}

/// Runs `case` as a future, and checks that it leaves nothing behind.
fn run(h: &Harness, case: impl AsyncFnOnce() -> io::Result<()> + 'static) {
    h.run(|| spawn_future(async { case().await }).join()?);
    // What is left of dropped sockets is only their closing.
    h.lp.run_until_idle().unwrap();
    assert!(h.lp.dump().contains(": 0 operations, 0 timers"), "{}", h.lp.dump());
}

/// As `read_to_end`, which clears all the space it has before every poll.
async fn everything(reader: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Vec<u8>> {
    let (mut received, mut space) = (Vec::new(), vec![0; 16 * 1024]);
    loop {
        match reader.read(&mut space).await? {
            0 => return Ok(received),
            count => received.extend_from_slice(&space[..count]),
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8).collect()
}

pub(crate) fn g6_echo_in_futures(h: &Harness) {
    run(h, async || {
        let (mut client, server) = connected().await?;
        client.set_nodelay(true)?;
        let echo = spawn_future(async move {
            let (reader, mut writer) = server.split();
            let count = futures::io::copy(reader, &mut writer).await?;
            writer.close().await?;
            io::Result::Ok(count)
        });
        for message in [&b"a"[..], b"ship", b"ahoy"] {
            client.write_all(message).await?;
            let mut answer = vec![0; message.len()];
            client.read_exact(&mut answer).await?;
            assert_eq!(answer, message);
        }
        client.close().await?;
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await?;
        assert_eq!((rest.len(), echo.await??), (0, 9));
        Ok(())
    });
}

pub(crate) fn g6_large_messages_pass_in_both_directions_at_once(h: &Harness) {
    // More than fits into buffers of the kernel's; a simulated one has small ones, and takes its time.
    let len = if h.lp.backend() == Backend::Sim { 300_000 } else { 6_000_000 };
    run(h, async move || {
        let (client, server) = connected().await?;
        let one_side = async |stream: TcpStream| {
            let (mut reader, mut writer) = stream.split();
            let sending = async {
                writer.write_all(&pattern(len)).await?;
                writer.close().await
            };
            let (sent, received) = join!(sending, everything(&mut reader));
            let (_, received) = (sent?, received?);
            assert!(received == pattern(len), "{} bytes", received.len());
            io::Result::Ok(())
        };
        let (one, other) = join!(one_side(client), one_side(server));
        one.and(other)
    });
}

pub(crate) fn g6_writer_waits_for_a_reader_that_does_not_read(h: &Harness) {
    run(h, async || {
        let (mut client, mut server) = connected().await?;
        let chunk = vec![7; 16 * 1024];
        let mut sent = client.write(&chunk).await?;
        assert_eq!(server.read(&mut [0]).await?, 1); // which begins to receive
        // It stops at some point: what waits is bounded.
        loop {
            while let Ok(count) = timeout(20 * MS, client.write(&chunk)).await {
                sent += count?;
                assert!(sent < 64 << 20, "nobody reads, and there is no end");
            }
            if timeout(20 * MS, client.flush()).await.is_err() {
                break; // not everything is out
            }
        }
        let mut received = 1;
        let mut space = vec![0; 64 * 1024];
        while received < sent {
            received += server.read(&mut space).await?;
        }
        assert_eq!(received, sent);
        client.flush().await?;
        Ok(())
    });
}

pub(crate) fn g6_what_was_written_is_sent_when_the_stream_is_dropped(h: &Harness) {
    run(h, async || {
        let (mut client, mut server) = connected().await?;
        let mut sent = 0;
        let chunk = pattern(10_000);
        while let Ok(count) = timeout(20 * MS, client.write(&chunk)).await {
            sent += count?;
        }
        drop(client); // with a full buffer, and a send in flight
        sleep(MS).await;
        assert_eq!(everything(&mut server).await?.len(), sent);
        Ok(())
    });
}

pub(crate) fn g6_run_returns_when_what_was_written_is_sent(h: &Harness) {
    let (theirs, ours) = match h.lp.backend() {
        // Only sockets of the simulator's are known there.
        Backend::Sim => return,
        _ => std::os::unix::net::UnixStream::pair().unwrap(),
    };
    let reading = std::thread::spawn(move || {
        let mut received = Vec::new();
        io::Read::read_to_end(&mut { theirs }, &mut received).unwrap();
        received.len()
    });
    h.run(move || {
        let lp = Loop::current().unwrap();
        let socket = lp.adopt(ours)?;
        let mut stream = TcpStream::from_socket(&lp, socket, Vec::new());
        block_on(async move { stream.write_all(&pattern(500_000)).await })?
    });
    assert_eq!(reading.join().unwrap(), 500_000);
}

pub(crate) fn g6_last_word_waits_for_room_when_the_stream_is_dropped(h: &Harness) {
    h.run(|| {
        let (theirs, mut ours) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut filled = 0;
        while let Ok(count) = io::Write::write(&mut ours, &[7; 1000]) {
            filled += count;
        }
        let lp = Loop::current().unwrap();
        let mut stream = TcpStream::from_socket(&lp, lp.adopt(ours)?, Vec::new());
        block_on(stream.write_all(b"the last word"))??;
        drop(stream);
        coracle_coro::sleep(5 * MS)?; // as long as it likes: there is no room
        let (done, reading) = channel(1);
        std::thread::spawn(move || {
            let mut received = Vec::new();
            let read = io::Read::read_to_end(&mut { theirs }, &mut received);
            done.send(read.map(|_| received))
        });
        let received = reading.recv().expect("it reads")?;
        assert!(received[filled..] == *b"the last word");
        Ok(())
    });
}

pub(crate) fn g6_reset_is_an_error_of_reader_and_writer(h: &Harness) {
    run(h, async || {
        let (mut client, server) = connected().await?;
        client.write_all(b"nobody reads this").await?;
        client.flush().await?;
        sleep(5 * MS).await;
        drop(server); // with unread bytes: the kernel resets the connection
        let mut space = [0; 16];
        let read = client.read(&mut space).await;
        if let Ok(count) = read {
            assert_eq!(count, 0, "a simulated kernel, and Unix sockets, end in peace");
        } else {
            assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
            assert_eq!(client.read(&mut space).await?, 0, "told once");
        }
        let mut error = None;
        for _ in 0..100 {
            if let Err(told) = client.write_all(b"x").await {
                error = Some(told);
                break;
            }
            sleep(MS).await;
        }
        let kind = error.expect("nobody is there").kind();
        assert!(matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{kind}");
        assert_eq!(client.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert!(client.flush().await.is_err());
        Ok(())
    });
}

pub(crate) fn g6_close_ends_our_side_and_leaves_the_other(h: &Harness) {
    run(h, async || {
        let (mut client, mut server) = connected().await?;
        client.write_all(b"a question").await?;
        client.close().await?;
        client.close().await?; // as often as you like
        assert_eq!(client.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        let mut heard = String::new();
        server.read_to_string(&mut heard).await?;
        assert_eq!(heard, "a question");
        server.write_all(b"an answer").await?;
        drop(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await?;
        assert_eq!(answer, "an answer");
        Ok(())
    });
}

pub(crate) fn g6_dropped_writing_half_ends_our_side(h: &Harness) {
    run(h, async || {
        let (one, mut other) = UnixStream::pair()?;
        let (mut reader, mut writer) = one.split();
        writer.write_all(b"the last word").await?;
        drop(writer);
        let mut heard = String::new();
        other.read_to_string(&mut heard).await?;
        assert_eq!(heard, "the last word");
        other.write_all(b"not quite").await?;
        other.close().await?;
        heard.clear();
        reader.read_to_string(&mut heard).await?;
        assert_eq!(heard, "not quite");
        Ok(())
    });
}

pub(crate) fn g6_dropped_reading_half_leaves_the_writer(h: &Harness) {
    run(h, async || {
        let (one, mut other) = UnixStream::pair()?;
        let (mut reader, mut writer) = one.split();
        // A receive is in flight when it is dropped.
        assert!(timeout(MS, reader.read(&mut [0; 4])).await.is_err());
        drop(reader);
        writer.write_all(b"still here").await?;
        drop(writer);
        let mut heard = String::new();
        other.read_to_string(&mut heard).await?;
        assert_eq!(heard, "still here");
        Ok(())
    });
}

pub(crate) fn g6_dropped_read_loses_no_bytes(h: &Harness) {
    run(h, async || {
        let (mut one, mut other) = UnixStream::pair()?;
        let mut received = Vec::new();
        for n in 0..50u8 {
            let mut space = [0; 3];
            // Given up before anything can have come, most often.
            if let Ok(count) = timeout(std::time::Duration::ZERO, one.read(&mut space)).await {
                received.extend_from_slice(&space[..count?]);
            }
            other.write_all(&[n; 2]).await?;
        }
        other.close().await?;
        one.read_to_end(&mut received).await?;
        assert_eq!(received, (0..50).flat_map(|n| [n; 2]).collect::<Vec<u8>>());
        Ok(())
    });
}

pub(crate) fn g6_streams_are_dropped_in_every_state(h: &Harness) {
    run(h, async || {
        let listener = TcpListener::bind(anywhere())?;
        let address = listener.local_addr()?;
        // While it connects; and before it is polled.
        drop(TcpStream::connect(address));
        let connecting = spawn_future(async move { TcpStream::connect(address).await.map(drop) });
        connecting.cancel();
        let connecting = spawn_future(async move { TcpStream::connect(address).await.map(drop) });
        crate::futures::yield_once().await;
        connecting.cancel();
        // While it is accepted, and accepted but not taken.
        let waiting = spawn_future(async move {
            loop {
                drop(listener.accept().await?);
            }
        });
        let clients = [TcpStream::connect(address).await?, TcpStream::connect(address).await?];
        waiting.cancel();
        let ended: Result<io::Result<()>, _> = waiting.await;
        assert!(ended.is_err());
        drop(clients);
        // With a receive in flight; with one that is paused; with a send.
        let (mut reading, _idle) = connected().await?;
        assert!(timeout(MS, reading.read(&mut [0; 4])).await.is_err());
        drop(reading);
        let (mut client, mut server) = connected().await?;
        let mut one = [0];
        while let Ok(count) = timeout(10 * MS, client.write(&[7; 8192])).await {
            count?;
            let _ = timeout(std::time::Duration::ZERO, server.read(&mut one)).await;
        }
        drop(server);
        drop(client);
        Ok(())
    });
}

pub(crate) fn g6_stream_is_dropped_outside_a_turn(h: &Harness) {
    let kept = std::rc::Rc::new(std::cell::RefCell::new(None));
    let place = std::rc::Rc::clone(&kept);
    h.run(move || {
        let pair = block_on(async {
            let listener = TcpListener::bind(anywhere())?;
            let client = TcpStream::connect(listener.local_addr()?).await?;
            let (mut server, _) = listener.accept().await?;
            server.write_all(b"ahoy").await?;
            io::Result::Ok((listener, client, server))
        })??;
        place.replace(Some(pair));
        Ok(())
    });
    let (listener, mut client, server) = kept.take().unwrap();
    drop(server); // the loop is told by a post
    drop(listener);
    h.run(move || {
        let mut heard = String::new();
        block_on(client.read_to_string(&mut heard))??;
        assert_eq!(heard, "ahoy");
        Ok(())
    });
    h.lp.run_until_idle().unwrap();
    assert!(h.lp.dump().contains(": 0 operations, 0 timers"), "{}", h.lp.dump());
}

pub(crate) fn g6_stream_outlives_its_loop(h: &Harness) {
    let lp = h.another_loop();
    let kept = std::rc::Rc::new(std::cell::RefCell::new(None));
    let place = std::rc::Rc::clone(&kept);
    lp.defer(move |lp| {
        let (one, other) = lp.socket_pair().unwrap();
        let mut stream = TcpStream::from_socket(lp, one, Vec::new());
        spawn_future(async move {
            let other = TcpStream::from_socket(&Loop::current().unwrap(), other, Vec::new());
            let mut reading = other;
            let _ = reading.read(&mut [0; 4]).await;
        });
        spawn_future(async move {
            stream.write_all(b"x").await.unwrap();
            place.replace(Some(stream));
        });
    });
    for _ in 0..3 {
        lp.run_ready().unwrap();
    }
    let stream = kept.take();
    assert!(stream.is_some());
    drop(lp); // with a future in it that has a stream
    drop(stream);
}

pub(crate) fn g6_connecting_to_nobody_is_refused(h: &Harness) {
    run(h, async || {
        let address = TcpListener::bind(anywhere())?.local_addr()?;
        // It is closed at some point.
        let refused = loop {
            match TcpStream::connect(address).await {
                Ok(_) => sleep(MS).await,
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(refused, ErrorKind::ConnectionRefused);
        Ok(())
    });
}

pub(crate) fn g6_many_connections_come_to_several_futures(h: &Harness) {
    run(h, async || {
        let listener = std::rc::Rc::new(TcpListener::bind(anywhere())?);
        let address = listener.local_addr()?;
        let servers: Vec<_> = (0..4)
            .map(|_| {
                let listener = std::rc::Rc::clone(&listener);
                spawn_future(async move {
                    for _ in 0..25 {
                        let (mut stream, _) = listener.accept().await?;
                        let mut byte = [0];
                        stream.read_exact(&mut byte).await?;
                        stream.write_all(&byte).await?;
                    }
                    io::Result::Ok(())
                })
            })
            .collect();
        let clients: Vec<_> = (0..100u8)
            .map(|n| {
                spawn_future(async move {
                    let mut stream = TcpStream::connect(address).await?;
                    stream.write_all(&[n]).await?;
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).await?;
                    io::Result::Ok(answer == [n])
                })
            })
            .collect();
        for client in clients {
            assert!(client.await??);
        }
        for server in servers {
            server.await??;
        }
        Ok(())
    });
}

pub(crate) fn g7_coroutine_blocks_on_a_socket_of_futures(h: &Harness) {
    h.run(|| {
        let (mut one, mut other) = UnixStream::pair()?;
        let child = spawn(move || errno(block_on(one.read(&mut [0; 4])).map(drop)));
        yield_now();
        child.cancel(); // the receive in flight is the loop's business
        assert_eq!(child.join().unwrap(), ECANCELED);
        let ended = block_on(timeout(HOUR, other.read(&mut [0; 4])))???;
        assert_eq!(ended, 0, "the other end is closed");
        Ok(())
    });
}

pub(crate) fn g6_unix_listener_accepts(h: &Harness) {
    run(h, async || {
        use std::os::linux::net::SocketAddrExt;
        let name =
            format!("coracle-futures-{}-{:?}", std::process::id(), std::thread::current().id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        let listener = UnixListener::bind_addr(address.clone())?;
        let mut client = UnixStream::connect_addr(address.clone()).await?;
        let server = listener.accept().await?;
        spawn_future(echo_unix(server));
        client.write_all(b"ahoy").await?;
        client.close().await?;
        assert_eq!(everything(&mut client).await?, b"ahoy");
        drop(listener);
        let refused = loop {
            match UnixStream::connect_addr(address.clone()).await {
                Ok(_) => sleep(MS).await, // it is closed at some point
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(refused, ErrorKind::ConnectionRefused);
        Ok(())
    });
}

async fn echo_unix(stream: UnixStream) -> io::Result<u64> {
    let (reader, mut writer) = stream.split();
    futures::io::copy(reader, &mut writer).await
}

pub(crate) fn g6_datagrams_come_whole_and_to_one_future_each(h: &Harness) {
    run(h, async || {
        let one = UdpSocket::bind(anywhere())?;
        let other = UdpSocket::bind(anywhere())?;
        let (from, to) = (one.local_addr()?, other.local_addr()?);
        let mut space = [0; 8];
        // A receive that is given up keeps what has come for it.
        assert!(timeout(MS, other.recv_from(&mut space)).await.is_err());
        let sends = join!(one.send_to(b"one", to), one.send_to(b"another", to));
        assert_eq!((sends.0?, sends.1?), (3, 7));
        let mut received = Vec::new();
        for _ in 0..2 {
            let (count, sender) = other.recv_from(&mut space).await?;
            assert_eq!(sender, from);
            received.push(space[..count].to_vec());
        }
        assert_eq!(received, [&b"one"[..], b"another"]);

        one.send_to(b"longer than the space", to).await?;
        assert_eq!(other.recv_from(&mut space).await?.0, 8, "the rest is lost");
        one.send_to(b"", to).await?;
        assert_eq!(other.recv_from(&mut space).await?.0, 0, "nothing is a datagram, too");
        Ok(())
    });
}

pub(crate) fn g6_datagram_socket_is_dropped_in_every_state(h: &Harness) {
    run(h, async || {
        drop(UdpSocket::bind(anywhere())?);
        let taken = UdpSocket::bind(anywhere())?;
        assert!(UdpSocket::bind(taken.local_addr()?).is_err());
        let receiving = spawn_future(async move { taken.recv_from(&mut [0; 4]).await.map(drop) });
        crate::futures::yield_once().await;
        receiving.cancel();
        assert!(receiving.await.is_err());
        let sender = UdpSocket::bind(anywhere())?;
        let to = sender.local_addr()?;
        let sending = spawn_future(async move { sender.send_to(b"x", to).await.map(drop) });
        crate::futures::yield_once().await;
        sending.cancel();
        let _ = sending.await;
        Ok(())
    });
}

/// Clients and an echo server under one seed; what each client got back, or how it failed.
fn under_faults(seed: u64, faults: Faults) -> Vec<io::Result<Vec<u8>>> {
    let kernel = Kernel::with_faults(seed, faults);
    let lp = Loop::builder().demux(kernel.demux()).build().unwrap();
    let ended = coracle_coro::run_on(&lp, move || {
        let served = async {
            let listener = TcpListener::bind(anywhere())?;
            let address = listener.local_addr()?;
            let accepting = spawn_future(async move {
                loop {
                    match listener.accept().await {
                        Ok((stream, _)) => _ = spawn_future(echo(stream)),
                        Err(_) => sleep(MS).await, // no descriptors: it gets better
                    }
                }
            });
            let clients: Vec<_> = (1..=5)
                .map(|n| spawn_future(timeout(HOUR, ask(address, pattern(n * 1000)))))
                .collect();
            let mut answers = Vec::new();
            for client in clients {
                answers.push(client.await?.and_then(|answer| answer));
            }
            accepting.cancel();
            io::Result::Ok(answers)
        };
        block_on(served)?
    });
    lp.run_until_idle().unwrap();
    assert!(lp.dump().contains(": 0 operations, 0 timers"), "seed {seed}: {}", lp.dump());
    // A listener that could not be made serves nobody.
    ended.unwrap_or_else(|error| vec![Err(error)])
}

async fn echo(stream: TcpStream) -> io::Result<u64> {
    let (reader, mut writer) = stream.split();
    futures::io::copy(reader, &mut writer).await
}

async fn ask(address: SocketAddr, question: Vec<u8>) -> io::Result<Vec<u8>> {
    let (mut reader, mut writer) = TcpStream::connect(address).await?.split();
    let asking = async move {
        writer.write_all(&question).await?;
        writer.close().await
    };
    let (asked, answer) = join!(asking, everything(&mut reader));
    asked.and(answer)
}

pub(crate) fn g6_no_byte_is_lost_whatever_the_kernel_does(_: &Harness) {
    for seed in 0..100 {
        for (n, answer) in under_faults(seed, Faults::default()).into_iter().enumerate() {
            let answer = answer.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(answer == pattern((n + 1) * 1000), "seed {seed}: {} bytes", answer.len());
        }
    }
}

pub(crate) fn g6_broken_connections_leave_nothing_behind(_: &Harness) {
    let mut failed = 0;
    for seed in 0..100 {
        let answers = under_faults(seed, Faults::hostile());
        for (n, answer) in answers.into_iter().enumerate() {
            let Ok(answer) = answer else {
                failed += 1;
                continue;
            };
            // An echo that was broken may look like one that ended, but never like another.
            assert!(pattern((n + 1) * 1000).starts_with(&answer), "seed {seed}");
        }
    }
    assert!(failed > 0, "nothing was broken: this shows nothing");
}

pub(crate) fn f9_without_descriptors_accepting_futures_pause(_: &Harness) {
    let faults = Faults { limit_descriptors: 6, ..Faults::none() };
    let kernel = Kernel::with_faults(1, faults);
    let lp = Loop::builder().demux(kernel.demux()).build().unwrap();
    let case = async || {
        let listener = TcpListener::bind(anywhere())?;
        let mut clients = Vec::new();
        while let Ok(client) = TcpStream::connect(listener.local_addr()?).await {
            clients.push(client);
        }
        assert!(clients.len() > 2);
        // As it is for coroutines: each failure is told, and after each a pause, twice as long, up to a second.
        let begin = now();
        for _ in 0..12 {
            let error = listener.accept().await.map(|_| ()).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
        }
        let waited = now() - begin;
        assert!(
            waited >= 10 * MS * (1 + 2 + 4 + 8 + 16 + 32 + 64) && waited < 8000 * MS,
            "{waited:?}"
        );
        clients.truncate(1);
        listener.accept().await?; // whoever waited is still there
        clients.clear();
        Ok(())
    };
    coracle_coro::run_on(&lp, move || spawn_future(async move { case().await }).join()?).unwrap();
}

pub(crate) fn t9_traits_of_tokio_are_there_without_its_runtime(h: &Harness) {
    /// As those who use them do, by their traits alone.
    async fn everything<S: tokio::io::AsyncRead + Unpin>(mut stream: S) -> io::Result<Vec<u8>> {
        let (mut all, mut space) = (Vec::new(), [0; 1000]);
        loop {
            let mut space = tokio::io::ReadBuf::new(&mut space);
            poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, &mut space)).await?;
            match space.filled() {
                [] => return Ok(all),
                filled => all.extend_from_slice(filled),
            }
        }
    }
    async fn send<S: tokio::io::AsyncWrite + Unpin>(
        mut stream: S,
        bytes: Vec<u8>,
    ) -> io::Result<()> {
        let mut left = &bytes[..];
        while !left.is_empty() {
            let count = poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, left)).await?;
            left = &left[count..];
        }
        poll_fn(|cx| Pin::new(&mut stream).poll_flush(cx)).await?;
        poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await
    }
    run(h, async || {
        let bytes = pattern(300_000);
        let (client, server) = connected().await?;
        let (sent, received) = join!(send(client, bytes.clone()), everything(server));
        sent?;
        assert!(received? == bytes);
        let (client, server) = connected().await?;
        let ((_reader, writer), (reader, _writer)) = (client.split(), server.split());
        let (sent, received) = join!(send(writer, bytes.clone()), everything(reader));
        sent?;
        assert!(received? == bytes);
        Ok(())
    });
}
