//! Row G2: work for other threads, and its way back.

use crate::harness::{Harness, run_until};
use coracle_loop::demux::{OpenOptions, Operation, Outcome};
use coracle_loop::pool::{Overload, Pool, PoolSettings};
use coracle_loop::{Loop, OffloadError};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

pub(crate) fn g2_result_comes_back_on_the_loop(h: &Harness) {
    let result = Rc::new(RefCell::new(String::new())); // not `Send`: `done` never leaves the loop
    let slot = Rc::clone(&result);
    let done = move |_: &Loop, text: Result<String, OffloadError>| {
        assert!(Loop::current().is_some());
        *slot.borrow_mut() = text.unwrap();
    };
    h.lp.offload(|| "heavy work".to_uppercase(), done).unwrap();
    assert!(result.borrow().is_empty(), "never from inside the call");
    h.lp.run_until_idle().unwrap();
    assert_eq!(*result.borrow(), "HEAVY WORK");
}

pub(crate) fn g2_panic_of_offloaded_work_is_told(h: &Harness) {
    let told = Rc::new(RefCell::new(String::new()));
    let slot = Rc::clone(&told);
    let work = || -> u32 { panic!("on purpose") };
    h.lp.offload(work, move |_, result| match result {
        Err(error @ OffloadError::Panicked(_)) => *slot.borrow_mut() = error.to_string(),
        other => panic!("{other:?}"),
    })
    .unwrap();
    h.lp.run_until_idle().unwrap();
    assert_eq!(*told.borrow(), "offloaded work panicked: on purpose");
    // The thread survives.
    g2_result_comes_back_on_the_loop(h);
}

pub(crate) fn g2_offload_from_its_own_callback(h: &Harness) {
    fn again(lp: &Loop, left: u32, done: Rc<Cell<u32>>) {
        if left > 0 {
            lp.offload(
                move || left - 1,
                move |lp, left| {
                    done.set(done.get() + 1);
                    again(lp, left.unwrap(), done);
                },
            )
            .unwrap();
        }
    }
    let done = Rc::new(Cell::new(0));
    again(&h.lp, 20, Rc::clone(&done));
    h.lp.run_until_idle().unwrap();
    assert_eq!(done.get(), 20);
}

pub(crate) fn g2_many_results_all_come_back_once(h: &Harness) {
    let results: Rc<RefCell<Vec<u32>>> = Rc::default();
    for number in 0..200 {
        let results = Rc::clone(&results);
        h.lp.offload(move || number, move |_, number| results.borrow_mut().push(number.unwrap()))
            .unwrap();
    }
    assert!(h.lp.dump().contains("200 offloaded"));
    h.lp.run_until_idle().unwrap();
    let mut results = results.take();
    results.sort_unstable();
    assert_eq!(results, (0..200).collect::<Vec<_>>());
    assert!(h.lp.dump().contains("0 offloaded"));
}

pub(crate) fn g2_work_of_a_loop_that_is_gone_is_forgotten(h: &Harness) {
    let lp = h.builder().build().unwrap();
    let held = Rc::new(());
    let hold = Rc::clone(&held);
    lp.offload(
        || thread::sleep(5 * MS),
        move |_, _| {
            let _ = &hold;
            unreachable!("the loop is gone");
        },
    )
    .unwrap();
    drop(lp);
    assert_eq!(Rc::strong_count(&held), 1, "`done` goes with its loop");
    g2_result_comes_back_on_the_loop(h);
}

pub(crate) fn g2_offload_with_a_full_queue_of_posts_does_not_hang(h: &Harness) {
    h.must_not_hang(|h| {
        let lp = h.builder().limit_posted_jobs(1).build().unwrap();
        let done = Rc::new(Cell::new(0));
        for _ in 0..5 {
            let done = Rc::clone(&done);
            // A loop whose own callbacks fill its queue, and whose results come by that queue.
            lp.defer(|lp| lp.handle().post(|_| ()).unwrap_or_default());
            lp.offload(
                || (),
                move |_, result| {
                    assert!(result.is_ok());
                    done.set(done.get() + 1);
                },
            )
            .unwrap();
        }
        lp.run_until_idle().unwrap();
        assert_eq!(done.get(), 5, "a result was lost");
    });
}

pub(crate) fn g2_work_runs_on_another_thread(h: &Harness) {
    let loop_thread = thread::current().id();
    let done = Rc::new(Cell::new(false));
    let set = Rc::clone(&done);
    h.lp.offload(
        || thread::current().id(),
        move |_, worker| {
            assert_ne!(worker.unwrap(), loop_thread);
            assert_eq!(thread::current().id(), loop_thread);
            set.set(true);
        },
    )
    .unwrap();
    h.lp.run_until_idle().unwrap();
    assert!(done.get());
}

pub(crate) fn g2_results_come_back_while_the_loop_sleeps(h: &Harness) {
    for delay in [0, 1, 15] {
        h.lp.offload(move || thread::sleep(delay * MS), |lp, _| lp.stop()).unwrap();
        h.lp.run().unwrap(); // would sleep for ever
    }
}

