//! Rows B4 and B5 under pressure: many threads post to one loop, and what that costs in system calls.
//!
//! The protocol itself is checked in every interleaving by `mailbox_model.rs`; here it runs for real, on
//! every backend. The cost is counted by strace: the case starts itself again in a process of its own.

mod strace;

use coracle_loop::demux::Backend;
use coracle_loop::demux::sim::Kernel;
use coracle_loop::{Loop, LoopHandle, PostError};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Far longer than any answer takes: who waits that long has lost a wake-up.
const LOST: Duration = Duration::from_secs(300);

/// Set in a process that a case has started for itself.
const CHILD: &str = "CORACLE_WAKEUP_CHILD";

fn build(backend: Backend) -> Loop {
    let lp = match backend {
        Backend::Sim => Loop::builder().demux(Kernel::new(1).demux()).build(),
        backend => Loop::builder().backend(backend).build(),
    };
    let lp = lp.expect("the backend opens");
    assert_eq!(lp.backend(), backend, "no fallback: this kernel must have them all");
    lp
}

/// A loop on a thread of its own, until it is stopped.
fn start(backend: Backend) -> (LoopHandle, thread::JoinHandle<()>) {
    let (send, handle) = channel();
    let thread = thread::spawn(move || {
        let lp = build(backend);
        send.send(lp.handle()).unwrap();
        lp.run().unwrap();
    });
    (handle.recv().expect("the loop has started"), thread)
}

// --- Nothing is lost -----------------------------------------------------------------------------------

fn b5_posts_of_many_threads_all_run_in_the_order_of_each(backend: Backend) {
    const THREADS: usize = 8;
    const POSTS: usize = 2000;
    let (handle, thread) = start(backend);
    let seen: Arc<Mutex<Vec<Vec<usize>>>> = Arc::new(Mutex::new(vec![Vec::new(); THREADS]));
    let posters: Vec<_> = (0..THREADS)
        .map(|poster| {
            let (handle, seen) = (handle.clone(), Arc::clone(&seen));
            thread::spawn(move || {
                for number in 0..POSTS {
                    let seen = Arc::clone(&seen);
                    handle.post(move |_| seen.lock().unwrap()[poster].push(number)).unwrap();
                    if number % 100 == 0 {
                        thread::sleep(MS / 10); // let the loop fall asleep now and then
                    }
                }
            })
        })
        .collect();
    for poster in posters {
        poster.join().unwrap();
    }
    handle.stop(); // what was posted before is run first
    thread.join().unwrap();
    for seen in seen.lock().unwrap().iter() {
        assert!(seen.iter().copied().eq(0..POSTS), "out of order or lost");
    }
}

fn b4_no_wake_up_is_lost(backend: Backend) {
    // Each post finds the loop about to sleep, asleep, or just awake; a lost one would never be answered.
    let (handle, thread) = start(backend);
    let (send, answers) = channel();
    let start = Instant::now();
    let mut rounds = 0u64;
    while start.elapsed() < 500 * MS {
        for spins in [0, 10, 100, 1000] {
            let send = send.clone();
            handle.post(move |_| send.send(()).unwrap()).unwrap();
            answers.recv_timeout(LOST).expect("a wake-up was lost");
            for _ in 0..spins {
                std::hint::spin_loop();
            }
            rounds += 1;
        }
    }
    handle.stop();
    thread.join().unwrap();
    println!("{rounds} rounds");
}

fn b4_two_loops_wake_each_other(backend: Backend) {
    /// Carries a ball back and forth.
    fn throw(to: &LoopHandle, back: LoopHandle, left: u32, done: Sender<()>) {
        let catch = move |lp: &Loop| match left {
            0 => done.send(()).unwrap(),
            _ => throw(&back, lp.handle(), left - 1, done),
        };
        to.post(catch).unwrap();
    }
    let ((a, first), (b, second)) = (start(backend), start(backend));
    let (send, done) = channel();
    for _ in 0..4 {
        throw(&a, b.clone(), 3000, send.clone());
    }
    for _ in 0..4 {
        done.recv_timeout(LOST).expect("a wake-up was lost");
    }
    a.stop();
    b.stop();
    first.join().unwrap();
    second.join().unwrap();
}

