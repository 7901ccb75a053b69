//! Row B, second half: the loop and the process around it. Interruptions, forks, other loops.

use crate::harness::{Harness, describe, errno, is_child, run_until, send_signal};
use crate::process::{Interrupter, await_copy, end_copy, fork, fork_here};
use coracle_loop::demux::{Completion, Interest, Operation, Outcome, SocketKind, Submitted};
use coracle_loop::{Loop, Trigger};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::time::Timespec;
use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Far longer than anything takes; a descriptor that stays silent for that long will for ever.
const SILENCE: Duration = Duration::from_secs(10);

// --- B8: interruptions ---------------------------------------------------------------------------------

pub(crate) fn b8_interrupted_calls_change_nothing(h: &Harness) {
    h.succeed_in_child(|| {
        let signal = Signal::WINCH.as_raw();
        let heard = Rc::new(Cell::new(0));
        let count = Rc::clone(&heard);
        h.lp.on_signal(signal, move |_| count.set(count.get() + 1)).unwrap();
        let start = Instant::now();
        let ticks = Rc::new(Cell::new(0));
        let tick = Rc::clone(&ticks);
        let timer = h.lp.every(3 * MS, move |_| {
            tick.set(tick.get() + 1);
            assert!(start.elapsed() >= tick.get() * 3 * MS, "tick {} is early", tick.get());
        });
        let interrupter = Interrupter::start(signal, MS / 5);
        let (client, server) = h.connection();
        let mut round = 0u32;
        while ticks.get() < 60 {
            h.send(client, &round.to_ne_bytes());
            assert_eq!(h.receive(server, 4), round.to_ne_bytes());
            h.run_for(MS);
            round += 1;
        }
        timer.cancel();
        assert!(interrupter.end() > 0);
        h.run_until(&heard, move |heard| heard.get() > 0);
    });
}

