//! What a supervisor promises, one by one.

use crate::subject::{
    Client, PATIENCE, Plan, Subject, Test, descriptors, is_gone, read_pid, send_signal,
};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// A supervisor whose workers all serve.
fn serving(test: &Test, plan: Plan<'_>) -> Subject {
    let subject = test.start(plan);
    subject.await_said("serving", 1);
    assert_eq!(subject.workers().len(), plan.processes);
    subject
}

pub(crate) fn g3_connections_are_served_by_all_workers(test: &Test) {
    let mut subject = serving(test, Plan::USUAL);
    let workers = subject.workers();
    let mut clients = Vec::new();
    let mut seen = BTreeSet::new();
    while seen != workers {
        assert!(clients.len() < 5000, "of {workers:?} only {seen:?} serve");
        // Several at once: a single one may always find the same worker awake first.
        let burst: Vec<TcpStream> =
            (0..10).map(|_| TcpStream::connect(&subject.address).unwrap()).collect();
        for stream in burst {
            let client = Client::new(stream).unwrap();
            assert!(workers.contains(&client.server), "served by a stranger");
            seen.insert(client.server);
            clients.push(client);
        }
    }
    drop(clients);
    assert!(subject.end().success());
}

pub(crate) fn g3_full_worker_leaves_connections_to_the_others(test: &Test) {
    let subject = serving(test, Plan { room: 2, ..Plan::USUAL });
    let mut clients: Vec<Client> = (0..6).map(|_| subject.connect()).collect();
    for worker in subject.workers() {
        let served = clients.iter().filter(|client| client.server == worker).count();
        assert_eq!(served, 2, "by worker {worker}");
    }
    let mut waiting = TcpStream::connect(&subject.address).expect("the backlog has room");
    waiting.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let error = waiting.read(&mut [0]).expect_err("nobody has room");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    let gone = clients.pop().unwrap();
    let worker = gone.server;
    drop(gone);
    assert_eq!(Client::new(waiting).expect("there is room").server, worker);
}

pub(crate) fn loops_of_a_worker_share_its_sockets(test: &Test) {
    let subject = serving(test, Plan { processes: 1, loops: 3, ..Plan::USUAL });
    let worker = *subject.workers().first().unwrap();
    for _ in 0..50 {
        let mut client = subject.connect();
        assert_eq!(client.server, worker);
        client.expect_echo("hello");
    }
}

