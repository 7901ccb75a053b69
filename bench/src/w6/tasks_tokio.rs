//! tokio's tasks, on its scheduler for one thread.

use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Builder;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::{spawn, yield_now};

use super::tasks::{Times, per, rounds};

pub(super) fn measure(number: usize) -> Times {
    let pairs = number.div_ceil(2);
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    // As a task: what `block_on` is given itself is polled in another way.
    runtime.block_on(async move {
        let all = spawn(async move {
            [
                yields(number).await,
                spawns(number).await,
                parks(pairs).await,
                channels(pairs).await,
                mutexes(pairs).await,
            ]
        });
        all.await.expect("it does not panic")
    })
}

/// Nanoseconds until `number` of what `make` makes are over.
async fn time<F>(number: usize, operations: usize, make: impl Fn() -> F) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let begin = Instant::now();
    let all: Vec<_> = (0..number).map(|_| spawn(make())).collect();
    for one in all {
        one.await.expect("it does not panic");
    }
    per(begin.elapsed(), operations)
}

async fn yields(number: usize) -> f64 {
    let rounds = rounds(number);
    let body = move || async move {
        for _ in 0..rounds {
            yield_now().await;
        }
    };
    time(number, rounds * number, body).await
}

async fn spawns(number: usize) -> f64 {
    let rounds = rounds(number);
    let begin = Instant::now();
    let mut all = Vec::with_capacity(number);
    for _ in 0..rounds {
        all.extend((0..number).map(|_| spawn(async {})));
        for one in all.drain(..) {
            one.await.expect("it does not panic");
        }
    }
    per(begin.elapsed(), rounds * number)
}

async fn parks(pairs: usize) -> f64 {
    let rounds = rounds(2 * pairs);
    let pair = move || async move {
        let ends = Arc::new([Notify::new(), Notify::new()]);
        let other = {
            let ends = Arc::clone(&ends);
            spawn(async move {
                for _ in 0..rounds {
                    ends[1].notified().await;
                    ends[0].notify_one();
                }
            })
        };
        for _ in 0..rounds {
            ends[1].notify_one();
            ends[0].notified().await;
        }
        other.await.expect("it does not panic");
    };
    time(pairs, 2 * rounds * pairs, pair).await
}

async fn channels(pairs: usize) -> f64 {
    let rounds = rounds(2 * pairs);
    let pair = move || async move {
        let (there, mut inbox) = mpsc::channel(1);
        let (back, mut answers) = mpsc::channel(1);
        let other = spawn(async move {
            while let Some(n) = inbox.recv().await {
                back.send(n).await.expect("the other is there");
            }
        });
        for n in 0..rounds {
            there.send(n).await.expect("the other is there");
            assert_eq!(answers.recv().await, Some(n));
        }
        drop(there);
        other.await.expect("it does not panic");
    };
    time(pairs, 2 * rounds * pairs, pair).await
}

async fn mutexes(pairs: usize) -> f64 {
    let rounds = rounds(2 * pairs);
    let pair = move || async move {
        let mutex = Arc::new(Mutex::new(0));
        let turns = || {
            let mutex = Arc::clone(&mutex);
            spawn(async move {
                for _ in 0..rounds {
                    let mut count = mutex.lock().await;
                    yield_now().await;
                    *count += 1;
                }
            })
        };
        for one in [turns(), turns()] {
            one.await.expect("it does not panic");
        }
        assert_eq!(*mutex.lock().await, 2 * rounds);
    };
    time(pairs, 2 * rounds * pairs, pair).await
}
