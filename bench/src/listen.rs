//! A listening socket with a long queue, for servers that must take ten thousand connections at once.

use std::io;
use std::net::{SocketAddr, TcpListener};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// Connections the kernel may hold before the server accepts them.
const BACKLOG: i32 = 4096;

/// Listens on `address`; `std` would do, but its backlog is short.
///
/// # Errors
/// When the address cannot be bound.
pub fn listen(address: SocketAddr, flags: SocketFlags) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, flags | SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}
