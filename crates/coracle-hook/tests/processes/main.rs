//! What concerns whole processes: each case runs in one of its own, so that it can fork, hang and be counted.
#![allow(unsafe_code)]

#[path = "../../../coracle-coro/tests/generator/child.rs"]
mod child;

mod borrowing;
mod mixing;
mod piping;
mod telling;

use coracle_coro::seeing::Watchdog;
use coracle_coro::{on_big_stack, run, run_on, spawn, yield_now};
use coracle_hook::{Settings, enable, enable_with, status};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use coracle_loop::demux::sim::Kernel;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Ends those that hang.
const PATIENCE: Duration = Duration::from_secs(60);

fn open(backend: &str) -> io::Result<Loop> {
    match backend {
        "sim" => Loop::builder().demux(Kernel::new(1).demux()).build(),
        name => Loop::builder().backend(name.parse::<Backend>().expect("a backend")).build(),
    }
}

fn switch_on() {
    // SAFETY: these tests are there to see what happens.
    unsafe { enable() };
}

/// Runs `act` in a process of its own, which must end well.
fn alone(test: &str, act: impl FnOnce()) {
    match child::errand() {
        Some(_) => {
            // Nobody waits for it longer than this.
            thread::spawn(|| {
                thread::sleep(PATIENCE);
                let _ = writeln!(io::stderr(), "it hangs");
                std::process::abort();
            });
            act();
        }
        None => {
            let output = child::send(&[], test, "alone");
            assert!(output.status.success(), "{:?}\n{}", output.status, child::said(&output));
        }
    }
}

#[test]
fn s33_enable_records_its_caller() {
    alone("s33_enable_records_its_caller", || {
        assert!(!status().enabled && status().enabled_by.is_none());
        assert_eq!(status().to_string(), "hooks are linked, and not enabled");
        switch_on();
        let first = status().enabled_by.expect("somebody");
        assert!(first.file().ends_with("processes/main.rs"), "{first}");
        // SAFETY: as above.
        unsafe { enable() };
        let now = status();
        assert_eq!(now.enabled_by, Some(first), "the first counts");
        assert!(now.enabled && now.missing.is_empty() && now.symbols > 40);
        assert!(now.to_string().starts_with("hooks are enabled, by "), "{now}");
        assert!(now.to_string().ends_with(", 0 holds"), "{now}");
        // SAFETY: as above.
        unsafe { enable_with(Settings { sleeping: true, sending: true }) };
        switch_on(); // which changes nothing
        let now = status();
        assert!(now.sleeping && now.sending);
        assert!(now.to_string().ends_with(", 0 holds; with `sleeping` and `sending`"), "{now}");
    });
}

/// Without `enable` and outside coroutines, nothing is taken over.
#[test]
fn s33_inert_before_enable_and_outside_coroutines() {
    fn talk() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut near = TcpStream::connect(listener.local_addr()?)?;
        let (mut far, _) = listener.accept()?;
        near.write_all(b"ahoy")?;
        far.read_exact(&mut [0; 4])?;
        thread::sleep(MS);
        ("localhost", 9).to_socket_addrs()?;
        assert!(Command::new("true").status()?.success());
        Ok(())
    }
    alone("s33_inert_before_enable_and_outside_coroutines", || {
        run(|| {
            let ran = Rc::new(Cell::new(false));
            let shared = Rc::clone(&ran);
            let other = spawn(move || shared.set(true));
            talk()?;
            assert!(!ran.get(), "another coroutine ran, and hooks are not enabled");
            other.join().expect("the other");
            Ok(())
        })
        .expect("talk");
        switch_on();
        talk().expect("talk");
        let lp = Loop::new().expect("a loop");
        lp.after(MS, |lp| {
            talk().expect("talk in a callback");
            lp.stop();
        });
        lp.run().expect("a loop runs");
        assert_eq!((status().calls, status().waits), (0, 0));
        run(talk).expect("talk");
        assert!(status().calls > 5 && status().waits > 0, "{}", status());
    });
}

/// C's sleeping functions park only if that was asked for.
#[test]
fn s32_sleeping_functions_of_c() {
    fn sleeps() -> [bool; 3] {
        let parks = |sleep: fn()| {
            let ran = Rc::new(Cell::new(false));
            let shared = Rc::clone(&ran);
            let other = spawn(move || shared.set(true));
            sleep();
            let parked = ran.get();
            other.join().expect("the other");
            parked
        };
        // SAFETY: numbers, and a time.
        unsafe {
            [
                parks(|| assert_eq!(libc::usleep(1000), 0)),
                parks(|| {
                    let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                    assert_eq!(libc::nanosleep(&raw const time, std::ptr::null_mut()), 0);
                }),
                parks(|| assert_eq!(libc::sleep(1), 0)),
            ]
        }
    }
    alone("s32_sleeping_functions_of_c", || {
        switch_on();
        assert_eq!(run(|| Ok(sleeps())).expect("run"), [false; 3]);
        // SAFETY: nothing here sleeps with a lock.
        unsafe { enable_with(Settings { sleeping: true, ..Settings::default() }) };
        assert!(status().sleeping);
        assert_eq!(run(|| Ok(sleeps())).expect("run"), [true; 3]);
    });
}

