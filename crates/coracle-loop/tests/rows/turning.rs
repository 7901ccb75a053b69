//! Row B, first half: whose turn is it? Order, ways to run, stopping, hooks, fairness, looking in.

use crate::harness::{Harness, Log, run_until, same_loop};
use coracle_loop::demux::{Completion, Handle, Interest, Operation, Outcome, Submitted};
use coracle_loop::{Hook, HookKind, Loop, LoopHandle, RemoteTimer};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);

// --- B1: one loop per thread ---------------------------------------------------------------------------

pub(crate) fn b1_handles_cross_threads_and_loops_do_not(_h: &Harness) {
    fn may_cross<T: Send + Sync>() {}
    may_cross::<LoopHandle>();
    may_cross::<RemoteTimer>();

    // If `Loop` were `Send`, there would be two ways to read the last line, and it would not compile.
    trait AmbiguousIfSend<Marker> {
        fn check() {}
    }
    struct Sendable;
    impl<T> AmbiguousIfSend<()> for T {}
    impl<T: Send> AmbiguousIfSend<Sendable> for T {}
    <Loop as AmbiguousIfSend<_>>::check();
}

pub(crate) fn b1_current_loop_is_known_in_callbacks_and_nowhere_else(h: &Harness) {
    assert!(Loop::current().is_none());
    let seen = Rc::new(Cell::new(0));
    let see = |place: &'static str| {
        let seen = Rc::clone(&seen);
        move |lp: &Loop| {
            let current = Loop::current().unwrap_or_else(|| panic!("no current loop in {place}"));
            assert!(same_loop(lp, &current), "another loop is current in {place}");
            seen.set(seen.get() + 1);
        }
    };
    h.lp.after(Duration::ZERO, see("a timer"));
    h.lp.defer(see("a deferred job"));
    let completion = see("a completion");
    let (a, b) = h.lp.socket_pair().unwrap();
    let receive = Operation::Receive { socket: b, space: vec![0; 1].into() };
    h.lp.operate(receive, move |lp, _| completion(lp));
    h.send(a, b"x");
    h.run_until(&seen, move |seen| seen.get() == 3);
    let hook = h.lp.on_turn(HookKind::Prepare, see("a hook"));
    h.lp.run_ready().unwrap();
    h.lp.remove_hook(hook);
    assert_eq!(seen.get(), 4);
    assert!(Loop::current().is_none());
}

pub(crate) fn b1_two_loops_on_one_thread_nest(h: &Harness) {
    let inner = h.builder().build().unwrap();
    let log = Log::default();
    let within = log.clone();
    h.lp.defer(move |outer| {
        let ran = within.clone();
        inner.defer(move |inner| {
            assert!(same_loop(inner, &Loop::current().unwrap()));
            ran.add("inner");
        });
        inner.run_until_idle().unwrap();
        assert!(same_loop(outer, &Loop::current().unwrap()), "the outer loop is current again");
        within.add("outer");
    });
    h.run_until(&log, move |log| log.len() == 2);
    assert_eq!(log.take(), ["inner", "outer"]);
    assert!(Loop::current().is_none());
}

pub(crate) fn b1_loop_cannot_run_inside_its_own_turn(h: &Harness) {
    let tried = Rc::new(Cell::new(0));
    for way in [Loop::run, Loop::run_once, Loop::run_ready] {
        let count = Rc::clone(&tried);
        h.lp.defer(move |lp| {
            let panic = catch_unwind(AssertUnwindSafe(|| way(lp))).expect_err("it must refuse");
            let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
            assert!(text.contains("inside its own turn"), "{text}");
            count.set(count.get() + 1);
        });
    }
    h.run_until(&tried, move |tried| tried.get() == 3);
    assert!(Loop::current().is_none());
}

pub(crate) fn b1_loop_cannot_run_inside_its_own_turn_by_way_of_another(h: &Harness) {
    let other = h.builder().build().unwrap();
    let refused = Rc::new(Cell::new(None));
    let slot = Rc::clone(&refused);
    h.lp.defer(move |outer| {
        let (outer, slot) = (outer.clone(), Rc::clone(&slot));
        other.defer(move |_| {
            slot.set(Some(catch_unwind(AssertUnwindSafe(|| outer.run_ready())).is_err()));
        });
        other.run_until_idle().unwrap();
    });
    h.run_until(&refused, move |refused| refused.get().is_some());
    assert_eq!(refused.get(), Some(true), "a turn began inside a turn of the same loop");
}

