//! When every coroutine waits for another, `run` says so. In a process with one thread, for otherwise it
//! could not know.

use coracle_coro::net::UnixStream;
use coracle_coro::{
    Builder, JoinHandle, current, park, run, run_on, sleep, spawn, spawn_future, yield_now,
};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

fn main() {
    s49_deadlock_is_reported_with_the_list();
    deadlock_after_the_last_operation_is_reported();
    deadlock_after_a_timer_that_wakes_nobody_is_reported();
    s49_futures_are_in_the_list_of_a_deadlock();
    sleeping_is_no_deadlock();
    reading_is_no_deadlock();
    ending_a_read_is_no_deadlock();
    other_thread_may_come_to_the_rescue();
    println!("8 facts hold");
}

/// A read that was ended is not over before its coroutine is told.
fn ending_a_read_is_no_deadlock() {
    type End = fn(&JoinHandle<io::Result<usize>>, &UnixStream);
    let ends: [End; 3] = [
        |reader, _| reader.cancel(),
        |reader, _| {
            reader.cancel();
            yield_now(); // it sees the first, and waits for its read to end
            reader.cancel();
        },
        |reader, stream| {
            stream.close().expect("it is open");
            reader.cancel();
        },
    ];
    for backend in [Backend::Epoll, Backend::Uring, Backend::Poll] {
        for end in ends {
            let lp = coracle_loop::Builder::new().backend(backend).build().expect("a loop");
            run_on(&lp, move || {
                let (mut here, there) = UnixStream::pair()?;
                let mut reading = there.try_clone()?;
                let reader = spawn(move || {
                    assert_eq!(reading.read(&mut [0; 8])?, 1);
                    reading.read(&mut [0; 8]) // the first was short: this one can only wait
                });
                here.write_all(b"!")?;
                sleep(Duration::from_millis(5))?; // it waits
                end(&reader, &there);
                let ended = reader.join().expect("it does not panic");
                assert!(ended.is_err(), "{ended:?}");
                // Others use its stack.
                for _ in 0..10 {
                    spawn(yield_now).join().expect("it does not panic");
                }
                Ok(())
            })
            .expect("no deadlock");
        }
    }
}

fn s49_deadlock_is_reported_with_the_list() {
    let error = run(|| {
        let philosopher = Builder::new().name("philosopher").spawn(park)?;
        philosopher.join().expect("it does not panic")
    })
    .expect_err("nobody unparks the philosopher");
    assert_eq!(error.kind(), ErrorKind::Deadlock);
    let text = error.to_string();
    for part in [
        "'main' is Waiting for the end of #",
        "'philosopher' is Waiting for an unpark",
        "deadlock.rs:",
    ] {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
    assert!(
        !text.contains(" ago") && !text.contains("ns"),
        "no times, which would be none:\n{text}"
    );
    // As a `main` that returns it has it written: in lines, too.
    let debug = format!("{error:?}");
    assert!(debug.lines().count() > 2, "{debug}");
}

fn deadlock_after_the_last_operation_is_reported() {
    // Whoever waits for the kernel is resumed beside the queue of those who are ready.
    let error = run(|| {
        let (mut here, mut there) = UnixStream::pair()?;
        let child = spawn(move || {
            there.read_exact(&mut [0]).expect("a byte comes");
            park()
        });
        sleep(Duration::from_millis(5))?; // it waits
        here.write_all(b"!")?;
        child.join().expect("it does not panic")
    })
    .expect_err("nobody unparks the child");
    assert_eq!(error.kind(), ErrorKind::Deadlock);
}

fn deadlock_after_a_timer_that_wakes_nobody_is_reported() {
    let error = run(|| {
        let lp = Loop::current().expect("a coroutine has a loop");
        lp.after(Duration::from_millis(5), |_| ());
        park()
    })
    .expect_err("the timer unparks nobody");
    assert_eq!(error.kind(), ErrorKind::Deadlock);
}

fn reading_is_no_deadlock() {
    run(|| {
        let (here, mut there) = UnixStream::pair()?;
        spawn(move || {
            there.read_exact(&mut [0]).expect("a byte comes");
            there.write_all(b"!").expect("it is read");
        });
        (&here).write_all(b"!")?;
        (&here).read_exact(&mut [0])
    })
    .expect("they only wait for each other's bytes");
}

fn sleeping_is_no_deadlock() {
    run(|| {
        let main = current();
        spawn(move || {
            sleep(Duration::from_millis(5)).expect("nobody cancels it");
            main.unpark();
        });
        park()
    })
    .expect("it only takes its time");
}

fn other_thread_may_come_to_the_rescue() {
    run(|| {
        let main = current();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            main.unpark();
        });
        park()
    })
    .expect("the thread unparks it");
}

fn s49_futures_are_in_the_list_of_a_deadlock() {
    let error = run(|| {
        spawn_future(std::future::pending::<()>());
        Ok(())
    })
    .expect_err("nobody wakes the future");
    assert_eq!(error.kind(), ErrorKind::Deadlock);
    assert!(error.to_string().contains("a future is Waiting, spawned at"), "{error}");
}
