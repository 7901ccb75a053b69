//! How a generator ends: by a panic, or dropped half-way.

use crate::child::{errand, said, send};
use coracle_coro::Generator;
use coracle_coro::generator::Resumed::Yielded;
use coracle_coro::generator::{ResumeError, Status, Yielder};
use std::cell::{Cell, RefCell};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::{self, TryRecvError};

/// Writes its name down when it is dropped.
struct Dropped(&'static str, Rc<RefCell<Vec<&'static str>>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.1.borrow_mut().push(self.0);
    }
}

/// A generator that hands out one value, with something captured and something on its stack.
fn half_way(drops: &Rc<RefCell<Vec<&'static str>>>) -> Generator<u32> {
    let captured = Dropped("captured", Rc::clone(drops));
    let drops = Rc::clone(drops);
    Generator::new(move |out| {
        let _captured = captured;
        let _local = Dropped("local", drops);
        out.suspend(1);
    })
}

#[test]
fn s53_a_panic_leaves_resume_and_ends_the_generator() {
    let drops = Rc::default();
    let local = Dropped("local", Rc::clone(&drops));
    let generator: Generator<u32> = Generator::new(move |out| {
        let _local = local;
        out.suspend(1);
        panic!("on purpose");
    });
    assert_eq!(generator.resume(()), Ok(Yielded(1)));
    let panic = catch_unwind(AssertUnwindSafe(|| generator.resume(()))).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    assert_eq!(*drops.borrow(), ["local"]);
    assert_eq!(generator.status(), Status::Done);
    assert_eq!(generator.resume(()), Err(ResumeError::Done));
}

#[test]
fn s53_a_panic_passes_through_the_generators_in_between() {
    let inner: Generator<u32> = Generator::new(|out| {
        out.suspend(1);
        panic!("deep down");
    });
    let outer = Generator::new(move |out| inner.for_each(|value| out.suspend(value)));
    assert_eq!(outer.resume(()), Ok(Yielded(1)));
    let panic = catch_unwind(AssertUnwindSafe(|| outer.resume(()))).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"deep down"));
    assert_eq!(outer.status(), Status::Done);
}

#[test]
fn s53_a_generator_may_catch_the_panic_of_another() {
    let generator = Generator::new(|out| {
        let bad = Generator::<u32>::new(|_| panic!("not here"));
        let caught = catch_unwind(AssertUnwindSafe(|| bad.resume(()))).is_err();
        out.suspend((caught, bad.status()));
    });
    assert_eq!(generator.resume(()), Ok(Yielded((true, Status::Done))));
}

#[test]
fn s4_dropping_it_half_way_drops_what_is_on_its_stack_in_order() {
    let drops = Rc::default();
    let mut generator = half_way(&drops);
    assert_eq!(generator.next(), Some(1));
    assert!(drops.borrow().is_empty());
    drop(generator);
    assert_eq!(*drops.borrow(), ["local", "captured"]);
}

#[test]
fn s4_dropping_one_that_was_not_started_drops_its_function() {
    let drops = Rc::default();
    drop(half_way(&drops));
    assert_eq!(*drops.borrow(), ["captured"]);
}

#[test]
fn s4_dropping_one_that_is_done_drops_nothing_twice() {
    let drops = Rc::default();
    let mut generator = half_way(&drops);
    assert_eq!(generator.by_ref().count(), 1);
    assert_eq!(*drops.borrow(), ["local", "captured"]);
    drop(generator);
    assert_eq!(drops.borrow().len(), 2);
}

#[test]
fn s4_dropping_it_half_way_while_panicking_works() {
    let drops = Rc::default();
    let mut generator = half_way(&drops);
    let result = catch_unwind(AssertUnwindSafe(move || {
        generator.next();
        panic!("on purpose");
    }));
    assert!(result.is_err());
    assert_eq!(*drops.borrow(), ["local", "captured"]);
}

