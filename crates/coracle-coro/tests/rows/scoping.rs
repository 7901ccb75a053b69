//! Children that borrow from their parent.

use crate::harness::{ECANCELED, ETIMEDOUT, HOUR, Harness, Log, MS, errno};
use coracle_coro::{park, scope, sleep, spawn, timeout, yield_now};
use std::cell::{Cell, RefCell};
use std::io;

pub(crate) fn s11_children_borrow_and_end_before_their_parent(h: &Harness) {
    h.run(|| {
        let sum = Cell::new(0);
        let count = scope(|scope| {
            for n in 1..=10 {
                let sum = &sum;
                scope.spawn(move || {
                    sleep(n * MS)?;
                    sum.set(sum.get() + n);
                    Ok(())
                });
            }
            Ok(10)
        })?;
        assert_eq!((count, sum.get()), (10, 55));
        Ok(())
    });
}

pub(crate) fn s11_first_error_cancels_the_rest(h: &Harness) {
    h.run(|| {
        let log = RefCell::new(Vec::new());
        let error = scope(|scope| {
            let log = &log;
            for _ in 0..3 {
                scope.spawn(move || {
                    let error = errno(sleep(HOUR)); // nothing is borrowed meanwhile
                    log.borrow_mut().push(error);
                    Ok(())
                });
            }
            scope.spawn(|| Err(io::Error::other("the first")));
            scope.spawn(|| Err(io::Error::other("the second")));
            Ok(())
        });
        assert_eq!(error.unwrap_err().to_string(), "the first");
        assert_eq!(log.take(), [ECANCELED; 3]);
        Ok(())
    });
}

pub(crate) fn s11_panic_of_a_child_is_an_error(h: &Harness) {
    h.run(|| {
        let error = scope(|scope| {
            scope.spawn(|| panic!("on purpose"));
            scope.spawn(|| sleep(HOUR));
            Ok(())
        });
        assert!(error.unwrap_err().to_string().ends_with("on purpose"));
        Ok(())
    });
}

pub(crate) fn s11_cancelled_parent_waits_for_its_children(h: &Harness) {
    h.run(|| {
        let log = Log::default();
        let noted = log.clone();
        let parent = spawn(move || {
            let ended = scope(|scope| {
                scope.spawn(|| {
                    assert_eq!(errno(park()), ECANCELED);
                    (0..5).for_each(|_| yield_now()); // takes its time
                    noted.add("child");
                    Ok(())
                });
                Ok(())
            });
            noted.add("parent");
            ended
        });
        yield_now();
        yield_now();
        parent.cancel();
        parent.join().unwrap()?;
        assert_eq!(log.take(), ["child", "parent"]);
        Ok(())
    });
}

pub(crate) fn s11_timeout_around_a_scope_cancels_its_children(h: &Harness) {
    h.run(|| {
        let ended = timeout(MS, || {
            scope(|scope| {
                scope.spawn(park);
                Ok(())
            })
        });
        assert_eq!(errno(ended), ETIMEDOUT);
        Ok(())
    });
}
