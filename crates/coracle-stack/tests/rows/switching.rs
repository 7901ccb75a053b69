//! Resuming and suspending: values, nesting, panics, ends.

use coracle_stack::{
    Coroutine, CoroutineResult, Pool, Seated, Stack, StackSize, Yielder, on_stack,
};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// Counts how often it is dropped.
struct Dropped(Rc<Cell<u32>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

fn stack() -> Stack {
    Pool::new().unwrap().take(StackSize::default()).unwrap()
}

/// A coroutine that suspends itself once, with something on its stack.
fn half_way(drops: &Rc<Cell<u32>>) -> Coroutine<(), (), ()> {
    let dropped = Dropped(Rc::clone(drops));
    Coroutine::new(stack(), move |yielder: &Yielder<(), ()>, ()| {
        let _dropped = dropped;
        yielder.suspend(());
    })
}

#[test]
fn s4_values_go_in_and_out() {
    let mut coroutine =
        Coroutine::new(stack(), |yielder: &Yielder<String, usize>, first: String| {
            let second = yielder.suspend(first.len());
            let third = yielder.suspend(second.len());
            first + &second + &third
        });
    assert!(!coroutine.is_started());
    assert_eq!(coroutine.resume("a".into()), CoroutineResult::Yield(1));
    assert!(coroutine.is_started() && !coroutine.is_done());
    assert_eq!(coroutine.resume("bc".into()), CoroutineResult::Yield(2));
    assert_eq!(coroutine.resume("d".into()), CoroutineResult::Return("abcd".into()));
    assert!(coroutine.is_done());
}

#[test]
fn s4_a_thousand_coroutines_resume_one_another() {
    fn nested(pool: &Pool, depth: u32) -> Coroutine<(), u32, u32> {
        let (stack, pool) = (pool.take(StackSize::SMALL).unwrap(), pool.clone());
        Coroutine::new(stack, move |yielder: &Yielder<(), u32>, ()| {
            if depth == 0 {
                yielder.suspend(0);
                return 0;
            }
            let mut inner = nested(&pool, depth - 1);
            let CoroutineResult::Yield(below) = inner.resume(()) else { panic!("it suspends") };
            yielder.suspend(below + 1);
            let CoroutineResult::Return(below) = inner.resume(()) else { panic!("it returns") };
            below + 1
        })
    }
    let mut outer = nested(&Pool::new().unwrap(), 1000);
    assert_eq!(outer.resume(()), CoroutineResult::Yield(1000));
    assert_eq!(outer.resume(()), CoroutineResult::Return(1000));
}

#[test]
fn s4_coroutines_take_turns_and_can_be_moved() {
    let pool = Pool::new().unwrap();
    let log = Rc::new(RefCell::new(Vec::new()));
    let body = |number| {
        let log = Rc::clone(&log);
        move |yielder: &Yielder<(), ()>, ()| {
            for turn in 0..3 {
                log.borrow_mut().push((turn, number));
                yielder.suspend(());
            }
        }
    };
    let mut coroutines = Vec::new();
    for number in 0..100 {
        coroutines.push(Coroutine::new(pool.take(StackSize::SMALL).unwrap(), body(number)));
    }
    for _ in 0..3 {
        coroutines = coroutines.into_iter().rev().collect();
        coroutines
            .iter_mut()
            .for_each(|coroutine| assert!(coroutine.resume(()).as_yield().is_some()));
    }
    assert_eq!(log.borrow().len(), 300);
    assert!(log.borrow().is_sorted_by_key(|(turn, _)| *turn));
    assert_eq!(log.borrow()[99], (0, 0));
}

#[test]
fn s53_a_panic_leaves_resume_and_ends_the_coroutine() {
    let drops = Rc::new(Cell::new(0));
    let dropped = Dropped(Rc::clone(&drops));
    let mut coroutine = Coroutine::new(stack(), move |_: &Yielder<(), ()>, ()| {
        let _dropped = dropped;
        panic!("on purpose");
    });
    let panic = catch_unwind(AssertUnwindSafe(|| coroutine.resume(()))).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    assert!(coroutine.is_done());
    assert_eq!(drops.get(), 1);
    assert!(catch_unwind(AssertUnwindSafe(|| coroutine.resume(()))).is_err(), "it is done");
}

#[test]
fn dropping_a_suspended_coroutine_drops_what_is_on_its_stack() {
    let drops = Rc::new(Cell::new(0));
    let mut coroutine = half_way(&drops);
    let _ = coroutine.resume(());
    assert_eq!(drops.get(), 0);
    drop(coroutine);
    assert_eq!(drops.get(), 1);
}

#[test]
fn dropping_a_coroutine_that_was_not_started_drops_its_function() {
    let drops = Rc::new(Cell::new(0));
    drop(half_way(&drops));
    assert_eq!(drops.get(), 1);
}

#[test]
fn dropping_a_suspended_coroutine_while_panicking_works() {
    let drops = Rc::new(Cell::new(0));
    let mut coroutine = half_way(&drops);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _ = coroutine.resume(());
        let _coroutine = coroutine;
        panic!("on purpose");
    }));
    assert!(result.is_err());
    assert_eq!(drops.get(), 1);
}

