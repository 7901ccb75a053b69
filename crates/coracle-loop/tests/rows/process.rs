//! What a case does to a whole process: fork it, interrupt one of its threads.
#![allow(unsafe_code)]

use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Runs `child` in a copy of this process, which then ends without a word; gives its exit status.
///
/// Only in a process that a case has started for itself: of its threads, the copy has just this one.
pub(crate) fn fork(child: impl FnOnce() -> bool) -> i32 {
    assert!(crate::harness::is_child(), "the test runner itself must not be forked");
    // SAFETY: the other threads of this process sleep (the runner's, the watchdog's), and hold no lock
    // that the copy could need; glibc makes its allocator usable in the copy.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: ends the copy at once, without running what belongs to the original.
            unsafe { libc::_exit(if fine.unwrap_or(false) { 0 } else { 1 }) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: `status` is a place for the answer, and the copy is a child of ours.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }
        }
    }
}

/// Goes on in a copy of this process, too: the number of the copy, none there. As [`fork`].
pub(crate) fn fork_here() -> Option<i32> {
    assert!(crate::harness::is_child(), "the test runner itself must not be forked");
    // SAFETY: as in `fork`.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => None,
        pid => Some(pid),
    }
}

/// Ends a copy at once, without running what belongs to the original.
pub(crate) fn end_copy() -> ! {
    // SAFETY: it ends the process, and touches nothing.
    unsafe { libc::_exit(0) }
}

/// Waits for the end of a copy.
pub(crate) fn await_copy(pid: i32) {
    let mut status = 0;
    // SAFETY: `status` is a place for the answer, and the copy is a child of ours.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the copy failed");
}

/// Sends `signal` to the calling thread again and again, from another one, until that is dropped.
pub(crate) struct Interrupter {
    stop: std::sync::mpsc::Sender<()>,
    thread: Option<JoinHandle<u32>>,
}

impl Interrupter {
    pub(crate) fn start(signal: i32, every: Duration) -> Interrupter {
        let (stop, stopped) = std::sync::mpsc::channel();
        // SAFETY: names the calling thread.
        let target = unsafe { libc::pthread_self() };
        let thread = thread::spawn(move || {
            let mut sent = 0;
            while stopped.recv_timeout(every) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                // SAFETY: the target is joined by nobody before `end` has joined this thread.
                assert_eq!(unsafe { libc::pthread_kill(target, signal) }, 0);
                sent += 1;
            }
            sent
        });
        Interrupter { stop, thread: Some(thread) }
    }

    /// How often it has interrupted.
    pub(crate) fn end(mut self) -> u32 {
        self.finish()
    }

    fn finish(&mut self) -> u32 {
        let _ = self.stop.send(());
        self.thread.take().map_or(0, |thread| thread.join().expect("it only sends signals"))
    }
}

impl Drop for Interrupter {
    fn drop(&mut self) {
        self.finish();
    }
}