pub(crate) fn g3_killed_worker_is_replaced(test: &Test) {
    let mut subject = serving(test, Plan::USUAL);
    let before = subject.workers();
    let mut client = subject.connect();
    let victim = *before.iter().find(|&&pid| pid != client.server).unwrap();
    send_signal(victim, Signal::KILL);
    let after = subject.await_workers(before.len(), &BTreeSet::from([victim]));
    client.expect_echo("as if nothing had happened");
    subject.await_logged(&format!("(process {victim}) ended: signal: 9 (SIGKILL)"));
    assert_eq!(after.intersection(&before).count(), before.len() - 1, "the others stay");
    // The others are stopped: then it is the new one that serves.
    let new = *after.difference(&before).next().unwrap();
    for &other in after.intersection(&before) {
        send_signal(other, Signal::STOP);
    }
    drop(client);
    subject.eventually("the new one serves", || {
        let stream = TcpStream::connect(&subject.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        read_pid(stream).is_ok_and(|pid| pid == new)
    });
    for &other in after.intersection(&before) {
        send_signal(other, Signal::CONT);
    }
    assert!(subject.end().success());
}

pub(crate) fn g3_worker_that_hangs_leaves_connections_to_the_others(test: &Test) {
    let subject = serving(test, Plan::USUAL);
    let mut client = subject.connect();
    client.stream.write_all(b"hang").unwrap();
    subject.await_said("hanging", 1);
    let others: Vec<Client> = (0..20).map(|_| subject.connect()).collect();
    let strangers = others.iter().all(|other| other.server != client.server);
    send_signal(client.server, Signal::KILL); // it would outlive the supervisor
    assert!(strangers);
}

pub(crate) fn g3_connection_that_waits_survives_the_only_worker(test: &Test) {
    let subject = serving(test, Plan { processes: 1, ..Plan::USUAL });
    let worker = *subject.workers().first().unwrap();
    let mut client = subject.connect();
    client.stream.write_all(b"hang").unwrap();
    subject.await_said("hanging", 1); // whoever connects now has to wait
    let waiting = TcpStream::connect(&subject.address).unwrap();
    send_signal(worker, Signal::KILL);
    let client = Client::new(waiting).expect("it was not lost with the worker");
    assert_ne!(client.server, worker);
}

pub(crate) fn g3_worker_that_dies_at_its_start_is_started_after_growing_pauses(test: &Test) {
    let mut subject = test.start(Plan { processes: 2, doomed: Some(1), ..Plan::USUAL });
    let births = |subject: &Subject| -> Vec<Duration> {
        let births = subject.said("born 1 ");
        let seconds = births.iter().map(|at| at.strip_suffix('s').unwrap().parse().unwrap());
        seconds.map(Duration::from_secs_f64).collect()
    };
    subject.eventually("five attempts", || births(&subject).len() >= 5);
    subject.connect().expect_echo("the other one serves");
    assert!(subject.end().success());
    let births = births(&subject);
    let lines = subject.lines();
    let told: Vec<&str> = (lines.iter())
        .filter(|line| line.contains("worker 1 (process"))
        .map(|line| line.split_once("ended: ").expect("how it ended").1)
        .collect();
    for (index, pause) in ["100ms", "200ms", "400ms", "800ms"].iter().enumerate() {
        assert_eq!(told[index], format!("exit status: 7; the next is started in {pause}"));
        let gap = births[index + 1] - births[index];
        let pause = Duration::from_millis(100 << index);
        assert!(gap >= pause, "{gap:?} after death {index}, instead of {pause:?}");
    }
    assert!(told.len() <= births.len(), "more is told than happens: {told:?}");
    assert!(subject.said("serving").is_empty(), "one of them never did");
}

pub(crate) fn request_to_end_ends_all_gracefully(test: &Test) {
    for signal in [Signal::TERM, Signal::INT] {
        let mut subject = serving(test, Plan::USUAL);
        let workers = subject.workers();
        let mut clients: Vec<Client> = (0..10).map(|_| subject.connect()).collect();
        subject.signal(signal);
        for client in &mut clients {
            let mut rest = Vec::new();
            client.stream.read_to_end(&mut rest).expect("closed, not reset");
        }
        drop(clients);
        // The time to end is longer than the patience of this test: nobody was killed.
        assert_eq!(subject.wait().code(), Some(0));
        assert!(workers.iter().all(|&pid| is_gone(pid)));
        TcpStream::connect(&subject.address).expect_err("nobody listens");
    }
}

pub(crate) fn worker_that_does_not_end_is_killed(test: &Test) {
    let plan = Plan { drain: Duration::from_millis(10), ..Plan::USUAL };
    let mut subject = serving(test, plan);
    let workers = subject.workers();
    let mut client = subject.connect();
    client.stream.write_all(b"hang").unwrap();
    subject.await_said("hanging", 1);
    assert_eq!(subject.end().code(), Some(0));
    assert!(workers.iter().all(|&pid| is_gone(pid)));
    let pid = client.server;
    let lines = subject.lines();
    // Not only "killed": on one processor, test programs say the name of a test before they run it.
    let told = lines.iter().filter(|line| line.ends_with(": killed")).collect::<Vec<_>>();
    assert!(told.len() == 1 && told[0].contains(&format!("(process {pid})")), "{told:?}");
}

pub(crate) fn second_request_to_end_ends_all_at_once(test: &Test) {
    let mut subject = serving(test, Plan::USUAL);
    let workers = subject.workers();
    let mut client = subject.connect();
    client.stream.write_all(b"hang").unwrap();
    subject.await_said("hanging", 1);
    subject.signal(Signal::TERM);
    subject.await_logged("asking 3 workers to end");
    subject.eventually("the others are gone", || subject.workers().len() == 1);
    subject.signal(Signal::TERM);
    // Before the time to end is over: that is longer than the patience of this test.
    assert_eq!(subject.wait().code(), Some(128 + Signal::TERM.as_raw()));
    assert!(workers.iter().all(|&pid| is_gone(pid)));
}

pub(crate) fn hang_up_replaces_all_without_losing_a_connection(test: &Test) {
    let mut subject = serving(test, Plan::USUAL);
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    let stream = TcpStream::connect(&subject.address).expect("not refused");
                    Client::new(stream).expect("served, not reset");
                    served.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(1)); // light
                }
            });
        }
        let mut workers = subject.workers();
        for _ in 0..5 {
            let target = served.load(Ordering::SeqCst) + 20;
            subject.eventually("a load", || served.load(Ordering::SeqCst) >= target);
            subject.signal(Signal::HUP);
            workers = subject.await_replacement(&workers);
        }
        over.store(true, Ordering::SeqCst);
    });
    assert!(subject.end().success());
    let warnings: Vec<_> =
        subject.lines().into_iter().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings, Vec::<String>::new());
}

