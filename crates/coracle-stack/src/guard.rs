//! Guard regions: addresses below a stack where every access is a fault.
//!
//! There are two ways to have one.
//!
//! | | since | a guard costs | a million of them |
//! |---|---|---|---|
//! | `MADV_GUARD_INSTALL` | Linux 6.13 | a mark in the page table, which is there anyway | fit |
//! | `mprotect(PROT_NONE)` | ever | two mappings, of which a process has 65,530 | do not |
//!
//! A process that has used up its mappings can map nothing more: not a stack, not a thread, not the memory
//! to say so. So guards of the second kind are counted, and refused while there are mappings left for
//! everybody else.
#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How large a guard region is. Rust code touches every page of a frame that is larger than a page; C code
/// does not, and a frame of 100 KB has been seen to step over a single page into the next stack.
pub(crate) const GUARD_BYTES: usize = 64 << 10;

/// How many guards are installed by one system call.
pub(crate) const GUARDS_PER_CALL: usize = 64;

/// Mappings that guards leave to the rest of the process.
const MAPPINGS_LEFT: usize = 16 << 10;

/// What Linux allows a process, where it cannot be asked.
const MAPPINGS_USUAL: usize = 65_530;

/// `MADV_GUARD_INSTALL`, which rustix does not know.
const INSTALL: usize = 102;

/// `PIDFD_SELF_THREAD_GROUP` (Linux 6.14): this process, without a descriptor for it.
const THIS_PROCESS: isize = -10_001;

/// How guard regions are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// By `madvise(MADV_GUARD_INSTALL)`: a million stacks in a few mappings. Linux 6.13.
    Install,
    /// By `mprotect`: two mappings each, so that some 24,000 stacks fit the usual limit.
    Protect,
}

impl Guard {
    /// The best that this kernel has. If it is the second, the log says what is lost, once.
    pub(crate) fn best() -> Guard {
        static TRIED: OnceLock<io::Result<()>> = OnceLock::new();
        static WARNED: AtomicBool = AtomicBool::new(false);
        let Err(error) = TRIED.get_or_init(try_install) else { return Guard::Install };
        // Not inside of `get_or_init`: whoever gets the warning may want a pool.
        if !WARNED.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "cannot use MADV_GUARD_INSTALL: {error} (it needs Linux 6.13, and memory that is not locked); \
                 guarding stacks by mprotect, at most {} of them (vm.max_map_count={})",
                limit_protected(),
                mappings()
            );
        }
        Guard::Protect
    }
}

/// Asks the kernel for one guard, and gives it back.
fn try_install() -> io::Result<()> {
    // SAFETY: a fresh anonymous mapping, guarded and unmapped before anybody else sees it.
    unsafe {
        let place = mmap_anonymous(null_mut(), GUARD_BYTES, ProtFlags::READ, MapFlags::PRIVATE)?;
        let result = advise(std::iter::once(place));
        munmap(place, GUARD_BYTES)?;
        result
    }
}

/// How many guards there are by `mprotect`, in the whole process.
static PROTECTED: AtomicUsize = AtomicUsize::new(0);

/// Makes guards of [`GUARD_BYTES`] at `first`, and at every `stride` bytes after it, `count` in all.
///
/// If the kernel does not know the first kind, the second is used and `guard` changed. Returns how many are by
/// `mprotect`: they are counted until they are [forgotten](forget). On an error some of the guards may be there,
/// which does no harm.
///
/// # Safety
/// The guards must lie in a private anonymous mapping of the caller's, and nobody may use what is in them.
pub(crate) unsafe fn install(
    guard: &mut Guard,
    first: *mut c_void,
    stride: usize,
    count: usize,
) -> io::Result<usize> {
    let places = (0..count).map(|number| first.wrapping_byte_add(number * stride));
    if *guard == Guard::Install {
        // SAFETY: what the caller promises.
        match unsafe { advise(places.clone()) } {
            // EINVAL: an older kernel, or memory that is locked (mlockall), which Linux refuses to guard.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                *guard = Guard::Protect;
            }
            result => return result.map(|()| 0),
        }
    }
    reserve(count)?;
    for place in places {
        // SAFETY: what the caller promises.
        let result = unsafe { mprotect(place, GUARD_BYTES, MprotectFlags::empty()) };
        result.inspect_err(|_| forget(count))?;
    }
    Ok(count)
}

/// Tells that so many guards by `mprotect` are gone.
pub(crate) fn forget(count: usize) {
    PROTECTED.fetch_sub(count, Ordering::Relaxed);
}

/// `MADV_GUARD_INSTALL` at all places: by one system call, or by one for each.
///
/// # Safety
/// As of [`install`].
unsafe fn advise(places: impl ExactSizeIterator<Item = *mut c_void> + Clone) -> io::Result<()> {
    // SAFETY: what the caller promises; the kernel is told addresses, and reads and writes nothing there.
    let done = unsafe { advise_together(places.clone()) };
    for place in places.skip(done / GUARD_BYTES) {
        // SAFETY: as above.
        let result =
            unsafe { sc::syscall3(sc::nr::MADVISE, place as usize, GUARD_BYTES, INSTALL) as isize };
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result as i32));
        }
    }
    Ok(())
}

/// How many bytes, from the first place on, were guarded by process_madvise(2). A kernel that does not know the
/// call, or this process without a descriptor, guards none.
///
/// # Safety
/// As of [`install`].
unsafe fn advise_together(places: impl ExactSizeIterator<Item = *mut c_void>) -> usize {
    assert!(places.len() <= GUARDS_PER_CALL, "a batch of guards is bounded");
    let count = places.len();
    let mut vectors = [libc::iovec { iov_base: null_mut(), iov_len: 0 }; GUARDS_PER_CALL];
    for (vector, place) in vectors.iter_mut().zip(places) {
        *vector = libc::iovec { iov_base: place, iov_len: GUARD_BYTES };
    }
    // SAFETY: there are `count` vectors, which the kernel reads; the rest is what the caller promises.
    let result = unsafe {
        sc::syscall5(
            sc::nr::PROCESS_MADVISE,
            THIS_PROCESS as usize,
            vectors.as_ptr() as usize,
            count,
            INSTALL,
            0,
        ) as isize
    };
    result.max(0) as usize
}

/// Counts `count` guards by `mprotect` in, if there are mappings enough.
fn reserve(count: usize) -> io::Result<()> {
    let limit = limit_protected();
    let add = |protected: usize| Some(protected + count).filter(|sum| *sum <= limit);
    match PROTECTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
        Ok(_) => Ok(()),
        Err(protected) => Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "cannot guard another stack: {protected} guards by mprotect leave too few of the {} mappings that \
                 vm.max_map_count allows (raise it, or use Linux 6.13)",
                mappings()
            ),
        )),
    }
}

fn limit_protected() -> usize {
    mappings().saturating_sub(MAPPINGS_LEFT) / 2
}

/// How many mappings a process may have.
fn mappings() -> usize {
    static MAPPINGS: OnceLock<usize> = OnceLock::new();
    *MAPPINGS.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(MAPPINGS_USUAL)
    })
}
