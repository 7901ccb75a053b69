//! Row S37: work for other threads, and its way back to the coroutine that waits.

use crate::gate::Gate;
use crate::harness::{ECANCELED, ETIMEDOUT, Harness, MS, errno};
use coracle_coro::{
    current, no_park, offload, offload_scoped, park, sleep, spawn, timeout, yield_now,
};
use coracle_loop::demux::Backend;
use coracle_loop::pool::{Overload, Pool, PoolSettings};
use coracle_loop::{Loop, OffloadError};
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

pub(crate) fn s37_result_comes_back_to_the_same_coroutine(h: &Harness) {
    h.run(|| {
        let (id, thread) = (current().id(), thread::current().id());
        let shared = Rc::new(7); // it stays here
        let answer = offload(|| 6 * 7)?;
        assert_eq!((answer, *shared), (42, 7));
        assert_eq!((current().id(), thread::current().id()), (id, thread));
        Ok(())
    });
}

pub(crate) fn s37_work_runs_on_another_thread_and_others_go_on(h: &Harness) {
    h.run(|| {
        let gate = Gate::default();
        let behind = gate.clone();
        let child = spawn(move || {
            offload(move || {
                behind.pass();
                thread::current().id()
            })
        });
        gate.await_arrivals(1); // which sleeps: the loop has its timers meanwhile
        assert!(!child.is_finished());
        gate.open();
        assert_ne!(child.join().unwrap()?, thread::current().id());
        Ok(())
    });
}

pub(crate) fn s37_panic_comes_out_of_the_call(h: &Harness) {
    h.run(|| {
        let child = spawn(|| offload(|| -> u32 { panic!("on purpose") }));
        let payload = child.join().unwrap_err();
        assert_eq!(payload.into_panic().downcast_ref::<&str>(), Some(&"on purpose"));
        // With whatever it is, and it can be caught.
        let caught = catch_unwind(|| offload(|| std::panic::panic_any(7_u8)));
        assert_eq!(caught.unwrap_err().downcast_ref::<u8>(), Some(&7));
        assert_eq!(offload(|| 1)?, 1);
        Ok(())
    });
}

pub(crate) fn s37_who_is_over_beforehand_starts_nothing(h: &Harness) {
    let started = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&started);
    h.run(move || {
        let work = move || {
            let count = Arc::clone(&count);
            move || _ = count.fetch_add(1, Ordering::SeqCst)
        };
        let late = timeout(std::time::Duration::ZERO, || {
            [errno(offload(work())), errno(offload_scoped(work()))]
        });
        assert_eq!(late, [ETIMEDOUT; 2]);
        let child = spawn(move || [errno(offload(work())), errno(offload_scoped(work()))]);
        child.cancel();
        assert_eq!(child.join().unwrap(), [ECANCELED; 2]);
        offload(|| ())?; // behind it, if it were there
        sleep(MS)
    });
    assert_eq!(started.load(Ordering::SeqCst), 0);
}

pub(crate) fn s37_many_at_a_time_all_come_back(h: &Harness) {
    h.run(|| {
        let children: Vec<_> = (0..500_u64).map(|n| spawn(move || offload(move || n))).collect();
        let mut sum = 0;
        for child in children {
            sum += child.join().unwrap()?;
        }
        assert_eq!(sum, 499 * 500 / 2);
        Ok(())
    });
}

pub(crate) fn s37_borrowing_work_changes_what_it_borrows(h: &Harness) {
    h.run(|| {
        let mut words = vec!["c", "a", "b"];
        let first: &str = offload_scoped(|| {
            words.sort_unstable();
            words[0] // a result that borrows, too
        })?;
        assert_eq!(first, "a");
        assert_eq!(words, ["a", "b", "c"]);
        Ok(())
    });
}

pub(crate) fn s37_panic_of_borrowing_work_comes_out_of_the_call(h: &Harness) {
    h.run(|| {
        let mut touched = false;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            offload_scoped(|| {
                touched = true;
                panic!("on purpose");
            })
        }));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
        assert!(touched);
        sleep(MS)
    });
}