pub(crate) fn b8_stopped_and_continued_process_goes_on(h: &Harness) {
    if is_child() {
        println!("\nready");
        let start = Instant::now();
        let ticks = Rc::new(Cell::new(0u32));
        let count = Rc::clone(&ticks);
        h.lp.every(5 * MS, move |_| count.set(count.get() + 1));
        h.lp.stop_after(400 * MS);
        h.lp.run().unwrap(); // seed 000 returned here as soon as it was continued
        assert!(start.elapsed() >= 400 * MS, "something else has stopped the loop");
        // Those that were missed are not made up for.
        let most = start.elapsed().as_millis() as u32 / 5 + 1;
        assert!(ticks.get() > 0 && ticks.get() <= most, "{} ticks", ticks.get());
        return;
    }
    let mut child = h.child(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    for _ in 0..5 {
        send_signal(child.id(), Signal::STOP.as_raw());
        thread::sleep(20 * MS);
        send_signal(child.id(), Signal::CONT.as_raw());
        thread::sleep(20 * MS);
    }
    for line in lines {
        line.unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
}

// --- B9: forks -----------------------------------------------------------------------------------------

/// What a callback has tried to send before another forks leaves once, though the copy ends the turn, too.
pub(crate) fn b9_copy_sends_nothing_of_what_is_carried(h: &Harness) {
    h.succeed_in_child(|| {
        let lp = h.builder().build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = lp.adopt(listener.accept().unwrap().0).unwrap();
        let copy = Rc::new(Cell::new(None));
        let told = Rc::clone(&copy);
        lp.operate(Operation::Receive { socket, space: vec![0; 1].into() }, move |lp, _| {
            let sent = lp.try_send(socket, b"once").unwrap();
            assert_eq!(sent, 4);
            told.set(Some(fork_here()));
        });
        client.write_all(b"!").unwrap();
        while copy.get().is_none() {
            if let Err(error) = lp.run_once() {
                assert_eq!(error.raw_os_error(), Some(Errno::OWNERDEAD.raw_os_error()));
            }
        }
        let Some(Some(pid)) = copy.get() else {
            let _ = lp.run_ready(); // whatever is left of the turn, and the next
            end_copy();
        };
        await_copy(pid);
        lp.operate(Operation::Shutdown { socket, how: Shutdown::Write }, |lp, _| lp.stop());
        lp.run().unwrap();
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        assert_eq!(received, b"once");
    });
}

pub(crate) fn b9_loop_of_a_forked_parent_is_refused_and_left_alone(h: &Harness) {
    h.succeed_in_child(|| {
        let lp = h.builder().build().unwrap();
        let (a, b) = lp.socket_pair().unwrap();
        let received = Rc::new(Cell::new(0));
        let count = Rc::clone(&received);
        let receive = Operation::Receive { socket: b, space: vec![0; 1].into() };
        lp.operate(receive, move |_, done| {
            assert!(matches!(done.result, Ok(Outcome::Count(1))));
            count.set(count.get() + 1);
        });
        let fired = Rc::new(Cell::new(false));
        let set = Rc::clone(&fired);
        lp.after(5 * MS, move |_| set.set(true));
        lp.run_ready().unwrap();

        let copy = lp.clone();
        let status = fork(move || {
            const DEAD: i32 = Errno::OWNERDEAD.raw_os_error();
            let lp = copy;
            assert_eq!(errno(lp.run()), DEAD);
            assert_eq!(errno(lp.run_once()), DEAD);
            assert_eq!(errno(lp.run_ready()), DEAD);
            assert_eq!(errno(lp.run_until_idle()), DEAD);
            assert_eq!(errno(lp.socket(SocketKind::Tcp4)), DEAD, "socket");
            assert_eq!(errno(lp.socket_pair()), DEAD, "socket_pair");
            assert_eq!(errno(lp.local_address(a)), DEAD, "local_address");
            assert_eq!(errno(lp.detach(a)), DEAD, "detach");
            let (pipe, _writer) = std::io::pipe().unwrap();
            let pipe_too = pipe.try_clone().unwrap();
            assert_eq!(errno(lp.adopt(pipe)), DEAD, "adopt");
            let watch = lp.watch(pipe_too, Interest::READ, Trigger::Level, |_, _| ());
            assert_eq!(watch.err().and_then(|error| error.raw_os_error()), Some(DEAD), "watch");
            let nobody = Rc::new(|_: &Loop, _: u32, _: Completion| ());
            for operation in [
                Operation::Send { socket: a, payload: vec![1].into() },
                Operation::ReceiveLent { socket: a },
                Operation::Close { handle: a },
                Operation::Signal { signal: Signal::USR1.as_raw() },
            ] {
                let name = operation.name();
                match lp.submit(operation, &nobody, 0) {
                    Submitted::Done(done) => assert_eq!(errno(done.result), DEAD, "{name}"),
                    Submitted::Pending(_) => panic!("{name} was taken"),
                }
            }
            lp.handle().stop();
            drop(lp);
            true
        });
        assert_eq!(status, 0, "the copy failed");

        // And here everything goes on: what was in flight, the timer, the wake-up.
        lp.operate(Operation::Send { socket: a, payload: vec![1].into() }, |_, done| {
            assert!(done.result.is_ok());
        });
        let both = (Rc::clone(&received), Rc::clone(&fired));
        run_until(&lp, &both, |(received, fired)| received.get() > 0 && fired.get());
        let handle = lp.handle();
        let thread = thread::spawn(move || {
            thread::sleep(5 * MS);
            handle.post(Loop::stop).unwrap();
        });
        lp.run().unwrap();
        thread.join().unwrap();
        assert_eq!(received.get(), 1);
    });
}

// --- B10: driven by another loop -----------------------------------------------------------------------

/// Drives `lp` from outside, the way another event loop would: sleeps on its descriptor, for as long as it
/// would itself, then has it do what there is to do.
fn drive(lp: &Loop, until: impl Fn() -> bool) {
    while !until() {
        let timeout = lp.timeout();
        let limit = timeout.unwrap_or(SILENCE).min(SILENCE);
        let timespec = Timespec::try_from(limit).unwrap();
        let start = Instant::now();
        lp.descriptor(|descriptor| {
            let descriptor = descriptor.expect("this backend has a descriptor");
            let mut list = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
            rustix::event::poll(&mut list, Some(&timespec)).unwrap()
        });
        // By the clock: one that says at the end of the time-out that it is ready has not woken anybody.
        assert!(start.elapsed() < SILENCE, "the descriptor was silent:\n{}", lp.dump());
        lp.run_ready().unwrap();
    }
}

pub(crate) fn b10_another_loop_can_drive_this_one(h: &Harness) {
    let listener = h.lp.listen(&"127.0.0.1:0".parse().unwrap(), 16).unwrap();
    let address = h.lp.local_address(listener).unwrap().ip().unwrap();
    let closed = Rc::new(Cell::new(0));
    let count = Rc::clone(&closed);
    let accept = move |lp: &Loop, _: u32, completion: Completion| {
        let Ok(Outcome::Accepted(socket)) = completion.result else { return };
        let count = Rc::clone(&count);
        let echo = move |lp: &Loop, _: u32, completion: Completion| match completion.result {
            Ok(Outcome::Lent(bytes)) if !bytes.is_empty() => {
                let payload = bytes.to_vec().into();
                lp.operate(Operation::Send { socket, payload }, |_, _| ());
            }
            _ => {
                lp.operate(Operation::Close { handle: socket }, |_, _| ());
                count.set(count.get() + 1);
            }
        };
        let _ = lp.submit(Operation::ReceiveLent { socket }, &Rc::new(echo), 0);
    };
    let submitted = h.lp.submit(Operation::Accept { listener }, &Rc::new(accept), 0);
    assert!(matches!(submitted, Submitted::Pending(_)));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                for round in 0..50u32 {
                    stream.write_all(&round.to_ne_bytes()).unwrap();
                    let mut echo = [0; 4];
                    stream.read_exact(&mut echo).unwrap();
                    assert_eq!(echo, round.to_ne_bytes());
                }
            })
        })
        .collect();
    drive(&h.lp, || closed.get() == 3);
    for client in clients {
        client.join().unwrap();
    }
}