fn fork_in_a_coroutine(backend: &str) {
    switch_on();
    let lp = open(backend).expect("the backend opens");
    run_on(&lp, || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let accepting = spawn(move || listener.accept().map(|(stream, _)| stream));
        yield_now();
        // SAFETY: the other thread of this process sleeps, and holds no lock that the copy could need.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", io::Error::last_os_error()),
            0 => {
                // The copy: blocking calls are what they are without hooks, and no loop is touched.
                let talk = || -> io::Result<()> {
                    let mut stream = TcpStream::connect(address)?;
                    stream.write_all(b"copy")?;
                    stream.read_exact(&mut [0; 4])?;
                    thread::sleep(MS);
                    Ok(())
                };
                let fine = talk().is_ok() && !status().enabled;
                // SAFETY: it ends the copy, without its destructors.
                unsafe { libc::_exit(if fine { 42 } else { 1 }) }
            }
            copy => {
                let mut stream = accepting.join().expect("it accepts")?;
                let mut word = [0; 4];
                stream.read_exact(&mut word)?;
                assert_eq!(&word, b"copy");
                stream.write_all(b"fine")?;
                let mut status = 0;
                // SAFETY: a place for the answer. It parks.
                assert_eq!(unsafe { libc::waitpid(copy, &raw mut status, 0) }, copy);
                assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42, "{status}");
                thread::sleep(MS); // the loop goes on
                Ok(())
            }
        }
    })
    .expect("the original goes on");
    assert!(status().enabled);
}

#[test]
fn s54_copy_runs_without_hooks_on_uring() {
    alone("s54_copy_runs_without_hooks_on_uring", || fork_in_a_coroutine("uring"));
}

#[test]
fn s54_copy_runs_without_hooks_on_epoll() {
    alone("s54_copy_runs_without_hooks_on_epoll", || fork_in_a_coroutine("epoll"));
}

#[test]
fn s54_copy_runs_without_hooks_on_poll() {
    alone("s54_copy_runs_without_hooks_on_poll", || fork_in_a_coroutine("poll"));
}

#[test]
fn s54_copy_runs_without_hooks_on_select() {
    alone("s54_copy_runs_without_hooks_on_select", || fork_in_a_coroutine("select"));
}

#[test]
fn s54_copy_runs_without_hooks_on_sim() {
    alone("s54_copy_runs_without_hooks_on_sim", || fork_in_a_coroutine("sim"));
}

/// Another thread closes a descriptor, at whatever moment of the beginning of a wait.
#[test]
fn s31_close_while_somebody_sits_down() {
    const ROUNDS: u32 = 5000;
    static TO_CLOSE: AtomicI32 = AtomicI32::new(-1);
    let close = || {
        for round in 0..ROUNDS {
            while TO_CLOSE.load(Ordering::Acquire) < 0 {
                thread::yield_now();
            }
            (0..round % 500).for_each(|_| std::hint::spin_loop());
            // SAFETY: it is ours, and its users are told.
            assert_eq!(unsafe { libc::close(TO_CLOSE.swap(-1, Ordering::AcqRel)) }, 0);
        }
    };
    alone("s31_close_while_somebody_sits_down", || {
        switch_on();
        for backend in ["uring", "epoll", "poll", "select"] {
            let closing = thread::spawn(close);
            let waiting = run_on(&open(backend).expect("a loop"), || {
                for round in 0..ROUNDS {
                    let (near, _far) = std::os::unix::net::UnixStream::pair()?;
                    near.set_read_timeout(Some(Duration::from_secs(5)))?;
                    let fd = std::os::fd::IntoRawFd::into_raw_fd(near);
                    TO_CLOSE.store(fd, Ordering::Release);
                    // SAFETY: space for a byte.
                    let heard = unsafe { libc::recv(fd, [0_u8; 1].as_mut_ptr().cast(), 1, 0) };
                    let error = io::Error::last_os_error().raw_os_error();
                    assert_eq!((heard, error), (-1, Some(libc::EBADF)), "round {round}");
                }
                Ok(())
            });
            waiting.expect("it waits");
            closing.join().expect("it closes");
        }
    });
}

