//! `coracle load`: many connections to an echo server; whether what is sent comes back, how soon, how often.
//!
//! ```text
//!   main thread ── begin, finish ──► worker 0 … worker N-1        each a loop with its share of the connections
//!        ▲                              │
//!        └──── opened, ended ───────────┘
//! ```
//!
//! All connections are opened before the first message is sent, and the time counts from there. Without a rate,
//! each connection sends the next message when the last one has come back. With a rate, messages are due at fixed
//! times whatever the server does, and their latency counts from then: a server that stops for a second is a
//! second late for every message that was due meanwhile, not for one.

mod client;
mod pattern;
mod permission;
mod report;
mod tally;
mod worker;

use crate::say;
use coracle::demux::{Address, Backend};
use coracle::net::ToAddresses;
use coracle::{Loop, LoopHandle};
use report::Report;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tally::Tally;
use worker::{Counters, Plan, Worker};

/// What to do to which server.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LoadOptions {
    /// The server: HOST:PORT, [IPv6]:PORT or unix:PATH.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7000")]
    connect: String,
    /// How many connections.
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// How long to send, or to hold the connections with --idle.
    #[arg(long, value_name = "SECONDS", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How long each message is.
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=16 << 20))]
    bytes: u32,
    /// Messages per second, of all connections together; latency counts from when each was due. Without this, each
    /// connection sends as soon as its last message has come back.
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rate: Option<u32>,
    /// Only open the connections, and hold them.
    #[arg(long, conflicts_with_all = ["rate", "bytes"])]
    idle: bool,
    /// How many loops share the connections, each on a thread.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// uring, epoll, poll or select; by default $CORACLE_BACKEND, else the best the kernel allows.
    #[arg(long)]
    backend: Option<Backend>,
    /// Report as one line of JSON.
    #[arg(long)]
    json: bool,
    /// Allow a server that is neither on this machine nor in a private network. Ask its owner first.
    #[arg(long)]
    anywhere: bool,
}

/// What a worker has to say.
enum Event {
    /// Its loop is there, or is not.
    Started(io::Result<(LoopHandle, Backend)>),
    /// It has opened all of its connections that can be opened.
    Opened,
    /// It is done.
    Ended(Box<Tally>),
    /// The user wants no more.
    Interrupted,
}

/// Puts load on a server, and reports.
///
/// # Errors
/// The server is not to be reached, or an answer was wrong or missing; the report has been printed then.
pub(crate) fn run(options: &LoadOptions) -> io::Result<()> {
    let addresses = options.connect.as_str().to_addresses()?;
    if !options.anywhere {
        addresses.iter().try_for_each(permission::check_near)?;
    }
    permission::check_descriptors(options.connections as usize)?;
    let run = Run::start(options, &addresses)?;
    let report = run.finish()?;
    if options.json {
        say(report.json());
    } else {
        let _ = write!(io::stdout(), "{}", report.text());
    }
    report.verdict()
}

/// A load under way, as the main thread sees it.
struct Run<'a> {
    options: &'a LoadOptions,
    workers: Vec<LoopHandle>,
    backend: Backend,
    threads: Vec<JoinHandle<()>>,
    counters: Vec<Arc<Counters>>,
    events: Receiver<Event>,
    began: Instant,
}

