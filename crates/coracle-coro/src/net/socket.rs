//! A descriptor of a loop, and its end: what all sockets of coroutines are made of.
//!
//! It has as many owners as there are `Rc`s of it. The last one closes it, without waiting:
//!
//! ```text
//!   last owner ──► a send of nothing ──► close        where the seam still has bytes of ours
//!        └──────────────────────────────► close       else at once
//! ```

use crate::net::operate::{Lane, no_loop, operate, wrong_loop};
use crate::scheduler::Scheduler;
use crate::sleep_until;
use crate::waits_for::WaitsFor;
use coracle_loop::demux::{
    Address, Completion, Descriptor, Finished, Handle, Operation, Payload, SocketKind,
    SocketOption, Submitted,
};
use coracle_loop::{Complete, Loop, Timer};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::Shutdown;
use std::ptr::null;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// How long a socket whose last owner is gone keeps trying to send what was written, if the peer does not read.
const LIMIT_LINGER: Duration = Duration::from_secs(30);

/// How many connections may wait to be accepted; the kernel allows fewer where it says so.
const BACKLOG: i32 = 4096;

pub(super) struct Socket {
    pub(super) handle: Handle,
    /// That of its loop.
    pub(super) scheduler: Weak<Scheduler>,
    /// The same, to compare with; null when it is closed, or given away.
    pub(super) home: Cell<*const Scheduler>,
    pub(super) reading: Lane,
    pub(super) writing: Lane,
    pub(super) read_timeout: Cell<Option<Duration>>,
    pub(super) write_timeout: Cell<Option<Duration>>,
    /// The seam may have bytes that the kernel does not have yet.
    pub(super) carried: Cell<bool>,
}

/// The loop whose turn it is.
///
/// # Errors
/// There is none.
pub(super) fn here() -> io::Result<Loop> {
    Loop::current().ok_or_else(no_loop)
}

impl Socket {
    /// Owns `handle`, a descriptor of `lp`.
    pub(super) fn new(lp: &Loop, handle: Handle) -> Rc<Socket> {
        Socket::of(Rc::downgrade(&Scheduler::of(lp)), handle)
    }

    /// The same for who has the scheduler.
    pub(super) fn of(scheduler: Weak<Scheduler>, handle: Handle) -> Rc<Socket> {
        Rc::new(Socket {
            handle,
            home: Cell::new(scheduler.as_ptr()),
            scheduler,
            reading: Lane::default(),
            writing: Lane::default(),
            read_timeout: Cell::new(None),
            write_timeout: Cell::new(None),
            carried: Cell::new(false),
        })
    }

    pub(super) fn make(kind: SocketKind) -> io::Result<Rc<Socket>> {
        let lp = here()?;
        let handle = lp.socket(kind)?;
        Ok(Socket::new(&lp, handle))
    }

    /// One that listens on `address`; with `shared`, beside others of the same address.
    pub(super) fn listen(address: &Address, shared: bool) -> io::Result<Rc<Socket>> {
        let lp = here()?;
        if !shared {
            let handle = lp.listen(address, BACKLOG)?;
            return Ok(Socket::new(&lp, handle));
        }
        let socket = Socket::make(SocketKind::stream_for(address))?;
        let prepare = || {
            lp.set_option(socket.handle, SocketOption::ReuseAddress(true))?;
            lp.set_option(socket.handle, SocketOption::ReusePort(true))?;
            lp.bind(socket.handle, address)?;
            lp.start_listening(socket.handle, BACKLOG)
        };
        match prepare() {
            Ok(()) => Ok(socket),
            Err(error) => {
                let text = format!("cannot listen on {address}: {error}");
                Err(io::Error::new(error.kind(), text))
            }
        }
    }

    pub(super) fn adopt(descriptor: Descriptor) -> io::Result<Rc<Socket>> {
        let lp = here()?;
        let handle = lp.adopt(descriptor)?;
        Ok(Socket::new(&lp, handle))
    }

    /// Its loop, whose turn it must be, for what does not wait.
    pub(super) fn home(&self) -> io::Result<Loop> {
        let lp = here()?;
        match self.scheduler.upgrade() {
            Some(_) if self.is_gone() => Err(Errno::BADF.into()),
            Some(scheduler) if scheduler.handle().is_of(&lp) => Ok(lp),
            _ => Err(wrong_loop()),
        }
    }

    /// Has its loop do something, if there still is one.
    pub(super) fn post(&self, job: impl FnOnce(&Loop) + Send + 'static) {
        if let Some(scheduler) = self.scheduler.upgrade() {
            let _ = scheduler.handle().post(job); // or it is about to go, and closes everything
        }
    }

    pub(super) fn local_address(&self) -> io::Result<Address> {
        self.home()?.local_address(self.handle)
    }