pub(crate) fn s37_work_may_offload(h: &Harness) {
    h.run(|| {
        let inner = || offload(|| offload_scoped(|| 7));
        assert_eq!(offload(inner)???, 7);
        Ok(())
    });
}

pub(crate) fn s37_callback_is_told_where_to_go(h: &Harness) {
    let refused = Rc::new(Cell::new(0));
    let count = Rc::clone(&refused);
    h.lp.defer(move |_| {
        let calls: [fn() -> io::Result<u8>; 2] = [|| offload(|| 1), || offload_scoped(|| 1)];
        for call in calls {
            let payload = catch_unwind(call).expect_err("it would stop the loop");
            let text = payload.downcast_ref::<String>().expect("a formatted text");
            assert!(text.contains("`spawn` a coroutine"), "{text}");
            count.set(count.get() + 1);
        }
    });
    h.lp.run_until_idle().unwrap();
    assert_eq!(refused.get(), 2);
}

pub(crate) fn s37_wait_inside_no_park_panics_before_anything_starts(h: &Harness) {
    let started = Arc::new(AtomicBool::new(false));
    let (here, there) = (Arc::clone(&started), Arc::clone(&started));
    h.run(move || {
        let set = || here.store(true, Ordering::SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(|| no_park(|| offload_scoped(set)))).is_err());
        let set = move || there.store(true, Ordering::SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(|| no_park(|| offload(set)))).is_err());
        offload(|| ())
    });
    assert!(!started.load(Ordering::SeqCst));
}

pub(crate) fn s37_destructor_of_a_panic_starts_nothing(h: &Harness) {
    struct Offloads(Rc<Cell<[i32; 2]>>);
    impl Drop for Offloads {
        fn drop(&mut self) {
            self.0.set([errno(offload(|| ())), errno(offload_scoped(|| ()))]);
        }
    }
    h.run(|| {
        let seen = Rc::new(Cell::new([0; 2]));
        let offloads = Offloads(Rc::clone(&seen));
        let child = spawn(move || {
            let _offloads = offloads;
            panic!("on purpose");
        });
        assert!(child.join().is_err());
        assert_eq!(seen.get(), [ECANCELED; 2]);
        Ok(())
    });
}

pub(crate) fn s37_plain_thread_simply_runs_it(_: &Harness) {
    let here = thread::current().id();
    assert_eq!(offload(|| thread::current().id()).unwrap(), here);
    assert_eq!(offload_scoped(|| thread::current().id()).unwrap(), here);
}

/// A loop with one worker, which stands before the gate, and room for `limit_queue` more.
fn busy_loop(backend: Backend, overload: Overload, limit_queue: usize) -> (Loop, Gate) {
    let settings = PoolSettings { threads: 1, limit_queue, overload, ..PoolSettings::default() };
    let pool = Pool::new(settings).unwrap();
    let gate = Gate::default();
    let behind = gate.clone();
    assert!(pool.try_run(move || behind.pass()).is_ok());
    gate.await_arrivals(1);
    (Loop::builder().backend(backend).pool(pool).build().unwrap(), gate)
}

pub(crate) fn s37_full_pool_refuses(h: &Harness) {
    let (lp, gate) = busy_loop(h.lp.backend(), Overload::Refuse, 1);
    coracle_coro::run_on(&lp, move || {
        let waits = spawn(|| offload(|| 1));
        yield_now();
        for refused in [offload(|| 2), offload_scoped(|| 2)] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::QuotaExceeded);
            assert!(refused.to_string().contains("limit_queue"), "{refused}");
        }
        gate.open();
        assert_eq!(waits.join().unwrap()?, 1);
        assert_eq!(offload(|| 3)?, 3);
        Ok(())
    })
    .unwrap();
}

