//! What others see while a generator is suspended on their thread: the facts behind SOUNDNESS.md.

use coracle_coro::Generator;
use coracle_coro::generator::{Status, Yielder};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, RwLock, TryLockError};

#[test]
fn scopes_of_a_thread_local_may_end_in_the_wrong_order() {
    scoped_tls::scoped_thread_local!(static SCOPE: u32);
    let scope = |value: u32| Generator::new(move |out| SCOPE.set(&value, || out.suspend(())));
    let [first, second] = [1, 2].map(scope);
    for generator in [&first, &second, &first, &second] {
        generator.resume(()).unwrap();
    }
    assert_eq!((first.status(), second.status()), (Status::Done, Status::Done));
    // No scope is left, and yet there is a value: it was on the stack of the first, in a frame that is gone.
    // To look at it would not be sound.
    assert!(SCOPE.is_set());
}

#[test]
fn scopes_that_do_not_suspend_end_in_order() {
    scoped_tls::scoped_thread_local!(static SCOPE: u32);
    let scope = |value: u32| {
        Generator::new(move |out| {
            for _ in 0..2 {
                let seen = SCOPE.set(&value, || SCOPE.with(|value| *value));
                out.suspend(seen);
            }
        })
    };
    let [first, second] = [1, 2].map(scope);
    for (generator, value) in [(&first, 1), (&second, 2), (&first, 1), (&second, 2)] {
        assert_eq!(generator.resume(()).unwrap().yielded(), Some(value));
        assert!(!SCOPE.is_set());
    }
}

#[test]
fn a_thread_local_may_be_gone_before_a_generator_that_borrows_it() {
    struct Tell(&'static str, Sender<&'static str>);
    impl Drop for Tell {
        fn drop(&mut self) {
            self.1.send(self.0).unwrap();
        }
    }
    thread_local! {
        static KEPT: RefCell<Option<Generator<()>>> = const { RefCell::new(None) };
        static BORROWED: RefCell<Option<Tell>> = const { RefCell::new(None) };
    }
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // Thread-locals are dropped in reverse: the one that was used first is the last.
        KEPT.set(None);
        BORROWED.set(Some(Tell("the thread-local", sender.clone())));
        let mut generator = Generator::new(move |out| {
            BORROWED.with(|_borrowed| {
                let _borrower = Tell("who borrows it", sender);
                out.suspend(());
            });
        });
        generator.next();
        KEPT.set(Some(generator));
    });
    thread.join().unwrap();
    let order: Vec<&str> = receiver.iter().collect();
    // Had the borrower looked at it in its destructor, that would not have been sound.
    assert_eq!(order, ["the thread-local", "who borrows it"]);
}

#[test]
fn a_lock_held_while_suspended_stays_locked_for_its_own_thread() {
    let lock = Arc::new((Mutex::new(()), RwLock::new(())));
    let held = Arc::clone(&lock);
    let mut generator = Generator::new(move |out| {
        let _guards = (held.0.lock().unwrap(), held.1.write().unwrap());
        out.suspend(());
    });
    generator.next();
    // `lock` would wait here for ever: only this thread could unlock it.
    assert!(matches!(lock.0.try_lock(), Err(TryLockError::WouldBlock)));
    assert!(matches!(lock.1.try_read(), Err(TryLockError::WouldBlock)));
    generator.next();
    assert!(lock.0.try_lock().is_ok() && lock.1.try_read().is_ok());
}

#[test]
fn a_lock_is_poisoned_when_its_holder_is_dropped_half_way() {
    let lock = Arc::new(Mutex::new(()));
    let held = Arc::clone(&lock);
    let mut generator = Generator::new(move |out| {
        let _guard = held.lock().unwrap();
        out.suspend(());
    });
    generator.next();
    drop(generator);
    // Unwinding is a panic to the lock, though nobody has failed.
    assert!(matches!(lock.try_lock(), Err(TryLockError::Poisoned(_))));
}

#[test]
fn a_lock_of_the_thread_lets_others_of_the_thread_in() {
    let mut generator = Generator::new(|out| {
        let _stderr = std::io::stderr().lock();
        out.suspend(());
    });
    generator.next();
    // Another thread would wait.
    let _stderr = std::io::stderr().lock();
    assert_eq!(generator.status(), Status::Suspended);
}

#[test]
fn one_that_suspends_while_panicking_lets_others_believe_they_panic() {
    struct Slow<'a>(&'a Yielder<()>);
    impl Drop for Slow<'_> {
        fn drop(&mut self) {
            self.0.suspend(());
        }
    }
    let generator: Generator<()> = Generator::new(|out| {
        let _slow = Slow(out);
        panic!("on purpose");
    });
    assert!(!std::thread::panicking());
    generator.resume(()).unwrap();
    assert!(std::thread::panicking(), "it is the other that panics");
    let lock = Mutex::new(());
    let own = catch_unwind(AssertUnwindSafe(|| {
        let _guard = lock.lock().unwrap();
        panic!("on purpose, too");
    }));
    assert!(own.is_err() && !lock.is_poisoned());
    let panic = catch_unwind(AssertUnwindSafe(|| generator.resume(()))).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    assert!(!std::thread::panicking(), "all is well again");
}

#[test]
fn a_borrow_held_while_suspended_is_found_by_others() {
    let cell = Rc::new(RefCell::new(1));
    let held = Rc::clone(&cell);
    let mut generator = Generator::new(move |out| {
        let _borrowed = held.borrow_mut();
        out.suspend(());
    });
    generator.next();
    assert!(cell.try_borrow().is_err());
    drop(generator);
    assert!(cell.try_borrow().is_ok());
}
