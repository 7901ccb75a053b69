//! Time, for hyper: timers of the loop.
//!
//! Hyper's timers are `Send`, those of a loop are not. So what hyper has is a number and a flag; the timer itself
//! is in a table of its thread, where it is made and ended.

use coracle_loop::{Loop, Timer};
use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The time of the loop that runs.
#[derive(Clone, Copy)]
pub(super) struct LoopTime;

impl hyper::rt::Timer for LoopTime {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep { deadline, number: None, alarm: Arc::default() })
    }

    fn now(&self) -> Instant {
        Loop::current().map_or_else(Instant::now, |lp| lp.now())
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, deadline: Instant) {
        *sleep = self.sleep_until(deadline);
    }
}

/// Is ready at a point in time. Dropping it ends its timer.
struct Sleep {
    deadline: Instant,
    /// Its timer, from the first poll on that came too early.
    number: Option<u64>,
    alarm: Arc<Alarm>,
}

#[derive(Default)]
struct Alarm {
    rang: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Alarm {
    fn set_waker(&self, waker: Option<Waker>) -> Option<Waker> {
        let mut place = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *place, waker)
    }
}

thread_local! {
    static TIMERS: RefCell<HashMap<u64, Timer>> = RefCell::default();
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl hyper::rt::Sleep for Sleep {}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(lp) = Loop::current() else { return Poll::Pending };
        if self.alarm.rang.load(Ordering::Relaxed) || lp.now() >= self.deadline {
            return Poll::Ready(());
        }
        self.alarm.set_waker(Some(cx.waker().clone()));
        if self.number.is_none() {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let alarm = Arc::clone(&self.alarm);
            let timer = lp.at(self.deadline, move |_| {
                TIMERS.with_borrow_mut(|timers| timers.remove(&number));
                alarm.rang.store(true, Ordering::Relaxed);
                alarm.set_waker(None).into_iter().for_each(Waker::wake);
            });
            TIMERS.with_borrow_mut(|timers| timers.insert(number, timer));
            self.number = Some(number);
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        // A thread that ends has no timers any more.
        let timer = TIMERS.try_with(|timers| timers.borrow_mut().remove(&number));
        if let Ok(Some(timer)) = timer {
            timer.cancel();
        }
    }
}
