//! `crowd`: WebSockets that are told what one of them publishes, every message of every one checked.
//!
//! ```text
//!  publisher ── message ──► server ──┬──► subscriber 0       the next message goes out when
//!  /publish                          ├──► subscriber 1       everybody has got this one
//!                                    └──► …     /subscribe
//! ```
//! A server that loses one, or mixes up their order, has failed. With `--in-flight N`, there are N on their way.
//! Like `ping`, it runs on io_uring with everything that makes a client cheap, and spins rather than sleep.
//!
//! ```text
//! cargo run --release --bin crowd -- --connect 127.0.0.1:8080 --subscribers 2000
//! ```
//! Prints one line of JSON ([`CrowdReport`]). It talks to loopback only, and always for a bounded time.

#![allow(unsafe_code)]

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use harness::buffer_ring::BufferRing;
use harness::crowd::{CrowdReport, WELCOME};
use harness::load::tell;
use harness::load_ring::{self, GROUP, SEND, Submissions, check_loopback, fault, prepared};
use harness::snapshot::Snapshot;
use harness::ws_frame;
use hdrhistogram::Histogram;
use io_uring::cqueue::{self, CompletionQueue};
use rustix::io::Errno;

/// A receive buffer holds so many messages, up to this many bytes.
const LIMIT_BUFFER_BYTES: usize = 16 * 1024;
/// All receive buffers together.
const LIMIT_BUFFERS_BYTES: usize = 64 << 20;
/// One delivery in this many has its latency recorded.
const SAMPLE: u64 = 31;

#[derive(Parser)]
#[command(about = "WebSockets that are told the same, over loopback; prints one line of JSON")]
struct Arguments {
    /// The server, on a loopback address.
    #[arg(long)]
    connect: SocketAddr,
    /// How many WebSockets are told.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    subscribers: u32,
    /// The length of a message.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=4096))]
    bytes: u32,
    /// Messages on their way at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    in_flight: u32,
    /// Measure for so long.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Run for so long before measuring.
    #[arg(long, default_value_t = 0.5)]
    warmup: f64,
    /// Give up when nobody was told anything for so long.
    #[arg(long, default_value_t = 10.0)]
    limit_silence: f64,
    /// Report the processor time of these processes too (the server's).
    #[arg(long, value_delimiter = ',')]
    watch: Vec<u32>,
}

