//! Timers as futures, and what the crate `futures` makes of them.

use crate::futures::Gate;
use crate::harness::{ETIMEDOUT, HOUR, Harness, Log, MS, errno, now};
use coracle_coro::future::{block_on, interval, sleep, sleep_until, spawn_future, timeout};
use coracle_coro::sync::channel;
use coracle_coro::{spawn, yield_now};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, join, select};
use std::future::pending;
use std::io;

pub(crate) fn g6_sleep_is_never_early(h: &Harness) {
    h.run(|| {
        let future = spawn_future(async {
            let begin = now();
            sleep(5 * MS).await;
            now() - begin
        });
        assert!(future.join()? >= 5 * MS);
        let passed = now();
        block_on(sleep_until(passed)) // at once
    });
}

pub(crate) fn g6_dropped_sleep_leaves_no_timer(h: &Harness) {
    h.run(|| {
        let sleeping = spawn_future(sleep(HOUR));
        yield_now();
        assert!(Loop::current().unwrap().dump().contains("1 timers"));
        sleeping.cancel();
        sleeping.join().unwrap_err();
        assert!(Loop::current().unwrap().dump().contains("0 timers"));
        Ok(())
    });
}

pub(crate) fn g6_timeout_drops_the_future(h: &Harness) {
    h.run(|| {
        let log = Log::default();
        let noted = crate::harness::Noted(log.clone(), "dropped");
        let late = spawn_future(timeout(MS, async move {
            let _noted = noted;
            pending::<()>().await;
        }));
        assert_eq!(errno(late.join()?), ETIMEDOUT);
        assert_eq!(log.take(), ["dropped"]);
        assert_eq!(block_on(timeout(HOUR, async { 7 }))??, 7);
        // Ready and late at the same moment is ready.
        assert_eq!(block_on(timeout(std::time::Duration::ZERO, async { 7 }))??, 7);
        Ok(())
    });
}

pub(crate) fn g6_interval_keeps_to_its_grid(h: &Harness) {
    h.run(|| {
        let begin = now();
        let ticks = block_on(async {
            let mut ticks = interval(2 * MS);
            let first = ticks.tick().await;
            drop(Box::pin(ticks.tick())); // misses nothing
            [first, ticks.tick().await, ticks.tick().await]
        })?;
        assert!(now() - begin >= 6 * MS);
        let grid = ticks.map(|tick| tick.duration_since(ticks[0]).as_nanos() % 2_000_000);
        assert_eq!(grid, [0; 3]);
        assert!(ticks.is_sorted());
        Ok(())
    });
}

pub(crate) fn g6_sleep_is_exact(h: &Harness) {
    h.run(|| {
        let begin = now();
        block_on(sleep(HOUR))?;
        assert_eq!(now() - begin, HOUR);
        let late = block_on(timeout(HOUR, sleep(2 * HOUR)))?;
        assert_eq!(errno(late), ETIMEDOUT);
        assert_eq!(now() - begin, 2 * HOUR);
        // Who was away for some periods has them left out.
        let mut ticks = interval(MS);
        block_on(sleep(10 * MS))?;
        let first = block_on(ticks.tick())?;
        let second = block_on(ticks.tick())?;
        assert_eq!(second - first, 10 * MS);
        Ok(())
    });
}

pub(crate) fn g6_block_on_keeps_the_time_of_a_plain_thread(_: &Harness) {
    use std::time::{Duration, Instant};
    let begin = Instant::now();
    let order = block_on(async {
        let mut all: FuturesUnordered<_> = [3u32, 1, 2]
            .into_iter()
            .map(|n| async move {
                sleep(n * 3 * MS).await;
                n
            })
            .collect();
        let mut order = Vec::new();
        while let Some(n) = all.next().await {
            order.push(n);
        }
        order.sort_unstable(); // a slow machine may find all of them due at once
        order
    });
    assert_eq!(order.unwrap(), [1, 2, 3]);
    assert!(begin.elapsed() >= 9 * MS);
    // Its own limit, one around it, and a sleep that nobody waits for any more.
    assert_eq!(errno(block_on(timeout(MS, pending::<()>())).unwrap()), ETIMEDOUT);
    let late = coracle_coro::timeout(MS, || block_on(sleep(HOUR)));
    assert_eq!(errno(late), ETIMEDOUT);
    block_on(sleep(Duration::ZERO)).unwrap();
    let other = std::panic::catch_unwind(|| futures::executor::block_on(sleep(HOUR)));
    assert!(other.is_err(), "nobody would keep the time");
}

