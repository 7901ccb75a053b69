//! A million coroutines, each parked on a stack of its own: what one costs.
//!
//! ```text
//! run:   cargo run -p coracle --release --example 16_million            (needs 5 GB)
//!        cargo run -p coracle --release --example 16_million -- 100000
//!        cargo run -p coracle --release --example 16_million -- 1000000 64      (stacks of 64 KiB)
//! ```
//!
//! A stack of 192 KiB, the default, and its guard of 64 KiB are address space, of which a parked coroutine uses
//! one page; but it is also 520 bytes of page tables. A stack of 64 KiB is 264 bytes of them.
//!
//! Prints what each takes of memory (resident pages and page tables) and of time: to be spawned and parked, to
//! be woken and joined. It ends by itself.

use coracle::coro::Builder;
use coracle::{JoinHandle, park, run, yield_now};
use std::io;
use std::time::Instant;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count = number(arguments.next(), 1_000_000)?;
    let stack = match arguments.next() {
        Some(kib) => Builder::new().stack_size(number(Some(kib), 0)? << 10),
        None => Builder::new(),
    };
    run(move || {
        let before = memory()?;
        let begin = Instant::now();
        let mut parked: Vec<JoinHandle<io::Result<()>>> = Vec::with_capacity(count);
        for _ in 0..count {
            parked.push(stack.clone().spawn(park)?);
        }
        yield_now(); // they are all before us
        let nanoseconds = begin.elapsed().as_nanos() / count as u128;
        let bytes = memory()?.saturating_sub(before) / count;
        println!("{count} coroutines are parked: {bytes} bytes, {nanoseconds} ns each");

        let begin = Instant::now();
        for coroutine in &parked {
            coroutine.coroutine().unpark();
        }
        for coroutine in parked {
            coroutine.join().expect("it does not panic")?;
        }
        let nanoseconds = begin.elapsed().as_nanos() / count as u128;
        println!("{count} coroutines are woken and joined: {nanoseconds} ns each");
        Ok(())
    })
}

fn number(argument: Option<String>, default: usize) -> io::Result<usize> {
    argument.map_or(Ok(default), |argument| argument.parse().map_err(io::Error::other))
}

/// What this process has in memory, page tables included, in bytes.
fn memory() -> io::Result<usize> {
    // Not `VmRSS`, which is a sum of what each core has last said.
    Ok(field("/proc/self/smaps_rollup", "Rss:")? + field("/proc/self/status", "VmPTE:")?)
}

fn field(file: &str, name: &str) -> io::Result<usize> {
    let text = std::fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    Ok(kib.ok_or_else(|| io::Error::other(format!("no {name} in {file}")))? << 10)
}
