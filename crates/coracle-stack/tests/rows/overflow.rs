//! Overflows: in child processes, since they are the end of one.
#![allow(unsafe_code)]

use crate::child::{in_child, said};
use coracle_stack::{Coroutine, Guard, Pool, Settings, Stack, StackSize, Yielder, on_stack};
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

fn recurse(depth: u64) -> u64 {
    let filler = std::hint::black_box([depth; 32]);
    if depth == u64::MAX { 0 } else { recurse(depth + 1) + filler[7] }
}

fn stack_with(guard: Option<Guard>, name: &str, size: StackSize) -> Stack {
    let pool = Pool::with_settings(Settings { guard, ..Settings::default() }).unwrap();
    let mut stack = pool.take(size).unwrap();
    stack.set_name(name);
    stack
}

fn stack(name: &str, size: StackSize) -> Stack {
    stack_with(None, name, size)
}

/// A coroutine that never gets out.
fn sinking(stack: Stack) -> Coroutine<(), (), ()> {
    Coroutine::new(stack, |_: &Yielder<(), ()>, ()| {
        recurse(0);
    })
}

#[track_caller]
fn assert_reported(output: Option<Output>, report: &str) {
    let Some(output) = output else { panic!("the child has survived") };
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", said(&output));
    assert_eq!(said(&output).matches(report).count(), 1, "{}", said(&output));
}

#[test]
fn s44_an_overflow_names_the_coroutine_and_the_size_of_its_stack() {
    let output =
        in_child("overflow::s44_an_overflow_names_the_coroutine_and_the_size_of_its_stack", || {
            sinking(stack("titanic", StackSize::default())).resume(());
        });
    assert_reported(
        output,
        "coroutine 'titanic' has overflowed its stack of 192 KiB: give it a larger one by `Builder::stack_size`, ",
    );
}

#[test]
fn s44_an_overflow_is_caught_by_guards_of_mprotect_too() {
    let output = in_child("overflow::s44_an_overflow_is_caught_by_guards_of_mprotect_too", || {
        let size = StackSize::at_least(1 << 20).unwrap();
        sinking(stack_with(Some(Guard::Protect), "vasa", size)).resume(());
    });
    assert_reported(output, "coroutine 'vasa' has overflowed its stack of 1 MiB");
}

#[test]
fn s44_an_overflow_of_a_coroutine_inside_another_names_the_inner_one() {
    let output = in_child(
        "overflow::s44_an_overflow_of_a_coroutine_inside_another_names_the_inner_one",
        || {
            let mut inner = sinking(stack("inner", StackSize::SMALL));
            let body = move |_: &Yielder<(), ()>, ()| inner.resume(());
            let mut outer = Coroutine::new(stack("outer", StackSize::default()), body);
            outer.resume(());
        },
    );
    assert_reported(output, "coroutine 'inner' has overflowed its stack of 64 KiB");
}

#[test]
fn s44_an_overflow_after_another_was_resumed_names_the_right_one() {
    let output =
        in_child("overflow::s44_an_overflow_after_another_was_resumed_names_the_right_one", || {
            let mut inner = Coroutine::new(
                stack("inner", StackSize::SMALL),
                |yielder: &Yielder<(), ()>, ()| {
                    yielder.suspend(());
                },
            );
            let body = move |_: &Yielder<(), ()>, ()| {
                let _ = inner.resume(());
                recurse(0)
            };
            let mut outer = Coroutine::new(stack("outer", StackSize::default()), body);
            outer.resume(());
        });
    assert_reported(output, "coroutine 'outer' has overflowed its stack of 192 KiB");
}

#[test]
fn s44_an_overflow_while_unwinding_names_the_coroutine() {
    struct Deep;
    impl Drop for Deep {
        fn drop(&mut self) {
            recurse(0);
        }
    }
    let output = in_child("overflow::s44_an_overflow_while_unwinding_names_the_coroutine", || {
        let mut coroutine =
            Coroutine::new(stack("last", StackSize::SMALL), |yielder: &Yielder<(), ()>, ()| {
                let _deep = Deep;
                yielder.suspend(());
            });
        let _ = coroutine.resume(());
        drop(coroutine);
    });
    assert_reported(output, "coroutine 'last' has overflowed its stack of 64 KiB");
}

#[test]
fn s44_an_overflow_of_a_big_stack_tells_its_size() {
    let output = in_child("overflow::s44_an_overflow_of_a_big_stack_tells_its_size", || {
        let mut big = stack("diver", StackSize::at_least(2 << 20).unwrap());
        let body = move |yielder: &Yielder<(), ()>, ()| {
            on_stack(&mut big, || {
                yielder.suspend(());
                recurse(0)
            })
        };
        let mut coroutine = Coroutine::new(stack("small", StackSize::SMALL), body);
        let _ = coroutine.resume(());
        let mut moved = Box::new(coroutine);
        moved.resume(());
    });
    assert_reported(output, "coroutine 'diver' has overflowed its stack of 2 MiB");
}

