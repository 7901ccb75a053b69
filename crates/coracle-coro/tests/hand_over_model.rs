//! The hand-over from one to another, in every interleaving: the very code of `src/sync`, with loom's lock,
//! atomic and threads under it, and a waiter that gives up at any moment.
//!
//! A permit or a message is lost when somebody waits for ever: loom calls that a deadlock. The last tests plant
//! such mistakes, and must fail: a model that cannot find them would prove nothing.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs)]
#![allow(clippy::arc_with_non_send_sync)] // what loom runs as threads shares one of them

use loom::cell::UnsafeCell;
use loom::thread;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// What `src/primitive.rs` takes from std, from loom. `new` is `const` there, so here things are made at first
/// use.
mod primitive {
    #[allow(clippy::unsafe_removed_from_name)]
    pub(crate) use loom::cell::UnsafeCell as Shared;
    use loom::sync::atomic::fence;
    pub(crate) use loom::thread::yield_now;
    use std::sync::OnceLock;
    use std::sync::atomic::Ordering;

    pub(crate) struct AtomicUsize(usize, OnceLock<loom::sync::atomic::AtomicUsize>);

    impl AtomicUsize {
        pub(crate) const fn new(value: usize) -> AtomicUsize {
            AtomicUsize(value, OnceLock::new())
        }

        fn inner(&self) -> &loom::sync::atomic::AtomicUsize {
            self.1.get_or_init(|| loom::sync::atomic::AtomicUsize::new(self.0))
        }

        /// loom knows `SeqCst` of fences only, so it is spelled out as it is on x86: what writes is followed by
        /// a fence, and what only reads has none. With one there, the model would not find a message that was
        /// marked after all that orders it.
        pub(crate) fn load(&self, order: Ordering) -> usize {
            let order = if order == Ordering::SeqCst { Ordering::Acquire } else { order };
            self.inner().load(order)
        }

        pub(crate) fn store(&self, value: usize, order: Ordering) {
            if order == Ordering::SeqCst {
                self.inner().swap(value, Ordering::AcqRel);
                return fence(order);
            }
            self.inner().store(value, order);
        }

        pub(crate) fn fetch_add(&self, value: usize, order: Ordering) -> usize {
            self.inner().fetch_add(value, order)
        }

        pub(crate) fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
            self.inner().fetch_sub(value, order)
        }

        pub(crate) fn fetch_and(&self, value: usize, order: Ordering) -> usize {
            self.inner().fetch_and(value, order)
        }

        pub(crate) fn compare_exchange_weak(
            &self,
            current: usize,
            new: usize,
            success: Ordering,
            failure: Ordering,
        ) -> Result<usize, usize> {
            if success == Ordering::SeqCst {
                let result = self.inner().compare_exchange(current, new, Ordering::AcqRel, failure);
                fence(success);
                return result;
            }
            self.inner().compare_exchange_weak(current, new, success, failure)
        }
    }

    pub(crate) struct Lock<T> {
        initial: std::sync::Mutex<Option<T>>,
        inner: OnceLock<loom::sync::Mutex<T>>,
    }

    impl<T> Lock<T> {
        pub(crate) const fn new(value: T) -> Lock<T> {
            Lock { initial: std::sync::Mutex::new(Some(value)), inner: OnceLock::new() }
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            let initial = || self.initial.lock().unwrap().take().expect("it is made once");
            self.inner.get_or_init(|| loom::sync::Mutex::new(initial())).lock().unwrap()
        }
    }
}

/// What `src/waiter.rs` promises. A wait with a deadline gives up as soon as it runs, whenever loom lets it.
mod waiter {
    use loom::sync::{Condvar, Mutex};
    use std::sync::Arc;
    use std::time::Instant;

    #[derive(PartialEq, Eq)]
    enum State {
        Waiting,
        Woken,
        Gone,
    }

    pub(crate) struct Waiter(Arc<(Mutex<State>, Condvar)>);

    #[derive(Clone)]
    pub(crate) struct Waker(Arc<(Mutex<State>, Condvar)>);

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[allow(clippy::enum_variant_names)]
    pub(crate) enum Woken {
        Woken,
        TimedOut,
        Cancelled,
    }

