//! Every call of `sync` that waits, and what may happen to it: cancelled, too late, in the wrong place. Nothing
//! that was meant for one who does not get it is lost.

use crate::harness::{ECANCELED, ETIMEDOUT, HOUR, Harness, MS, errno, now};
use coracle_coro::sync::{
    Barrier, Condvar, Mutex, Once, OnceLock, RecvError, RecvTimeoutError, RwLock, Select,
    Semaphore, SendError, SendTimeoutError, WaitGroup, after, channel,
};
use coracle_coro::{Coroutine, no_park, park, select, sleep, spawn, timeout, yield_now};
use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// A call that waits, until somebody does what it waits for.
struct Blocked {
    name: &'static str,
    wait: Rc<dyn Fn() -> io::Result<()>>,
    /// Lets one of those who wait go on, or all.
    open: Box<dyn Fn()>,
}

fn blocked(
    name: &'static str,
    wait: impl Fn() -> io::Result<()> + 'static,
    open: impl Fn() + 'static,
) -> Blocked {
    Blocked { name, wait: Rc::new(wait), open: Box::new(open) }
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn every_blocking_call() -> Vec<Blocked> {
    let mut all = vec![lock(), try_lock_for(), read(), write(), condvar(), semaphore()];
    all.extend([once(), once_lock(), wait_group(), recv(), send(), rendezvous(), dynamic()]);
    all.extend([macro_()]);
    all
}

fn lock() -> Blocked {
    let mutex = leak(Mutex::new(()));
    let guard = RefCell::new(mutex.try_lock());
    blocked("lock", || mutex.lock().map(drop), move || drop(guard.take()))
}

fn try_lock_for() -> Blocked {
    let mutex = leak(Mutex::new(()));
    let guard = RefCell::new(mutex.try_lock());
    blocked("try_lock_for", || mutex.try_lock_for(HOUR).map(drop), move || drop(guard.take()))
}

fn read() -> Blocked {
    let lock = leak(RwLock::new(()));
    let guard = RefCell::new(lock.try_write());
    blocked("read", || lock.read().map(drop), move || drop(guard.take()))
}

fn write() -> Blocked {
    let lock = leak(RwLock::new(()));
    let guard = RefCell::new(lock.try_read());
    blocked("write", || lock.write().map(drop), move || drop(guard.take()))
}

fn condvar() -> Blocked {
    let (mutex, changed) = (leak(Mutex::new(())), leak(Condvar::new()));
    let wait = || changed.wait(mutex.lock()?).map(drop);
    blocked("Condvar::wait", wait, || changed.notify_one())
}

fn semaphore() -> Blocked {
    let semaphore = leak(Semaphore::new(0));
    blocked("acquire", || semaphore.acquire(1).map(drop), || semaphore.add_permits(1))
}

fn once() -> Blocked {
    let once = leak(Once::new());
    let maker: Coroutine = spawn(|| once.call_once(|| park().unwrap())).coroutine().clone();
    yield_now();
    let call = || once.call_once(|| unreachable!("the maker does it"));
    let open = move || {
        maker.unpark();
        yield_now();
    };
    blocked("call_once", call, open)
}

fn once_lock() -> Blocked {
    let once = leak(OnceLock::new());
    blocked("OnceLock::wait", || once.wait().copied(), || _ = once.set(()))
}

fn wait_group() -> Blocked {
    let group = leak(WaitGroup::new());
    let member = RefCell::new(Some(group.add()));
    blocked("WaitGroup::wait", || group.wait(), move || drop(member.take()))
}

fn recv() -> Blocked {
    let (sender, receiver) = leak(channel(3));
    blocked("recv", || Ok(receiver.recv()?), || sender.try_send(()).unwrap())
}

fn send() -> Blocked {
    let (sender, receiver) = leak(channel(1));
    sender.try_send(()).unwrap();
    blocked("send", || Ok(sender.send(())?), || receiver.try_recv().unwrap())
}

fn rendezvous() -> Blocked {
    let (sender, receiver) = leak(channel(0));
    blocked("send from hand to hand", || Ok(sender.send(())?), || _ = receiver.try_recv())
}

fn dynamic() -> Blocked {
    let (sender, receiver) = leak(channel(3));
    let wait = || {
        let mut arm = receiver.receiving();
        let mut select = Select::new();
        select.arm(&mut arm);
        select.wait().map(|chosen| assert_eq!(chosen, 0))
    };
    blocked("Select::wait", wait, || sender.try_send(()).unwrap())
}

fn macro_() -> Blocked {
    let (sender, receiver) = leak(channel(3));
    let wait = move || {
        select! {
            message = receiver => Ok(message?),
            () = after(HOUR) => unreachable!("nobody waits so long"),
        }
    };
    blocked("select!", wait, || sender.try_send(()).unwrap())
}

/// Two who wait, the first of them longer.
fn two(blocked: &Blocked) -> [coracle_coro::JoinHandle<io::Result<()>>; 2] {
    let children = [(), ()].map(|()| {
        let wait = Rc::clone(&blocked.wait);
        spawn(move || wait())
    });
    yield_now();
    children
}

pub(crate) fn s10_what_was_meant_for_a_cancelled_waiter_goes_to_the_next(h: &Harness) {
    h.run(|| {
        for blocked in every_blocking_call() {
            let [first, second] = two(&blocked);
            first.cancel();
            (blocked.open)(); // before the first has had a chance to leave its line
            second.join().unwrap().unwrap_or_else(|error| panic!("{}: {error}", blocked.name));
            let first = first.join().unwrap();
            if blocked.name != "OnceLock::wait" {
                assert_eq!(errno(first), ECANCELED, "{}", blocked.name);
            } // for there it is: a value can be had by both
        }
        Ok(())
    });
}

pub(crate) fn s10_who_was_served_before_the_cancel_has_it(h: &Harness) {
    h.run(|| {
        for blocked in every_blocking_call() {
            let [first, second] = two(&blocked);
            (blocked.open)();
            first.cancel();
            first.join().unwrap().unwrap_or_else(|error| panic!("{}: {error}", blocked.name));
            if !second.is_finished() {
                yield_now();
            }
            if !second.is_finished() {
                (blocked.open)(); // it lets go one at a time
            }
            second.join().unwrap().unwrap_or_else(|error| panic!("{}: {error}", blocked.name));
        }
        Ok(())
    });
}

pub(crate) fn s16_timeout_around_ends_every_wait(h: &Harness) {
    h.run(|| {
        for blocked in every_blocking_call() {
            let late = timeout(MS, || (blocked.wait)());
            assert_eq!(errno(late), ETIMEDOUT, "{}", blocked.name);
            let [first, second] = two(&blocked);
            (blocked.open)();
            first.join().unwrap().unwrap_or_else(|error| panic!("{}: {error}", blocked.name));
            second.cancel();
            _ = second.join().unwrap();
        }
        Ok(())
    });
}

pub(crate) fn s16_timeout_around_every_wait_is_exact(h: &Harness) {
    h.run(|| {
        for blocked in every_blocking_call() {
            let begin = now();
            assert_eq!(errno(timeout(HOUR / 2, || (blocked.wait)())), ETIMEDOUT);
            assert_eq!(now() - begin, HOUR / 2, "{}", blocked.name);
            (blocked.open)();
        }
        Ok(())
    });
}

/// A wait that is refused has changed nothing.
pub(crate) fn every_wait_in_the_wrong_place_panics_and_loses_nothing(h: &Harness) {
    h.run(|| {
        for blocked in every_blocking_call() {
            let refused = |text: &str, payload: Box<dyn std::any::Any + Send>| {
                let said = payload.downcast_ref::<String>().map(String::as_str);
                let said = said.or(payload.downcast_ref::<&str>().copied()).unwrap_or("nothing");
                assert!(said.contains(text), "{}: {said}", blocked.name);
            };
            let wait = AssertUnwindSafe(|| no_park(|| (blocked.wait)()));
            refused("inside `no_park`", catch_unwind(wait).expect_err(blocked.name));

            let (wait, main) = (Rc::clone(&blocked.wait), coracle_coro::current());
            let seen = Rc::new(RefCell::new(None));
            let place = Rc::clone(&seen);
            coracle_loop::Loop::current().unwrap().defer(move |_| {
                place.replace(catch_unwind(AssertUnwindSafe(|| wait())).err());
                main.unpark();
            });
            park()?;
            refused("`spawn` a coroutine", seen.take().expect(blocked.name));

            let [first, second] = two(&blocked);
            (blocked.open)();
            first.join().unwrap().unwrap_or_else(|error| panic!("{}: {error}", blocked.name));
            second.cancel();
            _ = second.join().unwrap();
        }
        Ok(())
    });
}

/// Nobody is in the line, so that nobody has to be waited for.
pub(crate) fn s17_refused_or_late_wait_leaves_the_lock_as_it_was(h: &Harness) {
    h.run(|| {
        let refused = |wait: &dyn Fn()| {
            assert!(catch_unwind(AssertUnwindSafe(|| no_park(wait))).is_err());
        };
        let late = |wait: &dyn Fn()| timeout(MS, wait);
        for is_late in [false, true] {
            let wrong = |wait: &dyn Fn()| if is_late { late(wait) } else { refused(wait) };
            let (mutex, semaphore) = (Mutex::new(()), Semaphore::new(3));
            let guards = (mutex.lock()?, semaphore.acquire(2)?);
            wrong(&|| assert!(mutex.lock().is_err()));
            wrong(&|| assert!(semaphore.acquire(2).is_err()));
            assert!(semaphore.try_acquire(1).is_some(), "one is there, and nobody waits");
            drop(guards);
            assert!(mutex.try_lock().is_some() && semaphore.try_acquire(3).is_some());
        }
        Ok(())
    });
}

pub(crate) fn s16_deadline_around_is_told_from_a_time_out_of_ones_own(h: &Harness) {
    h.run(|| {
        let (mutex, changed) = (Mutex::new(()), Condvar::new());
        let late = timeout(MS, || changed.wait_timeout(mutex.lock()?, HOUR).map(|_| ()));
        assert_eq!(errno(late), ETIMEDOUT);
        let (_, own) = timeout(HOUR, || changed.wait_timeout(mutex.lock()?, MS))?;
        assert!(own.timed_out());

        let (sender, receiver) = channel::<u8>(0);
        let late = timeout(MS, || receiver.recv_timeout(HOUR));
        assert_eq!(late, Err(RecvTimeoutError::Deadline));
        assert_eq!(errno::<u8>(late.map_err(io::Error::from)), ETIMEDOUT);
        let own = timeout(HOUR, || receiver.recv_timeout(MS));
        assert_eq!(own, Err(RecvTimeoutError::Timeout));
        assert_eq!(timeout(MS, || receiver.recv()), Err(RecvError::Deadline));

        let late = timeout(MS, || sender.send_timeout(7, HOUR));
        assert_eq!(late, Err(SendTimeoutError::Deadline(7)));
        let own = timeout(HOUR, || sender.send_timeout(7, MS));
        assert_eq!(own, Err(SendTimeoutError::Timeout(7)));
        assert_eq!(timeout(MS, || sender.send(7)), Err(SendError::Deadline(7)));

        let choose = |own| {
            select! {
                message = &receiver => Some(message),
                () = after(own) => None,
            }
        };
        assert_eq!(timeout(MS, || choose(HOUR)), Some(Err(RecvError::Deadline)));
        assert_eq!(timeout(HOUR, || choose(MS)), None);
        Ok(())
    });
}

pub(crate) fn s21_barrier_that_one_has_left_waits_for_another(h: &Harness) {
    h.run(|| {
        let barrier = leak(Barrier::new(3));
        let wait = || barrier.wait().map(|result| result.is_leader());
        let (cancelled, late) = (spawn(wait), spawn(move || timeout(MS, wait)));
        sleep(2 * MS)?;
        cancelled.cancel();
        assert_eq!(errno(late.join().unwrap()), ETIMEDOUT);
        assert_eq!(errno(cancelled.join().unwrap()), ECANCELED);
        let others = [spawn(wait), spawn(wait)];
        yield_now();
        assert!(!others.iter().any(|other| other.is_finished()));
        assert!(wait()?, "the last to come is the leader");
        for other in others {
            assert!(!other.join().unwrap()?);
        }
        Ok(())
    });
}

/// The notification was for one that cannot lock the mutex any more.
pub(crate) fn s18_notification_of_a_cancelled_waiter_goes_to_the_next(h: &Harness) {
    h.run(|| {
        let (mutex, changed) = (leak(Mutex::new(0)), leak(Condvar::new()));
        let wait = || changed.wait_while(mutex.lock()?, |n| *n == 0).map(|mut n| *n -= 1);
        let [first, second] = [spawn(wait), spawn(wait)];
        yield_now();
        let mut guard = mutex.lock()?;
        *guard = 1;
        changed.notify_one(); // the first, which now waits for the mutex
        yield_now();
        first.cancel();
        yield_now();
        drop(guard);
        assert_eq!(errno(first.join().unwrap()), ECANCELED);
        second.join().unwrap()?;
        assert_eq!(*mutex.lock()?, 0);
        Ok(())
    });
}
