//! One demultiplexer of a simulated kernel: the contract of [`Demux`], word by word, over a [`World`].
//!
//! ```text
//!  loop ──► SimDemux { which } ──► World ◄── SimDemux { which } ◄── another loop, same thread
//! ```

use super::SimDescriptor;
use super::descriptor::{Holder, Id, Object, Socket};
use super::world::{DemuxId, OperationId, Waited, World};
use crate::address::Address;
use crate::backend::{Backend, Features};
use crate::fork::ForkGuard;
use crate::landing::{self, Arrival, Awaited, Landed};
use crate::memory::Space;
use crate::operation::{Completion, Handle, Operation, Outcome, Submitted, Token};
use crate::socket::{SocketKind, SocketOption};
use crate::tcp::TcpInfo;
use crate::wakeup::Waker;
use crate::{Demux, Descriptor};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a wait sleeps in real time before it looks again whether anybody can still wake it.
const NAP: Duration = Duration::from_millis(100);

/// A demultiplexer of a simulated [`Kernel`](super::Kernel). Loop thread only.
///
/// Dropping it closes what it holds, as the end of a process does.
pub struct SimDemux {
    world: Rc<RefCell<World>>,
    which: DemuxId,
    fork: ForkGuard,
    /// Receives that parked coroutines wait for, and the sockets they are on.
    awaited: HashMap<Token, (Handle, Awaited)>,
}

impl SimDemux {
    pub(super) fn new(world: &Rc<RefCell<World>>) -> SimDemux {
        let which = world.borrow_mut().add_demux();
        let awaited = HashMap::new();
        SimDemux { world: Rc::clone(world), which, fork: ForkGuard::new(), awaited }
    }

    /// A call that never waits: counts it, then does it unless it is to fail.
    fn call<T>(&self, call: impl FnOnce(&mut World) -> Result<T, Errno>) -> io::Result<T> {
        self.fork.check()?;
        let mut world = self.world.borrow_mut();
        world.tidy(self.which);
        world.count_call()?;
        Ok(call(&mut world)?)
    }

    /// The same about a descriptor.
    fn call_on<T>(
        &self,
        handle: Handle,
        call: impl FnOnce(&mut World, Id) -> Result<T, Errno>,
    ) -> io::Result<T> {
        self.call(|world| {
            let id = world.find(self.which, handle)?;
            call(world, id)
        })
    }

    /// Nothing can happen in the simulation: sleeps until somebody outside wakes a loop of it.
    fn sleep(&self) -> io::Result<()> {
        let sleeper = Arc::clone(&self.world.borrow().sleeper);
        let start = Instant::now();
        let patience = self.world.borrow().patience;
        loop {
            let alarms = self.world.borrow().alarms();
            if alarms.is_empty() {
                return Err(self.deadlock("nothing can ever happen: nobody holds a waker"));
            }
            let left = patience.saturating_sub(start.elapsed());
            if sleeper.sleep_until(left.min(NAP), || alarms.iter().any(|alarm| alarm.is_rung())) {
                self.world.borrow_mut().stir();
                return Ok(());
            }
            if left.is_zero() {
                let reason = "nothing happens: those who hold a waker have not used it for";
                return Err(self.deadlock(&format!("{reason} {patience:?}")));
            }
        }
    }

    fn deadlock(&self, reason: &str) -> io::Error {
        let seed = self.world.borrow().seed;
        let mut text = format!("{reason}, no event is scheduled (seed {seed}), and in flight is ");
        match self.in_flight() {
            0 => text.push_str("nothing"),
            _ => {
                text.push_str("only:\n");
                let _ = self.describe(&mut text);
            }
        }
        io::Error::new(io::ErrorKind::Deadlock, text)
    }
}

impl Demux for SimDemux {
    fn backend(&self) -> Backend {
        Backend::Sim
    }

    fn features(&self) -> Features {
        Features {
            completions: true,
            constant_cost: true,
            any_descriptor: true,
            early_close: true,
            files: true,
        }
    }

    fn now(&self) -> Instant {
        self.world.borrow().now()
    }

    fn seed(&mut self) -> u64 {
        self.world.borrow_mut().random.next()
    }

    fn socket(&mut self, kind: SocketKind) -> io::Result<Handle> {
        self.call(|world| {
            world.check_descriptors()?;
            Ok(world.open(self.which, Object::Socket(Box::new(Socket::new(kind)))))
        })
    }

    fn socket_pair(&mut self) -> io::Result<(Handle, Handle)> {
        self.call(|world| {
            let [a, b] = world.pair(self.which)?;
            let handles = &mut world.demux(self.which).handles;
            Ok((handles.insert(a), handles.insert(b)))
        })
    }

    fn bind(&mut self, socket: Handle, address: &Address) -> io::Result<()> {
        self.call_on(socket, |world, id| world.bind(id, address))
    }

    fn listen(&mut self, socket: Handle, backlog: i32) -> io::Result<()> {
        self.call_on(socket, |world, id| world.listen(id, backlog))
    }

    fn set_option(&mut self, socket: Handle, option: SocketOption) -> io::Result<()> {
        self.call_on(socket, |world, id| world.set_option(id, option))
    }

    fn local_address(&self, socket: Handle) -> io::Result<Address> {
        self.call_on(socket, |world, id| world.local_address(id))
    }

    fn peer_address(&self, socket: Handle) -> io::Result<Address> {
        self.call_on(socket, |world, id| world.peer_address(id))
    }

    fn tcp_info(&self, socket: Handle) -> io::Result<TcpInfo> {
        self.call_on(socket, |_, _| Err(Errno::OPNOTSUPP))
    }