    impl Waiter {
        pub(crate) fn new() -> Waiter {
            Waiter(Arc::new((Mutex::new(State::Waiting), Condvar::new())))
        }

        pub(crate) fn begin() -> Waiter {
            Waiter::new()
        }

        pub(crate) fn waiting_for(self, _: crate::waits_for::WaitsFor) -> Waiter {
            self
        }

        pub(crate) fn waker(&self) -> Waker {
            Waker(Arc::clone(&self.0))
        }

        pub(crate) fn is_woken_in_a_moment(&self) -> bool {
            false
        }

        pub(crate) fn wait(self, deadline: Option<Instant>) -> Woken {
            let mut state = self.0.0.lock().unwrap();
            while *state == State::Waiting {
                if deadline.is_some() {
                    *state = State::Gone;
                    return Woken::TimedOut;
                }
                state = self.0.1.wait(state).unwrap();
            }
            Woken::Woken
        }
    }

    impl Waiter {
        /// Whether its wait has ended.
        pub(crate) fn is_over(&self) -> bool {
            *self.0.0.lock().unwrap() != State::Waiting
        }

        /// Until it has.
        pub(crate) fn watch(&self) {
            let mut state = self.0.0.lock().unwrap();
            while *state == State::Waiting {
                state = self.0.1.wait(state).unwrap();
            }
        }

        pub(crate) fn name(&self) -> usize {
            Arc::as_ptr(&self.0).addr()
        }
    }

    pub(crate) fn back_off() {} // nobody is cancelled here

    /// One look is as good as several.
    pub(crate) fn in_a_moment<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
        look()
    }

    impl Waker {
        pub(crate) fn wake(&self) -> bool {
            let counted = self.claim();
            if counted {
                self.tell();
            }
            counted
        }

        pub(crate) fn claim(&self) -> bool {
            let mut state = self.0.0.lock().unwrap();
            let counted = *state == State::Waiting;
            if counted {
                *state = State::Woken;
            }
            counted
        }

        pub(crate) fn is_lost(&self) -> bool {
            false
        }

        pub(crate) fn tell(&self) {
            self.0.1.notify_one();
        }
    }
}

mod coroutine {
    pub(crate) type CoroutineId = u64;
}
#[path = "../src/waits_for.rs"]
mod waits_for;
/// What `src/future/wait.rs` promises. Who polls with a waker that does nothing has `Pending`, and may give up;
/// everybody else waits here.
mod future {
    pub(crate) mod wait {
        use crate::waiter::{Waiter, Waker};
        use std::task::Context;

        pub(crate) struct FutureWait(Waiter);

        impl FutureWait {
            pub(crate) fn begin() -> FutureWait {
                FutureWait(Waiter::new())
            }

            pub(crate) fn waker(&self) -> Waker {
                self.0.waker()
            }

            pub(crate) fn name(&self) -> usize {
                self.0.name()
            }

            pub(crate) fn is_over(&self, cx: &Context<'_>) -> bool {
                if !cx.waker().will_wake(std::task::Waker::noop()) {
                    self.0.watch();
                }
                self.0.is_over()
            }
        }
    }
}

#[path = "../src/sync/channel.rs"]
mod channel;
#[path = "../src/sync/channel_arms.rs"]
mod channel_arms;
#[path = "../src/sync/channel_core.rs"]
mod channel_core;
#[path = "../src/sync/channel_error.rs"]
mod channel_error;
#[path = "../src/sync/channel_futures.rs"]
mod channel_futures;
#[path = "../src/sync/channel_wait.rs"]
mod channel_wait;
/// What is counted of coroutines; here are only threads.
mod budget {
    use crate::sync::failure::Failure;
    use std::task::{Context, Poll};

    pub(crate) fn begin() -> Result<(), Failure> {
        Ok(())
    }

    pub(crate) fn poll(_: &Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}
/// Time, of which the model has none.
mod deadline {
    pub(crate) fn after(timeout: std::time::Duration) -> Option<std::time::Instant> {
        std::time::Instant::now().checked_add(timeout)
    }