// --- B2: ways to run -----------------------------------------------------------------------------------

pub(crate) fn b2_run_ready_does_what_there_is_and_does_not_wait(h: &Harness) {
    let log = Log::default();
    let (deferred, timer) = (log.clone(), log.clone());
    h.lp.defer(move |_| deferred.add("deferred"));
    h.lp.after(HOUR, move |_| timer.add("timer"));
    for _ in 0..10 {
        h.lp.run_ready().unwrap(); // would wait for an hour
    }
    assert_eq!(log.take(), ["deferred"]);
}

pub(crate) fn b2_run_once_waits_until_there_is_something_to_do(h: &Harness) {
    let turns = h.count_turns();
    h.run_for(20 * MS);
    // A wait may end early; a loop that does not wait would take thousands.
    assert!(turns.get() < 50, "{} turns", turns.get());
}

pub(crate) fn b2_run_once_does_not_wait_when_it_has_done_something(h: &Harness) {
    // `while !done { lp.run_once() }` must see that a timer, a job or a deferred job has set `done`.
    h.must_not_hang(|h| {
        let fired = Rc::new(Cell::new(false));
        let set = Rc::clone(&fired);
        h.lp.after(HOUR, move |_| set.set(true));
        h.lp.defer(|_| ());
        h.lp.run_once().unwrap();
        h.lp.handle().post(|_| ()).unwrap();
        h.lp.run_once().unwrap();
        h.lp.after(Duration::ZERO, |_| ());
        h.lp.run_once().unwrap();
        h.lp.run_ready().unwrap();
        assert!(!fired.get(), "it has waited for an hour");
    });
}

pub(crate) fn b2_run_until_idle_sees_everything_through(h: &Harness) {
    let log = Log::default();
    let add = |what| {
        let log = log.clone();
        move |_: &Loop| log.add(what)
    };
    h.lp.after(2 * MS, add("timer"));
    h.lp.defer(add("deferred"));
    let (send, posted) = channel();
    h.lp.handle().post(move |_| send.send(()).unwrap()).unwrap();
    let offloaded = add("offloaded");
    let done = move |lp: &Loop, result: Result<i32, _>| {
        assert_eq!(result.unwrap(), 42);
        offloaded(lp);
    };
    h.lp.offload(|| 6 * 7, done).unwrap();
    let (a, b) = h.lp.socket_pair().unwrap();
    let received = add("received");
    h.lp.operate(Operation::Receive { socket: b, space: vec![0; 1].into() }, move |lp, _| {
        // One callback leads to another.
        lp.after(MS, move |lp| lp.defer(received.clone()));
    });
    h.lp.operate(Operation::Send { socket: a, payload: vec![1].into() }, |_, _| ());
    assert!(!h.lp.is_idle());
    h.lp.run_until_idle().unwrap();
    assert!(h.lp.is_idle());
    assert!(posted.try_recv().is_ok());
    let mut log = log.take();
    log.sort_unstable();
    assert_eq!(log, ["deferred", "offloaded", "received", "timer"]);
}

pub(crate) fn b2_run_until_idle_returns_at_once_when_there_is_nothing(h: &Harness) {
    assert!(h.lp.is_idle());
    h.lp.run_until_idle().unwrap();
    h.lp.run_until_idle().unwrap();
}

pub(crate) fn b2_run_until_idle_delivers_the_end_of_a_cancelled_operation(h: &Harness) {
    let (_a, b) = h.lp.socket_pair().unwrap();
    let ended = Rc::new(Cell::new(false));
    let set = Rc::clone(&ended);
    let receive = Operation::Receive { socket: b, space: vec![0; 1].into() };
    let ticket = h.lp.operate(receive, move |_, _| set.set(true));
    ticket.cancel();
    assert!(!h.lp.is_idle(), "somebody has still to be told");
    h.lp.run_until_idle().unwrap();
    assert!(ended.get());
}

