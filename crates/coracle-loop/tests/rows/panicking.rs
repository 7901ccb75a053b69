//! A callback that panics: the loop can be run again, and nobody else's work is lost. And a loop that goes.

use crate::harness::{Harness, Log};
use coracle_loop::demux::{Completion, Interest, Operation, Submitted};
use coracle_loop::{Complete, HookKind, IdleTimer, Loop, Ticket, Timer, Trigger};
use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Nobody else sends it.
const URG: i32 = rustix::process::Signal::URG.as_raw();

/// Runs until a callback panics.
fn run_into_panic(h: &Harness) {
    let panic = catch_unwind(AssertUnwindSafe(|| h.lp.run())).expect_err("a callback panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    assert!(Loop::current().is_none(), "no turn is under way any more");
}

pub(crate) fn panic_in_a_posted_job_loses_no_other(h: &Harness) {
    let (send, receive) = channel();
    for number in 0..5 {
        let send = send.clone();
        let job = move |_: &Loop| {
            if number == 1 {
                panic!("on purpose");
            }
            send.send(number).unwrap();
        };
        h.lp.handle().post(job).unwrap();
    }
    run_into_panic(h);
    h.lp.run_until_idle().unwrap();
    assert_eq!(receive.try_iter().collect::<Vec<_>>(), [0, 2, 3, 4]);
}

pub(crate) fn panic_in_a_deferred_job_loses_no_other(h: &Harness) {
    let log = Log::default();
    for name in ["first", "", "third"] {
        let log = log.clone();
        h.lp.defer(move |_| {
            assert!(!name.is_empty(), "on purpose");
            log.add(name);
        });
    }
    run_into_panic(h);
    h.lp.run_until_idle().unwrap();
    assert_eq!(log.take(), ["first", "third"]);
}

pub(crate) fn panic_in_a_timer_ends_that_timer_only(h: &Harness) {
    let log = Log::default();
    let (before, after) = (log.clone(), log.clone());
    h.lp.after(MS, move |_| before.add("before"));
    let broken = h.lp.after(2 * MS, |_| panic!("on purpose"));
    h.lp.after(2 * MS, move |_| after.add("after"));
    run_into_panic(h);
    assert_eq!(broken.deadline(), None);
    h.lp.run_until_idle().unwrap(); // would sleep for ever if the broken timer still counted
    assert_eq!(log.take(), ["before", "after"]);
}

pub(crate) fn panic_in_a_periodic_timer_leaves_nothing_behind(h: &Harness) {
    let owned = Rc::new(());
    let held = Rc::clone(&owned);
    let timer = h.lp.every(MS, move |_| {
        let _ = &held;
        panic!("on purpose");
    });
    run_into_panic(h);
    // Whether it goes on is a matter of taste; that it can be ended, and then is gone, is not.
    timer.cancel();
    h.lp.run_until_idle().unwrap();
    assert_eq!(Rc::strong_count(&owned), 1);
}

pub(crate) fn panic_in_a_completion_leaves_the_loop_usable(h: &Harness) {
    let (a, b) = h.lp.socket_pair().unwrap();
    let receive = Operation::Receive { socket: b, space: vec![0; 1].into() };
    h.lp.operate(receive, |_, _| panic!("on purpose"));
    h.lp.operate(Operation::Send { socket: a, payload: vec![1].into() }, |_, _| ());
    run_into_panic(h);
    h.send(a, b"more");
    assert_eq!(h.receive(b, 4), b"more");
    h.lp.run_until_idle().unwrap();
}

pub(crate) fn panic_in_a_hook_keeps_the_hook(h: &Harness) {
    let calls = Rc::new(Cell::new(0));
    let count = Rc::clone(&calls);
    h.lp.on_turn(HookKind::Prepare, move |_| {
        count.set(count.get() + 1);
        assert!(count.get() != 1, "on purpose");
    });
    run_into_panic(h);
    h.lp.run_ready().unwrap();
    assert_eq!(calls.get(), 2);
}

pub(crate) fn panic_in_a_signal_keeps_the_listener(h: &Harness) {
    let heard = Rc::new(Cell::new(0));
    let count = Rc::clone(&heard);
    let listener = h.lp.on_signal(URG, move |lp| {
        count.set(count.get() + 1);
        assert!(count.get() != 1, "on purpose");
        lp.stop();
    });
    let listener = listener.unwrap();
    h.raise(URG);
    run_into_panic(h);
    h.raise(URG);
    h.lp.run().unwrap();
    assert!(heard.get() >= 2);
    listener.cancel();
    h.lp.run_until_idle().unwrap();
}

pub(crate) fn panic_in_a_watch_keeps_it(h: &Harness) {
    for trigger in [Trigger::Level, Trigger::OneShot] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let heard = Rc::new(Cell::new(0));
        let count = Rc::clone(&heard);
        let watch = h.lp.watch(reader, Interest::READ, trigger, move |watched, _| {
            watched.with(|mut pipe| pipe.read_exact(&mut [0])).unwrap();
            watched.rearm().unwrap();
            count.set(count.get() + 1);
            assert!(count.get() != 1, "on purpose");
            watched.lp().stop();
        });
        let _watch = watch.unwrap();
        writer.write_all(b"x").unwrap();
        run_into_panic(h);
        writer.write_all(b"y").unwrap();
        h.lp.run().unwrap();
        assert_eq!(heard.get(), 2);
    }
}

