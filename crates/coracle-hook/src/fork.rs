//! Copies of the process: hooks are off in them. Also in children that have our memory for a while (`vfork`, and
//! `clone` like it): they have our coroutines, too, and descriptors of their own.
//!
//! ```text
//!   parent   vfork ──► counts ──► waits ................................ goes on, counts back
//!   child                └──► has our memory: dup2, close, write, … ──► exec
//! ```
//!
//! While one of them is at work, whoever calls, in whatever thread, asks which process this is. It costs a system
//! call, and is the only way to know.
#![allow(unsafe_code)]

use crate::gate;
use crate::raw;
use libc::{c_int, c_void, pid_t};
use std::sync::Once;
use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering};

/// The process that has enabled hooks.
static OWN: AtomicIsize = AtomicIsize::new(0);

/// How many children have our memory.
static BORROWERS: AtomicU32 = AtomicU32::new(0);

/// From now on, a copy made by `fork` runs without hooks, until it enables them itself: this is the process
/// that has.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    OWN.store(id(), Ordering::Relaxed);
    ONCE.call_once(|| {
        // SAFETY: a function that only stores a number: it may run between fork and exec.
        unsafe { libc::pthread_atfork(None, None, Some(in_copy)) };
    });
}

/// Whether this is a child that has our memory, and descriptors of its own: what it closes is open here. Asks the
/// kernel.
pub(crate) fn is_elsewhere() -> bool {
    id() != OWN.load(Ordering::Relaxed)
}

/// The same, for the price of a load where there are no such children.
#[inline]
pub(crate) fn is_borrower() -> bool {
    BORROWERS.load(Ordering::Relaxed) != 0 && is_elsewhere()
}

fn id() -> isize {
    raw::plain(libc::SYS_getpid, []).unwrap_or(0)
}

extern "C" fn in_copy() {
    gate::set_enabled(false);
}

hook! {
    // It takes a variable number of arguments in C: see `hold.rs`.
    always fn clone(
        begin: *mut c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut c_void,
        local: *mut c_void, child: *mut c_void,
    ) -> c_int {
        const BORROWS: c_int = libc::CLONE_VM | libc::CLONE_VFORK;
        // The child begins somewhere else, and we go on when it is gone, or has a memory of its own.
        let borrowers = u32::from(flags & BORROWS == BORROWS);
        BORROWERS.fetch_add(borrowers, Ordering::Relaxed);
        // SAFETY: as it was called.
        let answer = unsafe {
            next!(clone(
                begin: *mut c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut c_void,
                local: *mut c_void, child: *mut c_void,
            ) -> c_int)
        };
        BORROWERS.fetch_sub(borrowers, Ordering::Relaxed);
        answer
    }
}

/// vfork(2). It returns twice, on the same stack, so that nothing of it may be there: the address to return to is
/// kept in a register, as libc does it.
// SAFETY: it has the name and the duties of libc's. The stack is as it was found when it returns, for the first
// time and for the second, and only registers are used that a function may use.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn vfork() -> pid_t {
    std::arch::naked_asm!(
        "lock inc dword ptr [rip + {borrowers}]",
        "pop rdi",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        "test eax, eax",
        "jz 2f", // the child
        "lock dec dword ptr [rip + {borrowers}]",
        "test eax, eax",
        "jns 2f",
        "mov edi, eax",
        "jmp {failed}",
        "2:",
        "ret",
        borrowers = sym BORROWERS,
        number = const libc::SYS_vfork,
        failed = sym failed,
    )
}

/// There is no child, and why.
#[cfg(target_arch = "x86_64")]
extern "C" fn failed(answer: c_int) -> pid_t {
    raw::set_errno(-answer);
    -1
}

/// What `hook!` cannot define.
#[cfg(target_arch = "x86_64")]
pub(crate) static BY_HAND: &[crate::symbols::Symbol] = &[crate::symbols::Symbol {
    name: c"vfork",
    address: || vfork as *const () as usize,
    next: &NEXT_VFORK,
}];
#[cfg(target_arch = "x86_64")]
static NEXT_VFORK: crate::real::Next = crate::real::Next::new(c"vfork");

#[cfg(not(target_arch = "x86_64"))]
pub(crate) static BY_HAND: &[crate::symbols::Symbol] = &[];

const _: () = assert!(size_of::<pid_t>() == size_of::<c_int>());
