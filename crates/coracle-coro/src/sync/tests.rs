//! Facts about locks, channels and `select!`, between threads. A name begins with the row of the capability
//! table.
//!
//! They are here, and not in `tests/`, because they must see that somebody waits: nothing is left to a sleep.

mod channels;
mod counting;
mod line;
mod locks;
mod selecting;

use std::thread;
use std::time::Duration;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(600);

/// So short that it is over soon, and long enough to wait in earnest.
const SHORT: Duration = Duration::from_millis(5);

/// Returns when it is so.
fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn everything_can_be_shared_and_sent_as_std_does_it() {
    use super::*;
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    is_send::<Mutex<std::cell::Cell<u32>>>();
    is_sync::<Mutex<std::cell::Cell<u32>>>();
    is_sync::<RwLock<u32>>();
    is_sync::<Condvar>();
    is_sync::<Semaphore>();
    is_sync::<Barrier>();
    is_sync::<OnceLock<u32>>();
    is_send::<Member>();
    is_sync::<WaitGroup>();
    is_send::<Sender<std::cell::Cell<u32>>>();
    is_sync::<Receiver<std::cell::Cell<u32>>>();
}

#[test]
fn s16_timeout_around_ends_the_wait_of_a_thread() {
    use super::*;
    use std::io::ErrorKind;
    fn late<T>(wait: impl FnOnce() -> std::io::Result<T>) {
        let error = crate::timeout(SHORT, wait).err().expect("nobody wakes it");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
    let (mutex, lock) = (Mutex::new(()), RwLock::new(()));
    let guards = (mutex.try_lock(), lock.try_write());
    late(|| mutex.lock().map(drop));
    late(|| mutex.try_lock_for(LONG).map(drop));
    late(|| lock.read().map(drop));
    late(|| lock.write().map(drop));
    drop(guards);
    late(|| Condvar::new().wait(mutex.lock()?).map(drop));
    late(|| Condvar::new().wait_timeout(mutex.lock()?, LONG).map(drop));
    late(|| Semaphore::new(0).acquire(1).map(drop));
    late(|| Barrier::new(2).wait());
    late(|| OnceLock::<()>::new().wait().copied());
    let group = WaitGroup::new();
    let member = group.add();
    late(|| group.wait());
    drop(member);
    let (sender, receiver) = channel(0);
    late(|| Ok(sender.send(())?));
    late(|| Ok(receiver.recv()?));
    late(|| Ok(receiver.recv_timeout(LONG)?));
    drop(mutex.lock().expect("the deadline is over with its closure"));
}
