//! coracle's own: guarded stacks of a pool, and a note of who is running.

use coracle_stack::{Coroutine, CoroutineResult, Pool, StackSize, Yielder};

use super::{Coroutines, STACK_BYTES};

pub(super) struct Pooled {
    pool: Pool,
    size: StackSize,
}

impl Coroutines for Pooled {
    type Endless = Coroutine<u64, u64, u64>;
    type Short = Coroutine<u64, u64, u64>;

    fn new() -> Pooled {
        let size = StackSize::at_least(STACK_BYTES).expect("a size of stacks");
        Pooled { pool: Pool::new().expect("a pool"), size }
    }

    fn endless(&mut self) -> Coroutine<u64, u64, u64> {
        let stack = self.pool.take(self.size).expect("a stack");
        Coroutine::new(stack, |yielder: &Yielder<u64, u64>, mut sum| {
            loop {
                sum += yielder.suspend(sum);
            }
        })
    }

    #[inline]
    fn resume(coroutine: &mut Coroutine<u64, u64, u64>, number: u64) -> u64 {
        let (CoroutineResult::Yield(sum) | CoroutineResult::Return(sum)) = coroutine.resume(number);
        sum
    }

    #[inline]
    fn create(&mut self) -> Coroutine<u64, u64, u64> {
        Coroutine::new(
            self.pool.take(self.size).expect("a stack"),
            |_: &Yielder<u64, u64>, number| number + 1,
        )
    }

    #[inline]
    fn run(coroutine: &mut Coroutine<u64, u64, u64>, number: u64) -> u64 {
        Pooled::resume(coroutine, number)
    }

    #[inline]
    fn give_back(&mut self, coroutine: Coroutine<u64, u64, u64>) {
        drop(coroutine);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn coroutines_count_and_end() {
        super::super::check::<super::Pooled>();
    }
}
