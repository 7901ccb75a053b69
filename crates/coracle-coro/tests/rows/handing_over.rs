//! Messages from coroutine to coroutine: of one loop, and of two.

use crate::cancelling::narrow_loop;
use crate::harness::{ETIMEDOUT, Harness, MS, errno};
use coracle_coro::sync::{RecvError, Select, channel};
use coracle_coro::{no_park, run_on, sleep, spawn, timeout, yield_now};
use coracle_loop::Loop;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

const LIMITS: [usize; 4] = [0, 1, 3, 100];

pub(crate) fn s22_coroutines_of_one_loop_hand_over(h: &Harness) {
    h.run(|| {
        for limit in LIMITS {
            let (sender, receiver) = channel(limit);
            let sending = spawn(move || {
                (0..1000).for_each(|n| sender.send(Rc::new(n)).unwrap());
            });
            let received: Vec<_> = receiver.iter().map(|n| *n).collect();
            assert!(received.into_iter().eq(0..1000), "limit {limit}");
            sending.join().unwrap();
        }
        Ok(())
    });
}

pub(crate) fn s22_cancelled_receiver_takes_nothing(h: &Harness) {
    h.run(|| {
        for limit in LIMITS {
            let (sender, receiver) = channel(limit);
            let other = receiver.clone();
            let cancelled = spawn(move || other.recv());
            yield_now();
            cancelled.cancel();
            assert_eq!(cancelled.join().unwrap(), Err(RecvError::Cancelled));
            let receiving = spawn(move || receiver.recv());
            sender.send(7).unwrap();
            assert_eq!(receiving.join().unwrap(), Ok(7));
        }
        Ok(())
    });
}

pub(crate) fn s16_timeout_ends_a_wait_at_a_channel(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel::<u32>(0);
        assert!(timeout(MS, || receiver.recv()).is_err());
        assert!(timeout(MS, || sender.send(1)).is_err());
        let mut arm = receiver.receiving();
        let mut select = Select::new();
        select.arm(&mut arm);
        assert_eq!(errno(timeout(MS, || select.wait())), ETIMEDOUT);
        Ok(())
    });
}

pub(crate) fn s23_coroutines_of_two_loops_hand_over(h: &Harness) {
    let backend = h.lp.backend();
    h.run(move || {
        for limit in LIMITS {
            let (there, from_here) = channel(limit);
            let (back, from_there) = channel(limit);
            let other = std::thread::spawn(move || {
                let lp = Loop::builder().backend(backend).build().unwrap();
                run_on(&lp, move || {
                    from_here.iter().for_each(|n: u32| back.send(n + 1).unwrap());
                    Ok(())
                })
            });
            // Two of them, so that the loop has something else to do while one waits.
            let sending = spawn(move || (0..100).for_each(|n| there.send(n).unwrap()));
            assert!(from_there.iter().eq(1..101), "limit {limit}");
            sending.join().unwrap();
            while !other.is_finished() {
                sleep(MS)?;
            }
            other.join().unwrap()?;
        }
        Ok(())
    });
}

/// However many are woken by a thread before the loop comes to it: there is room for one posted job, and the
/// thread is not kept waiting.
pub(crate) fn s23_wakes_that_come_together_are_one_job(h: &Harness) {
    const COUNT: usize = 50;
    let lp = narrow_loop(h, 1);
    let (sender, receiver) = channel(0);
    let received = Rc::new(Cell::new(0));
    let count = Rc::clone(&received);
    lp.defer(move |_| {
        for _ in 0..COUNT {
            let (receiver, count) = (receiver.clone(), Rc::clone(&count));
            spawn(move || {
                receiver.recv().unwrap();
                count.set(count.get() + 1);
            });
        }
    });
    lp.run_ready().unwrap();
    lp.run_ready().unwrap();
    let sending = std::thread::spawn(move || (0..COUNT).for_each(|n| sender.send(n).unwrap()));
    // Without a turn of the loop: it would wait for ever.
    sending.join().unwrap();
    assert_eq!(received.get(), 0);
    lp.run_ready().unwrap();
    lp.run_ready().unwrap();
    assert_eq!(received.get(), COUNT);
}

pub(crate) fn s22_refused_send_gives_its_message_up_without_the_lock(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel::<Box<dyn std::any::Any>>(1);
        sender.send(Box::new(())).unwrap();
        let inner = sender.clone(); // which wants the lock when it is dropped
        let refused = catch_unwind(AssertUnwindSafe(|| no_park(|| sender.send(Box::new(inner)))));
        assert!(refused.is_err());
        assert!(receiver.try_recv().is_ok() && receiver.try_recv().is_err());
        Ok(())
    });
}