pub(crate) fn dropped_loop_leaves_nothing_behind(h: &Harness) {
    let lp = h.builder().build().unwrap();
    let handle = lp.handle();
    let owned = Rc::new(());
    let hold = || {
        let owned = Rc::clone(&owned);
        move |_: &Loop| drop(Rc::clone(&owned))
    };
    lp.after(MS, hold());
    lp.every(MS, hold());
    lp.defer(hold());
    lp.on_turn(HookKind::Check, hold());
    let idle = lp.idle_timer(MS, hold());
    drop(idle);
    lp.offload(|| (), {
        let held = hold();
        move |lp, _| held(lp)
    })
    .unwrap();
    let (_a, b) = lp.socket_pair().unwrap();
    let (_c, d) = lp.socket_pair().unwrap();
    let held = hold();
    let space = || vec![0; 1].into();
    lp.operate(Operation::Receive { socket: b, space: space() }, move |lp, _| held(lp));
    let held = hold();
    let receive = Operation::Receive { socket: d, space: space() };
    lp.operate_within(1000 * MS, receive, move |lp, _| held(lp));
    let held = hold();
    let told = Rc::new(move |lp: &Loop, _: u32, _: Completion| held(lp));
    let (_e, f) = lp.socket_pair().unwrap();
    let submitted = lp.submit(Operation::ReceiveLent { socket: f }, &told, 0);
    assert!(matches!(submitted, Submitted::Pending(_)));
    drop(told);
    drop(lp);
    assert!(!handle.is_alive(), "something inside the loop keeps the loop alive");
    assert_eq!(Rc::strong_count(&owned), 1, "callbacks were not dropped with their loop");
}

pub(crate) fn dropped_loop_takes_connections_along_that_hold_its_timers(h: &Harness) {
    // What a server has per connection: it is told of the receive, and owns time-outs of its own loop.
    struct Connection {
        _idle: RefCell<Option<IdleTimer>>,
        _timer: RefCell<Option<Timer>>,
        _ticket: RefCell<Option<Ticket>>,
        alive: Rc<Cell<bool>>,
    }
    impl Complete for Connection {
        fn complete(self: Rc<Self>, _lp: &Loop, _tag: u32, _completion: Completion) {}
    }
    impl Drop for Connection {
        fn drop(&mut self) {
            self.alive.set(false);
        }
    }
    let lp = h.builder().build().unwrap();
    let handle = lp.handle();
    let (a, b) = lp.socket_pair().unwrap();
    let alive = Rc::new(Cell::new(true));
    let space = vec![0; 1].into();
    let ticket = lp.operate(Operation::Receive { socket: a, space }, |_, _| ());
    let connection = Rc::new(Connection {
        _idle: RefCell::new(Some(lp.idle_timer(1000 * MS, |_| ()))),
        _timer: RefCell::new(Some(lp.every(1000 * MS, |_| ()))),
        _ticket: RefCell::new(Some(ticket)),
        alive: Rc::clone(&alive),
    });
    let submitted = lp.submit(Operation::ReceiveLent { socket: b }, &connection, 0);
    assert!(matches!(submitted, Submitted::Pending(_)));
    drop(connection);
    assert!(alive.get(), "the loop holds it");
    drop(lp);
    assert!(!handle.is_alive() && !alive.get(), "loop and connection hold each other");
}