pub(crate) fn b2_run_until_idle_ends_by_stop(h: &Harness) {
    h.lp.after(HOUR, |_| ());
    h.lp.after(MS, Loop::stop);
    h.lp.run_until_idle().unwrap();
    assert!(!h.lp.is_idle());
}

// --- B3: stopping --------------------------------------------------------------------------------------

pub(crate) fn b3_stop_before_start_is_not_lost(h: &Harness) {
    h.lp.after(HOUR, |_| unreachable!("the loop was stopped"));
    h.lp.stop();
    h.lp.run().unwrap();
    h.lp.handle().stop();
    h.lp.run().unwrap();
    let handle = h.lp.handle();
    thread::spawn(move || handle.stop()).join().unwrap();
    h.lp.run().unwrap();
}

pub(crate) fn b3_stop_ends_one_run_and_not_the_next(h: &Harness) {
    h.lp.stop();
    h.lp.run().unwrap();
    let fired = Rc::new(Cell::new(false));
    let set = Rc::clone(&fired);
    h.lp.after(5 * MS, move |lp| {
        set.set(true);
        lp.stop();
    });
    h.lp.run().unwrap();
    assert!(fired.get(), "the second run was ended by the first stop");
}

pub(crate) fn b3_jobs_posted_before_the_stop_are_run(h: &Harness) {
    let log = Log::default();
    for _ in 0..3 {
        h.lp.handle().post(|_| ()).unwrap();
        let log = log.clone();
        h.lp.defer(move |_| log.add("deferred"));
    }
    h.lp.stop();
    h.lp.run().unwrap();
    assert_eq!(h.lp.handle().posted_jobs(), 0);
    assert_eq!(log.len(), 3);
}

pub(crate) fn b3_jobs_posted_before_the_stop_are_run_beyond_the_budget_too(h: &Harness) {
    let lp = h.builder().budget(2).build().unwrap();
    let (send, receive) = channel();
    for number in 0..10 {
        let send = send.clone();
        lp.handle().post(move |_| send.send(number).unwrap()).unwrap();
    }
    lp.handle().stop();
    lp.run().unwrap();
    let ran: Vec<i32> = receive.try_iter().collect();
    assert_eq!(ran, (0..10).collect::<Vec<_>>(), "what run() promises");
}

pub(crate) fn b3_stop_from_any_callback_ends_the_run(h: &Harness) {
    h.lp.after(HOUR, |_| unreachable!("every run is stopped before"));
    h.lp.after(MS, Loop::stop);
    h.lp.run().unwrap();
    h.lp.defer(Loop::stop);
    h.lp.run().unwrap();
    h.lp.handle().post(Loop::stop).unwrap();
    h.lp.run().unwrap();
    for kind in [HookKind::Prepare, HookKind::Check, HookKind::Idle] {
        let hook = h.lp.on_turn(kind, Loop::stop);
        if kind == HookKind::Check {
            h.lp.defer(|lp| lp.defer(|_| ())); // lest it sleeps before it checks
        }
        h.lp.run().unwrap();
        h.lp.remove_hook(hook);
    }
    let (a, b) = h.lp.socket_pair().unwrap();
    h.lp.operate(Operation::Receive { socket: b, space: vec![0; 1].into() }, |lp, _| lp.stop());
    h.lp.operate(Operation::Send { socket: a, payload: vec![1].into() }, |_, _| ());
    h.lp.run().unwrap();
}

pub(crate) fn b3_stop_from_another_thread_ends_a_sleep(h: &Harness) {
    for delay in [0, 1, 20] {
        let handle = h.lp.handle();
        let thread = thread::spawn(move || {
            thread::sleep(delay * MS);
            handle.stop();
        });
        h.lp.run().unwrap(); // would sleep for ever
        thread.join().unwrap();
    }
}

