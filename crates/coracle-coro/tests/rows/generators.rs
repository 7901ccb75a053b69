//! Generators that coroutines resume.

use crate::harness::{HOUR, Harness, MS};
use coracle_coro::generator::{Resumed, Status, Yielder};
use coracle_coro::{
    Generator, in_span, no_park, on_big_stack, race, scope, shield, sleep, spawn, timeout,
    yield_now,
};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use tracing::info_span;

/// What is said to who is lent a `Yielder` and is not the generator.
fn refused(out: &Yielder<u32>) {
    let panic = catch_unwind(AssertUnwindSafe(|| out.suspend(7))).unwrap_err();
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(text.contains("another coroutine than the one that has resumed it"), "{text}");
}

pub(crate) fn s4_child_cannot_suspend_the_generator_of_its_parent(h: &Harness) {
    h.run(|| {
        let mut generator = Generator::new(|out: &Yielder<u32>| {
            let lent = scope(|scope| {
                scope.spawn(|| {
                    refused(out);
                    sleep(MS)?;
                    refused(out);
                    Ok(())
                });
                Ok(())
            });
            lent.unwrap();
            out.suspend(1);
            let arm = || -> io::Result<()> {
                refused(out);
                Ok(())
            };
            race(arm, arm).unwrap();
            out.suspend(2);
        });
        assert_eq!(generator.next(), Some(1));
        assert_eq!(generator.next(), Some(2));
        assert_eq!(generator.next(), None);
        Ok(())
    });
}

pub(crate) fn s4_child_that_resumes_the_generator_cannot_suspend_it(h: &Harness) {
    h.run(|| {
        let generator = Rc::new_cyclic(|itself: &Weak<Generator<u32>>| {
            let itself = itself.clone();
            Generator::new(move |out| {
                let lent = scope(|scope| {
                    scope.spawn(|| {
                        let itself = itself.upgrade().unwrap();
                        assert_eq!(itself.resume(()), Ok(Resumed::Yielded(2)));
                        refused(out); // it was this coroutine that has resumed it, and yet it does not run
                        Ok(())
                    });
                    out.suspend(1);
                    out.suspend(2);
                    Ok(())
                });
                lent.unwrap();
            })
        });
        assert_eq!(generator.resume(()), Ok(Resumed::Yielded(1)));
        yield_now();
        assert_eq!(generator.resume(()), Ok(Resumed::Complete(())));
        Ok(())
    });
}

pub(crate) fn s4_generator_is_suspended_from_a_big_stack(h: &Harness) {
    let count = || {
        Generator::new(|out: &Yielder<u32>| {
            let half = |from: u32| (from..from + 2).for_each(|n| out.suspend(n));
            half(0);
            on_big_stack(1 << 20, || half(2)).unwrap();
        })
    };
    assert_eq!(count().collect::<Vec<_>>(), [0, 1, 2, 3]);
    h.run(move || {
        assert_eq!(count().collect::<Vec<_>>(), [0, 1, 2, 3]);
        // By turns: another coroutine, no coroutine.
        let generator = Rc::new(count());
        for n in 0..4 {
            let shared = Rc::clone(&generator);
            let resume = move || shared.resume(()).unwrap().yielded();
            assert_eq!(spawn(resume).join().unwrap(), Some(n));
        }
        generator.resume(()).unwrap();
        assert_eq!(generator.status(), Status::Done);
        Ok(())
    });
}

pub(crate) fn s16_deadline_of_a_generator_is_not_that_of_who_resumes_it(h: &Harness) {
    h.run(|| {
        let mut generator = Generator::new(|out| {
            let late = timeout(MS, || {
                out.suspend(true);
                sleep(HOUR)
            });
            out.suspend(late.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut));
            out.suspend(sleep(MS).is_ok());
        });
        assert_eq!(generator.next(), Some(true));
        sleep(MS * 3)?; // it is not in that
        assert_eq!(generator.next(), Some(true), "and the generator still is");
        sleep(MS)?;
        // Whoever resumes it has a deadline, too.
        assert_eq!(timeout(HOUR, || generator.next()), Some(true));
        assert_eq!(timeout(HOUR, || generator.next()), None);
        sleep(MS)
    });
}

pub(crate) fn s10_shield_of_a_generator_is_its_own(h: &Harness) {
    h.run(|| {
        let waiting = spawn(|| {
            let mut generator = Generator::new(|out| {
                shield(HOUR, || {
                    out.suspend(true);
                    out.suspend(sleep(MS).is_ok());
                });
                out.suspend(sleep(HOUR).is_ok());
            });
            assert_eq!(generator.next(), Some(true));
            let own = sleep(HOUR).map_err(|error| error.raw_os_error());
            (own, generator.next(), sleep(HOUR).is_err(), generator.next())
        });
        yield_now();
        waiting.cancel();
        let cancelled = Err(Some(crate::harness::ECANCELED));
        assert_eq!(waiting.join().unwrap(), (cancelled, Some(true), true, Some(false)));
        Ok(())
    });
}

pub(crate) fn s4_what_a_generator_is_inside_of_stays_with_it(h: &Harness) {
    crate::inheriting::listening(|| {
        h.run(|| {
            let span = info_span!("of the generator");
            let id = span.id();
            let mut generator = Generator::new(move |out| {
                in_span(&span, || {
                    no_park(|| out.suspend(tracing::Span::current().id()));
                    sleep(MS).unwrap();
                    out.suspend(tracing::Span::current().id());
                });
                out.suspend(tracing::Span::current().id());
            });
            let outside = tracing::Span::current().id();
            assert_eq!(generator.next(), Some(id.clone()));
            assert_eq!(tracing::Span::current().id(), outside);
            sleep(MS)?; // not in `no_park`
            // Another one resumes it.
            let resumed = spawn(move || {
                let inside = generator.next();
                sleep(MS).unwrap();
                (inside, tracing::Span::current().id(), generator.next())
            });
            assert_eq!(resumed.join().unwrap(), (Some(id), outside.clone(), Some(outside)));
            Ok(())
        });
    });
}
