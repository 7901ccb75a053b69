//! What a server shares out between its loops: connections, memory, options, processors.

use crate::{BACKENDS, Echo, PATIENCE, Reporting, address, ask, ask_for, connect, wait_until};
use coracle_loop::PostError;
use coracle_loop::demux::{Descriptor, Processors, pin_thread};
use coracle_net::{
    Buffer, CapacitySettings, Conn, ListenOptions, Placement, Protocol, Reason, Server, Settings,
    available_cores, memory_bytes,
};
use rustix::net::sockopt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[test]
fn g1_least_connections_does_not_count_who_was_turned_away() {
    let server = Server::bind(["127.0.0.1:0", "127.0.0.1:0"]).unwrap().loops(2);
    let settings = Settings { limit_connections: 1, ..Settings::default() };
    let server = server.placement(Placement::LeastConnections).settings(settings);
    let running = server.start(|_| Echo).unwrap();
    let handle = running.handle();
    // The service has two addresses: both have to know what the other has given to whom.
    let mut first = connect(address(&running, 0));
    assert_eq!(ask(&mut first, "x"), "x");
    let mut second = connect(address(&running, 1));
    assert_eq!(ask(&mut second, "x"), "x");
    assert_eq!((handle.loop_stats(0).open(), handle.loop_stats(1).open()), (1, 1));
    for _ in 0..3 {
        let mut end = [0];
        assert_eq!(connect(address(&running, 0)).read(&mut end).expect("no reset"), 0);
    }
    drop((first, second));
    wait_until("both are gone", || handle.stats().open() == 0);
    let mut third = connect(address(&running, 0));
    assert_eq!(ask(&mut third, "x"), "x");
    let mut fourth = connect(address(&running, 0));
    assert_eq!(ask(&mut fourth, "x"), "x");
    assert_eq!((handle.loop_stats(0).open(), handle.loop_stats(1).open()), (1, 1));
    handle.stop();
    drop((third, fourth));
    running.join().unwrap();
}

#[test]
fn e11_loops_share_one_limit_of_memory() {
    /// Never reads.
    struct Hoarder(Sender<String>);
    impl Protocol for Hoarder {
        fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
            Ok(())
        }
        fn on_close(&mut self, reason: &Reason) {
            self.0.send(reason.to_string()).expect("the case waits");
        }
    }
    for backend in BACKENDS {
        let (sender, closed) = channel();
        let settings = Settings { limit_input_bytes: 64 << 20, ..Settings::default() };
        let server = Server::bind("127.0.0.1:0").unwrap().loops(2).backend(backend);
        let server = server.placement(Placement::RoundRobin).settings(settings);
        let server = server.limit_memory_bytes(4 << 20);
        let running = server.start(move |_| Hoarder(sender.clone())).unwrap();
        let handle = running.handle();
        let mut clients: Vec<TcpStream> = (0..3).map(|_| connect(address(&running, 0))).collect();
        let bytes = vec![b'x'; 3 << 19];
        for client in &mut clients[..2] {
            client.write_all(&bytes).unwrap(); // on either loop one
        }
        wait_until("both have come", || handle.stats().received_bytes == 2 * bytes.len() as u64);
        let _ = clients[2].write_all(&bytes); // it may be closed before all is written
        let reason = closed.recv_timeout(PATIENCE).expect("one is closed");
        assert_eq!(reason, "there is no memory for what waits on it");
        assert_eq!(handle.stats().out_of_memory, 1);
        wait_until("the others stay", || handle.stats().open() == 2);
        handle.stop();
        drop(clients);
        running.join().unwrap();
    }
}

#[test]
fn f11_every_loop_listens_with_the_options() {
    /// Gives its socket to the case.
    struct Giving(Sender<OwnedFd>);
    impl Protocol for Giving {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            let given = self.0.clone();
            conn.hijack(move |lp, socket, _| {
                if let Ok(Descriptor::Os(socket)) = lp.detach(socket) {
                    given.send(socket).expect("the case waits");
                }
            });
            Ok(())
        }
        fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
            Ok(())
        }
    }
    for backend in BACKENDS {
        let options = ListenOptions::new().keep_alive(Duration::from_secs(77)).no_delay(false);
        let (sender, given) = channel();
        let other = sender.clone();
        let server = Server::bind_with("127.0.0.1:0", &options).unwrap().loops(3).backend(backend);
        let server =
            server.service("other", "127.0.0.1:0", move |_| Giving(other.clone())).unwrap();
        let running = server.start(move |_| Giving(sender.clone())).unwrap();
        let handle = running.handle();
        let served = || (0..3).all(|index| handle.loop_stats(index).opened > 0);
        let start = Instant::now();
        let mut clients = Vec::new();
        while clients.len() < 10 || !served() {
            assert!(start.elapsed() < PATIENCE, "the kernel spreads them over all loops");
            clients.push(connect(address(&running, clients.len() % 2)));
            let socket = given.recv_timeout(PATIENCE).expect("it was accepted");
            assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), Duration::from_secs(77));
            assert!(!sockopt::tcp_nodelay(&socket).unwrap());
        }
        handle.stop();
        running.join().unwrap();
    }
}

