//! How a socket listens: what is decided before the first connection comes.
//!
//! Linux gives an accepted TCP connection the options of the socket it came through, so what is set here costs one
//! system call for all connections instead of one for each.

use coracle_loop::demux::{KeepAlive, SocketOption, set_option};
use rustix::fd::BorrowedFd;
use rustix::net::AddressFamily;
use std::io;
use std::time::Duration;

/// Connections that wait to be accepted. Linux takes the smaller of this and `net.core.somaxconn`, itself
/// 4096 since Linux 5.4: a burst is for the system's administrator to bound, not for us.
const BACKLOG: i32 = 4096;

/// How to listen.
///
/// ```
/// use coracle_net::{ListenOptions, ListenSocket};
///
/// let options = ListenOptions::new().backlog(128).reuse_port(true);
/// let first = ListenSocket::bind(&"127.0.0.1:0".parse().unwrap(), &options).unwrap();
/// let second = ListenSocket::bind(first.local_address(), &options).unwrap();
/// assert_eq!(first.local_address(), second.local_address());
/// ```
///
/// What the kind of socket does not have is passed over: one value serves a list of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenOptions {
    pub(crate) backlog: i32,
    pub(crate) reuse_port: bool,
    pub(crate) only_v6: bool,
    pub(crate) unix_mode: Option<u32>,
    no_delay: bool,
    keep_alive: Option<KeepAlive>,
    defer_accept: Option<Duration>,
    fast_open: Option<u32>,
    receive_buffer_bytes: Option<usize>,
    send_buffer_bytes: Option<usize>,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions {
            backlog: BACKLOG,
            reuse_port: false,
            only_v6: false,
            unix_mode: None,
            no_delay: true,
            keep_alive: None,
            defer_accept: None,
            fast_open: None,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
        }
    }
}

impl ListenOptions {
    /// The defaults, which each method names.
    ///
    /// ```
    /// # use coracle_net::ListenOptions;
    /// assert_eq!(ListenOptions::new(), ListenOptions::default());
    /// ```
    pub fn new() -> ListenOptions {
        ListenOptions::default()
    }

    /// How many connections may wait to be accepted: 4096, and never more than `net.core.somaxconn`.
    ///
    /// ```
    /// # use coracle_net::ListenOptions;
    /// let options = ListenOptions::new().backlog(128);
    /// # assert_ne!(options, ListenOptions::new());
    /// ```
    pub fn backlog(mut self, connections: u32) -> ListenOptions {
        self.backlog = i32::try_from(connections).unwrap_or(i32::MAX);
        self
    }

    /// Lets several sockets listen on one port, the kernel spreading connections over them (SO_REUSEPORT). Off.
    ///
    /// Every socket there must ask for it, and belong to the same user. Unix sockets have it not: share one with
    /// [`try_clone`](crate::ListenSocket::try_clone).
    ///
    /// ```
    /// # use coracle_net::ListenOptions;
    /// let options = ListenOptions::new().reuse_port(true);
    /// # assert_ne!(options, ListenOptions::new());
    /// ```
    pub fn reuse_port(mut self, on: bool) -> ListenOptions {
        self.reuse_port = on;
        self
    }

    /// Keeps IPv4 away from `[::]` (IPV6_V6ONLY). Off: `[::]` takes both, whatever `net.ipv6.bindv6only` says.
    ///
    /// ```
    /// # use coracle_net::ListenOptions;
    /// let options = ListenOptions::new().only_v6(true);
    /// # assert_ne!(options, ListenOptions::new());
    /// ```
    pub fn only_v6(mut self, on: bool) -> ListenOptions {
        self.only_v6 = on;
        self
    }

    /// The mode of a Unix socket's file. By default what the process's umask leaves.
    ///
    /// To connect, a program needs the right to write to the file (and to pass through its directories).
    ///
    /// ```
    /// # use coracle_net::ListenOptions;
    /// let options = ListenOptions::new().unix_mode(0o660); // the owner and the group
    /// # assert_ne!(options, ListenOptions::new());
    /// ```
    pub fn unix_mode(mut self, mode: u32) -> ListenOptions {
        self.unix_mode = Some(mode);
        self
    }

    /// Whether accepted TCP connections send small packets at once (TCP_NODELAY). On.
    ///
    /// Off, an answer written in two pieces waits for the peer's delayed acknowledgement: 40 ms on Linux.
    ///
    /// ```
    /// # use coracle_net::ListenOptions;
    /// let options = ListenOptions::new().no_delay(false);
    /// # assert_ne!(options, ListenOptions::new());
    /// ```
    pub fn no_delay(mut self, on: bool) -> ListenOptions {
        self.no_delay = on;
        self
    }

