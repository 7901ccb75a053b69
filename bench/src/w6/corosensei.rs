//! corosensei alone: what the switch costs without anything around it. Stacks are kept in a vector.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::{Coroutines, STACK_BYTES};

pub(super) struct Bare {
    stacks: Vec<DefaultStack>,
}

impl Bare {
    #[inline]
    fn stack(&mut self) -> DefaultStack {
        self.stacks.pop().unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("a stack"))
    }
}

impl Coroutines for Bare {
    type Endless = Coroutine<u64, u64, u64>;
    type Short = Coroutine<u64, u64, u64>;

    fn new() -> Bare {
        Bare { stacks: Vec::new() }
    }

    fn endless(&mut self) -> Coroutine<u64, u64, u64> {
        Coroutine::with_stack(self.stack(), |yielder: &Yielder<u64, u64>, mut sum| {
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
        Coroutine::with_stack(self.stack(), |_: &Yielder<u64, u64>, number| number + 1)
    }

    #[inline]
    fn run(coroutine: &mut Coroutine<u64, u64, u64>, number: u64) -> u64 {
        Bare::resume(coroutine, number)
    }

    #[inline]
    fn give_back(&mut self, coroutine: Coroutine<u64, u64, u64>) {
        self.stacks.push(coroutine.into_stack());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn coroutines_count_and_end() {
        super::super::check::<super::Bare>();
    }
}
