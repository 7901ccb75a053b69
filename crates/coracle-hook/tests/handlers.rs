//! Signal handlers that write, in the middle of whatever a coroutine does: nothing is allocated, nobody else runs.
#![allow(unsafe_code)]

use coracle_coro::{run, spawn};
use libc::{c_int, c_void};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Once;

thread_local! {
    /// What a handler of this thread writes to.
    static FD: Cell<c_int> = const { Cell::new(-1) };
    /// Whether one runs.
    static HANDLING: Cell<bool> = const { Cell::new(false) };
    /// How often it has allocated.
    static ALLOCATED: Cell<u32> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: it is the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if HANDLING.get() {
            ALLOCATED.set(ALLOCATED.get() + 1);
        }
        // SAFETY: as it was called.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as it was called.
        unsafe { System.dealloc(place, layout) }
    }
}

fn switch_on() {
    static ONCE: Once = Once::new();
    // SAFETY: these tests are there to see what happens.
    ONCE.call_once(|| unsafe { coracle_hook::enable() });
}

extern "C" fn writes(_: c_int) {
    HANDLING.set(true);
    // SAFETY: one byte, which lives through the call.
    unsafe { libc::write(FD.get(), [7_u8].as_ptr().cast(), 1) };
    HANDLING.set(false);
}

extern "C" fn sleeps(_: c_int) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: a time that lives through the call.
    unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const time, std::ptr::null_mut())
    };
}

fn handle(signal: c_int, handler: extern "C" fn(c_int), flags: c_int) {
    // SAFETY: a handler for a signal that nobody else uses here.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// Sends this thread a signal, again and again, and tells whether another coroutine has run meanwhile.
fn others_run(signal: c_int, times: u32) -> bool {
    let ran = Rc::new(Cell::new(false));
    let shared = Rc::clone(&ran);
    let other = spawn(move || shared.set(true));
    for _ in 0..times {
        // SAFETY: a signal that is handled.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
    }
    let seen = ran.get();
    other.join().expect("the other");
    seen
}

#[test]
fn s32_handlers_that_write_to_a_pipe() {
    switch_on();
    handle(libc::SIGUSR1, writes, 0);
    run(|| {
        let (mut reader, writer) = io::pipe()?;
        FD.set(writer.as_raw_fd());
        assert!(!others_run(libc::SIGUSR1, 500), "another coroutine ran inside a handler");
        assert_eq!(ALLOCATED.get(), 0);
        drop(writer);
        let mut all = Vec::new();
        reader.read_to_end(&mut all)?;
        assert_eq!(all, [7; 500]);
        Ok(())
    })
    .expect("run");
}

#[test]
fn s32_handlers_that_write_to_a_socket() {
    switch_on();
    handle(libc::SIGUSR1, writes, 0);
    run(|| {
        let (mut reader, writer) = std::os::unix::net::UnixStream::pair()?;
        FD.set(writer.as_raw_fd());
        assert!(!others_run(libc::SIGUSR1, 200), "another coroutine ran inside a handler");
        assert_eq!(ALLOCATED.get(), 0);
        drop(writer);
        let mut all = Vec::new();
        reader.read_to_end(&mut all)?;
        assert_eq!(all, [7; 200]);
        Ok(())
    })
    .expect("run");
}

/// A handler with a stack of its own is not the coroutine: nobody is parked there.
#[test]
fn s32_handlers_on_a_stack_of_their_own() {
    switch_on();
    handle(libc::SIGUSR2, sleeps, libc::SA_ONSTACK);
    run(|| {
        let mut space = vec![0_u64; 8192];
        let own = libc::stack_t {
            ss_sp: space.as_mut_ptr().cast::<c_void>(),
            ss_flags: 0,
            ss_size: size_of_val(space.as_slice()),
        };
        // SAFETY: numbers and a null pointer.
        let mut before: libc::stack_t = unsafe { std::mem::zeroed() };
        // SAFETY: space that stays until the stack before it is back.
        assert_eq!(unsafe { libc::sigaltstack(&raw const own, &raw mut before) }, 0);
        let ran = others_run(libc::SIGUSR2, 3);
        // SAFETY: what was there before.
        assert_eq!(unsafe { libc::sigaltstack(&raw const before, std::ptr::null_mut()) }, 0);
        assert!(!ran, "a handler was parked");
        Ok(())
    })
    .expect("run");
}
