//! `ping`: the load generator. Ping-pong over N connections, every answer checked.
//!
//! Each connection sends one message, waits for the whole echo, compares it, and sends the next, which
//! differs. It runs on io_uring with everything that makes a client cheap, because it has to keep a
//! server busy from one core: if the server had to wait for the load, batches would be small, wake-ups
//! would dominate, and all servers would look alike.
//!
//! - multishot receives into provided buffers, sends without a completion of their own (the echo proves
//!   that the message has left the buffer), registered descriptors;
//! - it spins for an answer rather than sleep, so that the server does not pay for waking it;
//! - the cheapest congestion control; one look at the clock per turn; latencies are sampled.
//!
//! ```text
//! cargo run --release --bin ping -- --connect 127.0.0.1:7000 --connections 64 --seconds 3
//! ```
//! For a proxy, `--serve ADDRESS` makes it the server behind it as well, on the same ring: one process at both
//! ends is cheaper than two that share a core.
//!
//! ```text
//!  connection 3 ──► proxy ──► connection N + 3: echoed when the message is complete
//! ```
//! With `--burst`, the server is stopped while the messages are sent, and `ping` sleeps while it answers: all
//! cores are the server's then, and the time it takes is the time of a load that costs nothing.
//!
//! Prints one line of JSON ([`LoadReport`]). It talks to loopback only, and always for a bounded time.

#![allow(unsafe_code)]

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use harness::buffer_ring::BufferRing;
use harness::listen::listen;
use harness::load::{LoadReport, tell};
use harness::load_ring::{
    self, GROUP, SEND, SUBMISSIONS, Submissions, check_loopback, fault, prepared,
};
use harness::snapshot::Snapshot;
use harness::stage;
use hdrhistogram::Histogram;
use io_uring::cqueue::{self, CompletionQueue};
use rustix::io::Errno;
use rustix::net::SocketFlags;

/// A receive buffer is as large as a message, up to this.
const LIMIT_BUFFER_BYTES: usize = 16 * 1024;
/// At most this many receive buffers: the kernel's own limit.
const LIMIT_BUFFERS: usize = 32 * 1024;
/// One answer in this many has its latency recorded.
const SAMPLE: u64 = 8;

#[derive(Parser)]
#[command(about = "Ping-pong load over loopback; prints one line of JSON")]
struct Arguments {
    /// The server, on a loopback address.
    #[arg(long)]
    connect: SocketAddr,
    /// How many connections to keep busy.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// The length of a message.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    bytes: u32,
    /// Measure for so long.
    #[arg(long, default_value_t = 3.0, conflicts_with = "count")]
    seconds: f64,
    /// Run for so long before measuring.
    #[arg(long, default_value_t = 0.5, conflicts_with = "count")]
    warmup: f64,
    /// Instead of a time: exactly so many messages.
    #[arg(long)]
    count: Option<u64>,
    /// The same in stages: it stops itself (SIGSTOP) when so many are answered, and again when so many more are.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["count", "seconds", "warmup", "lockstep"])]
    stages: Vec<u64>,
    /// Give up after so long, whatever has been asked for.
    #[arg(long, default_value_t = 600.0)]
    limit_seconds: f64,
    /// Give up when there was no answer for so long.
    #[arg(long, default_value_t = 10.0)]
    limit_silence: f64,
    /// Answer nothing before everything is answered, and sleep meanwhile: for a server on the same core.
    #[arg(long)]
    lockstep: bool,
    /// Stop the watched processes while the messages of a round are sent, and time the answering alone.
    #[arg(long, requires = "lockstep", requires = "watch")]
    burst: bool,
    /// Echo here whatever arrives on as many connections: the server behind a proxy.
    #[arg(long, conflicts_with = "lockstep")]
    serve: Option<SocketAddr>,
    /// Report the processor time of these processes too (the server's).
    #[arg(long, value_delimiter = ',')]
    watch: Vec<u32>,
}

