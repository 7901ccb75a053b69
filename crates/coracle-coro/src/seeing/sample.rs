//! Where is a thread that does not come to its wait? It is interrupted, and what it was doing is noted.
//!
//! The handler of the signal does as little as can be: it notes three registers and who runs, and has the kernel
//! copy the top of the stack. No lock, no allocation, and no walk up a stack that may be in the middle of a
//! change: that is done later, by who asked, on the copy ([`unwind`](super::unwind)).
//!
//! ```text
//!   IDLE ── sample ──► WANTED ── handler, on the thread ──► TAKING ──► DONE ── sample ──► IDLE
//!                        └── sample, if nothing comes of it ─────────────────────────────► IDLE
//! ```
//!
//! The signal is SIGURG, as Go's is: almost nobody uses it, and without a handler it does nothing.
#![allow(unsafe_code)]

use crate::coroutine::CoroutineId;
use crate::current;
use crate::primitive::Lock;
use crate::sleeper::Sleeper;
use rustix::thread::futex;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::io::{self, Error};
use std::mem::MaybeUninit;
use std::panic::Location;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const SIGNAL: i32 = libc::SIGURG;

/// So much of the top of a stack is copied: what is beyond it is not in the backtrace.
const STACK_BYTES: usize = 64 << 10;

/// In pieces of this size, so that the last is not missing because one after it is not there.
const PIECE_BYTES: usize = 4096;

/// So much of a name.
const NAME_BYTES: usize = 64;

/// How long a thread may take to answer: it may have to wait for a processor.
const PATIENCE: Duration = Duration::from_secs(2);

const IDLE: u32 = 0;
const WANTED: u32 = 1;
const TAKING: u32 = 2;
const DONE: u32 = 3;

/// What a thread was doing.
pub(super) struct Sample {
    pub(super) registers: Registers,
    /// Where the copy of its stack was taken, and the copy.
    pub(super) stack_start: usize,
    pub(super) stack: Vec<u8>,
    /// Which coroutine it was, if one ran.
    pub(super) coroutine: Option<Runner>,
}

/// The registers that a walk up a stack begins with.
#[derive(Clone, Copy, Default)]
pub(super) struct Registers {
    pub(super) instruction: usize,
    pub(super) stack: usize,
    pub(super) frame: usize,
    /// Where the function returns to, on processors that have a register for it.
    #[cfg_attr(target_arch = "x86_64", allow(dead_code))]
    pub(super) link: usize,
}

/// A coroutine that ran.
pub(super) struct Runner {
    pub(super) id: CoroutineId,
    pub(super) name: Option<String>,
    pub(super) spawned: &'static Location<'static>,
}

/// What the handler leaves.
struct Note {
    registers: Registers,
    stack: [u8; STACK_BYTES],
    stack_len: usize,
    coroutine: Option<(CoroutineId, &'static Location<'static>)>,
    name: [u8; NAME_BYTES],
    name_len: usize,
}

struct Desk {
    state: AtomicU32,
    thread: AtomicI32,
    note: UnsafeCell<Note>,
}

// SAFETY: the note is used by the handler alone while the state is TAKING, to which it brought it from
// WANTED; and by `sample` alone, which one thread at a time is in, while it is anything else.
unsafe impl Sync for Desk {}

static DESK: Desk = Desk {
    state: AtomicU32::new(IDLE),
    thread: AtomicI32::new(0),
    note: UnsafeCell::new(Note {
        registers: Registers { instruction: 0, stack: 0, frame: 0, link: 0 },
        stack: [0; STACK_BYTES],
        stack_len: 0,
        coroutine: None,
        name: [0; NAME_BYTES],
        name_len: 0,
    }),
};

/// Interrupts a thread of this process, to see what it is doing.
///
/// # Errors
/// There is no such thread; it does not answer, because it blocks the signal or the kernel holds it.
pub(super) fn sample(thread_id: i32) -> io::Result<Sample> {
    static ONE_AT_A_TIME: Lock<()> = Lock::new(());
    let _alone = ONE_AT_A_TIME.lock();
    install()?;
    DESK.thread.store(thread_id, Ordering::Relaxed);
    DESK.state.store(WANTED, Ordering::Release);
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: tgkill(2) takes three numbers. The signal has a handler, or does nothing.
    let sent = unsafe {
        sc::syscall3(sc::nr::TGKILL, process as usize, thread_id as usize, SIGNAL as usize)
    };
    let failure =
        if sent == 0 { wait() } else { Some(Error::from_raw_os_error(-(sent as isize) as i32)) };
    if let Some(error) = failure
        && DESK.state.compare_exchange(WANTED, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    {
        return Err(error);
    }
    while DESK.state.load(Ordering::Acquire) != DONE {
        std::thread::yield_now(); // it is at it
    }
    // SAFETY: see `Desk`. The handler has brought the state to DONE, and will not come back before WANTED.
    let sample = Sample::from(unsafe { &*DESK.note.get() });
    DESK.state.store(IDLE, Ordering::Release);
    Ok(sample)
}

/// Waits for the handler; says if that takes too long.
fn wait() -> Option<Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let state = DESK.state.load(Ordering::Acquire);
        let left = deadline.saturating_duration_since(Instant::now());
        if state == DONE {
            return None;
        }
        if left.is_zero() {
            return Some(Error::new(
                io::ErrorKind::TimedOut,
                "the thread does not answer a signal",
            ));
        }
        let left = rustix::time::Timespec::try_from(left).ok();
        // A wrong guess, EINTR, or the end of the time: the loop looks again.
        let _ = futex::wait(&DESK.state, futex::Flags::PRIVATE, state, left.as_ref());
    }
}

