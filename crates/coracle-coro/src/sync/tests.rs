//! Facts about locks, channels and `select!`, between threads. A name begins with the row of the capability
//! table.
//!
//! They are here, and not in `tests/`, because they must see that somebody waits: nothing is left to a sleep.

mod channels;
mod counting;
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