fn main() -> ExitCode {
    tell("crowd", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> io::Result<CrowdReport> {
    check_loopback(arguments.connect)?;
    let mut sockets: Vec<TcpStream> = (0..arguments.subscribers)
        .map(|_| subscribe(arguments.connect))
        .collect::<io::Result<_>>()?;
    sockets.push(prepared(ws_frame::open(arguments.connect, "/publish")?)?);
    // Declared before the ring, so that it is dropped after it.
    let buffers;
    let mut ring = load_ring::open(&sockets)?;
    let in_flight = arguments.in_flight as usize;
    let messages: Vec<Message> =
        (0..in_flight).map(|_| Message::new(arguments.bytes as usize)).collect();
    let at_once = messages[0].delivered.len() * in_flight;
    let buffer_bytes = at_once.next_power_of_two().clamp(256, LIMIT_BUFFER_BYTES);
    let enough = (2 * sockets.len()).next_power_of_two();
    let count = enough.clamp(64, LIMIT_BUFFERS_BYTES / buffer_bytes) as u16;
    buffers = BufferRing::register(&ring.submitter(), GROUP, count, buffer_bytes as u32)?;

    let (submitter, queue, completions) = ring.split();
    let mut load = Load {
        submissions: Submissions::new(submitter, queue),
        buffers,
        subscribers: vec![Subscriber { messages: 0, received: 0 }; sockets.len() - 1],
        messages,
        published: 0,
        finished: 0,
        delivered: 0,
        starved: Vec::new(),
        latency: Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("valid bounds"),
    };
    let report = load.measure(completions, arguments)?;
    for socket in &sockets {
        socket.shutdown(Shutdown::Both)?;
    }
    Ok(report)
}

/// A WebSocket that is in the room.
fn subscribe(server: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = ws_frame::open(server, "/subscribe")?;
    let expected = ws_frame::from_server(WELCOME);
    let mut welcome = vec![0; expected.len()];
    stream.read_exact(&mut welcome)?;
    if welcome != expected {
        return Err(io::Error::other(format!("no welcome: {}", welcome.escape_ascii())));
    }
    prepared(stream)
}

/// A message on its way. The next one has its place when everybody has got it.
struct Message {
    payload: Vec<u8>,
    /// As the publisher sends it.
    published: Vec<u8>,
    /// As subscribers get it.
    delivered: Vec<u8>,
    /// Nanoseconds since the start.
    published_at: u64,
    /// Subscribers that have not got it.
    left: usize,
}

impl Message {
    fn new(bytes: usize) -> Message {
        let payload: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
        let (published, delivered) =
            (ws_frame::from_client(&payload), ws_frame::from_server(&payload));
        Message { payload, published, delivered, published_at: 0, left: 0 }
    }

    /// Makes it the one with this number.
    fn renew(&mut self, number: u64, subscribers: usize, now: u64) {
        self.payload[..8].copy_from_slice(&number.to_be_bytes());
        self.published.copy_from_slice(&ws_frame::from_client(&self.payload));
        self.delivered.copy_from_slice(&ws_frame::from_server(&self.payload));
        (self.published_at, self.left) = (now, subscribers);
    }
}

#[derive(Clone)]
struct Subscriber {
    /// How many messages it has got.
    messages: u64,
    /// How much of the next has arrived.
    received: usize,
}

struct Load<'ring> {
    submissions: Submissions<'ring>,
    buffers: BufferRing,
    subscribers: Vec<Subscriber>,
    messages: Vec<Message>,
    /// How many have been published.
    published: u64,
    /// How many have reached everybody.
    finished: u64,
    /// How often one has reached one.
    delivered: u64,
    /// Connections whose receive ended because no buffer was free.
    starved: Vec<u32>,
    latency: Histogram<u64>,
}

impl Load<'_> {
    fn measure(
        &mut self,
        mut completions: CompletionQueue<'_>,
        arguments: &Arguments,
    ) -> io::Result<CrowdReport> {
        let warm_at = Duration::from_secs_f64(arguments.warmup);
        let end_at = warm_at + Duration::from_secs_f64(arguments.seconds);
        let limit_silence = Duration::from_secs_f64(arguments.limit_silence);
        let start = Instant::now();
        let (mut begin, mut end) = (None, None);
        let mut last = (Duration::ZERO, 0);
        for index in 0..=self.subscribers.len() as u32 {
            self.submissions.receive(index);
        }
        for _ in 0..self.messages.len() {
            self.publish(0);
        }
        while self.finished < self.published {
            self.submissions.submit_and_wait(&mut completions)?;
            let now = start.elapsed();
            if begin.is_none() && now >= warm_at {
                self.latency.reset();
                begin = Some((self.finished, self.snapshot(now, &arguments.watch)?));
            }
            let on = end.is_none();
            for completion in &mut completions {
                self.complete(&completion, now.as_nanos() as u64, on)?;
            }
            completions.sync();
            if self.buffers.publish() {
                self.feed_starved();
            }
            if end.is_none() && now >= end_at {
                end = Some((self.finished, self.snapshot(start.elapsed(), &arguments.watch)?));
            }
            if self.delivered > last.1 {
                last = (now, self.delivered);
            } else if now.saturating_sub(last.0) > limit_silence {
                return Err(io::Error::other(format!(
                    "nobody was told anything for {} s; of {} messages, {} have reached everybody",
                    arguments.limit_silence, self.published, self.finished
                )));
            }
        }
        let (Some((before, begin)), Some((after, end))) = (begin, end) else {
            return Err(io::Error::other("the run ended before it was warm"));
        };
        let bytes = arguments.bytes as usize;
        Ok(CrowdReport {
            messages: after - before,
            deliveries: begin.until(&end, self.subscribers.len(), bytes, &self.latency),
        })
    }

    fn complete(&mut self, completion: &cqueue::Entry, now: u64, go_on: bool) -> io::Result<()> {
        let (token, result) = (completion.user_data(), completion.result());
        let index = token as u32;
        if token & SEND != 0 {
            return Err(fault(index, "cannot send", result));
        }
        if result > 0 {
            let id = cqueue::buffer_select(completion.flags()).expect("data comes in a buffer");
            self.received(index, id, result as usize, now, go_on)?;
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

    /// Compares what has come, which may be a part of a message or several of them.
    fn received(
        &mut self,
        index: u32,
        id: u16,
        len: usize,
        now: u64,
        go_on: bool,
    ) -> io::Result<()> {
        let Some(subscriber) = self.subscribers.get_mut(index as usize) else {
            return Err(fault(index, "the publisher was told something", len as i32));
        };
        let mut bytes = self.buffers.bytes(id, len);
        let mut finished = 0;
        while !bytes.is_empty() {
            let place = (subscriber.messages % self.messages.len() as u64) as usize;
            let message = &mut self.messages[place];
            let rest = &message.delivered[subscriber.received..];
            let (piece, more) = bytes.split_at(bytes.len().min(rest.len()));
            if subscriber.messages == self.published || !rest.starts_with(piece) {
                return Err(fault(index, "a wrong message", len as i32));
            }
            subscriber.received += piece.len();
            if subscriber.received == message.delivered.len() {
                subscriber.received = 0;
                subscriber.messages += 1;
                self.delivered += 1;
                if self.delivered.is_multiple_of(SAMPLE) {
                    self.latency.saturating_record(now - message.published_at);
                }
                message.left -= 1;
                finished += u64::from(message.left == 0);
            }
            bytes = more;
        }
        self.buffers.recycle(id);
        self.finished += finished;
        for _ in 0..if go_on { finished } else { 0 } {
            self.publish(now);
        }
        Ok(())
    }

    /// Publishes the next message, in the place of one that has reached everybody.
    fn publish(&mut self, now: u64) {
        let place = (self.published % self.messages.len() as u64) as usize;
        let subscribers = self.subscribers.len();
        let message = &mut self.messages[place];
        message.renew(self.published, subscribers, now);
        self.published += 1;
        // SAFETY: what is sent stays as it is until it has reached everybody; the vectors never grow.
        unsafe { self.submissions.send(subscribers as u32, &message.published) };
    }

    /// Receives again where buffers had run out, now that the finished ones are back in the ring.
    fn feed_starved(&mut self) {
        while let Some(index) = self.starved.pop() {
            self.submissions.receive(index);
        }
    }

    fn snapshot(&self, at: Duration, watch: &[u32]) -> io::Result<Snapshot> {
        Snapshot::take(at, Duration::ZERO, self.delivered, watch)
    }
}
