//! Row C: timers. What is exact is checked under the virtual clock; on real clocks, "never early" and order.

use crate::harness::{Harness, Log};
use coracle_loop::demux::sim::Faults;
use coracle_loop::demux::{Operation, Outcome};
use coracle_loop::{Loop, RemoteTimer, Timer};
use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// Counts calls.
fn counter() -> (Rc<Cell<u32>>, impl FnMut(&Loop) + Clone + 'static) {
    let calls = Rc::new(Cell::new(0));
    let count = Rc::clone(&calls);
    (calls, move |_: &Loop| count.set(count.get() + 1))
}

/// When something happened, in virtual time.
#[derive(Clone)]
struct Times {
    start: Instant,
    at: Rc<RefCell<Vec<Duration>>>,
}

impl Times {
    fn of(lp: &Loop) -> Times {
        Times { start: lp.now(), at: Rc::default() }
    }

    fn note(&self, lp: &Loop) {
        self.at.borrow_mut().push(lp.now() - self.start);
    }

    fn len(&self) -> usize {
        self.at.borrow().len()
    }
}

// --- C1: one-shot and periodic -------------------------------------------------------------------------

pub(crate) fn c1_one_shot_fires_once_and_never_early(h: &Harness) {
    for timeout in [Duration::ZERO, US, 700 * US, 3 * MS, 21 * MS] {
        let start = h.lp.now();
        let (calls, count) = counter();
        let timer = h.lp.after(timeout, count);
        h.run_until(&calls, move |calls| calls.get() > 0);
        assert!(h.lp.now() >= start + timeout, "{timeout:?} was too early");
        assert_eq!(timer.deadline(), None);
        h.run_for(2 * MS);
        assert_eq!(calls.get(), 1, "a timer fired twice");
    }
}

pub(crate) fn c1_periodic_fires_again_and_again(h: &Harness) {
    let (calls, count) = counter();
    let turns = h.count_turns();
    let start = h.lp.now();
    let timer = h.lp.every(2 * MS, count);
    h.run_until(&calls, move |calls| calls.get() == 10);
    assert!(timer.deadline().is_some_and(|next| next >= start + 11 * 2 * MS));
    assert!(timer.cancel());
    // Seed 004's timer was never read, and woke its loop two million times a second.
    assert!(turns.get() < 10 * 20, "{} turns for ten ticks", turns.get());
    h.run_for(6 * MS);
    assert_eq!(calls.get(), 10);
}

pub(crate) fn c1_wall_clock_time_passes_between_periods(h: &Harness) {
    let start = Instant::now();
    let ticks = Rc::new(Cell::new(0));
    let count = Rc::clone(&ticks);
    let timer = h.lp.every(3 * MS, move |_| {
        count.set(count.get() + 1);
        assert!(start.elapsed() >= count.get() * 3 * MS, "tick {} is early", count.get());
    });
    h.run_until(&ticks, move |ticks| ticks.get() == 10);
    timer.cancel();
}

pub(crate) fn c1_timers_fire_in_the_order_of_their_deadlines(h: &Harness) {
    let log = Log::default();
    for (timeout, name) in [(9, "third"), (3, "first"), (12, "fourth"), (6, "second")] {
        let log = log.clone();
        h.lp.after(timeout * MS, move |_| log.add(name));
    }
    h.run_until(&log, move |log| log.len() == 4);
    assert_eq!(log.take(), ["first", "second", "third", "fourth"]);
}

pub(crate) fn c1_equal_deadlines_fire_in_the_order_they_were_made(h: &Harness) {
    let log = Log::default();
    let deadline = h.lp.now() + 2 * MS;
    for name in ["first", "second", "third", "fourth"] {
        let log = log.clone();
        h.lp.at(deadline, move |_| log.add(name));
    }
    h.run_until(&log, move |log| log.len() == 4);
    assert_eq!(log.take(), ["first", "second", "third", "fourth"]);
}

pub(crate) fn c1_deadline_in_the_past_fires_at_once(h: &Harness) {
    h.lp.after(HOUR, |_| unreachable!("the first must not wait for this"));
    let past = h.lp.now().checked_sub(MS).unwrap_or_else(|| h.lp.now());
    h.lp.at(past, Loop::stop);
    h.lp.run().unwrap();
}