    pub(crate) fn is_over(_: std::time::Instant) -> bool {
        false
    }

    pub(crate) fn limit() -> Option<std::time::Instant> {
        None
    }

    pub(crate) fn is_first(own: Option<std::time::Instant>, _: Option<std::time::Instant>) -> bool {
        own.is_some()
    }
}
#[path = "../src/sync/failure.rs"]
mod failure;
#[path = "../src/sync/line.rs"]
mod line;
#[path = "../src/sync/permits.rs"]
mod permits;
#[path = "../src/sync/ring.rs"]
mod ring;
#[path = "../src/sync/select.rs"]
mod select;

/// They know each other by these names.
mod sync {
    pub(crate) use crate::channel::{Receiver, Sender};
    pub(crate) use crate::select::{__choose, __choose_now, Arm, IntoArm, Select, Wait, after};
    pub(crate) use crate::{
        channel, channel_arms, channel_core, channel_error, channel_futures, channel_wait,
        deadline, failure, line, permits, ring, select,
    };

    /// Chance is a matter of `src/sync/chance.rs`; a model must do the same every time.
    pub(crate) mod chance {
        pub(crate) fn below(_: usize) -> usize {
            0
        }

        use std::cell::Cell;

        std::thread_local! {
            /// Makes a thread look like another one.
            pub(crate) static PRETENDED: Cell<usize> = const { Cell::new(0) };
        }

        pub(crate) fn thread() -> usize {
            let mut hasher = std::hash::DefaultHasher::new();
            std::hash::Hash::hash(&loom::thread::current().id(), &mut hasher);
            std::hash::Hasher::finish(&hasher) as usize ^ PRETENDED.get()
        }
    }
}

use channel::{Receiver, Sender};
use channel_error::{RecvTimeoutError, SendTimeoutError};
use failure::Failure;
use line::Line;
use permits::Permits;
use select::{Arm, Select};
use waits_for::WaitsFor;

/// A channel, of which everything is made: loom wants that before there are threads.
fn channel<T: std::fmt::Debug>(limit: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = channel::channel(limit);
    receiver.try_recv().unwrap_err();
    (sender, receiver)
}

/// A channel between threads, whose buffer needs no lock.
fn channel_with_ring(limit: usize) -> (Sender<u32>, Receiver<u32>) {
    let (sender, receiver) = channel(limit);
    sync::chance::PRETENDED.set(1);
    (0..limit).for_each(|_| sender.send(0).unwrap());
    sync::chance::PRETENDED.set(0);
    (0..limit).for_each(|_| _ = receiver.recv().unwrap());
    (sender, receiver)
}

/// Polls a future once, and drops it: as who has lost patience.
fn once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Waits for a future.
fn complete<F: Future + Unpin>(mut future: F) -> F::Output {
    struct Somebody;
    impl std::task::Wake for Somebody {
        fn wake(self: Arc<Self>) {}
    }
    let waker = Waker::from(Arc::new(Somebody));
    match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("its wait is waited for"),
    }
}

/// A deadline: whoever has one gives up at any moment.
fn any_moment() -> Option<Instant> {
    Some(Instant::now())
}

/// The same, as a length of time. How long it is does not matter.
const ANY_TIME: Duration = Duration::from_secs(1);

/// Explores every interleaving with up to `switches` involuntary switches between threads.
fn explore(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

/// A mutex made of permits, and what it guards.
struct Guarded {
    permits: Permits,
    inside: UnsafeCell<()>,
}

impl Guarded {
    fn new() -> Arc<Guarded> {
        let guarded = Guarded { permits: Permits::new(1), inside: UnsafeCell::new(()) };
        assert_eq!(guarded.permits.available(), 1); // loom wants atomics made before threads are
        Arc::new(guarded)
    }

    fn enter(&self, deadline: Option<Instant>) -> u32 {
        if self.permits.acquire(1, deadline, WaitsFor::Mutex).is_err() {
            return 0;
        }
        // loom panics here if another could be inside, too.
        self.inside.with_mut(|_| ());
        self.permits.release(1);
        1
    }
}

fn spawn<T: 'static>(f: impl FnOnce() -> T + 'static) -> thread::JoinHandle<T> {
    thread::spawn(f)
}

