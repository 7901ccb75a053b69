//! A server and its clients on a simulated kernel that does everything it may, and in part what it should
//! not: short counts, delays, spurious events, ended multishots, late cancels; resets, refused connections,
//! no descriptors.
//!
//! ```text
//!   seed ──► Kernel (faults) ──┬── server loop: accept, echo; offloads, idle timers, pauses
//!                              ├── client loop ──┬ connect, send, half-close, receive; time-outs,
//!                              └── client loop ──┘ cancels, resets; a report posted, an answer posted back
//!                                  each of the three: files, a child, a signal, a periodic timer that posts
//! ```
//!
//! For each seed: every operation ends exactly once (`ledger.rs`), every byte comes back in order, every
//! client comes to its end (a lost wake-up or completion is a deadlock, which the kernel reports), and when
//! the loops are gone no descriptor and no object is left. Some seeds drop the loops in the middle of it.
//!
//! `CORACLE_SEEDS=10000` runs more seeds than 500; a failure prints `CORACLE_SEED=…`, which runs just that one.

mod client;
mod errands;
mod ledger;
mod random;
mod seeds;
mod server;

use client::Client;
use coracle_loop::Loop;
use coracle_loop::demux::Address;
use coracle_loop::demux::sim::{Faults, Kernel};
use errands::Errands;
use ledger::Ledger;
use random::Random;
use server::Server;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// How many seeds are tried unless `CORACLE_SEEDS` says otherwise.
const SEEDS: u64 = 500;

/// Rounds in which nothing comes to an end. Far more than any seed takes.
const LIMIT_ROUNDS: u32 = 500_000;

#[test]
fn t1_no_seed_loses_duplicates_or_leaks() {
    seeds::run_all(SEEDS, run);
}

#[test]
fn t1_any_operation_may_fail() {
    // Nothing else may come of that than what the error means.
    const SEED: u64 = 5;
    seeds::fail_each_operation(SEED, |kernel| {
        sail(kernel, Random::new(SEED), None);
    });
}

#[test]
fn t1_replay_is_a_replay() {
    for seed in 0..30 {
        assert_eq!(run(seed), run(seed), "seed {seed} gives another run each time");
    }
}

#[test]
fn t1_failing_seed_tells_how_to_replay_it() {
    seeds::sabotage("t1_no_seed_loses_duplicates_or_leaks");
}

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    seeds: u32,
    time: Duration,
    operations: u64,
    faults: u64,
    echoed: u64,
    completed: u64,
    broken: u64,
}

impl std::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Summary) {
        self.seeds += other.seeds;
        self.time += other.time;
        self.operations += other.operations;
        self.faults += other.faults;
        self.echoed += other.echoed;
        self.completed += other.completed;
        self.broken += other.broken;
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Summary { seeds, operations, faults, echoed, completed, broken, .. } = self;
        let hours = self.time.as_secs_f64() / 3600.0;
        write!(
            f,
            "{seeds} seeds: {hours:.1} simulated hours, {operations} operations, {faults} faults; \
             {completed} clients got all of their {echoed} bytes back, {broken} met a fault that nobody can hide"
        )
    }
}

/// How unkind the kernel is to a seed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weather {
    /// Only what the contract leaves open.
    Fair,
    /// Whatever a correct program copes with.
    Rough,
    /// Also what it can only report.
    Storm,
}

fn run(seed: u64) -> Summary {
    let weather = [Weather::Fair, Weather::Rough, Weather::Storm][(seed % 3) as usize];
    let faults = match weather {
        Weather::Fair => Faults::benign(),
        Weather::Rough => Faults::default(),
        Weather::Storm => Faults::hostile(),
    };
    let kernel = Kernel::with_faults(seed, faults);
    let mut random = Random::new(seed);
    // In the middle of it, the loops are dropped.
    let abrupt = random.chance(0.1).then(|| random.below(300) as u32);
    let summary = sail(&kernel, random, abrupt);
    assert!(weather == Weather::Storm || summary.broken == 0, "no fault explains what broke");
    summary
}