pub(crate) fn c1_deadline_beyond_the_clock_is_never(h: &Harness) {
    let timer = h.lp.after(Duration::MAX, |_| unreachable!("never"));
    h.run_for(2 * MS);
    assert!(timer.deadline().is_some());
    assert!(timer.cancel());
    let every = h.lp.every(Duration::MAX, |_| unreachable!("never"));
    h.run_for(2 * MS);
    assert!(every.cancel());
}

pub(crate) fn c1_periodic_keeps_to_its_grid(h: &Harness) {
    let h = h.simulated(Faults::none());
    let times = Times::of(&h.lp);
    let note = times.clone();
    let timer = h.lp.every(10 * MS, move |lp| note.note(lp));
    // Something else holds the loop up now and then.
    for (at, takes) in [(9, 3), (28, 5), (49, 2)] {
        let kernel = h.kernel().clone();
        h.lp.after(at * MS, move |_| kernel.advance(takes * MS));
    }
    h.run_until(&times, move |times| times.len() == 6);
    timer.cancel();
    let expected = [12, 20, 33, 40, 51, 60].map(|ms| ms * MS);
    let late = |at: &Duration, due: &Duration| *at >= *due && *at < *due + MS;
    let at = times.at.borrow();
    assert!(at.iter().zip(&expected).all(|(at, due)| late(at, due)), "it drifts: {at:?}");
}

pub(crate) fn c1_periodic_does_not_make_up_missed_ticks(h: &Harness) {
    let h = h.simulated(Faults::none());
    let times = Times::of(&h.lp);
    let (note, kernel) = (times.clone(), h.kernel().clone());
    let timer = h.lp.every(10 * MS, move |lp| {
        note.note(lp);
        if note.len() == 2 {
            kernel.advance(75 * MS); // SIGSTOP, or a callback that took long
        }
    });
    h.run_until(&times, move |times| times.at.borrow().last().is_some_and(|&at| at >= 120 * MS));
    timer.cancel();
    let at = times.at.borrow();
    // It was stopped from 20 to 95: one tick may be late, the others are left out, and then the grid again.
    let late = at.iter().filter(|&&at| at > 20 * MS && at < 100 * MS).count();
    assert!(late <= 1, "missed ticks were made up for: {at:?}");
    let on_grid = |at: &Duration| at.as_nanos() % (10 * MS).as_nanos() < (MS / 10).as_nanos();
    assert!(at[at.len() - 3..].iter().all(on_grid), "off the grid: {at:?}");
}

pub(crate) fn c1_period_of_nothing_does_not_spin(h: &Harness) {
    let (ticks, count) = counter();
    let timer = h.lp.every(Duration::ZERO, count);
    let turns = h.count_turns();
    h.run_for(MS); // would never end if the timer were due again within its turn
    timer.cancel();
    assert!(ticks.get() <= turns.get() + 1, "{} ticks in {} turns", ticks.get(), turns.get());
}

pub(crate) fn c1_year_passes(h: &Harness) {
    let h = h.simulated(Faults::none());
    let times = Times::of(&h.lp);
    let note = times.clone();
    h.lp.after(365 * 24 * HOUR, move |lp| note.note(lp));
    h.run_until(&times, move |times| times.len() == 1);
    assert_eq!(times.at.borrow()[..], [365 * 24 * HOUR]);
}

// --- C2: cancel and re-arm -----------------------------------------------------------------------------

pub(crate) fn c2_cancelled_timer_never_fires(h: &Harness) {
    let once = h.lp.after(2 * MS, |_| unreachable!("cancelled"));
    let every = h.lp.every(2 * MS, |_| unreachable!("cancelled"));
    assert!(once.cancel());
    assert!(every.cancel());
    assert!(h.lp.is_idle());
    h.run_for(5 * MS);
}

pub(crate) fn c2_cancelled_timer_never_fires_even_in_the_same_batch(h: &Harness) {
    let deadline = h.lp.now() + 2 * MS;
    let victims: Rc<RefCell<Vec<Timer>>> = Rc::default();
    let doomed = Rc::clone(&victims);
    let fired = Rc::new(Cell::new(false));
    let set = Rc::clone(&fired);
    h.lp.at(deadline, move |lp| {
        assert!(lp.now() >= deadline, "all of them are due");
        for victim in doomed.take() {
            assert!(victim.cancel(), "it had not fired yet");
        }
        set.set(true);
    });
    for _ in 0..100 {
        victims.borrow_mut().push(h.lp.at(deadline, |_| unreachable!("cancelled in its batch")));
    }
    for nanoseconds in 1..100 {
        let deadline = deadline + Duration::from_nanos(nanoseconds);
        victims.borrow_mut().push(h.lp.at(deadline, |_| unreachable!("cancelled in its batch")));
    }
    h.run_until(&fired, move |fired| fired.get());
    h.lp.run_until_idle().unwrap();
}

