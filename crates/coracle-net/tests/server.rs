//! Servers with several loops and real sockets: rows D3, E11, F11, G1, G4, G8, H2, H3, H4, I6, I7, P1 and Q4.

use coracle_loop::demux::{Address, Backend, Descriptor, Processors, pin_thread};
use coracle_loop::{Loop, PostError};
use coracle_net::{
    Buffer, CapacitySettings, Conn, ConnHandle, ListenOptions, Placement, Protocol, Reason,
    Running, Server, Settings, attach, available_cores, memory_bytes,
};
use rustix::net::sockopt;
use rustix::process::{Signal, getpid, kill_process};
use std::cell::Cell;
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BACKENDS: [Backend; 4] = [Backend::Uring, Backend::Epoll, Backend::Poll, Backend::Select];

/// Ends what hangs; decides nothing.
const PATIENCE: Duration = Duration::from_secs(20);

struct Echo;

impl Protocol for Echo {
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        conn.write(input.take_all());
        Ok(())
    }
}

fn address(running: &Running, index: usize) -> SocketAddr {
    running.local_addresses()[index].ip().expect("a TCP address")
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream
}

fn ask(stream: &mut TcpStream, text: &str) -> String {
    stream.write_all(text.as_bytes()).expect("it is written");
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).expect("it is answered");
    String::from_utf8(answer).expect("text")
}

/// Says something, and hears so many bytes.
fn ask_for(stream: &mut TcpStream, count: usize) -> String {
    stream.write_all(b"?").expect("it is written");
    let mut answer = vec![0; count];
    stream.read_exact(&mut answer).expect("it is answered");
    String::from_utf8(answer).expect("text")
}