/// A copy may have hooks of its own.
#[test]
fn s54_copy_enables_hooks_of_its_own() {
    alone("s54_copy_enables_hooks_of_its_own", || {
        switch_on();
        // SAFETY: the copy does nothing that another thread of the original could have begun.
        let copy = unsafe { libc::fork() };
        if copy == 0 {
            // SAFETY: it ends what hangs.
            unsafe { libc::alarm(30) };
            assert!(!status().enabled);
            switch_on();
            let told = run(|| {
                let (near, mut far) = std::os::unix::net::UnixStream::pair()?;
                let fd = std::os::fd::IntoRawFd::into_raw_fd(near);
                let read = move || {
                    // SAFETY: space for a byte.
                    let heard = unsafe { libc::read(fd, [0_u8; 1].as_mut_ptr().cast(), 1) };
                    (heard, io::Error::last_os_error().raw_os_error())
                };
                let hearing = spawn(move || on_big_stack(1 << 20, read));
                yield_now();
                far.write_all(b"x")?;
                let heard = hearing.join().expect("it waits")?.0;
                let waiting = spawn(read);
                yield_now();
                assert!(!waiting.is_finished());
                // SAFETY: it is ours, and its users are told.
                unsafe { libc::close(fd) };
                let told = waiting.join().expect("it waits");
                Ok((heard, told) == (1, (-1, Some(libc::EBADF))))
            });
            // SAFETY: what the original has is the original's.
            unsafe { libc::_exit(i32::from(!told.is_ok_and(|told| told))) };
        }
        let mut ended = 0;
        // SAFETY: a child of ours, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(copy, &raw mut ended, 0) }, copy);
        assert_eq!(ended, 0, "how the copy has ended");
    });
}

/// To look for all of it again and again is done less and less often.
#[test]
fn s32_looking_for_all_of_it_makes_pauses() {
    alone("s32_looking_for_all_of_it_makes_pauses", || {
        switch_on();
        run(|| {
            let (near, mut far) = std::os::unix::net::UnixStream::pair()?;
            far.write_all(b"ab")?;
            let looking = spawn(move || {
                let (fd, mut space) = (std::os::fd::AsRawFd::as_raw_fd(&near), [0_u8; 4]);
                let flags = libc::MSG_PEEK | libc::MSG_WAITALL;
                // SAFETY: space for four bytes.
                unsafe { libc::recv(fd, space.as_mut_ptr().cast(), 4, flags) }
            });
            yield_now();
            let before = status().waits;
            coracle_coro::sleep(500 * MS)?;
            let waits = status().waits - before;
            assert!(waits < 100, "{waits} in half a second");
            far.write_all(b"cd")?;
            assert_eq!(looking.join().expect("it looks"), 4);
            Ok(())
        })
        .expect("run");
    });
}

/// A program that is started anew has its own: std's `Command` with `pre_exec` forks, and calls `recv` in between.
#[test]
fn s54_started_programs_begin_anew() {
    use std::os::unix::process::CommandExt;
    alone("s54_started_programs_begin_anew", || {
        switch_on();
        run(|| {
            let mut command = Command::new("cat");
            // SAFETY: it does nothing.
            unsafe { command.pre_exec(|| Ok(())) };
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let input = child.stdin.take();
            let other = spawn(move || drop(input));
            assert!(child.wait_with_output()?.status.success());
            other.join().expect("the other");
            let missing = Command::new("/no/such/program").spawn();
            assert_eq!(missing.map(|_| ()).unwrap_err().raw_os_error(), Some(libc::ENOENT));
            Ok(())
        })
        .expect("run");
    });
}

/// Standard output is a pipe that is read slowly: nobody is parked in it, so that nobody finds std's lock taken.
#[test]
fn s32_println_into_a_slow_pipe() {
    const COUNT: usize = 50;
    const LEN: usize = 10_000;
    if child::errand().is_some() {
        switch_on();
        run(|| {
            let line = "x".repeat(LEN);
            let printing = (0..COUNT).map(|me| {
                let line = line.clone();
                spawn(move || {
                    println!("<{me}>{line}");
                    eprintln!("<{me}>");
                    thread::sleep(MS);
                    println!("<{me}>{line}");
                })
            });
            printing.collect::<Vec<_>>().into_iter().for_each(|one| one.join().expect("it prints"));
            Ok(())
        })
        .expect("run");
        return;
    }
    let mut program = Command::new(std::env::current_exe().expect("a path"));
    program.args(["s32_println_into_a_slow_pipe", "--exact", "--nocapture", "--test-threads=1"]);
    program.env("CORACLE_CORO_ERRAND", "print").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = program.spawn().expect("it starts");
    let mut output = child.stdout.take().expect("a pipe");
    let mut all = Vec::new();
    let mut space = [0; 4096];
    loop {
        thread::sleep(MS / 4); // slower than it prints
        match output.read(&mut space).expect("read") {
            0 => break,
            count => all.extend_from_slice(&space[..count]),
        }
    }
    assert!(child.wait().expect("wait").success());
    let text = String::from_utf8(all).expect("text");
    for me in 0..COUNT {
        let line = format!("<{me}>{}\n", "x".repeat(LEN));
        assert_eq!(text.matches(&line).count(), 2, "line {me}");
    }
}

