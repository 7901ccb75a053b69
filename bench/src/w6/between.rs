//! Channels between two threads, each on a core of its own: coroutines of two loops, tasks of two runtimes, and
//! plain threads.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

#[cfg(feature = "coracle")]
use coracle_loop::{Loop, demux::Backend};

use super::tasks::per;
use crate::affinity::pin_this_thread;
use crate::inside::{Candidate, Operation, Work};

/// The operations, in the order of [`Times`].
const OPERATIONS: [Operation; 3] = [
    Operation {
        name: "one after the other",
        meaning: "A message goes there, and another comes back. Per message.",
    },
    Operation {
        name: "stream",
        meaning: "One sends as fast as it can, the other receives as fast as it can. Per message.",
    },
    Operation {
        name: "wake",
        meaning: "From before a message is sent to who has waited for it for 200 µs, until it has it. The \
                  median of a thousand.",
    },
];

type Times = [f64; OPERATIONS.len()];

/// The cores of the two threads.
static CORES: OnceLock<[usize; 2]> = OnceLock::new();

const EXCHANGES: usize = 20_000;
const MESSAGES: usize = 1_000_000;
/// With a channel that holds one message or none, each of them may be a wait.
const SLOW_MESSAGES: usize = 50_000;
const WAKES: usize = 1000;
const PAUSE: Duration = Duration::from_micros(200);

/// Two ends of a channel, as a candidate has them.
trait Channel: 'static {
    type Sender<T: Send + 'static>: Send + 'static;
    type Receiver<T: Send + 'static>: Send + 'static;

    fn channel<T: Send + 'static>(limit: usize) -> (Self::Sender<T>, Self::Receiver<T>);
    fn send<T: Send + 'static>(sender: &Self::Sender<T>, message: T);
    fn receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> T;
    /// Runs `f` on this thread, where it can wait.
    fn run<T: 'static>(f: impl FnOnce() -> T + 'static) -> T;
}

/// Runs both, on a core each; returns what the second does.
fn both<C: Channel, T: Send + 'static>(
    one: impl FnOnce() + Send + 'static,
    other: impl FnOnce() -> T + Send + 'static,
) -> T {
    let cores = *CORES.get().unwrap_or(&[0, 1]);
    let one = thread::spawn(move || {
        pin_this_thread(cores[1]).expect("there are two cores");
        C::run(one);
    });
    let other = thread::spawn(move || {
        pin_this_thread(cores[0]).expect("there are two cores");
        C::run(other)
    });
    one.join().expect("it does not panic");
    other.join().expect("it does not panic")
}

fn measure<C: Channel>(limit: usize) -> Times {
    [exchange::<C>(limit), stream::<C>(limit), wake::<C>(limit)]
}

fn exchange<C: Channel>(limit: usize) -> f64 {
    let (there, mut inbox) = C::channel(limit);
    let (back, mut answers) = C::channel(limit);
    let echo = move || {
        for _ in 0..EXCHANGES {
            let n: usize = C::receive(&mut inbox);
            C::send(&back, n);
        }
    };
    let time = both::<C, _>(echo, move || {
        let begin = Instant::now();
        for n in 0..EXCHANGES {
            C::send(&there, n);
            assert_eq!(C::receive(&mut answers), n);
        }
        begin.elapsed()
    });
    per(time, 2 * EXCHANGES)
}

fn stream<C: Channel>(limit: usize) -> f64 {
    let messages = if limit > 1 { MESSAGES } else { SLOW_MESSAGES };
    let (sender, mut receiver) = C::channel(limit);
    let time = both::<C, _>(
        move || (0..messages).for_each(|n| C::send(&sender, n)),
        move || {
            let begin = Instant::now();
            (0..messages).for_each(|n| assert_eq!(C::receive(&mut receiver), n));
            begin.elapsed()
        },
    );
    per(time, messages)
}

fn wake<C: Channel>(limit: usize) -> f64 {
    let (sender, mut receiver) = C::channel(limit);
    let send = move || {
        for _ in 0..WAKES {
            let begin = Instant::now();
            while begin.elapsed() < PAUSE {
                std::hint::spin_loop();
            }
            C::send(&sender, Instant::now());
        }
    };
    let mut times = both::<C, _>(send, move || {
        (0..WAKES).map(|_| C::receive(&mut receiver).elapsed()).collect::<Vec<_>>()
    });
    // Not the mean: one who is held up for a tick of the clock holds up twenty messages.
    let (_, median, _) = times.select_nth_unstable(WAKES / 2);
    median.as_nanos() as f64
}