pub(crate) fn b3_stop_after_a_time(h: &Harness) {
    let start = h.lp.now();
    h.lp.stop_after(10 * MS);
    h.lp.run().unwrap();
    assert!(h.lp.now() >= start + 10 * MS, "too early");

    let cancelled = h.lp.stop_after(MS);
    assert!(cancelled.cancel());
    let start = h.lp.now();
    h.lp.stop_after(15 * MS);
    h.lp.run().unwrap();
    assert!(h.lp.now() >= start + 15 * MS, "a cancelled stop has stopped the loop");
}

// --- B6: order and hooks -------------------------------------------------------------------------------

pub(crate) fn b6_turn_order_is_as_documented(h: &Harness) {
    let log = Log::default();
    let add = |what| {
        let log = log.clone();
        move |_: &Loop| log.add(what)
    };
    // A completion that is there by the time of the wait, or soon after: multishot, so never at once.
    let (a, b) = h.lp.socket_pair().unwrap();
    h.send(a, b"x");
    let completion = add("completion");
    let told = Rc::new(move |lp: &Loop, _: u32, _: Completion| completion(lp));
    let submitted = h.lp.submit(Operation::ReceiveLent { socket: b }, &told, 0);
    assert!(matches!(submitted, Submitted::Pending(_)));
    // Everything at once, in the wrong order.
    h.lp.on_turn(HookKind::Check, add("check"));
    h.lp.on_turn(HookKind::Prepare, add("prepare"));
    h.lp.defer(add("deferred"));
    let handle = h.lp.handle();
    handle.post(|_| ()).unwrap();
    let (before, timer) = (h.lp.handle(), add("timer"));
    h.lp.after(Duration::ZERO, move |lp| {
        assert_eq!(before.posted_jobs(), 1, "timers go before posted jobs");
        timer(lp);
    });
    h.lp.defer(move |_| assert_eq!(handle.posted_jobs(), 0, "posted jobs go before deferred ones"));
    h.run_until(&log, move |log| log.contains("completion"));
    let log = log.take();
    assert_eq!(log[..4], ["timer", "deferred", "prepare", "check"]);
    let last = log.iter().position(|&what| what == "completion").unwrap();
    assert_eq!(log[last - 2..last], ["prepare", "check"]);
}

pub(crate) fn b6_hooks_run_in_the_order_they_were_added(h: &Harness) {
    let log = Log::default();
    for name in ["first", "second", "third"] {
        let log = log.clone();
        h.lp.on_turn(HookKind::Prepare, move |_| log.add(name));
    }
    h.lp.run_ready().unwrap();
    h.lp.run_ready().unwrap();
    assert_eq!(log.take(), ["first", "second", "third", "first", "second", "third"]);
}

pub(crate) fn b6_hook_removes_itself_and_others(h: &Harness) {
    let log = Log::default();
    let hooks: Rc<RefCell<Vec<Hook>>> = Rc::default();
    let add = |name| {
        let (log, all) = (log.clone(), Rc::clone(&hooks));
        let hook = h.lp.on_turn(HookKind::Check, move |lp: &Loop| {
            log.add(name);
            if name == "second" {
                for hook in all.take() {
                    assert!(lp.remove_hook(hook), "each was there");
                    assert!(!lp.remove_hook(hook), "and is not any more");
                }
            }
            if name == "first" && log.len() == 1 {
                let log = log.clone();
                lp.on_turn(HookKind::Check, move |_| log.add("new")); // from the next turn on
            }
        });
        hooks.borrow_mut().push(hook);
    };
    for name in ["first", "second", "third"] {
        add(name);
    }
    h.lp.run_ready().unwrap();
    assert_eq!(log.take(), ["first", "second"], "a hook that was removed is not called any more");
    h.lp.run_ready().unwrap();
    assert_eq!(log.take(), ["new"]);
}

pub(crate) fn b6_hook_that_removes_itself_is_dropped_when_nothing_is_borrowed(h: &Harness) {
    struct AddsHookWhenDropped(Loop);
    impl Drop for AddsHookWhenDropped {
        fn drop(&mut self) {
            self.0.on_turn(HookKind::Check, |_| ()); // needs the list of hooks
        }
    }
    let own: Rc<Cell<Option<Hook>>> = Rc::default();
    let (guard, hook) = (AddsHookWhenDropped(h.lp.clone()), Rc::clone(&own));
    own.set(Some(h.lp.on_turn(HookKind::Prepare, move |lp| {
        let _ = &guard;
        lp.remove_hook(hook.get().unwrap());
    })));
    h.lp.run_ready().unwrap();
    h.lp.run_ready().unwrap();
}