pub(crate) fn successor_that_cannot_serve_replaces_nobody(test: &Test) {
    let obstacle = test.path("obstacle");
    let subject = serving(test, Plan { obstacle: Some(&obstacle), ..Plan::USUAL });
    let workers = subject.workers();
    std::fs::write(&obstacle, "").unwrap();
    subject.signal(Signal::HUP);
    subject.await_logged("exit status: 7; the next is started in 200ms"); // the second attempt
    assert!(workers.is_subset(&subject.workers()), "those that can serve do");
    let born = |post: usize| subject.said(&format!("born {post} ")).len();
    assert_eq!((born(1), born(2)), (1, 1), "one after the other: nobody but the first is tried");
    assert!(workers.contains(&subject.connect().server));
    std::fs::remove_file(&obstacle).unwrap();
    subject.await_replacement(&workers);
    subject.connect().expect_echo("hello");
}

pub(crate) fn successor_that_never_serves_is_killed_and_tried_again(test: &Test) {
    let sandbank = test.path("sandbank");
    // Long enough for those that do begin to serve, however busy the machine.
    let start_timeout = Duration::from_secs(3);
    let plan = Plan { processes: 1, sandbank: Some(&sandbank), start_timeout, ..Plan::USUAL };
    let subject = serving(test, plan);
    let workers = subject.workers();
    std::fs::write(&sandbank, "").unwrap();
    subject.signal(Signal::HUP);
    subject.await_logged("does not serve after 3s: killed");
    std::fs::remove_file(&sandbank).unwrap();
    subject.await_logged("ended: signal: 9 (SIGKILL); the next is started in 100ms");
    subject.await_replacement(&workers);
    subject.connect().expect_echo("hello");
}

pub(crate) fn time_to_end_may_be_without_end(test: &Test) {
    let mut subject = serving(test, Plan { drain: Duration::MAX, ..Plan::USUAL });
    assert_eq!(subject.end().code(), Some(0));
}

pub(crate) fn nobody_can_connect_while_it_ends(test: &Test) {
    let mut subject = serving(test, Plan { linger: PATIENCE, ..Plan::USUAL });
    let clients: Vec<Client> = (0..3).map(|_| subject.connect()).collect();
    subject.signal(Signal::TERM);
    // It waits for those who are there: nobody else is kept waiting.
    subject.eventually("refused", || {
        // Those that came before all sockets were closed are reset: one may have to be tried again.
        TcpStream::connect(&subject.address).is_err()
    });
    assert!(!is_gone(subject.pid()), "it waits for its connections");
    drop(clients);
    assert_eq!(subject.wait().code(), Some(0));
}

