//! The protocol of `sleeper.rs`, in every interleaving that matters.
//!
//! This is the protocol and nothing else, word by word, with loom's atomics in the place of std's: how a wait
//! ends once, how `unpark` and `cancel` find the wait they are to end, or leave something for the next. What
//! tells a sleeper is a slip with the number of the wait that is over, as a posted job is; a coroutine that is
//! cancelled gets a slip to strike itself. A wake-up is lost when the one who waits sleeps although nobody is
//! left who could tell it.
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

const NOTHING: usize = 0;
const PERMIT: usize = usize::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Coroutine,
    Thread,
}

const KINDS: [Kind; 2] = [Kind::Coroutine, Kind::Thread];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Slip {
    Over(usize),
    Strike,
}

struct Sleeper {
    kind: Kind,
    word: Atomic,
    cancelled: Atomic,
    park: atomic::AtomicUsize,
    /// What it is to be told, and how many threads may still tell it something.
    told: Mutex<(Vec<Slip>, usize)>,
    changed: Condvar,
    /// What others want it to see when they unpark it.
    seen: [atomic::AtomicUsize; 2],
}

impl Sleeper {
    fn new(kind: Kind, others: usize) -> Arc<Sleeper> {
        Arc::new(Sleeper {
            kind,
            word: Atomic::new(),
            cancelled: Atomic::new(),
            park: atomic::AtomicUsize::new(NOTHING),
            told: Mutex::new((Vec::new(), others)),
            changed: Condvar::new(),
            seen: [atomic::AtomicUsize::new(0), atomic::AtomicUsize::new(0)],
        })
    }

    fn begin(&self) -> usize {
        if self.kind == Kind::Coroutine {
            self.told.lock().unwrap().0.clear(); // jobs of its loop, about waits that are over
        }
        let ticket = (self.word.0.load(Ordering::Relaxed) >> 2) + 1;
        match self.kind {
            Kind::Coroutine => self.word.0.swap(ticket << 2, Ordering::Release),
            Kind::Thread => self.word.swap(ticket << 2),
        };
        ticket
    }

    fn end(&self, ticket: usize, how: usize) -> bool {
        self.word.replace(ticket << 2, ticket << 2 | how)
    }

    fn end_and_tell(&self, ticket: usize, how: usize) -> bool {
        let first = self.end(ticket, how);
        if first {
            self.tell(Slip::Over(ticket));
        }
        first
    }

    fn tell(&self, slip: Slip) {
        self.told.lock().unwrap().0.push(slip);
        self.changed.notify_one();
    }

    fn wait(&self, ticket: usize) -> usize {
        if self.cancelled.load() != 0 {
            self.end(ticket, CANCELLED);
        }
        if self.word.load() & 3 == 0 {
            self.sleep(ticket);
        }
        let word = self.word.load();
        assert_eq!(word >> 2, ticket);
        assert_ne!(word & 3, 0, "it goes on when its wait has ended");
        word & 3
    }

    fn sleep(&self, ticket: usize) {
        let mut told = self.told.lock().unwrap();
        loop {
            while let Some(slip) = told.0.pop() {
                if slip == Slip::Over(ticket) || slip == Slip::Strike && self.end(ticket, CANCELLED)
                {
                    return;
                }
            }
            assert!(told.1 > 0, "a wake-up was lost: it sleeps for ever");
            told = self.changed.wait(told).unwrap();
        }
    }

    fn take_permit(&self) -> bool {
        self.park.load(Ordering::Relaxed) == PERMIT
            && self.park.swap(NOTHING, Ordering::AcqRel) == PERMIT
    }

    /// The mistake: what an `unpark` that comes in between wants to be seen is not.
    fn take_permit_in_two_steps(&self) -> bool {
        let is_there = self.park.load(Ordering::Acquire) == PERMIT;
        if is_there {
            self.park.store(NOTHING, Ordering::Relaxed);
        }
        is_there
    }

    fn park(&self) -> usize {
        self.park_with(Sleeper::take_permit)
    }

    fn park_with(&self, take_permit: fn(&Sleeper) -> bool) -> usize {
        if take_permit(self) {
            return WOKEN;
        }
        let ticket = self.begin();
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let how = match self.park.compare_exchange(NOTHING, ticket, order.0, order.1) {
            Ok(_) => self.wait(ticket),
            Err(_) => WOKEN,
        };
        if self.park.load(Ordering::Relaxed) == ticket {
            let _ = self.park.compare_exchange(ticket, NOTHING, order.0, order.1);
        }
        assert!(how != WOKEN || take_permit(self), "woken without a permit");
        how
    }

