//! crossbeam-channel and threads: a bounded channel, whose array is its fast flavour.

use std::thread::{self, JoinHandle};

use crossbeam_channel::{Sender, bounded};

use super::Pool;
use super::window::JOBS_IN_FLIGHT;

type Job = Box<dyn FnOnce() + Send>;

pub(super) struct Channel {
    /// Taken at the end: workers leave when nobody can send any more.
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool for Channel {
    fn new(threads: usize) -> Channel {
        let (jobs, receiver) = bounded::<Job>(JOBS_IN_FLIGHT);
        let threads = (0..threads)
            .map(|_| {
                let receiver = receiver.clone();
                thread::spawn(move || receiver.iter().for_each(|job| job()))
            })
            .collect();
        Channel { jobs: Some(jobs), threads }
    }

    fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let jobs = self.jobs.as_ref().expect("taken only at the end");
        jobs.send(Box::new(job)).expect("workers live until the end");
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            thread.join().expect("jobs do not panic");
        }
    }
}
