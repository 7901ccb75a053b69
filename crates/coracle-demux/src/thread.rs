//! Which thread is this, to the kernel?

/// The number that the kernel has for this thread.
///
/// ```
/// let here = coracle_demux::thread_id();
/// let there = std::thread::spawn(coracle_demux::thread_id).join().unwrap();
/// assert_ne!(here, there);
/// ```
pub fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}
