//! TCP and Unix sockets alike, for code that does not mind.

use coracle::coro::net::{ReadAhead, TcpListener, TcpStream, UnixListener, UnixStream};
use coracle::demux::SocketOption;
use std::io::{self, Read, Write};
use std::net::Shutdown;

/// A connection.
pub(crate) trait Stream: Read + Write + Sized + 'static {
    /// Another owner of the same connection, who reads it ahead, if that can be.
    type Ahead: Read;

    fn read_ahead(&self) -> io::Result<Self::Ahead>;

    /// Another owner of the same connection.
    fn share(&self) -> io::Result<Self>;

    /// Tells the peer that no more will come.
    fn end(&self) -> io::Result<()>;

    /// Closes it for all owners, who are told, if they wait; and not in order: the peer must not believe that
    /// this was all.
    fn break_off(&self);
}

impl Stream for TcpStream {
    type Ahead = ReadAhead<TcpStream>;

    fn read_ahead(&self) -> io::Result<ReadAhead<TcpStream>> {
        Ok(self.try_clone()?.read_ahead())
    }

    #[inline]
    fn share(&self) -> io::Result<TcpStream> {
        self.try_clone()
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn break_off(&self) {
        // Both fail when the connection is gone, and then there is nobody to be told.
        let _ = self.set_option(SocketOption::ResetOnClose(true));
        let _ = self.close();
    }
}

impl Stream for UnixStream {
    type Ahead = ReadAhead<UnixStream>;

    fn read_ahead(&self) -> io::Result<ReadAhead<UnixStream>> {
        Ok(self.try_clone()?.read_ahead())
    }

    #[inline]
    fn share(&self) -> io::Result<UnixStream> {
        self.try_clone()
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn break_off(&self) {
        let _ = self.close(); // it only knows proper ends
    }
}

/// What connections come from.
pub(super) trait Listener {
    type Stream: Stream;

    fn accept(&self) -> io::Result<Self::Stream>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn accept(&self) -> io::Result<TcpStream> {
        Ok(self.accept()?.0)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.accept()?.0)
    }
}