pub(crate) fn b6_idle_hook_runs_only_before_a_sleep(h: &Harness) {
    let idle = Rc::new(Cell::new(0));
    let count = Rc::clone(&idle);
    h.lp.on_turn(HookKind::Idle, move |_| count.set(count.get() + 1));
    for _ in 0..3 {
        h.lp.run_ready().unwrap(); // may not sleep
        h.lp.defer(|lp| lp.defer(|_| ()));
        h.lp.run_once().unwrap(); // has something left to do
        h.lp.run_ready().unwrap();
    }
    assert_eq!(idle.get(), 0);
    h.run_for(5 * MS);
    assert!(idle.get() > 0);
}

pub(crate) fn b6_stuck_is_who_has_nothing_to_wait_for(h: &Harness) {
    let stuck = Rc::new(Cell::new(0));
    let counter = Rc::clone(&stuck);
    h.lp.on_turn(HookKind::Stuck, move |lp| {
        counter.set(counter.get() + 1);
        lp.stop();
    });
    // A timer, then an operation: both can end the wait.
    let (seen, fired) = (Rc::clone(&stuck), Rc::new(Cell::new(false)));
    let fires = Rc::clone(&fired);
    let (a, b) = h.lp.socket_pair().unwrap();
    h.lp.after(2 * MS, move |lp| {
        assert_eq!(seen.get(), 0, "a timer was there");
        let receive = Operation::Receive { socket: b, space: vec![0; 1].into() };
        let seen = Rc::clone(&seen);
        let fires = Rc::clone(&fires);
        lp.operate(receive, move |_, _| {
            assert_eq!(seen.get(), 0, "an operation was in flight");
            fires.set(true);
        });
        let handle = lp.handle();
        thread::spawn(move || {
            thread::sleep(2 * MS);
            handle.post(move |lp| {
                lp.operate(Operation::Send { socket: a, payload: vec![1].into() }, |_, _| ());
            })
        });
    });
    h.lp.run().unwrap();
    assert!(fired.get());
    assert_eq!(stuck.get(), 1);
}

pub(crate) fn b6_job_deferred_by_an_idle_hook_runs_at_once(h: &Harness) {
    h.lp.after(HOUR, |_| unreachable!("the deferred job must not wait for this"));
    h.lp.on_turn(HookKind::Idle, |lp| lp.defer(Loop::stop));
    h.lp.run().unwrap();
}

// --- B7: fairness --------------------------------------------------------------------------------------

/// Waits for a timer, a posted job, a deferred job and a completion, while something else floods the loop.
#[derive(Clone)]
struct Others {
    left: Rc<Cell<u32>>,
}

impl Others {
    fn start(lp: &Loop, (a, b): (Handle, Handle)) -> Others {
        let left = Rc::new(Cell::new(4));
        let done = {
            let left = Rc::clone(&left);
            move |_: &Loop| left.set(left.get() - 1)
        };
        lp.after(MS, done.clone());
        lp.defer(done.clone());
        let told = done.clone();
        lp.operate(Operation::Receive { socket: b, space: vec![0; 1].into() }, move |lp, _| {
            told(lp)
        });
        lp.operate(Operation::Send { socket: a, payload: vec![1].into() }, |_, _| ());
        // A posted job is `Send`; it leaves a mark where a hook finds it.
        let (send, posted) = channel();
        lp.handle().post(move |_| send.send(()).unwrap()).unwrap();
        let done = Cell::new(Some(done));
        lp.on_turn(HookKind::Prepare, move |lp| {
            if posted.try_recv().is_ok()
                && let Some(done) = done.take()
            {
                done(lp);
            }
        });
        Others { left }
    }

    fn are_served(&self) -> bool {
        self.left.get() == 0
    }
}