fn b5_limit_holds_against_many_threads(backend: Backend) {
    const LIMIT: usize = 100;
    const THREADS: usize = 4;
    const POSTS: usize = 500;
    let lp = match backend {
        Backend::Sim => Loop::builder().demux(Kernel::new(1).demux()),
        backend => Loop::builder().backend(backend),
    };
    let lp = lp.limit_posted_jobs(LIMIT).build().unwrap();
    // Nobody runs it yet: exactly the limit is taken.
    let taken = Arc::new(AtomicU32::new(0));
    let ran = Arc::new(AtomicU32::new(0));
    let post_all = |again: bool| -> Vec<_> {
        (0..THREADS)
            .map(|_| {
                let (handle, taken, ran) = (lp.handle(), Arc::clone(&taken), Arc::clone(&ran));
                thread::spawn(move || {
                    for _ in 0..POSTS {
                        loop {
                            let ran = Arc::clone(&ran);
                            let job = move |_: &Loop| {
                                ran.fetch_add(1, Ordering::SeqCst);
                            };
                            match handle.post(job) {
                                Ok(()) => {
                                    taken.fetch_add(1, Ordering::SeqCst);
                                    break;
                                }
                                Err(PostError::Full) if again => thread::yield_now(),
                                Err(PostError::Full) => break,
                                Err(other) => panic!("{other}"),
                            }
                        }
                    }
                })
            })
            .collect()
    };
    for poster in post_all(false) {
        poster.join().unwrap();
    }
    assert_eq!(taken.load(Ordering::SeqCst) as usize, LIMIT);
    assert_eq!(lp.handle().posted_jobs(), LIMIT);
    // Now it runs, and who insists gets everything through.
    let posters = post_all(true);
    let stopper = lp.handle();
    let waiter = thread::spawn(move || {
        for poster in posters {
            poster.join().unwrap();
        }
        stopper.stop();
    });
    lp.run().unwrap();
    waiter.join().unwrap();
    let all = (LIMIT + THREADS * POSTS) as u32;
    assert_eq!(taken.load(Ordering::SeqCst), all);
    assert_eq!(ran.load(Ordering::SeqCst), all);
}

