//! Starting coroutines, and what each of them has of its own.

use crate::harness::{Harness, Log, MS, Noted};
use coracle_coro::{
    Builder, current, on_big_stack, park, scope, sleep, spawn, spawn_now, spawn_on, yield_now,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::rc::Rc;

pub(crate) fn s1_spawning_runs_nothing(h: &Harness) {
    h.run(|| {
        let log = Log::default();
        let child = spawn({
            let log = log.clone();
            move || log.add("child")
        });
        log.add("parent");
        child.join().unwrap();
        assert_eq!(log.take(), ["parent", "child"]);
        Ok(())
    });
}

pub(crate) fn s1_callback_spawns(h: &Harness) {
    let log = Log::default();
    let noted = log.clone();
    h.lp.after(MS, move |_| {
        let log = noted.clone();
        spawn(move || {
            sleep(MS).unwrap();
            log.add("slept");
        });
        noted.add("callback");
    });
    h.lp.run_until_idle().unwrap();
    assert_eq!(log.take(), ["callback", "slept"]);
}

pub(crate) fn s1_callback_runs_a_coroutine_at_once(h: &Harness) {
    let log = Log::default();
    let noted = log.clone();
    h.lp.after(MS, move |_| {
        let [quick, slow, after] = [noted.clone(), noted.clone(), noted.clone()];
        assert_eq!(spawn_now(move || quick.add("quick")).join().ok(), Some(()));
        let waits = spawn_now(move || {
            slow.add("begins");
            sleep(MS).unwrap();
            slow.add("slept");
        });
        assert!(!waits.is_finished());
        let panics = spawn_now(|| std::panic::resume_unwind(Box::new("on purpose")));
        assert!(panics.join().is_err());
        after.add("callback");
        drop(spawn_now(yield_now));
    });
    h.lp.run_until_idle().unwrap();
    assert_eq!(log.take(), ["quick", "begins", "callback", "slept"]);
}

/// A spawner that is used outside a turn says so, and has started nobody.
pub(crate) fn s1_spawner_outside_a_turn_starts_nobody(h: &Harness) {
    let spawner = coracle_coro::Spawner::of(&h.lp);
    let failed = std::panic::AssertUnwindSafe(|| drop(spawner.spawn_now(&h.lp, || ())));
    let message = std::panic::catch_unwind(failed).expect_err("it is refused");
    let text = message.downcast_ref::<&str>().copied().unwrap_or_default();
    assert!(text.starts_with("cannot start a coroutine outside a turn"), "{text}");
    h.run(|| {
        assert_eq!(coracle_coro::seeing::coroutines().len(), 1);
        Ok(())
    });
}

pub(crate) fn s1_coroutine_runs_none_inside_itself(h: &Harness) {
    h.run(|| {
        let log = Log::default();
        let child = spawn_now({
            let log = log.clone();
            move || log.add("child")
        });
        log.add("parent");
        child.join().unwrap();
        assert_eq!(log.take(), ["parent", "child"]);
        Ok(())
    });
}

pub(crate) fn s1_thread_spawns_on_a_loop(h: &Harness) {
    h.run(|| {
        let (main, handle) = (current(), coracle_loop::Loop::current().unwrap().handle());
        let thread = std::thread::spawn(move || {
            let named = Builder::new().name("sent");
            let child = named.spawn_on(&handle, || current().to_string()).unwrap();
            let name = child.join().unwrap();
            main.unpark();
            name
        });
        park()?;
        assert_eq!(thread.join().unwrap(), "'sent'");
        Ok(())
    });
}

pub(crate) fn s1_loop_that_is_gone_takes_no_coroutine(h: &Harness) {
    let lp = h.another_loop();
    let handle = lp.handle();
    drop(lp);
    let refused = spawn_on(&handle, || ()).expect_err("there is no loop");
    assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
}

pub(crate) fn s2_names_and_ids_tell_coroutines_apart(h: &Harness) {
    h.run(|| {
        assert_eq!(current().name(), Some("main"));
        let mut ids = BTreeSet::from([current().id()]);
        for round in 0..100 {
            // Each takes the place of the last one.
            let name = format!("number {round}");
            let child =
                Builder::new().name(&name).spawn(|| (current().id(), current().to_string()))?;
            assert_eq!(child.coroutine().name(), Some(&*name));
            let expected = (child.coroutine().id(), format!("'{name}'"));
            assert_eq!(child.join().unwrap(), expected);
            assert!(ids.insert(expected.0), "an id is used once");
        }
        let nameless = spawn(|| current().name().map(str::to_owned));
        assert_eq!(nameless.join().unwrap(), None);
        Ok(())
    });
}

/// Uses about this much of the stack.
fn use_stack(bytes: usize) -> u8 {
    let page = std::hint::black_box([1_u8; 1024]);
    if bytes < 1024 { page[7] } else { std::hint::black_box(use_stack(bytes - 1024)) + page[7] - 1 }
}

pub(crate) fn s3_stack_is_as_large_as_asked_for(h: &Harness) {
    h.run(|| {
        // Beyond the default, which is 192 KiB; an overflow would end the process.
        let large = Builder::new().stack_size(8 << 20).spawn(|| use_stack(1 << 20))?;
        assert_eq!(large.join().unwrap(), 1);
        Ok(())
    });
}

pub(crate) fn s3_stack_beyond_the_limit_is_refused(h: &Harness) {
    h.run(|| {
        let refused = Builder::new().stack_size(usize::MAX).spawn(|| ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        Ok(())
    });
}

pub(crate) fn s3_children_of_a_scope_have_names_and_stacks_as_asked_for(h: &Harness) {
    h.run(|| {
        let (used, name) = (Cell::new(0), RefCell::new(None));
        scope(|scope| {
            let builder = Builder::new().name("deep").stack_size(8 << 20);
            builder.spawn_scoped(scope, || {
                name.replace(current().name().map(String::from));
                used.set(use_stack(1 << 20));
                Ok(())
            })?;
            let refused = Builder::new().stack_size(usize::MAX).spawn_scoped(scope, || Ok(()));
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
            Ok(())
        })?;
        assert_eq!((used.get(), name.take().as_deref()), (1, Some("deep")));
        // The first error cancels the rest, whoever has spawned it.
        let result = scope(|scope| {
            scope.spawn(park);
            Builder::new().spawn_scoped(scope, || Err(ErrorKind::NotFound.into()))
        });
        assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
        Ok(())
    });
}

pub(crate) fn s5_ready_coroutines_run_in_the_order_they_were_spawned(h: &Harness) {
    h.run(|| {
        // More than one turn runs.
        let seen = Rc::new(RefCell::new(Vec::new()));
        for number in 0..3000 {
            let seen = Rc::clone(&seen);
            spawn(move || seen.borrow_mut().push(number));
        }
        while seen.borrow().len() < 3000 {
            yield_now();
        }
        assert!(seen.borrow().iter().copied().eq(0..3000));
        Ok(())
    });
}

coracle_coro::coroutine_local! {
    static COUNT: Cell<u32> = Cell::new(1);
    static KEPT: RefCell<Option<Noted>> = RefCell::default();
}

pub(crate) fn s27_every_coroutine_has_its_own_locals(h: &Harness) {
    h.run(|| {
        let count = |by: u32| {
            move || {
                COUNT.with(|count| {
                    count.set(count.get() + by);
                    yield_now(); // the others do the same meanwhile
                    count.get()
                })
            }
        };
        let [one, two] = [spawn(count(1)), spawn(count(2))];
        assert_eq!((one.join().unwrap(), two.join().unwrap()), (2, 3));
        assert_eq!(COUNT.with(Cell::get), 1);
        Ok(())
    });
}

struct Waits(Log);

impl Drop for Waits {
    fn drop(&mut self) {
        sleep(MS).unwrap();
        self.0.add("waited");
    }
}

coracle_coro::coroutine_local!(static WAITS: RefCell<Option<Waits>> = RefCell::default());

pub(crate) fn s27_locals_are_dropped_with_their_coroutine_and_may_wait(h: &Harness) {
    let log = Log::default();
    let noted = log.clone();
    h.run(move || {
        spawn(move || {
            KEPT.with(|kept| kept.replace(Some(Noted(noted.clone(), "dropped"))));
            WAITS.with(|waits| waits.replace(Some(Waits(noted.clone()))));
            noted.add("over");
        });
        Ok(())
    });
    assert_eq!(log.take(), ["over", "dropped", "waited"]);
}

pub(crate) fn s38_coroutines_of_two_loops_wait_for_each_other(h: &Harness) {
    let backend = h.lp.backend();
    h.run(move || {
        let here = coracle_loop::Loop::current().unwrap().handle();
        let other = std::thread::spawn(move || {
            let lp = coracle_loop::Loop::builder().backend(backend).build().unwrap();
            coracle_coro::run_on(&lp, move || {
                let total = (1..=100)
                    .map(|n| spawn_on(&here, move || n).unwrap().join().unwrap())
                    .sum::<u32>();
                Ok(total)
            })
        });
        while !other.is_finished() {
            sleep(MS)?;
        }
        assert_eq!(other.join().unwrap()?, 5050);
        Ok(())
    });
}

pub(crate) fn s47_deep_recursion_runs_on_a_big_stack(h: &Harness) {
    h.run(|| {
        let child = spawn(|| {
            on_big_stack(8 << 20, || {
                sleep(MS).unwrap(); // it is the same coroutine
                use_stack(1 << 20)
            })
        });
        assert_eq!(child.join().unwrap()?, 1);
        Ok(())
    });
}

pub(crate) fn s56_coroutine_runs_a_loop_of_its_own(h: &Harness) {
    let inner = h.another_loop();
    h.run(move || {
        let log = Log::default();
        let (noted, outer) = (log.clone(), current().id());
        inner.defer(move |_| {
            spawn(move || {
                assert_ne!(current().id(), outer);
                sleep(MS).unwrap();
                noted.add("inner");
            });
        });
        let (neighbour, noted) = (spawn(park), log.clone());
        yield_now();
        let parked = neighbour.coroutine().clone();
        inner.defer(move |_| {
            noted.add("callback");
            parked.unpark(); // of the outer loop, which has its turn later
        });
        inner.run_until_idle()?;
        assert_eq!(current().id(), outer);
        sleep(MS)?; // it is a coroutine as before
        neighbour.join().unwrap()?;
        assert_eq!(log.take(), ["callback", "inner"]);
        Ok(())
    });
}

pub(crate) fn s56_callbacks_and_coroutines_share_a_loop(h: &Harness) {
    h.run(|| {
        let main = current();
        let ticks = Rc::new(Cell::new(0));
        let counter = Rc::clone(&ticks);
        let lp = coracle_loop::Loop::current().unwrap();
        let timer = lp.every(MS, move |_| {
            counter.set(counter.get() + 1);
            if counter.get() == 3 {
                main.unpark(); // a callback wakes a coroutine
            }
        });
        park()?;
        assert!(timer.cancel());
        assert_eq!(ticks.get(), 3);
        Ok(())
    });
}