pub(crate) fn b7_flood_of_posted_jobs_does_not_starve_the_others(h: &Harness) {
    fn flood(lp: &Loop) {
        // Twice what a turn runs, for ever.
        for _ in 0..2 {
            let _ = lp.handle().post(flood);
        }
    }
    let lp = h.builder().budget(16).limit_posted_jobs(1000).build().unwrap();
    flood(&lp);
    let others = Others::start(&lp, lp.socket_pair().unwrap());
    run_until(&lp, &others, Others::are_served);
}

pub(crate) fn b7_flood_of_deferred_jobs_does_not_starve_the_others(h: &Harness) {
    fn flood(lp: &Loop) {
        lp.defer(flood);
    }
    let lp = h.builder().budget(16).build().unwrap();
    for _ in 0..100 {
        flood(&lp);
    }
    let others = Others::start(&lp, lp.socket_pair().unwrap());
    run_until(&lp, &others, Others::are_served);
}

pub(crate) fn b7_flood_of_timers_does_not_starve_the_others(h: &Harness) {
    fn flood(lp: &Loop) {
        lp.after(Duration::ZERO, flood); // due at once, and again, and again
    }
    let lp = h.builder().budget(16).build().unwrap();
    for _ in 0..100 {
        flood(&lp);
    }
    let others = Others::start(&lp, lp.socket_pair().unwrap());
    run_until(&lp, &others, Others::are_served);
}

pub(crate) fn b7_flood_of_completions_does_not_starve_the_others(h: &Harness) {
    fn flood(lp: &Loop, socket: Handle) {
        let operation = Operation::Send { socket, payload: vec![0; 64].into() };
        lp.operate(operation, move |lp, _| flood(lp, socket));
    }
    for budget in [1, 2, 4, 8, 16, 32] {
        let lp = h.builder().budget(budget).build().unwrap();
        // Each connection talks to itself as fast as the loop lets it.
        for _ in 0..50 {
            let (a, b) = lp.socket_pair().unwrap();
            let drain = Rc::new(|_: &Loop, _: u32, _: Completion| ());
            assert!(matches!(
                lp.submit(Operation::ReceiveLent { socket: b }, &drain, 0),
                Submitted::Pending(_)
            ));
            flood(&lp, a);
        }
        let others = Others::start(&lp, lp.socket_pair().unwrap());
        run_until(&lp, &others, Others::are_served);
    }
}

/// What is ready for as long as anybody asks, and is asked for again and again.
pub(crate) fn b7_flood_of_polls_does_not_starve_the_others(h: &Harness) {
    fn flood(lp: &Loop, handle: Handle) {
        let poll = Operation::Poll { handle, interest: Interest::WRITE };
        lp.operate(poll, move |lp, _| flood(lp, handle));
    }
    for budget in [1, 2, 4, 8, 16, 32] {
        let lp = h.builder().budget(budget).build().unwrap();
        for _ in 0..50 {
            let (writable, _) = lp.socket_pair().unwrap();
            flood(&lp, writable);
        }
        let others = Others::start(&lp, lp.socket_pair().unwrap());
        run_until(&lp, &others, Others::are_served);
    }
}

/// Many completions at once, whose callbacks take their time: a timer does not have to wait for all of them.
pub(crate) fn b7_slow_callbacks_do_not_keep_a_timer_waiting(h: &Harness) {
    const MANY: u32 = 60;
    let told = Rc::new(Cell::new(0));
    for _ in 0..MANY {
        let (a, b) = h.lp.socket_pair().unwrap();
        h.lp.operate(Operation::Send { socket: a, payload: vec![1].into() }, |_, _| ());
        let told = Rc::clone(&told);
        h.lp.operate(Operation::Receive { socket: b, space: vec![0; 1].into() }, move |_, _| {
            let begin = Instant::now();
            while begin.elapsed() < MS {}
            told.set(told.get() + 1);
        });
    }
    let (seen, before) = (Rc::new(Cell::new(None)), Rc::clone(&told));
    let at = Rc::clone(&seen);
    h.lp.after(5 * MS, move |_| at.set(Some(before.get())));
    h.lp.run_until_idle().unwrap();
    assert_eq!(told.get(), MANY);
    let seen = seen.get().expect("it has fired");
    assert!(seen < MANY, "the timer had to wait for all of them");
}

