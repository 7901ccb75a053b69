//! The budget: whoever finds everything ready, again and again, lets others have their turn, and can be ended.

use crate::harness::{ECANCELED, ETIMEDOUT, HOUR, Harness, errno, now};
use coracle_coro::conn_pool::{ConnPool, ConnPoolSettings};
use coracle_coro::future::net::UdpSocket;
use coracle_coro::future::{block_on, spawn_future};
use coracle_coro::sync::{
    After, Barrier, Mutex, RwLock, Select, Semaphore, Tick, WaitGroup, channel, tick,
};
use coracle_coro::{
    current, deadline, no_park, park, scope, select, shield, spawn, timeout, yield_now,
};
use coracle_loop::Loop;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// How many operations in a row are done before others have their turn.
const IN_A_ROW: usize = 64;

/// Something that never has to wait here, though it might elsewhere.
struct Lucky {
    name: &'static str,
    act: Box<dyn Fn() -> io::Result<()>>,
}

fn lucky(name: &'static str, act: impl Fn() -> io::Result<()> + 'static) -> Lucky {
    Lucky { name, act: Box::new(act) }
}

/// Those that a cancel strikes.
fn struck() -> Vec<Lucky> {
    let mut all = vec![messages(), messages_in_time(), arms(), arms_of_many(), semaphore()];
    all.extend([permit_to_park(), group_of_none(), barrier_of_one(), pool()]);
    all
}

/// All of them: others never fail for this.
fn all() -> Vec<Lucky> {
    let mut all = struck();
    all.extend([mutex(), mutex_in_time(), readers(), writers(), ready_future(), empty_scope()]);
    all
}

fn messages() -> Lucky {
    let (sender, receiver) = channel(1);
    lucky("send, recv", move || {
        sender.send(())?;
        Ok(receiver.recv()?)
    })
}

fn messages_in_time() -> Lucky {
    let (sender, receiver) = channel(1);
    lucky("send_timeout, recv_timeout", move || {
        sender.send_timeout((), HOUR)?;
        Ok(receiver.recv_timeout(HOUR)?)
    })
}

fn arms() -> Lucky {
    let (sender, receiver) = channel(1);
    let (silent, other) = channel::<()>(1);
    lucky("select!", move || {
        let _silent = &silent;
        let _ = sender.try_send(());
        select! {
            message = &receiver => Ok(message?),
            _ = &other => unreachable!("nobody sends"),
        }
    })
}

fn arms_of_many() -> Lucky {
    let (sender, receiver) = channel(1);
    lucky("Select::wait", move || {
        let _ = sender.try_send(());
        let mut arm = receiver.receiving();
        let mut select = Select::new();
        select.arm(&mut arm);
        select.wait().map(drop)
    })
}

fn semaphore() -> Lucky {
    let semaphore = Semaphore::new(1);
    lucky("acquire", move || {
        drop(semaphore.acquire(1)?);
        semaphore.acquire_timeout(1, HOUR).map(drop)
    })
}

fn permit_to_park() -> Lucky {
    lucky("park", || {
        current().unpark();
        park()
    })
}

fn group_of_none() -> Lucky {
    let group = WaitGroup::new();
    lucky("WaitGroup::wait", move || group.wait())
}

fn barrier_of_one() -> Lucky {
    let barrier = Barrier::new(1);
    lucky("Barrier::wait", move || barrier.wait().map(drop))
}

fn pool() -> Lucky {
    let pool = ConnPool::new(ConnPoolSettings::default(), || Ok(())).unwrap();
    lucky("ConnPool::get", move || pool.get().map(drop))
}

fn mutex() -> Lucky {
    let mutex = Mutex::new(());
    lucky("Mutex::lock", move || mutex.lock().map(drop))
}

fn mutex_in_time() -> Lucky {
    let mutex = Mutex::new(());
    lucky("Mutex::try_lock_for", move || mutex.try_lock_for(HOUR).map(drop))
}

fn readers() -> Lucky {
    let lock = RwLock::new(());
    lucky("RwLock::read", move || lock.read().map(drop))
}

fn writers() -> Lucky {
    let lock = RwLock::new(());
    lucky("RwLock::write", move || lock.write().map(drop))
}

fn ready_future() -> Lucky {
    lucky("block_on", || block_on(async {}))
}

fn empty_scope() -> Lucky {
    lucky("scope", || scope(|_| Ok(())))
}

/// A flag, and somebody who will raise it.
fn raised_by(how: impl FnOnce(Box<dyn FnOnce()>)) -> Rc<Cell<bool>> {
    let flag = Rc::new(Cell::new(false));
    let raise = Rc::clone(&flag);
    how(Box::new(move || raise.set(true)));
    flag
}

