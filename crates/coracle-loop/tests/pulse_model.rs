//! The sleep of a watcher (`pulse.rs`), in every interleaving with up to two pre-emptions.
//!
//! This is the protocol and nothing else, with loom's atomics and lock in the place of std's: a watcher says first
//! that it sleeps and looks at the loops after that; a loop says first that it has left its wait and looks for
//! sleeping watchers after that. A loop that is held from then on would never be noticed by a watcher that sleeps.
//!
//! The last tests turn the order around, and must fail: a model that cannot find the known mistakes would prove
//! nothing.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// What loops and watchers share: two loops, and the bed of one watcher.
struct Process {
    words: [AtomicUsize; 2],
    sleeping: AtomicBool,
    /// The watcher was woken; and loops that have not come to where they are held.
    bed: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Process {
    fn new() -> Arc<Process> {
        Arc::new(Process {
            words: [AtomicUsize::new(0), AtomicUsize::new(0)],
            sleeping: AtomicBool::new(false),
            bed: Mutex::new((false, 2)),
            changed: Condvar::new(),
        })
    }

    /// `Heart::leave_wait`. loom knows `SeqCst` of fences only, so they are spelled out.
    fn leave_wait(&self, index: usize) {
        self.say_left(index);
        fence(Ordering::SeqCst);
        self.wake_watchers();
    }

    fn say_left(&self, index: usize) {
        self.words[index].swap(1, Ordering::AcqRel);
    }

    fn wake_watchers(&self) {
        if self.sleeping.load(Ordering::Acquire) && self.sleeping.swap(false, Ordering::AcqRel) {
            self.bed.lock().unwrap().0 = true;
            self.changed.notify_one();
        }
    }

    /// It is held from now on.
    fn hold(&self) {
        self.bed.lock().unwrap().1 -= 1;
        self.changed.notify_one();
    }

    /// `Watcher::may_sleep`.
    fn may_sleep(&self) -> bool {
        self.say_asleep();
        fence(Ordering::SeqCst);
        self.all_wait()
    }

    fn say_asleep(&self) {
        self.sleeping.swap(true, Ordering::AcqRel);
    }

    fn all_wait(&self) -> bool {
        self.words.iter().all(|word| word.load(Ordering::Acquire) == 0)
    }

    fn sleep(&self) {
        let mut bed = self.bed.lock().unwrap();
        while !bed.0 {
            assert!(bed.1 > 0, "a loop is held, and the watcher sleeps for ever");
            bed = self.changed.wait(bed).unwrap();
        }
        bed.0 = false;
    }
}

/// Two loops that are held as soon as they have left their wait, and a watcher, which must notice.
fn check(leave: fn(&Process, usize), may_sleep: fn(&Process) -> bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let process = Process::new();
        let loops: Vec<_> = (0..2)
            .map(|index| {
                let process = Arc::clone(&process);
                thread::spawn(move || {
                    leave(&process, index);
                    process.hold();
                })
            })
            .collect();
        while may_sleep(&process) {
            process.sleep();
        }
        for one in loops {
            one.join().unwrap();
        }
    });
}

#[test]
fn s43_watcher_is_woken_by_the_first_loop_that_leaves_its_wait() {
    check(Process::leave_wait, Process::may_sleep);
}

#[test]
#[should_panic(expected = "the watcher sleeps for ever")]
fn looking_before_saying_so_is_found() {
    check(Process::leave_wait, |process| {
        let all_wait = process.all_wait();
        process.say_asleep();
        all_wait
    });
}

#[test]
#[should_panic(expected = "the watcher sleeps for ever")]
fn leaving_after_looking_is_found() {
    check(
        |process, index| {
            process.wake_watchers();
            process.say_left(index);
        },
        Process::may_sleep,
    );
}
