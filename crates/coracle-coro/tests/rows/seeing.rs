//! What can be seen of coroutines from outside.

use crate::harness::{HOUR, Harness, MS};
use coracle_coro::future::block_on;
use coracle_coro::seeing::{look_at, look_at_all, stats};
use coracle_coro::sync::{
    Barrier, Condvar, Mutex, OnceLock, RwLock, Semaphore, WaitGroup, after, channel, tick,
};
use coracle_coro::{
    Builder, Coroutine, CoroutineInfo, Generator, JoinHandle, State, WaitsFor, coroutines, current,
    join_all, on_big_stack, park, race, scope, select, shield, signals, sleep, spawn, yield_now,
};
use coracle_loop::Loop;
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::hint::black_box;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// SIGWINCH, which does nothing if it comes.
const WINCH: i32 = 28;

/// How long another loop may take to answer.
const PATIENCE: Duration = Duration::from_secs(300);

fn info_of(coroutine: &Coroutine) -> CoroutineInfo {
    let found = coroutines().into_iter().find(|one| one.coroutine.id() == coroutine.id());
    found.expect("it is listed")
}

/// The backtrace of a coroutine of this loop, as a text.
fn trace_of(coroutine: &Coroutine) -> Option<String> {
    let lp = Loop::current().expect("we are in a loop");
    let dump = look_at(&lp.handle(), PATIENCE).expect("it is our own");
    let found = dump.coroutines.into_iter().find(|one| one.coroutine.id() == coroutine.id());
    found.expect("it is listed").trace.map(|trace| trace.to_string())
}

pub(crate) fn s49_list_has_name_state_and_place(h: &Harness) {
    h.run(|| {
        let parked = Builder::new().name("parked").spawn(park)?;
        sleep(MS)?;
        let ready = spawn(yield_now);
        yield_now();
        let new = spawn(|| ());
        assert_eq!(coroutines().len(), 4);
        let info = info_of(parked.coroutine());
        assert_eq!(info.state, State::Waiting);
        assert!(info.age >= MS && info.waited >= Some(MS), "{info}");
        assert!(info.spawned.file().ends_with("seeing.rs"));
        let text = format!("#{} 'parked' is Waiting for an unpark for ", parked.coroutine().id());
        assert!(info.to_string().starts_with(&text), "{info}");
        assert_eq!(info_of(ready.coroutine()).state, State::Ready);
        assert_eq!(info_of(ready.coroutine()).waits_for, None);
        assert_eq!(info_of(new.coroutine()).state, State::New);
        assert_eq!(info_of(&current()).state, State::Running);
        parked.coroutine().unpark();
        parked.join().unwrap()?;
        ready.join().unwrap();
        new.join().unwrap();
        Ok(())
    });
}

/// Spawns `wait`, lets it come to its wait, asks for what it waits, and cancels it.
fn what(wait: impl FnOnce() + 'static) -> WaitsFor {
    let waiting = spawn(wait);
    yield_now();
    let what = info_of(waiting.coroutine()).waits_for.expect("it waits");
    waiting.cancel();
    waiting.join().unwrap();
    what
}

pub(crate) fn s49_list_says_what_is_waited_for(h: &Harness) {
    h.run(|| {
        assert_eq!(what(|| _ = park()), WaitsFor::Unpark);
        let future = what(|| _ = block_on(std::future::pending::<()>()));
        assert_eq!((future, future.to_string().as_str()), (WaitsFor::Future, "a future"));
        assert!(matches!(what(|| _ = sleep(HOUR)), WaitsFor::Time(_)));
        let other = spawn(park);
        let id = other.coroutine().id();
        let end = what(move || {
            let (other, _) = (other.coroutine().clone(), other.join());
            other.unpark();
        });
        assert_eq!((end, end.to_string()), (WaitsFor::End(id), format!("the end of #{id}")));
        let scoped = what(|| {
            let _ = scope(|scope| {
                scope.spawn(park);
                Ok(())
            });
        });
        assert_eq!(scoped, WaitsFor::Children);
        Ok(())
    });
}

