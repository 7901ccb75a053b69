//! A hint to the processor: what is needed next is fetched while something else is done.
#![allow(unsafe_code)]

/// The length of a line of the processor's cache.
const LINE_BYTES: isize = 64;

/// Has the lines from `before` ahead of `place` to `after` behind it fetched. Nothing is read: any address will do.
///
/// ```
/// let near = [0_u8; 256];
/// coracle_demux::prefetch::around(near[128..].as_ptr(), 1, 1);
/// ```
#[inline(always)]
pub fn around<T>(place: *const T, before: isize, after: isize) {
    for line in -before..=after {
        fetch(place.wrapping_byte_offset(LINE_BYTES * line).cast());
    }
}

#[inline(always)]
fn fetch(place: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which does no harm whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
