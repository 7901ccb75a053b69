//! Futures on a loop: who polls them, who wakes them, and how they end.

use crate::harness::{ECANCELED, ETIMEDOUT, Harness, Log, MS, Noted, errno};
use coracle_coro::future::{FutureError, block_on, futures, sleep, spawn_future, spawn_future_on};
use coracle_coro::sync::channel;
use coracle_coro::{State, park, spawn, yield_now};
use coracle_loop::Loop;
use coracle_loop::demux::lock::Lock;
use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

/// A future that is ready when somebody says so, counts its polls, and shows its waker.
#[derive(Clone, Default)]
pub(crate) struct Gate(Rc<GateState>);

#[derive(Default)]
struct GateState {
    open: Cell<bool>,
    polls: Cell<u32>,
    waker: RefCell<Option<Waker>>,
}

impl Gate {
    pub(crate) fn open(&self) {
        self.0.open.set(true);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker() {
            waker.wake();
        }
    }

    pub(crate) fn waker(&self) -> Option<Waker> {
        self.0.waker.borrow().clone()
    }

    pub(crate) fn polls(&self) -> u32 {
        self.0.polls.get()
    }

    pub(crate) async fn passed(self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.polls.set(self.0.polls.get() + 1);
        self.0.waker.replace(Some(cx.waker().clone()));
        if self.0.open.get() { Poll::Ready(()) } else { Poll::Pending }
    }
}

pub(crate) fn g6_spawning_polls_nothing(h: &Harness) {
    h.run(|| {
        let log = Log::default();
        let names = ["one", "two", "three"];
        let handles = names.map(|name| {
            let log = log.clone();
            spawn_future(async move { log.add(name) })
        });
        assert_eq!(log.take(), [""; 0], "nothing runs inline");
        assert!(handles.iter().all(|handle| !handle.is_finished()));
        for handle in handles {
            handle.join()?;
        }
        assert_eq!(log.take(), names, "first come, first served");
        Ok(())
    });
}

pub(crate) fn g6_block_on_holds_only_its_coroutine(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(1);
        let waiting = spawn(move || block_on(receiver.recv_async()));
        yield_now();
        assert!(!waiting.is_finished());
        sender.send(7).unwrap();
        assert_eq!(waiting.join().unwrap()?, Ok(7));
        Ok(())
    });
}

pub(crate) fn g6_callback_spawns_a_future(h: &Harness) {
    let log = Log::default();
    let noted = log.clone();
    h.lp.after(MS, move |_| {
        let noted = noted.clone();
        spawn_future(async move {
            noted.add("polled");
            sleep(MS).await;
            noted.add("slept");
            Loop::current().unwrap().stop();
        });
        assert_eq!(futures().len(), 1);
    });
    h.lp.run().unwrap();
    assert_eq!(log.take(), ["polled", "slept"]);
}

pub(crate) fn g6_future_is_woken_from_another_thread(h: &Harness) {
    h.run(|| {
        let (ready, waker) = (Arc::new(Lock::new(false)), Arc::new(Lock::new(None::<Waker>)));
        let (seen, place) = (Arc::clone(&ready), Arc::clone(&waker));
        let future = spawn_future(poll_fn(move |cx| {
            *place.lock() = Some(cx.waker().clone());
            if *seen.lock() { Poll::Ready("woken") } else { Poll::Pending }
        }));
        let thread = thread::spawn(move || {
            loop {
                // Not before it was polled for the first time.
                let waker = waker.lock().take();
                if let Some(waker) = waker {
                    *ready.lock() = true;
                    waker.wake_by_ref();
                    return waker; // and many more times, of which nobody hears
                }
                thread::yield_now();
            }
        });
        assert_eq!(future.join()?, "woken");
        let waker = thread.join().unwrap();
        for _ in 0..3 {
            waker.wake_by_ref();
        }
        Ok(())
    });
}

