//! Several loops that are one run.

use crate::harness::{ECANCELED, HOUR, Harness, MS, errno, make_loop};
use coracle_coro::future::{self, spawn_future, spawn_future_on};
use coracle_coro::sync::{Barrier, OnceLock, channel};
use coracle_coro::{
    Builder, Runtime, SpawnOn, loops, park, sleep, spawn, spawn_anywhere, spawn_on, yield_now,
};
use coracle_loop::demux::Processors;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

fn runtime(h: &Harness, loops: usize) -> Runtime {
    let backend = h.lp.backend();
    Runtime::new().loops(loops).make_loops(move |index| make_loop(backend, index as u64))
}

/// Goes from loop to loop, as a new coroutine on each.
fn hop(left: usize, hops: &Arc<AtomicUsize>) {
    hops.fetch_add(1, Ordering::SeqCst);
    if left > 0 {
        let loops = loops();
        let hops = Arc::clone(hops);
        spawn_on(&loops[left % loops.len()], move || hop(left - 1, &hops)).unwrap();
    }
}

pub(crate) fn s38_run_ends_when_the_coroutines_of_all_loops_are_over(h: &Harness) {
    let hops = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&hops);
    let answer = runtime(h, 3).run(move || {
        for _ in 0..3 {
            hop(199, &shared);
        }
        Ok("main is over long before")
    });
    assert_eq!(answer.unwrap(), "main is over long before");
    assert_eq!(hops.load(Ordering::SeqCst), 600);
}

pub(crate) fn s38_loops_wait_for_each_other(h: &Harness) {
    let ended = runtime(h, 3).run(|| {
        let barrier = Arc::new(Barrier::new(3));
        let names = loops().into_iter().map(|handle| {
            let barrier = Arc::clone(&barrier);
            handle.spawn(move || {
                for _ in 0..50 {
                    barrier.wait().unwrap();
                }
                thread::current().id()
            })
        });
        let names: Vec<_> = names.collect::<io::Result<_>>()?;
        let mut ids: Vec<_> = names.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(ids[0], thread::current().id(), "the first loop is the caller's");
        ids.dedup();
        assert_eq!(ids.len(), 3);
        Ok(())
    });
    ended.unwrap();
}

pub(crate) fn s38_error_and_panic_of_main_leave_run(h: &Harness) {
    let ended: io::Result<()> = runtime(h, 2).run(|| {
        spawn_on(&loops()[1], || sleep(MS))?;
        Err(io::Error::other("on purpose"))
    });
    assert_eq!(ended.unwrap_err().to_string(), "on purpose");
    let two = runtime(h, 2);
    let panicking = || two.run(|| -> io::Result<()> { panic!("on purpose") });
    let payload = catch_unwind(AssertUnwindSafe(panicking)).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
}

pub(crate) fn s38_stop_of_one_loop_cancels_the_coroutines_of_all(h: &Harness) {
    for stopped in 0..3 {
        let errors = runtime(h, 3).run(move || {
            let parked: Vec<_> = loops().iter().map(|lp| spawn_on(lp, park).unwrap()).collect();
            let errors =
                spawn(move || parked.into_iter().map(|one| one.join()).collect::<Vec<_>>().len());
            sleep(MS)?;
            loops()[stopped].stop();
            let own = errno(park());
            // Those who join are cancelled, too; those who parked were waited for by `run`.
            Ok((own, errors.join().is_ok()))
        });
        assert_eq!(errors.unwrap().0, ECANCELED);
    }
}

pub(crate) fn s38_anywhere_is_where_the_fewest_are(h: &Harness) {
    let spread = runtime(h, 4).run(|| {
        let go = Arc::new(OnceLock::new());
        let placed: Vec<_> = (0..40)
            .map(|_| {
                let go = Arc::clone(&go);
                spawn_anywhere(move || {
                    go.wait().unwrap();
                    thread::current().id()
                })
            })
            .collect::<io::Result<_>>()?;
        let named =
            Builder::new().name("placed").spawn_anywhere(|| coracle_coro::current().to_string())?;
        assert_eq!(named.join().unwrap(), "'placed'");
        go.set(()).unwrap();
        let mut spread = BTreeMap::new();
        for one in placed {
            *spread.entry(format!("{:?}", one.join().unwrap())).or_insert(0) += 1;
        }
        Ok(spread)
    });
    let spread: Vec<u32> = spread.unwrap().into_values().collect();
    assert_eq!(spread.iter().sum::<u32>(), 40);
    // With the first coroutine there are 41 on four loops.
    assert!(spread.len() == 4 && spread.iter().all(|count| (9..=11).contains(count)), "{spread:?}");
}

