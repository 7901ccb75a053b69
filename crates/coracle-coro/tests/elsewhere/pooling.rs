//! Row S55: connections that are kept, and those who wait for one.

use crate::harness::{ECANCELED, ETIMEDOUT, HOUR, Harness, Log, MS, errno};
use coracle_coro::conn_pool::{ConnPool, ConnPoolSettings, PooledConn};
use coracle_coro::{current, park, park_timeout, scope, sleep, spawn, timeout, yield_now};
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Connections with numbers, and how many are open.
#[derive(Clone, Default)]
struct Place {
    opened: Arc<AtomicU32>,
    open: Arc<AtomicU32>,
    open_max: Arc<AtomicU32>,
}

struct Conn {
    number: u32,
    open: Arc<AtomicU32>,
}

impl Place {
    fn connect(&self) -> Conn {
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.open_max.fetch_max(open, Ordering::SeqCst);
        let number = self.opened.fetch_add(1, Ordering::SeqCst) + 1;
        Conn { number, open: Arc::clone(&self.open) }
    }

    fn open(&self) -> u32 {
        self.open.load(Ordering::SeqCst)
    }

    fn pool(&self, settings: ConnPoolSettings) -> ConnPool<Conn> {
        let place = self.clone();
        ConnPool::new(settings, move || Ok(place.connect())).unwrap()
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

fn limit(limit_connections: usize) -> ConnPoolSettings {
    ConnPoolSettings { limit_connections, ..ConnPoolSettings::default() }
}

/// The number of the connection that comes next.
fn next(pool: &ConnPool<Conn>) -> u32 {
    pool.get().unwrap().number
}

pub(crate) fn s55_connection_is_used_again(h: &Harness) {
    h.run(|| {
        let place = Place::default();
        let pool = place.pool(limit(2));
        assert_eq!([next(&pool), next(&pool), next(&pool)], [1, 1, 1]);
        let held = pool.get()?;
        assert_eq!((held.number, next(&pool)), (1, 2));
        let stats = pool.stats();
        assert_eq!((stats.opened, stats.reused, stats.in_use, stats.idle), (2, 3, 1, 1));
        held.discard();
        assert_eq!(place.open(), 1);
        drop(pool);
        assert_eq!(place.open(), 0);
        Ok(())
    });
}

pub(crate) fn s55_last_used_is_used_first(h: &Harness) {
    h.run(|| {
        let pool = Place::default().pool(limit(3));
        let [one, two, three] = [pool.get()?, pool.get()?, pool.get()?];
        drop((two, three, one));
        assert_eq!([next(&pool), next(&pool)], [1, 1]);
        Ok(())
    });
}

pub(crate) fn s55_waiters_are_served_in_order(h: &Harness) {
    h.run(|| {
        let pool = Place::default().pool(limit(1));
        let log = Log::default();
        let held = pool.get()?;
        let children = ["a", "b", "c"].map(|name| {
            let (pool, log) = (pool.clone(), log.clone());
            spawn(move || {
                let held = pool.get().unwrap();
                log.add(name);
                yield_now();
                held.number
            })
        });
        yield_now();
        assert_eq!(pool.stats().waiting, 3);
        drop(held);
        assert!(pool.stats().waiting > 0, "it was given to somebody");
        assert_eq!(next(&pool), 1, "behind them");
        assert_eq!(log.take(), ["a", "b", "c"]);
        for child in children {
            assert_eq!(child.join().unwrap(), 1);
        }
        Ok(())
    });
}

pub(crate) fn s55_waiter_that_gives_up_leaves_the_line(h: &Harness) {
    h.run(|| {
        let pool = Place::default().pool(limit(1));
        let held = pool.get()?;
        assert_eq!(errno(timeout(MS, || pool.get())), ETIMEDOUT);
        let get = || {
            let pool = pool.clone();
            spawn(move || pool.get().map(|held| held.number))
        };
        let [cancelled, patient] = [get(), get()];
        yield_now();
        cancelled.cancel();
        assert_eq!(errno(cancelled.join().unwrap()), ECANCELED);
        assert_eq!(pool.stats().waiting, 1);
        // Our own waits failed meanwhile, so this one is not used again.
        drop(held);
        assert_eq!(patient.join().unwrap()?, 2);
        assert_eq!((pool.stats().waiting, pool.stats().in_use), (0, 0));
        Ok(())
    });
}

pub(crate) fn s55_limit_is_never_passed(h: &Harness) {
    h.run(|| {
        let place = Place::default();
        let pool = place.pool(ConnPoolSettings { limit_idle: 1, ..limit(3) });
        let children: Vec<_> = (0..60)
            .map(|n| {
                let pool = pool.clone();
                spawn(move || -> io::Result<()> {
                    for round in 0..5 {
                        let held = pool.get()?;
                        yield_now();
                        match (n + round) % 4 {
                            0 => held.discard(),
                            1 => drop(timeout(Duration::ZERO, park)),
                            2 => sleep(MS)?,
                            _ => {}
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        for child in children {
            child.join().unwrap()?;
        }
        assert_eq!(place.open_max.load(Ordering::SeqCst), 3);
        assert_eq!((pool.stats().in_use, pool.stats().waiting), (0, 0));
        assert!(place.open() <= 1);
        Ok(())
    });
}

pub(crate) fn s55_no_more_than_the_limit_are_kept_idle(h: &Harness) {
    h.run(|| {
        let place = Place::default();
        let pool = place.pool(ConnPoolSettings { limit_idle: 2, ..limit(5) });
        let held: Vec<PooledConn<Conn>> = (0..5).map(|_| pool.get().unwrap()).collect();
        assert_eq!(place.open(), 5);
        drop(held);
        assert_eq!((place.open(), pool.stats().idle), (2, 2));
        Ok(())
    });
}

pub(crate) fn s55_unhealthy_one_is_not_handed_out(h: &Harness) {
    h.run(|| {
        let place = Place::default();
        let healthy = Arc::new(AtomicBool::new(true));
        let (connects, checks) = (place.clone(), Arc::clone(&healthy));
        let check = move |conn: &mut Conn| {
            sleep(MS).unwrap(); // it may wait
            conn.number > 2 || checks.load(Ordering::SeqCst)
        };
        let pool = ConnPool::with_check(limit(2), move || Ok(connects.connect()), check)?;
        let both = (pool.get()?, pool.get()?);
        drop(both);
        assert_eq!(next(&pool), 2, "the last used is well");
        healthy.store(false, Ordering::SeqCst);
        assert_eq!(next(&pool), 3);
        assert_eq!((place.open(), pool.stats().unhealthy), (1, 2));
        Ok(())
    });
}

pub(crate) fn s55_check_that_is_cancelled_spoils_one_connection_only(h: &Harness) {
    h.run(|| {
        let place = Place::default();
        let connects = place.clone();
        let check = |_: &mut Conn| sleep(MS).is_ok();
        let pool = ConnPool::with_check(limit(4), move || Ok(connects.connect()), check)?;
        let all: Vec<_> = (0..4).map(|_| pool.get().unwrap()).collect();
        drop(all);
        let asks = pool.clone();
        let child = spawn(move || errno(asks.get().map(|held| held.number)));
        child.cancel();
        assert_eq!(child.join().unwrap(), ECANCELED);
        assert_eq!((place.open(), pool.stats().idle), (3, 3));
        assert_eq!(
            errno(timeout(Duration::ZERO, || pool.get().map(|held| held.number))),
            ETIMEDOUT
        );
        assert_eq!((place.open(), pool.stats().in_use), (2, 0));
        Ok(())
    });
}

pub(crate) fn s55_expired_one_is_not_handed_out(h: &Harness) {
    h.run(|| {
        let place = Place::default();
        let pool = place.pool(ConnPoolSettings { idle_timeout: MS, ..limit(2) });
        drop((pool.get()?, pool.get()?));
        sleep(2 * MS)?;
        assert_eq!(next(&pool), 3);
        assert_eq!(pool.stats().expired, 2);
        sleep(2 * MS)?;
        assert_eq!((pool.close_idle(), place.open()), (1, 0));
        Ok(())
    });
}

pub(crate) fn s55_idle_time_is_exact(h: &Harness) {
    h.run(|| {
        let pool = Place::default().pool(limit(1));
        assert_eq!(next(&pool), 1);
        sleep(Duration::from_secs(60) - MS)?;
        assert_eq!(next(&pool), 1);
        sleep(Duration::from_secs(60))?;
        assert_eq!(next(&pool), 2);
        Ok(())
    });
}

pub(crate) fn s55_connection_of_a_late_call_is_not_used_again(h: &Harness) {
    h.run(|| {
        let place = Place::default();
        let pool = place.pool(limit(1));
        let held = pool.get()?;
        // As if it waited for an answer; by now nothing says any more that there was a deadline.
        assert_eq!(errno(timeout(MS, park)), ETIMEDOUT);
        drop(held);
        assert_eq!((place.open(), pool.stats().discarded), (0, 1));
        assert_eq!([next(&pool), next(&pool)], [2, 2]);
        Ok(())
    });
}

pub(crate) fn s55_connection_of_a_cancelled_call_is_not_used_again(h: &Harness) {
    h.run(|| {
        let place = Place::default();
        let pool = place.pool(limit(1));
        let gets = pool.clone();
        let child = spawn(move || -> io::Result<()> {
            let _held = gets.get()?;
            park()
        });
        yield_now();
        child.cancel();
        assert_eq!(errno(child.join().unwrap()), ECANCELED);
        assert_eq!((place.open(), next(&pool)), (0, 2));

        // Even if no wait has told it yet.
        let gets = pool.clone();
        let child = spawn(move || drop(gets.get().unwrap()));
        child.cancel();
        child.join().unwrap();
        assert_eq!(next(&pool), 3);
        Ok(())
    });
}

pub(crate) fn s55_connection_of_a_panic_is_not_used_again(h: &Harness) {
    h.run(|| {
        let pool = Place::default().pool(limit(1));
        let gets = pool.clone();
        let child = spawn(move || {
            let _held = gets.get().unwrap();
            panic!("on purpose");
        });
        assert!(child.join().is_err());
        assert_eq!(next(&pool), 2);
        Ok(())
    });
}

pub(crate) fn s55_connection_that_another_used_is_not_used_again(h: &Harness) {
    h.run(|| {
        let pool = Place::default().pool(limit(1));
        let mut held = pool.get()?;
        let seen = Cell::new(0);
        scope(|scope| {
            let (held, seen) = (&mut held, &seen);
            scope.spawn(move || {
                seen.set(held.number); // what happens to this child is not known to the pool
                Ok(())
            });
            Ok(())
        })?;
        drop(held);
        assert_eq!((seen.get(), next(&pool)), (1, 2));

        let held = pool.get()?;
        spawn(move || drop(held)).join().unwrap();
        assert_eq!(next(&pool), 3);
        Ok(())
    });
}

pub(crate) fn s55_sleep_does_no_harm(h: &Harness) {
    h.run(|| {
        let pool = Place::default().pool(limit(1));
        let held = pool.get()?;
        sleep(MS)?;
        park_timeout(MS)?;
        current().unpark();
        park()?;
        timeout(HOUR, || sleep(MS))?;
        drop(held);
        assert_eq!(next(&pool), 1);
        // But one that was cut short does.
        let held = pool.get()?;
        assert_eq!(errno(timeout(MS, || sleep(HOUR))), ETIMEDOUT);
        drop(held);
        assert_eq!(next(&pool), 2);
        Ok(())
    });
}

pub(crate) fn s55_error_while_connecting_loses_no_slot(h: &Harness) {
    h.run(|| {
        let tries = AtomicU32::new(0);
        let connect = move || match tries.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Err(io::Error::from(ErrorKind::ConnectionRefused)),
            number => Ok(number),
        };
        let pool = ConnPool::new(limit(1), connect)?;
        for _ in 0..2 {
            assert_eq!(pool.get().unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
        assert_eq!(*pool.get()?, 2);
        assert_eq!(pool.stats().in_use, 0);
        Ok(())
    });
}

pub(crate) fn s55_panic_while_connecting_loses_no_slot(h: &Harness) {
    h.run(|| {
        let tries = AtomicU32::new(0);
        let connect = move || match tries.fetch_add(1, Ordering::SeqCst) {
            0 => panic!("on purpose"),
            number => Ok(number),
        };
        let check = |number: &mut u32| if *number == 1 { panic!("on purpose") } else { true };
        let pool = ConnPool::with_check(limit(1), connect, check)?;
        let gets = pool.clone();
        assert!(spawn(move || gets.get().map(drop)).join().is_err(), "connecting panics");
        assert_eq!(*pool.get()?, 1);
        let gets = pool.clone();
        assert!(spawn(move || gets.get().map(drop)).join().is_err(), "the check does");
        assert_eq!(*pool.get()?, 2);
        assert_eq!(pool.stats().in_use, 0);
        Ok(())
    });
}

pub(crate) fn s55_panic_while_closing_loses_no_slot(h: &Harness) {
    struct Careless;
    impl Drop for Careless {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    h.run(|| {
        let pool = ConnPool::new(limit(1), || Ok(Careless))?;
        for _ in 0..2 {
            let held = pool.get()?;
            assert!(catch_unwind(AssertUnwindSafe(|| held.discard())).is_err());
        }
        assert_eq!(pool.stats().in_use, 0);
        Ok(())
    });
}

pub(crate) fn s55_close_ends_the_waits(h: &Harness) {
    h.run(|| {
        let place = Place::default();
        let pool = place.pool(limit(2));
        let held = pool.get()?;
        drop(pool.get()?);
        let other = pool.get()?;
        let get = || {
            let pool = pool.clone();
            spawn(move || pool.get().map(|held| held.number))
        };
        let children = [get(), get(), get()];
        drop(other);
        let children = children.map(|child| child.join().unwrap()); // one after the other
        assert!(children.iter().all(Result::is_ok));

        let other = pool.get()?;
        let children = [get(), get(), get()];
        yield_now();
        pool.close();
        pool.close();
        for child in children {
            assert_eq!(child.join().unwrap().unwrap_err().kind(), ErrorKind::BrokenPipe);
        }
        assert_eq!(pool.get().unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(place.open(), 2);
        drop((held, other));
        assert_eq!(place.open(), 0, "they are closed when they come back");
        Ok(())
    });
}

pub(crate) fn s55_too_many_waiters_are_refused(h: &Harness) {
    h.run(|| {
        let pool = Place::default().pool(ConnPoolSettings { limit_waiters: 1, ..limit(1) });
        let held = pool.get()?;
        let gets = pool.clone();
        let child = spawn(move || gets.get().map(|held| held.number));
        yield_now();
        let refused = pool.get().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::QuotaExceeded);
        assert!(refused.to_string().contains("limit_waiters"), "{refused}");
        assert_eq!(pool.stats().refused, 1);
        drop(held);
        assert_eq!(child.join().unwrap()?, 1);
        Ok(())
    });
}

pub(crate) fn s55_pool_that_could_have_no_connection_is_refused(_: &Harness) {
    let error = ConnPool::new(limit(0), || Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

pub(crate) fn s55_threads_and_coroutines_share_a_pool(h: &Harness) {
    h.run(|| {
        let place = Place::default();
        let pool = place.pool(limit(2));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let pool = pool.clone();
                std::thread::spawn(move || {
                    for _ in 0..200 {
                        let _held = pool.get().unwrap();
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        let rounds = Rc::new(Cell::new(0));
        let children = [(); 3].map(|()| {
            let (pool, rounds) = (pool.clone(), Rc::clone(&rounds));
            spawn(move || {
                for _ in 0..200 {
                    let _held = pool.get().unwrap();
                    rounds.set(rounds.get() + 1);
                    yield_now();
                }
            })
        });
        for child in children {
            child.join().unwrap();
        }
        for thread in threads {
            while !thread.is_finished() {
                sleep(MS)?;
            }
            thread.join().unwrap();
        }
        assert_eq!((rounds.get(), pool.stats().in_use), (600, 0));
        assert!(place.open_max.load(Ordering::SeqCst) <= 2);
        Ok(())
    });
}
