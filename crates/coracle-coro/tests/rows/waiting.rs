//! Giving way, parking, sleeping; and deadlines around all of it.

use crate::harness::{ETIMEDOUT, HOUR, Harness, Log, MS, errno, now};
use coracle_coro::{
    JoinError, current, deadline, no_park, park, park_timeout, sleep, sleep_until, spawn, timeout,
    yield_now,
};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Instant;

pub(crate) fn s6_yield_lets_all_others_go_first(h: &Harness) {
    h.run(|| {
        let log = Log::default();
        let children = ["a", "b", "c"].map(|name| {
            let log = log.clone();
            spawn(move || {
                for _ in 0..3 {
                    log.add(name);
                    yield_now();
                }
            })
        });
        for child in children {
            child.join().unwrap();
        }
        assert_eq!(log.take(), ["a", "b", "c", "a", "b", "c", "a", "b", "c"]);
        Ok(())
    });
}

pub(crate) fn s6_yielding_does_not_keep_timers_from_firing(h: &Harness) {
    h.run(|| {
        let fired = Rc::new(Cell::new(false));
        let set = Rc::clone(&fired);
        Loop::current().unwrap().at(now(), move |_| set.set(true));
        while !fired.get() {
            yield_now();
        }
        Ok(())
    });
}

pub(crate) fn s13_unpark_before_park_is_not_lost(h: &Harness) {
    h.run(|| {
        let child = spawn(park);
        child.coroutine().unpark(); // it has not even begun
        child.join().unwrap()?;
        current().unpark();
        park()
    });
}

pub(crate) fn s13_there_is_one_permit(h: &Harness) {
    h.run(|| {
        current().unpark();
        current().unpark();
        park()?;
        assert_eq!(errno(timeout(MS, park)), ETIMEDOUT);
        park_timeout(MS) // whose own time-out is no error
    });
}

pub(crate) fn s13_thread_and_coroutine_unpark_each_other(h: &Harness) {
    h.run(|| {
        let main = current();
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            send.send(current()).unwrap();
            for _ in 0..100 {
                park().unwrap();
                main.unpark();
            }
        });
        let there = receive.recv().unwrap();
        for _ in 0..100 {
            there.unpark();
            park()?;
        }
        thread.join().unwrap();
        Ok(())
    });
}

pub(crate) fn s14_sleep_is_never_early(h: &Harness) {
    h.run(|| {
        for _ in 0..3 {
            let begin = now();
            sleep(5 * MS)?;
            assert!(now().duration_since(begin) >= 5 * MS);
        }
        sleep_until(now() - MS) // over, and no error
    });
}

pub(crate) fn s14_sleepers_wake_in_the_order_of_their_deadlines(h: &Harness) {
    h.run(|| {
        let (log, begin) = (Log::default(), now());
        let children = [("c", 3), ("a", 1), ("b", 2)].map(|(name, after)| {
            let log = log.clone();
            spawn(move || {
                sleep_until(begin + after * MS).unwrap();
                log.add(name);
            })
        });
        for child in children {
            child.join().unwrap();
        }
        assert_eq!(log.take(), ["a", "b", "c"]);
        Ok(())
    });
}

/// Others are at work, in their turn one after the other: a sleeper whose time has come does not wait for all of
/// them. In the simulator their work takes no time.
pub(crate) fn s14_sleeper_goes_ahead_of_those_who_are_ready(h: &Harness) {
    const OTHERS: u32 = 400;
    let simulated = h.lp.backend() == Backend::Sim;
    h.run(move || {
        let worked = Rc::new(Cell::new(0));
        let seen = Rc::clone(&worked);
        let sleeper = spawn(move || sleep(2 * MS).map(|()| seen.get()));
        for _ in 0..OTHERS {
            let worked = Rc::clone(&worked);
            spawn(move || {
                let begin = Instant::now();
                while begin.elapsed() < MS / 4 {}
                worked.set(worked.get() + 1);
            });
        }
        let worked = sleeper.join().unwrap()?;
        let in_time = if simulated { worked == OTHERS } else { worked < OTHERS / 2 };
        assert!(in_time, "it had to wait for {worked} others");
        Ok(())
    });
}

