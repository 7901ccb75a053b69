//! A worker process: what its supervisor has left it, which is an index, listening sockets, and a way to say
//! that it serves.
//!
//! A [`Supervisor`](crate::Supervisor) starts the program again with these variables in its environment:
//!
//! ```text
//!   CORACLE_SUPERVISOR=4711    the process that did it; whoever has another parent is no worker
//!   CORACLE_WORKER=2           which worker this is, from 0 on
//!   CORACLE_SOCKETS=3,5        descriptors that listen, in the order in which they were bound
//!   CORACLE_READY=9            a socket for one byte: "I serve"
//! ```
//!
//! The descriptors keep the numbers they have in the supervisor. Moving them to 3, 4, … between `fork` and
//! `exec` could overwrite the pipe on which the standard library tells the parent that `exec` failed.
#![allow(unsafe_code)]

use crate::bind::{ListenSocket, is_missing};
use crate::listen_options::ListenOptions;
use coracle_loop::demux::Address;
use rustix::io::{Errno, FdFlags};
use rustix::process::{Pid, getppid};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub(crate) const SUPERVISOR: &str = "CORACLE_SUPERVISOR";
pub(crate) const WORKER: &str = "CORACLE_WORKER";
pub(crate) const SOCKETS: &str = "CORACLE_SOCKETS";
pub(crate) const READY: &str = "CORACLE_READY";

/// This process, when a [`Supervisor`](crate::Supervisor) has started it.
///
/// A [`Server`](crate::Server) in a worker needs nothing of this: it takes the sockets it is told to bind from
/// what was inherited, and says itself that it serves. Bind all servers before the first serves: what nobody
/// has asked for by then is closed.
///
/// ```
/// use coracle_net::Worker;
///
/// match Worker::current() {
///     Some(worker) => println!("worker {}", worker.index()),
///     None => println!("started by hand"),
/// }
/// ```
///
/// # Threads
/// Any.
#[derive(Debug)]
pub struct Worker {
    index: usize,
    /// Those that nobody has asked for yet.
    sockets: Mutex<Vec<ListenSocket>>,
    /// Where to say that it serves; `None` once it was said.
    ready: Mutex<Option<OwnedFd>>,
}