fn main() -> ExitCode {
    tell("ping", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> io::Result<LoadReport> {
    check_loopback(arguments.connect)?;
    if arguments.burst && arguments.connections > SUBMISSIONS / 2 {
        return Err(io::Error::other(format!("a burst has at most {} messages", SUBMISSIONS / 2)));
    }
    let far = arguments.serve.map(|address| listen(address, SocketFlags::NONBLOCK)).transpose()?;
    let mut sockets = connect_all(arguments.connect, arguments.connections)?;
    let near = sockets.len();
    if let Some(far) = far {
        let limit = Duration::from_secs_f64(arguments.limit_silence);
        sockets.extend(accept_all(&far, near, limit)?);
    }
    // Declared before the ring, so that it is dropped after it.
    let buffers;
    let mut ring = load_ring::open(&sockets)?;
    let count = sockets.len().next_power_of_two().clamp(256, LIMIT_BUFFERS) as u16;
    let bytes = arguments.bytes as usize;
    let buffer_bytes = bytes.clamp(64, LIMIT_BUFFER_BYTES) as u32;
    buffers = BufferRing::register(&ring.submitter(), GROUP, count, buffer_bytes)?;

    let (submitter, queue, completions) = ring.split();
    let mut load = Load {
        submissions: Submissions::new(submitter, queue),
        buffers,
        connections: vec![Connection { sequence: 0, sent_at: 0, received: 0 }; sockets.len()],
        near,
        messages: messages(sockets.len(), bytes),
        bytes,
        starved: Vec::new(),
        remaining: arguments.stages.first().copied().or(arguments.count).unwrap_or(u64::MAX),
        outstanding: 0,
        answered: 0,
        answering: Duration::ZERO,
        latency: Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("valid bounds"),
    };
    let report = load.measure(completions, arguments)?;
    // The kernel takes a ring apart some time after its process has gone, and would close the sockets
    // only then. Who counts what the server does wants them closed now.
    for socket in &sockets[..near] {
        socket.shutdown(Shutdown::Both)?;
    }
    Ok(report)
}

fn connect_all(address: SocketAddr, count: u32) -> io::Result<Vec<TcpStream>> {
    (0..count).map(|_| prepared(TcpStream::connect(address)?)).collect()
}

/// Takes `count` connections, which a proxy makes for those that were made to it.
fn accept_all(listener: &TcpListener, count: usize, limit: Duration) -> io::Result<Vec<TcpStream>> {
    let start = Instant::now();
    let mut sockets = Vec::with_capacity(count);
    while sockets.len() < count {
        match listener.accept() {
            Ok((socket, _)) => sockets.push(prepared(socket)?),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if start.elapsed() < limit => thread::sleep(Duration::from_millis(1)),
            Err(_) => {
                let came = sockets.len();
                return Err(io::Error::other(format!(
                    "of {count} connections, {came} came through"
                )));
            }
        }
    }
    Ok(sockets)
}

/// One message per connection; its first eight bytes are a counter, the rest never changes.
fn messages(connections: usize, bytes: usize) -> Vec<u8> {
    (0..connections * bytes).map(|index| (index % 251) as u8).collect()
}

#[derive(Clone)]
struct Connection {
    sequence: u64,
    /// Nanoseconds since the start.
    sent_at: u64,
    /// How much of the echo, or of what is to be echoed, has arrived.
    received: usize,
}

struct Load<'ring> {
    submissions: Submissions<'ring>,
    buffers: BufferRing,
    connections: Vec<Connection>,
    /// How many of them are ours; the others are the far ends of a proxy's.
    near: usize,
    /// What each connection has in flight, one after the other.
    messages: Vec<u8>,
    bytes: usize,
    /// Connections whose receive ended because no buffer was free.
    starved: Vec<u32>,
    /// Messages that may still be sent.
    remaining: u64,
    /// Messages sent and not yet answered.
    outstanding: usize,
    answered: u64,
    /// How long bursts took to be answered.
    answering: Duration,
    latency: Histogram<u64>,
}

impl Load<'_> {
    fn measure(
        &mut self,
        mut completions: CompletionQueue<'_>,
        arguments: &Arguments,
    ) -> io::Result<LoadReport> {
        let counting = arguments.count.is_some() || !arguments.stages.is_empty();
        let mut stages = arguments.stages.iter().skip(1);
        let warmup = if counting { 0.0 } else { arguments.warmup };
        let warm_at = Duration::from_secs_f64(warmup);
        let end_at = warm_at + Duration::from_secs_f64(arguments.seconds);
        let limit = Duration::from_secs_f64(arguments.limit_seconds);
        let limit_silence = Duration::from_secs_f64(arguments.limit_silence);

        let start = Instant::now();
        let mut begin = None;
        let mut end = None;
        let mut last_answer = (Duration::ZERO, 0);
        for index in 0..self.connections.len() as u32 {
            self.submissions.receive(index);
        }
        self.send_first(0);
        while self.outstanding > 0 {
            if arguments.burst {
                let want = self.outstanding as u32;
                self.answering += self.submissions.burst(&arguments.watch, want)?;
                completions.sync();
            } else if arguments.lockstep {
                self.submissions.enter(self.outstanding as u32)?;
                completions.sync();
            } else {
                self.submissions.submit_and_wait(&mut completions)?;
            }
            let now = start.elapsed();
            if begin.is_none() && now >= warm_at {
                self.latency.reset();
                begin = Some(self.snapshot(now, &arguments.watch)?);
            }
            for completion in &mut completions {
                self.complete(&completion, now.as_nanos() as u64)?;
            }
            completions.sync();
            if self.buffers.publish() {
                self.feed_starved();
            }

            if self.outstanding == 0 && !arguments.stages.is_empty() {
                stage::end()?;
                last_answer.0 = start.elapsed();
                self.remaining = stages.next().copied().unwrap_or(0);
                self.send_first(last_answer.0.as_nanos() as u64);
            }
            let time_is_up = !counting && now >= end_at;
            if end.is_none() && (time_is_up || self.outstanding == 0) {
                end = Some(self.snapshot(start.elapsed(), &arguments.watch)?);
                self.remaining = 0;
            }
            if self.answered > last_answer.1 {
                last_answer = (now, self.answered);
            } else if now.saturating_sub(last_answer.0) > limit_silence {
                return Err(io::Error::other(format!(
                    "no answer for {} s, {} outstanding",
                    arguments.limit_silence, self.outstanding
                )));
            }
            if now > limit {
                return Err(io::Error::other(format!("not done after {} s", limit.as_secs_f64())));
            }
        }
        let (Some(begin), Some(end)) = (begin, end) else {
            return Err(io::Error::other("the run ended before it was warm"));
        };
        Ok(begin.until(&end, self.near, self.bytes, &self.latency))
    }

    #[inline]
    fn complete(&mut self, completion: &cqueue::Entry, now: u64) -> io::Result<()> {
        let (token, result) = (completion.user_data(), completion.result());
        let index = token as u32;
        if token & SEND != 0 {
            return Err(fault(index, "cannot send", result));
        }
        if result > 0 {
            let id = cqueue::buffer_select(completion.flags()).expect("data comes in a buffer");
            if (index as usize) < self.near {
                self.answer(index, id, result as usize, now)?;
            } else {
                self.echo(index, id, result as usize)?;
            }
            if !cqueue::more(completion.flags()) {
                self.submissions.receive(index);
            }
            return Ok(());
        }
        if result == -Errno::NOBUFS.raw_os_error() {
            self.starved.push(index);
            return Ok(());
        }
        Err(fault(index, "closed by the server", result))
    }

    #[inline]
    fn answer(&mut self, index: u32, id: u16, len: usize, now: u64) -> io::Result<()> {
        let connection = &mut self.connections[index as usize];
        let from = index as usize * self.bytes + connection.received;
        let to = (index as usize + 1) * self.bytes;
        let expected = self.messages[from..to].get(..len);
        if expected != Some(self.buffers.bytes(id, len)) {
            return Err(fault(index, "wrong bytes", len as i32));
        }
        self.buffers.recycle(id);
        connection.received += len;
        if connection.received < self.bytes {
            return Ok(());
        }
        if connection.sequence.is_multiple_of(SAMPLE) {
            self.latency.saturating_record(now - connection.sent_at);
        }
        self.answered += 1;
        self.outstanding -= 1;
        self.send_next(index, now);
        Ok(())
    }

    /// Sends a message on each connection of ours.
    fn send_first(&mut self, now: u64) {
        for index in 0..self.near as u32 {
            self.send_next(index, now);
        }
    }

    #[inline]
    fn send_next(&mut self, index: u32, now: u64) {
        if self.remaining == 0 {
            return;
        }
        self.remaining -= 1;
        self.outstanding += 1;
        let connection = &mut self.connections[index as usize];
        connection.sequence += 1;
        connection.sent_at = now;
        connection.received = 0;
        let counter = (u64::from(index) << 40 | connection.sequence).to_le_bytes();
        let start = index as usize * self.bytes;
        let message = &mut self.messages[start..start + self.bytes];
        let head = self.bytes.min(counter.len());
        message[..head].copy_from_slice(&counter[..head]);
        self.send(index);
    }

    /// Sends the message of a connection.
    #[inline]
    fn send(&mut self, index: u32) {
        let start = index as usize * self.bytes;
        let message = &self.messages[start..start + self.bytes];
        // SAFETY: the message stays as it is until its echo has arrived (at the far end: until that has led to
        // the next message); `messages` never grows.
        unsafe { self.submissions.send(index, message) };
    }

    /// Keeps what has arrived at the far end of a proxy, and sends it back once it is a whole message.
    #[inline]
    fn echo(&mut self, index: u32, id: u16, len: usize) -> io::Result<()> {
        let connection = &mut self.connections[index as usize];
        let from = index as usize * self.bytes + connection.received;
        let to = (index as usize + 1) * self.bytes;
        let Some(place) = self.messages[from..to].get_mut(..len) else {
            return Err(fault(index, "more than a message", len as i32));
        };
        place.copy_from_slice(self.buffers.bytes(id, len));
        self.buffers.recycle(id);
        connection.received += len;
        if connection.received == self.bytes {
            connection.received = 0;
            self.send(index);
        }
        Ok(())
    }

    /// Receives again where buffers had run out, now that the finished ones are back in the ring.
    fn feed_starved(&mut self) {
        while let Some(index) = self.starved.pop() {
            self.submissions.receive(index);
        }
    }

    fn snapshot(&self, at: Duration, watch: &[u32]) -> io::Result<Snapshot> {
        Snapshot::take(at, self.answering, self.answered, watch)
    }
}
