//! When every coroutine waits for another, `run` says so. In a process with one thread, for otherwise it
//! could not know.

use coracle_coro::{Builder, current, park, run, sleep, spawn};
use std::io::ErrorKind;
use std::time::Duration;

fn main() {
    s49_deadlock_is_reported_with_the_list();
    sleeping_is_no_deadlock();
    other_thread_may_come_to_the_rescue();
    println!("3 facts hold");
}

fn s49_deadlock_is_reported_with_the_list() {
    let error = run(|| {
        let philosopher = Builder::new().name("philosopher").spawn(park)?;
        philosopher.join().expect("it does not panic")
    })
    .expect_err("nobody unparks the philosopher");
    assert_eq!(error.kind(), ErrorKind::Deadlock);
    let text = error.to_string();
    for part in ["'main' is Waiting", "'philosopher' is Waiting", "deadlock.rs:"] {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
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
