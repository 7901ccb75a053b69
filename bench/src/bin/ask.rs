//! `ask`: the load generator for web servers. The same request over N connections, every answer checked.
//!
//! Each connection sends its request (or several at once, `--pipelined`), waits for the whole answer, compares it
//! with the first that the server ever gave, but for the date, and sends the next. Like `ping`, it runs on
//! io_uring with everything that makes a client cheap, and spins rather than sleep, because it has to keep a
//! server busy from one core.
//!
//! ```text
//! cargo run --release --bin ask -- --connect 127.0.0.1:8080 --connections 64 --pipelined 16 --seconds 3
//! ```
//! For a reverse proxy, `--serve ADDRESS` makes it the server behind it as well, on the same ring: one process at
//! both ends is cheaper than two that share a core. That end answers every request with the same page.
//!
//! ```text
//!  connections 0 … N-1 ──► proxy ──► those it makes, as many as it likes: places N …
//! ```
//! Prints one line of JSON ([`LoadReport`]). It talks to loopback only, and always for a bounded time.

#![allow(unsafe_code)]

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use harness::answer::Answer;
use harness::ask::request;
use harness::behind::{self, Heads};
use harness::buffer_ring::BufferRing;
use harness::canned::ANSWER;
use harness::listen::listen;
use harness::load::{LoadReport, tell};
use harness::load_ring::{self, ACCEPT, GROUP, SEND, Submissions, check_loopback, fault, prepared};
use harness::snapshot::Snapshot;
use harness::stage;
use hdrhistogram::Histogram;
use io_uring::cqueue::{self, CompletionQueue};
use rustix::io::Errno;
use rustix::net::SocketFlags;

/// A receive buffer is as large as what comes at once, up to this.
const LIMIT_BUFFER_BYTES: usize = 64 * 1024;
/// All receive buffers together.
const LIMIT_BUFFERS_BYTES: usize = 16 << 20;
/// One answer in this many has its latency recorded.
const SAMPLE: u64 = 8;
/// A proxy may have so many connections for each of ours, at the most, and some more.
const LIMIT_BEHIND_EACH: usize = 2;
const LIMIT_BEHIND_MORE: usize = 64;
/// What a proxy makes of a request, about.
const BEHIND_BYTES: usize = 512;

#[derive(Parser)]
#[command(about = "HTTP requests over loopback; prints one line of JSON")]
struct Arguments {
    /// The server, on a loopback address.
    #[arg(long)]
    connect: SocketAddr,
    /// What to ask for.
    #[arg(long, default_value = "/")]
    path: String,
    /// How many connections to keep busy.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// How many requests are sent at once on each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pipelined: u32,
    /// The length that the body of an answer must have.
    #[arg(long)]
    body_bytes: Option<u64>,
    /// Measure for so long.
    #[arg(long, default_value_t = 3.0, conflicts_with = "count")]
    seconds: f64,
    /// Run for so long before measuring.
    #[arg(long, default_value_t = 0.5, conflicts_with = "count")]
    warmup: f64,
    /// Instead of a time: exactly so many requests, and as many more as end the last batch.
    #[arg(long)]
    count: Option<u64>,
    /// The same in stages: it stops itself (SIGSTOP) when so many are answered, and again when so many more are.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["count", "seconds", "warmup", "burst"])]
    stages: Vec<u64>,
    /// Give up when there was no answer for so long.
    #[arg(long, default_value_t = 10.0)]
    limit_silence: f64,
    /// Stop the watched processes while the requests of a round are sent, and time the answering alone.
    #[arg(long, requires = "watch")]
    burst: bool,
    /// Answer here whatever is asked: the server behind a reverse proxy.
    #[arg(long, conflicts_with_all = ["burst"])]
    serve: Option<SocketAddr>,
    /// Report the processor time of these processes too (the server's).
    #[arg(long, value_delimiter = ',')]
    watch: Vec<u32>,
}

