//! Values in and out, nesting, statuses, stacks.

use crate::child::{errand, said, send};
use coracle_coro::Generator;
use coracle_coro::generator::Resumed::{Complete, Yielded};
use coracle_coro::generator::{Builder, ResumeError, Status, Yielder};
use coracle_stack::{Coroutine, CoroutineResult, Pool, StackSize, on_stack};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::rc::{Rc, Weak};

#[test]
fn s4_values_go_in_and_out() {
    let generator = Generator::with_input(|out, first: String| {
        let second = out.suspend(first.len());
        let third = out.suspend(second.len());
        first + &second + &third
    });
    assert_eq!(generator.resume("a".into()), Ok(Yielded(1)));
    assert_eq!(generator.resume("bc".into()), Ok(Yielded(2)));
    assert_eq!(generator.resume("d".into()), Ok(Complete("abcd".into())));
}

#[test]
fn s4_values_may_be_large_and_owned() {
    let generator = Generator::with_input(|out, mut page: Box<[u8; 5000]>| {
        for turn in 1..=3 {
            page[4999] += turn;
            let copy: [u8; 5000] = *page;
            page = out.suspend(copy);
        }
        page
    });
    let mut page = Box::new([1; 5000]);
    for sum in [2, 4, 7] {
        page = Box::new(generator.resume(page).unwrap().yielded().unwrap());
        assert_eq!((page[0], page[4999]), (1, sum));
    }
    assert!(generator.resume(page).unwrap().complete().is_some());
}

#[test]
fn s4_functions_that_are_called_hand_out_values_too() {
    fn count(to: u32, out: &Yielder<u32>) {
        if to > 0 {
            count(to - 1, out);
            out.suspend(to);
        }
    }
    let numbers: Vec<u32> = Generator::new(|out| count(100, out)).collect();
    assert_eq!(numbers, (1..=100).collect::<Vec<u32>>());
}

#[test]
fn s4_a_thousand_generators_resume_one_another() {
    fn nested(depth: u32) -> Generator<u32, (), u32> {
        Generator::new(move |out| {
            if depth == 0 {
                out.suspend(0);
                return 0;
            }
            let inner = nested(depth - 1);
            let Ok(Yielded(below)) = inner.resume(()) else { panic!("it hands out a value") };
            out.suspend(below + 1);
            let Ok(Complete(below)) = inner.resume(()) else { panic!("it returns") };
            below + 1
        })
    }
    let outer = nested(1000);
    assert_eq!(outer.resume(()), Ok(Yielded(1000)));
    assert_eq!(outer.resume(()), Ok(Complete(1000)));
}

#[test]
fn s4_a_thousand_nested_generators_are_dropped_half_way() {
    fn nested(depth: u32, alive: Rc<()>) -> Generator<u32> {
        Generator::new(move |out| {
            let _alive = Rc::clone(&alive);
            if depth == 0 {
                out.suspend(0);
            } else {
                nested(depth - 1, alive).for_each(|below| out.suspend(below + 1));
            }
        })
    }
    let alive = Rc::new(());
    let mut outer = nested(1000, Rc::clone(&alive));
    assert_eq!(outer.next(), Some(1000));
    assert!(Rc::strong_count(&alive) > 1000);
    drop(outer);
    assert_eq!(Rc::strong_count(&alive), 1);
}

#[test]
fn s4_generators_take_turns_and_can_be_moved() {
    let count_from =
        |first: u32| Generator::new(move |out| (first..1000).for_each(|n| out.suspend(n)));
    let mut generators: Vec<Generator<u32>> = (0..100).map(count_from).collect();
    for turn in 0..10 {
        generators = generators.into_iter().rev().collect();
        let mut sums: Vec<u32> = generators.iter_mut().filter_map(Iterator::next).collect();
        sums.sort_unstable();
        assert_eq!(sums, (turn..turn + 100).collect::<Vec<u32>>());
    }
}

#[test]
fn s4_generators_work_on_any_thread() {
    let count = || Generator::new(|out| (1..=1000_u32).for_each(|n| out.suspend(n))).sum::<u32>();
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(count)).collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 500_500);
    }
}

