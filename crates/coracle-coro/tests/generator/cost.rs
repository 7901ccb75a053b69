//! W6: what a generator costs, in instructions, beside the switch that it is made of. Callgrind counts them.

use crate::child::{errand, said, send};
use coracle_coro::Generator;
use coracle_stack::{Coroutine, Pool, StackSize, Yielder};
use std::hint::black_box;

/// How often they are resumed in two runs; what both runs have in common cancels out.
const COUNTS: [u64; 2] = [10_000, 110_000];

/// A generator may take so many times the instructions.
const RATIO_MAX: f64 = 1.2;

#[test]
#[ignore = "needs valgrind and a release build; cargo xtask full runs it"]
fn s4_a_switch_costs_at_most_a_fifth_more_than_a_bare_one() {
    if let Some(errand) = errand() {
        let (who, count) = errand.split_once(' ').expect("an errand has two words");
        let count = count.parse().expect("the second is a number");
        return if who == "bare" { resume_bare(count) } else { resume_generator(count) };
    }
    let [bare, generator] = ["bare", "generator"].map(instructions);
    println!("instructions per resume and suspend: bare {bare:.1}, Generator {generator:.1}");
    assert!(cfg!(debug_assertions) || generator <= bare * RATIO_MAX);
}

fn resume_generator(count: u64) {
    let generator = Generator::with_input(|out, mut sum: u64| {
        while sum != u64::MAX {
            sum += out.suspend(sum);
        }
    });
    let mut last = 0;
    for _ in 0..count {
        last = black_box(generator.resume(black_box(1)).unwrap().yielded()).unwrap();
    }
    assert_eq!(last, count);
}

/// As corosensei has it: nothing is added to its switch.
fn resume_bare(count: u64) {
    let stack = Pool::new().unwrap().take(StackSize::default()).unwrap();
    let mut coroutine = Coroutine::new(stack, |out: &Yielder<u64, u64>, mut sum: u64| {
        while sum != u64::MAX {
            sum += out.suspend(sum);
        }
    });
    let mut last = 0;
    for _ in 0..count {
        last = black_box(coroutine.resume(black_box(1)).as_yield()).unwrap();
    }
    assert_eq!(last, count);
}

/// Instructions of one resume and one suspend.
fn instructions(who: &str) -> f64 {
    let [fewer, more] = COUNTS.map(|count| collected(&format!("{who} {count}")));
    (more - fewer) / (COUNTS[1] - COUNTS[0]) as f64
}

/// Instructions of a whole child.
fn collected(errand: &str) -> f64 {
    let callgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let test = "cost::s4_a_switch_costs_at_most_a_fifth_more_than_a_bare_one";
    let output = send(&callgrind, test, errand);
    assert!(output.status.success(), "{}", said(&output));
    let said = said(&output);
    let number =
        said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    number.expect("callgrind says what it has collected")
}
