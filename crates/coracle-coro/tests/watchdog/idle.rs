//! A watchdog that has nothing to watch.

use crate::PATIENCE;
use coracle_coro::seeing::Watchdog;
use coracle_coro::{Builder, park, run, sleep};
use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// How often the thread of the watchdog has gone to sleep, by the kernel's count.
fn sleeps_of_the_watchdog() -> u64 {
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        let path = thread.unwrap().path();
        let Ok(name) = fs::read_to_string(path.join("comm")) else { continue };
        if name.starts_with("coracle-watchd") {
            let status = fs::read_to_string(path.join("status")).unwrap();
            let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:"));
            return line.unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
        }
    }
    panic!("there is no watchdog");
}

/// While the loop waits, the watchdog does not tick. It would, two thousand times a second.
pub(crate) fn s43_watchdog_sleeps_while_all_loops_wait() {
    let _watching = Watchdog::new().limit(Duration::from_millis(1)).start().unwrap();
    let looking = |handle: coracle_loop::LoopHandle| {
        std::thread::spawn(move || {
            let begin = Instant::now();
            loop {
                let before = sleeps_of_the_watchdog();
                std::thread::sleep(Duration::from_millis(100));
                let after = sleeps_of_the_watchdog();
                if after == before && !handle.pulse().is_turning() {
                    break handle.stop();
                }
                assert!(begin.elapsed() < PATIENCE, "it ticks on: {before}, {after}");
            }
        })
    };
    run(move || {
        let thread = looking(coracle_loop::Loop::current().unwrap().handle());
        sleep(2 * PATIENCE).expect_err("the loop is stopped");
        thread.join().unwrap();
        Ok(())
    })
    .unwrap();
}

pub(crate) fn s43_watchdog_does_not_hide_a_deadlock() {
    let _watching = Watchdog::new().start().unwrap();
    // The kernel may still have a thread that was joined a moment ago.
    while fs::read_dir("/proc/self/task").unwrap().count() > 2 {
        std::thread::yield_now();
    }
    let error = run(|| {
        let philosopher = Builder::new().name("philosopher").spawn(park)?;
        drop(philosopher.join()); // an error: all are cancelled
        Ok(())
    })
    .expect_err("nobody unparks the philosopher");
    assert_eq!(error.kind(), ErrorKind::Deadlock);
}