/// Runs server and clients on `kernel` until they are done, or for so many rounds.
fn sail(kernel: &Kernel, mut random: Random, abrupt: Option<u32>) -> Summary {
    let ledger = Ledger::default();
    let mut fleet = Fleet::launch(kernel, &ledger, &mut random);
    let mut rounds = 0;
    while abrupt.is_none_or(|limit| rounds < limit) && !fleet.is_over() {
        rounds += 1;
        assert!(rounds < LIMIT_ROUNDS, "it does not come to an end:\n{}", fleet.dump());
        fleet.step(kernel, &mut random);
    }
    if seeds::is_sabotaged(kernel.seed()) {
        panic!("sabotage");
    }
    let summary = Summary {
        seeds: 1,
        time: kernel.elapsed(),
        operations: kernel.operations(),
        faults: kernel.injected().total(),
        echoed: fleet.clients.iter().map(|client| client.echoed()).sum(),
        completed: fleet.clients.iter().filter(|client| client.is_complete()).count() as u64,
        broken: fleet.clients.iter().filter(|client| client.is_broken()).count() as u64,
    };
    if abrupt.is_none() {
        ledger.assert_settled();
        assert!(fleet.errands.iter().all(|errands| errands.are_done()), "an errand was lost");
        let ticks = fleet.ticks.load(Ordering::SeqCst);
        assert_eq!(ticks, errands::ticks(fleet.loops.len()), "posts were lost or duplicated");
    }
    drop(fleet);
    assert_eq!(kernel.open_descriptors(), 0, "descriptors were leaked");
    assert_eq!(ledger.alive(), 0, "objects were leaked");
    summary
}

/// All the loops and who lives on them.
struct Fleet {
    loops: Vec<Loop>,
    server: Rc<Server>,
    clients: Vec<Rc<Client>>,
    errands: Vec<Rc<Errands>>,
    /// Ticks that were posted from one loop to the next.
    ticks: Arc<AtomicU32>,
    /// Clients whose report was answered.
    answered: Arc<AtomicUsize>,
    closing: bool,
}

impl Fleet {
    fn launch(kernel: &Kernel, ledger: &Ledger, random: &mut Random) -> Fleet {
        let loops: Vec<Loop> = (0..3)
            .map(|_| {
                // Small budgets, so that turns end in the middle of things.
                let budget = 1 + random.below(8) as usize;
                Loop::builder().demux(kernel.demux()).budget(budget).build().unwrap()
            })
            .collect();
        let address: Address =
            if random.chance(0.3) { "unix:@echo" } else { "127.0.0.1:7000" }.parse().unwrap();
        let server = Server::start(&loops[0], &address, ledger.side(0), random.fork());
        let answered = Arc::new(AtomicUsize::new(0));
        let clients = (0..2 + random.below(10))
            .map(|number| {
                let side = 1 + random.below(2) as usize;
                let client = Client::new(
                    number as u8,
                    address.clone(),
                    ledger.side(side),
                    random.fork(),
                    client::Office { server: loops[0].handle(), answered: Arc::clone(&answered) },
                );
                let start = Rc::clone(&client);
                let delay = random.duration(Duration::from_millis(30));
                loops[side].after(delay, move |lp| Rc::clone(&start).connect(lp));
                client
            })
            .collect();
        let ticks = Arc::new(AtomicU32::new(0));
        let errands = (loops.iter().enumerate())
            .map(|(number, lp)| {
                let next = loops[(number + 1) % loops.len()].handle();
                let side = ledger.side(number);
                Errands::start(lp, number, side, kernel, random.fork(), next, &ticks)
            })
            .collect();
        Fleet { loops, server, clients, errands, ticks, answered, closing: false }
    }

    /// Lets every loop do what there is to do; if that is nothing, lets one sleep.
    fn step(&mut self, kernel: &Kernel, random: &mut Random) {
        for lp in &self.loops {
            lp.run_ready().unwrap();
        }
        if !self.closing && self.answered.load(Ordering::SeqCst) == self.clients.len() {
            self.closing = true;
            Rc::clone(&self.server).close(&self.loops[0]);
            return;
        }
        // A fair driver never lets one loop sleep past the timer of another, nor past work it has.
        let next = (self.loops.iter().enumerate())
            .filter_map(|(number, lp)| Some((lp.timeout()?, number)))
            .min();
        match next {
            Some((Duration::ZERO, _)) => {}
            Some((_, number)) if random.chance(0.5) => self.loops[number].run_once().unwrap(),
            Some((timeout, _)) => match kernel.next_event() {
                Some(event) => kernel.advance(timeout.min(event.saturating_sub(kernel.elapsed()))),
                None => kernel.advance(timeout),
            },
            None if self.is_over() => {}
            None if random.chance(0.5) && kernel.advance_to_next_event() => {}
            // Nothing is due, ever, on this loop: the kernel says so, if it is true of all.
            None => self.loops[random.below(3) as usize].run_once().unwrap(),
        }
    }

    fn is_over(&self) -> bool {
        let at_rest = self.loops.iter().all(Loop::is_idle);
        let heard = self.errands.iter().all(|errands| errands.are_done()); // signals keep no loop busy
        self.closing && self.server.is_closed() && at_rest && heard
    }

    fn dump(&self) -> String {
        self.loops.iter().map(Loop::dump).collect()
    }
}