/// Waits until `reached`; what is never reached fails.
fn wait_until(what: &str, reached: impl Fn() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn g1_every_placement_serves_on_every_backend() {
    for backend in BACKENDS {
        for placement in [
            Placement::ReusePort,
            Placement::RoundRobin,
            Placement::LeastConnections,
            Placement::Hash,
        ] {
            let server = Server::bind("127.0.0.1:0").unwrap().loops(3).backend(backend);
            let running = server.placement(placement).start(|_| Echo).unwrap();
            assert_eq!(running.handle().backend(), backend);
            let mut streams: Vec<TcpStream> =
                (0..30).map(|_| connect(address(&running, 0))).collect();
            for (index, stream) in streams.iter_mut().enumerate() {
                let text = format!("{backend} {placement:?} {index}");
                assert_eq!(ask(stream, &text), text);
            }
            let handle = running.handle();
            let per_loop: Vec<u64> = (0..3).map(|index| handle.loop_stats(index).open()).collect();
            assert_eq!(per_loop.iter().sum::<u64>(), 30);
            match placement {
                Placement::RoundRobin | Placement::LeastConnections => {
                    assert_eq!(per_loop, [10; 3], "{placement:?} is even");
                }
                // One address: one loop.
                Placement::Hash => assert!(per_loop.contains(&30), "{per_loop:?}"),
                _ => {}
            }
            drop(streams);
            wait_until("all are gone", || handle.stats().open() == 0);
            handle.stop();
            running.join().unwrap();
        }
    }
}

#[test]
fn g1_least_connections_does_not_count_who_was_turned_away() {
    let server = Server::bind(["127.0.0.1:0", "127.0.0.1:0"].as_slice()).unwrap().loops(2);
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
fn f1_several_services_have_protocols_of_their_own() {
    struct Shout;
    impl Protocol for Shout {
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            let loud = input.take_all().to_ascii_uppercase();
            conn.write(loud);
            Ok(())
        }
    }
    let server = Server::bind("127.0.0.1:0").unwrap().loops(2);
    let server = server.service("shout", "127.0.0.1:0", |_| Shout).unwrap();
    let running = server.start(|_| Echo).unwrap();
    let mut quiet = connect(address(&running, 0));
    let mut loud = connect(address(&running, 1));
    assert_eq!(ask(&mut quiet, "ahoy"), "ahoy");
    assert_eq!(ask(&mut loud, "ahoy"), "AHOY");
    let handle = running.handle();
    // H3
    assert_eq!((handle.count("main"), handle.count("shout"), handle.count("none")), (1, 1, 0));
    handle.stop();
    drop((quiet, loud));
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

thread_local! {
    /// What a loop answers with: its own settings.
    static WORD: Cell<&'static str> = const { Cell::new("old\n") };
}

#[test]
fn d3_hangup_reaches_every_loop_and_connections_stay() {
    struct Answer;
    impl Protocol for Answer {
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            input.take_all();
            conn.write(WORD.get());
            Ok(())
        }
    }
    for backend in BACKENDS {
        let (sender, reloaded) = channel();
        let server = Server::bind("127.0.0.1:0").unwrap().loops(3).backend(backend);
        let server = server.placement(Placement::RoundRobin).on_thread_start(move |lp, index| {
            let sender = sender.clone();
            let reload = move |_: &Loop| {
                WORD.set("new\n");
                let _ = sender.send(index); // the case may have heard enough
            };
            lp.on_signal(Signal::HUP.as_raw(), reload).expect("it listens");
        });
        let running = server.start(|_| Answer).unwrap();
        let mut streams: Vec<TcpStream> = (0..3).map(|_| connect(address(&running, 0))).collect();
        assert!(streams.iter_mut().all(|stream| ask_for(stream, 4) == "old\n"));
        kill_process(getpid(), Signal::HUP).unwrap();
        let hear = |_| reloaded.recv_timeout(PATIENCE).expect("a loop hears it");
        let told: HashSet<usize> = (0..3).map(hear).collect();
        assert_eq!(told.len(), 3, "each of them once");
        assert!(streams.iter_mut().all(|stream| ask_for(stream, 4) == "new\n"));
        running.handle().stop();
        drop(streams);
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

/// Tells the case who has connected.
struct Reporting {
    opened: Sender<ConnHandle>,
    closed: Arc<AtomicUsize>,
}

impl Protocol for Reporting {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        let _ = self.opened.send(conn.handle());
        Ok(())
    }
    fn on_data(&mut self, _: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        input.take_all();
        Ok(())
    }
    fn on_close(&mut self, _: &Reason) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn h2_task_reaches_every_connection_of_a_service_but_one() {
    let (opened, reports) = channel();
    let opened = Mutex::new(opened);
    let closed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&closed);
    // All on one of the loops, and more than it visits in one turn; few enough for a select in the same process.
    let server = Server::bind("127.0.0.1:0").unwrap().loops(3).placement(Placement::Hash);
    let server = server.service("other", "127.0.0.1:0", |_| Echo).unwrap();
    let running = server
        .start(move |_| Reporting {
            opened: opened.lock().unwrap().clone(),
            closed: Arc::clone(&count),
        })
        .unwrap();
    let mut streams: Vec<TcpStream> = (0..300).map(|_| connect(address(&running, 0))).collect();
    let mut other = connect(address(&running, 1));
    assert_eq!(ask(&mut other, "x"), "x");
    let handles: Vec<ConnHandle> =
        (0..300).map(|_| reports.recv_timeout(PATIENCE).expect("it opened")).collect();
    let visited = Arc::new(AtomicUsize::new(0));
    let visits = Arc::clone(&visited);
    let (done, finished) = channel();
    running.handle().each(
        "main",
        Some(&handles[77]),
        move |conn| {
            visits.fetch_add(1, Ordering::SeqCst);
            conn.write("news");
            Ok(())
        },
        move |result| done.send(result).expect("somebody waits"),
    );
    assert_eq!(finished.recv_timeout(PATIENCE).expect("it finishes"), Ok(()));
    assert_eq!(visited.load(Ordering::SeqCst), 299, "when it is done, all were visited");
    assert!(finished.try_recv().is_err(), "it finishes once");
    // All but one have got it; which one is not known here, so it is told apart by a task of its own.
    handles[77].write("only you");
    let mut news = 0;
    for stream in &mut streams {
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).expect("each has got something");
        news += usize::from(&bytes == b"news");
    }
    assert_eq!(news, 299);
    running.handle().stop();
    drop(streams);
    drop(other);
    running.join().unwrap();
    assert_eq!(closed.load(Ordering::SeqCst), 300, "each was closed once");
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

#[test]
fn q4_graceful_stop_lets_connections_finish() {
    struct Slow;
    impl Protocol for Slow {
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            input.take_all();
            conn.offload(
                || std::thread::sleep(Duration::from_millis(100)),
                |conn, _| {
                    conn.write("done");
                    Ok(())
                },
            )?;
            Ok(())
        }
    }
    for backend in BACKENDS {
        let server = Server::bind("127.0.0.1:0").unwrap().loops(2).backend(backend);
        let running = server.start(|_| Slow).unwrap();
        let address = address(&running, 0);
        let mut stream = connect(address);
        stream.write_all(b"work").unwrap();
        let handle = running.handle();
        wait_until("it has come", || handle.stats().received > 0);
        handle.stop(); // while the work is under way
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("no reset");
        assert_eq!(answer, "done", "on {backend}");
        drop(stream);
        running.join().unwrap();
        assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    }
}

/// Does not end when the server does, and says what it is told.
struct Stubborn(Sender<String>);

impl Protocol for Stubborn {
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        conn.write(input.take_all());
        Ok(())
    }
    fn on_shutdown(&mut self, _: &mut Conn<'_>) -> io::Result<()> {
        let _ = self.0.send("told".into());
        Ok(()) // and stays
    }
    fn on_close(&mut self, reason: &Reason) {
        let _ = self.0.send(reason.to_string());
    }
}