pub(crate) fn s49_list_says_what_several_and_signals_wait_for(h: &Harness) {
    h.run(|| {
        assert_eq!(what(|| _ = race(park, park)), WaitsFor::Children);
        assert_eq!(what(|| _ = join_all([park, park])), WaitsFor::Children);
        let shielded = what(|| _ = shield(5 * MS, || sleep(HOUR)));
        assert!(matches!(shielded, WaitsFor::Time(_)), "a shield is none: {shielded}");
        let hourly = Rc::new(tick(HOUR));
        let waiting = Rc::clone(&hourly);
        assert_eq!(what(move || _ = waiting.wait()), WaitsFor::Time(hourly.due().unwrap()));
        let due = hourly.due().unwrap();
        let selected = what(move || {
            select! {
                _ = &*hourly => {},
            }
        });
        assert_eq!(selected, WaitsFor::Time(due));
        let changes = Rc::new(signals(WINCH)?);
        let waiting = Rc::clone(&changes);
        let signal = what(move || _ = waiting.wait());
        assert_eq!((signal, signal.to_string().as_str()), (WaitsFor::Signal(WINCH), "signal 28"));
        let selected = what(move || {
            select! {
                _ = &*changes => {},
                () = after(HOUR) => {},
            }
        });
        assert_eq!(selected, WaitsFor::Signal(WINCH));
        Ok(())
    });
}

pub(crate) fn s49_leaked_one_is_listed_and_counted(h: &Harness) {
    let (count, seen) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    h.lp.defer(|_| {
        let stubborn = || while sleep(HOUR).is_err() {};
        let stubborn = Builder::new().name("stubborn").spawn(stubborn).unwrap();
        stubborn.cancel();
    });
    h.lp.run_until_idle().unwrap();
    let noted = (Rc::clone(&count), Rc::clone(&seen));
    h.lp.defer(move |_| {
        let stats = stats();
        assert_eq!((stats.leaked, stats.waiting, stats.ready), (1, 0, 0));
        let info = info_of(&coroutine_of("stubborn").expect("it is listed"));
        assert_eq!((info.state, info.waits_for, info.waited), (State::Leaked, None, None));
        assert!(info.to_string().contains("'stubborn' is Leaked, spawned at "), "{info}");
        // It is asked where it is, as everybody.
        let trace = trace_of(&info.coroutine).expect("it has a stack");
        noted.0.set(trace.lines().count());
        noted.1.set(1);
    });
    h.lp.run_until_idle().unwrap();
    assert_eq!((seen.get(), count.get() > 0), (1, true));
}

pub(crate) fn s49_list_says_which_lock_is_waited_for(h: &Harness) {
    h.run(|| {
        let mutex = Rc::new(Mutex::new(()));
        let (guard, waiting) = (mutex.lock()?, Rc::clone(&mutex));
        assert_eq!(what(move || _ = waiting.lock()), WaitsFor::Mutex);
        drop(guard);
        let lock = Rc::new(RwLock::new(()));
        let (guard, waiting) = (lock.write()?, Rc::clone(&lock));
        assert_eq!(what(move || _ = waiting.read()), WaitsFor::ReadLock);
        let waiting = Rc::clone(&lock);
        assert_eq!(what(move || _ = waiting.write()), WaitsFor::WriteLock);
        drop(guard);
        assert_eq!(what(|| _ = Semaphore::new(1).acquire(3)), WaitsFor::Permits(3));
        assert_eq!(what(|| _ = Barrier::new(2).wait()), WaitsFor::Barrier);
        assert_eq!(what(|| _ = OnceLock::<u8>::new().wait()), WaitsFor::Once);
        let condvar = move || _ = Condvar::new().wait(mutex.lock().unwrap());
        assert_eq!(what(condvar), WaitsFor::Condvar);
        let group = WaitGroup::new();
        let _member = group.add();
        assert_eq!(what(move || _ = group.wait()), WaitsFor::WaitGroup);
        let (sender, receiver) = channel::<u8>(1);
        let receiver = Arc::new(receiver);
        let waiting = Arc::clone(&receiver);
        assert_eq!(what(move || _ = waiting.recv()), WaitsFor::Message);
        let waiting = Arc::clone(&receiver);
        assert_eq!(what(move || _ = waiting.recv_timeout(HOUR)), WaitsFor::Message);
        let (_others, other) = channel::<u8>(1);
        let arms = what(move || {
            select! {
                _ = &*receiver => {},
                _ = &other => {},
            }
        });
        assert_eq!(
            (arms, arms.to_string().as_str()),
            (WaitsFor::Arms(2), "one of 2 arms of a select")
        );
        let (sender_of_full, _receiver) = channel::<u8>(1);
        sender_of_full.send(1).unwrap();
        assert_eq!(what(move || _ = sender_of_full.send(2)), WaitsFor::Room);
        drop(sender);
        Ok(())
    });
}