#[test]
fn s17_three_who_want_the_lock_have_it_one_after_the_other() {
    explore(2, || {
        let guarded = Guarded::new();
        let others = [(), ()].map(|()| {
            let guarded = Arc::clone(&guarded);
            spawn(move || guarded.enter(None))
        });
        let mut count = guarded.enter(None);
        for other in others {
            count += other.join().unwrap();
        }
        assert_eq!(count, 3);
        assert_eq!(guarded.permits.available(), 1);
    });
}

#[test]
fn s17_lock_for_one_that_gives_up_goes_to_the_next() {
    explore(2, || {
        let guarded = Guarded::new();
        let others = [any_moment(), None].map(|deadline| {
            let guarded = Arc::clone(&guarded);
            spawn(move || guarded.enter(deadline))
        });
        let mut count = guarded.enter(None);
        for other in others {
            count += other.join().unwrap();
        }
        assert!(count >= 2, "who does not give up has it");
        assert!(guarded.permits.try_acquire(1), "it is free, and nobody waits");
    });
}

#[test]
fn s20_who_needs_many_gives_up_and_who_needs_few_goes_on() {
    explore(3, || {
        let permits = Arc::new(Permits::new(1));
        assert_eq!(permits.available(), 1);
        let greedy = {
            let permits = Arc::clone(&permits);
            spawn(move || permits.acquire(2, any_moment(), WaitsFor::Mutex))
        };
        let modest = {
            let permits = Arc::clone(&permits);
            spawn(move || permits.acquire(1, None, WaitsFor::Mutex))
        };
        assert_eq!(greedy.join().unwrap(), Err(Failure::TimedOut), "there are not two");
        modest.join().unwrap().unwrap();
        permits.release(1);
        assert!(permits.try_acquire(1));
    });
}

#[test]
fn s22_message_is_handed_over_or_comes_back() {
    explore(3, || {
        let (sender, receiver) = channel(0);
        let sending = spawn(move || sender.send_timeout(7, ANY_TIME));
        let received = receiver.recv_timeout(ANY_TIME);
        match (sending.join().unwrap(), received) {
            (Ok(()), Ok(7)) => {}
            (Err(SendTimeoutError::Timeout(7)), Err(RecvTimeoutError::Timeout)) => {}
            (Err(SendTimeoutError::Timeout(7)), Err(RecvTimeoutError::Disconnected)) => {}
            other => panic!("lost or doubled: {other:?}"),
        }
    });
}

#[test]
fn s22_message_for_one_that_gives_up_goes_to_the_next() {
    for limit in [0, 1] {
        explore(2, move || {
            let (sender, receiver) = channel(limit);
            let impatient = {
                let receiver = receiver.clone();
                spawn(move || receiver.recv_timeout(ANY_TIME).is_ok())
            };
            let sending = spawn(move || sender.send(7).is_ok());
            let got = receiver.recv().is_ok();
            assert_ne!(got, impatient.join().unwrap(), "one of them has it");
            assert!(sending.join().unwrap());
        });
    }
}

#[test]
fn s22_room_that_a_sender_gives_up_goes_to_the_next() {
    explore(2, || {
        let (sender, receiver) = channel(1);
        sender.send(1).unwrap();
        let impatient = {
            let sender = sender.clone();
            spawn(move || sender.send_timeout(2, ANY_TIME).is_ok())
        };
        let patient = spawn(move || sender.send(3).is_ok());
        let mut received: Vec<u32> = receiver.iter().collect();
        assert!(patient.join().unwrap());
        let expected = if impatient.join().unwrap() { vec![1, 2, 3] } else { vec![1, 3] };
        received.sort_unstable();
        assert_eq!(received, expected);
    });
}

