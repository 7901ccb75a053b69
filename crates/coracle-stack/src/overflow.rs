//! Stack overflow: whose, and how large was the stack?
//!
//! Whoever runs off the end of a stack meets its guard region, and the kernel sends SIGSEGV. There is no
//! stack left to handle it on, so the handler runs on the thread's alternate signal stack. The address
//! tells whose guard it was; the handler says so, and ends the process. Every other fault goes to the
//! handler that was there before, which is std's own: a thread's overflow is still reported as one.
//!
//! ```text
//!  SIGSEGV ──► handler ──┬─ at a guard, from a stack of the same slab ──► "'x' has overflowed …" ──► abort
//!                        └─ anywhere else ──► the handler before ours
//! ```
#![allow(unsafe_code)]

use crate::label;
use crate::mapping::Slot;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::cell::Cell;
use std::ffi::c_void;
use std::fmt::{self, Write};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

/// Faults of memory: on Linux a guard is SIGSEGV; SIGBUS is what other systems say.
const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The alternate stack of a thread that has none: what the kernel saves of the largest processors is 11 KiB.
const SIGNAL_STACK_BYTES: usize = 64 << 10;

/// What is below it, and must not be touched.
const SIGNAL_GUARD_BYTES: usize = 64 << 10;

/// Installs the handler, once in a process, and sees to it that this thread has an alternate signal stack.
pub(crate) fn watch() -> io::Result<()> {
    thread_local! {
        static OURS: Cell<Option<SignalStack>> = const { Cell::new(None) };
    }
    BEFORE.get_or_init(|| {
        // The handler finds it in its place: it is asked for first, and installed by the caller of this.
        SIGNALS.map(|signal| {
            let mut before = MaybeUninit::uninit();
            // SAFETY: asks only; the kernel writes the whole of `before`.
            unsafe {
                assert_eq!(libc::sigaction(signal, null(), before.as_mut_ptr()), 0);
                before.assume_init()
            }
        })
    });
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(install);

    // SAFETY: asks only; the kernel writes the whole of `current`.
    let current = unsafe {
        let mut current = MaybeUninit::<libc::stack_t>::uninit();
        assert_eq!(libc::sigaltstack(null(), current.as_mut_ptr()), 0);
        current.assume_init()
    };
    if current.ss_flags & libc::SS_DISABLE != 0 {
        OURS.set(Some(SignalStack::new()?));
    }
    Ok(())
}

/// What was done about each of [`SIGNALS`] before.
static BEFORE: OnceLock<[libc::sigaction; 2]> = OnceLock::new();

fn install() {
    for signal in SIGNALS {
        // SAFETY: an all-zero sigaction is a valid one, with an empty mask; `handle` has the type that SA_SIGINFO
        // calls for, and does only what a signal handler may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            assert_eq!(libc::sigaction(signal, &action, null_mut()), 0);
        }
    }
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo, both signals come with an address, and the context is what it is
    // with SA_SIGINFO.
    let (address, stack_pointer) =
        unsafe { ((*info).si_addr() as usize, stack_pointer(context.cast())) };
    if let Some(victim) = label::find(address).filter(|victim| address < victim.low.get())
        && label::find(stack_pointer).is_some_and(|slot| slot.slab_start() == victim.slab_start())
    {
        report(victim);
        // SAFETY: abort(3) may be called in a signal handler.
        unsafe { libc::abort() };
    }
    // SAFETY: what came before gets what it would have got.
    unsafe { pass_on(signal, info, context) };
}

/// Where the thread was when the signal came.
///
/// # Safety
/// In a signal handler, with its argument.
unsafe fn stack_pointer(context: *const libc::ucontext_t) -> usize {
    // SAFETY: what the caller promises.
    #[cfg(target_arch = "x86_64")]
    return unsafe { (*context).uc_mcontext.gregs[libc::REG_RSP as usize] as usize };
    #[cfg(target_arch = "aarch64")]
    return unsafe { (*context).uc_mcontext.sp as usize };
    // Elsewhere nobody is named.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return 0;
}

/// Does what would have been done without us.
///
/// # Safety
/// In a signal handler, with its arguments.
unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let index = SIGNALS.iter().position(|known| *known == signal);
    let before = index.and_then(|index| Some(&BEFORE.get()?[index]));
    match before {
        Some(before) if ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) => {
            // SAFETY: the flag says which of the two types the function has.
            unsafe {
                if before.sa_flags & libc::SA_SIGINFO != 0 {
                    type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
                    std::mem::transmute::<usize, Handler>(before.sa_sigaction)(
                        signal, info, context,
                    );
                } else {
                    type Handler = extern "C" fn(i32);
                    std::mem::transmute::<usize, Handler>(before.sa_sigaction)(signal);
                }
            }
        }
        // Nobody cared: the fault happens again as soon as this returns, and ends the process.
        // SAFETY: signal(2) may be called in a signal handler.
        _ => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}

/// What is to be done about it. The names are those of the layers above, by which stacks are mostly had.
const CURE: &str =
    "give it a larger one by `Builder::stack_size`, or run what goes that deep in `on_big_stack`";

/// Says who it was. No lock, no allocation, no libc: the message is put together here and written at once.
fn report(slot: Slot) {
    let mut text = Text { bytes: [0; 512], len: 0 };
    let size = slot.size;
    // SAFETY: this thread runs in the slab of the stack, so that both belong to its pool. It is here, and
    // changes nothing.
    let _ = match unsafe { label::read(slot) } {
        "" => write!(text, "\na coroutine has overflowed its stack of {size}: {CURE}\n"),
        name => write!(text, "\ncoroutine '{name}' has overflowed its stack of {size}: {CURE}\n"),
    };
    let _ = rustix::io::write(rustix::stdio::stderr(), &text.bytes[..text.len]);
}

/// A text of limited length; the rest is cut off.
struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..];
        let count = part.len().min(room.len());
        room[..count].copy_from_slice(&part.as_bytes()[..count]);
        self.len += count;
        Ok(())
    }
}

/// An alternate signal stack, for threads that std did not start. Gone with the thread.
struct SignalStack {
    start: *mut c_void,
}

impl SignalStack {
    fn new() -> io::Result<SignalStack> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = SIGNAL_GUARD_BYTES + SIGNAL_STACK_BYTES;
        // SAFETY: a fresh anonymous mapping, at a place the kernel chooses.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, protection, MapFlags::PRIVATE)? };
        let stack = SignalStack { start };
        // SAFETY: the lower part of our own mapping; the upper part stays mapped until `drop`, which tells the
        // kernel first.
        unsafe {
            mprotect(start, SIGNAL_GUARD_BYTES, MprotectFlags::empty())?;
            let place = start.byte_add(SIGNAL_GUARD_BYTES);
            let wanted = libc::stack_t { ss_sp: place, ss_flags: 0, ss_size: SIGNAL_STACK_BYTES };
            if libc::sigaltstack(&wanted, null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(stack)
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        let none = libc::stack_t { ss_sp: null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: after the first call nobody uses the mapping of `new` any more. If the first fails,
        // somebody does.
        unsafe {
            if libc::sigaltstack(&none, null_mut()) == 0 {
                let _ = munmap(self.start, SIGNAL_GUARD_BYTES + SIGNAL_STACK_BYTES);
            }
        }
    }
}
