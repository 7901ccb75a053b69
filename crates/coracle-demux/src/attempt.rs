//! Trying an operation once, without waiting: what the readiness backends do when a descriptor is ready,
//! and what io_uring does for the operations too rare to deserve a form of their own.
//!
//! Every function answers `None` for "it would have to wait". `EINTR` is retried here and `EAGAIN` ends
//! here: neither is seen above.

use crate::address::Address;
use crate::descriptor::Kind;
use crate::memory::{Memory, Payload};
use crate::operation::{Handle, Message, Outcome, Outgoing};
use crate::resident::Resident;
use crate::socket;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, sockopt,
};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How many stretches one vectored send takes; the rest makes it a short send.
pub(crate) const SEND_SLICES: usize = 64;

/// How much of a file one call sends, so that one big file on a fast link does not hold the loop.
const SEND_FILE_BYTES: usize = 1 << 20;

/// From so many bytes on a cork saves more than it costs: acknowledgements come while a call still sends.
const CORK_BYTES: usize = 256 << 10;

/// The most descriptors a message may carry (SCM_MAX_FD).
const DESCRIPTORS_PER_MESSAGE: usize = 253;

/// How everything is sent: without waiting, and without a signal when the peer is gone.
const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// The result of a call, or `None` when it would have had to wait.
#[inline]
fn unless_waiting<T>(result: rustix::io::Result<T>) -> Option<io::Result<T>> {
    match result {
        Ok(value) => Some(Ok(value)),
        Err(Errno::AGAIN) => None,
        Err(error) => Some(Err(error.into())),
    }
}

/// Accepts one connection.
pub(crate) fn accept(fd: BorrowedFd<'_>) -> Option<io::Result<OwnedFd>> {
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match retry_on_intr(|| rustix::net::accept_with(fd, flags)) {
            Err(error) if is_of_the_connection(error) => {}
            result => return unless_waiting(result),
        }
    }
}

/// Whether an error of accept(2) belongs to the connection that was to be accepted, which is then gone,
/// and not to the listener: accept(2), "Error handling".
pub(crate) fn is_of_the_connection(error: Errno) -> bool {
    matches!(
        error,
        Errno::CONNABORTED
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
    )
}

/// Begins to connect; `None` means that it goes on and ends when the socket becomes writable.
pub(crate) fn connect(fd: BorrowedFd<'_>, address: &Address) -> Option<io::Result<Outcome>> {
    match retry_on_intr(|| socket::connect(fd, address)) {
        Ok(()) => Some(Ok(Outcome::Nothing)),
        Err(Errno::INPROGRESS | Errno::ALREADY) => None,
        // A Unix backlog is full. Nothing would tell when it no longer is.
        Err(Errno::AGAIN) => Some(Err(Errno::CONNREFUSED.into())),
        Err(error) => Some(Err(error.into())),
    }
}

/// Asks how a connect that was under way has ended, once the socket is writable.
pub(crate) fn connected(fd: BorrowedFd<'_>) -> io::Result<Outcome> {
    match sockopt::socket_error(fd)? {
        Ok(()) => Ok(Outcome::Nothing),
        Err(error) => Err(error.into()),
    }
}

/// Receives into `space`.
#[inline]
pub(crate) fn receive(
    fd: BorrowedFd<'_>,
    kind: Kind,
    space: &mut [u8],
) -> Option<io::Result<usize>> {
    unless_waiting(retry_on_intr(|| {
        if kind.is_socket() {
            rustix::net::recv(fd, &mut *space, RecvFlags::DONTWAIT).map(|(count, _)| count)
        } else {
            rustix::io::read(fd, &mut *space)
        }
    }))
}

/// Receives into the memory of an operation.
pub(crate) fn receive_into(
    fd: BorrowedFd<'_>,
    kind: Kind,
    memory: &mut Memory,
) -> Option<io::Result<Outcome>> {
    match memory.as_mut_slice() {
        Some(space) => receive(fd, kind, space).map(|result| result.map(Outcome::Count)),
        None => Some(Err(Errno::FAULT.into())), // memory that is only for sending
    }
}

/// Receives one message with everything that comes with it.
pub(crate) fn receive_message(
    fd: BorrowedFd<'_>,
    memory: &mut Memory,
    limit_descriptors: usize,
) -> Option<io::Result<Outcome>> {
    let Some(space) = memory.as_mut_slice() else {
        return Some(Err(Errno::FAULT.into()));
    };
    let limit = limit_descriptors.min(DESCRIPTORS_PER_MESSAGE);
    let mut control =
        vec![MaybeUninit::uninit(); if limit == 0 { 0 } else { control_bytes(limit) }];
    let mut control = RecvAncillaryBuffer::new(&mut control);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| {
        rustix::net::recvmsg(fd, &mut [IoSliceMut::new(&mut *space)], &mut control, flags)
    });
    let received = match unless_waiting(received)? {
        Ok(received) => received,
        Err(error) => return Some(Err(error)),
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(list) = message {
            descriptors.extend(list);
        }
    }
    // The space for control messages is rounded up and may have let one more through.
    descriptors.truncate(limit);
    Some(Ok(Outcome::Message(Box::new(Message {
        count: received.bytes.min(memory.len()),
        truncated: received.flags.contains(ReturnFlags::TRUNC),
        from: received.address.and_then(|address| socket::from_kernel(address).ok()),
        descriptors,
    }))))
}