#[test]
fn s4_generators_work_inside_coroutines() {
    let pool = Pool::new().unwrap();
    let stack = pool.take(StackSize::default()).unwrap();
    let mut coroutine = Coroutine::new(stack, |yielder: &coracle_stack::Yielder<(), u32>, ()| {
        let numbers = Generator::new(|out| (1..=3).for_each(|n| out.suspend(n)));
        for number in numbers {
            yielder.suspend(number * 10);
        }
    });
    for number in [10, 20, 30] {
        assert_eq!(coroutine.resume(()), CoroutineResult::Yield(number));
    }
    assert_eq!(coroutine.resume(()), CoroutineResult::Return(()));
}

#[test]
fn s5_a_for_loop_resumes_it_until_it_is_done() {
    let mut squares = Generator::new(|out| (1..=3).for_each(|n| out.suspend(n * n)));
    let mut seen = Vec::new();
    for square in &mut squares {
        seen.push(square);
    }
    assert_eq!(seen, [1, 4, 9]);
    assert_eq!(squares.status(), Status::Done);
    assert_eq!(squares.next(), None, "and not again");
}

#[test]
fn s4_nothing_runs_before_it_is_resumed() {
    let alive = Rc::new(());
    let inside = Rc::clone(&alive);
    let generator: Generator<()> = Generator::new(move |_| drop(inside));
    assert_eq!(generator.status(), Status::Suspended);
    assert_eq!(Rc::strong_count(&alive), 2);
    assert_eq!(generator.resume(()), Ok(Complete(())));
    assert_eq!(Rc::strong_count(&alive), 1);
}

/// A generator that can reach itself.
fn reflexive<R: 'static>(
    body: impl FnOnce(&Yielder<R>, &Generator<R>) + 'static,
) -> Rc<Generator<R>> {
    Rc::new_cyclic(|itself: &Weak<Generator<R>>| {
        let itself = itself.clone();
        Generator::new(move |out| body(out, &itself.upgrade().expect("it is being resumed")))
    })
}

#[test]
fn s4_resuming_itself_is_an_error() {
    let generator = reflexive(|out, itself| {
        out.suspend(itself.resume(()).err());
        out.suspend(itself.resume(()).err());
    });
    assert_eq!(generator.resume(()), Ok(Yielded(Some(ResumeError::Running))));
    assert_eq!(generator.resume(()), Ok(Yielded(Some(ResumeError::Running))), "nothing was lost");
    assert_eq!(generator.resume(()), Ok(Complete(())));
}

#[test]
fn s4_resuming_one_that_waits_for_another_is_an_error() {
    type Seen = (Status, Option<ResumeError>);
    let outer = Rc::new_cyclic(|outer: &Weak<Generator<Seen>>| {
        let outer = outer.clone();
        Generator::new(move |out| {
            let inner = Generator::new(move |out| {
                let outer = outer.upgrade().expect("it is being resumed");
                out.suspend((outer.status(), outer.resume(()).err()));
            });
            inner.for_each(|seen| out.suspend(seen));
        })
    });
    assert_eq!(outer.resume(()), Ok(Yielded((Status::Running, Some(ResumeError::Running)))));
    assert_eq!(outer.resume(()), Ok(Complete(())));
}

#[test]
fn s4_resuming_one_that_is_done_is_an_error() {
    let generator = Generator::<u32>::new(|_| ());
    assert_eq!(generator.resume(()), Ok(Complete(())));
    for _ in 0..2 {
        assert_eq!(generator.resume(()), Err(ResumeError::Done));
    }
}

#[test]
fn s4_the_status_is_told_from_inside_and_outside() {
    let generator = reflexive(|out, itself| out.suspend(itself.status()));
    assert_eq!(generator.status(), Status::Suspended);
    assert_eq!(generator.resume(()), Ok(Yielded(Status::Running)));
    assert_eq!(generator.status(), Status::Suspended);
    assert_eq!(format!("{generator:?}"), "Generator(Suspended)");
    assert_eq!(generator.resume(()), Ok(Complete(())));
    assert_eq!(generator.status(), Status::Done);
}