#[inline(never)]
fn place_where_it_waits() -> io::Result<()> {
    black_box(park())
}

#[inline(never)]
fn who_calls_it() -> io::Result<()> {
    black_box(place_where_it_waits())
}

pub(crate) fn s49_backtrace_of_one_that_waits_has_the_users_frames(h: &Harness) {
    h.run(|| {
        let parked = spawn(who_calls_it);
        let ready = spawn(place_where_it_gives_way);
        let new = spawn(|| ());
        assert_eq!(trace_of(new.coroutine()), None, "it was not started");
        yield_now();
        let trace = trace_of(parked.coroutine()).expect("it was started");
        let inner = trace.find("place_where_it_waits").unwrap_or_else(|| panic!("{trace}"));
        let outer = trace.find("who_calls_it").unwrap_or_else(|| panic!("{trace}"));
        assert!(inner < outer, "the innermost comes first:\n{trace}");
        for ours in ["coracle_coro::", "coracle_loop::", "corosensei::"] {
            assert!(
                !trace.lines().any(|line| line.trim_start().starts_with(ours)),
                "{ours}:\n{trace}"
            );
        }
        for ours in ["coracle-coro/src/", "coracle-loop/src/", "corosensei-", "catch_unwind"] {
            assert!(!trace.contains(ours), "{ours}:\n{trace}");
        }
        // Nor does it go on into the loop, and from there to who runs it.
        assert!(!trace.contains("harness.rs") && !trace.contains("harness::"), "{trace}");
        let trace = trace_of(ready.coroutine()).expect("it was started");
        assert!(trace.contains("place_where_it_gives_way"), "{trace}");
        let own = trace_of(&current()).expect("it runs");
        assert!(own.contains("seeing.rs:"), "{own}");
        parked.coroutine().unpark();
        parked.join().unwrap()?;
        ready.join().unwrap();
        new.join().unwrap();
        Ok(())
    });
}

#[inline(never)]
fn place_where_it_gives_way() {
    yield_now();
    black_box(());
}

pub(crate) fn s49_backtrace_goes_through_other_stacks(h: &Harness) {
    h.run(|| {
        let big = spawn(|| on_big_stack(1 << 20, who_calls_it));
        let generating = spawn(who_waits_in_a_generator);
        yield_now();
        let traces = [big.coroutine(), generating.coroutine()].map(|waiting| {
            let trace = trace_of(waiting);
            waiting.unpark();
            trace.expect("it was started")
        });
        big.join().unwrap()??;
        generating.join().unwrap()?;
        for trace in traces {
            for function in ["place_where_it_waits", "who_"] {
                assert!(trace.contains(function), "{function} is missing:\n{trace}");
            }
        }
        Ok(())
    });
}

fn who_waits_in_a_generator() -> io::Result<()> {
    Generator::with_input(|_: &coracle_coro::generator::Yielder<(), ()>, ()| place_where_it_waits())
        .resume(())
        .map(|_| ())
        .map_err(io::Error::other)
}

