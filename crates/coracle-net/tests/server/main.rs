//! Servers with several loops, with real sockets and threads, on every backend: rows F1, F5, G1, G8, G9, H2, H3,
//! I6, I7, P1 and Q4.

mod resources;
mod stopping;

use crate::stopping::{Stubborn, TOO_LATE};
use coracle_loop::HookKind;
use coracle_loop::demux::{Address, Backend};
use coracle_net::{
    Buffer, Conn, ConnHandle, Placement, Protocol, Reason, Running, Server, Settings, Stats,
};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

macro_rules! suite {
    ($($name:ident $backend:ident),*: $cases:tt) => {
        $(suite!(@on $name $backend $cases);)*
    };
    (@on $name:ident $backend:ident { $($case:ident)* }) => {
        mod $name {
            $(
                #[test]
                fn $case() {
                    super::$case(coracle_loop::demux::Backend::$backend);
                }
            )*
        }
    };
}

suite! {
    uring Uring, epoll Epoll, poll Poll, select Select: {
        g1_every_placement_serves
        f10_kernel_spreads_connections_over_all_loops
        f1_several_services_have_protocols_of_their_own
        h3_connections_are_counted_by_service
        h2_task_reaches_every_connection_of_a_service_but_one
        q4_graceful_stop_lets_connections_finish
        q4_stop_in_the_middle_of_it_cuts_no_answer
        q4_deadline_ends_those_who_do_not
        q4_nobody_can_connect_while_it_drains
        g9_loop_that_dies_ends_the_server
        i6_second_server_on_the_same_port_is_refused
        i7_thread_start_is_called_on_each_loop_and_may_set_timers
        i7_init_comes_before_anybody_and_finish_after_everybody
        b3_stop_before_the_start_is_not_lost
        i7_turns_and_quiet_moments_are_told
        i7_panic_at_the_start_of_a_loop_is_an_error
        p1_counters_tell_what_happened
        q1_settings_change_for_new_connections
        g8_callbacks_of_one_connection_never_overlap
        i1_close_is_told_once_under_contention
        f5_unix_socket_serves_and_its_file_goes_with_the_server
    }
}

const BACKENDS: [Backend; 4] = [Backend::Uring, Backend::Epoll, Backend::Poll, Backend::Select];

/// Ends what hangs; decides nothing.
const PATIENCE: Duration = Duration::from_secs(300);

/// Cases with many connections: several at once would have more descriptors than select knows.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Echo;

impl Protocol for Echo {
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        conn.write(input.take_all());
        Ok(())
    }
}

