//! What libc's calls cost in a plain thread, in nanoseconds: the same source in a program without the hooks and in
//! one with them, so that the difference is theirs.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::io;
use std::time::Instant;

/// So many calls are timed together.
const CALLS: u32 = 2_000;
/// So many times.
const BATCHES: u32 = 400;

/// The calls, and what each of them is.
pub const CALLS_MEASURED: [(&str, &str); 5] = [
    ("read + write", "one byte through a pipe"),
    ("dup + close", "of the same pipe"),
    ("fcntl", "`F_GETFD`, which does next to nothing"),
    ("poll", "of nothing, without waiting"),
    ("getpid", "which is not hooked: the control"),
];

/// The least nanoseconds of each, over all batches.
///
/// # Errors
/// There is no pipe to be had.
pub fn measure() -> io::Result<Vec<f64>> {
    let mut pipe = [0; 2];
    // SAFETY: space for two descriptors.
    if unsafe { libc::pipe(pipe.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let [reader, writer] = pipe;
    let mut byte = 7_u8;
    // SAFETY: in all of them: a byte of ours, a list of nothing, and descriptors that are ours.
    let nanoseconds = unsafe {
        vec![
            least(|| {
                libc::write(writer, (&raw const byte).cast(), 1);
                libc::read(reader, (&raw mut byte).cast(), 1);
            }),
            least(|| {
                libc::close(libc::dup(reader));
            }),
            least(|| {
                black_box(libc::fcntl(reader, libc::F_GETFD));
            }),
            least(|| {
                black_box(libc::poll(std::ptr::null_mut(), 0, 0));
            }),
            least(|| {
                black_box(libc::getpid());
            }),
        ]
    };
    // SAFETY: ours, and not used any more.
    unsafe {
        libc::close(reader);
        libc::close(writer);
    }
    Ok(nanoseconds)
}

fn least(mut call: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..BATCHES {
        let begin = Instant::now();
        (0..CALLS).for_each(|_| call());
        least = least.min(begin.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    least
}