/// Whoever is looked at does not notice: it waits as before, and is woken by the same, in the same order.
pub(crate) fn s49_looking_wakes_nobody(h: &Harness) {
    h.run(|| {
        let order = Rc::new(std::cell::RefCell::new(Vec::new()));
        let mutex = Rc::new(Mutex::new(()));
        let guard = mutex.lock()?;
        let sleeping = spawn(|| sleep(HOUR));
        let waiting: Vec<JoinHandle<()>> = (0..5)
            .map(|number| {
                let (order, mutex) = (Rc::clone(&order), Rc::clone(&mutex));
                spawn(move || {
                    drop(mutex.lock().expect("nobody cancels it"));
                    order.borrow_mut().push(number);
                })
            })
            .collect();
        let parked = spawn(park);
        yield_now();
        let before = stats();
        for _ in 0..10 {
            for info in coroutines() {
                let _ = trace_of(&info.coroutine);
            }
        }
        assert_eq!(stats(), before, "it counts as no switch");
        for waiting in &waiting {
            let info = info_of(waiting.coroutine());
            assert_eq!((info.state, info.waits_for), (State::Waiting, Some(WaitsFor::Mutex)));
        }
        assert!(!parked.is_finished() && !sleeping.is_finished());
        drop(guard);
        waiting.into_iter().for_each(|waiting| waiting.join().unwrap());
        assert_eq!(*order.borrow(), [0, 1, 2, 3, 4]);
        sleeping.cancel();
        sleeping.join().unwrap().expect_err("it is cancelled");
        parked.coroutine().unpark();
        parked.join().unwrap()
    });
}

/// Calls itself until no more than `left` bytes of the stack are left, and waits there.
#[inline(never)]
fn use_up(left: usize) -> io::Result<()> {
    let here = black_box([0u8; 256]);
    let address = here.as_ptr().addr();
    let stack = coracle_stack::stack_around(address).expect("we are in a coroutine");
    if address - stack.start < left { park() } else { use_up(black_box(left)) }?;
    black_box(here);
    Ok(())
}

/// There is no room for an answer on a stack that is almost used up.
pub(crate) fn s49_one_with_little_stack_left_is_not_asked(h: &Harness) {
    h.run(|| {
        let deep = spawn(|| use_up(12 << 10));
        let just = spawn(|| use_up(24 << 10));
        yield_now();
        assert_eq!(info_of(deep.coroutine()).state, State::Waiting);
        assert_eq!(trace_of(deep.coroutine()), None);
        let trace = trace_of(just.coroutine()).expect("it has room enough");
        assert!(trace.contains("use_up"), "{trace}");
        for waiting in [deep, just] {
            waiting.coroutine().unpark();
            waiting.join().unwrap()?;
        }
        Ok(())
    });
}