pub(crate) fn s14_sleep_is_exact(h: &Harness) {
    h.run(|| {
        let begin = now();
        sleep(HOUR)?;
        assert_eq!(now() - begin, HOUR);
        Ok(())
    });
}

pub(crate) fn s16_timeout_ends_what_waits_inside(h: &Harness) {
    h.run(|| {
        assert_eq!(errno(timeout(MS, || sleep(HOUR))), ETIMEDOUT);
        assert_eq!(errno(timeout(MS, park)), ETIMEDOUT);
        assert_eq!(errno(timeout(MS, || park_timeout(HOUR))), ETIMEDOUT);
        let child = spawn(|| park_timeout(10 * MS));
        let error = timeout(MS, || child.join()).unwrap_err();
        assert!(matches!(error, JoinError::TimedOut(_)), "{error:?}");
        // It says what happened; and not that it was a connection, as the system would.
        let error = timeout(MS, || sleep(HOUR)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("`timeout`"), "{error}");
        assert!(format!("{error:?}").contains("`timeout`"), "{error:?}");
        Ok(())
    });
}

pub(crate) fn s16_deadline_inside_another_can_only_be_earlier(h: &Harness) {
    h.run(|| {
        assert_eq!(errno(timeout(MS, || timeout(HOUR, park))), ETIMEDOUT);
        assert_eq!(errno(timeout(HOUR, || timeout(MS, park))), ETIMEDOUT);
        Ok(())
    });
}

pub(crate) fn s16_deadline_is_over_with_its_closure(h: &Harness) {
    h.run(|| {
        let soon = now() + MS;
        assert_eq!(errno(deadline(soon, park)), ETIMEDOUT);
        let panicked = catch_unwind(AssertUnwindSafe(|| deadline(soon, || panic!("on purpose"))));
        assert!(panicked.is_err());
        sleep(MS)
    });
}

pub(crate) fn s16_timeout_is_exact(h: &Harness) {
    h.run(|| {
        let begin = now();
        assert_eq!(errno(timeout(HOUR, park)), ETIMEDOUT);
        assert_eq!(now() - begin, HOUR);
        Ok(())
    });
}

pub(crate) fn s60_ten_thousand_coroutines_park(h: &Harness) {
    h.run(|| {
        let children: Vec<_> = (0..10_000).map(|_| spawn(park)).collect();
        yield_now();
        for child in &children {
            child.coroutine().unpark();
        }
        for child in children {
            child.join().unwrap()?;
        }
        Ok(())
    });
}

pub(crate) fn wait_in_a_callback_panics_with_the_cure(h: &Harness) {
    let seen = Rc::new(Cell::new(0));
    let count = Rc::clone(&seen);
    h.lp.defer(move |_| {
        let waits: [fn(); 3] = [|| _ = sleep(MS), || _ = park(), yield_now];
        for wait in waits {
            let payload = catch_unwind(wait).expect_err("it would stop the loop");
            let text = payload.downcast_ref::<String>().expect("a formatted text");
            assert!(text.contains("`spawn` a coroutine"), "{text}");
            count.set(count.get() + 1);
        }
    });
    h.lp.run_until_idle().unwrap();
    assert_eq!(seen.get(), 3);
}

pub(crate) fn wait_in_a_callback_inside_a_coroutine_panics(h: &Harness) {
    let inner = h.another_loop();
    h.run(move || {
        let refused = Rc::new(Cell::new(false));
        let set = Rc::clone(&refused);
        inner.defer(move |_| set.set(catch_unwind(|| sleep(MS)).is_err()));
        inner.run_ready()?;
        assert!(refused.get());
        sleep(MS) // here it may
    });
}

pub(crate) fn wait_inside_no_park_panics(h: &Harness) {
    h.run(|| {
        let waits: [fn(); 3] = [|| _ = sleep(MS), || _ = park(), yield_now];
        for wait in waits {
            assert!(catch_unwind(|| no_park(wait)).is_err());
        }
        sleep(MS)
    });
}