impl From<&Note> for Sample {
    fn from(note: &Note) -> Sample {
        let name = String::from_utf8_lossy(&note.name[..note.name_len]).into_owned();
        let name = if name.is_empty() { None } else { Some(name) };
        Sample {
            registers: note.registers,
            stack_start: note.registers.stack,
            stack: note.stack[..note.stack_len].to_vec(),
            coroutine: note.coroutine.map(|(id, spawned)| Runner { id, name, spawned }),
        }
    }
}

/// What was done about the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // SAFETY: an all-zero sigaction is a valid one, with an empty mask; `handle` has the type that
        // SA_SIGINFO calls for, and does only what a signal handler may. The one that was there before is
        // known to it before it can be called: it is asked for first.
        unsafe {
            let mut before = MaybeUninit::uninit();
            if libc::sigaction(SIGNAL, std::ptr::null(), before.as_mut_ptr()) != 0 {
                return false;
            }
            let _ = BEFORE.set(before.assume_init());
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            // On the alternate stack: that of a coroutine may be small.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(SIGNAL, &action, null_mut()) == 0
        }
    });
    if *installed { Ok(()) } else { Err(Error::other("SIGURG cannot be caught")) }
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let is_meant =
        DESK.thread.load(Ordering::Relaxed) == rustix::thread::gettid().as_raw_nonzero().get();
    if is_meant
        && DESK.state.compare_exchange(WANTED, TAKING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    {
        // SAFETY: see `Desk`; and the context is what it is with SA_SIGINFO.
        unsafe { (*DESK.note.get()).take(registers(context.cast())) };
        DESK.state.store(DONE, Ordering::Release);
        let _ = futex::wake(&DESK.state, futex::Flags::PRIVATE, 1);
    } else if let Some(before) = BEFORE.get() {
        // SAFETY: what came before gets what it would have got.
        unsafe { pass_on(before, signal, info, context) };
    }
}

impl Note {
    /// In the handler, on the thread that is asked. System calls are made past libc, whose `errno` is the
    /// thread's.
    fn take(&mut self, registers: Registers) {
        self.registers = registers;
        self.stack_len = copy_memory(registers.stack, &mut self.stack);
        (self.coroutine, self.name_len) = (None, 0);
        current::with(|frame| {
            let Some(frame) = frame else { return };
            let sleeper: &Sleeper = &frame.sleeper;
            self.coroutine = Some((sleeper.id, sleeper.spawned));
            let name = sleeper.name.as_deref().unwrap_or("").as_bytes();
            self.name_len = name.len().min(NAME_BYTES);
            self.name[..self.name_len].copy_from_slice(&name[..self.name_len]);
        });
    }
}

/// Copies what is at `start` and above, as far as it is there. Says how much that was.
fn copy_memory(start: usize, to: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let mut remote = [libc::iovec { iov_base: null_mut(), iov_len: 0 }; STACK_BYTES / PIECE_BYTES];
    let mut at = start;
    for piece in &mut remote {
        let end = (at / PIECE_BYTES + 1) * PIECE_BYTES;
        *piece =
            libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(at), iov_len: end - at };
        at = end;
    }
    let process = rustix::process::getpid().as_raw_nonzero().get() as usize;
    // SAFETY: the kernel writes to `to`, which is ours, and at most as much as it holds. What it reads it
    // need not find: then it stops.
    let copied = unsafe {
        sc::syscall6(
            sc::nr::PROCESS_VM_READV,
            process,
            (&raw const local).expose_provenance(),
            1,
            remote.as_ptr().expose_provenance(),
            remote.len(),
            0,
        )
    };
    if copied as isize > 0 { copied.min(to.len()) } else { 0 }
}

/// # Safety
/// In a signal handler, with its argument.
unsafe fn registers(context: *const libc::ucontext_t) -> Registers {
    // SAFETY: what the caller promises.
    let machine = unsafe { &(*context).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    return Registers {
        instruction: machine.gregs[libc::REG_RIP as usize] as usize,
        stack: machine.gregs[libc::REG_RSP as usize] as usize,
        frame: machine.gregs[libc::REG_RBP as usize] as usize,
        link: 0,
    };
    #[cfg(target_arch = "aarch64")]
    return Registers {
        instruction: machine.pc as usize,
        stack: machine.sp as usize,
        frame: machine.regs[29] as usize,
        link: machine.regs[30] as usize,
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = machine;
        Registers::default()
    }
}

/// # Safety
/// In a signal handler, with its arguments.
unsafe fn pass_on(
    before: &libc::sigaction,
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    if [libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) {
        return; // both do nothing
    }
    // SAFETY: the flag says which of the two types the function has.
    unsafe {
        if before.sa_flags & libc::SA_SIGINFO != 0 {
            type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
            std::mem::transmute::<usize, Handler>(before.sa_sigaction)(signal, info, context);
        } else {
            type Handler = extern "C" fn(i32);
            std::mem::transmute::<usize, Handler>(before.sa_sigaction)(signal);
        }
    }
}