pub(crate) fn s49_thread_looks_at_a_loop(h: &Harness) {
    let handle = h.lp.handle();
    let lp = h.lp.handle();
    let looking = std::thread::spawn(move || {
        let is_there = || {
            let dump = look_at(&lp, PATIENCE).expect("the loop answers");
            dump.coroutines.iter().any(|one| one.coroutine.name() == Some("seen")).then_some(dump)
        };
        let dump = loop {
            match is_there() {
                Some(dump) => break dump,
                None => std::thread::yield_now(),
            }
        };
        let text = dump.to_string();
        for part in ["'seen' is Waiting for an unpark", "place_where_it_waits", "'main' is Waiting"]
        {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert_eq!(dump.stats.created, 2);
        let all = look_at_all(PATIENCE);
        let ours = |one: &coracle_coro::seeing::LoopDump| {
            one.coroutines.iter().any(|one| one.coroutine.name() == Some("seen"))
        };
        assert!(all.loops.iter().any(ours), "{all}");
        let seen = dump.coroutines.into_iter().find(|one| one.coroutine.name() == Some("seen"));
        seen.expect("it was there").coroutine.unpark();
    });
    h.run(|| Builder::new().name("seen").spawn(who_calls_it)?.join().unwrap());
    looking.join().unwrap();
    // Nobody runs it any more.
    look_at(&handle, MS).expect_err("nobody answers");
}

/// Only who asks waits for an answer that does not come.
pub(crate) fn s49_loop_that_nobody_runs_does_not_answer(h: &Harness) {
    let there = h.another_loop().handle();
    h.run(move || {
        let error = look_at(&there, MS).expect_err("it is gone");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        Ok(())
    });
    let other = h.another_loop();
    let there = other.handle();
    h.run(move || {
        let meanwhile = spawn(|| sleep(MS));
        let error = look_at(&there, 200 * MS).expect_err("nobody runs it");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(meanwhile.is_finished());
        meanwhile.join().unwrap()
    });
}

pub(crate) fn s51_counters_count(h: &Harness) {
    h.run(|| {
        let before = stats();
        assert_eq!((before.created, before.finished), (1, 0));
        assert_eq!((before.ready, before.waiting), (0, 0));
        let parked: Vec<_> = (0..3).map(|_| spawn(park)).collect();
        assert_eq!(stats().ready, 3);
        yield_now();
        let after = stats();
        assert_eq!((after.created, after.ready, after.waiting), (4, 0, 3));
        assert_eq!(after.switches - before.switches, 4, "each once, and back to here");
        sleep(10 * MS)?;
        let later = stats();
        assert!(later.parked >= after.parked + 40 * MS, "four have waited for 10 ms: {later:?}");
        for parked in parked {
            parked.coroutine().unpark();
            parked.join().unwrap()?;
        }
        let end = stats();
        assert_eq!((end.created, end.finished, end.waiting), (4, 3, 0));
        Ok(())
    });
}

/// Under the virtual clock it is exact.
pub(crate) fn s51_parked_time_is_exact(h: &Harness) {
    h.run(|| {
        let sleepers: Vec<_> = (1..=3).map(|n| spawn(move || sleep(n * MS))).collect();
        let before = stats().parked;
        sleep(4 * MS)?;
        assert_eq!(stats().parked - before, (1 + 2 + 3 + 4) * MS);
        for sleeper in sleepers {
            sleeper.join().unwrap()?;
        }
        Ok(())
    });
}

/// Two that wake each other without end leave timers their turn.
pub(crate) fn s42_who_never_rests_does_not_starve_the_loop(h: &Harness) {
    h.run(|| {
        let over = Rc::new(Cell::new(false));
        let rally = |over: &Rc<Cell<bool>>| {
            let over = Rc::clone(over);
            spawn(move || {
                let partner = loop {
                    if let Some(partner) = coroutine_of("partner") {
                        break partner;
                    }
                    yield_now();
                };
                while !over.get() {
                    partner.unpark();
                    yield_now();
                }
                partner.unpark();
            })
        };
        let partner = {
            let over = Rc::clone(&over);
            Builder::new().name("partner").spawn(move || -> io::Result<()> {
                while !over.get() {
                    park()?;
                }
                Ok(())
            })?
        };
        let rallying = rally(&over);
        sleep(5 * MS)?; // or it never ends
        over.set(true);
        rallying.join().unwrap();
        partner.join().unwrap()
    });
}

fn coroutine_of(name: &str) -> Option<Coroutine> {
    coroutines().into_iter().map(|one| one.coroutine).find(|one| one.name() == Some(name))
}

#[inline(never)]
fn who_asks_std() -> String {
    black_box(Backtrace::force_capture().to_string())
}

/// From the user's function through the switch into the scheduler, and on to who runs the loop.
pub(crate) fn s50_backtrace_of_std_goes_through_the_switch(h: &Harness) {
    h.run(|| {
        let trace = spawn(who_asks_std).join().unwrap();
        let mut rest = trace.as_str();
        for function in ["who_asks_std", "scheduler.rs:", "coracle-loop/src/lib.rs:", "harness.rs:"]
        {
            let at =
                rest.find(function).unwrap_or_else(|| panic!("{function} is missing:\n{trace}"));
            rest = &rest[at..];
        }
        Ok(())
    });
}