pub(crate) fn s38_anywhere_on_one_loop_is_here(h: &Harness) {
    h.run(|| {
        let here = thread::current().id();
        let there = spawn_anywhere(|| thread::current().id())?;
        assert_eq!(there.join().unwrap(), here);
        assert_eq!(loops().len(), 1);
        Ok(())
    });
    let refused = spawn_anywhere(|| ()).unwrap_err();
    assert!(refused.to_string().contains("`spawn_on`"), "{refused}");
    assert!(loops().is_empty());
}

pub(crate) fn s38_loop_that_cannot_be_made_is_an_error(h: &Harness) {
    let backend = h.lp.backend();
    let made = Runtime::new().loops(3).make_loops(move |index| match index {
        2 => Err(io::Error::other("on purpose")),
        _ => make_loop(backend, index as u64),
    });
    assert_eq!(made.run(|| Ok(())).unwrap_err().to_string(), "on purpose");
    let none = runtime(h, 0).run(|| Ok(()));
    assert_eq!(none.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(runtime(h, 1).run(|| Ok(loops().len())).unwrap(), 1);
}

pub(crate) fn s38_panic_of_a_callback_ends_the_run(h: &Harness) {
    for careless in [0, 1] {
        let two = runtime(h, 2);
        let panicking = move || {
            two.run(move || {
                loops()[careless].post(|_| panic!("on purpose"))?;
                yield_now();
                sleep(HOUR)
            })
        };
        let payload = catch_unwind(AssertUnwindSafe(panicking)).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
    }
}

pub(crate) fn s41_every_loop_has_a_processor_of_its_own(h: &Harness) {
    let before = Processors::of_this_thread().unwrap();
    let all = before.numbers();
    let pinned = runtime(h, 2).pin_threads(true).run(|| {
        let numbers = || Processors::of_this_thread().unwrap().numbers();
        let other = spawn_on(&loops()[1], numbers)?;
        Ok([numbers(), other.join().unwrap()])
    });
    assert_eq!(pinned.unwrap(), [vec![all[0]], vec![all[1 % all.len()]]]);
    assert_eq!(Processors::of_this_thread().unwrap(), before);
    let free = runtime(h, 2).run(|| Ok(Processors::of_this_thread().unwrap()));
    assert_eq!(free.unwrap(), before);
}

/// As [`hop`], as a new future on each.
fn hop_as_future(left: usize, hops: &Arc<AtomicUsize>) {
    hops.fetch_add(1, Ordering::SeqCst);
    if left > 0 {
        let loops = loops();
        let hops = Arc::clone(hops);
        let next = async move { hop_as_future(left - 1, &hops) };
        drop(spawn_future_on(&loops[left % loops.len()], next).unwrap());
    }
}

pub(crate) fn g6_run_ends_when_the_futures_of_all_loops_are_over(h: &Harness) {
    let hops = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&hops);
    let answer = runtime(h, 3).run(move || {
        for _ in 0..3 {
            hop_as_future(199, &shared);
        }
        let sleeping = Arc::clone(&shared);
        let late = async move {
            drop(spawn_future(async move {
                future::sleep(2 * MS).await; // its loop has no coroutine
                sleeping.fetch_add(1, Ordering::SeqCst);
            }));
        };
        drop(spawn_future_on(&loops()[2], late)?);
        Ok("main is over long before")
    });
    assert_eq!(answer.unwrap(), "main is over long before");
    assert_eq!(hops.load(Ordering::SeqCst), 601);
}

pub(crate) fn g6_stop_of_one_loop_cancels_the_futures_of_all(h: &Harness) {
    for stopped in 0..3 {
        let handles = runtime(h, 3).run(move || {
            let pending = |handle| spawn_future_on(handle, std::future::pending::<()>());
            let handles: Vec<_> = loops().iter().map(pending).collect::<io::Result<_>>()?;
            loops()[stopped].stop();
            Ok(handles)
        });
        for handle in handles.unwrap() {
            assert!(matches!(handle.join(), Err(future::FutureError::Cancelled)));
        }
    }
}

pub(crate) fn g6_futures_and_coroutines_of_several_loops_pass_messages(h: &Harness) {
    const ROUNDS: u32 = 100;
    let ended = runtime(h, 3).run(|| {
        let (to, from) = channel(1);
        let (back, answers) = channel(1);
        let echo = async move {
            while let Ok(n) = from.recv_async().await {
                back.send_async(n + 1).await.expect("somebody waits");
            }
        };
        let echo = spawn_future_on(&loops()[1], echo)?;
        let asking = spawn_on(&loops()[2], move || {
            (0..ROUNDS).fold(0, |n, _| {
                to.send(n).unwrap();
                answers.recv().unwrap()
            })
        })?;
        let asked = spawn_future(asking); // a handle is a future
        assert_eq!(asked.join()?.unwrap(), ROUNDS);
        Ok(echo.join()?)
    });
    ended.unwrap();
}