#[test]
fn s22_the_end_of_the_other_side_is_heard() {
    explore(3, || {
        let (sender, receiver) = channel(1);
        let sending = spawn(move || sender.send(7).is_ok());
        assert_eq!(receiver.recv(), Ok(7));
        assert!(receiver.recv().is_err());
        assert!(sending.join().unwrap());

        let (sender, receiver) = channel(0);
        let receiving = spawn(move || drop(receiver));
        assert!(sender.send(7).is_err());
        receiving.join().unwrap();
    });
}

#[test]
fn s23_message_past_the_lock_reaches_who_is_about_to_wait() {
    explore(3, || {
        let (sender, receiver) = channel_with_ring(1);
        let sending = spawn(move || (sender.send(7), sender)); // it is not gone before
        assert_eq!(receiver.recv(), Ok(7));
        sending.join().unwrap().0.unwrap();
    });
}

#[test]
fn s23_room_past_the_lock_reaches_who_is_about_to_wait() {
    explore(3, || {
        let (sender, receiver) = channel_with_ring(1);
        sender.send(1).unwrap();
        let receiving = spawn(move || (receiver.recv(), receiver));
        sender.send(2).unwrap();
        let (received, receiver) = receiving.join().unwrap();
        assert_eq!((received, receiver.try_recv()), (Ok(1), Ok(2)));
    });
}

#[test]
fn s23_two_receivers_past_the_lock_have_a_message_each() {
    explore(2, || {
        let (sender, receiver) = channel_with_ring(2);
        let other = {
            let receiver = receiver.clone();
            spawn(move || receiver.recv().unwrap())
        };
        let sending = spawn(move || {
            sender.send(1).unwrap();
            sender.send(2).unwrap();
            sender
        });
        assert_eq!(receiver.recv().unwrap() + other.join().unwrap(), 3);
        sending.join().unwrap();
    });
}

#[test]
fn s23_message_that_nobody_will_receive_is_dropped() {
    explore(3, || {
        let (sender, receiver) = channel(1);
        let message = Arc::new(());
        sync::chance::PRETENDED.set(1);
        sender.send(Arc::clone(&message)).unwrap();
        sync::chance::PRETENDED.set(0);
        receiver.recv().unwrap();
        let receiving = spawn(move || drop(receiver));
        let _ = sender.send(Arc::clone(&message));
        receiving.join().unwrap();
        assert_eq!(Arc::strong_count(&message), 1, "the sender is still there, and has nothing");
    });
}

#[test]
fn s26_message_for_a_future_that_is_dropped_goes_to_the_next() {
    for limit in [0, 1] {
        explore(2, move || {
            let (sender, receiver) = channel(limit);
            futures_and_a_message(sender, receiver);
        });
    }
    explore(2, || {
        let (sender, receiver) = channel_with_ring(1);
        futures_and_a_message(sender, receiver);
    });
}

/// One who drops its future, and one who waits: one of them has the message.
fn futures_and_a_message(sender: Sender<u32>, receiver: Receiver<u32>) {
    let impatient = {
        let receiver = receiver.clone();
        spawn(move || once(receiver.recv_async()).is_some_and(|received| received.is_ok()))
    };
    let patient = spawn(move || complete(receiver.recv_async()).is_ok());
    complete(sender.send_async(7)).unwrap();
    let got = impatient.join().unwrap();
    drop(sender); // not before what was handed to one who is gone has come back
    assert_ne!(got, patient.join().unwrap(), "one of them has it");
}

#[test]
fn s26_message_of_a_sending_future_that_is_dropped_is_sent_or_not() {
    for ring in [false, true] {
        explore(2, move || {
            let (sender, receiver) = if ring { channel_with_ring(1) } else { channel(1) };
            sender.send(1).unwrap();
            let impatient = {
                let sender = sender.clone();
                spawn(move || once(sender.send_async(2)).is_some())
            };
            let patient = spawn(move || complete(sender.send_async(3)).is_ok());
            let mut received: Vec<u32> = receiver.iter().collect();
            assert!(patient.join().unwrap());
            received.sort_unstable();
            // It may have been taken before it was dropped, and nobody has heard of it.
            if impatient.join().unwrap() {
                assert_eq!(received, [1, 2, 3]);
            } else {
                assert!(received == [1, 3] || received == [1, 2, 3], "{received:?}");
            }
        });
    }
}

