//! Timers and signals, as coroutines wait for them.

use crate::harness::{ECANCELED, ETIMEDOUT, HOUR, Harness, MS, errno, now};
use coracle_coro::sync::{Tick, after, channel, tick};
use coracle_coro::{current, park, select, signals, sleep, spawn, timeout, yield_now};
use coracle_loop::Loop;
use std::cell::Cell;
use std::io::ErrorKind;
use std::rc::Rc;

pub(crate) fn s15_tick_is_due_again_and_again(h: &Harness) {
    h.run(|| {
        let (begin, tick) = (now(), tick(2 * MS));
        let mut before = begin;
        for _ in 0..3 {
            let due = tick.wait()?;
            assert!(due >= before + 2 * MS && now() >= due);
            assert!(tick.due() > Some(due), "the next one is later");
            before = due;
        }
        Ok(())
    });
}

pub(crate) fn s15_tick_keeps_to_its_grid_and_leaves_out_what_was_missed(h: &Harness) {
    h.run(|| {
        let (begin, tick) = (now(), tick(HOUR));
        assert_eq!(tick.wait()? - begin, HOUR);
        sleep(HOUR * 5 / 2)?; // two are missed
        assert_eq!(tick.wait()? - begin, 2 * HOUR, "this one was due long ago");
        assert_eq!(tick.wait()? - begin, 4 * HOUR);
        assert_eq!(now() - begin, 4 * HOUR);
        Ok(())
    });
}

pub(crate) fn s15_one_shot_is_due_once_and_can_be_reset(h: &Harness) {
    h.run(|| {
        let once = Tick::once(MS);
        once.wait()?;
        assert_eq!(once.wait().unwrap_err().kind(), ErrorKind::InvalidInput);
        once.reset(MS);
        let due = once.due().unwrap();
        assert_eq!(once.wait()?, due);

        let late = Tick::once(HOUR);
        late.reset(MS);
        late.wait()?;

        let again = tick(HOUR);
        again.reset(MS);
        let first = again.wait()?;
        assert_eq!((again.wait()? - first).as_nanos() % MS.as_nanos(), 0);
        Ok(())
    });
}

pub(crate) fn s15_cancelled_tick_is_never_chosen(h: &Harness) {
    h.run(|| {
        let (heartbeat, idle) = (tick(MS), Tick::once(HOUR));
        for _ in 0..2 {
            select! {
                _ = &idle => unreachable!("an hour is longer"),
                _ = &heartbeat => {}
            }
        }
        assert!(heartbeat.cancel() && !heartbeat.cancel());
        idle.reset(4 * MS);
        select! {
            _ = &heartbeat => unreachable!("it was cancelled"),
            _ = &idle => {}
        }
        assert_eq!((heartbeat.due(), idle.due()), (None, None));
        Ok(())
    });
}

pub(crate) fn s15_wait_for_a_tick_is_cancelled_and_times_out(h: &Harness) {
    h.run(|| {
        let child = spawn(|| errno(tick(HOUR).wait()));
        yield_now();
        child.cancel();
        assert_eq!(child.join().unwrap(), ECANCELED);
        let hourly = tick(HOUR);
        let due = hourly.due();
        assert_eq!(errno(timeout(MS, || hourly.wait())), ETIMEDOUT);
        assert_eq!(hourly.due(), due, "it has not been");
        Ok(())
    });
}

/// A callback of a timer wakes, is cancelled and re-armed by a coroutine.
pub(crate) fn s15_timer_with_a_callback_beside_coroutines(h: &Harness) {
    h.run(|| {
        let (main, lp) = (current(), Loop::current().unwrap());
        let fired = Rc::new(Cell::new(0));
        let count = Rc::clone(&fired);
        let timer = lp.after(HOUR, move |_| {
            count.set(count.get() + 1);
            main.unpark();
        });
        assert!(timer.rearm(MS));
        park()?;
        assert_eq!(fired.get(), 1);
        let never = lp.after(MS, |_| panic!("it was cancelled"));
        assert!(never.cancel());
        let (sender, ticks) = channel(1);
        let periodic = lp.every(MS, move |_| _ = sender.try_send(()));
        assert_eq!(ticks.iter().take(3).count(), 3); // as a channel
        assert!(periodic.cancel());
        Ok(())
    });
}

const HUP: i32 = 1;
/// No case sends it.
const WINCH: i32 = 28;

pub(crate) fn s59_coroutine_waits_for_a_signal(h: &Harness) {
    let raise = h.raiser();
    h.run(move || {
        let hangups = signals(HUP)?;
        let waiting = spawn({
            let raise = raise.clone();
            move || {
                sleep(MS).unwrap();
                raise(HUP);
            }
        });
        hangups.wait()?;
        waiting.join().unwrap();
        raise(HUP); // one that comes while nobody waits is not lost
        sleep(2 * MS)?;
        select! {
            hangup = &hangups => hangup?,
            () = after(HOUR) => unreachable!("it came before"),
        }
        Ok(())
    });
}

pub(crate) fn s59_wait_for_a_signal_that_does_not_come(h: &Harness) {
    h.run(|| {
        let changes = signals(WINCH)?;
        assert_eq!(errno(timeout(MS, || changes.wait())), ETIMEDOUT);
        let choose = |own| {
            select! {
                change = &changes => change.is_ok(),
                () = after(own) => true,
            }
        };
        assert!(choose(MS));
        let child = spawn(move || errno(changes.wait()));
        yield_now();
        assert!(Loop::current().unwrap().is_listening());
        child.cancel();
        assert_eq!(child.join().unwrap(), ECANCELED);
        sleep(MS)?;
        assert!(!Loop::current().unwrap().is_listening(), "dropped is who listened");
        assert_eq!(signals(9).unwrap_err().kind(), ErrorKind::InvalidInput);
        Ok(())
    });
    assert!(signals(HUP).unwrap_err().to_string().contains("outside a loop"));
}
