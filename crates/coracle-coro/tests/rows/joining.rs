//! Waiting for the end of a coroutine, and ends that nobody wanted.

use crate::harness::{ECANCELED, HOUR, Harness, Log, MS, errno};
use coracle_coro::{Builder, JoinError, current, park, sleep, spawn, spawn_on, yield_now};
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

pub(crate) fn s7_join_has_the_result(h: &Harness) {
    h.run(|| {
        let waited_for = spawn(|| {
            sleep(MS).unwrap();
            Rc::new(7)
        });
        assert!(!waited_for.is_finished());
        assert_eq!(*waited_for.join().unwrap(), 7);

        let over = spawn(|| 8);
        yield_now();
        assert!(over.is_finished());
        assert_eq!(over.join().unwrap(), 8);
        Ok(())
    });
}

pub(crate) fn s7_thread_joins_a_coroutine(h: &Harness) {
    h.run(|| {
        let main = current();
        let child = spawn(|| {
            park().unwrap();
            "joined"
        });
        let unpark = child.coroutine().clone();
        let thread = std::thread::spawn(move || {
            let result = child.join().unwrap();
            main.unpark();
            result
        });
        yield_now();
        unpark.unpark();
        park()?;
        assert_eq!(thread.join().unwrap(), "joined");
        Ok(())
    });
}

pub(crate) fn s7_coroutine_that_never_began_is_told(h: &Harness) {
    let lp = h.another_loop();
    let child = spawn_on(&lp.handle(), || ()).unwrap();
    drop(lp);
    let Err(JoinError::Lost(text)) = child.join() else { panic!("there was no loop to run it") };
    assert!(text.contains("before it could start"), "{text}");
}

pub(crate) fn s8_timed_out_panicked_and_cancelled_are_told_apart(h: &Harness) {
    h.run(|| {
        let slow = spawn(|| {
            park().unwrap();
            "slow"
        });
        let Err(JoinError::TimedOut(slow)) = slow.join_timeout(MS) else { panic!("it was fast") };
        slow.coroutine().unpark();
        assert_eq!(slow.join_timeout(HOUR).unwrap(), "slow");

        let careless = spawn(|| -> u32 { panic!("on purpose") });
        let Err(JoinError::Panicked(payload)) = careless.join_timeout(HOUR) else {
            panic!("it was careful")
        };
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));

        let joiner = spawn(|| {
            let child = spawn(park);
            let Err(JoinError::Cancelled(child)) = child.join_timeout(HOUR) else {
                panic!("it was not cancelled")
            };
            child.coroutine().unpark();
            child
        });
        yield_now();
        joiner.cancel();
        joiner.join().unwrap().join().unwrap()
    });
}

pub(crate) fn s9_detached_coroutine_goes_on(h: &Harness) {
    let log = Log::default();
    let noted = log.clone();
    h.run(move || {
        drop(spawn(move || {
            sleep(MS).unwrap();
            noted.add("the child");
        }));
        Ok(())
    });
    assert_eq!(log.take(), ["the child"], "`run` returns when all are over");
}

pub(crate) fn s53_panic_ends_only_its_coroutine(h: &Harness) {
    h.run(|| {
        let neighbour = spawn(|| {
            sleep(MS).unwrap();
            "well"
        });
        let careless = spawn(|| -> u32 { panic!("on purpose") });
        let payload = careless.join().unwrap_err();
        assert_eq!(payload.into_panic().downcast_ref::<&str>(), Some(&"on purpose"));
        assert_eq!(neighbour.join().unwrap(), "well");
        assert!(!std::thread::panicking());
        Ok(())
    });
}

pub(crate) fn s53_panic_of_the_first_coroutine_leaves_run(h: &Harness) {
    let lp = h.lp.clone();
    let main = || -> io::Result<()> { panic!("on purpose") };
    let run = AssertUnwindSafe(move || coracle_coro::run_on(&lp, main));
    let payload = catch_unwind(run).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
    h.run(|| sleep(MS)); // the loop is as good as before
}

/// What was written to the log.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<u8>>>);

impl io::Write for Journal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn s53_panic_is_in_the_log_with_the_name(h: &Harness) {
    let journal = Journal::default();
    let writer = journal.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    tracing::subscriber::with_default(subscriber.finish(), || {
        h.run(|| {
            drop(Builder::new().name("careless").spawn(|| panic!("on purpose"))?); // nobody joins it
            Ok(())
        });
    });
    let said = String::from_utf8(journal.0.lock().unwrap().clone()).unwrap();
    let line = said.lines().find(|line| line.contains("a coroutine panicked")).expect(&said);
    assert!(line.contains("ERROR") && line.contains("'careless'"), "{line}");
    assert!(line.contains("on purpose"), "{line}");
}

struct WaitsWhenDropped(Rc<Cell<i32>>);

impl Drop for WaitsWhenDropped {
    fn drop(&mut self) {
        yield_now();
        self.0.set(errno(sleep(HOUR)));
    }
}

pub(crate) fn s53_wait_in_a_destructor_of_a_panic_fails_at_once(h: &Harness) {
    h.run(|| {
        let seen = Rc::new(Cell::new(0));
        let waits = WaitsWhenDropped(Rc::clone(&seen));
        let careless = spawn(move || {
            let _waits = waits;
            panic!("on purpose");
        });
        assert!(careless.join().is_err());
        assert_eq!(seen.get(), ECANCELED);
        Ok(())
    });
}
