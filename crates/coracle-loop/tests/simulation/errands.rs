//! What else a loop does beside its sockets: files, a child, a signal, a timer that goes on and on and posts.

use crate::ledger::{Being, Side};
use crate::random::Random;
use coracle_loop::demux::sim::{Fault, Kernel};
use coracle_loop::demux::{Handle, OpenOptions, Operation, Outcome};
use coracle_loop::{Loop, LoopHandle};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const SIGHUP: i32 = 1;
const CONTENTS: &[u8] = b"errands are run in any order, and each of them comes to its end";
const TICKS: u32 = 20;

/// The errands of one loop.
pub(crate) struct Errands {
    number: usize,
    side: Side,
    kernel: Kernel,
    random: RefCell<Random>,
    /// How many have to come to their end.
    left: Cell<u32>,
    /// The signal has come.
    heard: Cell<bool>,
    _being: Being,
}

impl Errands {
    /// Starts them all. `next` is told of each tick, and counts in `told`.
    pub(crate) fn start(
        lp: &Loop,
        number: usize,
        side: Side,
        kernel: &Kernel,
        random: Random,
        next: LoopHandle,
        told: &Arc<AtomicU32>,
    ) -> Rc<Errands> {
        let being = side.being();
        let errands = Rc::new(Errands {
            number,
            side,
            kernel: kernel.clone(),
            random: RefCell::new(random),
            left: Cell::new(3),
            heard: Cell::new(false),
            _being: being,
        });
        errands.await_child(lp);
        errands.await_signal(lp);
        Rc::clone(&errands).open_file(lp);
        errands.tick(lp, next, told);
        errands
    }

    pub(crate) fn are_done(&self) -> bool {
        // Nobody is told of a listener that fails later on.
        self.left.get() == 0 && (self.heard.get() || self.has_injected())
    }

    /// Whether an operation was made to fail.
    fn has_injected(&self) -> bool {
        self.kernel.injected().count(Fault::FailNth) > 0
    }

    fn one_done(&self) {
        self.left.set(self.left.get().checked_sub(1).expect("an errand has ended twice"));
    }

    /// An error, because there was to be one. Anything else is a mistake of the kernel's or the loop's.
    fn forgive(&self, result: io::Result<Outcome>) {
        let error = result.expect_err("another kind of operation");
        assert!(self.has_injected(), "{error}");
    }

    fn pause(&self, limit_ms: u64) -> Duration {
        self.random.borrow_mut().duration(Duration::from_millis(limit_ms))
    }

    fn await_child(self: &Rc<Self>, lp: &Loop) {
        let code = self.random.borrow_mut().below(100) as i32;
        let pid = self.kernel.spawn_child(self.pause(50), ExitStatus::from_raw(code << 8));
        let errands = Rc::clone(self);
        self.side.operate(lp, None, Operation::ChildExit { pid }, move |_, done| {
            match done.result {
                Ok(Outcome::Exited(status)) => assert_eq!(status.code(), Some(code)),
                other => errands.forgive(other),
            }
            errands.one_done();
        });
    }

    fn await_signal(self: &Rc<Self>, lp: &Loop) {
        let errands = Rc::downgrade(self);
        // Every loop hears the signal of every other: it is told once or more often.
        let listening = lp.on_signal(SIGHUP, move |_| {
            if let Some(errands) = errands.upgrade() {
                errands.heard.set(true);
            }
        });
        if let Err(error) = listening {
            return self.forgive(Err(error));
        }
        let kernel = self.kernel.clone();
        lp.after(self.pause(50), move |_| kernel.raise(SIGHUP));
    }

    // --- A file, written and read back ---------------------------------------------------------------------

    fn open_file(self: Rc<Self>, lp: &Loop) {
        let path = format!("/errand-{}", self.number).into();
        let options =
            OpenOptions { read: true, write: true, create: true, truncate: true, mode: 0o600 };
        let side = self.side.clone();
        side.operate(lp, None, Operation::Open { path, options }, move |lp, done| {
            match done.result {
                Ok(Outcome::Opened(file)) => self.write(lp, file, 0),
                Ok(other) => panic!("an open gave {other:?}"),
                Err(_) => {
                    lp.after(self.pause(20), move |lp| Rc::clone(&self).open_file(lp));
                }
            }
        });
    }

    fn write(self: &Rc<Self>, lp: &Loop, file: Handle, written: usize) {
        if written == CONTENTS.len() {
            return self.read(lp, file, Vec::new());
        }
        let errands = Rc::clone(self);
        let memory = CONTENTS[written..].to_vec().into();
        let operation = Operation::Write { file, offset: written as u64, memory };
        self.side.operate(lp, None, operation, move |lp, done| match done.result {
            Ok(Outcome::Count(count)) => errands.write(lp, file, written + count),
            other => {
                errands.forgive(other);
                errands.write(lp, file, written);
            }
        });
    }

    fn read(self: &Rc<Self>, lp: &Loop, file: Handle, mut bytes: Vec<u8>) {
        let errands = Rc::clone(self);
        let operation =
            Operation::Read { file, offset: bytes.len() as u64, space: vec![0; 40].into() };
        self.side.operate(lp, None, operation, move |lp, done| match done.result {
            Ok(Outcome::Count(0)) => {
                assert_eq!(bytes, CONTENTS, "what was written is what is read");
                let close = Operation::Close { handle: file };
                let side = errands.side.clone();
                side.operate(lp, None, close, move |_, _| errands.one_done());
            }
            Ok(Outcome::Count(count)) => {
                bytes.extend_from_slice(&done.payload.into_vec()[..count]);
                errands.read(lp, file, bytes);
            }
            other => {
                errands.forgive(other);
                errands.read(lp, file, bytes);
            }
        });
    }

    // --- Ticks -------------------------------------------------------------------------------------------

    /// Posts to another loop with each tick.
    fn tick(self: &Rc<Self>, lp: &Loop, next: LoopHandle, told: &Arc<AtomicU32>) {
        let errands = Rc::clone(self);
        let count = Arc::clone(told);
        let tick = move |_: &Loop| {
            let count = Arc::clone(&count);
            let post = move |_: &Loop| {
                count.fetch_add(1, Ordering::SeqCst);
            };
            next.post(post).expect("the other loop is there");
        };
        let period = self.pause(30) + Duration::from_nanos(1);
        lp.repeat(period, TICKS, tick, move |_| errands.one_done());
    }
}

/// How many posts all loops together have to count.
pub(crate) fn ticks(loops: usize) -> u32 {
    TICKS * loops as u32
}
