//! Starting operations: what can be done at once is done, the rest waits for its descriptor.

use super::{Adaptor, Attempt, InFlight, Poller, READER};
use crate::Demux;
use crate::attempt;
use crate::descriptor::{Kind, Source};
use crate::file::{self, Work};
use crate::memory::{Memory, Payload};
use crate::operation::{Finished, Handle, Interest, Operation, Outcome, Submitted, Token};
use crate::retry;
use crate::socket;
use rustix::fd::AsFd;
use rustix::io::Errno;
use slotmap::Key;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;

impl<P: Poller> Adaptor<P> {
    /// Receives and sends, in all their forms.
    pub(super) fn start_transfer(&mut self, handle: Handle, mut operation: Operation) -> Submitted {
        let slot = match self.slot(handle) {
            Ok(slot)
                if !slot.source.allows(slot.kind, &operation)
                    || slot.source.is_lent() && !matches!(operation, Operation::Receive { .. }) =>
            {
                return operation.refuse(Errno::BADF); // to send on it, or to connect it, is for its owner
            }
            Ok(slot) => slot,
            Err(error) => return operation.refuse(error),
        };
        let reading = operation.is_receiving();
        let multishot =
            matches!(operation, Operation::Accept { .. } | Operation::ReceiveLent { .. });
        if if reading { slot.is_reading() } else { slot.writer.is_some() } {
            return operation.refuse(Errno::ALREADY);
        }
        let try_first = match reading {
            true => !multishot && slot.ready.intersects(READER),
            false => match self.settle(handle) {
                Ok(settled) => settled,
                Err(error) => return operation.refuse(error),
            },
        };
        if try_first {
            match self.attempt(handle, &mut operation, false) {
                Attempt::Done(result) => {
                    let payload = operation.into_payload();
                    return Submitted::Done(Finished { result, payload });
                }
                Attempt::Wait => {}
                Attempt::Cold(work) => return self.start_warming(handle, operation, *work),
            }
        }
        self.enlist(handle, operation)
    }

    /// Ends a direction at once, unless carried bytes have to go first.
    pub(super) fn start_shutdown(&mut self, socket: Handle, how: Shutdown) -> Submitted {
        let operation = Operation::Shutdown { socket, how };
        if let Err(error) = self.slot(socket) {
            return operation.refuse(error);
        }
        match if how == Shutdown::Read { Ok(true) } else { self.settle(socket) } {
            Ok(true) => {}
            Ok(false) => return self.hold_shutdown(socket, operation),
            Err(error) => return operation.refuse(error),
        }
        let result = socket::shutdown(&self.slots[socket].source, how);
        let result = result.map(|()| Outcome::Nothing);
        Submitted::Done(Finished { result, payload: Payload::Nothing })
    }

    /// Lets an operation wait for its descriptor.
    pub(super) fn enlist(&mut self, handle: Handle, operation: Operation) -> Submitted {
        let slot = &mut self.slots[handle];
        let fresh = !slot.added;
        if fresh {
            if let Err(error) = self.poller.add(slot.source.as_fd(), handle.data().as_ffi()) {
                return operation.refuse(error);
            }
            slot.added = true;
        }
        let is_poll = matches!(operation, Operation::Poll { .. });
        let lent = matches!(operation, Operation::ReceiveLent { .. });
        let reading = operation.is_receiving();
        let unannounced = retry::is_unannounced(&operation);
        let token =
            self.operations.insert(InFlight { operation, handle, on_thread: false, ended: false });
        if is_poll {
            slot.polls.push(token);
        } else if reading {
            slot.reader = Some(token);
            slot.lent = lent;
            if slot.ready.intersects(READER) {
                self.run_again(handle);
            }
        } else {
            slot.writer = Some(token);
            if unannounced {
                self.retry_later(handle);
            }
        }
        if let Err(error) = self.watch(handle, is_poll && !fresh) {
            self.detach_operation(token);
            let in_flight = self.operations.remove(token).expect("it was inserted above");
            return in_flight.operation.refuse(error);
        }
        Submitted::Pending(token)
    }

    /// Tells the poller what is waited for on a descriptor.
    pub(super) fn watch(&mut self, handle: Handle, ask_again: bool) -> io::Result<()> {
        let slot = &self.slots[handle];
        if !slot.added || (P::EDGE && !ask_again) {
            return Ok(());
        }
        let mut interest = Interest::empty();
        interest.set(Interest::READ, slot.is_reading());
        let is_announced = |token: Token| !retry::is_unannounced(&self.operations[token].operation);
        let writing = slot.rest_bytes() > 0 || slot.writer.is_some_and(is_announced);
        interest.set(Interest::WRITE, writing);
        for token in slot.polls.iter() {
            if let Operation::Poll { interest: wanted, .. } = self.operations[token].operation {
                interest |= wanted;
            }
        }
        self.poller.watch(slot.source.as_fd(), handle.data().as_ffi(), interest, ask_again)
    }

    pub(super) fn start_poll(&mut self, handle: Handle, operation: Operation) -> Submitted {
        match self.slot(handle).and_then(|slot| slot.kind.check_pollable()) {
            Ok(()) => self.enlist(handle, operation),
            Err(error) => operation.refuse(error),
        }
    }