fn b5_post_to_a_loop_that_goes_is_refused_or_dropped(backend: Backend) {
    // The loop ends while others post: each job either runs or is dropped, and a refusal says why.
    let (handle, thread) = start(backend);
    let alive = Arc::new(());
    let posters: Vec<_> = (0..4)
        .map(|_| {
            let (handle, alive) = (handle.clone(), Arc::clone(&alive));
            thread::spawn(move || {
                loop {
                    let alive = Arc::clone(&alive);
                    match handle.post(move |_| drop(alive)) {
                        Ok(()) | Err(PostError::Full) => {}
                        Err(PostError::Gone) => return,
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        })
        .collect();
    thread::sleep(5 * MS);
    handle.stop();
    thread.join().unwrap();
    for poster in posters {
        poster.join().unwrap();
    }
    assert_eq!(Arc::strong_count(&alive), 1, "a job was leaked");
    assert!(!handle.is_alive());
}

// --- What it costs -------------------------------------------------------------------------------------

/// Runs `act` in a process under strace, and gives back the lines of its system calls: `PID call(…) = …`.
fn traced(path: &str, calls: &str, act: impl FnOnce()) -> Option<String> {
    if std::env::var_os(CHILD).is_some() {
        act();
        return None;
    }
    let mut strace = strace::strace()?;
    let list = list_file(path);
    strace.args(["-f", "-qq", "-s", "64", "-e", &format!("trace={calls}"), "-o"]).arg(&list);
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args([path, "--exact", "--nocapture"]).env(CHILD, "1");
    let output = strace::trace(strace, &program).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}", output.status);
    let lines = std::fs::read_to_string(&list).unwrap();
    std::fs::remove_file(&list).unwrap();
    Some(lines)
}

fn list_file(path: &str) -> PathBuf {
    let name = format!("coracle-{}-{}", std::process::id(), path.replace("::", "-"));
    std::env::temp_dir().join(name)
}

/// Wake-ups: eight bytes with the number one, to an eventfd.
fn wake_ups(lines: &str) -> usize {
    let is_wake_up =
        |line: &&str| line.contains(r#""\1\0\0\0\0\0\0\0", 8"#) && line.contains("write(");
    lines.lines().filter(is_wake_up).count()
}

const ROUNDS: usize = 100;

fn b4_burst_of_posts_is_told_together(backend: Backend, path: &str) {
    const WAITS: &str =
        "epoll_wait,epoll_pwait,epoll_pwait2,poll,ppoll,select,pselect6,io_uring_enter";
    let lines = traced(path, &format!("write,{WAITS}"), || {
        let (handle, thread) = start(backend);
        let posters: Vec<_> = (0..4)
            .map(|_| {
                let handle = handle.clone();
                thread::spawn(move || {
                    for number in 0..500 {
                        handle.post(|_| ()).unwrap();
                        if number % 50 == 0 {
                            thread::sleep(MS);
                        }
                    }
                })
            })
            .collect();
        for poster in posters {
            poster.join().unwrap();
        }
        handle.stop();
        thread.join().unwrap();
    });
    let Some(lines) = lines else { return };
    let calls = wake_ups(&lines);
    let is_wait = |line: &&str| {
        WAITS.split(',').any(|name| line.contains(&format!("{name}(")))
            && !line.contains("resumed>")
    };
    let waits = lines.lines().filter(is_wait).count();
    // One for each sleep at most, however many posts end it; and one from before the first.
    assert!(calls >= 1 && calls <= waits + 1, "{calls} wake-ups for {waits} sleeps");
}

fn b4_post_wakes_a_sleeping_loop_with_one_system_call(backend: Backend, path: &str) {
    let lines = traced(path, "write", || {
        let (handle, thread) = start(backend);
        let (send, answers) = channel();
        for _ in 0..ROUNDS {
            thread::sleep(5 * MS);
            let send = send.clone();
            handle.post(move |_| send.send(()).unwrap()).unwrap();
            answers.recv().unwrap();
        }
        handle.stop();
        thread.join().unwrap();
    });
    let Some(lines) = lines else { return };
    let calls = wake_ups(&lines);
    // One to stop it; and on a busy machine it may not have fallen asleep each time.
    assert!(calls > ROUNDS / 10 && calls <= ROUNDS + 1, "{calls} wake-ups for {ROUNDS} posts");
}

fn b4_post_to_a_busy_loop_makes_no_system_call(backend: Backend, path: &str) {
    let lines = traced(path, "write", || {
        let (handle, thread) = start(backend);
        let (begin, begun) = channel();
        let (end, ended): (Sender<()>, Receiver<()>) = channel();
        let busy = move |_: &Loop| {
            begin.send(()).unwrap();
            ended.recv().unwrap();
        };
        handle.post(busy).unwrap();
        begun.recv().unwrap();
        for _ in 0..1000 {
            handle.post(|_| ()).unwrap();
        }
        handle.stop();
        end.send(()).unwrap();
        thread.join().unwrap();
    });
    let Some(lines) = lines else { return };
    let calls = wake_ups(&lines);
    assert!(
        calls <= 1,
        "{calls} wake-ups, where one has woken it and a thousand posts found it awake"
    );
}

fn b4_idle_loop_makes_no_system_call(backend: Backend, path: &str) {
    const BEGIN: &str = "idle begins";
    const END: &str = "idle ends";
    let lines = traced(path, "all", || {
        let lp = build(backend);
        lp.after(300 * MS, |_| ());
        lp.after(600 * MS, Loop::stop);
        let (_a, b) = lp.socket_pair().unwrap(); // and something that never comes
        let nobody = std::rc::Rc::new(|_: &Loop, _: u32, _: coracle_loop::demux::Completion| ());
        let _ = lp.submit(coracle_loop::demux::Operation::ReceiveLent { socket: b }, &nobody, 0);
        lp.run_ready().unwrap();
        rustix::io::write(std::io::stderr(), BEGIN.as_bytes()).unwrap();
        lp.run().unwrap();
        rustix::io::write(std::io::stderr(), END.as_bytes()).unwrap();
    });
    let Some(lines) = lines else { return };
    let begin = lines.lines().position(|line| line.contains(BEGIN)).expect("it began");
    let end = lines.lines().position(|line| line.contains(END)).expect("it ended");
    let thread = lines.lines().nth(begin).and_then(|line| line.split(' ').next()).unwrap();
    let between: Vec<&str> = (lines.lines().skip(begin + 1).take(end - begin - 1))
        .filter(|line| line.starts_with(thread) && !line.contains("resumed>"))
        .collect();
    // One wait for each of the two timers, and perhaps one that was a little short.
    assert!(between.len() <= 4, "{between:#?}");
}

// --- The suite -----------------------------------------------------------------------------------------

macro_rules! suite {
    ($($name:ident $backend:ident)*) => {
        mod wakeup {
            $(mod $name {
                use coracle_loop::demux::Backend::$backend;
                suite!(@cases $backend
                    b5_posts_of_many_threads_all_run_in_the_order_of_each
                    b4_no_wake_up_is_lost
                    b4_two_loops_wake_each_other
                    b5_limit_holds_against_many_threads
                    b5_post_to_a_loop_that_goes_is_refused_or_dropped);
                suite!(@traced $name $backend
                    b4_burst_of_posts_is_told_together
                    b4_post_wakes_a_sleeping_loop_with_one_system_call
                    b4_post_to_a_busy_loop_makes_no_system_call
                    b4_idle_loop_makes_no_system_call);
            })*
            mod sim {
                use coracle_loop::demux::Backend::Sim;
                suite!(@cases Sim
                    b5_posts_of_many_threads_all_run_in_the_order_of_each
                    b4_no_wake_up_is_lost
                    b4_two_loops_wake_each_other
                    b5_limit_holds_against_many_threads
                    b5_post_to_a_loop_that_goes_is_refused_or_dropped);
            }
        }
    };
    (@cases $backend:ident $($case:ident)*) => {
        $(#[test]
        fn $case() {
            crate::$case($backend);
        })*
    };
    (@traced $name:ident $backend:ident $($case:ident)*) => {
        $(#[test]
        fn $case() {
            let path = concat!("wakeup::", stringify!($name), "::", stringify!($case));
            crate::$case($backend, path);
        })*
    };
}

suite! { uring Uring epoll Epoll poll Poll select Select }