pub(crate) fn b10_post_from_another_thread_is_seen_by_who_drives_it(h: &Harness) {
    // More than once: an eventfd that io_uring is to signal from inside the write to another eventfd (and a
    // wake-up is such a write) is signalled late, and only the first time: Linux 6.18 defers the signal past
    // an RCU grace period and never clears the mark that it has. Watching both, by an epoll set of the two,
    // does not depend on that.
    let (send, posted) = std::sync::mpsc::channel();
    let handle = h.lp.handle();
    let thread = thread::spawn(move || {
        for _ in 0..3 {
            thread::sleep(10 * MS);
            let send = send.clone();
            handle.post(move |_| send.send(()).unwrap()).unwrap();
        }
    });
    for _ in 0..3 {
        drive(&h.lp, || posted.try_recv().is_ok());
    }
    thread.join().unwrap();
    let done = Rc::new(Cell::new(false));
    let set = Rc::clone(&done);
    h.lp.offload(|| thread::sleep(10 * MS), move |_, _| set.set(true)).unwrap();
    drive(&h.lp, || done.get());
}

pub(crate) fn b10_what_the_loop_knows_already_is_seen_by_who_drives_it(h: &Harness) {
    // Data and the end of the stream in one event; and an answer, with the end of ours behind it.
    let listener = h.lp.listen(&"127.0.0.1:0".parse().unwrap(), 16).unwrap();
    let address = h.lp.local_address(listener).unwrap().ip().unwrap();
    let ended = Rc::new(Cell::new(false));
    let set = Rc::clone(&ended);
    let accept = move |lp: &Loop, _: u32, completion: Completion| {
        let Ok(Outcome::Accepted(socket)) = completion.result else { return };
        let set = Rc::clone(&set);
        let echo = move |lp: &Loop, _: u32, completion: Completion| match completion.result {
            Ok(Outcome::Lent(bytes)) if !bytes.is_empty() => {
                assert_eq!(lp.try_send(socket, &bytes).unwrap(), bytes.len());
            }
            _ => {
                let set = Rc::clone(&set);
                let shutdown = Operation::Shutdown { socket, how: std::net::Shutdown::Write };
                lp.operate(shutdown, move |_, _| set.set(true));
            }
        };
        let _ = lp.submit(Operation::ReceiveLent { socket }, &Rc::new(echo), 0);
    };
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"ahoy").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = h.lp.submit(Operation::Accept { listener }, &Rc::new(accept), 0);
    drive(&h.lp, || ended.get());
    let mut echo = String::new();
    stream.read_to_string(&mut echo).unwrap();
    assert_eq!(echo, "ahoy");
    h.lp.handle().wake();
    assert_eq!(h.lp.timeout(), Some(Duration::ZERO), "somebody wants a turn");
}

pub(crate) fn b10_timer_is_seen_in_the_timeout(h: &Harness) {
    assert_eq!(h.lp.timeout(), None, "nothing is to come");
    let start = Instant::now();
    let fired = Rc::new(Cell::new(false));
    let set = Rc::clone(&fired);
    h.lp.after(15 * MS, move |_| set.set(true));
    assert!(h.lp.timeout().is_some_and(|timeout| timeout <= 15 * MS));
    drive(&h.lp, || fired.get());
    assert!(start.elapsed() >= 15 * MS);
    h.lp.defer(|_| ());
    assert_eq!(h.lp.timeout(), Some(Duration::ZERO), "a job waits");
    h.lp.run_ready().unwrap();
    assert_eq!(h.lp.timeout(), None);
}

pub(crate) fn b10_backend_without_a_descriptor_says_so(h: &Harness) {
    assert!(h.lp.descriptor(|descriptor| descriptor.is_none()));
    // It can still be driven, by who knows how long it would sleep.
    h.lp.after(2 * MS, Loop::stop);
    assert!(h.lp.timeout().is_some_and(|timeout| timeout <= 2 * MS));
    h.lp.run().unwrap();
}