pub(crate) fn s37_work_that_the_pool_drops_is_told(h: &Harness) {
    let (lp, gate) = busy_loop(h.lp.backend(), Overload::DropOldest, 1);
    coracle_coro::run_on(&lp, move || {
        let owning = spawn(|| offload(|| 1));
        yield_now();
        let mut number = 0;
        let borrowing = spawn(move || {
            let result = offload_scoped(|| number = 1);
            (result, number)
        });
        yield_now();
        let last = spawn(|| offload(|| 3));
        let first = owning.join().unwrap().unwrap_err();
        assert!(first.to_string().starts_with(&OffloadError::Dropped.to_string()), "{first}");
        let (second, number) = borrowing.join().unwrap();
        assert!(second.unwrap_err().to_string().contains("drop the oldest"));
        assert_eq!(number, 0);
        gate.open();
        assert_eq!(last.join().unwrap()?, 3);
        Ok(())
    })
    .unwrap();
}

/// What work returns, and notes when it is dropped.
struct Parcel(Arc<AtomicBool>);

impl Drop for Parcel {
    fn drop(&mut self) {
        assert!(Loop::current().is_some(), "it comes back to the loop");
        self.0.store(true, Ordering::SeqCst);
    }
}

fn leave_behind(h: &Harness, leave: impl FnOnce(Gate, Arc<AtomicBool>) -> i32 + 'static) {
    h.run(move || {
        let (gate, dropped) = (Gate::default(), Arc::new(AtomicBool::new(false)));
        leave(gate.clone(), Arc::clone(&dropped));
        assert!(!dropped.load(Ordering::SeqCst));
        gate.open();
        while !dropped.load(Ordering::SeqCst) {
            sleep(MS)?;
        }
        Ok(())
    });
}

fn send(gate: &Gate, dropped: Arc<AtomicBool>) -> io::Result<Parcel> {
    let gate = gate.clone();
    offload(move || {
        gate.pass();
        Parcel(dropped)
    })
}

pub(crate) fn s37_cancelled_coroutine_goes_on_without_the_result(h: &Harness) {
    leave_behind(h, |gate, dropped| {
        let behind = gate.clone();
        let child = spawn(move || send(&behind, dropped).err().and_then(|e| e.raw_os_error()));
        gate.await_arrivals(1);
        child.cancel();
        let error = child.join().unwrap();
        assert_eq!(error, Some(ECANCELED));
        ECANCELED
    });
}

pub(crate) fn s37_late_coroutine_goes_on_without_the_result(h: &Harness) {
    leave_behind(h, |gate, dropped| {
        let late = timeout(5 * MS, || send(&gate, dropped)).err().map(|error| error.kind());
        assert_eq!(late, Some(std::io::ErrorKind::TimedOut));
        ETIMEDOUT
    });
}

pub(crate) fn s37_borrowing_work_is_waited_for_whatever_happens(h: &Harness) {
    h.run(|| {
        let gate = Gate::default();
        let behind = gate.clone();
        let child = spawn(move || {
            let mut number = 0;
            let result = timeout(MS, || {
                offload_scoped(|| {
                    behind.pass();
                    number = 7;
                    "done"
                })
            });
            (result, number, errno(park()))
        });
        gate.await_arrivals(1);
        sleep(5 * MS)?; // by now it is late
        child.cancel();
        child.cancel();
        for _ in 0..10 {
            yield_now();
        }
        assert!(!child.is_finished());
        gate.open();
        let (result, number, next) = child.join().unwrap();
        assert_eq!((result?, number, next), ("done", 7, ECANCELED));
        Ok(())
    });
}

pub(crate) fn s37_borrowing_work_may_outlive_its_loop(h: &Harness) {
    // The loop ends while the work runs: the coroutine is leaked, and what the work borrows with it.
    let lp = h.another_loop();
    let gate = Gate::default();
    let (behind, seen) = (gate.clone(), Arc::new(AtomicU32::new(0)));
    let see = Arc::clone(&seen);
    lp.defer(move |_| {
        spawn(move || {
            let number = 7;
            offload_scoped(|| {
                behind.pass();
                see.store(number, Ordering::SeqCst);
            })
        });
    });
    while gate.arrived() == 0 {
        lp.run_ready().unwrap();
    }
    drop(lp);
    gate.open();
    while seen.load(Ordering::SeqCst) == 0 {
        sleep(MS).unwrap();
    }
    assert_eq!(seen.load(Ordering::SeqCst), 7);
}