/// Sends as much of `bytes` as fits.
#[inline]
pub(crate) fn send_bytes(
    fd: BorrowedFd<'_>,
    kind: Kind,
    bytes: &[u8],
) -> Option<io::Result<usize>> {
    unless_waiting(retry_on_intr(|| {
        if kind.is_socket() {
            rustix::net::send(fd, bytes, SEND_FLAGS)
        } else {
            rustix::io::write(fd, bytes)
        }
    }))
}

/// The same for what goes before something else, which the kernel should wait for.
pub(crate) fn send_bytes_before_more(
    fd: BorrowedFd<'_>,
    kind: Kind,
    bytes: &[u8],
) -> Option<io::Result<usize>> {
    if !kind.is_socket() {
        return send_bytes(fd, kind, bytes);
    }
    let flags = SEND_FLAGS.union(SendFlags::MORE);
    unless_waiting(retry_on_intr(|| rustix::net::send(fd, bytes, flags)))
}

/// Sends as much of `payload` as fits.
pub(crate) fn send(
    fd: BorrowedFd<'_>,
    kind: Kind,
    payload: &Payload,
) -> Option<io::Result<Outcome>> {
    let sent = match payload {
        Payload::One(memory) => send_bytes(fd, kind, memory.as_slice()),
        _ => unless_waiting(send_slices(fd, kind, payload)),
    };
    sent.map(|result| result.map(Outcome::Count))
}

fn send_slices(fd: BorrowedFd<'_>, kind: Kind, payload: &Payload) -> rustix::io::Result<usize> {
    let (slices, count) = slices(payload);
    let slices = &slices[..count];
    retry_on_intr(|| {
        if kind.is_socket() {
            let mut control = SendAncillaryBuffer::default();
            rustix::net::sendmsg(fd, slices, &mut control, SEND_FLAGS)
        } else {
            rustix::io::writev(fd, slices)
        }
    })
}

/// Sends one message with everything that goes with it.
pub(crate) fn send_message(fd: BorrowedFd<'_>, message: &Outgoing) -> Option<io::Result<Outcome>> {
    if message.descriptors.len() > DESCRIPTORS_PER_MESSAGE {
        return Some(Err(Errno::INVAL.into()));
    }
    let (slices, count) = slices(&message.payload);
    let descriptors: Vec<BorrowedFd<'_>> = message.descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = vec![MaybeUninit::uninit(); control_bytes(descriptors.len())];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(&descriptors));
        assert!(fits, "control space was made for this many descriptors");
    }
    let slices = &slices[..count];
    let result = retry_on_intr(|| match &message.to {
        None => rustix::net::sendmsg(fd, slices, &mut control, SEND_FLAGS),
        Some(Address::Ip(to)) => {
            rustix::net::sendmsg_addr(fd, to, slices, &mut control, SEND_FLAGS)
        }
        Some(Address::Unix(to)) => match socket::unix_to_kernel(to) {
            Ok(to) => rustix::net::sendmsg_addr(fd, &to, slices, &mut control, SEND_FLAGS),
            Err(_) => Err(Errno::INVAL),
        },
    });
    unless_waiting(result).map(|result| result.map(Outcome::Count))
}

fn control_bytes(descriptors: usize) -> usize {
    rustix::cmsg_space!(ScmRights(descriptors))
}