#[test]
fn s3_the_size_of_its_stack_can_be_chosen() {
    fn deep(top: usize, bytes: usize) -> u8 {
        let filler = std::hint::black_box([1u8; 256]);
        // Something is done after the call, so that it stays one.
        if top - filler.as_ptr().addr() < bytes { deep(top, bytes) ^ filler[0] } else { 0 }
    }
    let generator = Builder::new().stack_size(8 << 20).build(|out, bytes| {
        let top = std::hint::black_box(0u8);
        out.suspend(deep((&raw const top).addr(), bytes));
    });
    assert!(generator.unwrap().resume(7 << 20).is_ok());
}

#[test]
fn s3_a_stack_that_is_too_large_is_an_error() {
    let builder = Builder::new().stack_size(usize::MAX);
    let error = builder.build(|_: &Yielder<()>, ()| ()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn s44_an_overflow_names_the_generator() {
    fn sink(depth: u64) -> u64 {
        let filler = std::hint::black_box([depth; 32]);
        if depth == u64::MAX { 0 } else { sink(depth + 1) + filler[7] }
    }
    if errand().is_some() {
        let builder = Builder::new().name("titanic").stack_size(1 << 20);
        builder.build(|out, ()| out.suspend(sink(0))).unwrap().resume(()).unwrap();
        panic!("it has survived");
    }
    let output = send(&[], "values::s44_an_overflow_names_the_generator", "sink");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", said(&output));
    let report = "coroutine 'titanic' has overflowed its stack of 1 MiB: give it a larger one by ";
    assert!(said(&output).contains(report), "{}", said(&output));
}

#[test]
fn s45_generators_that_come_and_go_use_the_same_stacks() {
    let place = || {
        let mut generator = Generator::new(|out| {
            let here = std::hint::black_box(0u8);
            out.suspend((&raw const here).addr());
        });
        generator.next().expect("it tells where it is")
    };
    let places: BTreeSet<usize> = (0..1000).map(|_| place()).collect();
    assert!(places.len() <= 256, "{} stacks for one at a time", places.len());
}

#[test]
fn s47_deep_recursion_goes_to_a_big_stack_and_may_suspend_there() {
    fn deep(depth: u32, out: &Yielder<u32>) -> u32 {
        let filler = std::hint::black_box([depth; 64]);
        if depth == 0 {
            out.suspend(filler[0]);
            return 0;
        }
        deep(depth - 1, out) + filler[0] / depth
    }
    let generator = Generator::new(|out| {
        let mut big = Pool::new().unwrap().take(StackSize::at_least(32 << 20).unwrap()).unwrap();
        on_stack(&mut big, || deep(20_000, out))
    });
    assert_eq!(generator.resume(()), Ok(Yielded(0)));
    assert_eq!(generator.resume(()), Ok(Complete(20_000)));
}

#[test]
fn s48_the_high_water_mark_is_told_unless_it_is_running() {
    let generator = reflexive(|out, itself| out.suspend(itself.high_water()));
    assert_eq!(generator.resume(()), Ok(Yielded(None)));
    let used = generator.high_water().unwrap();
    assert!((1..=StackSize::default().bytes()).contains(&used), "{used}");
    assert_eq!(generator.resume(()), Ok(Complete(())));
}

#[test]
fn s50_a_backtrace_goes_on_to_the_one_who_resumed() {
    let generator = Generator::new(|out| {
        out.suspend(std::backtrace::Backtrace::force_capture().to_string());
    });
    let trace = generator.resume(()).unwrap().yielded().unwrap();
    let switch = trace.find("corosensei").expect("it passes the switch");
    assert!(trace[switch..].contains("s50_a_backtrace_goes_on_to_the_one_who_resumed"), "{trace}");
}

#[test]
fn s60_ten_thousand_generators_wait_at_a_time() {
    let make = |n: u32| Generator::new(move |out| (n..n + 2).for_each(|n| out.suspend(n)));
    let generators: Vec<Generator<u32>> = (0..10_000).map(make).collect();
    for turn in 0..2 {
        for (n, generator) in (0..).zip(&generators) {
            assert_eq!(generator.resume(()), Ok(Yielded(n + turn)));
        }
    }
    assert!(generators.iter().all(|generator| generator.resume(()).is_ok()));
    assert!(generators.iter().all(|generator| generator.status() == Status::Done));
}