/// coracle's, between coroutines of two loops.
#[cfg(feature = "coracle")]
struct Loops<const URING: bool>;

#[cfg(feature = "coracle")]
impl<const URING: bool> Channel for Loops<URING> {
    type Sender<T: Send + 'static> = coracle_coro::sync::Sender<T>;
    type Receiver<T: Send + 'static> = coracle_coro::sync::Receiver<T>;

    fn channel<T: Send + 'static>(limit: usize) -> (Self::Sender<T>, Self::Receiver<T>) {
        coracle_coro::sync::channel(limit)
    }

    #[inline]
    fn send<T: Send + 'static>(sender: &Self::Sender<T>, message: T) {
        assert!(sender.send(message).is_ok(), "the other is there");
    }

    #[inline]
    fn receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> T {
        receiver.recv().expect("the other is there")
    }

    fn run<T: 'static>(f: impl FnOnce() -> T + 'static) -> T {
        let backend = if URING { Backend::Uring } else { Backend::Epoll };
        let lp = Loop::builder().backend(backend).build().expect("a loop");
        coracle_coro::run_on(&lp, || Ok(f())).expect("a loop")
    }
}

/// The same, between plain threads.
#[cfg(feature = "coracle")]
struct OwnThreads;

#[cfg(feature = "coracle")]
impl Channel for OwnThreads {
    type Sender<T: Send + 'static> = coracle_coro::sync::Sender<T>;
    type Receiver<T: Send + 'static> = coracle_coro::sync::Receiver<T>;

    fn channel<T: Send + 'static>(limit: usize) -> (Self::Sender<T>, Self::Receiver<T>) {
        coracle_coro::sync::channel(limit)
    }

    #[inline]
    fn send<T: Send + 'static>(sender: &Self::Sender<T>, message: T) {
        assert!(sender.send(message).is_ok(), "the other is there");
    }

    #[inline]
    fn receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> T {
        receiver.recv().expect("the other is there")
    }

    fn run<T: 'static>(f: impl FnOnce() -> T + 'static) -> T {
        f()
    }
}

/// crossbeam's, between plain threads.
struct Crossbeam;

impl Channel for Crossbeam {
    type Sender<T: Send + 'static> = crossbeam_channel::Sender<T>;
    type Receiver<T: Send + 'static> = crossbeam_channel::Receiver<T>;

    fn channel<T: Send + 'static>(limit: usize) -> (Self::Sender<T>, Self::Receiver<T>) {
        crossbeam_channel::bounded(limit)
    }

    #[inline]
    fn send<T: Send + 'static>(sender: &Self::Sender<T>, message: T) {
        assert!(sender.send(message).is_ok(), "the other is there");
    }

    #[inline]
    fn receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> T {
        receiver.recv().expect("the other is there")
    }

    fn run<T: 'static>(f: impl FnOnce() -> T + 'static) -> T {
        f()
    }
}

const CANDIDATES: &[Candidate<{ OPERATIONS.len() }>] = &[
    #[cfg(feature = "coracle")]
    Candidate { name: "coracle, two loops on io_uring", measure: measure::<Loops<true>> },
    #[cfg(feature = "coracle")]
    Candidate { name: "coracle, two loops on epoll", measure: measure::<Loops<false>> },
    #[cfg(feature = "coracle")]
    Candidate { name: "coracle, two threads", measure: measure::<OwnThreads> },
    Candidate { name: "crossbeam-channel, two threads", measure: measure::<Crossbeam> },
];

/// What is compared, on these cores.
pub(super) fn work(cores: [usize; 2]) -> Work<'static, { OPERATIONS.len() }> {
    CORES.get_or_init(|| cores);
    Work {
        name: "w6-between",
        title: "W6: channels between two threads",
        introduction: "Nanoseconds per operation, minimum / median of the repetitions, by what the channel holds \
                       at most. Two threads, each on a core of its own.",
        sizes_of: "limit",
        unit: "ns",
        decimals: 0,
        operations: &OPERATIONS,
        candidates: CANDIDATES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive() {
        for limit in [0, 1, 128] {
            assert!(exchange::<Crossbeam>(limit) > 0.0);
            #[cfg(feature = "coracle")]
            assert!(exchange::<Loops<false>>(limit) > 0.0);
        }
    }
}
