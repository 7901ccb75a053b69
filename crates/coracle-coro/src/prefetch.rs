//! A hint to the processor: what is needed next is fetched while something else is done.
#![allow(unsafe_code)]

/// The length of a line of the processor's cache.
const LINE_BYTES: isize = 64;

/// Has the lines from `before` ahead of `place` to `after` behind it fetched. Nothing is read: any address does.
#[inline(always)]
pub(crate) fn around<T>(place: *const T, before: isize, after: isize) {
    for line in -before..=after {
        fetch(place.wrapping_byte_offset(LINE_BYTES * line).cast());
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn fetch(place: *const i8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which does no harm whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(place) };
}

/// There is no stable way to say so.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn fetch(_place: *const i8) {}