    /// Probes the peer of an accepted TCP connection that has been idle for so long (SO_KEEPALIVE). Off.
    ///
    /// How often it then probes, and when it gives up, is up to the system, or to you with a [`KeepAlive`].
    ///
    /// ```
    /// use coracle_net::{KeepAlive, ListenOptions};
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_secs(60);
    /// let options = ListenOptions::new().keep_alive(minute);
    /// let probes = KeepAlive { interval: Some(minute / 6), count: Some(3), ..KeepAlive::from(minute) };
    /// let strict = ListenOptions::new().keep_alive(probes);
    /// # assert_ne!(options, strict);
    /// ```
    pub fn keep_alive(mut self, probes: impl Into<KeepAlive>) -> ListenOptions {
        self.keep_alive = Some(probes.into());
        self
    }

    /// Leaves a TCP connection with the kernel until its first bytes are there, or for about so long
    /// (TCP_DEFER_ACCEPT). Off.
    ///
    /// For protocols in which the peer speaks first: whoever connects and says nothing costs no descriptor until
    /// then. A server that greets must not use it, or its peers wait. Linux counts in retransmissions, after
    /// 1, 3, 7, 15 … seconds.
    ///
    /// ```
    /// # use coracle_net::ListenOptions;
    /// use std::time::Duration;
    ///
    /// let options = ListenOptions::new().defer_accept(Duration::from_secs(5));
    /// # assert_ne!(options, ListenOptions::new());
    /// ```
    pub fn defer_accept(mut self, patience: Duration) -> ListenOptions {
        self.defer_accept = Some(patience);
        self
    }

    /// Takes bytes with the first packet of a peer that was here before (TCP_FASTOPEN, RFC 7413), which saves a
    /// round trip; at most so many such connections may wait. Off.
    ///
    /// Such a packet may come twice: only for requests that may be answered twice. Linux wants the second bit of
    /// `net.ipv4.tcp_fastopen` set.
    ///
    /// ```
    /// # use coracle_net::ListenOptions;
    /// let options = ListenOptions::new().fast_open(256);
    /// # assert_ne!(options, ListenOptions::new());
    /// ```
    pub fn fast_open(mut self, waiting: u32) -> ListenOptions {
        self.fast_open = Some(waiting);
        self
    }

    /// The kernel's receive buffer of each accepted TCP connection (SO_RCVBUF; the kernel doubles it). By
    /// default the kernel adapts it, which is better for most.
    ///
    /// It must be set before listening: TCP agrees on its window's scale in the first packets.
    ///
    /// ```
    /// # use coracle_net::ListenOptions;
    /// let options = ListenOptions::new().receive_buffer_bytes(64 << 10);
    /// # assert_ne!(options, ListenOptions::new());
    /// ```
    pub fn receive_buffer_bytes(mut self, bytes: usize) -> ListenOptions {
        self.receive_buffer_bytes = Some(bytes);
        self
    }

    /// The kernel's send buffer of each accepted TCP connection (SO_SNDBUF; the kernel doubles it). By default the
    /// kernel adapts it, which is better for most.
    ///
    /// ```
    /// # use coracle_net::ListenOptions;
    /// let options = ListenOptions::new().send_buffer_bytes(64 << 10);
    /// # assert_ne!(options, ListenOptions::new());
    /// ```
    pub fn send_buffer_bytes(mut self, bytes: usize) -> ListenOptions {
        self.send_buffer_bytes = Some(bytes);
        self
    }

    /// Sets on a new TCP socket what must be set before it is bound.
    pub(crate) fn apply(&self, socket: BorrowedFd<'_>, family: AddressFamily) -> io::Result<()> {
        use SocketOption::{
            DeferAccept, FastOpen, NoDelay, OnlyV6, ReceiveBuffer, ReuseAddress, ReusePort,
            SendBuffer,
        };
        let options = [
            // So that a restart need not wait a minute for the last connections to be forgotten (TIME_WAIT). On
            // Linux it does not let two sockets listen on one port.
            Some(ReuseAddress(true)),
            self.reuse_port.then_some(ReusePort(true)),
            (family == AddressFamily::INET6).then_some(OnlyV6(self.only_v6)),
            Some(NoDelay(self.no_delay)),
            self.defer_accept.map(|patience| DeferAccept(Some(patience))),
            self.fast_open.map(FastOpen),
            self.receive_buffer_bytes.map(ReceiveBuffer),
            self.send_buffer_bytes.map(SendBuffer),
        ];
        options.into_iter().flatten().try_for_each(|option| set_option(socket, option))?;
        let Some(probes) = self.keep_alive else { return Ok(()) };
        set_option(socket, SocketOption::KeepAlive(Some(probes))).map_err(|error| {
            let text = format!("keep_alive({probes:?}): {error} (1 to 32767 seconds, 127 probes)");
            io::Error::new(error.kind(), text)
        })
    }
}
