//! The end of a coroutine and who waits for it, in every interleaving: the very code of `src/ending.rs`, with
//! loom's atomics and cells under it.
//!
//! loom panics when two touch a cell without one having seen the other, and calls it a deadlock when somebody
//! waits for ever. A result that is dropped twice, or never, is counted. The last test plants a mistake, and must
//! fail.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs)]
#![allow(unsafe_code)]

use loom::thread;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Instant;

/// What `src/primitive.rs` takes from std, from loom.
mod primitive {
    #[allow(clippy::unsafe_removed_from_name)]
    pub(crate) use loom::cell::UnsafeCell as Shared;
    pub(crate) use loom::sync::atomic::AtomicU8;
}

/// What `src/waiter.rs` promises. A wait with a deadline gives up as soon as it runs, whenever loom lets it.
mod waiter {
    use loom::sync::{Condvar, Mutex};
    use std::sync::Arc;

    #[derive(Clone)]
    pub(crate) struct Waker(pub(crate) Arc<(Mutex<Option<bool>>, Condvar)>);

    impl Waker {
        pub(crate) fn new() -> Waker {
            Waker(Arc::new((Mutex::new(None), Condvar::new())))
        }

        /// True if it was woken.
        pub(crate) fn wait(&self, patient: bool) -> bool {
            let mut woken = self.0.0.lock().unwrap();
            while woken.is_none() {
                if !patient {
                    *woken = Some(false);
                    break;
                }
                woken = self.0.1.wait(woken).unwrap();
            }
            *woken == Some(true)
        }

        pub(crate) fn wake_here(&self) {
            self.wake();
        }

        pub(crate) fn wake(&self) -> bool {
            let mut woken = self.0.0.lock().unwrap();
            let counts = woken.is_none();
            if counts {
                *woken = Some(true);
                self.0.1.notify_one();
            }
            counts
        }
    }
}

#[path = "../src/ending.rs"]
mod ending;
#[path = "../src/place.rs"]
mod place;

use ending::Ending;
use waiter::Waker;

/// A result that is counted.
type Counted = Arc<()>;

/// The coroutine, in a thread of its own.
fn coroutine(ending: &Arc<Ending>, result: Option<Counted>) -> thread::JoinHandle<()> {
    let ending = Arc::clone(ending);
    thread::spawn(move || {
        // SAFETY: once, and the handles here are for the same type.
        unsafe {
            match result {
                Some(result) => drop(ending.finish(Ok(result))),
                None => ending.give_up(),
            }
        }
    })
}

/// The handle: whether it has a result. `None` if it has not waited long enough.
fn join(ending: &Ending, patient: bool) -> Option<bool> {
    // SAFETY: this is the only handle, and is for what the coroutine leaves.
    unsafe {
        if let Some(result) = ending.take::<Counted>() {
            return Some(result.is_ok());
        }
        let waker = Waker::new();
        // If it was polled as a future before, it may be over by now.
        if ending.reopen() && ending.expect(ManuallyDrop::new(waker.clone()), false) {
            waker.wait(patient);
            ending.leave();
        }
        let result = ending.take::<Counted>();
        assert!(!patient || result.is_some(), "it was woken before the end");
        result.map(|result| result.is_ok())
    }
}

/// The handle, as a future that is polled: whether it has a result, or a waker that is woken when it is to be
/// polled again.
fn poll(ending: &Ending) -> Result<bool, Waker> {
    // SAFETY: as above.
    unsafe {
        if ending.reopen() {
            let waker = Waker::new();
            if ending.expect(ManuallyDrop::new(waker.clone()), false) {
                return Err(waker);
            }
        }
        let result = ending.take::<Counted>().expect("nobody leaves a waker and is told nothing");
        Ok(result.is_ok())
    }
}

fn detach(ending: &Ending) {
    // SAFETY: as above.
    drop(unsafe { ending.detach::<Counted>() });
}