pub(crate) fn b7_budget_is_kept_and_the_rest_comes_without_a_sleep(h: &Harness) {
    const BUDGET: usize = 3;
    let lp = h.builder().budget(BUDGET).build().unwrap();
    let in_turn = Rc::new(Cell::new(0));
    let most = Rc::new(Cell::new(0));
    let total = Rc::new(Cell::new(0));
    let note = {
        let (in_turn, most, total) = (Rc::clone(&in_turn), Rc::clone(&most), Rc::clone(&total));
        move |_: &Loop| {
            in_turn.set(in_turn.get() + 1);
            total.set(total.get() + 1);
            most.set(most.get().max(in_turn.get()));
        }
    };
    let reset = Rc::clone(&in_turn);
    lp.on_turn(HookKind::Check, move |_| reset.set(0));
    let served = |count: usize| {
        // Nothing but the rest of the work could end a sleep.
        run_until(&lp, &total, move |total| total.get() == count);
        assert_eq!(total.replace(0), count);
        assert!(most.replace(0) <= BUDGET, "the budget was exceeded");
        in_turn.set(0);
    };
    for _ in 0..20 {
        lp.defer(note.clone());
    }
    served(20);
    for _ in 0..20 {
        lp.after(Duration::ZERO, note.clone());
    }
    served(20);
    let sockets: Vec<_> = (0..20).map(|_| lp.socket_pair().unwrap()).collect();
    for &(a, b) in &sockets {
        let note = note.clone();
        let told = Rc::new(move |lp: &Loop, _: u32, completion: Completion| {
            if matches!(completion.result, Ok(Outcome::Lent(_))) {
                note(lp);
            }
        });
        let _ = lp.submit(Operation::ReceiveLent { socket: b }, &told, 0);
        lp.operate(Operation::Send { socket: a, payload: vec![1].into() }, |_, _| ());
    }
    served(20);
}

// --- B11, B12: looking in ------------------------------------------------------------------------------

pub(crate) fn b11_dump_says_what_the_loop_waits_for(h: &Harness) {
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = h.lp.listen(&any, 1).unwrap();
    let nobody = Rc::new(|_: &Loop, _: u32, _: Completion| ());
    let _ = h.lp.submit(Operation::Accept { listener }, &nobody, 0);
    let (_a, b) = h.lp.socket_pair().unwrap();
    let _ = h.lp.submit(Operation::ReceiveLent { socket: b }, &nobody, 0);
    h.lp.after(HOUR, |_| ());
    h.lp.every(HOUR, |_| ());
    h.lp.defer(|_| ());
    h.lp.handle().post(|_| ()).unwrap();
    let dump = h.lp.dump();
    let first = dump.lines().next().unwrap();
    let name = h.backend.to_string();
    let head = format!(
        "loop on {name}: 2 operations, 2 timers, 1 posted and 1 deferred jobs, 0 offloaded"
    );
    assert_eq!(first, head);
    assert_eq!(dump.lines().filter(|line| line.starts_with("timer")).count(), 2, "{dump}");
    assert!(dump.contains("then every 3600s"), "{dump}");
    assert!(dump.contains("accept") && dump.contains("receive lent"), "{dump}");
    assert_eq!(dump.lines().count(), 5, "{dump}");
}

pub(crate) fn b12_now_stands_still_within_a_turn_and_never_goes_back(h: &Harness) {
    let last = Rc::new(Cell::new(h.lp.now()));
    let turns = Rc::new(Cell::new(0));
    let (before, count) = (Rc::clone(&last), Rc::clone(&turns));
    let timer = h.lp.every(MS, move |lp| {
        let now = lp.now();
        assert!(now >= before.replace(now), "time went back");
        thread::sleep(MS / 4);
        assert_eq!(lp.now(), now, "the time of a turn is read once");
        count.set(count.get() + 1);
    });
    h.run_until(&turns, move |turns| turns.get() == 10);
    timer.cancel();
    assert!(h.lp.now() >= last.get());
}
