//! The protocol of `sleeper.rs`, in every interleaving that matters.
//!
//! This is the protocol and nothing else, word by word, with loom's atomics in the place of std's: how a wait
//! ends once, how `unpark` and `cancel` find the wait they are to end, or leave something for the next. What
//! tells a sleeper is a slip with the number of the wait that is over, as a posted job is. A wake-up is lost
//! when the one who waits sleeps although nobody is left who could tell it.
//!
//! The last tests turn the order around, and must fail: a model that cannot find the known mistakes would
//! prove nothing.

use loom::sync::atomic::{self, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// An atomic of which all accesses are `SeqCst`. loom knows that ordering of fences only, so these are
/// spelled out; and a store is a swap, of which loom knows the place in the order of modifications.
struct Atomic(atomic::AtomicUsize);

impl Atomic {
    fn new() -> Atomic {
        Atomic(atomic::AtomicUsize::new(0))
    }

    fn load(&self) -> usize {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire)
    }

    fn swap(&self, value: usize) -> usize {
        fence(Ordering::SeqCst);
        let before = self.0.swap(value, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        before
    }

    fn replace(&self, from: usize, to: usize) -> bool {
        fence(Ordering::SeqCst);
        let replaced = self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        fence(Ordering::SeqCst);
        replaced.is_ok()
    }
}

const WOKEN: usize = 1;
const TIMED_OUT: usize = 2;
const CANCELLED: usize = 3;

struct Sleeper {
    word: Atomic,
    cancelled: Atomic,
    permit: Atomic,
    parked: Atomic,
    /// Tickets of which it was told, and how many threads may still tell it of another.
    told: Mutex<(Vec<usize>, usize)>,
    changed: Condvar,
}

impl Sleeper {
    fn new(others: usize) -> Arc<Sleeper> {
        Arc::new(Sleeper {
            word: Atomic::new(),
            cancelled: Atomic::new(),
            permit: Atomic::new(),
            parked: Atomic::new(),
            told: Mutex::new((Vec::new(), others)),
            changed: Condvar::new(),
        })
    }

    fn begin(&self) -> usize {
        let ticket = (self.word.0.load(Ordering::Relaxed) >> 2) + 1;
        self.word.swap(ticket << 2);
        ticket
    }

    fn end(&self, ticket: usize, how: usize) -> bool {
        self.word.replace(ticket << 2, ticket << 2 | how)
    }

    fn end_and_tell(&self, ticket: usize, how: usize) -> bool {
        let first = self.end(ticket, how);
        if first {
            self.told.lock().unwrap().0.push(ticket);
            self.changed.notify_one();
        }
        first
    }

    fn wait(&self, ticket: usize) -> usize {
        if self.cancelled.load() != 0 {
            self.end(ticket, CANCELLED);
        }
        if self.word.load() & 3 == 0 {
            let mut told = self.told.lock().unwrap();
            while !told.0.contains(&ticket) {
                assert!(told.1 > 0, "a wake-up was lost: it sleeps for ever");
                told = self.changed.wait(told).unwrap();
            }
        }
        let word = self.word.load();
        assert_eq!(word >> 2, ticket);
        assert_ne!(word & 3, 0, "it goes on when its wait has ended");
        word & 3
    }

    fn park(&self) -> usize {
        loop {
            let ticket = self.begin();
            if self.permit.swap(0) != 0 {
                return WOKEN;
            }
            self.parked.swap(ticket);
            if self.permit.load() != 0 {
                self.end(ticket, WOKEN);
            }
            let how = self.wait(ticket);
            self.parked.swap(0);
            if how != WOKEN || self.permit.swap(0) != 0 {
                return how;
            }
        }
    }

    /// The mistake: who looks before it says that it parks is not seen by who looks for it.
    fn park_without_a_second_look(&self) {
        let ticket = self.begin();
        if self.permit.swap(0) == 0 {
            self.parked.swap(ticket);
            self.wait(ticket);
        }
    }

    /// The mistake: an `unpark` that was slow ends the next wait as well.
    fn park_without_asking_for_the_permit(&self) {
        let ticket = self.begin();
        if self.permit.swap(0) == 0 {
            self.parked.swap(ticket);
            if self.permit.load() != 0 {
                self.end(ticket, WOKEN);
            }
            assert_ne!(self.wait(ticket), WOKEN, "woken without a permit");
        }
    }

    fn unpark(&self) {
        self.permit.swap(1);
        let ticket = self.parked.load();
        if ticket != 0 {
            self.end_and_tell(ticket, WOKEN);
        }
    }

    fn cancel(&self) {
        self.cancelled.swap(1);
        self.strike();
    }

    /// The mistake: a wait that begins after the look and before the note is not struck.
    fn cancel_in_the_wrong_order(&self) {
        self.strike();
        self.cancelled.swap(1);
    }

    fn strike(&self) {
        let ticket = self.word.load() >> 2;
        if ticket != 0 {
            self.end_and_tell(ticket, CANCELLED);
        }
    }

    fn unpark_and_cancel(&self) {
        self.unpark();
        self.cancel();
    }

    /// A thread that does something to it and ends.
    fn meet(sleeper: &Arc<Sleeper>, act: fn(&Sleeper)) -> thread::JoinHandle<()> {
        let sleeper = Arc::clone(sleeper);
        thread::spawn(move || {
            act(&sleeper);
            sleeper.told.lock().unwrap().1 -= 1;
            sleeper.changed.notify_one();
        })
    }
}

/// Every interleaving with up to two switches that nobody asked for: there are too many to try them all.
fn model(case: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(case);
}

#[test]
fn s13_unpark_is_not_lost() {
    model(|| {
        let sleeper = Sleeper::new(1);
        let other = Sleeper::meet(&sleeper, Sleeper::unpark);
        assert_eq!(sleeper.park(), WOKEN);
        other.join().unwrap();
    });
}

#[test]
fn s13_park_that_was_woken_leaves_no_permit() {
    model(|| {
        let sleeper = Sleeper::new(1);
        let other = Sleeper::meet(&sleeper, Sleeper::unpark);
        sleeper.park();
        other.join().unwrap();
        assert_eq!(sleeper.permit.load(), 0);
        assert_eq!(sleeper.parked.load(), 0);
    });
}

#[test]
fn s10_cancel_is_not_lost() {
    model(|| {
        let sleeper = Sleeper::new(1);
        let other = Sleeper::meet(&sleeper, Sleeper::cancel);
        let ticket = sleeper.begin();
        assert_eq!(sleeper.wait(ticket), CANCELLED);
        other.join().unwrap();
    });
}

#[test]
fn s10_cancel_strikes_the_later_wait_if_not_this_one() {
    model(|| {
        let sleeper = Sleeper::new(1);
        let other = Sleeper::meet(&sleeper, Sleeper::unpark_and_cancel);
        let both = [sleeper.park(), sleeper.park()];
        assert!(both.contains(&CANCELLED), "{both:?}");
        other.join().unwrap();
    });
}

#[test]
fn s13_one_of_wake_and_time_ends_a_wait() {
    model(|| {
        let sleeper = Sleeper::new(1);
        let ticket = sleeper.begin();
        let waker = Arc::clone(&sleeper);
        let other = thread::spawn(move || waker.end_and_tell(ticket, WOKEN));
        let in_time = !sleeper.end(ticket, TIMED_OUT);
        assert_eq!(sleeper.wait(ticket), if in_time { WOKEN } else { TIMED_OUT });
        assert_eq!(other.join().unwrap(), in_time);
    });
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn park_without_a_second_look_is_found() {
    model(|| {
        let sleeper = Sleeper::new(1);
        let other = Sleeper::meet(&sleeper, Sleeper::unpark);
        sleeper.park_without_a_second_look();
        other.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "woken without a permit")]
fn park_without_asking_for_the_permit_is_found() {
    model(|| {
        let sleeper = Sleeper::new(1);
        let other = Sleeper::meet(&sleeper, Sleeper::unpark_and_cancel);
        if sleeper.permit.swap(0) != 0 {
            sleeper.park_without_asking_for_the_permit(); // the only permit is taken
        }
        other.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn cancel_in_the_wrong_order_is_found() {
    model(|| {
        let sleeper = Sleeper::new(1);
        let other = Sleeper::meet(&sleeper, Sleeper::cancel_in_the_wrong_order);
        let ticket = sleeper.begin();
        sleeper.wait(ticket);
        other.join().unwrap();
    });
}