/// Which of two channels has a message, and waits for it.
fn first_of(one: &Receiver<u32>, two: &Receiver<u32>) -> u32 {
    let (mut a, mut b) = (one.receiving(), two.receiving());
    let mut select = Select::new();
    select.arm(&mut a);
    select.arm(&mut b);
    match select.wait().unwrap() {
        0 => a.output().unwrap(),
        _ => b.output().unwrap(),
    }
}

#[test]
fn s24_select_takes_one_and_leaves_the_other() {
    for limit in [0, 1] {
        explore(2, move || {
            let (one, ones) = channel(limit);
            let (two, twos) = channel(limit);
            let senders = [(one, 1), (two, 2)].map(|(sender, n)| {
                spawn(move || {
                    sender.send(n).unwrap();
                    sender // not gone before both are received
                })
            });
            let sum = first_of(&ones, &twos) + first_of(&ones, &twos);
            assert_eq!(sum, 3, "each of them, once");
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }
}

#[test]
fn s24_two_selects_make_one_exchange() {
    explore(2, || {
        let (one, ones) = channel(0);
        let (two, twos) = channel(0);
        // Either of them would send, or receive: one of the two messages changes hands.
        let exchange = |sender: &Sender<u32>, receiver: &Receiver<u32>, n: u32| {
            let mut held = Some(n);
            let (mut sending, mut receiving) = (sender.sending(&mut held), receiver.receiving());
            let mut select = Select::new();
            select.arm(&mut sending);
            select.arm(&mut receiving);
            match select.wait().unwrap() {
                0 => sending.output().map(|()| None).unwrap(),
                _ => Some(receiving.output().unwrap()),
            }
        };
        let other = {
            let (two, ones) = (two.clone(), ones.clone());
            spawn(move || exchange(&two, &ones, 2))
        };
        let got = exchange(&one, &twos, 1);
        match (got, other.join().unwrap()) {
            (None, Some(1)) | (Some(2), None) => {}
            both => panic!("{both:?}"),
        }
    });
}

/// A lock whose owner hands it to the first in the line without asking whether he is still there.
struct Careless {
    state: primitive::Lock<(bool, Line<()>)>,
}

impl Careless {
    fn acquire(&self, deadline: Option<Instant>) -> bool {
        let waiter = waiter::Waiter::new();
        let ticket = {
            let mut state = self.state.lock();
            if !state.0 {
                state.0 = true;
                return true;
            }
            state.1.join(waiter.waker(), ())
        };
        let woken = waiter.wait(deadline) == waiter::Woken::Woken;
        if !woken {
            self.state.lock().1.leave(ticket);
        }
        woken
    }

    fn release(&self) {
        let mut state = self.state.lock();
        if state.1.is_empty() {
            state.0 = false;
        } else {
            state.1.wake_first();
        }
    }
}

#[test]
#[should_panic(expected = "deadlock")]
fn model_finds_a_hand_over_to_one_that_is_gone() {
    explore(3, || {
        let lock = primitive::Lock::new((false, Line::new()));
        let careless = Arc::new(Careless { state: lock });
        let impatient = {
            let careless = Arc::clone(&careless);
            spawn(move || {
                if careless.acquire(any_moment()) {
                    careless.release();
                }
            })
        };
        assert!(careless.acquire(None));
        careless.release();
        // Lost, if it went to the other at the moment he left.
        assert!(careless.acquire(None));
        careless.release();
        impatient.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn model_finds_one_that_looks_before_it_joins_the_line() {
    explore(3, || {
        let line = Arc::new(primitive::Lock::new(Line::new()));
        let ready = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let notifying = {
            let (line, ready) = (Arc::clone(&line), Arc::clone(&ready));
            spawn(move || {
                ready.store(true, Ordering::Release);
                line.lock().wake_all();
            })
        };
        if !ready.load(Ordering::Acquire) {
            let waiter = waiter::Waiter::new();
            line.lock().join(waiter.waker(), ());
            waiter.wait(None);
        }
        notifying.join().unwrap();
    });
}