pub(crate) fn c2_timer_cancelled_twice_was_over_the_second_time(h: &Harness) {
    let timer = h.lp.after(MS, |_| ());
    assert!(timer.cancel());
    assert!(!timer.cancel());
    assert!(!timer.rearm(MS));
    assert_eq!(timer.deadline(), None);
    let (calls, count) = counter();
    let fired = h.lp.after(MS, count);
    h.run_until(&calls, move |calls| calls.get() == 1);
    assert!(!fired.cancel());
    assert!(!fired.rearm(MS));
    // A handle of a timer that is over is no handle of the next.
    let next = h.lp.after(HOUR, |_| ());
    assert!(!fired.cancel() && !timer.cancel());
    assert!(next.cancel());
}

pub(crate) fn c2_periodic_timer_cancels_itself(h: &Harness) {
    let (calls, mut count) = counter();
    let own: Rc<RefCell<Option<Timer>>> = Rc::default();
    let timer = Rc::clone(&own);
    let cancelled = Rc::new(Cell::new(None));
    let answer = Rc::clone(&cancelled);
    *own.borrow_mut() = Some(h.lp.every(MS, move |lp| {
        count(lp);
        if let Some(timer) = timer.take() {
            answer.set(Some(timer.cancel()));
        }
    }));
    h.lp.run_until_idle().unwrap();
    assert_eq!(calls.get(), 1);
    assert_eq!(cancelled.get(), Some(true), "it was not over: it would have fired again");
}

pub(crate) fn c2_timer_rearms_itself(h: &Harness) {
    let (calls, mut count) = counter();
    let own: Rc<RefCell<Option<Timer>>> = Rc::default();
    let (timer, called, last) = (Rc::clone(&own), Rc::clone(&calls), Cell::new(h.lp.now()));
    *own.borrow_mut() = Some(h.lp.after(3 * MS, move |lp| {
        count(lp);
        assert!(lp.now() >= last.replace(lp.now()) + 3 * MS, "too early");
        if called.get() < 4 {
            assert!(timer.borrow().as_ref().is_some_and(|timer| timer.rearm(3 * MS)));
        }
    }));
    h.lp.run_until_idle().unwrap();
    assert_eq!(calls.get(), 4);
    own.take();
}

pub(crate) fn c2_rearmed_timer_fires_at_the_new_time_only(h: &Harness) {
    let start = h.lp.now();
    let (calls, count) = counter();
    let timer = h.lp.after(MS, count);
    assert!(timer.rearm(10 * MS));
    h.run_until(&calls, move |calls| calls.get() == 1);
    assert!(h.lp.now() >= start + 10 * MS);
    let sooner = h.lp.after(HOUR, Loop::stop);
    assert!(sooner.rearm(MS));
    h.lp.run().unwrap();
    h.run_for(2 * MS);
    assert_eq!(calls.get(), 1);
}

pub(crate) fn c2_callback_may_drop_what_owns_other_timers(h: &Harness) {
    // What a callback owns is dropped when nothing is borrowed: here that cancels yet another timer.
    struct CancelsWhenDropped(Timer);
    impl Drop for CancelsWhenDropped {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }
    let guard = |h: &Harness| CancelsWhenDropped(h.lp.after(HOUR, |_| ()));
    let owned = guard(h);
    h.lp.after(MS, move |_| drop(owned.0.clone())); // dropped after it fired
    let owned = guard(h);
    let cancelled = h.lp.after(MS, move |_| drop(owned.0.clone()));
    cancelled.cancel(); // dropped here
    let owned = guard(h);
    h.lp.repeat(MS, 2, move |_| drop(owned.0.clone()), |_| ());
    h.lp.run_until_idle().unwrap(); // an hour, if one of them were left
}

pub(crate) fn c2_remote_cancel_before_the_loop_runs(h: &Harness) {
    let timer = h.lp.after(MS, |_| unreachable!("cancelled"));
    let remote = timer.remote();
    let cancelled = thread::spawn(move || (remote.cancel(), remote.cancel())).join().unwrap();
    assert_eq!(cancelled, (true, false));
    h.lp.run_until_idle().unwrap();
    assert!(!timer.cancel());
}