    pub(super) fn peer_address(&self) -> io::Result<Address> {
        self.home()?.peer_address(self.handle)
    }

    pub(super) fn set_option(&self, option: SocketOption) -> io::Result<()> {
        self.home()?.set_option(self.handle, option)
    }

    pub(super) fn connect(&self, address: Address, timeout: Option<Duration>) -> io::Result<()> {
        let connect = Operation::Connect { socket: self.handle, address };
        operate(connect, timeout, WaitsFor::Connect(self.handle))
    }

    /// Ends a direction, when all that was written before is out. Waits for that.
    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.home()?;
        let shutdown = Operation::Shutdown { socket: self.handle, how };
        operate(shutdown, None, WaitsFor::Write(self.handle))
    }

    /// The same without waiting for it.
    pub(super) fn shutdown_later(&self, how: Shutdown) {
        if let Ok(lp) = self.home() {
            let _ =
                lp.submit(Operation::Shutdown { socket: self.handle, how }, &Rc::new(Nobody), 0);
        }
    }

    // --- The end ---------------------------------------------------------------------------------------

    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.home.get().is_null()
    }

    /// Closes it, whoever uses it: who waits on it is told `EBADF`, and so is who uses it later. Does not wait.
    pub(super) fn close(&self) -> io::Result<()> {
        let lp = self.home()?;
        self.home.set(null());
        lp.cancel_receive(self.handle);
        self.reading.cancel(&lp);
        self.writing.cancel(&lp);
        close(&lp, self.handle, self.carried.get());
        Ok(())
    }

    /// Gives the descriptor away, when all that was written is with the kernel. Waits for that.
    pub(super) fn detach(self: Rc<Socket>) -> io::Result<Descriptor> {
        if Rc::strong_count(&self) > 1 {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "a socket that has other owners (`try_clone`), or that others wait on, cannot be given away",
            ));
        }
        self.flush()?;
        loop {
            let lp = self.home()?;
            match lp.detach(self.handle) {
                // An arm of a select that was not chosen may take until the next turn to be over.
                Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                    sleep_until(lp.now())?;
                }
                detached => {
                    if detached.is_ok() {
                        self.home.set(null());
                    }
                    return detached;
                }
            }
        }
    }
}

/// The last owner is gone. Nothing is in flight, but for arms of selects that were not chosen.
impl Drop for Socket {
    fn drop(&mut self) {
        let Some(scheduler) = self.scheduler.upgrade() else {
            return; // the loop is gone, and has closed everything
        };
        if self.is_gone() {
            return;
        }
        let (handle, carried) = (self.handle, self.carried.get());
        match Loop::current() {
            Some(lp) if scheduler.handle().is_of(&lp) => close(&lp, handle, carried),
            // Outside its turns. If it has no more of them, it closes everything when it goes.
            _ => _ = scheduler.handle().post(move |lp| close(lp, handle, carried)),
        }
    }
}

/// Closes a descriptor; if bytes of ours may be with the seam, when they are out.
pub(super) fn close(lp: &Loop, handle: Handle, carried: bool) {
    let closing = Rc::new(Closing { handle, timer: RefCell::new(None) });
    if carried && lp.is_carrying(handle) {
        // It goes behind that.
        let nothing = Operation::Send { socket: handle, payload: Payload::from(Vec::new()) };
        if let Submitted::Pending(_) = lp.submit(nothing, &closing, SENT) {
            let late = Rc::clone(&closing);
            let timer = lp.after(LIMIT_LINGER, move |lp| late.close(lp));
            closing.timer.replace(Some(timer));
            return;
        }
    }
    closing.close(lp);
}

/// A socket that nobody owns any more.
struct Closing {
    handle: Handle,
    timer: RefCell<Option<Timer>>,
}

const SENT: u32 = 0;
const CLOSED: u32 = 1;

impl Closing {
    fn close(self: &Rc<Closing>, lp: &Loop) {
        let close = Operation::Close { handle: self.handle };
        if let Submitted::Done(Finished { result: Err(error), .. }) = lp.submit(close, self, CLOSED)
        {
            tracing::debug!(%error, "a socket was closed before");
        }
    }
}

impl Complete for Closing {
    fn complete(self: Rc<Self>, lp: &Loop, tag: u32, _: Completion) {
        let timer = self.timer.take();
        if let Some(timer) = timer {
            // If the time was over before, this was the end of what was being sent, because of the close.
            if timer.cancel() && tag == SENT {
                self.close(lp);
            }
        }
    }
}

/// Does not care what came of it.
struct Nobody;

impl Complete for Nobody {
    fn complete(self: Rc<Self>, _: &Loop, _: u32, _: Completion) {}
}