pub(crate) fn g6_wake_during_the_poll_polls_again_behind_the_others(h: &Harness) {
    h.run(|| {
        let log = Log::default();
        let (first, second) = (log.clone(), log.clone());
        let mut polls = 0;
        let waking = spawn_future(poll_fn(move |cx| {
            first.add("it");
            polls += 1;
            if polls == 3 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        let other = spawn_future(async move { second.add("the other") });
        waking.join()?;
        other.join()?;
        assert_eq!(log.take(), ["it", "the other", "it", "it"]);
        Ok(())
    });
}

pub(crate) fn g6_wakes_before_a_poll_are_one_poll(h: &Harness) {
    h.run(|| {
        let gate = Gate::default();
        let future = spawn_future(gate.clone().passed());
        yield_now();
        assert_eq!(gate.polls(), 1);
        for _ in 0..5 {
            gate.wake();
        }
        yield_now();
        assert_eq!(gate.polls(), 2);
        gate.open();
        future.join()?;
        assert_eq!(gate.polls(), 3);
        Ok(())
    });
}

pub(crate) fn g6_wake_after_the_end_touches_nobody(h: &Harness) {
    h.run(|| {
        let gate = Gate::default();
        let future = spawn_future(gate.clone().passed());
        yield_now();
        gate.open();
        future.join()?;
        let waker = gate.waker().unwrap();
        // Another one, most likely in the same place of the table.
        let next = Gate::default();
        let later = spawn_future(next.clone().passed());
        yield_now();
        waker.wake_by_ref();
        thread::spawn(move || waker.wake()).join().unwrap();
        yield_now();
        coracle_coro::sleep(MS)?;
        assert_eq!(next.polls(), 1);
        next.open();
        later.join()?;
        Ok(())
    });
}

pub(crate) fn g6_waker_outlives_its_loop(h: &Harness) {
    let lp = h.another_loop();
    let gate = Gate::default();
    let future = gate.clone();
    let log = Log::default();
    let noted = Noted(log.clone(), "dropped");
    lp.defer(move |_| {
        spawn_future(async move {
            let _noted = noted;
            future.passed().await;
        });
    });
    lp.run_ready().unwrap();
    lp.run_ready().unwrap();
    assert_eq!(gate.polls(), 1);
    let waker = gate.waker().unwrap();
    drop(lp);
    assert_eq!(log.take(), ["dropped"], "a future goes with its loop");
    waker.wake_by_ref();
    thread::spawn(move || waker.wake()).join().unwrap();
    assert_eq!(gate.polls(), 1);
}

pub(crate) fn g6_panic_ends_only_its_future(h: &Harness) {
    h.run(|| {
        let neighbour = spawn_future(async {
            sleep(MS).await;
            "well"
        });
        let log = Log::default();
        let noted = Noted(log.clone(), "dropped");
        let careless = spawn_future(async move {
            let _noted = noted;
            yield_once().await;
            if true {
                panic!("on purpose");
            }
        });
        let Err(FutureError::Panicked(payload)) = careless.join() else { panic!("it was careful") };
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
        assert_eq!(log.take(), ["dropped"]);
        assert_eq!(neighbour.join()?, "well");
        Ok(())
    });
}

/// Pending once, and woken at once.
pub(crate) async fn yield_once() {
    let mut polled = false;
    poll_fn(|cx| {
        if polled {
            return Poll::Ready(());
        }
        polled = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("in a destructor");
    }
}

pub(crate) fn g6_panic_of_a_destructor_ends_only_its_future(h: &Harness) {
    h.run(|| {
        let careless = spawn_future(async {
            let _panics = PanicsWhenDropped;
            pending::<()>().await;
        });
        yield_now();
        careless.cancel();
        assert!(careless.join().is_err());
        let ready = spawn_future(async {
            let _panics = PanicsWhenDropped;
        });
        assert!(matches!(ready.join(), Err(FutureError::Panicked(_))));
        assert_eq!(spawn_future(async { 7 }).join()?, 7, "the loop is as good as before");
        Ok(())
    });
}

pub(crate) fn g6_cancelled_future_is_dropped_on_its_loop(h: &Harness) {
    struct DroppedHere(thread::ThreadId, Log);
    impl Drop for DroppedHere {
        fn drop(&mut self) {
            assert_eq!(thread::current().id(), self.0);
            self.1.add("dropped");
        }
    }
    h.run(|| {
        let log = Log::default();
        let here = DroppedHere(thread::current().id(), log.clone());
        let future = spawn_future(async move {
            let _here = here;
            pending::<()>().await;
        });
        yield_now();
        let main = coracle_coro::current();
        let thread = thread::spawn(move || {
            future.cancel();
            future.cancel();
            let ended = future.join();
            main.unpark();
            matches!(ended, Err(FutureError::Cancelled))
        });
        park()?;
        assert!(thread.join().unwrap());
        assert_eq!(log.take(), ["dropped"]);
        Ok(())
    });
}

pub(crate) fn g6_future_is_cancelled_in_every_state(h: &Harness) {
    h.run(|| {
        let log = Log::default();
        let guarded = |gate: &Gate| {
            let (noted, gate) = (Noted(log.clone(), "dropped"), gate.clone());
            async move {
                let _noted = noted;
                gate.passed().await;
            }
        };
        // Never polled.
        let gate = Gate::default();
        let unpolled = spawn_future(guarded(&gate));
        unpolled.cancel();
        assert_eq!(log.take(), [""; 0], "never inline");
        assert!(matches!(unpolled.join(), Err(FutureError::Cancelled)));
        assert_eq!((gate.polls(), log.take()), (0, vec!["dropped"]));

        // It waits; and it is woken, but was not polled since.
        for wake in [false, true] {
            let gate = Gate::default();
            let waiting = spawn_future(guarded(&gate));
            yield_now();
            if wake {
                gate.open();
            }
            waiting.cancel();
            assert!(matches!(waiting.join(), Err(FutureError::Cancelled)));
            assert_eq!((gate.polls(), log.take()), (1, vec!["dropped"]));
        }

        // It is being polled, and cancels itself.
        let own = Rc::new(RefCell::new(None));
        let (seen, noted) = (Rc::clone(&own), Noted(log.clone(), "dropped"));
        let running = spawn_future(async move {
            let _noted = noted;
            let handle: Option<coracle_coro::future::FutureHandle<()>> = seen.take();
            handle.expect("it was put there").cancel();
            yield_once().await;
            unreachable!("it is dropped");
        });
        own.replace(Some(running));
        yield_now();
        coracle_coro::sleep(MS)?;
        assert_eq!(log.take(), ["dropped"]);

        // It is over.
        let gate = Gate::default();
        gate.open();
        let over = spawn_future(guarded(&gate));
        yield_now();
        assert!(over.is_finished());
        over.cancel();
        over.join()?;
        assert_eq!(log.take(), ["dropped"]);
        assert!(futures().is_empty());
        Ok(())
    });
}

pub(crate) fn g6_run_waits_for_futures(h: &Harness) {
    let log = Log::default();
    let noted = log.clone();
    h.run(move || {
        spawn_future(async move {
            sleep(MS).await;
            noted.add("the future");
        });
        Ok(())
    });
    assert_eq!(log.take(), ["the future"]);
}

pub(crate) fn g6_stop_of_the_loop_cancels_futures(h: &Harness) {
    let log = Log::default();
    let noted = Noted(log.clone(), "dropped");
    coracle_coro::run_on(&h.lp, move || {
        spawn_future(async move {
            let _noted = noted;
            pending::<()>().await;
        });
        yield_now();
        Loop::current().unwrap().stop();
        Ok(())
    })
    .unwrap();
    assert_eq!(log.take(), ["dropped"]);
}

pub(crate) fn g6_thread_spawns_a_future_on_a_loop(h: &Harness) {
    h.run(|| {
        let handle = Loop::current().unwrap().handle();
        let main = coracle_coro::current();
        let thread = thread::spawn(move || {
            let there = spawn_future_on(&handle, async { thread::current().id() }).unwrap();
            let never = spawn_future_on(&handle, pending::<()>()).unwrap();
            never.cancel(); // perhaps before the loop has it
            let ended = (there.join().unwrap(), never.join());
            main.unpark();
            ended
        });
        park()?;
        let (id, never) = thread.join().unwrap();
        assert_eq!(id, thread::current().id());
        assert!(matches!(never, Err(FutureError::Cancelled)));
        Ok(())
    });
    let gone = h.another_loop().handle();
    assert!(spawn_future_on(&gone, async {}).is_err());
}

pub(crate) fn g6_futures_of_two_loops_wake_each_other(h: &Harness) {
    let other = h.another_loop();
    let (to, from) = channel::<u32>(0);
    let (back, answer) = channel::<u32>(0);
    let echo = spawn_future_on(&other.handle(), async move {
        while let Ok(n) = from.recv_async().await {
            back.send_async(n + 1).await.unwrap();
        }
    })
    .unwrap();
    let stop = other.handle();
    // Two loops that take turns on one thread.
    h.lp.defer(move |lp| {
        let handle = lp.handle();
        spawn_future(async move {
            for n in 0..100 {
                to.send_async(n).await.unwrap();
                assert_eq!(answer.recv_async().await, Ok(n + 1));
            }
            drop(to);
            echo.await.unwrap();
            stop.stop();
            handle.stop();
        });
    });
    for _ in 0..1000 {
        h.lp.run_ready().unwrap();
        other.run_ready().unwrap();
    }
    h.lp.run().unwrap(); // it was stopped: this returns at once
    other.run().unwrap();
}

pub(crate) fn g6_list_has_state_and_place(h: &Harness) {
    h.run(|| {
        let gate = Gate::default();
        let waiting = spawn_future(gate.clone().passed());
        yield_now();
        let looking = spawn_future(async { futures() });
        let all = looking.join()?;
        let states: Vec<State> = all.iter().map(|info| info.state).collect();
        assert!(states.contains(&State::Waiting) && states.contains(&State::Running), "{states:?}");
        assert!(all.iter().all(|info| info.to_string().contains("futures.rs:")));
        gate.open();
        waiting.join()?;
        Ok(())
    });
}

pub(crate) fn g6_ten_thousand_futures_are_polled_in_turns(h: &Harness) {
    h.run(|| {
        // More than one turn polls.
        let gates: Vec<Gate> = (0..10_000).map(|_| Gate::default()).collect();
        let waiting: Vec<_> =
            gates.iter().map(|gate| spawn_future(gate.clone().passed())).collect();
        let fired = Rc::new(Cell::new(false));
        let seen = Rc::clone(&fired);
        Loop::current().unwrap().after(std::time::Duration::ZERO, move |_| seen.set(true));
        let last = spawn_future(async { 7 });
        assert_eq!(last.join()?, 7);
        assert!(fired.get(), "a timer has its turn in between");
        gates.iter().for_each(Gate::open);
        for future in waiting {
            future.join()?;
        }
        Ok(())
    });
}

// --- Between coroutines and futures --------------------------------------------------------------------------

pub(crate) fn s26_future_awaits_a_coroutine(h: &Harness) {
    h.run(|| {
        let coroutine = spawn(|| {
            coracle_coro::sleep(MS).unwrap();
            Rc::new(7)
        });
        let over = spawn(|| 8);
        let careless = spawn(|| -> u32 { panic!("on purpose") });
        let future = spawn_future(async move {
            assert_eq!(*coroutine.await.unwrap(), 7);
            assert_eq!(over.await.unwrap(), 8);
            careless.await.unwrap_err().into_panic().downcast_ref::<&str>() == Some(&"on purpose")
        });
        assert!(future.join()?);
        Ok(())
    });
}

pub(crate) fn s26_handle_that_was_polled_is_joined_or_dropped(h: &Harness) {
    h.run(|| {
        let polled = |n: u32| {
            let mut handle = spawn(move || {
                yield_now();
                n
            });
            let waker = Waker::from(Arc::<Counting>::default());
            for _ in 0..2 {
                assert!(Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)).is_pending());
            }
            handle
        };
        assert_eq!(polled(7).join().unwrap(), 7);
        let handle = polled(8);
        assert_eq!(thread::spawn(move || drop(handle)).join().ok(), Some(()));
        drop(polled(9));
        let late = polled(10);
        for _ in 0..3 {
            yield_now();
        }
        assert!(late.is_finished());
        assert_eq!(block_on(late)?.unwrap(), 10);
        Ok(())
    });
}

pub(crate) fn s26_future_that_is_ready_is_no_wait(h: &Harness) {
    h.run(|| {
        let child = spawn(|| (block_on(async { 7 }).unwrap(), errno(block_on(pending::<()>()))));
        child.cancel();
        assert_eq!(child.join().unwrap(), (7, ECANCELED));
        Ok(())
    });
}

pub(crate) fn s26_cancel_ends_block_on_and_drops_the_future(h: &Harness) {
    h.run(|| {
        let log = Log::default();
        let noted = Noted(log.clone(), "dropped");
        let child = spawn(move || {
            let future = async move {
                let _noted = noted;
                pending::<()>().await;
            };
            errno(block_on(future))
        });
        yield_now();
        assert_eq!(log.take(), [""; 0]);
        child.cancel();
        assert_eq!(child.join().unwrap(), ECANCELED);
        assert_eq!(log.take(), ["dropped"]);
        Ok(())
    });
}

pub(crate) fn s26_timeout_ends_block_on(h: &Harness) {
    h.run(|| {
        assert_eq!(errno(coracle_coro::timeout(MS, || block_on(pending::<()>()))), ETIMEDOUT);
        // One that keeps itself busy, too.
        let busy = || {
            poll_fn(|cx| -> Poll<()> {
                cx.waker().wake_by_ref();
                Poll::Pending
            })
        };
        assert_eq!(errno(coracle_coro::timeout(MS, move || block_on(busy()))), ETIMEDOUT);
        let child = spawn(move || errno(block_on(busy())));
        yield_now();
        child.cancel();
        assert_eq!(child.join().unwrap(), ECANCELED);
        Ok(())
    });
}

pub(crate) fn s26_block_on_in_a_plain_thread(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(0);
        let thread = thread::spawn(move || {
            let late = coracle_coro::timeout(MS, || block_on(pending::<()>()));
            (errno(late), block_on(receiver.recv_async()).unwrap())
        });
        sender.send(7).unwrap();
        assert_eq!(thread.join().unwrap(), (ETIMEDOUT, Ok(7)));
        Ok(())
    });
}