const TOO_LATE: &str = "it did not end in time";

#[test]
fn q4_deadline_ends_those_who_do_not() {
    let (notes, told) = channel();
    let notes = Mutex::new(notes);
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).drain(Duration::from_millis(50));
    let running = server.start(move |_| Stubborn(notes.lock().unwrap().clone())).unwrap();
    let mut stream = connect(address(&running, 0));
    assert_eq!(ask(&mut stream, "x"), "x");
    running.handle().stop();
    running.join().unwrap();
    let told: Vec<String> = told.try_iter().collect();
    assert_eq!(told, ["told", TOO_LATE]);
}

#[test]
fn q4_drain_in_progress_can_be_shortened_and_not_lengthened() {
    for backend in BACKENDS {
        let (notes, told) = channel();
        let notes = Mutex::new(notes);
        let server = Server::bind("127.0.0.1:0").unwrap().loops(2).backend(backend);
        let server = server.drain(2 * PATIENCE);
        let running = server.start(move |_| Stubborn(notes.lock().unwrap().clone())).unwrap();
        let mut stream = connect(address(&running, 0));
        assert_eq!(ask(&mut stream, "x"), "x");
        let handle = running.handle();
        handle.stop();
        assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok("told"));
        handle.stop_within(Duration::from_millis(50));
        handle.stop_within(4 * PATIENCE);
        assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok(TOO_LATE), "on {backend}");
        running.join().unwrap();
    }
}

#[test]
fn q4_stop_before_the_start_keeps_its_deadline() {
    let (notes, told) = channel();
    let notes = Mutex::new(notes);
    let (_peer, socket) = std::os::unix::net::UnixStream::pair().unwrap();
    let socket = Mutex::new(Some(OwnedFd::from(socket)));
    let server = Server::bind("127.0.0.1:0").unwrap().loops(2).drain(2 * PATIENCE);
    let running = server
        .on_thread_start(move |lp, _| {
            if let Some(socket) = socket.lock().unwrap().take() {
                let socket = lp.adopt(socket).expect("a socket");
                let stubborn = Stubborn(notes.lock().unwrap().clone());
                attach(lp, socket, Settings::default(), stubborn).expect("a connection");
            }
        })
        .on_init(|handle| handle.stop_within(Duration::from_millis(50)))
        .start(|_| Echo)
        .unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok("told"));
    assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok(TOO_LATE));
    running.join().unwrap();
}

#[test]
fn q4_nobody_can_connect_while_it_drains() {
    struct Staying;
    impl Protocol for Staying {
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            conn.write(input.take_all());
            Ok(())
        }
        fn on_shutdown(&mut self, _: &mut Conn<'_>) -> io::Result<()> {
            Ok(())
        }
    }
    for placement in [Placement::ReusePort, Placement::RoundRobin] {
        let server = Server::bind("127.0.0.1:0").unwrap().loops(2).placement(placement);
        let running = server.drain(PATIENCE).start(|_| Staying).unwrap();
        let address = address(&running, 0);
        let mut stream = connect(address);
        assert_eq!(ask(&mut stream, "x"), "x");
        running.handle().stop();
        wait_until("it does not listen", || TcpStream::connect(address).is_err());
        assert_eq!(ask(&mut stream, "still served"), "still served");
        drop(stream);
        running.join().unwrap();
    }
}

#[test]
fn g9_loop_that_dies_ends_the_server() {
    let server = Server::bind("127.0.0.1:0").unwrap().loops(3);
    let server = server.on_thread_start(|lp, index| {
        if index == 1 {
            lp.after(Duration::from_millis(5), |_| panic!("on purpose"));
        }
    });
    let error = server.start(|_| Echo).unwrap().join().expect_err("a loop died");
    assert!(error.to_string().contains("panicked"), "{error}");
}

