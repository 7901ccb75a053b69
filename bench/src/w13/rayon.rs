//! rayon's `spawn`: per-thread queues with stealing; producers from outside go through its injector.

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::Pool;

pub(super) struct Rayon(ThreadPool);

impl Pool for Rayon {
    fn new(threads: usize) -> Rayon {
        Rayon(ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start"))
    }

    fn submit(&self, job: impl FnOnce() + Send + 'static) {
        self.0.spawn(job);
    }
}