pub(crate) fn s42_who_never_waits_lets_other_coroutines_run(h: &Harness) {
    h.run(|| {
        for Lucky { name, act } in all() {
            yield_now(); // it may be the last of its row
            let done = raised_by(|raise| drop(spawn(raise)));
            let mut count = 0;
            while !done.get() {
                act()?;
                count += 1;
            }
            assert!((2..=IN_A_ROW + 1).contains(&count), "{name}: after {count}");
        }
        Ok(())
    });
}

pub(crate) fn s42_who_never_waits_does_not_keep_timers_from_firing(h: &Harness) {
    h.run(|| {
        for Lucky { act, .. } in all() {
            let at = |raise: Box<dyn FnOnce()>| {
                let mut raise = Some(raise);
                let raise = move |_: &Loop| raise.take().into_iter().for_each(|raise| raise());
                drop(Loop::current().unwrap().at(now(), raise));
            };
            let fired = raised_by(at);
            while !fired.get() {
                act()?;
            }
        }
        Ok(())
    });
}

pub(crate) fn s42_busy_pair_does_not_keep_the_rest_waiting(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(1000);
        let sending = spawn(move || (0..).take_while(|n| sender.send(*n).is_ok()).count());
        let receiving = spawn(move || {
            let fired = raised_by(|raise| drop(spawn(raise)));
            receiver.iter().take_while(|_| !fired.get()).count()
        });
        receiving.join().unwrap();
        sending.join().unwrap();
        Ok(())
    });
}

pub(crate) fn s42_many_who_never_wait_do_not_keep_timers_from_firing(h: &Harness) {
    h.run(|| {
        let fired = Rc::new(Cell::new(false));
        let count = Rc::new(Cell::new(0_usize));
        let busy: Vec<_> = (0..100)
            .map(|_| {
                let (fired, count, mutex) = (Rc::clone(&fired), Rc::clone(&count), Mutex::new(()));
                spawn(move || {
                    while !fired.get() {
                        drop(mutex.lock().unwrap());
                        count.set(count.get() + 1);
                    }
                })
            })
            .collect();
        yield_now(); // all of them have begun
        let before = count.get();
        let raise = Rc::clone(&fired);
        Loop::current().unwrap().at(now(), move |_| raise.set(true));
        busy.into_iter().for_each(|one| one.join().unwrap());
        // In one turn: what each of them does in a row, and a few rows more.
        let rows = (count.get() - before) / IN_A_ROW;
        assert!(rows <= 3 * 100 + 16, "{rows} rows before the timer");
        Ok(())
    });
}

pub(crate) fn s42_ends_that_have_come_are_joined_in_turn(h: &Harness) {
    h.run(|| {
        let over: Vec<_> = (0..2 * IN_A_ROW).map(|_| spawn(|| ())).collect();
        yield_now();
        let other = raised_by(|raise| drop(spawn(raise)));
        assert!(over.iter().all(|one| one.is_finished()));
        over.into_iter().for_each(|one| one.join().unwrap());
        assert!(other.get());
        Ok(())
    });
}

pub(crate) fn s10_cancel_strikes_who_never_waits(h: &Harness) {
    h.run(|| {
        for Lucky { name, act } in struck() {
            let busy = spawn(move || -> io::Result<()> {
                loop {
                    act()?;
                }
            });
            yield_now();
            busy.cancel();
            assert_eq!(errno(busy.join().unwrap()), ECANCELED, "{name}");
        }
        Ok(())
    });
}

pub(crate) fn s10_cancel_of_another_thread_strikes_who_never_waits(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(1);
        let busy = spawn(move || -> io::Result<()> {
            loop {
                sender.send(())?;
                receiver.recv()?;
            }
        });
        yield_now();
        let thread = std::thread::spawn(move || {
            busy.cancel();
            busy.join().unwrap()
        });
        while !thread.is_finished() {
            yield_now();
        }
        assert_eq!(errno(thread.join().unwrap()), ECANCELED);
        Ok(())
    });
}

pub(crate) fn s10_message_is_not_lost_when_the_cancel_strikes(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(10 * IN_A_ROW);
        let busy = spawn(move || {
            let refused = (0..).find_map(|n| sender.send(n).err()).unwrap();
            refused.into_inner()
        });
        yield_now();
        busy.cancel();
        let refused = busy.join().unwrap();
        assert_eq!(receiver.iter().collect::<Vec<_>>(), (0..refused).collect::<Vec<_>>());
        Ok(())
    });
}