#[test]
fn g4_loops_are_as_many_as_the_processors_there_are() {
    let loops = || {
        let running = Server::bind("127.0.0.1:0").unwrap().start(|_| Echo).unwrap();
        let loops = running.handle().loops();
        running.handle().stop();
        running.join().unwrap();
        loops
    };
    assert_eq!(loops(), available_cores());
    // Of the affinity's and the quota's counts this can be set without privileges.
    let one = std::thread::spawn(move || {
        pin_thread(0).unwrap();
        loops()
    });
    assert_eq!(one.join().unwrap(), 1);
}

#[test]
fn g4_pinned_loops_take_processors_in_turn() {
    let processors = Processors::of_this_thread().unwrap().numbers();
    for backend in BACKENDS {
        let count = processors.len() + 1;
        let (sender, seen) = channel();
        let server = Server::bind("127.0.0.1:0").unwrap().loops(count).backend(backend);
        let server = server.pin_threads(true).on_thread_start(move |_, index| {
            let mine = Processors::of_this_thread().unwrap().numbers();
            sender.send((index, mine)).expect("the case waits");
        });
        let running = server.start(|_| Asker).unwrap();
        let look = |_| seen.recv_timeout(PATIENCE).expect("each loop begins");
        let mut seen: Vec<(usize, Vec<usize>)> = (0..count).map(look).collect();
        seen.sort();
        for (index, mine) in seen {
            assert_eq!(mine, [processors[index % processors.len()]], "loop {index} on {backend}");
        }
        // What is offloaded is not crowded there.
        let mut stream = connect(address(&running, 0));
        let all = format!("{processors:?}");
        assert_eq!(ask_for(&mut stream, all.len()), all);
        running.handle().stop();
        drop(stream);
        running.join().unwrap();
    }
    /// Answers with the processors that offloaded work may run on.
    struct Asker;
    impl Protocol for Asker {
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            input.take_all();
            let look = || Processors::of_this_thread().unwrap().numbers();
            let answer = |conn: &mut Conn<'_>, numbers: Result<Vec<usize>, _>| {
                conn.write(format!("{:?}", numbers.map_err(io::Error::other)?));
                Ok(())
            };
            conn.offload(look, answer).map_err(io::Error::other)
        }
    }
}

#[test]
fn i8_capacity_is_of_the_whole_server() {
    let room = CapacitySettings::new().memory_percent(100).bytes_per_connection(memory_bytes() / 4);
    for backend in BACKENDS {
        for placement in [Placement::ReusePort, Placement::RoundRobin] {
            let server = Server::bind("127.0.0.1:0").unwrap().loops(3).placement(placement);
            let server = server.service("other", "127.0.0.1:0", |_| Echo).unwrap();
            let server = server.capacity(room.clone()).backend(backend);
            let settings = Settings { busy_message: "busy".into(), ..Settings::default() };
            let running = server.settings(settings).start(|_| Echo).unwrap();
            let mut streams = Vec::new();
            for index in 0..4 {
                let mut stream = connect(address(&running, index % 2));
                assert_eq!(ask(&mut stream, "room"), "room", "{backend} {placement:?}");
                streams.push(stream);
            }
            let mut waiting = Vec::new();
            for index in 0..2 {
                let (mut stream, mut answer) = (connect(address(&running, index)), String::new());
                stream.read_to_string(&mut answer).expect("an answer");
                assert_eq!(answer, "busy", "{backend} {placement:?}");
                waiting.push(stream); // does not go at once
            }
            let handle = running.handle();
            assert_eq!(handle.stats().turned_away, 2);
            drop(streams.pop());
            wait_until("there is room", || handle.stats().open() <= 5);
            // For anybody, wherever those are who were told that there is none.
            let mut stream = connect(address(&running, 0));
            assert_eq!(ask(&mut stream, "room"), "room", "{backend} {placement:?}");
            handle.stop();
            drop((streams, stream, waiting));
            running.join().unwrap();
        }
    }
}

#[test]
fn h2_loop_that_cannot_be_told_is_reported() {
    let (opened, reports) = channel();
    let opened = Mutex::new(opened);
    let closed = Arc::<AtomicUsize>::default();
    let server = Server::bind("127.0.0.1:0").unwrap().loops(2).placement(Placement::RoundRobin);
    let running = server
        .start(move |_| Reporting {
            opened: opened.lock().unwrap().clone(),
            closed: Arc::clone(&closed),
        })
        .unwrap();
    let streams: Vec<TcpStream> = (0..2).map(|_| connect(address(&running, 0))).collect();
    let conn = reports.recv_timeout(PATIENCE).expect("it opened");
    reports.recv_timeout(PATIENCE).expect("the other, too");
    // One loop is held up until it can be given no more to do.
    let (release, held) = channel::<()>();
    let (full, is_full) = channel();
    conn.run(move |_| held.recv().map_err(io::Error::other), || panic!("it is there"));
    while is_full.try_recv().is_err() {
        let full = full.clone();
        conn.run(|_| Ok(()), move || full.send(()).expect("somebody waits"));
    }
    let visited = Arc::new(AtomicUsize::new(0));
    let visits = Arc::clone(&visited);
    let (done, finished) = channel();
    running.handle().each(
        "main",
        None,
        move |_| {
            visits.fetch_add(1, Ordering::SeqCst);
            Ok(())
        },
        move |result| done.send(result).expect("somebody waits"),
    );
    assert_eq!(finished.recv_timeout(PATIENCE), Ok(Err(PostError::Full)));
    assert_eq!(visited.load(Ordering::SeqCst), 1, "the other loop's was visited");
    release.send(()).unwrap();
    running.handle().stop();
    drop(streams);
    running.join().unwrap();
}