/// A lock of std's over a hooked wait: the next who wants it holds the loop for ever, and the watchdog says who.
#[test]
fn s43_lock_over_a_hooked_wait_is_told_by_the_watchdog() {
    alone("s43_lock_over_a_hooked_wait_is_told_by_the_watchdog", || {
        switch_on();
        let watching = Watchdog::new().limit(50 * MS).on_held(|held| {
            let text = held.to_string();
            let fine = text.contains("'second'") && text.contains("wants_the_lock");
            let _ = writeln!(io::stderr(), "{text}");
            std::process::exit(i32::from(!fine)); // the loop is lost
        });
        let _watching = watching.start().expect("a watchdog");
        let lock = Rc::new(Mutex::new(()));
        let first = Rc::clone(&lock);
        run(move || {
            let holding = spawn(move || {
                let _guard = first.lock().expect("a lock");
                thread::sleep(MS);
            });
            yield_now();
            let waiting =
                coracle_coro::Builder::new().name("second").spawn(move || wants_the_lock(&lock))?;
            holding.join().expect("the first");
            waiting.join().expect("the second");
            Ok(())
        })
        .expect("run");
        panic!("nobody has noticed");
    });
}

#[inline(never)]
fn wants_the_lock(lock: &Mutex<()>) {
    let _guard = std::hint::black_box(lock.lock()).expect("a lock");
}

/// A lock that another thread holds for a while is no deadlock: it is counted.
#[test]
fn s43_calls_that_hold_a_loop_are_counted() {
    alone("s43_calls_that_hold_a_loop_are_counted", || {
        switch_on();
        let lock = Arc::new(Mutex::new(()));
        let begin = Instant::now();
        while status().holds.futex == 0 {
            assert!(begin.elapsed() < PATIENCE, "nobody has counted it");
            let (tell, told) = mpsc::channel();
            let other = Arc::clone(&lock);
            let thread = thread::spawn(move || {
                let _guard = other.lock().expect("a lock");
                tell.send(()).expect("it waits");
                thread::sleep(60 * MS);
            });
            told.recv().expect("a lock");
            let own = Arc::clone(&lock);
            run(move || {
                spawn(move || drop(own.lock().expect("a lock")))
                    .join()
                    .map_err(|_| io::ErrorKind::Other.into())
            })
            .expect("run");
            thread.join().expect("a thread");
        }
        let holds = status().holds;
        assert_eq!((holds.fsync, holds.flock, holds.open), (0, 0, 0));
    });
}

/// Two `block_on`s of coracle's, each with blocking calls in its future: both go on.
#[test]
fn two_block_ons() {
    alone("two_block_ons", || {
        switch_on();
        run(|| {
            let (mut one, mut other) = std::os::unix::net::UnixStream::pair()?;
            let first = spawn(move || {
                coracle_coro::block_on(async move {
                    let mut space = [0; 4];
                    one.read_exact(&mut space).map(|()| space)
                })
            });
            let second = spawn(move || {
                coracle_coro::block_on(async move {
                    coracle_coro::future::sleep(MS).await;
                    thread::sleep(MS);
                    other.write_all(b"ahoy")
                })
            });
            second.join().expect("the second")??;
            assert_eq!(&first.join().expect("the first")??, b"ahoy");
            Ok(())
        })
        .expect("run");
    });
}

/// Two `block_on`s of another executor, which takes its thread for its own: the second panics, and says so. That
/// is what `off` and the worker pool are for.
#[test]
fn two_block_ons_of_another_executor() {
    alone("two_block_ons_of_another_executor", || {
        switch_on();
        run(|| {
            let (mut one, other) = std::os::unix::net::UnixStream::pair()?;
            let first =
                spawn(move || futures::executor::block_on(async move { one.read(&mut [0; 4]) }));
            yield_now();
            let second = spawn(|| futures::executor::block_on(async { 1 }));
            assert!(second.join().is_err(), "it is in use");
            drop(other);
            assert_eq!(first.join().expect("the first")?, 0);
            Ok(())
        })
        .expect("run");
    });
}
