//! Where a server of several loops listens: for each loop a socket of its own, or its own copy of one.

use crate::options::{ServeOptions, suggest_another};
use coracle::net::{Address, ListenOptions, ListenSocket, SocketFile, ToAddresses};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Sockets that listen, before there is a loop.
pub(crate) struct Listening {
    sockets: Vec<ListenSocket>,
    options: ListenOptions,
}

/// A socket of one loop.
pub(crate) enum Socket {
    /// The kernel gives each loop its share of the connections.
    Tcp(OwnedFd),
    /// The same for all loops: whoever is first has the connection.
    Unix(OwnedFd),
}

impl Listening {
    /// Listens where the options say, or on `default`.
    pub(crate) fn bind(options: &ServeOptions, default: &str) -> io::Result<Listening> {
        Listening::try_bind(options, default).map_err(suggest_another)
    }

    fn try_bind(options: &ServeOptions, default: &str) -> io::Result<Listening> {
        let addresses = options.addresses(default).as_slice().to_addresses()?;
        // Sockets that share a port do not mind another server on it: ask first, as one that does not.
        for address in addresses.iter().filter(|it| it.ip().is_some_and(|ip| ip.port() != 0)) {
            drop(ListenSocket::bind(address, &ListenOptions::new())?);
        }
        let options = ListenOptions::new().reuse_port(true);
        let sockets = ListenSocket::bind_all(&addresses[..], &options)?;
        Ok(Listening { sockets, options })
    }

    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.sockets.iter().map(|socket| socket.local_address().clone()).collect()
    }

    /// The files of Unix sockets, which are removed when these are dropped.
    pub(crate) fn files(&self) -> Vec<SocketFile> {
        self.sockets.iter().filter_map(ListenSocket::file).collect()
    }

    /// The sockets of each of so many loops.
    pub(crate) fn for_loops(self, loops: usize) -> io::Result<Vec<Vec<Socket>>> {
        let mut all: Vec<Vec<Socket>> = (0..loops).map(|_| Vec::new()).collect();
        for first in self.sockets {
            let address = first.local_address().clone();
            for sockets in all.iter_mut().skip(1) {
                sockets.push(match address {
                    Address::Ip(_) => {
                        Socket::Tcp(ListenSocket::bind(&address, &self.options)?.into_fd())
                    }
                    Address::Unix(_) => Socket::Unix(first.as_fd().try_clone_to_owned()?),
                });
            }
            all[0].push(match address {
                Address::Ip(_) => Socket::Tcp(first.into_fd()),
                Address::Unix(_) => Socket::Unix(first.into_fd()),
            });
        }
        Ok(all)
    }
}

/// Whether that nobody can be accepted may be over soon.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|number| shortages.contains(&number))
}