    pub(super) fn start_file(&mut self, operation: Operation) -> Submitted {
        let file = operation.handle();
        let shared = match file.map(|file| self.slot(file)) {
            None => None,
            Some(Err(error)) => return operation.refuse(error),
            Some(Ok(slot)) => match &slot.source {
                Source::File(fd) => Some(Arc::clone(fd)),
                Source::Owned(_) | Source::Lent(_) => return operation.refuse(Errno::BADF),
            },
        };
        let mut operation = operation;
        let work = match (&mut operation, shared) {
            (Operation::Open { path, options }, _) => {
                Work::Open { path: std::mem::take(path), options: *options }
            }
            (Operation::Stat { .. }, Some(file)) => Work::Stat { file },
            (Operation::Read { offset, space, .. }, Some(file)) => {
                Work::Read { file, offset: *offset, space: std::mem::take(space) }
            }
            (Operation::Write { offset, memory, .. }, Some(file)) => {
                Work::Write { file, offset: *offset, memory: std::mem::take(memory) }
            }
            _ => unreachable!("only file operations come here, and all but open have a file"),
        };
        let handle = file.unwrap_or_default();
        let token =
            self.operations.insert(InFlight { operation, handle, on_thread: true, ended: false });
        match self.give_to_thread(token, work) {
            Ok(()) => {
                if let Some(slot) = self.slots.get_mut(handle) {
                    slot.jobs += 1;
                }
                Submitted::Pending(token)
            }
            Err(memory) => {
                self.operations.remove(token);
                let payload = memory.map(Payload::One).unwrap_or_default();
                Submitted::Done(Finished { result: Err(Errno::AGAIN.into()), payload })
            }
        }
    }

    /// A send_file whose bytes are on the disk: reads them on a thread, then goes on.
    pub(super) fn start_warming(
        &mut self,
        handle: Handle,
        operation: Operation,
        work: Work,
    ) -> Submitted {
        let token =
            self.operations.insert(InFlight { operation, handle, on_thread: true, ended: false });
        self.slots[handle].writer = Some(token);
        self.warm(token, work);
        Submitted::Pending(token)
    }

    /// Has a thread read what `token` is about to send; without one, sends it cold.
    pub(super) fn warm(&mut self, token: Token, work: Work) {
        if self.give_to_thread(token, work).is_err() {
            self.operations[token].on_thread = false;
            let handle = self.operations[token].handle;
            if let Attempt::Done(result) = self.attempt_warmed(token) {
                self.finish(token, result);
            } else if let Err(error) = self.await_writable(handle) {
                self.finish(token, Err(error));
            }
        }
    }

    /// Gives `work` to a thread, or back the memory it carries.
    pub(super) fn give_to_thread(
        &mut self,
        token: Token,
        work: Work,
    ) -> Result<(), Option<Memory>> {
        let letterbox = self.reports.letterbox();
        file::give_to_thread(&self.threads, work, move |report| letterbox.deliver(token, report))
    }

    pub(super) fn start_child_exit(&mut self, pid: u32, operation: Operation) -> Submitted {
        let opened = attempt::child_descriptor(pid)
            .and_then(|fd| self.insert(Source::Owned(fd), Kind::Bytes, false));
        let handle = match opened {
            Ok(handle) => handle,
            Err(error) => return operation.refuse(error),
        };
        let submitted = self.enlist(handle, operation);
        if let Submitted::Done(_) = submitted {
            self.drop_slot(handle);
        }
        submitted
    }

    pub(super) fn start_signal(&mut self, signal: i32, operation: Operation) -> Submitted {
        match self.signals.subscribe(signal) {
            Ok(()) => Submitted::Pending(self.operations.insert(InFlight {
                operation,
                handle: Handle::null(),
                on_thread: false,
                ended: false,
            })),
            Err(error) => operation.refuse(error),
        }
    }

    pub(super) fn start_close(&mut self, handle: Handle, operation: Operation) -> Submitted {
        if let Err(error) = self.slot(handle) {
            return operation.refuse(error);
        }
        let _ = self.settle(handle); // what is carried has its attempt
        self.give_up_rest(handle);
        let slot = &mut self.slots[handle];
        let waiting: Vec<Token> = (slot.reader.take().into_iter())
            .chain(slot.writer.take())
            .chain(slot.polls.take())
            .chain(slot.held.take())
            .collect();
        let jobs = slot.jobs;
        for &token in &waiting {
            self.finish(token, Err(Errno::CANCELED.into()));
        }
        self.cancel_receive(handle);
        if jobs > 0 {
            let token = self.operations.insert(InFlight {
                operation,
                handle,
                on_thread: true,
                ended: false,
            });
            self.slots[handle].closer = Some(token);
            return Submitted::Pending(token);
        }
        self.drop_slot(handle);
        // What concerns it may be among what is to be told: ended receives, too.
        if self.gathered.is_empty() && self.finished.is_empty() {
            let payload = Payload::Nothing;
            return Submitted::Done(Finished { result: Ok(Outcome::Nothing), payload });
        }
        // Its own completion is the last one, so it queues behind the others.
        let token =
            self.operations.insert(InFlight { operation, handle, on_thread: false, ended: false });
        self.finish(token, Ok(Outcome::Nothing));
        Submitted::Pending(token)
    }

    /// Forgets a descriptor on which nothing waits, and closes it if it is ours.
    pub(super) fn drop_slot(&mut self, handle: Handle) -> Option<Source> {
        let slot = self.slots.remove(handle)?;
        if slot.added {
            let closing = !slot.shared && matches!(slot.source, Source::Owned(_));
            self.poller.remove(slot.source.as_fd(), handle.data().as_ffi(), closing);
        }
        Some(slot.source)
    }
}
