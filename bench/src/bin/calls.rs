//! `calls`: what libc's calls cost in this program, which has no hooks. Prints a list of numbers.

use std::io;

fn main() -> io::Result<()> {
    println!("{}", serde_json::to_string(&harness::calls::measure()?)?);
    Ok(())
}