    /// The mistake: who looks before it says that it parks is not seen by who looks for it.
    fn park_without_a_second_look(&self) {
        if !self.take_permit() {
            let ticket = self.begin();
            self.park.swap(ticket, Ordering::AcqRel);
            self.wait(ticket);
        }
    }

    fn unpark(&self) {
        let before = self.park.swap(PERMIT, Ordering::AcqRel);
        if before != NOTHING && before != PERMIT {
            self.end_and_tell(before, WOKEN);
        }
    }

    fn show_and_unpark(&self, which: usize) {
        self.seen[which].store(1, Ordering::Relaxed);
        self.unpark();
    }

    fn sees_both(&self) -> bool {
        self.seen.iter().all(|seen| seen.load(Ordering::Relaxed) == 1)
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
        if self.kind == Kind::Coroutine {
            return self.tell(Slip::Strike);
        }
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
    fn meet(
        sleeper: &Arc<Sleeper>,
        act: impl FnOnce(&Sleeper) + 'static,
    ) -> thread::JoinHandle<()> {
        let sleeper = Arc::clone(sleeper);
        thread::spawn(move || {
            act(&sleeper);
            sleeper.told.lock().unwrap().1 -= 1;
            sleeper.changed.notify_one();
        })
    }
}

/// Every interleaving with up to two switches that nobody asked for: there are too many to try them all.
fn model(case: fn(Kind)) {
    for kind in KINDS {
        model_of(kind, case);
    }
}

fn model_of(kind: Kind, case: fn(Kind)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || case(kind));
}

#[test]
fn s13_unpark_is_not_lost() {
    model(|kind| {
        let sleeper = Sleeper::new(kind, 1);
        let other = Sleeper::meet(&sleeper, Sleeper::unpark);
        assert_eq!(sleeper.park(), WOKEN);
        other.join().unwrap();
    });
}

#[test]
fn s13_park_that_was_woken_leaves_no_permit() {
    model(|kind| {
        let sleeper = Sleeper::new(kind, 1);
        let other = Sleeper::meet(&sleeper, Sleeper::unpark);
        sleeper.park();
        other.join().unwrap();
        assert_eq!(sleeper.park.load(Ordering::Relaxed), NOTHING);
    });
}

/// Two threads show something and unpark; it parks until it has seen both.
fn see_both(kind: Kind, take_permit: fn(&Sleeper) -> bool) {
    let sleeper = Sleeper::new(kind, 2);
    let others =
        [0, 1].map(|which| Sleeper::meet(&sleeper, move |sleeper| sleeper.show_and_unpark(which)));
    while !sleeper.sees_both() {
        sleeper.park_with(take_permit);
    }
    for other in others {
        other.join().unwrap();
    }
}

#[test]
fn s13_what_an_unpark_tells_is_seen() {
    model(|kind| see_both(kind, Sleeper::take_permit));
}

#[test]
fn s10_cancel_is_not_lost() {
    model(|kind| {
        let sleeper = Sleeper::new(kind, 1);
        let other = Sleeper::meet(&sleeper, Sleeper::cancel);
        let ticket = sleeper.begin();
        assert_eq!(sleeper.wait(ticket), CANCELLED);
        other.join().unwrap();
    });
}

#[test]
fn s10_cancel_strikes_the_later_wait_if_not_this_one() {
    model(|kind| {
        let sleeper = Sleeper::new(kind, 1);
        let other = Sleeper::meet(&sleeper, Sleeper::unpark_and_cancel);
        let both = [sleeper.park(), sleeper.park()];
        assert!(both.contains(&CANCELLED), "{both:?}");
        other.join().unwrap();
    });
}

#[test]
fn s13_one_of_wake_and_time_ends_a_wait() {
    model(|kind| {
        let sleeper = Sleeper::new(kind, 1);
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
fn taking_the_permit_in_two_steps_is_found() {
    model(|kind| see_both(kind, Sleeper::take_permit_in_two_steps));
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn park_without_a_second_look_is_found() {
    model(|kind| {
        let sleeper = Sleeper::new(kind, 1);
        let other = Sleeper::meet(&sleeper, Sleeper::unpark);
        sleeper.park_without_a_second_look();
        other.join().unwrap();
    });
}

fn cancel_in_the_wrong_order(kind: Kind) {
    let sleeper = Sleeper::new(kind, 1);
    let other = Sleeper::meet(&sleeper, Sleeper::cancel_in_the_wrong_order);
    let ticket = sleeper.begin();
    sleeper.wait(ticket);
    other.join().unwrap();
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn cancel_of_a_coroutine_in_the_wrong_order_is_found() {
    model_of(Kind::Coroutine, cancel_in_the_wrong_order);
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn cancel_of_a_thread_in_the_wrong_order_is_found() {
    model_of(Kind::Thread, cancel_in_the_wrong_order);
}
