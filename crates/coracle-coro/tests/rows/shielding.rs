//! Waiting in spite of being cancelled; and coroutines that will not end.

use crate::harness::{ECANCELED, ETIMEDOUT, HOUR, Harness, Log, MS, errno, now};
use coracle_coro::sync::channel;
use coracle_coro::{
    State, coroutines, park, scope, shield, shield_until, sleep, spawn, timeout, yield_now,
};
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

pub(crate) fn s10_shield_lets_clean_up_wait(h: &Harness) {
    h.run(|| {
        let child = spawn(|| {
            let before = errno(sleep(HOUR));
            shield(HOUR, || sleep(MS)).unwrap();
            shield(HOUR, || timeout(MS, park)).unwrap_err();
            [before, errno(sleep(HOUR))]
        });
        yield_now();
        child.cancel();
        assert_eq!(child.join().unwrap(), [ECANCELED; 2]);
        Ok(())
    });
}

pub(crate) fn s10_cancel_during_a_shield_strikes_after_it(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(0);
        let child = spawn(move || {
            let received = shield(HOUR, || receiver.recv());
            (received, errno(park()))
        });
        yield_now();
        child.cancel();
        sleep(MS)?;
        sender.send("in time")?;
        assert_eq!(child.join().unwrap(), (Ok("in time"), ECANCELED));
        Ok(())
    });
}

pub(crate) fn s10_shield_ends_at_its_deadline(h: &Harness) {
    h.run(|| {
        let child = spawn(|| {
            let late = errno(shield(MS, park));
            let nested = errno(shield(MS, || shield(HOUR, park)));
            let point = errno(shield_until(now() + MS, park));
            [late, nested, point, errno(park())]
        });
        child.cancel();
        assert_eq!(child.join().unwrap(), [ETIMEDOUT, ETIMEDOUT, ETIMEDOUT, ECANCELED]);
        Ok(())
    });
}

pub(crate) fn s16_shield_outlasts_a_timeout_around_it(h: &Harness) {
    h.run(|| {
        timeout(MS, || {
            assert_eq!(errno(park()), ETIMEDOUT);
            shield(HOUR, || sleep(MS))?;
            assert_eq!(errno(park()), ETIMEDOUT);
            Ok(())
        })
    });
}

pub(crate) fn s10_shield_is_over_after_a_panic(h: &Harness) {
    h.run(|| {
        let child = spawn(|| {
            let panicked = || shield(HOUR, || panic!("on purpose"));
            assert!(catch_unwind(AssertUnwindSafe(panicked)).is_err());
            errno(sleep(HOUR))
        });
        child.cancel();
        assert_eq!(child.join().unwrap(), ECANCELED);
        Ok(())
    });
}

pub(crate) fn s11_scope_in_a_shield_keeps_its_children(h: &Harness) {
    h.run(|| {
        let child = spawn(|| {
            shield(HOUR, || {
                scope(|scope| {
                    scope.spawn(|| sleep(2 * MS)); // nobody cancels it
                    Ok(())
                })
            })
        });
        yield_now();
        yield_now();
        child.cancel();
        child.join().unwrap()
    });
}

pub(crate) fn s11_scope_in_a_shield_of_who_is_cancelled_keeps_its_children(h: &Harness) {
    h.run(|| {
        let child = spawn(|| {
            assert_eq!(errno(sleep(HOUR)), ECANCELED);
            shield(HOUR, || {
                scope(|scope| {
                    scope.spawn(|| sleep(2 * MS)); // clean-up
                    Ok(())
                })
            })
        });
        yield_now();
        child.cancel();
        child.join().unwrap()
    });
}

/// Waits when it is dropped.
struct Waits;

impl Drop for Waits {
    fn drop(&mut self) {
        assert_eq!(errno(sleep(HOUR)), ECANCELED, "a wait while panicking is refused");
    }
}

pub(crate) fn s53_waits_refused_because_of_a_panic_are_no_cancel(h: &Harness) {
    h.run(|| {
        let often: Vec<Waits> = (0..40).map(|_| Waits).collect();
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _often = often;
            panic!("as it happens");
        }));
        assert!(panicked.is_err());
        sleep(MS) // and it goes on as before
    });
}

/// Waits for ever, whatever it is told.
fn stubborn(told: &Rc<Cell<u32>>) -> io::Result<()> {
    loop {
        assert_eq!(errno(sleep(HOUR)), ECANCELED);
        told.set(told.get() + 1);
    }
}

fn states() -> Vec<State> {
    coroutines().iter().map(|one| one.state).collect()
}

pub(crate) fn s10_who_ignores_it_too_often_is_parked_for_good(h: &Harness) {
    let told = Rc::new(Cell::new(0));
    let seen = Rc::clone(&told);
    h.lp.defer(move |_| spawn(move || stubborn(&seen)).cancel());
    h.lp.run_until_idle().unwrap();
    assert_eq!(told.get(), 32);
    let log = Log::default();
    let noted = log.clone();
    h.lp.defer(move |_| {
        assert_eq!(states(), [State::Leaked]);
        noted.add("seen");
    });
    h.lp.run_until_idle().unwrap();
    assert_eq!(log.take(), ["seen"]);
}

pub(crate) fn s10_who_joins_one_that_is_parked_for_good_is_told(h: &Harness) {
    let log = Log::default();
    let noted = log.clone();
    h.lp.defer(move |_| {
        let stubborn = spawn(|| stubborn(&Rc::default()));
        stubborn.cancel();
        let before = noted.clone();
        let waits = spawn(move || {
            let said = stubborn.join().expect_err("it leaves nothing");
            let said = said.to_string();
            assert!(said.contains("parked for good"), "{said}");
            before.add("told");
        });
        spawn(move || {
            waits.join().unwrap();
            noted.add("goes on");
        });
    });
    h.lp.run_until_idle().unwrap();
    assert_eq!(log.take(), ["told", "goes on"]);
}

pub(crate) fn s11_parent_is_leaked_with_a_child_that_will_not_end(h: &Harness) {
    let log = Log::default();
    let noted = log.clone();
    h.lp.defer(move |_| {
        let parent = spawn(move || {
            let told = Rc::new(Cell::new(0));
            let ended = scope(|scope| {
                let inside = noted.clone();
                scope.spawn(move || {
                    assert_eq!(errno(sleep(HOUR)), ECANCELED);
                    shield(HOUR, || sleep(HOUR / 2))?; // longer than the other is patient
                    inside.add("well-behaved");
                    Ok(())
                });
                scope.spawn(|| stubborn(&told));
                Ok(())
            });
            noted.add("never");
            ended
        });
        parent.cancel();
    });
    h.lp.run_until_idle().unwrap();
    assert_eq!(log.take(), ["well-behaved"]);
    let seen = log.clone();
    h.lp.defer(move |_| {
        assert_eq!(states(), [State::Leaked; 2]);
        seen.add("seen");
    });
    h.lp.run_until_idle().unwrap();
    assert_eq!(log.take(), ["seen"]);
}