pub(crate) fn c2_remote_handle_of_a_timer_that_is_over(h: &Harness) {
    let (calls, count) = counter();
    let timer = h.lp.after(MS, count);
    let (early, second) = (timer.remote(), timer.remote());
    h.run_until(&calls, move |calls| calls.get() == 1);
    let late = timer.remote();
    for remote in [early, second, late] {
        assert!(!remote.cancel());
        assert!(!remote.rearm(MS));
    }
    h.lp.run_until_idle().unwrap();
    assert_eq!(calls.get(), 1);
}

pub(crate) fn c2_remote_cancel_and_rearm_from_other_threads(h: &Harness) {
    let start = Instant::now();
    let (calls, count) = counter();
    let later = h.lp.after(HOUR, count.clone());
    let never = h.lp.every(HOUR, |_| unreachable!("cancelled"));
    let (sooner, gone) = (later.remote(), never.remote());
    let thread = thread::spawn(move || {
        thread::sleep(5 * MS);
        assert!(gone.cancel());
        assert!(sooner.rearm(5 * MS));
    });
    h.run_until(&calls, move |calls| calls.get() == 1); // in an hour, if the loop had not been told
    assert!(start.elapsed() >= 10 * MS);
    thread.join().unwrap();
    h.lp.run_until_idle().unwrap();
}

pub(crate) fn c2_remote_cancel_that_says_yes_means_never(h: &Harness) {
    const ROUNDS: usize = 60;
    const TIMERS: usize = 50;
    let fired: Arc<Vec<AtomicU32>> =
        Arc::new((0..ROUNDS * TIMERS).map(|_| AtomicU32::new(0)).collect());
    let (send, receive) = channel::<(usize, RemoteTimer)>();
    let canceller = thread::spawn(move || {
        let mut cancelled = Vec::new();
        for (number, remote) in receive {
            // Between far too early and far too late, so that many hit the moment itself.
            for _ in 0..number % 97 * 8 {
                std::hint::spin_loop();
            }
            cancelled.push((number, remote.cancel()));
        }
        cancelled
    });
    for round in 0..ROUNDS {
        for timer in 0..TIMERS {
            let number = round * TIMERS + timer;
            let fired = Arc::clone(&fired);
            let timer = h.lp.after((timer as u32) * 4 * US, move |_| {
                fired[number].fetch_add(1, Ordering::SeqCst);
            });
            send.send((number, timer.remote())).unwrap();
        }
        h.lp.run_until_idle().unwrap();
    }
    drop(send);
    let mut yes = 0;
    for (number, cancelled) in canceller.join().unwrap() {
        let fired = fired[number].load(Ordering::SeqCst);
        assert_eq!(fired, u32::from(!cancelled), "timer {number}: cancel said {cancelled}");
        yes += u32::from(cancelled);
    }
    println!("{yes} of {} were cancelled in time", ROUNDS * TIMERS);
}

// --- C3, C4: many and small ----------------------------------------------------------------------------

