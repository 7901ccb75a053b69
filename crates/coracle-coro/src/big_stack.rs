//! A large stack for the length of one call.

use crate::current;
use coracle_stack::{Pool, StackSize, on_stack};
use std::io;

/// Runs `f` on a stack of at least `bytes`, and comes back: for deep recursion in a coroutine whose own stack
/// is small.
///
/// It stays the same coroutine, which may wait in there. A panic leaves this call. In a plain thread it works
/// as well.
///
/// # Errors
/// If `bytes` is more than [`LIMIT_STACK_BYTES`](coracle_stack::LIMIT_STACK_BYTES), or there is no stack to
/// be had.
///
/// ```
/// fn depth(n: u32) -> u32 {
///     if n == 0 { 0 } else { std::hint::black_box(depth(n - 1)) + 1 }
/// }
///
/// coracle_coro::run(|| {
///     let deep = coracle_coro::spawn(|| coracle_coro::on_big_stack(64 << 20, || depth(100_000)));
///     assert_eq!(deep.join().unwrap()?, 100_000);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn on_big_stack<R>(bytes: usize, f: impl FnOnce() -> R) -> io::Result<R> {
    let size = StackSize::at_least(bytes)?;
    let (pool, name) = current::with(|frame| match frame {
        Some(frame) => {
            Ok::<_, io::Error>((frame.scheduler().pool()?.clone(), frame.sleeper.name.clone()))
        }
        None => Ok((Pool::new()?, None)),
    })?;
    let mut stack = pool.take(size)?;
    if let Some(name) = name {
        stack.set_name(&*name);
    }
    Ok(on_stack(&mut stack, f))
}