#[test]
fn i6_settings_that_make_no_sense_are_named() {
    let none = Server::new().start(|_| Echo).unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::InvalidInput);
    assert!(none.to_string().contains("listens nowhere"), "{none}");

    let zero = Server::bind("127.0.0.1:0").unwrap().loops(0).start(|_| Echo).unwrap_err();
    assert!(zero.to_string().contains("loops is 0"), "{zero}");

    let marks = Settings { low_mark_bytes: 10, high_mark_bytes: 5, ..Settings::default() };
    let server = Server::bind("127.0.0.1:0").unwrap().settings(marks);
    let error = server.start(|_| Echo).unwrap_err().to_string();
    assert!(error.contains("service \"main\"") && error.contains("low_mark_bytes"), "{error}");

    let missing = Server::bind("127.0.0.1:0").unwrap().start_services().unwrap_err().to_string();
    assert!(missing.contains("has no protocol"), "{missing}");
}

#[test]
fn i6_port_in_use_is_told_at_once_and_names_the_cause() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = Server::bind(address).expect_err("the port is taken");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let text = error.to_string();
    assert!(text.contains(&address.to_string()) && text.contains("in use"), "{text}");
}

#[test]
fn i6_second_server_on_the_same_port_is_refused() {
    let first = Server::bind("127.0.0.1:0").unwrap().loops(2).start(|_| Echo).unwrap();
    let error = Server::bind(address(&first, 0)).expect_err("the first one has it");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    first.handle().stop();
    first.join().unwrap();
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
            for index in 0..2 {
                let mut answer = String::new();
                connect(address(&running, index)).read_to_string(&mut answer).expect("an answer");
                assert_eq!(answer, "busy", "{backend} {placement:?}");
            }
            let handle = running.handle();
            wait_until("those are gone", || handle.stats().open() == 4);
            assert_eq!(handle.stats().turned_away, 2);
            drop(streams.pop());
            wait_until("there is room", || handle.stats().open() == 3);
            assert_eq!(ask(&mut connect(address(&running, 0)), "room"), "room");
            handle.stop();
            drop(streams);
            running.join().unwrap();
        }
    }
}

#[test]
fn i7_thread_start_is_called_on_each_loop_and_may_set_timers() {
    let ticks = Arc::new(AtomicUsize::new(0));
    let threads = Arc::new(Mutex::new(HashSet::new()));
    let (count, seen) = (Arc::clone(&ticks), Arc::clone(&threads));
    let running = Server::bind("127.0.0.1:0")
        .unwrap()
        .loops(3)
        .on_thread_start(move |lp, index| {
            seen.lock().unwrap().insert((std::thread::current().id(), index));
            let count = Arc::clone(&count);
            // H4: run every so often
            lp.every(Duration::from_millis(1), move |_| {
                count.fetch_add(1, Ordering::SeqCst);
            });
        })
        .start(|_| Echo)
        .unwrap();
    wait_until("timers run", || ticks.load(Ordering::SeqCst) > 10);
    let threads = threads.lock().unwrap();
    assert_eq!(threads.len(), 3);
    assert_eq!(threads.iter().map(|(id, _)| id).collect::<HashSet<_>>().len(), 3);
    running.handle().stop();
    running.join().unwrap();
}

#[test]
fn i7_init_comes_before_anybody_and_finish_after_everybody() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |text: &'static str| {
        let order = Arc::clone(&order);
        move || order.lock().unwrap().push(text)
    };
    let (init, open, finish) = (note("init"), note("open"), note("finish"));
    let running = Server::bind("127.0.0.1:0")
        .unwrap()
        .loops(2)
        .on_init(move |_| init())
        .on_finish(finish)
        .start(move |_| {
            open();
            Echo
        })
        .unwrap();
    let mut stream = connect(address(&running, 0));
    assert_eq!(ask(&mut stream, "x"), "x");
    drop(stream);
    running.handle().stop();
    running.join().unwrap();
    assert_eq!(*order.lock().unwrap(), ["init", "open", "finish"]);
}

#[test]
fn b3_stop_before_the_start_is_not_lost() {
    let server = Server::bind("127.0.0.1:0").unwrap().loops(2);
    let running = server.on_init(|handle| handle.stop()).start(|_| Echo).unwrap();
    running.join().unwrap(); // would hang
}

