//! T2: what it costs to go from one style to another, in instructions. Callgrind counts them.

#[path = "generator/child.rs"]
mod child;

use child::{errand, said, send};
use coracle_coro::future::{block_on, spawn_future};
use coracle_coro::sync::channel;
use coracle_coro::{run, spawn, yield_now};
use std::future::poll_fn;
use std::task::Poll;

/// How often it is done in two runs; what both runs have in common cancels out.
const COUNTS: [u64; 2] = [10_000, 60_000];

/// What is measured, and how many instructions it may take.
const STEPS: [(&str, f64); 6] = [
    ("a coroutine gives way", 400.0),
    ("a future is woken and polled", 350.0),
    ("a future is spawned, polled and awaited", 2500.0),
    ("block_on of a ready future", 400.0),
    ("a message from a coroutine to a future and one back", 5000.0),
    ("a message from a coroutine to a coroutine and one back", 5000.0),
];

#[test]
#[ignore = "needs valgrind and a release build; cargo xtask full runs it"]
fn t2_hand_over_between_styles_costs_little() {
    if let Some(errand) = errand() {
        let (step, count) = errand.split_once(' ').expect("an errand has two words");
        return perform(step.parse().expect("a number"), count.parse().expect("a number"));
    }
    let taken: Vec<f64> = (0..STEPS.len()).map(instructions).collect();
    for ((what, _), taken) in STEPS.iter().zip(&taken) {
        println!("{taken:7.1} instructions: {what}");
    }
    for ((what, limit), taken) in STEPS.iter().zip(taken) {
        assert!(cfg!(debug_assertions) || taken <= *limit, "{what}: {taken}, limit {limit}");
    }
}

#[test]
fn t2_every_step_that_is_measured_does_what_it_says() {
    for step in 0..STEPS.len() {
        perform(step, 100);
    }
}

fn perform(step: usize, count: u64) {
    let done = run(move || match step {
        0 => {
            (0..count).for_each(|_| yield_now());
            Ok(count)
        }
        1 => Ok(spawn_future(wakes_itself(count)).join()?),
        2 => {
            let one_by_one = async move {
                let mut done = 0;
                while done < count {
                    done += spawn_future(async { 1 }).await?;
                }
                Ok(done)
            };
            block_on(one_by_one)?
        }
        3 => (0..count).map(|_| block_on(async { 1 })).sum(),
        4 => {
            let (to, from) = channel::<u64>(1);
            let (back, answers) = channel::<u64>(1);
            let echo = spawn_future(async move {
                while let Ok(n) = from.recv_async().await {
                    back.send_async(n).await.expect("somebody waits");
                }
            });
            let done = (0..count).map(|_| exchange(&to, &answers)).sum();
            drop(to);
            echo.join()?;
            Ok(done)
        }
        _ => {
            let (to, from) = channel::<u64>(1);
            let (back, answers) = channel::<u64>(1);
            let echo =
                spawn(move || from.iter().for_each(|n| back.send(n).expect("somebody waits")));
            let done = (0..count).map(|_| exchange(&to, &answers)).sum();
            drop(to);
            echo.join().expect("it does not panic");
            Ok(done)
        }
    });
    assert_eq!(done.expect("no step fails"), count);
}

fn exchange(to: &coracle_coro::sync::Sender<u64>, back: &coracle_coro::sync::Receiver<u64>) -> u64 {
    to.send(1).expect("somebody waits");
    back.recv().expect("somebody answers")
}

/// Polled so often, and once more.
fn wakes_itself(count: u64) -> impl Future<Output = u64> {
    let mut polls = 0;
    poll_fn(move |cx| {
        if polls == count {
            return Poll::Ready(polls);
        }
        polls += 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Instructions of doing a step once.
fn instructions(step: usize) -> f64 {
    let [fewer, more] = COUNTS.map(|count| collected(&format!("{step} {count}")));
    (more - fewer) / (COUNTS[1] - COUNTS[0]) as f64
}

/// Instructions of a whole child.
fn collected(errand: &str) -> f64 {
    let callgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let output = send(&callgrind, "t2_hand_over_between_styles_costs_little", errand);
    assert!(output.status.success(), "{}", said(&output));
    let said = said(&output);
    let number =
        said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    number.expect("callgrind says what it has collected")
}
