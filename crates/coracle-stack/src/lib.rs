//! Guarded stacks by the million, and the jump between them. Knows no I/O and no scheduler.
//!
//! A [`Pool`] hands out stacks; a [`Coroutine`] is a function on one of them, which can be left in the middle and
//! entered again. Who is resumed when, and what a coroutine waits for, is the business of those above.
//!
//! ```text
//!   thread's stack           stack A                     stack B
//!  ┌──────────────┐         ┌──────────────┐            ┌──────────────┐   high addresses
//!  │ main         │         │ body of A    │            │ body of B    │
//!  │ your loop    │ resume  │ …            │            │ …            │
//!  │   resume A ──┼────────►│ …            │            │ …            │
//!  │          ◄───┼─────────┤ suspend      │            │ suspend      │
//!  │   resume B ──┼─────────┼──────────────┼───────────►│ …            │
//!  │          ◄───┼─────────┼──────────────┼────────────┤ suspend      │
//!  │              │         │              │            │              │
//!  │              │         │ (no memory   │            │ (no memory   │
//!  │              │         │  so far)     │            │  so far)     │
//!  └──────────────┘         ├──────────────┤            ├──────────────┤
//!                           │▒▒▒ guard ▒▒▒▒│            │▒▒▒ guard ▒▒▒▒│   low addresses
//!                           └──────────────┘            └──────────────┘
//! ```
//!
//! ```
//! use coracle_stack::{Coroutine, CoroutineResult, Pool, StackSize, Yielder};
//!
//! let pool = Pool::new()?;
//! let mut squares = Coroutine::new(pool.take(StackSize::SMALL)?, |yielder: &Yielder<(), u32>, ()| {
//!     for n in 1..=3 {
//!         yielder.suspend(n * n);
//!     }
//! });
//! let mut seen = Vec::new();
//! while let CoroutineResult::Yield(square) = squares.resume(()) {
//!     seen.push(square);
//! }
//! assert_eq!(seen, [1, 4, 9]);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What a stack costs
//! Address space, of which there is plenty; a page of memory (4 KiB) from the first use on, and one for
//! every further 4 KiB it grows; and its part of the page tables: 2 bytes for each KiB of stack and guard,
//! which is 520 at the default [size](StackSize) and 264 at the smallest. What is known of a [`Seated`] coroutine
//! is on that first page as well, at the top of its stack. Stacks lie side by side in slabs, 252 to a mapping,
//! because a process may only have 65,530 mappings. A stack that was used before is there in nanoseconds (W6),
//! a new one in microseconds, which the kernel takes for its first page. After a peak, [`Pool::trim`] gives
//! memory back.
//!
//! # Overflow
//! Below each stack is a [guard](Guard) of 64 KiB. Whoever runs into it ends the process, with a message
//! that has the [name](Stack::set_name) and the size:
//!
//! ```text
//! coroutine 'resolver' has overflowed its stack of 192 KiB: give it a larger one by `Builder::stack_size`, or …
//! ```
//!
//! It is not a panic: destructors do not run, since there is no stack to run them on. A frame of C code
//! that is larger than the guard can step over it; Rust's cannot, as the compiler has it touch every page.
//!
//! # Whose a yielder is
//! A [`Yielder`] is used on its coroutine's own stack, or on one that was taken from there by [`on_stack`], and
//! only while the coroutine runs. Nobody watches over that here: whoever runs functions that borrow on other
//! stacks, as a scope with children does, has to. (coracle's generators do.)
//!
//! # What a coroutine must not do
//! - Move to another thread. The compiler sees to that.
//! - Suspend itself while another on the same thread relies on "the same thread" meaning "the same
//!   activity": inside a lock that the thread may take again, in a closure that keeps a borrowed pointer in
//!   a thread-local, while panicking. Nothing sees to that here; the crates above do what can be done.
//! - Suspend itself with the floating-point mode changed: the switch does not save it.
//!
//! # Tools
//! valgrind is told of every stack, and AddressSanitizer of every switch, in builds that have it. Backtraces and
//! debuggers see through a coroutine down to the one who resumed it.

mod guard;
mod label;
mod mapping;
mod overflow;
mod pool;
mod seat;
mod size;
mod switch;

pub use corosensei::{CoroutineResult, Yielder};
pub use guard::Guard;
pub use label::stack_around;
pub use pool::{Pool, Settings, Stack, Stats};
pub use seat::Seated;
pub use size::{LIMIT_STACK_BYTES, StackSize};
pub use switch::{Coroutine, on_stack};