pub(crate) fn c3_million_pending_timers_are_cheap(h: &Harness) {
    const TIMERS: u32 = 1_000_000;
    let start = Instant::now();
    let (calls, count) = counter();
    let timers: Vec<Timer> = (0..TIMERS)
        .map(|n| h.lp.after(HOUR + n * 37 * US, |_| unreachable!("cancelled")))
        .collect();
    for timer in timers.iter().step_by(2) {
        assert!(timer.rearm(2 * HOUR));
    }
    // With all of them pending, others come and go as ever.
    for _ in 0..10 {
        h.lp.after(Duration::ZERO, count.clone());
        h.lp.run_ready().unwrap();
    }
    h.run_until(&calls, move |calls| calls.get() == 10);
    for timer in &timers {
        assert!(timer.cancel());
    }
    assert!(h.lp.is_idle());
    // By a list instead of a wheel this would be hours.
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

pub(crate) fn c4_sub_millisecond_timer_is_not_early_and_does_not_spin(h: &Harness) {
    let turns = h.count_turns();
    for timeout in [50 * US, 333 * US, 999 * US, 1_001 * US] {
        let start = h.lp.now();
        let (calls, count) = counter();
        h.lp.after(timeout, count);
        turns.set(0);
        h.run_until(&calls, move |calls| calls.get() == 1);
        assert!(h.lp.now() >= start + timeout, "{timeout:?} was too early");
        assert!(turns.get() < 20, "{} turns for {timeout:?}: a busy round", turns.get());
    }
}

pub(crate) fn c4_timer_is_exact_to_the_nanosecond(h: &Harness) {
    let h = h.simulated(Faults::none());
    let timeouts = [1, 999, 1_000, 1_023, 1_025, 123_456, 999_999, 7_654_321];
    for timeout in timeouts.map(Duration::from_nanos) {
        h.lp.run_ready().unwrap(); // brings `now` up to date
        let start = h.kernel().elapsed();
        let fired = Rc::new(Cell::new(None));
        let (slot, kernel) = (Rc::clone(&fired), h.kernel().clone());
        h.lp.after(timeout, move |_| slot.set(Some(kernel.elapsed())));
        h.run_until(&fired, move |fired| fired.get().is_some());
        assert_eq!(fired.get().unwrap() - start, timeout);
    }
}

// --- C5: repetitions -----------------------------------------------------------------------------------

pub(crate) fn c5_repeat_fires_n_times_and_then_finishes(h: &Harness) {
    let log = Log::default();
    let (tick, finish) = (log.clone(), log.clone());
    let timer = h.lp.repeat(MS, 3, move |_| tick.add("tick"), move |_| finish.add("finish"));
    h.lp.run_until_idle().unwrap();
    assert_eq!(log.take(), ["tick", "tick", "tick", "finish"]);
    assert!(!timer.cancel(), "it is over");
}

pub(crate) fn c5_repeat_zero_times_only_finishes(h: &Harness) {
    let log = Log::default();
    let finish = log.clone();
    h.lp.repeat(HOUR, 0, |_| unreachable!("zero times"), move |_| finish.add("finish"));
    h.lp.run_ready().unwrap();
    h.lp.run_ready().unwrap();
    assert_eq!(log.take(), ["finish"]);
}

pub(crate) fn c5_cancelled_repetition_does_not_finish(h: &Harness) {
    let (calls, mut count) = counter();
    let own: Rc<RefCell<Option<Timer>>> = Rc::default();
    let timer = Rc::clone(&own);
    let tick = move |lp: &Loop| {
        count(lp);
        timer.take().map(|timer| timer.cancel());
    };
    *own.borrow_mut() = Some(h.lp.repeat(MS, 5, tick, |_| unreachable!("it was cancelled")));
    h.lp.run_until_idle().unwrap();
    assert_eq!(calls.get(), 1);
}

// --- C6: a limit of time on any operation --------------------------------------------------------------

pub(crate) fn c6_time_out_is_told_and_memory_comes_back(h: &Harness) {
    let (_a, b) = h.lp.socket_pair().unwrap();
    let start = h.lp.now();
    let finished = Rc::new(RefCell::new(None));
    let slot = Rc::clone(&finished);
    let receive = Operation::Receive { socket: b, space: vec![7; 100].into() };
    h.lp.operate_within(10 * MS, receive, move |lp, done| {
        *slot.borrow_mut() = Some((done, lp.now()));
    });
    h.lp.run_until_idle().unwrap();
    let (done, at) = finished.take().expect("told once it is over");
    assert_eq!(done.result.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(done.payload.into_vec(), [7; 100], "the memory comes back as it was");
    assert!(at >= start + 10 * MS, "too early");
}

pub(crate) fn c6_finished_operation_is_not_timed_out(h: &Harness) {
    let (a, b) = h.lp.socket_pair().unwrap();
    let received = Rc::new(Cell::new(None));
    let slot = Rc::clone(&received);
    let receive = Operation::Receive { socket: b, space: vec![0; 10].into() };
    h.lp.operate_within(HOUR, receive, move |_, done| match done.result {
        Ok(Outcome::Count(count)) => slot.set(Some(count)),
        other => panic!("{other:?}"),
    });
    h.send(a, b"hello");
    h.lp.run_until_idle().unwrap(); // also: the hour's timer is gone with the operation
    assert_eq!(received.get(), Some(5));
    assert!(h.lp.is_idle());
}

pub(crate) fn c6_data_after_the_time_out_is_not_lost(h: &Harness) {
    let (a, b) = h.connection();
    for round in 0..20u32 {
        // The bytes race with the time-out, and may win or lose.
        let got: Rc<RefCell<Option<Vec<u8>>>> = Rc::default();
        let slot = Rc::clone(&got);
        let receive = Operation::Receive { socket: b, space: vec![0; 4].into() };
        h.lp.operate_within(round * 20 * US, receive, move |_, done| {
            let count = match done.result {
                Ok(Outcome::Count(count)) => count,
                Err(error) if error.kind() == ErrorKind::TimedOut => 0,
                other => panic!("{other:?}"),
            };
            *slot.borrow_mut() = Some(done.payload.into_vec()[..count].to_vec());
        });
        h.lp.after(200 * US, move |lp| {
            let payload = round.to_ne_bytes().to_vec().into();
            lp.operate(Operation::Send { socket: a, payload }, |_, done| {
                assert!(done.result.is_ok())
            });
        });
        h.lp.run_until_idle().unwrap();
        let mut bytes = got.take().expect("told");
        let rest = h.receive(b, 4 - bytes.len());
        bytes.extend(rest);
        assert_eq!(bytes, round.to_ne_bytes());
    }
}

pub(crate) fn c6_time_out_is_exact(h: &Harness) {
    let h = h.simulated(Faults::none());
    let times = Times::of(&h.lp);
    let note = times.clone();
    let (_a, b) = h.lp.socket_pair().unwrap();
    let receive = Operation::Receive { socket: b, space: vec![0; 1].into() };
    h.lp.operate_within(50 * MS, receive, move |lp, _| note.note(lp));
    h.lp.run_until_idle().unwrap();
    let at = times.at.borrow()[0];
    assert!(at >= 50 * MS && at < 51 * MS, "{at:?}");
}

pub(crate) fn c6_accept_of_many_results_is_refused_by_operate(h: &Harness) {
    let listener = h.lp.listen(&"127.0.0.1:0".parse().unwrap(), 1).unwrap();
    let operate = || h.lp.operate(Operation::Accept { listener }, |_, _| ());
    let panic = catch_unwind(AssertUnwindSafe(operate)).expect_err("it must refuse");
    let text = panic.downcast_ref::<String>().expect("a message");
    assert_eq!(text, "accept has many results: use Loop::submit");
    h.lp.run_until_idle().unwrap();
}

// --- Idle timers ---------------------------------------------------------------------------------------

pub(crate) fn idle_timer_fires_after_the_last_touch(h: &Harness) {
    let (calls, mut count) = counter();
    let touched = Rc::new(Cell::new(h.lp.now()));
    let last = Rc::clone(&touched);
    let idle = Rc::new(h.lp.idle_timer(10 * MS, move |lp| {
        assert!(lp.now() >= last.get() + 10 * MS, "it fired although it was touched");
        count(lp);
    }));
    let (touch, busy) = (Rc::clone(&touched), Rc::clone(&idle));
    let tick = move |lp: &Loop| {
        busy.touch();
        touch.set(lp.now());
    };
    h.lp.repeat(4 * MS, 5, tick, |_| ());
    h.run_until(&calls, |calls| calls.get() == 1);
    h.run_for(25 * MS);
    assert_eq!(calls.get(), 1, "it fires once");
    drop(idle);
}

pub(crate) fn idle_timer_that_is_dropped_never_fires(h: &Harness) {
    let idle = h.lp.idle_timer(MS, |_| unreachable!("dropped"));
    drop(idle);
    assert!(h.lp.is_idle());
    // Also from inside a callback of the same batch.
    let idle = Rc::new(RefCell::new(None));
    let doomed = Rc::clone(&idle);
    h.lp.after(MS, move |_| drop(doomed.take()));
    *idle.borrow_mut() = Some(h.lp.idle_timer(MS, |_| unreachable!("dropped")));
    h.lp.run_until_idle().unwrap();
}

pub(crate) fn idle_timer_is_exact(h: &Harness) {
    let h = h.simulated(Faults::none());
    let times = Times::of(&h.lp);
    let note = times.clone();
    let idle = Rc::new(h.lp.idle_timer(10 * MS, move |lp| note.note(lp)));
    let turns = h.count_turns();
    for at in [4, 8, 15] {
        let idle = Rc::clone(&idle);
        h.lp.after(at * MS, move |_| idle.touch());
    }
    h.run_until(&times, move |times| times.len() == 1);
    assert_eq!(times.at.borrow()[..], [25 * MS]);
    assert!(turns.get() < 12, "a touch is no timer: {} turns", turns.get());
}