pub(crate) fn killed_supervisor_takes_its_workers_along(test: &Test) {
    let mut subject = serving(test, Plan::USUAL);
    let workers = subject.workers();
    let mut client = subject.connect();
    subject.signal(Signal::KILL);
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).expect("even this is graceful");
    drop(client);
    assert!(!subject.wait().success());
    subject.eventually("the workers are gone", || workers.iter().all(|&pid| is_gone(pid)));
    // Nobody listens there, unless the kernel has given the port to somebody else by now.
    let answer = TcpStream::connect(&subject.address).and_then(Client::new);
    assert!(answer.is_err() || !workers.contains(&answer.unwrap().server));
}

pub(crate) fn user_signals_are_passed_on(test: &Test) {
    let subject = serving(test, Plan::USUAL);
    subject.signal(Signal::USR1);
    let heard = subject.await_said("heard ", 3);
    let heard: BTreeSet<u32> = heard.iter().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(heard, subject.workers());
    // Nobody has asked for this one: it ends a process that does not, as it would without a supervisor.
    let workers = subject.workers();
    subject.signal(Signal::USR2);
    subject.await_replacement(&workers);
}

pub(crate) fn socket_that_nobody_asks_for_is_closed_with_a_warning(test: &Test) {
    let unwanted = format!("unix:@{}", test.path("unwanted").display());
    let subject = serving(test, Plan { processes: 1, unwanted: Some(&unwanted), ..Plan::USUAL });
    let warning = "which it inherited: closed";
    subject.await_logged(warning);
    let lines = subject.lines();
    let told: Vec<&String> = lines.iter().filter(|line| line.contains(warning)).collect();
    assert!(told.len() == 1 && told[0].contains("listens on unix:@"), "{told:?}");
    subject.connect().expect_echo("hello");
}

pub(crate) fn file_of_a_socket_is_removed_by_the_supervisor_only(test: &Test) {
    let file = test.path("socket");
    let listen = format!("unix:{}", file.display());
    let mut subject = serving(test, Plan { listen: &listen, ..Plan::USUAL });
    let file = PathBuf::from(subject.address.strip_prefix("unix:").expect("a path"));
    let ask = || {
        let stream = UnixStream::connect(&file).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        read_pid(stream).expect("it serves")
    };
    let workers = subject.workers();
    assert!(workers.contains(&ask()));
    subject.signal(Signal::HUP);
    let workers = subject.await_replacement(&workers);
    assert!(workers.contains(&ask()));
    assert!(subject.end().success());
    assert!(!file.exists(), "it is left behind");
}

pub(crate) fn descriptors_are_given_back(test: &Test) {
    let subject = serving(test, Plan::USUAL);
    let count = descriptors(subject.pid());
    let of_workers = |subject: &Subject| -> BTreeSet<usize> {
        subject.workers().iter().map(|&pid| descriptors(pid)).collect()
    };
    subject.eventually("all workers have as many", || of_workers(&subject).len() == 1);
    let of_worker = of_workers(&subject);
    for _ in 0..3 {
        let workers = subject.workers();
        subject.signal(Signal::HUP);
        let workers = subject.await_replacement(&workers);
        let victim = *workers.first().unwrap();
        send_signal(victim, Signal::KILL);
        subject.await_workers(workers.len(), &BTreeSet::from([victim]));
    }
    subject.eventually("as few as before", || descriptors(subject.pid()) == count);
    subject.eventually("and in the workers", || of_workers(&subject) == of_worker);
}

pub(crate) fn program_started_by_a_worker_is_no_worker(test: &Test) {
    let subject = serving(test, Plan { processes: 1, ..Plan::USUAL });
    let mut client = subject.connect();
    client.stream.write_all(b"start a program").unwrap();
    assert_eq!(subject.await_said("grandchild ", 1), ["None"]);
    client.expect_echo("hello");
}

pub(crate) fn worker_has_no_workers(test: &Test) {
    let mut subject = test.start(Plan { processes: 1, nested: true, ..Plan::USUAL });
    let failed = subject.await_said("failed: ", 1);
    assert!(failed[0].contains("a worker has no workers of its own"), "{failed:?}");
    assert!(subject.end().success());
}
