//! The traits of tokio's I/O, for who expects them: `h2`, `tokio-rustls`, `tokio-util`'s codecs. There is no
//! runtime of tokio's in it: whoever waits is woken by the loop.

use super::stream::{ReadHalf, WriteHalf};
use super::{TcpStream, UnixStream};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

macro_rules! read {
    ($name:ident) => {
        impl AsyncRead for $name {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                space: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                if space.remaining() == 0 {
                    return Poll::Ready(Ok(()));
                }
                let unfilled = space.initialize_unfilled();
                let count = ready!(futures_io::AsyncRead::poll_read(self, cx, unfilled))?;
                space.advance(count);
                Poll::Ready(Ok(()))
            }
        }
    };
}

macro_rules! write {
    ($name:ident) => {
        impl AsyncWrite for $name {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                futures_io::AsyncWrite::poll_write(self, cx, bytes)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                futures_io::AsyncWrite::poll_flush(self, cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                futures_io::AsyncWrite::poll_close(self, cx)
            }
        }
    };
}

read!(TcpStream);
read!(UnixStream);
read!(ReadHalf);
write!(TcpStream);
write!(UnixStream);
write!(WriteHalf);