#[test]
fn s7_who_waits_has_the_result() {
    loom::model(|| {
        let (ending, count) = (Arc::new(Ending::new()), Counted::default());
        let child = coroutine(&ending, Some(Arc::clone(&count)));
        assert_eq!(join(&ending, true), Some(true));
        detach(&ending);
        child.join().unwrap();
        assert_eq!(Arc::strong_count(&count), 1, "it is dropped, once");
    });
}

#[test]
fn s7_who_waits_for_what_never_begins_is_told() {
    loom::model(|| {
        let ending = Arc::new(Ending::new());
        let child = coroutine(&ending, None);
        assert_eq!(join(&ending, true), Some(false));
        detach(&ending);
        child.join().unwrap();
    });
}

#[test]
fn s8_who_gives_up_may_wait_again() {
    loom::model(|| {
        let (ending, count) = (Arc::new(Ending::new()), Counted::default());
        let child = coroutine(&ending, Some(Arc::clone(&count)));
        if join(&ending, false).is_none() {
            assert_eq!(join(&ending, true), Some(true));
        }
        detach(&ending);
        child.join().unwrap();
        assert_eq!(Arc::strong_count(&count), 1, "it is dropped, once");
    });
}

#[test]
fn s9_result_that_nobody_wants_is_dropped() {
    loom::model(|| {
        let (ending, count) = (Arc::new(Ending::new()), Counted::default());
        let child = coroutine(&ending, Some(Arc::clone(&count)));
        join(&ending, false);
        detach(&ending);
        child.join().unwrap();
        assert_eq!(Arc::strong_count(&count), 1, "it is dropped, once");
    });
}

#[test]
fn s9_handle_is_dropped_while_it_waits() {
    loom::model(|| {
        let (ending, count) = (Arc::new(Ending::new()), Counted::default());
        let child = coroutine(&ending, Some(Arc::clone(&count)));
        // SAFETY: as above. As after a panic, nobody takes the waker back.
        unsafe { ending.expect(ManuallyDrop::new(Waker::new()), false) };
        detach(&ending);
        child.join().unwrap();
        assert_eq!(Arc::strong_count(&count), 1, "it is dropped, once");
    });
}

#[test]
fn s26_future_that_awaits_the_end_is_woken_by_its_last_waker() {
    loom::model(|| {
        let (ending, count) = (Arc::new(Ending::new()), Counted::default());
        let child = coroutine(&ending, Some(Arc::clone(&count)));
        let ended = match poll(&ending) {
            Ok(ended) => ended,
            // Polled again for another reason; then it waits.
            Err(_former) => poll(&ending).unwrap_or_else(|waker| {
                assert!(waker.wait(true));
                poll(&ending).ok().expect("it is woken at the end")
            }),
        };
        assert!(ended);
        assert!(ending.is_taken());
        detach(&ending);
        child.join().unwrap();
        assert_eq!(Arc::strong_count(&count), 1, "it is dropped, once");
    });
}

#[test]
fn s26_handle_that_was_polled_is_joined() {
    loom::model(|| {
        let (ending, count) = (Arc::new(Ending::new()), Counted::default());
        let child = coroutine(&ending, Some(Arc::clone(&count)));
        if poll(&ending).is_err() {
            assert_eq!(join(&ending, true), Some(true));
        }
        detach(&ending);
        child.join().unwrap();
        assert_eq!(Arc::strong_count(&count), 1, "it is dropped, once");
    });
}

#[test]
fn s26_handle_that_was_polled_is_dropped() {
    loom::model(|| {
        let (ending, count) = (Arc::new(Ending::new()), Counted::default());
        let child = coroutine(&ending, Some(Arc::clone(&count)));
        drop(poll(&ending));
        detach(&ending);
        child.join().unwrap();
        assert_eq!(Arc::strong_count(&count), 1, "it is dropped, once");
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn model_finds_one_who_waits_on_another_thread_as_if_it_were_here() {
    loom::model(|| {
        let ending = Arc::new(Ending::new());
        let child = coroutine(&ending, Some(Counted::default()));
        let waker = Waker::new();
        // SAFETY: it is not safe, which is what has to be found.
        unsafe { ending.expect(ManuallyDrop::new(waker.clone()), true) };
        child.join().unwrap();
    });
}
