//! Reading ahead: the kernel is asked once, and what comes while nobody reads is kept.
//!
//! ```text
//!                                    ┌── somebody waits: into its slice, at once
//!   kernel ──lent, time after time──►│
//!                                    └── nobody does: kept ──► front ──► the next read
//!                                             full: the receive is ended, until somebody reads
//! ```
//!
//! A plain read gives its slice to the kernel for as long as it waits, and the next read does so again. This one
//! is asked for once for all, as that of a callback is: less work for every message, and the buffers that the
//! kernel fills are the few of the loop, which are still in the processor's cache. The price is a copy, and that
//! bytes may be here that nobody has read: they go along when the stream is [given away](ReadAhead::into_parts).

use crate::cancelled::is_cancelled;
use crate::hold::Hold;
use crate::net::operate::{Bell, Caller, with_caller, with_finishing_caller};
use crate::net::socket::Socket;
use coracle_loop::demux::{Completion, Lent, Operation, Outcome, Submitted, Token};
use coracle_loop::{Complete, Loop};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, BufRead, Read, Write};
use std::rc::{Rc, Weak};
use std::time::Instant;

/// How many bytes may be kept; then receiving pauses. What the kernel has received by then is kept as well.
const LIMIT_KEPT_BYTES: usize = 64 * 1024;

/// How much room stays when everything is read.
const KEEP_BYTES: usize = 4 * 1024;

/// A stream that is read ahead: `Read` and `BufRead`, and `Write` as the stream itself. Made by
/// [`TcpStream::read_ahead`](crate::net::TcpStream::read_ahead) and
/// [`UnixStream::read_ahead`](crate::net::UnixStream::read_ahead).
///
/// It is what `BufReader` is elsewhere, for less: it has no buffer to read into, for what comes while somebody
/// waits goes where it is wanted, and each message costs less than by a plain read, most of all on io_uring. From
/// its first read on the loop receives whatever comes, and keeps it for who reads next. It leaves off when 64 KiB
/// are kept; what the kernel has received by then is kept, too, which may be several times as much (some 400 KB
/// on io_uring, 160 on epoll).
///
/// The stream's own `set_read_timeout` is for reads of this as well.
///
/// ```
/// use coracle_coro::net::UnixStream;
/// use std::io::{BufRead, Write};
///
/// coracle_coro::run(|| {
///     let (here, mut there) = UnixStream::pair()?;
///     there.write_all(b"one\ntwo\nthree")?;
///     drop(there);
///     let lines = here.read_ahead().lines().collect::<Result<Vec<_>, _>>()?;
///     assert_eq!(lines, ["one", "two", "three"]);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Others who read
/// The bytes of a stream are read ahead for one: from its first read on, and as long as this is there, others who
/// read the same stream wait in line, also through [`stream`](ReadAhead::stream). What was received and not read
/// is lost when it is dropped; [`into_parts`](ReadAhead::into_parts) gives it back. An arm of a
/// [`select!`](crate::select!) that waits until the stream is readable is not for a stream that is read ahead: it
/// knows nothing of bytes that are here already. A read within a [`timeout`](crate::timeout) loses nothing. And a
/// loop that receives ahead has something that may happen: a deadlock is not noticed there, even if nobody reads.
pub struct ReadAhead<S> {
    stream: S,
    /// What is being read, from `start` on. Nobody adds to it meanwhile.
    front: Vec<u8>,
    start: usize,
    receiving: Receiving,
}

/// The receive, as long as somebody reads.
struct Receiving {
    socket: Rc<Socket>,
    ahead: Rc<Ahead>,
}

/// Whom the loop tells what was received.
struct Ahead {
    /// Whose it is. It is no owner: when the last one goes, the receive ends with the socket.
    socket: Weak<Socket>,
    /// The turn to read the socket is ours.
    has_turn: Cell<bool>,
    /// The receive in flight.
    token: Cell<Option<Token>>,
    /// It was asked to end.
    ending: Cell<bool>,
    /// What has just come, for whoever is woken by it.
    lent: Cell<Option<Lent>>,
    /// What came when nobody waited.
    kept: RefCell<Vec<u8>>,
    /// Nothing more will come; and if that is because of a failure that nobody was told yet, this.
    ended: Cell<bool>,
    error: Cell<Option<io::Error>>,
    /// Nobody reads any more.
    left: Cell<bool>,
    /// If so, the loop goes on until the receive has ended, and the socket, if nobody else has it.
    hold: Cell<Option<Hold>>,
    bell: Bell,
}

/// What there is to read.
enum Came {
    /// This, which has just come.
    Lent(Lent),
    /// What was kept. It is at the front now.
    Kept,
    End,
}