pub(crate) fn s16_deadline_strikes_who_never_waits(h: &Harness) {
    h.run(|| {
        for Lucky { name, act } in struck() {
            let late = deadline(now(), || -> io::Result<()> {
                loop {
                    act()?;
                }
            });
            assert_eq!(errno(late), ETIMEDOUT, "{name}");
        }
        Ok(())
    });
}

pub(crate) fn s17_free_lock_never_fails(h: &Harness) {
    h.run(|| {
        let busy = spawn(|| {
            park().unwrap_err(); // it is cancelled by now
            let (mutex, lock) = (Mutex::new(0), RwLock::new(0));
            for _ in 0..3 * IN_A_ROW {
                *mutex.lock().unwrap() += 1;
                *lock.write().unwrap() += 1;
                assert_eq!(*mutex.try_lock_for(HOUR).unwrap(), *lock.read().unwrap());
            }
        });
        yield_now();
        busy.cancel();
        busy.join().unwrap();
        timeout(Duration::ZERO, || {
            let mutex = Mutex::new(());
            (0..3 * IN_A_ROW).for_each(|_| drop(mutex.lock().unwrap()));
        });
        Ok(())
    });
}

pub(crate) fn s42_nobody_runs_inside_no_park(h: &Harness) {
    h.run(|| {
        // These two are refused in there in any case.
        let refused = ["park", "scope"];
        for Lucky { name, act } in all().into_iter().filter(|one| !refused.contains(&one.name)) {
            let other = raised_by(|raise| drop(spawn(raise)));
            no_park(|| (0..3 * IN_A_ROW).try_for_each(|_| act()))?;
            assert!(!other.get(), "{name}");
            act()?; // but now
            act()?;
            assert!(other.get(), "{name}");
        }
        Ok(())
    });
}

pub(crate) fn s10_shield_keeps_who_never_waits_from_the_cancel(h: &Harness) {
    h.run(|| {
        let busy = spawn(|| {
            park().unwrap_err();
            for Lucky { act, .. } in all() {
                shield(HOUR, || (0..3 * IN_A_ROW).try_for_each(|_| act())).unwrap();
            }
        });
        yield_now();
        busy.cancel();
        busy.join().unwrap();
        Ok(())
    });
}

pub(crate) fn s24_arm_that_is_due_is_chosen_beside_one_that_is_always_ready(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(1);
        let due = now();
        loop {
            let _ = sender.try_send(());
            select! {
                _ = &receiver => {}
                () = After::at(due) => break,
            }
        }
        let often: Tick = tick(Duration::from_nanos(1));
        for _ in 0..3 {
            loop {
                let _ = sender.try_send(());
                select! {
                    _ = &receiver => {}
                    _ = &often => break,
                }
            }
        }
        // What has a time-out takes what is there, however late it is.
        for _ in 0..100 {
            let _ = sender.try_send(());
            receiver.recv_timeout(Duration::ZERO).unwrap();
        }
        Ok(())
    });
}

pub(crate) fn s42_future_that_is_always_ready_lets_others_run(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(1);
        let mutex = Mutex::new(());
        let coroutine = raised_by(|raise| drop(spawn(raise)));
        let timer = Rc::new(Cell::new(false));
        let raise = Rc::clone(&timer);
        Loop::current().unwrap().at(now(), move |_| raise.set(true));
        let busy = spawn_future(async move {
            while !(coroutine.get() && timer.get()) {
                sender.send_async(()).await.unwrap();
                receiver.recv_async().await.unwrap();
                drop(mutex.lock_async().await);
            }
        });
        busy.join().unwrap();
        Ok(())
    });
}

pub(crate) fn s42_future_with_datagrams_lets_others_run(h: &Harness) {
    const COUNT: usize = 200; // more than one may receive in a row, and fewer than a socket has room for
    h.run(|| {
        let busy = spawn_future(async {
            let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap())?;
            let to = socket.local_addr()?;
            for _ in 0..COUNT {
                socket.send_to(b"x", to).await?;
            }
            socket.recv_from(&mut [0; 8]).await?; // from here on, they are known to be there
            let other = raised_by(|raise| drop(spawn(raise)));
            for _ in 1..COUNT {
                socket.recv_from(&mut [0; 8]).await?;
            }
            Ok::<_, io::Error>(other.get())
        });
        assert!(busy.join().unwrap()?, "nobody else has run");
        Ok(())
    });
}

pub(crate) fn s42_cancel_strikes_block_on_of_what_is_always_ready(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(1);
        let busy = spawn(move || {
            block_on(async move {
                loop {
                    sender.send_async(()).await.unwrap();
                    receiver.recv_async().await.unwrap();
                }
            })
        });
        yield_now();
        busy.cancel();
        assert_eq!(errno::<()>(busy.join().unwrap()), ECANCELED);
        Ok(())
    });
}
