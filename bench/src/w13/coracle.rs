//! coracle's own worker pool.

use coracle_loop::pool::{self, PoolSettings};

use super::Pool;
use super::window::JOBS_IN_FLIGHT;

pub(super) struct Workers(pool::Pool);

impl Pool for Workers {
    fn new(threads: usize) -> Workers {
        let limit_queue = JOBS_IN_FLIGHT;
        let settings = PoolSettings { threads, limit_queue, ..PoolSettings::default() };
        Workers(pool::Pool::new(settings).expect("threads start"))
    }

    fn submit(&self, job: impl FnOnce() + Send + 'static) {
        // The producers' windows keep the queue below its limit.
        assert!(self.0.submit(Box::new(job)).is_ok(), "the pool refuses no job");
    }
}
