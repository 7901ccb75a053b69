//! Coroutines: plain functions that wait without holding the thread.
//!
//! ```text
//! run:   cargo run -p coracle --example 12_coroutines
//! ```
//!
//! The names are those of `std::thread`. It ends by itself.

use coracle::{Runtime, race, run, scope, sleep, spawn, spawn_anywhere, timeout, yield_now};
use std::cell::RefCell;
use std::io;
use std::time::{Duration, Instant};

fn main() -> io::Result<()> {
    run(|| {
        // A hundred at the same time. None of them needs to be `Send`: they stay on this thread.
        let begin = Instant::now();
        let sleepers: Vec<_> =
            (0..100).map(|_| spawn(|| sleep(Duration::from_millis(50)))).collect();
        for sleeper in sleepers {
            sleeper.join().expect("it does not panic")?;
        }
        let together = begin.elapsed() < Duration::from_secs(5); // one after the other
        println!("a hundred have slept, {}", if together { "on one thread" } else { "slowly" });

        // Children of a scope may borrow, because the scope does not return before they have.
        let words = ["a", "coroutine", "is", "light"];
        let longest = RefCell::new("");
        scope(|scope| {
            for word in &words {
                let longest = &longest;
                scope.spawn(move || {
                    yield_now(); // as if it were work
                    if word.len() > longest.borrow().len() {
                        longest.replace(word);
                    }
                    Ok(())
                });
            }
            Ok(())
        })?;
        println!("the longest word is {}", longest.take());

        // The first to end cancels the other.
        let walk = |name: &'static str, ms| move || sleep(Duration::from_millis(ms)).map(|()| name);
        println!("first came the {}", race(walk("tortoise", 10), walk("hare", 3_600_000))?);

        // A deadline over any code that waits.
        let late = timeout(Duration::from_millis(10), || sleep(Duration::from_secs(3600)));
        println!("too late: {}", late.unwrap_err());

        // Cancelling is an error of the wait, so `?` leads out and destructors run.
        let patient = spawn(|| sleep(Duration::from_secs(3600)));
        patient.cancel();
        println!("cancelled: {}", patient.join().expect("it does not panic").unwrap_err());

        // A panic ends one coroutine.
        let careless = spawn(|| -> u32 { "forty-two".parse().expect("a number") });
        if careless.join().is_err() {
            println!("it panicked, and nobody else has noticed");
        }
        Ok(())
    })?;

    // Several loops, a thread each. Whatever goes to another loop is `Send`.
    let sum = Runtime::new().loops(2).run(|| {
        let squares: Vec<_> =
            (1..=10).map(|n| spawn_anywhere(move || n * n)).collect::<Result<_, _>>()?;
        Ok(squares.into_iter().map(|square| square.join().expect("it does not panic")).sum::<u32>())
    })?;
    println!("the squares of two loops add up to {sum}");
    Ok(())
}
