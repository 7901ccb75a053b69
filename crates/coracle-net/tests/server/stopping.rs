//! Servers that reload, drain, stop early, or do not get to start.

use crate::{BACKENDS, Echo, PATIENCE, address, ask, ask_for, connect};
use coracle_loop::Loop;
use coracle_net::{Buffer, Conn, Placement, Protocol, Reason, Server, Settings, attach};
use rustix::process::{Signal, getpid, kill_process};
use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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

/// Does not end when the server does, and says what it is told.
pub(crate) struct Stubborn(pub(crate) Sender<String>);

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

pub(crate) const TOO_LATE: &str = "it did not end in time";

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
    const CASE: &str = "stopping::b3_start_that_fails_half_way_leaves_no_loop_behind";
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