impl Run<'_> {
    fn start<'a>(options: &'a LoadOptions, addresses: &[Address]) -> io::Result<Run<'a>> {
        let (sender, events) = channel();
        let (mut workers, mut threads, mut counters) = (Vec::new(), Vec::new(), Vec::new());
        let mut on = Backend::Epoll;
        for plan in plans(options, addresses) {
            let (sender, counts) = (sender.clone(), Arc::default());
            counters.push(Arc::clone(&counts));
            let name = format!("load-{}", workers.len());
            let work = move || work(plan, &counts, &sender);
            threads.push(thread::Builder::new().name(name).spawn(work)?);
            // One after the other: what is wrong with one is wrong with all, and is told once.
            match events.recv() {
                Ok(Event::Started(started)) => {
                    let (worker, backend) = started?;
                    on = backend;
                    workers.push(worker);
                }
                _ => return Err(io::Error::other("interrupted before it began")),
            }
        }
        let began = Instant::now();
        for worker in &workers {
            post(worker, Worker::open);
        }
        Ok(Run { options, workers, backend: on, threads, counters, events, began })
    }

    /// Sees it through to its end.
    fn finish(self) -> io::Result<Report> {
        let progress = io::stderr().is_terminal();
        let mut next_line = self.began + Duration::from_secs(1);
        let mut opened = 0;
        let (mut started, mut took) = (None, Duration::ZERO);
        let mut tally = Tally::default();
        let mut ended = 0;
        while ended < self.workers.len() {
            let pause = next_line.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(pause) {
                Ok(Event::Opened) => {
                    opened += 1;
                    if opened == self.workers.len() {
                        took = self.began.elapsed();
                        started = Some(self.begin());
                    }
                }
                Ok(Event::Ended(part)) => {
                    tally.add(*part);
                    ended += 1;
                }
                Ok(Event::Interrupted) => {
                    self.workers.iter().for_each(|worker| post(worker, Worker::finish));
                }
                Ok(Event::Started(_)) => {}
                Err(RecvTimeoutError::Timeout) => {
                    next_line += Duration::from_secs(1);
                    if progress {
                        eprintln!("{}", self.progress());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        for thread in self.threads {
            thread.join().map_err(|_| io::Error::other("a loop of the load panicked"))?;
        }
        let sending = match (started, tally.last) {
            (Some(started), Some(last)) => last.saturating_duration_since(started),
            _ => Duration::ZERO,
        };
        Ok(Report {
            connect: self.options.connect.clone(),
            connections: self.options.connections as usize,
            bytes: (!self.options.idle).then_some(self.options.bytes as usize),
            rate: self.options.rate,
            loops: self.workers.len(),
            backend: self.backend,
            opening: took,
            sending,
            tally,
        })
    }

    /// Everybody is connected who can be.
    fn begin(&self) -> Instant {
        let start = Instant::now();
        for worker in &self.workers {
            post(worker, move |worker, lp| worker.begin(lp, start));
        }
        start
    }

    fn progress(&self) -> String {
        let sum = |count: fn(&Counters) -> u64| self.counters.iter().map(|it| count(it)).sum();
        let (open, messages): (u64, u64) = (sum(Counters::open), sum(Counters::messages));
        let seconds = self.began.elapsed().as_secs();
        format!("{seconds} s: {open} open, {messages} messages")
    }
}

/// What each worker is to do.
fn plans(options: &LoadOptions, addresses: &[Address]) -> Vec<Plan> {
    let connections = options.connections as usize;
    let workers = (options.threads as usize).min(connections);
    (0..workers)
        .map(|index| {
            let first = connections * index / workers;
            let share = connections * (index + 1) / workers - first;
            Plan {
                index,
                addresses: addresses.to_vec(),
                first,
                connections: share,
                bytes: options.bytes as usize,
                all_connections: connections,
                rate: options.rate,
                idle: options.idle,
                length: Duration::from_secs(options.seconds),
                backend: options.backend,
            }
        })
        .collect()
}

/// The life of a worker's thread.
fn work(plan: Plan, counters: &Arc<Counters>, events: &Sender<Event>) {
    let mut builder = Loop::builder();
    if let Some(backend) = plan.backend {
        builder = builder.backend(backend);
    }
    let opened = builder.build().and_then(|lp| {
        if plan.index == 0 {
            let events = events.clone();
            lp.on_terminate(move |_| drop(events.send(Event::Interrupted)))?;
        }
        Ok(lp)
    });
    match opened {
        Ok(lp) => {
            lp.extension(|| Worker::new(plan, Arc::clone(counters), events.clone()));
            let _ = events.send(Event::Started(Ok((lp.handle(), lp.backend()))));
            if let Err(error) = lp.run() {
                tracing::error!("a loop has failed: {error}");
            }
        }
        Err(error) => drop(events.send(Event::Started(Err(error)))),
    }
}

/// Has a worker do something, on its thread. One that is done does nothing.
fn post(handle: &LoopHandle, job: impl FnOnce(&std::rc::Rc<Worker>, &Loop) + Send + 'static) {
    let _ = handle.post(move |lp| {
        let worker = lp.extension(|| -> Worker { unreachable!("it is there from the beginning") });
        job(&worker, lp);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_complete_and_nearly_equal() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            options: LoadOptions,
        }
        for (connections, threads) in [(10, 3), (1, 4), (7, 7), (1000, 16)] {
            let (n, t) = (connections.to_string(), threads.to_string());
            let line = ["x", "--connections", &n, "--threads", &t];
            let plans = plans(&Line::parse_from(line).options, &[]);
            assert_eq!(plans.len(), threads.min(connections));
            let mut next = 0;
            for plan in &plans {
                assert_eq!(plan.first, next, "no connection twice, none left out");
                next += plan.connections;
                let fair = connections / plans.len();
                assert!((fair..=fair + 1).contains(&plan.connections));
            }
            assert_eq!(next, connections);
        }
    }
}