pub(crate) fn g2_file_operations_do_not_block_the_loop(h: &Harness) {
    // The only thread of the pool is busy. Backends that need one for files wait for it; the loop does not.
    let (lp, gate) = busy_pool(h, Overload::Refuse, 8);
    let opened = Rc::new(Cell::new(None));
    let slot = Rc::clone(&opened);
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let path = std::env::current_exe().unwrap();
    lp.operate(Operation::Open { path, options }, move |_, done| match done.result {
        Ok(Outcome::Opened(file)) => slot.set(Some(file)),
        other => panic!("{other:?}"),
    });
    let ticks = Rc::new(Cell::new(0));
    let count = Rc::clone(&ticks);
    let timer = lp.every(MS, move |_| count.set(count.get() + 1));
    run_until(&lp, &ticks, |ticks| ticks.get() == 10);
    assert!(opened.get().is_none() || lp.features().files, "it was opened by the loop itself");
    gate.open();
    run_until(&lp, &opened, |opened| opened.get().is_some());
    timer.cancel();
}

pub(crate) fn g2_full_queue_refuses(h: &Harness) {
    let (lp, gate) = busy_pool(h, Overload::Refuse, 3);
    let done = Rc::new(Cell::new(0));
    let offload = || {
        let done = Rc::clone(&done);
        lp.offload(
            || (),
            move |_, result| {
                assert!(result.is_ok());
                done.set(done.get() + 1);
            },
        )
    };
    for _ in 0..3 {
        offload().unwrap();
    }
    assert_eq!(lp.pool().queue_len(), 3, "its length is visible");
    let refused = offload().expect_err("limit + 1");
    assert!(refused.to_string().contains("limit_queue"), "{refused}");
    assert_eq!(lp.pool().stats().refused, 1);
    gate.open();
    lp.run_until_idle().unwrap();
    assert_eq!(done.get(), 3, "what was taken was done, what was refused was not");
}

pub(crate) fn g2_full_queue_drops_the_oldest(h: &Harness) {
    let (lp, gate) = busy_pool(h, Overload::DropOldest, 2);
    let results: Rc<RefCell<Vec<(u32, bool)>>> = Rc::default();
    for number in 0..4 {
        let results = Rc::clone(&results);
        lp.offload(
            || (),
            move |_, result| {
                if let Err(error) = &result {
                    assert!(matches!(error, OffloadError::Dropped));
                    assert_eq!(error.to_string(), "offloaded work was dropped before it began");
                }
                results.borrow_mut().push((number, result.is_ok()));
            },
        )
        .unwrap();
    }
    gate.open();
    lp.run_until_idle().unwrap(); // whoever was dropped is told, too
    let mut results = results.take();
    results.sort_unstable();
    assert_eq!(results, [(0, false), (1, false), (2, true), (3, true)]);
}

pub(crate) fn g2_dropped_file_operation_is_told(h: &Harness) {
    let (lp, gate) = busy_pool(h, Overload::DropOldest, 1);
    let told = Rc::new(Cell::new(0));
    for _ in 0..3 {
        let told = Rc::clone(&told);
        let options = OpenOptions { read: true, ..OpenOptions::default() };
        let path = std::env::current_exe().unwrap();
        lp.operate(Operation::Open { path, options }, move |_, _| told.set(told.get() + 1));
    }
    gate.open();
    lp.stop_after(2000 * MS);
    lp.run().unwrap();
    assert_eq!(told.get(), 3, "an operation whose job was dropped never ends:\n{}", lp.dump());
}

pub(crate) fn g2_refused_offload_with_a_full_queue_of_posts_does_not_hang(h: &Harness) {
    h.must_not_hang(|h| {
        let gate = Gate::default();
        let pool =
            Pool::new(PoolSettings { threads: 1, limit_queue: 1, ..Default::default() }).unwrap();
        let lp = h.builder().pool(pool).limit_posted_jobs(1).build().unwrap();
        gate.hold_up(lp.pool());
        lp.offload(|| (), |_, _| ()).unwrap();
        lp.handle().post(|_| ()).unwrap();
        lp.offload(|| (), |_, _| ()).expect_err("the pool's queue is full, and so is the loop's");
        gate.open();
        lp.run_until_idle().unwrap();
    });
}

/// A loop with a pool of one thread, which is busy until the gate opens.
fn busy_pool(h: &Harness, overload: Overload, limit_queue: usize) -> (Loop, Gate) {
    let settings = PoolSettings { threads: 1, limit_queue, overload, ..Default::default() };
    let lp = h.builder().pool(Pool::new(settings).unwrap()).build().unwrap();
    let gate = Gate::default();
    gate.hold_up(lp.pool());
    (lp, gate)
}

/// Holds a thread up until it is opened; dropping it opens it.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Returns once a thread of the pool stands before the gate, and the queue is empty again.
    fn hold_up(&self, pool: &Pool) {
        let (arrived, waiting) = channel();
        let gate = self.clone();
        let job = move || {
            arrived.send(()).unwrap();
            let (open, changed) = &*gate.0;
            let open = open.lock().unwrap();
            drop(changed.wait_while(open, |open| !*open).unwrap());
        };
        assert!(pool.try_run(job).is_ok());
        waiting.recv().unwrap();
    }

    fn open(&self) {
        let (open, changed) = &*self.0;
        *open.lock().unwrap() = true;
        changed.notify_all();
    }
}
