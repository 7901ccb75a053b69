//! One queue under one lock, and a condition variable that is only touched when somebody sleeps.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use super::Pool;

type Job = Box<dyn FnOnce() + Send>;

pub(super) struct Locked {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    sleeping: usize,
    ended: bool,
}

impl Pool for Locked {
    fn new(threads: usize) -> Locked {
        let shared = Arc::new(Shared::default());
        let threads = (0..threads)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.run_jobs())
            })
            .collect();
        Locked { shared, threads }
    }

    fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let job = Box::new(job);
        let mut state = self.shared.state.lock().expect("jobs do not panic");
        state.jobs.push_back(job);
        let wake = state.sleeping > 0;
        drop(state);
        if wake {
            self.shared.work.notify_one();
        }
    }
}

impl Shared {
    fn run_jobs(&self) {
        let mut state = self.state.lock().expect("jobs do not panic");
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock().expect("jobs do not panic");
            } else if state.ended {
                return;
            } else {
                state.sleeping += 1;
                state = self.work.wait(state).expect("jobs do not panic");
                state.sleeping -= 1;
            }
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.shared.state.lock().expect("jobs do not panic").ended = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().expect("jobs do not panic");
        }
    }
}
