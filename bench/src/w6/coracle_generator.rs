//! coracle's `Generator`: the same with a status, an error for who resumes itself, and a pool per thread.

use coracle_coro::Generator;
use coracle_coro::generator::{Builder, Resumed};

use super::{Coroutines, STACK_BYTES};

pub(super) struct OwnGenerators;

#[inline]
fn value(resumed: Resumed<u64, u64>) -> u64 {
    let (Resumed::Yielded(number) | Resumed::Complete(number)) = resumed;
    number
}

impl Coroutines for OwnGenerators {
    type Endless = Generator<u64, u64, u64>;
    type Short = Generator<u64, u64, u64>;

    fn new() -> OwnGenerators {
        OwnGenerators
    }

    fn endless(&mut self) -> Generator<u64, u64, u64> {
        let generator = Builder::new().stack_size(STACK_BYTES).build(|out, mut sum: u64| {
            loop {
                sum += out.suspend(sum);
            }
        });
        generator.expect("a stack")
    }

    #[inline]
    fn resume(generator: &mut Generator<u64, u64, u64>, number: u64) -> u64 {
        value(generator.resume(number).expect("it goes on for ever"))
    }

    #[inline]
    fn create(&mut self) -> Generator<u64, u64, u64> {
        let builder = Builder::new().stack_size(STACK_BYTES);
        builder.build(|_, number: u64| number + 1).expect("a stack")
    }

    #[inline]
    fn run(generator: &mut Generator<u64, u64, u64>, number: u64) -> u64 {
        value(generator.resume(number).expect("it is new"))
    }

    #[inline]
    fn give_back(&mut self, generator: Generator<u64, u64, u64>) {
        drop(generator);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn coroutines_count_and_end() {
        super::super::check::<super::OwnGenerators>();
    }
}