#[test]
fn s44_an_overflow_on_a_thread_that_std_did_not_start_is_named() {
    extern "C" fn thread(_: *mut libc::c_void) -> *mut libc::c_void {
        sinking(stack("foreign", StackSize::SMALL)).resume(());
        std::ptr::null_mut()
    }
    let output =
        in_child("overflow::s44_an_overflow_on_a_thread_that_std_did_not_start_is_named", || {
            // SAFETY: the function has the type that is asked for, and the thread is joined.
            unsafe {
                let mut id = std::mem::zeroed();
                let none = std::ptr::null_mut();
                assert_eq!(libc::pthread_create(&mut id, std::ptr::null(), thread, none), 0);
                libc::pthread_join(id, std::ptr::null_mut());
            }
        });
    assert_reported(output, "coroutine 'foreign' has overflowed its stack of 64 KiB");
}

#[test]
fn s44_an_overflow_without_a_name_tells_the_size() {
    let output = in_child("overflow::s44_an_overflow_without_a_name_tells_the_size", || {
        let pool = Pool::new().unwrap();
        // One that had a name, and lost it.
        let mut stack = pool.take(StackSize::SMALL).unwrap();
        stack.set_name("former");
        drop(stack);
        sinking(pool.take(StackSize::SMALL).unwrap()).resume(());
    });
    assert_reported(output, "a coroutine has overflowed its stack of 64 KiB");
}

#[test]
fn s44_a_name_of_any_length_is_reported() {
    let output = in_child("overflow::s44_a_name_of_any_length_is_reported", || {
        sinking(stack(&"long ".repeat(1000), StackSize::SMALL)).resume(());
    });
    assert_reported(output, "coroutine 'long long long ");
}

#[test]
fn s44_a_frame_that_is_not_touched_page_by_page_is_caught() {
    // What C code does with a large array: the first access is somewhere in the middle of it.
    let output =
        in_child("overflow::s44_a_frame_that_is_not_touched_page_by_page_is_caught", || {
            let body = |_: &Yielder<(), ()>, ()| {
                let near_the_top = std::hint::black_box(0u8);
                let below = StackSize::SMALL.bytes() + (40 << 10);
                let place = (&raw const near_the_top).cast_mut().wrapping_sub(below);
                // SAFETY: none: this is to fault, in a process that is there for it.
                unsafe { place.write_volatile(1) };
            };
            let _neighbour = stack("neighbour", StackSize::SMALL);
            Coroutine::new(stack("c", StackSize::SMALL), body).resume(());
        });
    assert_reported(output, "coroutine 'c' has overflowed its stack of 64 KiB");
}

#[test]
fn s44_an_overflow_of_the_thread_itself_is_reported_by_std() {
    let output =
        in_child("overflow::s44_an_overflow_of_the_thread_itself_is_reported_by_std", || {
            let _stack = stack("other", StackSize::SMALL);
            recurse(0);
        });
    let output = output.expect("the child does not survive");
    assert!(said(&output).contains("has overflowed its stack\n"), "{}", said(&output));
    assert!(!said(&output).contains("coroutine"), "{}", said(&output));
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
}

#[test]
fn s44_another_fault_of_a_coroutine_is_not_called_an_overflow() {
    let output =
        in_child("overflow::s44_another_fault_of_a_coroutine_is_not_called_an_overflow", || {
            let mut coroutine =
                Coroutine::new(stack("other", StackSize::SMALL), |_: &Yielder<(), ()>, ()| {
                    let nowhere = std::ptr::without_provenance_mut::<u8>(std::hint::black_box(64));
                    // SAFETY: none: this is to fault, in a process that is there for it.
                    unsafe { nowhere.write_volatile(1) };
                });
            coroutine.resume(());
        });
    let output = output.expect("the child does not survive");
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}", said(&output));
    assert!(!said(&output).contains("overflowed"), "{}", said(&output));
}

#[test]
fn s44_a_handler_that_was_there_before_gets_other_faults() {
    extern "C" fn handle(_: i32) {
        // SAFETY: _exit(2) may be called in a signal handler.
        unsafe { libc::_exit(42) };
    }
    let output =
        in_child("overflow::s44_a_handler_that_was_there_before_gets_other_faults", || {
            // SAFETY: the handler has the type that is asked for.
            unsafe { libc::signal(libc::SIGBUS, handle as *const () as usize) };
            let _stack = stack("other", StackSize::SMALL);
            // SAFETY: raise(3) has no conditions.
            unsafe { libc::raise(libc::SIGBUS) };
        });
    let output = output.expect("the child does not survive");
    assert_eq!(output.status.code(), Some(42), "{}", said(&output));
}
