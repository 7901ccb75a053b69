//! A stream and its two halves: who reads, and who writes.

use super::wire::Wire;
use coracle_loop::Loop;
use coracle_loop::demux::{Address, Handle};
use futures_io::{AsyncRead, AsyncWrite};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The reading half of a [`TcpStream`](super::TcpStream) or [`UnixStream`](super::UnixStream).
///
/// When it is dropped, nothing more is received. When both halves are, the connection is closed.
pub struct ReadHalf(Rc<Wire>);

/// The writing half of a [`TcpStream`](super::TcpStream) or [`UnixStream`](super::UnixStream).
///
/// When it is dropped, what was written is sent, and then our side of the connection ends, as if it were
/// closed. When both halves are, the connection is closed.
pub struct WriteHalf(Rc<Wire>);

impl Drop for ReadHalf {
    fn drop(&mut self) {
        self.0.reader_left();
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        self.0.writer_left();
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_read(cx, space)
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_close(cx)
    }
}

impl fmt::Debug for ReadHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadHalf")
    }
}

impl fmt::Debug for WriteHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriteHalf")
    }
}

/// Both halves.
pub(super) struct Stream {
    reader: ReadHalf,
    writer: WriteHalf,
}

impl Stream {
    pub(super) fn new(lp: &Loop, socket: Handle, unread: Vec<u8>) -> Stream {
        let wire = Wire::new(lp, socket, unread);
        Stream { reader: ReadHalf(Rc::clone(&wire)), writer: WriteHalf(wire) }
    }

    /// Connects it. Whatever becomes of that, the socket is its own.
    pub(super) async fn connect(&self, address: Address) -> io::Result<()> {
        self.wire().connect(address);
        poll_fn(|cx| self.wire().poll_connected(cx)).await
    }

    pub(super) fn wire(&self) -> &Rc<Wire> {
        &self.reader.0
    }

    pub(super) fn split(self) -> (ReadHalf, WriteHalf) {
        (self.reader, self.writer)
    }

    pub(super) fn reader(&mut self) -> Pin<&mut ReadHalf> {
        Pin::new(&mut self.reader)
    }

    pub(super) fn writer(&mut self) -> Pin<&mut WriteHalf> {
        Pin::new(&mut self.writer)
    }
}

/// The traits of `futures-io`, for something whose `stream` is a [`Stream`].
macro_rules! delegate {
    ($name:ident) => {
        impl futures_io::AsyncRead for $name {
            fn poll_read(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                space: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.stream.reader().poll_read(cx, space)
            }
        }

        impl futures_io::AsyncWrite for $name {
            fn poll_write(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bytes: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.stream.writer().poll_write(cx, bytes)
            }

            fn poll_flush(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                self.stream.writer().poll_flush(cx)
            }

            fn poll_close(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                self.stream.writer().poll_close(cx)
            }
        }
    };
}
pub(super) use delegate;