pub(crate) fn s26_future_may_itself_wait_in_block_on(h: &Harness) {
    h.run(|| {
        let gate = Gate::default();
        let opening = gate.clone();
        spawn(move || {
            coracle_coro::sleep(MS).unwrap();
            opening.open();
        });
        block_on(async {
            coracle_coro::sleep(2 * MS).unwrap(); // it is the coroutine's stack
            gate.passed().await;
        })
    });
}

/// What a panic in `f` says.
fn panic_of(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it must panic");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a text")).to_owned(),
    }
}

pub(crate) fn s26_block_on_in_a_callback_panics_with_the_cure(h: &Harness) {
    let said = Rc::new(RefCell::new(String::new()));
    let place = Rc::clone(&said);
    h.lp.defer(move |lp| {
        // Also if the future were ready.
        place.replace(panic_of(|| drop(block_on(async {}))));
        lp.stop();
    });
    h.lp.run().unwrap();
    assert!(said.borrow().contains("`spawn_future` it from here"), "{said:?}");
}

pub(crate) fn s26_wait_in_a_poll_panics_with_the_cure(h: &Harness) {
    h.run(|| {
        let waits = spawn_future(async { panic_of(|| drop(coracle_coro::sleep(MS))) });
        let blocks = spawn_future(async { panic_of(|| drop(block_on(async {}))) });
        let yields = spawn_future(async { panic_of(yield_now) });
        for said in [waits.join()?, blocks.join()?, yields.join()?] {
            assert!(said.contains("awaits instead"), "{said}");
        }
        Ok(())
    });
}