/// The first stretches of a payload, as the kernel takes them.
pub(crate) fn slices(payload: &Payload) -> ([IoSlice<'_>; SEND_SLICES], usize) {
    let mut slices = [IoSlice::new(&[]); SEND_SLICES];
    let stretches: &[Memory] = match payload {
        Payload::Nothing => &[],
        Payload::One(memory) => std::slice::from_ref(memory),
        Payload::Many(list) => list,
    };
    let mut count = 0;
    for memory in stretches.iter().filter(|memory| !memory.is_empty()).take(SEND_SLICES) {
        slices[count] = IoSlice::new(memory.as_slice());
        count += 1;
    }
    (slices, count)
}

/// What a send_file can do now.
pub(crate) enum SendFile {
    /// It sent something, or failed.
    Done(io::Result<Outcome>),
    /// The socket takes nothing now.
    Wait,
    /// The next bytes of the file are not in memory: read this many first, on a thread.
    Cold(usize),
}

/// Sends a stretch of the file behind a handle, unless that would wait for the disk.
pub(crate) fn send_file(
    resident: &mut Resident,
    socket: BorrowedFd<'_>,
    (handle, file): (Handle, BorrowedFd<'_>),
    offset: u64,
    count: usize,
) -> SendFile {
    let count = count.min(SEND_FILE_BYTES);
    if !resident.is_resident(handle, file, offset, count) {
        return SendFile::Cold(count);
    }
    send_file_now(socket, file, offset, count)
}

/// Sends a stretch of `file` that has just been read.
pub(crate) fn send_file_now(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    count: usize,
) -> SendFile {
    let count = count.min(SEND_FILE_BYTES);
    let cork = Cork::put_in(socket, count);
    let result = retry_on_intr(|| {
        let mut position = offset;
        rustix::fs::sendfile(socket, file, Some(&mut position), count)
    });
    drop(cork);
    match unless_waiting(result) {
        Some(result) => SendFile::Done(result.map(Outcome::Count)),
        None => SendFile::Wait,
    }
}

/// A TCP socket that sends whole segments only, until this is dropped.
///
/// What a long sendfile(2) has put in so far ends in the middle of a segment. Each acknowledgement that comes
/// meanwhile would let that half go, and many half segments take twice the processor time.
struct Cork<'fd>(BorrowedFd<'fd>);

impl<'fd> Cork<'fd> {
    /// None if so few bytes are to be sent that it does not pay, the socket is not TCP, or its owner has corked it
    /// already.
    fn put_in(socket: BorrowedFd<'fd>, count: usize) -> Option<Cork<'fd>> {
        if count < CORK_BYTES || sockopt::tcp_cork(socket).ok()? {
            return None;
        }
        sockopt::set_tcp_cork(socket, true).ok().map(|()| Cork(socket))
    }
}

impl Drop for Cork<'_> {
    fn drop(&mut self) {
        let _ = sockopt::set_tcp_cork(self.0, false); // what becomes of the connection is told by sends
    }
}

/// Reaps the child behind `pidfd` if it has ended.
pub(crate) fn child_exit(pidfd: BorrowedFd<'_>) -> Option<io::Result<Outcome>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match retry_on_intr(|| waitid(WaitId::PidFd(pidfd), options)) {
        Ok(None) => None,
        Ok(Some(status)) => {
            let raw = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => (code & 0xff) << 8,
                (None, Some(signal)) => signal | if status.dumped() { 0x80 } else { 0 },
                (None, None) => 0,
            };
            Some(Ok(Outcome::Exited(ExitStatus::from_raw(raw))))
        }
        Err(error) => Some(Err(error.into())),
    }
}

/// A descriptor that becomes readable when the child ends.
pub(crate) fn child_descriptor(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    Ok(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    /// A file of a mebibyte that has no name.
    fn file() -> File {
        let file =
            File::from(rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        file.set_len(1 << 20).unwrap();
        file
    }

    fn sent(socket: BorrowedFd<'_>, file: &File) -> usize {
        match send_file_now(socket, file.as_fd(), 0, 1 << 20) {
            SendFile::Done(Ok(Outcome::Count(count))) => count,
            _ => panic!("a socket that nothing was sent to takes something"),
        }
    }

    #[test]
    fn long_file_leaves_the_cork_as_it_was() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let file = file();
        for corked in [false, true] {
            let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let socket = listener.accept().unwrap().0;
            socket.set_nonblocking(true).unwrap();
            sockopt::set_tcp_cork(&socket, corked).unwrap();

            let count = sent(socket.as_fd(), &file);

            assert_eq!(sockopt::tcp_cork(&socket), Ok(corked));
            drop(socket);
            let mut received = Vec::new();
            reader.read_to_end(&mut received).unwrap();
            assert_eq!(received.len(), count, "corked: {corked}");
        }
    }

    #[test]
    fn cork_is_in_until_it_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(Cork::put_in(socket.as_fd(), CORK_BYTES - 1).is_none(), "it does not pay");
        let cork = Cork::put_in(socket.as_fd(), CORK_BYTES);
        assert!(cork.is_some(), "it is TCP, and was not corked");
        assert_eq!(sockopt::tcp_cork(&socket), Ok(true));
        assert!(Cork::put_in(socket.as_fd(), CORK_BYTES).is_none(), "it is somebody else's");
        assert_eq!(sockopt::tcp_cork(&socket), Ok(true));
        drop(cork);
        assert_eq!(sockopt::tcp_cork(&socket), Ok(false));
    }

    #[test]
    fn long_file_goes_where_there_is_no_cork() {
        let (socket, _reader) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        assert!(sent(socket.as_fd(), &file()) > 0);
    }
}
