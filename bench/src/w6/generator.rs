//! generator-rs, which may is built on. A generator that has ended is given other code, and so keeps its stack.

use generator::{Generator, Gn, Scope};

use super::{Coroutines, STACK_BYTES};

pub(super) struct Generators {
    ended: Vec<Generator<'static, u64, u64>>,
}

impl Coroutines for Generators {
    type Endless = Generator<'static, u64, u64>;
    type Short = Generator<'static, u64, u64>;

    fn new() -> Generators {
        Generators { ended: Vec::new() }
    }

    fn endless(&mut self) -> Generator<'static, u64, u64> {
        Gn::new_scoped_opt(
            STACK_BYTES / size_of::<usize>(),
            |mut scope: Scope<'_, '_, u64, u64>| {
                let mut sum = scope.get_yield().unwrap_or(0);
                loop {
                    sum += scope.yield_(sum).unwrap_or(0);
                }
            },
        )
    }

    #[inline]
    fn resume(generator: &mut Generator<'static, u64, u64>, number: u64) -> u64 {
        generator.raw_send(Some(number)).expect("it goes on for ever")
    }

    #[inline]
    fn create(&mut self) -> Generator<'static, u64, u64> {
        let code =
            |mut scope: Scope<'_, 'static, u64, u64>| scope.get_yield().expect("a number") + 1;
        match self.ended.pop() {
            Some(mut generator) => {
                generator.scoped_init(code);
                generator
            }
            None => Gn::new_scoped_opt(STACK_BYTES / size_of::<usize>(), code),
        }
    }

    #[inline]
    fn run(generator: &mut Generator<'static, u64, u64>, number: u64) -> u64 {
        generator.raw_send(Some(number)).expect("a number comes out")
    }

    #[inline]
    fn give_back(&mut self, generator: Generator<'static, u64, u64>) {
        self.ended.push(generator);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn coroutines_count_and_end() {
        super::super::check::<super::Generators>();
    }
}