pub(crate) fn s26_spawning_outside_a_loop_panics_with_the_cure(_: &Harness) {
    let said = panic_of(|| drop(spawn_future(async {})));
    assert!(said.contains("spawn_future_on"), "{said}");
}

pub(crate) fn s26_joining_is_interrupted_and_the_future_goes_on(h: &Harness) {
    h.run(|| {
        let gate = Gate::default();
        let log = Log::default();
        let (passed, noted) = (gate.clone().passed(), log.clone());
        let future = spawn_future(async move {
            passed.await;
            noted.add("it went on");
        });
        let Err(FutureError::Interrupted(error)) = coracle_coro::timeout(MS, || future.join())
        else {
            panic!("it was in time")
        };
        assert_eq!(errno(Err::<(), io::Error>(error)), ETIMEDOUT);
        gate.open();
        yield_now();
        assert_eq!(log.take(), ["it went on"]);
        Ok(())
    });
}

/// A waker that counts, and nothing else.
#[derive(Default)]
pub(crate) struct Counting(pub(crate) std::sync::atomic::AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Counting {
    pub(crate) fn count(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}

pub(crate) fn s26_last_waker_is_the_one_that_is_woken(h: &Harness) {
    h.run(|| {
        let counters = [Arc::<Counting>::default(), Arc::<Counting>::default()];
        let coroutine = spawn(park);
        let unpark = coroutine.coroutine().clone();
        let mut handle = std::pin::pin!(coroutine);
        for counter in &counters {
            let waker = Waker::from(Arc::clone(counter));
            assert!(handle.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        yield_now();
        unpark.unpark();
        yield_now();
        assert_eq!(counters.map(|counter| counter.count()), [0, 1]);
        Ok(())
    });
}

/// Wakes somebody when its thread ends: perhaps when other thread-locals are gone.
struct AtTheEnd(Option<Box<dyn FnOnce()>>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        if let Some(last) = self.0.take() {
            last();
        }
    }
}

thread_local! {
    static AT_THE_END: RefCell<AtTheEnd> = const { RefCell::new(AtTheEnd(None)) };
}

pub(crate) fn g6_thread_wakes_with_its_last_breath(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(1);
        let other = receiver.clone();
        let future = spawn_future(async move { receiver.recv_async().await });
        yield_now();
        let coroutine = spawn(move || other.recv());
        yield_now();
        let thread = thread::spawn(move || {
            AT_THE_END.with_borrow_mut(|place| {
                place.0 = Some(Box::new(move || {
                    sender.send(1).unwrap();
                    sender.send(2).unwrap();
                }));
            });
            // Whatever of ours it has is younger, and goes first.
            let (to, from) = channel(1);
            to.send(()).unwrap();
            assert_eq!(block_on(from.recv_async()).unwrap(), Ok(()));
        });
        assert_eq!(future.join()?, Ok(1));
        assert_eq!(coroutine.join().unwrap(), Ok(2));
        thread.join().unwrap();
        Ok(())
    });
}