#[test]
fn s4_one_that_catches_its_unwinding_is_unwound_again() {
    let catches = Rc::new(Cell::new(0));
    let counter = Rc::clone(&catches);
    let mut generator = Generator::new(move |out| {
        for value in 0..3 {
            if catch_unwind(AssertUnwindSafe(|| out.suspend(value))).is_err() {
                counter.set(counter.get() + 1);
            }
        }
    });
    assert_eq!(generator.next(), Some(0));
    drop(generator);
    assert_eq!(catches.get(), 3);
}

#[test]
fn s4_values_under_way_are_dropped_with_it() {
    let value = Rc::new(());
    let generator = Generator::with_input(|out, first: Rc<()>| {
        let second = out.suspend(Rc::clone(&first));
        out.suspend(second);
    });
    drop(generator.resume(Rc::clone(&value)));
    drop(generator.resume(Rc::clone(&value)));
    assert_eq!(Rc::strong_count(&value), 2, "the first is on its stack, the second was handed out");
    drop(generator);
    assert_eq!(Rc::strong_count(&value), 1);
}

#[test]
fn s4_input_that_is_refused_is_dropped() {
    let value = Rc::new(());
    let generator = Generator::with_input(|_: &Yielder<(), Rc<()>>, _| ());
    assert!(generator.resume(Rc::clone(&value)).is_ok());
    assert_eq!(generator.resume(Rc::clone(&value)), Err(ResumeError::Done));
    assert_eq!(Rc::strong_count(&value), 1);
}

#[test]
fn a_forgotten_generator_keeps_what_is_on_its_stack() {
    let drops = Rc::default();
    let mut generator = half_way(&drops);
    generator.next();
    std::mem::forget(generator);
    assert!(drops.borrow().is_empty());
}

#[test]
fn a_generator_of_a_thread_local_ends_with_the_thread() {
    thread_local! {
        static KEPT: RefCell<Option<Generator<u32>>> = const { RefCell::new(None) };
    }
    let (sender, receiver) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let mut generator = Generator::new(move |out| {
            let _sender = sender;
            out.suspend(1);
        });
        generator.next();
        KEPT.set(Some(generator));
    });
    thread.join().unwrap();
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected), "its destructors have run");
}

#[test]
fn a_generator_can_be_made_while_its_thread_ends() {
    struct Late(mpsc::Sender<Vec<u32>>);
    impl Drop for Late {
        fn drop(&mut self) {
            let values = Generator::new(|out| (1..=3).for_each(|n| out.suspend(n)));
            self.0.send(values.collect()).unwrap();
        }
    }
    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // Before the pool of stacks, and so dropped after it.
        LATE.set(Some(Late(sender)));
        assert_eq!(Generator::new(|out| out.suspend(1)).count(), 1);
    });
    thread.join().unwrap();
    assert_eq!(receiver.recv(), Ok(vec![1, 2, 3]));
}

extern "C" fn frame_of_c(out: &Yielder<u32>) {
    out.suspend(1);
}

#[test]
fn a_value_may_be_handed_out_from_under_a_frame_of_c() {
    let mut generator = Generator::new(|out| {
        frame_of_c(out);
    });
    assert_eq!(generator.next(), Some(1));
    assert_eq!(generator.next(), None, "run to its end, it is not unwound");
}

#[test]
fn dropping_it_half_way_under_a_frame_of_c_aborts() {
    if errand().is_some() {
        let mut generator = Generator::new(|out| {
            frame_of_c(out);
        });
        generator.next();
        drop(generator);
        return;
    }
    let output = send(&[], "ends::dropping_it_half_way_under_a_frame_of_c_aborts", "drop");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", said(&output));
    assert!(said(&output).contains("panic in a function that cannot unwind"), "{}", said(&output));
}

#[test]
fn dropping_it_aborts_when_a_destructor_suspends() {
    struct Slow<'a>(&'a Yielder<u32>);
    impl Drop for Slow<'_> {
        fn drop(&mut self) {
            self.0.suspend(2);
        }
    }
    if errand().is_some() {
        let mut generator = Generator::new(|out| {
            let _slow = Slow(out);
            out.suspend(1);
        });
        generator.next();
        drop(generator);
        return;
    }
    let output = send(&[], "ends::dropping_it_aborts_when_a_destructor_suspends", "drop");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", said(&output));
}
