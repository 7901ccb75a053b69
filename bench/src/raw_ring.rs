//! What the raw servers on io_uring have in common: a ring with all that makes it fast, and what goes to it.
#![allow(unsafe_code)]

use std::io;

use io_uring::squeue::SubmissionQueue;
use io_uring::{IoUring, Submitter, squeue};

/// Submissions that fit one turn; a longer turn submits in between.
const SUBMISSIONS: u32 = 4096;
/// Completions the kernel can post before it has to set some aside.
const COMPLETIONS: u32 = 32 * 1024;

/// Opens a ring for one thread, in which completions run when that thread asks for them.
///
/// # Errors
/// The kernel has no io_uring, or is older than 6.6.
pub fn open() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .setup_no_sqarray()
        .setup_cqsize(COMPLETIONS)
        .build(SUBMISSIONS)
}

/// What goes to the kernel: with the call that waits for the next completions.
pub struct Submissions<'ring> {
    submitter: Submitter<'ring>,
    queue: SubmissionQueue<'ring>,
}

impl<'ring> Submissions<'ring> {
    /// Those of a ring.
    pub fn new(submitter: Submitter<'ring>, queue: SubmissionQueue<'ring>) -> Submissions<'ring> {
        Submissions { submitter, queue }
    }

    /// Adds one.
    ///
    /// # Safety
    /// What it points at stays where it is, and is not touched, until its last completion.
    #[inline]
    pub unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: who calls has promised it.
        while unsafe { self.queue.push(entry) }.is_err() {
            self.make_room();
        }
    }

    #[cold]
    fn make_room(&mut self) {
        self.queue.sync();
        self.submitter.submit().expect("io_uring takes well-formed entries");
        self.queue.sync();
    }

    /// Hands them over, and waits for a completion.
    ///
    /// # Errors
    /// The kernel does not take them.
    #[inline]
    pub fn submit_and_wait(&mut self) -> io::Result<()> {
        self.queue.sync();
        let result = self.submitter.submit_and_wait(1);
        self.queue.sync();
        match result {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}
