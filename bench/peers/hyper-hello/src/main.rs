//! A short page on hyper: threads that each have a current-thread runtime and a listening socket.
//!
//! Fast settings: answers to pipelined requests are flushed together, no timer driver and no time-out for headers,
//! no delay of small segments, small buffers,
//! `half_close` off (hyper's default), nothing shared between threads.
//!
//! ```text
//! cargo run --release -p hyper-hello -- --listen 127.0.0.1:7000 --threads 2
//! ```

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::thread;

use clap::Parser;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;
use tokio::task::LocalSet;

/// Connections the kernel may hold before the server accepts them.
const BACKLOG: u32 = 4096;
/// The page.
const BODY: &[u8] = b"hello, world\n";
const KIND: &str = "text/plain; charset=utf-8";

#[derive(Parser)]
#[command(about = "A short page on hyper")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
    /// How many threads serve.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Speak HTTP/2 and nothing else (prior knowledge).
    #[arg(long)]
    http2: bool,
}

fn main() -> io::Result<()> {
    let Arguments { listen, threads, http2 } = Arguments::parse();
    for _ in 1..threads {
        thread::spawn(move || serve(listen, true, http2));
    }
    serve(listen, threads > 1, http2)
}

/// Serves on this thread.
fn serve(listen: SocketAddr, shared: bool, http2: bool) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    LocalSet::new().block_on(&runtime, accept(listen, shared, http2))
}

async fn accept(listen: SocketAddr, shared: bool, http2: bool) -> io::Result<()> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(shared)?;
    socket.bind(listen)?;
    let listener = socket.listen(BACKLOG)?;
    loop {
        let (stream, _peer) = listener.accept().await?;
        stream.set_nodelay(true)?;
        if http2 {
            let connection = http2::Builder::new(Local)
                .serve_connection(TokioIo::new(stream), service_fn(hello));
            tokio::task::spawn_local(async move { connection.await.ok() });
            continue;
        }
        let connection = http1::Builder::new()
            .pipeline_flush(true)
            .serve_connection(TokioIo::new(stream), service_fn(hello));
        // A connection that fails ends; the server goes on.
        tokio::task::spawn_local(async move { connection.await.ok() });
    }
}

/// Streams of HTTP/2 are tasks of this thread, too.
#[derive(Clone)]
struct Local;

impl<F: Future<Output: 'static> + 'static> Executor<F> for Local {
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(stream);
    }
}

/// As the others answer: with the kind of the page. Its length and the date are hyper's own.
async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(BODY)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(KIND));
    Ok(response)
}