    fn unacknowledged_bytes(&self, socket: Handle) -> io::Result<usize> {
        self.call_on(socket, |world, id| world.unread_by_peer(id))
    }

    fn adopt(&mut self, descriptor: Descriptor) -> io::Result<Handle> {
        let descriptor = match descriptor {
            Descriptor::Sim(descriptor) => descriptor,
            Descriptor::Os(_) => {
                return Err(unsupported(
                    "a simulated kernel cannot use a descriptor of the operating system: make the \
                     socket with this demultiplexer, or use sim::Kernel::add_file for a file",
                ));
            }
        };
        self.call(|world| {
            if !Arc::ptr_eq(&descriptor.orphans, &world.orphans) {
                return Err(Errno::XDEV); // of another kernel; dropped, hence closed there
            }
            let id = descriptor.into_id();
            world.entries.get_mut(&id).ok_or(Errno::BADF)?.holder = Holder::Demux(self.which);
            Ok(world.demux(self.which).handles.insert(id))
        })
    }

    fn lend(&mut self, _descriptor: BorrowedFd<'_>) -> io::Result<Handle> {
        self.fork.check()?;
        Err(unsupported(
            "a simulated kernel cannot watch a descriptor of the operating system: poll a socket made \
             with this demultiplexer, or test foreign descriptors on a real backend",
        ))
    }

    fn reclaim(&mut self, _handle: Handle) {
        // Nothing was lent.
    }

    fn detach(&mut self, handle: Handle) -> io::Result<Descriptor> {
        self.call_on(handle, |world, id| {
            let entry = world.entries.get_mut(&id).ok_or(Errno::BADF)?;
            if !entry.operations.is_empty() {
                return Err(Errno::BUSY);
            }
            entry.holder = Holder::Detached;
            world.demux(self.which).handles.remove(handle);
            Ok(Descriptor::Sim(SimDescriptor::new(id, &world.orphans)))
        })
    }

    fn submit(&mut self, operation: Operation) -> Submitted {
        if let Err(error) = self.fork.check() {
            return operation.refuse(error);
        }
        if let Operation::AcceptNumber { .. } = operation {
            return operation.refuse(Errno::OPNOTSUPP); // there are no numbers here
        }
        match operation.check() {
            Ok(()) => self.world.borrow_mut().submit(self.which, operation),
            Err(error) => operation.refuse(error),
        }
    }

    fn try_send(&mut self, socket: Handle, bytes: &[u8]) -> io::Result<usize> {
        self.fork.check()?;
        self.world.borrow_mut().try_send(self.which, socket, bytes)
    }

    fn cancel(&mut self, token: Token) {
        if self.fork.is_forked() {
            return;
        }
        let mut world = self.world.borrow_mut();
        world.stir();
        world.cancel(OperationId { demux: self.which, token });
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.fork.check()?;
        let waited = self.world.borrow_mut().wait(self.which, timeout);
        let result = match waited {
            Waited::Over => Ok(()),
            Waited::Quiet => self.sleep(),
        };
        // Every wake-up up to here is answered by this return; a later one, by the next.
        self.world.borrow_mut().demux(self.which).alarm.reset();
        result
    }

    fn await_receive(&mut self, socket: Handle, space: Space, awaited: Awaited) -> bool {
        if self.fork.is_forked() {
            return false;
        }
        let token = self.world.borrow_mut().submit_awaited(self.which, socket, space);
        if let Some(token) = token {
            self.awaited.insert(token, (socket, awaited));
        }
        token.is_some()
    }

    fn cancel_receive(&mut self, socket: Handle) {
        let mut awaited = self.awaited.iter();
        if let Some((&token, _)) = awaited.find(|(_, (each, _))| *each == socket) {
            self.cancel(token);
        }
    }

    fn next(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.next_arrival()?.into_completion() {
                return Some(completion);
            }
        }
    }

    fn next_arrival(&mut self) -> Option<Arrival> {
        if self.fork.is_forked() {
            return None;
        }
        let mut completion = self.world.borrow_mut().next(self.which)?;
        if let Some((_, awaited)) = self.awaited.remove(&completion.token) {
            awaited.land(match completion.result {
                Ok(Outcome::Count(count)) => Landed::Count(count),
                Ok(other) => unreachable!("a receive does not give {other:?}"),
                Err(error) => landing::failed(&error),
            });
            return Some(Arrival::Landed(awaited));
        }
        if let Ok(Outcome::Lent(bytes)) = completion.result {
            completion.result = Ok(Outcome::Lent(bytes.or_copy()));
        }
        Some(Arrival::Completion(completion))
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::clone(&self.world.borrow_mut().demux(self.which).alarm) as _)
    }

    fn in_flight(&self) -> usize {
        self.world.borrow_mut().demux(self.which).operations.len()
    }

    fn is_busy(&self) -> bool {
        let world = self.world.borrow();
        world.demuxes.get(&self.which).is_some_and(|state| !state.queue.is_empty())
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let world = self.world.borrow();
        let Some(state) = world.demuxes.get(&self.which) else { return Ok(()) };
        for (token, in_flight) in &state.operations {
            match &in_flight.task {
                Some(task) => {
                    let number = task.id.and_then(|id| i32::try_from(id.0).ok());
                    task.operation.describe(token, number, out)?;
                }
                None => writeln!(out, "operation {}: finished, not yet taken", token.index())?,
            }
        }
        Ok(())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for SimDemux {
    fn drop(&mut self) {
        // Not in one statement: what is given back must be dropped after the borrow has ended.
        let removed = self.world.borrow_mut().remove_demux(self.which);
        drop(removed);
    }
}

impl fmt::Debug for SimDemux {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDemux").field("which", &self.which).finish_non_exhaustive()
    }
}

fn unsupported(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, text)
}