// --- Futures of others ---------------------------------------------------------------------------------------

pub(crate) fn g6_join_and_select_of_the_crate_futures(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(1);
        let worker = spawn(|| {
            coracle_coro::sleep(MS).unwrap();
            3
        });
        let joined = spawn_future(async move {
            let (one, two, three) = join!(
                async { receiver.recv_async().await.unwrap() },
                async {
                    sleep(2 * MS).await;
                    2
                },
                worker,
            );
            [one, two, three.unwrap()]
        });
        sender.send(1).unwrap();
        assert_eq!(joined.join()?, [1, 2, 3]);

        let chosen = spawn_future(async {
            select! {
                () = sleep(HOUR).fuse() => "the slow one",
                () = sleep(MS).fuse() => "the fast one",
            }
        });
        assert_eq!(chosen.join()?, "the fast one");
        Ok(())
    });
}

pub(crate) fn g6_futures_unordered_of_the_crate_futures(h: &Harness) {
    h.run(|| {
        let order = spawn_future(async {
            let mut all: FuturesUnordered<_> = [3u32, 1, 2]
                .into_iter()
                .map(|n| async move {
                    sleep(n * 5 * MS).await;
                    n
                })
                .collect();
            let mut order = Vec::new();
            while let Some(n) = all.next().await {
                order.push(n);
            }
            if Loop::current().unwrap().backend() != Backend::Sim {
                order.sort_unstable(); // a slow machine may find all of them due at once
            }
            order
        });
        assert_eq!(order.join()?, [1, 2, 3]);

        // Its wakers work from other threads, too.
        let (sender, receiver) = channel(0);
        let thread = std::thread::spawn(move || (0..30u32).for_each(|n| sender.send(n).unwrap()));
        let sum = block_on(async {
            let all: FuturesUnordered<_> =
                (0..30).map(|_| async { receiver.recv_async().await.unwrap() }).collect();
            all.fold(0, |sum, n| async move { sum + n }).await
        })?;
        assert_eq!(sum, 435);
        thread.join().unwrap();
        Ok(())
    });
}

pub(crate) fn g6_other_executors_await_our_channels(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(0);
        let thread = std::thread::spawn(move || {
            futures::executor::block_on(async {
                let mut sum = 0;
                while let Ok(n) = receiver.recv_async().await {
                    sum += n;
                }
                sum
            })
        });
        (1..=10).for_each(|n| sender.send(n).unwrap());
        drop(sender);
        assert_eq!(thread.join().unwrap(), 55);
        Ok(())
    });
}

// --- The three styles ----------------------------------------------------------------------------------------

pub(crate) fn g7_callback_coroutine_and_future_take_over_from_each_other(h: &Harness) {
    h.run(|| {
        let log = Log::default();
        let (done, finished) = channel(1);
        let lp = Loop::current().unwrap();
        let thread = std::thread::current().id();
        let noted = log.clone();
        let (to_future, from_coroutine) = channel::<u32>(0);
        lp.after(MS, move |_| {
            noted.add("callback");
            let (log, done) = (noted.clone(), done.clone());
            let (to_future, from_coroutine) = (to_future.clone(), from_coroutine.clone());
            spawn(move || -> io::Result<()> {
                log.add("coroutine");
                let gate = Gate::default();
                let opening = gate.clone();
                let inner = log.clone();
                let future = spawn_future(async move {
                    inner.add("future");
                    let n = from_coroutine.recv_async().await.unwrap();
                    let doubling = spawn(move || n * 2);
                    let doubled = doubling.await.unwrap();
                    gate.passed().await; // a callback opens it
                    assert_eq!(std::thread::current().id(), thread);
                    doubled
                });
                to_future.send(21).unwrap();
                Loop::current().unwrap().after(MS, move |_| opening.open());
                let answer = future.join()?;
                log.add("coroutine again");
                done.send(answer).unwrap();
                Ok(())
            });
        });
        assert_eq!(finished.recv().unwrap(), 42);
        assert_eq!(log.take(), ["callback", "coroutine", "future", "coroutine again"]);
        Ok(())
    });
}