#[test]
fn a_coroutine_that_catches_its_unwinding_is_unwound_again() {
    let pool = Pool::new().unwrap();
    let catches = Rc::new(Cell::new(0));
    let mut coroutine = {
        let catches = Rc::clone(&catches);
        Coroutine::new(
            pool.take(StackSize::SMALL).unwrap(),
            move |yielder: &Yielder<(), ()>, ()| {
                for _ in 0..3 {
                    if catch_unwind(AssertUnwindSafe(|| yielder.suspend(()))).is_err() {
                        catches.set(catches.get() + 1);
                    }
                }
            },
        )
    };
    let _ = coroutine.resume(());
    coroutine.unwind();
    assert!(coroutine.is_done());
    assert_eq!(catches.get(), 3);
    drop(coroutine);
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn a_panic_of_a_destructor_leaves_unwind() {
    struct Angry;
    impl Drop for Angry {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("not like this");
            }
        }
    }
    let mut coroutine = Coroutine::new(stack(), |yielder: &Yielder<(), ()>, ()| {
        // Caught, so that the destructor runs when nothing is unwinding any more.
        let _ = catch_unwind(AssertUnwindSafe(|| yielder.suspend(())));
        drop(Angry);
    });
    let _ = coroutine.resume(());
    let panic = catch_unwind(AssertUnwindSafe(|| coroutine.unwind())).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"not like this"));
    assert!(coroutine.is_done());
}

#[test]
fn a_forgotten_coroutine_keeps_its_stack_for_good() {
    let pool = Pool::new().unwrap();
    let mut coroutine =
        Coroutine::new(pool.take(StackSize::SMALL).unwrap(), |yielder: &Yielder<(), ()>, ()| {
            yielder.suspend(());
        });
    let _ = coroutine.resume(());
    std::mem::forget(coroutine);
    assert_eq!(pool.stats().in_use, 1);
}

#[test]
fn s47_deep_recursion_goes_to_a_big_stack_and_may_suspend_there() {
    fn deep(depth: u32, bottom: &mut dyn FnMut()) -> u32 {
        let filler = std::hint::black_box([depth; 64]);
        if depth == 0 {
            bottom();
            return 0;
        }
        deep(depth - 1, bottom) + filler[0] / depth
    }
    let pool = Pool::new().unwrap();
    let big = pool.take(StackSize::at_least(32 << 20).unwrap()).unwrap();
    let body = move |yielder: &Yielder<(), ()>, ()| {
        let mut big = big;
        on_stack(&mut big, || deep(20_000, &mut || yielder.suspend(())))
    };
    let mut coroutine = Box::new(Coroutine::new(pool.take(StackSize::SMALL).unwrap(), body));
    assert_eq!(coroutine.resume(()), CoroutineResult::Yield(()));
    let mut moved = *coroutine;
    assert_eq!(moved.resume(()), CoroutineResult::Return(20_000));
}

#[test]
fn a_function_may_have_captured_much() {
    fn start<const BYTES: usize>(pool: &Pool) -> CoroutineResult<(), u8> {
        let ballast = [7u8; BYTES];
        // A debug build has several of it on the stack at a time.
        let stack = pool.take(StackSize::at_least(512 << 10).unwrap()).unwrap();
        Coroutine::new(stack, move |_: &Yielder<(), ()>, ()| ballast[BYTES / 2]).resume(())
    }
    let pool = Pool::new().unwrap();
    assert_eq!(start::<1024>(&pool), CoroutineResult::Return(7));
    assert_eq!(start::<1025>(&pool), CoroutineResult::Return(7));
    assert_eq!(start::<{ 32 << 10 }>(&pool), CoroutineResult::Return(7));
}

#[test]
fn a_function_may_need_any_alignment() {
    #[repr(align(4096))]
    struct Page;
    let page = Page;
    let mut coroutine =
        Coroutine::new(stack(), move |_: &Yielder<(), ()>, ()| (&raw const page).addr());
    assert_eq!(coroutine.resume(()).as_return().unwrap() % 4096, 0);
}

#[test]
fn a_large_function_that_is_never_run_is_dropped() {
    let drops = Rc::new(Cell::new(0));
    let ballast = ([0u64; 1000], Dropped(Rc::clone(&drops)));
    let body = move |_: &Yielder<(), ()>, ()| drop(ballast);
    drop(Coroutine::new(stack(), body));
    assert_eq!(drops.get(), 1);
}

#[test]
fn a_panic_on_another_stack_comes_back() {
    let mut big = stack();
    let panic =
        catch_unwind(AssertUnwindSafe(|| on_stack(&mut big, || panic!("there")))).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"there"));
    assert_eq!(on_stack(&mut big, || 7), 7);
}

#[test]
fn s4_a_seated_coroutine_is_on_its_own_stack_and_leaves_it_clean() {
    let drops = Rc::new(Cell::new(0));
    let pool = Pool::new().unwrap();
    let half_way = |n: u32| {
        let guard = Dropped(Rc::clone(&drops));
        let stack = pool.take(StackSize::SMALL).unwrap();
        let mut seated = Seated::new(stack, move |yielder: &Yielder<u32, u32>, first| {
            let _guard = guard;
            first + yielder.suspend(n)
        });
        assert_eq!(seated.resume(1), CoroutineResult::Yield(n));
        seated
    };
    // All at once, so that each has a stack and a colour of its own.
    let mut all: Vec<_> = (0..40).map(half_way).collect();
    drop(all.split_off(20));
    assert_eq!(drops.get(), 20);
    for mut seated in all {
        assert_eq!(seated.resume(2), CoroutineResult::Return(3));
        seated.restart(|_, n| 3 * n);
        assert_eq!(seated.resume(2), CoroutineResult::Return(6));
    }
    assert_eq!((drops.get(), pool.stats().in_use), (40, 0));
}