impl<S> ReadAhead<S> {
    pub(super) fn new(stream: S, socket: Rc<Socket>) -> ReadAhead<S> {
        let ahead = Ahead {
            socket: Rc::downgrade(&socket),
            has_turn: Cell::new(false),
            token: Cell::new(None),
            ending: Cell::new(false),
            lent: Cell::new(None),
            kept: RefCell::default(),
            ended: Cell::new(false),
            error: Cell::new(None),
            left: Cell::new(false),
            hold: Cell::new(None),
            bell: Bell::default(),
        };
        let receiving = Receiving { socket, ahead: Rc::new(ahead) };
        ReadAhead { stream, front: Vec::new(), start: 0, receiving }
    }

    /// The stream, for everything but reading.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// What the next read returns without waiting, as far as it has been looked at: when it is empty, there may be
    /// more all the same.
    pub fn buffer(&self) -> &[u8] {
        &self.front[self.start..]
    }

    /// Ends the receive, and gives back the stream and what was received and not read. Waits for the end of the
    /// receive, which is in the next turn of the loop; a cancel, or a deadline, strikes the wait after that.
    ///
    /// ```
    /// use coracle_coro::net::UnixStream;
    /// use std::io::{Read, Write};
    ///
    /// coracle_coro::run(|| {
    ///     let (here, mut there) = UnixStream::pair()?;
    ///     there.write_all(b"head and body")?;
    ///     let mut here = here.read_ahead();
    ///     here.read_exact(&mut [0; 9])?;
    ///     let (stream, rest) = here.into_parts()?;
    ///     assert_eq!(rest, b"body");
    ///     stream.into_std()?; // and off to another thread
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Receiving has failed, and nobody was told yet: the connection is broken, and what was not read is lost with
    /// it. (Whoever wants that reads it.) Or there is no loop here, or another one.
    pub fn into_parts(self) -> io::Result<(S, Vec<u8>)> {
        let ReadAhead { stream, mut front, start, receiving } = self;
        with_finishing_caller(|caller| receiving.finish(caller))?;
        let ahead = &receiving.ahead;
        front.drain(..start);
        front.append(&mut ahead.kept.borrow_mut());
        match ahead.error.take() {
            Some(error) => Err(error),
            None => Ok((stream, front)),
        }
    }

    /// So much of the front was read.
    #[inline]
    fn advance(&mut self, count: usize) {
        self.start += count;
        if self.start == self.front.len() {
            self.start = 0;
            self.front.clear();
            if self.front.capacity() > KEEP_BYTES {
                self.front = Vec::new(); // whoever is idle from here on holds nothing of a burst
            }
        }
    }
}

impl<S> Read for ReadAhead<S> {
    #[inline]
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if self.front.is_empty() && !space.is_empty() {
            match self.receiving.wait(&mut self.front)? {
                Came::End => return Ok(0),
                Came::Kept => {}
                Came::Lent(bytes) => {
                    let count = bytes.len().min(space.len());
                    space[..count].copy_from_slice(&bytes[..count]);
                    if count < bytes.len() {
                        self.front.extend_from_slice(&bytes[count..]);
                    }
                    return Ok(count);
                }
            }
        }
        let count = self.buffer().len().min(space.len());
        space[..count].copy_from_slice(&self.buffer()[..count]);
        self.advance(count);
        Ok(count)
    }
}

impl<S> BufRead for ReadAhead<S> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.front.is_empty() {
            match self.receiving.wait(&mut self.front)? {
                Came::End | Came::Kept => {}
                Came::Lent(bytes) => self.front.extend_from_slice(&bytes),
            }
        }
        Ok(self.buffer())
    }

    fn consume(&mut self, count: usize) {
        self.advance(count.min(self.buffer().len()));
    }
}

/// Writing is as it is.
impl<S: Write> Write for ReadAhead<S> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn write_vectored(&mut self, stretches: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(stretches)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl<S: fmt::Debug> fmt::Debug for ReadAhead<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buffered = self.buffer().len() + self.receiving.ahead.kept.borrow().len();
        f.debug_struct("ReadAhead").field("stream", &self.stream).field("bytes", &buffered).finish()
    }
}

impl Receiving {
    /// Waits until there is something to read, or the end. What was kept changes places with `front`, which is
    /// empty.
    #[inline]
    fn wait(&self, front: &mut Vec<u8>) -> io::Result<Came> {
        let Receiving { socket, ahead } = self;
        with_caller(|caller| {
            let limit = caller.limit(socket.read_timeout.get());
            loop {
                if let Some(came) = self.take(caller, front)? {
                    return Ok(came);
                }
                if ahead.token.get().is_none() {
                    self.begin(caller, limit)?;
                }
                caller.wait_for(&ahead.bell, socket, limit)?;
                if let Some(bytes) = ahead.lent.take() {
                    return Ok(Came::Lent(bytes));
                }
            }
        })
    }