fn server(backend: Backend) -> Server {
    Server::bind("127.0.0.1:0").unwrap().backend(backend)
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

/// Waits until `reached`; what is never reached fails.
fn wait_until(what: &str, reached: impl Fn() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn g1_every_placement_serves(backend: Backend) {
    for placement in
        [Placement::ReusePort, Placement::RoundRobin, Placement::LeastConnections, Placement::Hash]
    {
        let server = server(backend).loops(3);
        let running = server.placement(placement).start(|_| Echo).unwrap();
        assert_eq!(running.handle().backend(), backend);
        let mut streams: Vec<TcpStream> = (0..30).map(|_| connect(address(&running, 0))).collect();
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

fn f10_kernel_spreads_connections_over_all_loops(backend: Backend) {
    let _alone = ONE_AT_A_TIME.lock();
    let server = server(backend).loops(3).placement(Placement::ReusePort);
    let running = server.start(|_| Echo).unwrap();
    // The kernel hashes the peer's port: that a loop is left out happens once in some millions.
    let mut streams: Vec<TcpStream> = (0..40).map(|_| connect(address(&running, 0))).collect();
    streams.iter_mut().for_each(|stream| assert_eq!(ask(stream, "x"), "x"));
    let per_loop = [0, 1, 2].map(|index| running.handle().loop_stats(index).open());
    assert!(per_loop.iter().all(|count| *count > 0), "{per_loop:?}");
    assert_eq!(per_loop.iter().sum::<u64>(), 40, "each is on one loop");
    drop(streams);
    running.handle().stop();
    running.join().unwrap();
}

fn f1_several_services_have_protocols_of_their_own(backend: Backend) {
    struct Shout;
    impl Protocol for Shout {
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            let loud = input.take_all().to_ascii_uppercase();
            conn.write(loud);
            Ok(())
        }
    }
    let server = server(backend).loops(2);
    let server = server.service("shout", "127.0.0.1:0", |_| Shout).unwrap();
    let running = server.start(|_| Echo).unwrap();
    let mut quiet = connect(address(&running, 0));
    let mut loud = connect(address(&running, 1));
    assert_eq!(ask(&mut quiet, "ahoy"), "ahoy");
    assert_eq!(ask(&mut loud, "ahoy"), "AHOY");
    running.handle().stop();
    drop((quiet, loud));
    running.join().unwrap();
}

fn h3_connections_are_counted_by_service(backend: Backend) {
    let server = server(backend).loops(2).service("other", "127.0.0.1:0", |_| Echo).unwrap();
    let running = server.start(|_| Echo).unwrap();
    let mut streams: Vec<TcpStream> =
        [0, 1, 1, 1].map(|service| connect(address(&running, service))).into();
    streams.iter_mut().for_each(|stream| assert_eq!(ask(stream, "x"), "x"));
    let handle = running.handle();
    let counts = || ["main", "other", "none"].map(|service| handle.count(service));
    assert_eq!(counts(), [1, 3, 0]);
    drop(streams.pop());
    wait_until("one has gone", || counts() == [1, 2, 0]);
    drop(streams);
    wait_until("all have gone", || counts() == [0, 0, 0]);
    handle.stop();
    running.join().unwrap();
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

fn h2_task_reaches_every_connection_of_a_service_but_one(backend: Backend) {
    let _alone = ONE_AT_A_TIME.lock();
    let (opened, reports) = channel();
    let opened = Mutex::new(opened);
    let closed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&closed);
    // All on one of the loops, and more than it visits in one turn; few enough for a select in the same process.
    let server = server(backend).loops(3).placement(Placement::Hash);
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

fn q4_graceful_stop_lets_connections_finish(backend: Backend) {
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
    let server = server(backend).loops(2);
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

fn q4_stop_in_the_middle_of_it_cuts_no_answer(backend: Backend) {
    const MESSAGE: usize = 100_000;
    for round in 0..5 {
        let running = server(backend).loops(2).start(|_| Echo).unwrap();
        let address = address(&running, 0);
        let (served, first) = channel();
        let clients: Vec<_> = (0..4)
            .map(|number| {
                let served = served.clone();
                std::thread::spawn(move || {
                    let mut stream = connect(address);
                    let mut writer = stream.try_clone().unwrap();
                    let sender = std::thread::spawn(move || {
                        let piece = [number; MESSAGE];
                        while writer.write_all(&piece).is_ok() {} // until nobody is there
                    });
                    let mut piece = [0; 4096];
                    let (mut count, mut told) = (0, false);
                    let end = loop {
                        match stream.read(&mut piece) {
                            Ok(0) => break Ok(count),
                            Ok(read) => {
                                assert_eq!(piece[..read], [number; 4096][..read]);
                                count += read;
                            }
                            Err(error) => break Err(error),
                        }
                        if !std::mem::replace(&mut told, true) {
                            served.send(()).unwrap();
                        }
                    };
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                    sender.join().unwrap();
                    end
                })
            })
            .collect();
        (0..4).for_each(|_| first.recv_timeout(PATIENCE).expect("it is served"));
        std::thread::sleep(Duration::from_millis(round)); // another moment each time
        running.handle().stop();
        for client in clients {
            let received = client.join().unwrap().expect("an orderly end, and no reset");
            assert!(received > 0);
        }
        running.join().unwrap();
    }
}

fn q4_deadline_ends_those_who_do_not(backend: Backend) {
    let (notes, told) = channel();
    let notes = Mutex::new(notes);
    let server = server(backend).loops(1).drain(Duration::from_millis(50));
    let running = server.start(move |_| Stubborn(notes.lock().unwrap().clone())).unwrap();
    let mut stream = connect(address(&running, 0));
    assert_eq!(ask(&mut stream, "x"), "x");
    running.handle().stop();
    running.join().unwrap();
    let told: Vec<String> = told.try_iter().collect();
    assert_eq!(told, ["told", TOO_LATE]);
}

fn q4_nobody_can_connect_while_it_drains(backend: Backend) {
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
        let server = server(backend).loops(2).placement(placement);
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

fn g9_loop_that_dies_ends_the_server(backend: Backend) {
    let server = server(backend).loops(3);
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

    let server = Server::bind("127.0.0.1:0").unwrap();
    let twice = server.service("main", "127.0.0.1:0", |_| Echo).unwrap();
    let twice = twice.start(|_| Echo).unwrap_err().to_string();
    assert_eq!(twice, "two services are called \"main\"");
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

fn i6_second_server_on_the_same_port_is_refused(backend: Backend) {
    let first = server(backend).loops(2).start(|_| Echo).unwrap();
    let error = Server::bind(address(&first, 0)).expect_err("the first one has it");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    first.handle().stop();
    first.join().unwrap();
}

fn i7_thread_start_is_called_on_each_loop_and_may_set_timers(backend: Backend) {
    let ticks = Arc::new(AtomicUsize::new(0));
    let threads = Arc::new(Mutex::new(HashSet::new()));
    let (count, seen) = (Arc::clone(&ticks), Arc::clone(&threads));
    let running = server(backend)
        .loops(3)
        .on_thread_start(move |lp, index| {
            seen.lock().unwrap().insert((std::thread::current().id(), index));
            let count = Arc::clone(&count);
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

fn i7_init_comes_before_anybody_and_finish_after_everybody(backend: Backend) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |text: &'static str| {
        let order = Arc::clone(&order);
        move || order.lock().unwrap().push(text)
    };
    let (init, open, finish) = (note("init"), note("open"), note("finish"));
    let running = server(backend)
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

fn b3_stop_before_the_start_is_not_lost(backend: Backend) {
    let server = server(backend).loops(2);
    let running = server.on_init(|handle| handle.stop()).start(|_| Echo).unwrap();
    running.join().unwrap(); // would hang
}

fn i7_turns_and_quiet_moments_are_told(backend: Backend) {
    let counts: [Arc<AtomicUsize>; 2] = Default::default();
    let [turns, quiet] = counts.clone();
    let server = server(backend).loops(1).on_thread_start(move |lp, _| {
        for (kind, count) in [(HookKind::Check, &turns), (HookKind::Idle, &quiet)] {
            let count = Arc::clone(count);
            lp.on_turn(kind, move |_| {
                count.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    let running = server.start(|_| Echo).unwrap();
    let mut stream = connect(address(&running, 0));
    let seen = || counts.each_ref().map(|count| count.load(Ordering::SeqCst));
    for _ in 0..3 {
        let [turns, quiet] = seen();
        assert_eq!(ask(&mut stream, "x"), "x");
        wait_until("a turn, and a quiet moment after it", || {
            let now = seen();
            now[0] > turns && now[1] > quiet
        });
    }
    drop(stream);
    running.handle().stop();
    running.join().unwrap();
}

fn i7_panic_at_the_start_of_a_loop_is_an_error(backend: Backend) {
    let server = server(backend).loops(3);
    let server = server.on_thread_start(|_, index| assert_ne!(index, 1, "on purpose"));
    let error = server.start(|_| Echo).expect_err("it cannot serve");
    assert!(error.to_string().contains("panicked"), "{error}");
}

fn p1_counters_tell_what_happened(backend: Backend) {
    let running = server(backend).loops(2).start(|_| Echo).unwrap();
    let mut streams: Vec<TcpStream> = (0..10).map(|_| connect(address(&running, 0))).collect();
    for stream in &mut streams {
        assert_eq!(ask(stream, "12345"), "12345");
    }
    let handle = running.handle();
    // An answer may be here before it is counted there.
    wait_until("all is counted", || handle.stats().sent_bytes == 50);
    let stats = handle.stats();
    assert_eq!((stats.opened, stats.open(), stats.turned_away), (10, 10, 0));
    assert_eq!(stats.received_bytes, 50);
    assert!(stats.received >= 10);
    let (mut sum, loops) = (Stats::default(), [0, 1].map(|index| handle.loop_stats(index)));
    loops.iter().for_each(|stats| sum.add(stats));
    assert_eq!(sum, stats, "the loops add up to the server");
    drop(streams);
    wait_until("all are gone", || handle.stats().closed == 10);
    handle.stop();
    running.join().unwrap();
}

fn q1_settings_change_for_new_connections(backend: Backend) {
    /// Echoes what ends in `!`; the rest waits.
    fn patient(conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        if input.unread().ends_with(b"!") {
            conn.write(input.take_all());
        }
        Ok(())
    }
    for placement in [Placement::ReusePort, Placement::RoundRobin] {
        let set = |limit_input_bytes| Settings { limit_input_bytes, ..Settings::default() };
        let server = server(backend).loops(2).placement(placement);
        let server = server.service("own", "127.0.0.1:0", |_| patient).unwrap();
        let server = server.service_settings(set(8)).settings(set(1));
        // Before it has begun, too.
        let server = server.on_init(move |handle| handle.set_settings(set(8)).unwrap());
        let running = server.start(|_| patient).unwrap();
        let handle = running.handle();
        let wrong = handle.set_settings(set(0)).unwrap_err();
        assert_eq!(wrong.kind(), io::ErrorKind::InvalidInput);
        // Whether four bytes may wait.
        let has_room = |stream: &mut TcpStream| {
            let before = handle.stats().received_bytes;
            stream.write_all(b"1234").unwrap();
            wait_until("they are received", || handle.stats().received_bytes == before + 4);
            let _ = stream.write_all(b"!"); // or it is gone
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).is_ok_and(|()| &answer == b"1234!")
        };
        let mut old: Vec<TcpStream> = (0..8).map(|_| connect(address(&running, 0))).collect();
        assert!(old.iter_mut().all(has_room), "{backend} {placement:?}");
        handle.set_settings(set(2)).expect("they make sense");
        // Every loop is told, sooner or later.
        wait_until("new ones have less", || {
            (0..8).all(|_| !has_room(&mut connect(address(&running, 0))))
        });
        assert!(old.iter_mut().all(has_room), "{backend} {placement:?}: they keep what they have");
        assert!(has_room(&mut connect(address(&running, 1))), "a service keeps its own");
        handle.stop();
        drop(old);
        running.join().unwrap();
    }
}

fn g8_callbacks_of_one_connection_never_overlap(backend: Backend) {
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
    let running = server(backend)
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

fn f5_unix_socket_serves_and_its_file_goes_with_the_server(backend: Backend) {
    let path =
        std::env::temp_dir().join(format!("coracle-server-{}-{backend}.sock", std::process::id()));
    let running =
        Server::bind(path.as_path()).unwrap().backend(backend).loops(2).start(|_| Echo).unwrap();
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

/// Says something, and hears so many bytes.
pub(crate) fn ask_for(stream: &mut TcpStream, count: usize) -> String {
    stream.write_all(b"?").expect("it is written");
    let mut answer = vec![0; count];
    stream.read_exact(&mut answer).expect("it is answered");
    String::from_utf8(answer).expect("text")
}

fn i1_close_is_told_once_under_contention(backend: Backend) {
    const CONNECTIONS: usize = 60;
    /// Says when it is dropped how often it was closed.
    struct Counting {
        closed: usize,
        opened: Sender<ConnHandle>,
        dropped: Sender<usize>,
    }
    impl Protocol for Counting {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            let _ = self.opened.send(conn.handle());
            Ok(())
        }
        fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            assert_eq!(self.closed, 0, "called after its end");
            conn.write(input.take_all());
            Ok(())
        }
        fn on_close(&mut self, _: &Reason) {
            self.closed += 1;
        }
    }
    impl Drop for Counting {
        fn drop(&mut self) {
            let _ = self.dropped.send(self.closed);
        }
    }
    let ((opened, handles), (dropped, counts)) = (channel(), channel());
    let senders = Mutex::new((opened, dropped));
    let running = server(backend)
        .loops(2)
        .start(move |_| {
            let (opened, dropped) = senders.lock().unwrap().clone();
            Counting { closed: 0, opened, dropped }
        })
        .unwrap();
    let address = address(&running, 0);
    // Each ends by its peer, by several threads and by the end of the server, whichever is first.
    let peer = std::thread::spawn(move || {
        for number in 0..CONNECTIONS {
            let mut stream = connect(address);
            let _ = stream.write_all(&[b'x'; 1000]);
            if number % 3 == 0 {
                let _ = stream.shutdown(std::net::Shutdown::Write);
            } // otherwise with answers that are not read: a reset
        }
    });
    for _ in 0..CONNECTIONS {
        let handle = handles.recv_timeout(PATIENCE).expect("it opens");
        let enders = (0..3).map(|number| {
            let handle = handle.clone();
            std::thread::spawn(move || {
                let end = move |conn: &mut Conn<'_>| {
                    if number == 0 {
                        conn.abort()
                    } else {
                        conn.close()
                    }
                    Ok(())
                };
                handle.run(end, || ());
            })
        });
        enders.collect::<Vec<_>>().into_iter().for_each(|ender| ender.join().unwrap());
    }
    peer.join().unwrap();
    running.handle().stop();
    running.join().unwrap();
    let counts: Vec<usize> = counts.try_iter().collect();
    assert_eq!(counts, [1; CONNECTIONS]);
}