impl Worker {
    /// The worker that this process is, if it is one.
    pub fn current() -> Option<&'static Worker> {
        static CURRENT: OnceLock<Option<Worker>> = OnceLock::new();
        CURRENT.get_or_init(Worker::from_environment).as_ref()
    }

    /// Which of the workers this is, from 0 on. The one that replaces it has the same.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Tells the supervisor that this worker serves, so that it may dismiss the one that this replaces, and
    /// that it is prepared to be asked to end. Only the first time counts.
    ///
    /// [`Server::serve`](crate::Server::serve),
    /// [`Running::serve_until_terminated`](crate::Running::serve_until_terminated) and
    /// [`Running::join`](crate::Running::join) say it by themselves.
    ///
    /// Inherited sockets that nobody has asked for are closed, with a warning.
    pub fn ready(&self) {
        let Some(ready) = lock(&self.ready).take() else { return };
        for socket in lock(&self.sockets).drain(..) {
            let address = socket.local_address();
            tracing::warn!(
                "nobody in this worker listens on {address}, which it inherited: closed"
            );
        }
        // When the supervisor is gone, so is this process, very soon.
        let _ = rustix::io::write(&ready, &[1]);
    }

    fn from_environment() -> Option<Worker> {
        // Programs that a worker starts inherit its environment, but neither its parent nor its sockets.
        if getppid() != Pid::from_raw(variable(SUPERVISOR)?) {
            return None;
        }
        let index = variable(WORKER)?;
        let numbers = std::env::var(SOCKETS).unwrap_or_default();
        let numbers = numbers.split(',').filter(|number| !number.is_empty());
        let inherit_socket = |number: &str| -> Option<ListenSocket> {
            let fd = inherit(number.parse().ok()?).and_then(ListenSocket::from_fd);
            fd.inspect_err(|error| tracing::error!("cannot inherit a socket: {error}")).ok()
        };
        let sockets = numbers.filter_map(inherit_socket).collect();
        let ready = variable(READY).and_then(|number| inherit(number).ok());
        if let Some(ready) = &ready {
            // Not for the programs that this one starts.
            let _ = rustix::io::fcntl_setfd(ready, FdFlags::CLOEXEC);
        }
        Some(Worker { index, sockets: Mutex::new(sockets), ready: Mutex::new(ready) })
    }

    /// A socket for each address: inherited, or else bound as ever.
    pub(crate) fn bind_all(
        &self,
        addresses: &[Address],
        options: &ListenOptions,
    ) -> io::Result<Vec<ListenSocket>> {
        let mut sockets = Vec::with_capacity(addresses.len());
        let mut missing = None;
        for address in addresses {
            if let Some(socket) = self.take(address) {
                sockets.push(socket);
                continue;
            }
            match ListenSocket::bind(address, options) {
                Ok(socket) => {
                    tracing::debug!("{address} was not inherited: bound by this worker alone");
                    sockets.push(socket);
                }
                Err(error) if is_missing(&error) => missing = missing.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        match missing {
            Some(error) if sockets.is_empty() => Err(error),
            _ => Ok(sockets),
        }
    }

    fn take(&self, address: &Address) -> Option<ListenSocket> {
        let mut sockets = lock(&self.sockets);
        let at = sockets.iter().position(|it| is_answered_by(address, it.local_address()))?;
        Some(sockets.remove(at))
    }
}

/// Whether a socket bound to `bound` is what somebody gets who asks for `asked`.
fn is_answered_by(asked: &Address, bound: &Address) -> bool {
    let (Address::Ip(asked), Address::Ip(bound)) = (asked, bound) else { return asked == bound };
    let mut asked = *asked;
    if asked.port() == 0 {
        asked.set_port(bound.port()); // whichever the kernel has chosen
    }
    let any = |ip: IpAddr| ip == Ipv6Addr::UNSPECIFIED || ip == Ipv4Addr::UNSPECIFIED;
    // Where there is no IPv6, [::] was bound as 0.0.0.0.
    let every_interface = asked.is_ipv6() && any(asked.ip()) && any(bound.ip());
    asked == *bound || (every_interface && asked.port() == bound.port())
}

/// Takes over a descriptor that was open when this program began.
fn inherit(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: it is not -1, and is borrowed for a question to which "there is no such descriptor" is an answer.
    let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) })?;
    if flags.contains(FdFlags::CLOEXEC) {
        // It cannot have come through `exec`: this program has opened it, so somebody here owns it.
        return Err(Errno::BADF.into());
    }
    // SAFETY: it is open, and the supervisor has left it to whoever reads this variable. That is this function
    // only, once for each number: `Worker::current` keeps what it returns.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(asked: &str, bound: &str) -> bool {
        is_answered_by(&asked.parse().unwrap(), &bound.parse().unwrap())
    }

    #[test]
    fn socket_is_found_by_its_address() {
        assert!(answered("127.0.0.1:7000", "127.0.0.1:7000"));
        assert!(!answered("127.0.0.1:7000", "127.0.0.1:7001"));
        assert!(!answered("127.0.0.1:7000", "127.0.0.2:7000"));
        assert!(!answered("127.0.0.1:7000", "[::1]:7000"));
        assert!(answered("unix:/run/a", "unix:/run/a"));
        assert!(!answered("unix:/run/a", "unix:/run/b"));
        assert!(!answered("unix:@a", "127.0.0.1:7000"));
    }

    #[test]
    fn any_port_is_whichever_was_chosen() {
        assert!(answered("127.0.0.1:0", "127.0.0.1:7000"));
        assert!(!answered("127.0.0.1:0", "[::1]:7000"));
    }

    #[test]
    fn every_interface_is_that_of_ipv4_where_there_is_no_other() {
        assert!(answered("[::]:7000", "0.0.0.0:7000"));
        assert!(!answered("[::]:7000", "0.0.0.0:7001"));
        assert!(!answered("0.0.0.0:7000", "[::]:7000"));
        assert!(!answered("[::1]:7000", "0.0.0.0:7000"));
    }

    #[test]
    fn descriptor_that_this_program_has_opened_is_not_inherited() {
        use std::os::fd::AsRawFd;
        let ours = std::fs::File::open("/dev/null").unwrap();
        let error = inherit(ours.as_raw_fd()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()));
        assert!(inherit(-1).is_err());
        ours.metadata().expect("it is open still");
    }
}