fn main() -> ExitCode {
    tell("ask", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> io::Result<LoadReport> {
    check_loopback(arguments.connect)?;
    let request = request(&arguments.path);
    let listener = arguments.serve.map(|at| listen(at, SocketFlags::NONBLOCK)).transpose()?;
    let (answer, behind) = match &listener {
        Some(listener) => behind::probe(listener, arguments.connect, &request)?,
        None => (Answer::probe(arguments.connect, &request)?, Vec::new()),
    };
    if arguments.body_bytes.is_some_and(|bytes| bytes != answer.body().len() as u64) {
        let found = answer.body().len();
        return Err(io::Error::other(format!("the body of an answer has {found} bytes")));
    }
    let sockets: Vec<TcpStream> = (0..arguments.connections)
        .map(|_| prepared(TcpStream::connect(arguments.connect)?))
        .collect::<io::Result<_>>()?;
    let requests = request.repeat(arguments.pipelined as usize);
    // Declared before the ring, so that it is dropped after it.
    let buffers;
    let room = match listener {
        Some(_) => sockets.len() * LIMIT_BEHIND_EACH + LIMIT_BEHIND_MORE,
        None => 0,
    };
    let mut ring = load_ring::open_with_room(&sockets, room)?;
    let least = if listener.is_some() { BEHIND_BYTES } else { 256 };
    let at_once = answer.len() * arguments.pipelined as usize;
    let buffer_bytes = at_once.next_power_of_two().clamp(least, LIMIT_BUFFER_BYTES);
    let enough = (2 * sockets.len() + room).next_power_of_two();
    let count = enough.clamp(64, LIMIT_BUFFERS_BYTES / buffer_bytes) as u16;
    buffers = BufferRing::register(&ring.submitter(), GROUP, count, buffer_bytes as u32)?;

    let (submitter, queue, completions) = ring.split();
    let mut load = Load {
        submissions: Submissions::new(submitter, queue),
        buffers,
        // Each begins somewhere else, so that all are not recorded at the same time, or none is.
        connections: (0..sockets.len() as u64)
            .map(|index| Connection { batches: index % SAMPLE, sent_at: 0, received: 0, left: 0 })
            .collect(),
        requests,
        pipelined: arguments.pipelined,
        answer,
        behind: std::iter::repeat_with(|| None).take(room).collect(),
        listener,
        starved: Vec::new(),
        remaining: arguments.stages.first().copied().or(arguments.count).unwrap_or(u64::MAX),
        outstanding: 0,
        answered: 0,
        answering: Duration::ZERO,
        latency: Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("valid bounds"),
    };
    load.begin_behind(behind)?;
    let report = load.measure(completions, arguments)?;
    for socket in &sockets {
        socket.shutdown(Shutdown::Both)?;
    }
    if let Some(listener) = &load.listener {
        // The ring holds it for a while; the next one wants to listen there.
        rustix::net::shutdown(listener, rustix::net::Shutdown::Both)?;
    }
    for far in load.behind.iter().flatten() {
        let _ = far.socket.shutdown(Shutdown::Both); // the proxy may have closed it
    }
    Ok(report)
}

/// A connection that a proxy has made to us.
struct Far {
    socket: TcpStream,
    heads: Heads,
}

#[derive(Clone)]
struct Connection {
    batches: u64,
    /// Nanoseconds since the start.
    sent_at: u64,
    /// How much of the answer has arrived.
    received: usize,
    /// How many answers are to come.
    left: u32,
}

struct Load<'ring> {
    submissions: Submissions<'ring>,
    buffers: BufferRing,
    connections: Vec<Connection>,
    /// What is sent at once.
    requests: Vec<u8>,
    pipelined: u32,
    answer: Answer,
    /// The other end of a proxy: its connections, whose places follow those of ours.
    behind: Vec<Option<Far>>,
    listener: Option<TcpListener>,
    /// Connections whose receive ended because no buffer was free.
    starved: Vec<u32>,
    /// Requests that may still be sent.
    remaining: u64,
    /// Connections that have not all their answers.
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
        let warm_at = Duration::from_secs_f64(if counting { 0.0 } else { arguments.warmup });
        let end_at = warm_at + Duration::from_secs_f64(arguments.seconds);
        let limit_silence = Duration::from_secs_f64(arguments.limit_silence);

        let start = Instant::now();
        let (mut begin, mut end) = (None, None);
        let mut last_answer = (Duration::ZERO, 0);
        for index in 0..self.connections.len() as u32 {
            self.submissions.receive(index);
            self.send_next(index, 0);
        }
        while self.outstanding > 0 {
            if arguments.burst {
                let want = self.outstanding as u32;
                self.answering += self.submissions.burst(&arguments.watch, want)?;
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
                for index in 0..self.connections.len() as u32 {
                    self.send_next(index, last_answer.0.as_nanos() as u64);
                }
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
                    "no answer for {} s: {} of {} connections were not served",
                    arguments.limit_silence,
                    self.outstanding,
                    self.connections.len()
                )));
            }
        }
        let (Some(begin), Some(end)) = (begin, end) else {
            return Err(io::Error::other("the run ended before it was warm"));
        };
        let report = begin.until(&end, self.connections.len(), self.answer.len(), &self.latency);
        // Who did not answer for so long that the time was over has not been measured.
        if !counting && report.seconds < arguments.seconds / 2.0 {
            return Err(io::Error::other("the first answers came when the time was over"));
        }
        Ok(report)
    }

    /// Begins to be the server behind a proxy, with connections that were made already.
    fn begin_behind(&mut self, sockets: Vec<TcpStream>) -> io::Result<()> {
        if let Some(listener) = &self.listener {
            self.submissions.accept(listener);
        }
        sockets.into_iter().try_for_each(|socket| self.add_behind(socket))
    }

    fn add_behind(&mut self, socket: TcpStream) -> io::Result<()> {
        let Some(place) = self.behind.iter().position(Option::is_none) else {
            return Err(io::Error::other("the proxy makes more and more connections"));
        };
        let index = (self.connections.len() + place) as u32;
        self.submissions.put(index, Some(&socket))?;
        self.behind[place] = Some(Far { socket, heads: Heads::default() });
        self.submissions.receive(index);
        Ok(())
    }

    /// A connection that the proxy has made.
    #[cold]
    fn accepted(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        let result = completion.result();
        if result < 0 {
            return Err(fault(0, "cannot accept", result));
        }
        // SAFETY: the kernel has just made it, and says it once.
        let socket = TcpStream::from(unsafe { OwnedFd::from_raw_fd(result) });
        self.add_behind(prepared(socket)?)?;
        if let (false, Some(listener)) = (cqueue::more(completion.flags()), &self.listener) {
            self.submissions.accept(listener);
        }
        Ok(())
    }

    /// Answers what has come from the proxy, or forgets a connection that it has closed.
    #[inline]
    fn behind(&mut self, index: u32, completion: &cqueue::Entry) -> io::Result<()> {
        let (place, result) = (index as usize - self.connections.len(), completion.result());
        let Some(far) = &mut self.behind[place] else { return Ok(()) };
        if result > 0 {
            let id = cqueue::buffer_select(completion.flags()).expect("data comes in a buffer");
            let requests = far.heads.count(self.buffers.bytes(id, result as usize));
            self.buffers.recycle(id);
            for _ in 0..requests {
                // SAFETY: it is the program's own text.
                unsafe { self.submissions.send(index, ANSWER.as_bytes()) };
            }
            if !cqueue::more(completion.flags()) {
                self.submissions.receive(index);
            }
        } else if result == -Errno::NOBUFS.raw_os_error() {
            self.starved.push(index);
        } else {
            self.submissions.put(index, None)?;
            self.behind[place] = None;
        }
        Ok(())
    }

    #[inline]
    fn complete(&mut self, completion: &cqueue::Entry, now: u64) -> io::Result<()> {
        let (token, result) = (completion.user_data(), completion.result());
        let index = token as u32;
        if token == ACCEPT {
            return self.accepted(completion);
        }
        let is_far = index as usize >= self.connections.len();
        if token & SEND != 0 {
            // To a proxy that has closed meanwhile: whom that was for will not be answered, and tell.
            return if is_far { Ok(()) } else { Err(fault(index, "cannot send", result)) };
        }
        if is_far {
            return self.behind(index, completion);
        }
        if result > 0 {
            let id = cqueue::buffer_select(completion.flags()).expect("data comes in a buffer");
            self.received(index, id, result as usize, now)?;
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

    /// Compares what has come, which may be a part of an answer or several of them.
    #[inline]
    fn received(&mut self, index: u32, id: u16, len: usize, now: u64) -> io::Result<()> {
        let connection = &mut self.connections[index as usize];
        let mut bytes = self.buffers.bytes(id, len);
        while !bytes.is_empty() {
            let (piece, rest) =
                bytes.split_at(bytes.len().min(self.answer.len() - connection.received));
            if connection.left == 0 || !self.answer.continues(connection.received, piece) {
                return Err(fault(index, "a wrong answer", len as i32));
            }
            connection.received += piece.len();
            if connection.received == self.answer.len() {
                connection.received = 0;
                connection.left -= 1;
                self.answered += 1;
            }
            bytes = rest;
        }
        self.buffers.recycle(id);
        if connection.left == 0 {
            if connection.batches.is_multiple_of(SAMPLE) {
                self.latency.saturating_record(now - connection.sent_at);
            }
            self.outstanding -= 1;
            self.send_next(index, now);
        }
        Ok(())
    }

    #[inline]
    fn send_next(&mut self, index: u32, now: u64) {
        if self.remaining == 0 {
            return;
        }
        self.remaining = self.remaining.saturating_sub(self.pipelined.into());
        self.outstanding += 1;
        let connection = &mut self.connections[index as usize];
        connection.batches += 1;
        connection.sent_at = now;
        connection.left = self.pipelined;
        // SAFETY: the requests never change, and live as long as the load.
        unsafe { self.submissions.send(index, &self.requests) };
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