    /// What is there already.
    #[inline]
    fn take(&self, caller: Caller<'_>, front: &mut Vec<u8>) -> io::Result<Option<Came>> {
        let Receiving { socket, ahead } = self;
        caller.check_home(&socket.scheduler)?;
        if socket.is_gone() {
            return Err(Errno::BADF.into());
        }
        if !ahead.kept.borrow().is_empty() {
            std::mem::swap(front, &mut *ahead.kept.borrow_mut());
            caller.done_at_once();
            return Ok(Some(Came::Kept));
        }
        if ahead.ended.get() {
            return ahead.error.take().map_or(Ok(Some(Came::End)), Err);
        }
        Ok(None)
    }

    /// Receives from now on.
    #[cold]
    fn begin(&self, caller: Caller<'_>, limit: Option<Instant>) -> io::Result<()> {
        let Receiving { socket, ahead } = self;
        if !ahead.has_turn.get() {
            socket.keep_reading(caller, limit)?;
            ahead.has_turn.set(true);
        }
        match caller.lp().submit(Operation::ReceiveLent { socket: socket.handle }, ahead, 0) {
            Submitted::Pending(token) => {
                ahead.token.set(Some(token));
                socket.note_reading(Some(token));
                Ok(())
            }
            Submitted::Done(finished) => {
                finished.result.map(|_| unreachable!("many results cannot be there at once"))
            }
        }
    }

    /// Waits for the end of the receive.
    fn finish(&self, caller: Caller<'_>) -> io::Result<()> {
        let Receiving { socket, ahead } = self;
        caller.check_home(&socket.scheduler)?;
        while ahead.token.get().is_some() {
            ahead.end(caller.lp());
            caller.wait_out(&ahead.bell, socket)?;
            ahead.keep();
        }
        Ok(())
    }
}

/// Nobody reads any more.
impl Drop for Receiving {
    fn drop(&mut self) {
        let Receiving { socket, ahead } = self;
        ahead.left.set(true);
        ahead.kept.take();
        match (ahead.token.get(), socket.home()) {
            (None, _) => ahead.give_up_turn(socket),
            (Some(_), Ok(lp)) => {
                ahead.hold.set(Some(Hold::begin(&lp)));
                ahead.end(&lp);
            }
            // Outside the turns of its loop; or it is closed, and this has ended or will.
            (Some(token), Err(_)) => socket.post(move |lp| lp.cancel(token)),
        }
    }
}

impl Ahead {
    /// Asks for the end of the receive, if that was not done.
    fn end(&self, lp: &Loop) {
        if let Some(token) = self.token.get()
            && !self.ending.replace(true)
        {
            lp.cancel(token);
        }
    }

    /// Keeps what has just come, if nobody has taken it, and who reads is still there.
    #[inline]
    fn keep(&self) {
        if let Some(bytes) = self.lent.take()
            && !self.left.get()
        {
            self.kept.borrow_mut().extend_from_slice(&bytes);
        }
    }

    /// This was the last of the receive.
    #[cold]
    fn note_end(&self) {
        self.token.set(None);
        self.ending.set(false);
        self.hold.take();
        if let Some(socket) = self.socket.upgrade() {
            socket.note_reading(None);
            if self.left.get() {
                self.give_up_turn(&socket);
            }
        }
    }

    /// Nobody reads any more, and no receive is in flight: others have their turn.
    fn give_up_turn(&self, socket: &Socket) {
        if self.has_turn.replace(false) {
            socket.reading.give_up();
        }
    }
}

impl Complete for Ahead {
    #[inline]
    fn complete(self: Rc<Self>, lp: &Loop, _tag: u32, completion: Completion) {
        let Completion { more, result, .. } = completion;
        if !more {
            self.note_end();
        }
        match result {
            Ok(Outcome::Lent(bytes)) if bytes.is_empty() => self.ended.set(true),
            Ok(Outcome::Lent(bytes)) => self.lent.set(Some(bytes)),
            Ok(other) => unreachable!("a receive does not give {other:?}"),
            // By us; or the socket was closed, which is seen by whoever reads.
            Err(error) if is_cancelled(&error) => {}
            Err(error) => {
                self.ended.set(true);
                self.error.set(Some(error));
            }
        }
        self.bell.ring().go_on(); // and takes it
        self.keep();
        if self.kept.borrow().len() >= LIMIT_KEPT_BYTES {
            self.end(lp);
        }
    }
}