#[test]
fn i7_panic_at_the_start_of_a_loop_is_an_error() {
    let server = Server::bind("127.0.0.1:0").unwrap().loops(3);
    let server = server.on_thread_start(|_, index| assert_ne!(index, 1, "on purpose"));
    let error = server.start(|_| Echo).expect_err("it cannot serve");
    assert!(error.to_string().contains("panicked"), "{error}");
}

/// The threads of this process whose name begins like this.
fn threads_named(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    let name = |task: &std::path::Path| std::fs::read_to_string(task.join("comm"));
    tasks
        .filter(|task| name(&task.as_ref().unwrap().path()).is_ok_and(|it| it.starts_with(prefix)))
        .count()
}

#[test]
fn b3_start_that_fails_half_way_leaves_no_loop_behind() {
    const CASE: &str = "b3_start_that_fails_half_way_leaves_no_loop_behind";
    const CHILD: &str = "CORACLE_SERVER_CHILD";
    if std::env::var_os(CHILD).is_none() {
        // In a process of its own, with room for the stacks of a few threads.
        let output = std::process::Command::new("sh")
            .args(["-c", "ulimit -v 8000000; exec \"$0\" --exact \"$1\" --nocapture"])
            .arg(std::env::current_exe().unwrap())
            .arg(CASE)
            .env(CHILD, "1")
            .env("RUST_MIN_STACK", (1 << 30).to_string())
            .output()
            .expect("sh is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    for backend in BACKENDS {
        let started = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&started);
        let server = Server::bind("127.0.0.1:0").unwrap().loops(16).backend(backend);
        let address = server.local_addresses()[0].clone();
        let server = server.on_thread_start(move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let error = server.start(|_| Echo).expect_err("there is no memory for so many");
        assert!(error.to_string().contains("cannot start a thread"), "{error}");
        let started = started.load(Ordering::SeqCst);
        assert!((1..16).contains(&started), "{started} of 16 loops were started");
        assert_eq!(threads_named("coracle-"), 0, "and all are gone on {backend}");
        drop(Server::bind(address).expect("nobody listens any more"));
    }
}

#[test]
fn p1_counters_tell_what_happened() {
    let running = Server::bind("127.0.0.1:0").unwrap().loops(2).start(|_| Echo).unwrap();
    let mut streams: Vec<TcpStream> = (0..10).map(|_| connect(address(&running, 0))).collect();
    for stream in &mut streams {
        assert_eq!(ask(stream, "12345"), "12345");
    }
    let handle = running.handle();
    let stats = handle.stats();
    assert_eq!((stats.opened, stats.open(), stats.turned_away), (10, 10, 0));
    assert_eq!((stats.received_bytes, stats.sent_bytes), (50, 50));
    assert!(stats.received >= 10);
    drop(streams);
    wait_until("all are gone", || handle.stats().closed == 10);
    handle.stop();
    running.join().unwrap();
}

#[test]
fn g8_callbacks_of_one_connection_never_overlap() {
    struct Exclusive(Arc<AtomicUsize>, Arc<AtomicUsize>);
    impl Protocol for Exclusive {
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            std::thread::yield_now();
            conn.write(input.take_all());
            self.0.fetch_sub(1, Ordering::SeqCst);
            self.1.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let running = Server::bind("127.0.0.1:0")
        .unwrap()
        .loops(2)
        .start(move |_| Exclusive(Arc::default(), Arc::clone(&count)))
        .unwrap();
    let address = address(&running, 0);
    let clients: Vec<_> = (0..4)
        .map(|client| {
            std::thread::spawn(move || {
                let mut stream = connect(address);
                for round in 0..200 {
                    let text = format!("{client}:{round}");
                    assert_eq!(ask(&mut stream, &text), text);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert!(calls.load(Ordering::SeqCst) >= 800);
    running.handle().stop();
    running.join().unwrap();
}

#[test]
fn f5_unix_socket_serves_and_its_file_goes_with_the_server() {
    let path = std::env::temp_dir().join(format!("coracle-server-{}.sock", std::process::id()));
    let running = Server::bind(path.as_path()).unwrap().loops(2).start(|_| Echo).unwrap();
    assert_eq!(
        running.local_addresses(),
        [Address::from(std::os::unix::net::SocketAddr::from_pathname(&path).unwrap(),)]
    );
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"ahoy").unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ahoy");
    drop(stream);
    running.handle().stop();
    running.join().unwrap();
    assert!(!path.exists());
}
