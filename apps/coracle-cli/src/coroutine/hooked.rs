//! `--style hook`: the same servers over the sockets of std, whose calls park their coroutine.
#![allow(unsafe_code)]

use super::stream::{Listener, Stream};
use crate::listening::is_shortage;
use coracle::hook::Settings;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

/// How long to wait before the next try, when nobody can be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// From now on, blocking calls of coroutines park them.
pub(super) fn enable() {
    // SAFETY: this program has no code of its own that takes its thread for its own, and what its coroutines
    // call are sockets of std, each its own; its log goes to standard error, where nobody is parked.
    unsafe { coracle::hook::enable_with(Settings { sending: true, ..Settings::default() }) };
}

impl Stream for TcpStream {
    type Ahead = TcpStream;

    fn read_ahead(&self) -> io::Result<TcpStream> {
        self.try_clone()
    }

    fn share(&self) -> io::Result<TcpStream> {
        self.try_clone()
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn break_off(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Stream for UnixStream {
    type Ahead = UnixStream;

    fn read_ahead(&self) -> io::Result<UnixStream> {
        self.try_clone()
    }

    fn share(&self) -> io::Result<UnixStream> {
        self.try_clone()
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn break_off(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn accept(&self) -> io::Result<TcpStream> {
        TcpListener::accept(self).map(|(stream, _)| stream).inspect_err(rest)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    fn accept(&self) -> io::Result<UnixStream> {
        UnixListener::accept(self).map(|(stream, _)| stream).inspect_err(rest)
    }
}

/// Nobody can be accepted at the moment: whoever tries again at once only finds the same.
fn rest(error: &io::Error) {
    if is_shortage(error) {
        thread::sleep(PAUSE);
    }
}
