//! The calls of the seam that never wait, for the loop's users.

use crate::Loop;
use crate::lend;
use coracle_demux::{Address, Descriptor, Handle, SocketKind, SocketOption, TcpInfo};
use std::io;
use std::os::fd::AsRawFd;

/// Sockets. All of these are the loop thread's; none of them waits.
impl Loop {
    /// Makes a socket.
    pub fn socket(&self, kind: SocketKind) -> io::Result<Handle> {
        self.inner.demux.borrow_mut().socket(kind)
    }

    /// Makes two connected Unix stream sockets.
    pub fn socket_pair(&self) -> io::Result<(Handle, Handle)> {
        self.inner.demux.borrow_mut().socket_pair()
    }

    /// Makes a stream socket that listens on `address`.
    ///
    /// ```
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// let listener = lp.listen(&"127.0.0.1:0".parse().unwrap(), 128).unwrap();
    /// assert_ne!(lp.local_address(listener).unwrap().ip().unwrap().port(), 0);
    /// ```
    ///
    /// # Errors
    /// Names the address and the reason: in use, not of this machine, or not permitted.
    pub fn listen(&self, address: &Address, backlog: i32) -> io::Result<Handle> {
        let mut demux = self.inner.demux.borrow_mut();
        let socket = demux.socket(SocketKind::stream_for(address))?;
        let mut prepare = || {
            if address.ip().is_some() {
                demux.set_option(socket, SocketOption::ReuseAddress(true))?;
            }
            demux.bind(socket, address)?;
            demux.listen(socket, backlog)
        };
        match prepare() {
            Ok(()) => Ok(socket),
            Err(error) => {
                drop(demux.detach(socket)); // nothing is in flight: this closes it
                let text = format!("cannot listen on {address}: {error}");
                Err(io::Error::new(error.kind(), text))
            }
        }
    }

    /// Lets a bound socket accept connections: what [`listen`](Loop::listen) does at last, for who sets options of
    /// his own before.
    ///
    /// ```
    /// use coracle_loop::demux::{SocketKind, SocketOption};
    ///
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// let socket = lp.socket(SocketKind::Tcp4).unwrap();
    /// lp.set_option(socket, SocketOption::ReusePort(true)).unwrap();
    /// lp.bind(socket, &"127.0.0.1:0".parse().unwrap()).unwrap();
    /// lp.start_listening(socket, 128).unwrap();
    /// ```
    pub fn start_listening(&self, socket: Handle, backlog: i32) -> io::Result<()> {
        self.inner.demux.borrow_mut().listen(socket, backlog)
    }

    /// Gives a socket its local address.
    pub fn bind(&self, socket: Handle, address: &Address) -> io::Result<()> {
        self.inner.demux.borrow_mut().bind(socket, address)
    }

    /// Sets a socket option.
    pub fn set_option(&self, socket: Handle, option: SocketOption) -> io::Result<()> {
        self.inner.demux.borrow_mut().set_option(socket, option)
    }

    /// The address a socket is bound to.
    pub fn local_address(&self, socket: Handle) -> io::Result<Address> {
        self.inner.demux.borrow().local_address(socket)
    }

    /// The address of the other end.
    pub fn peer_address(&self, socket: Handle) -> io::Result<Address> {
        self.inner.demux.borrow().peer_address(socket)
    }

    /// What the kernel knows of a TCP connection: round-trip times, windows, losses.
    ///
    /// # Errors
    /// It is not TCP, or simulated.
    pub fn tcp_info(&self, socket: Handle) -> io::Result<TcpInfo> {
        self.inner.demux.borrow().tcp_info(socket)
    }

    /// How many bytes that were sent on a stream socket its peer has not acknowledged. A peer that takes
    /// something, but too little to make room for a send that waits, makes it fewer. A system call.
    ///
    /// # Errors
    /// It is no stream socket.
    pub fn unacknowledged_bytes(&self, socket: Handle) -> io::Result<usize> {
        self.inner.demux.borrow().unacknowledged_bytes(socket)
    }

    /// Whether there are bytes of a [tried send](Loop::try_send) that the kernel has not taken yet, and that
    /// closing the socket now might give up; or one has failed, and nobody was told.
    ///
    /// ```
    /// # let lp = coracle_loop::Loop::new()?;
    /// let (a, b) = lp.socket_pair()?;
    /// assert!(!lp.is_carrying(a));
    /// # drop(b);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_carrying(&self, socket: Handle) -> bool {
        self.inner.demux.borrow().is_carrying(socket)
    }

    /// The number that the operating system has for a descriptor, to be shown to people: `lsof` and `ss` know it.
    /// A simulated one has none, nor has one that is closed.
    ///
    /// ```
    /// # let lp = coracle_loop::Loop::builder().backend(coracle_loop::demux::Backend::Poll).build()?;
    /// let (one, other) = lp.socket_pair()?;
    /// assert_ne!(lp.number(one).unwrap(), lp.number(other).unwrap());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn number(&self, handle: Handle) -> Option<i32> {
        self.inner.demux.borrow().number(handle)
    }

    /// Takes over a descriptor of the operating system, or one [detached](Loop::detach) from another loop.
    pub fn adopt(&self, descriptor: impl Into<Descriptor>) -> io::Result<Handle> {
        let descriptor = descriptor.into();
        if let Descriptor::Os(fd) = &descriptor {
            self.reclaim_number(fd.as_raw_fd()); // a hooked call may have waited for it
            lend::changes_owner(fd.as_raw_fd());
        }
        self.inner.demux.borrow_mut().adopt(descriptor)
    }

    /// Gives up a descriptor on which nothing is in flight, so that another loop can adopt it.
    pub fn detach(&self, handle: Handle) -> io::Result<Descriptor> {
        let descriptor = self.inner.demux.borrow_mut().detach(handle)?;
        if let Descriptor::Os(fd) = &descriptor {
            lend::changes_owner(fd.as_raw_fd());
        }
        Ok(descriptor)
    }
}
