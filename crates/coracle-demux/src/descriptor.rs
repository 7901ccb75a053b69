//! A descriptor as the seam knows it: who owns it, and what kind of thing it is.
#![allow(unsafe_code)]

use crate::operation::Operation;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io;
use std::sync::Arc;

/// An open descriptor and its owner.
pub(crate) enum Source {
    /// The seam owns it.
    Owned(OwnedFd),
    /// A file, owned together with the threads that work on it.
    File(Arc<OwnedFd>),
    /// Somebody else owns it, and keeps it open until it is reclaimed.
    Lent(RawFd),
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Source::Owned(fd) => fd.as_fd(),
            Source::File(fd) => fd.as_fd(),
            // SAFETY: `Demux::lend` demands that the number stays open until `reclaim`, which removes
            // this value.
            Source::Lent(fd) => unsafe { BorrowedFd::borrow_raw(*fd) },
        }
    }
}

impl Source {
    pub(crate) fn raw(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }

    /// Whether somebody else owns it.
    #[inline]
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self, Source::Lent(_))
    }

    /// Whether `operation` may be done with it: what is lent is polled, and sockets receive and connect.
    pub(crate) fn allows(&self, kind: Kind, operation: &Operation) -> bool {
        match operation {
            _ if !self.is_lent() => true,
            Operation::Poll { .. } => true,
            Operation::Receive { .. }
            | Operation::Connect { .. }
            | Operation::AcceptNumber { .. } => kind.is_socket(),
            _ => false,
        }
    }

    /// Whether it is a socket of somebody else's, which [sends together with others](crate::Demux::await_send).
    #[inline]
    pub(crate) fn sends_together(&self, kind: Kind) -> bool {
        self.is_lent() && kind.is_socket()
    }

    /// Whether a thread works on it.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Source::File(file) if Arc::strong_count(file) > 1)
    }
}

/// What kind of thing a descriptor is, as far as the seam treats kinds differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// TCP: a short read means that nothing is left. (Not so on Unix streams, where a read also ends at
    /// a message that carries descriptors.)
    Tcp,
    /// Any other socket.
    Socket,
    /// A pipe, terminal, eventfd, …: read(2) and write(2), pollable.
    Bytes,
    /// A regular file or directory: always "ready", never pollable.
    File,
}

impl Kind {
    /// Finds out what `fd` is, and makes it non-blocking where that is ours to decide.
    pub(crate) fn adopt(fd: BorrowedFd<'_>) -> io::Result<Kind> {
        let kind = Kind::of(fd)?;
        match kind {
            Kind::Tcp | Kind::Socket => rustix::io::ioctl_fionbio(fd, true)?,
            // A pipe is ours; a terminal is shared with whoever started us, and must stay as it is.
            Kind::Bytes if is_fifo(fd)? => rustix::io::ioctl_fionbio(fd, true)?,
            Kind::Bytes | Kind::File => {}
        }
        Ok(kind)
    }

    /// Finds out what `fd` is.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> io::Result<Kind> {
        let file_type = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
        Ok(match file_type {
            FileType::Socket => {
                let stream = sockopt::socket_type(fd)? == SocketType::STREAM;
                let domain = sockopt::socket_domain(fd)?;
                let ip = domain == AddressFamily::INET || domain == AddressFamily::INET6;
                if stream && ip { Kind::Tcp } else { Kind::Socket }
            }
            FileType::RegularFile | FileType::Directory => Kind::File,
            _ => Kind::Bytes,
        })
    }

    pub(crate) fn is_socket(self) -> bool {
        matches!(self, Kind::Tcp | Kind::Socket)
    }

    /// Whether readiness makes sense.
    pub(crate) fn check_pollable(self) -> io::Result<()> {
        if self == Kind::File {
            // What epoll says by itself; poll and select would call it ready for ever.
            return Err(Errno::PERM.into());
        }
        Ok(())
    }
}

/// What tells a descriptor from all others that are open.
///
/// # Errors
/// It is not open.
#[doc(hidden)]
pub fn identity(fd: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn is_fifo(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) == FileType::Fifo)
}
