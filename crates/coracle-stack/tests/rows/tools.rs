//! What other programs make of it: a kernel without guards, played by strace; valgrind.

use crate::child::{in_child_of, said};
use coracle_stack::{Coroutine, Guard, Pool, StackSize, Yielder};
use std::process::Command;

fn is_installed(program: &str) -> bool {
    let installed = Command::new(program).arg("--version").output().is_ok();
    assert!(installed || std::env::var_os("CI").is_none(), "{program} is missing");
    installed
}

#[test]
fn s44_a_kernel_without_guards_gets_them_by_mprotect_and_one_warning() {
    if !is_installed("strace") {
        return;
    }
    let refuse = "inject=madvise,process_madvise:error=EINVAL";
    let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", refuse];
    let test = "tools::s44_a_kernel_without_guards_gets_them_by_mprotect_and_one_warning";
    let output = in_child_of(&strace, test, || {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
        for _ in 0..2 {
            let pool = Pool::new().unwrap();
            assert_eq!(pool.take(StackSize::SMALL).unwrap().guard(), Guard::Protect);
        }
    });
    let Some(output) = output else { return };
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(
        said(&output).matches("guarding stacks by mprotect, at most").count(),
        1,
        "{}",
        said(&output)
    );
}

#[test]
fn s50_a_backtrace_goes_on_to_the_one_who_resumed() {
    let stack = Pool::new().unwrap().take(StackSize::default()).unwrap();
    let mut coroutine = Coroutine::new(stack, |_: &Yielder<(), ()>, ()| {
        std::backtrace::Backtrace::force_capture().to_string()
    });
    let trace = coroutine.resume(()).as_return().unwrap();
    let switch = trace.find("corosensei").expect("it passes the switch");
    assert!(trace[switch..].contains("s50_a_backtrace_goes_on_to_the_one_who_resumed"), "{trace}");
}

#[test]
#[ignore = "needs valgrind; cargo xtask full runs it"]
fn s52_valgrind_has_no_complaints() {
    if !is_installed("valgrind") {
        return;
    }
    let output = in_child_of(&["valgrind"], "tools::s52_valgrind_has_no_complaints", || {
        let pool = Pool::new().unwrap();
        for _ in 0..3 {
            let mut coroutines = Vec::new();
            for number in 0..100 {
                let stack = pool.take(StackSize::default()).unwrap();
                coroutines.push(Coroutine::new(stack, move |yielder: &Yielder<(), String>, ()| {
                    let mut text = format!("{number}");
                    loop {
                        yielder.suspend(text.clone());
                        text.push('x');
                    }
                }));
            }
            for _ in 0..10 {
                coroutines.iter_mut().for_each(|coroutine| drop(coroutine.resume(())));
            }
        }
    });
    let Some(output) = output else { return };
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("ERROR SUMMARY: 0 errors"), "{}", said(&output));
    assert!(!said(&output).contains("client switching stacks"), "{}", said(&output));
}
