//! Whole servers and their clients on a simulated kernel that does everything it may, and in part what it should
//! not.
//!
//! ```text
//!   seed ──► Kernel (faults) ──┬── server loop: listeners, each with a kind of protocol and settings of its own
//!                              └── client loop: clients, each with a script and manners of its own
//! ```
//!
//! A server may have layers (`coat.rs`), rates for each connection and for all, a file to send from, and may stop
//! listening in the middle; tasks come to its connections from elsewhere, and are done or refused, once.
//!
//! For each seed: every client gets what its script says, byte by byte, unless something excuses the server;
//! callbacks come in their order (`ledger.rs`); nothing waits beyond its limit; and when the clients are gone
//! there is no connection, no operation, no timer, no protocol and no descriptor, and the counters add up. Some
//! seeds drop the loops in the middle of it: then, too, every protocol hears of its end.
//!
//! `CORACLE_SEEDS=10000` runs more seeds than 300; a failure prints `CORACLE_SEED=…`, which runs just that one.

mod client;
mod coat;
mod ledger;
mod protocols;
#[allow(dead_code)]
#[path = "../../../coracle-loop/tests/simulation/random.rs"]
mod random;
mod script;
#[path = "../../../coracle-loop/tests/simulation/seeds.rs"]
mod seeds;

use client::{Client, End};
use coracle_loop::Loop;
use coracle_loop::demux::sim::{Faults, Kernel};
use coracle_loop::demux::{Address, Handle, OpenOptions, Operation, Outcome};
use coracle_net::{Listener, MemoryLimit, RateGroup, RateLimit, Settings};
use ledger::Ledger;
use protocols::{Rigging, Talker};
use random::Random;
use script::{BUSY, KINDS, Kind, pattern};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

/// How many seeds are tried unless `CORACLE_SEEDS` says otherwise.
const SEEDS: u64 = 300;

/// Rounds in which nothing comes to an end. Far more than any seed takes.
const LIMIT_ROUNDS: u32 = 2_000_000;

/// Seeds of whose operations each fails once.
const VOYAGES: [u64; 5] = [12, 18, 28, 35, 41];

/// What long answers are sent from.
const FILE: &str = "/hold";

#[test]
fn t1_no_seed_loses_a_byte_or_a_connection() {
    seeds::run_all(SEEDS, run);
}

#[test]
fn t1_replay_is_a_replay() {
    for seed in 0..15 {
        assert_eq!(run(seed), run(seed), "seed {seed} gives another run each time");
    }
}

#[test]
fn t1_any_operation_may_fail() {
    // Nothing may come of that but the end of whom it concerns.
    for seed in VOYAGES {
        seeds::fail_each_operation(seed, |kernel| {
            sail(kernel, Random::new(seed), false, None);
        });
    }
}

#[test]
fn t1_failing_seed_tells_how_to_replay_it() {
    let text = seeds::sabotage("t1_no_seed_loses_a_byte_or_a_connection");
    assert!(text.is_empty() || text.contains("--- history"), "{text}");
}

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    seeds: u32,
    time: Duration,
    operations: u64,
    faults: u64,
    bytes: u64,
    complete: u64,
    left: u64,
    turned_away: u64,
    broken: u64,
}

impl std::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Summary) {
        self.seeds += other.seeds;
        self.time += other.time;
        self.operations += other.operations;
        self.faults += other.faults;
        self.bytes += other.bytes;
        self.complete += other.complete;
        self.left += other.left;
        self.turned_away += other.turned_away;
        self.broken += other.broken;
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Summary { seeds, operations, faults, bytes, complete, left, turned_away, .. } = self;
        let (hours, broken) = (self.time.as_secs_f64() / 3600.0, self.broken);
        write!(
            f,
            "{seeds} seeds: {hours:.1} simulated hours, {operations} operations, {faults} faults, {bytes} bytes; \
             of the clients {complete} were served to the end, {left} left before it, {turned_away} were turned \
             away, {broken} met a fault that nobody can hide"
        )
    }
}

fn run(seed: u64) -> Summary {
    // Only what the contract leaves open; whatever a correct program copes with; also what it can only report.
    let mut faults = [Faults::benign, Faults::default, Faults::hostile][(seed % 3) as usize]();
    let storm = faults.reset > 0.0;
    if storm && seed.is_multiple_of(2) {
        // Fewer than everybody needs at once; more than the listeners keep.
        faults.limit_descriptors = 8 + (seed / 6 % 12) as usize;
    }
    let mut random = Random::new(seed);
    let abrupt = random.chance(0.1).then(|| random.below(500) as u32);
    sail(&Kernel::with_faults(seed, faults), random, !storm, abrupt)
}

/// Runs servers and clients on `kernel` until they are done, or for so many rounds. If it is `fair`, no fault
/// excuses anybody.
fn sail(kernel: &Kernel, mut random: Random, fair: bool, abrupt: Option<u32>) -> Summary {
    kernel.set_patience(Duration::ZERO);
    let ledger = Ledger::new(fair);
    let mut fleet = Fleet::launch(kernel, &ledger, &mut random, fair);
    let mut rounds = 0;
    while abrupt.is_none_or(|limit| rounds < limit) && !fleet.is_over() {
        rounds += 1;
        let lasts = rounds < LIMIT_ROUNDS;
        ledger.expect(lasts, || format!("it does not come to an end:\n{}", fleet.dump()));
        ledger.assert_clean();
        let stepped = catch_unwind(AssertUnwindSafe(|| fleet.step(kernel, &ledger, &mut random)));
        ledger.expect(stepped.is_ok(), || format!("a step panicked:\n{}", fleet.dump()));
    }
    let sabotaged = seeds::is_sabotaged(kernel.seed());
    ledger.expect(!sabotaged, || "sabotage".to_owned());
    if abrupt.is_none() {
        fleet.check_counters(&ledger, fair);
        check_nothing_is_left(kernel, &ledger);
    }
    let count =
        |end| fleet.clients.iter().filter(|client| client.end() == Some(end)).count() as u64;
    let summary = Summary {
        seeds: 1,
        time: kernel.elapsed(),
        operations: kernel.operations(),
        faults: kernel.injected().total(),
        bytes: fleet.clients.iter().map(|client| client.received()).sum(),
        complete: count(End::Complete),
        left: count(End::Left),
        turned_away: count(End::TurnedAway),
        broken: count(End::Broken),
    };
    drop(fleet);
    check_nothing_is_left(kernel, &ledger);
    ledger.assert_clean();
    summary
}

fn check_nothing_is_left(kernel: &Kernel, ledger: &Ledger) {
    let (open, alive) = (kernel.open_descriptors(), ledger.alive());
    ledger.expect(open == 0, || format!("{open} descriptors were leaked"));
    ledger.expect(alive == 0, || format!("{alive} protocols were not dropped"));
    let tasks = ledger.tasks();
    ledger.expect(tasks == 0, || format!("{tasks} tasks were neither done nor refused"));
}

/// One server of a seed.
struct Harbour {
    listener: Listener,
    /// How many protocols were made for it.
    made: Rc<Cell<u64>>,
    busy_is_told: bool,
    file: Rc<Cell<Option<Handle>>>,
    /// It does not listen to the end: not everybody who connects is accepted.
    leaves_early: bool,
    clients: Vec<Rc<Client>>,
}

/// The loops and who lives on them.
struct Fleet {
    server: Loop,
    sea: Loop,
    harbours: Vec<Harbour>,
    clients: Vec<Rc<Client>>,
    closing: bool,
    /// For how many rounds the server is busy with something else, while the world goes on.
    busy: u64,
}

impl Fleet {
    fn launch(kernel: &Kernel, ledger: &Ledger, random: &mut Random, fair: bool) -> Fleet {
        // Small budgets, so that turns end in the middle of things.
        let mut lp = || {
            let budget = 1 + random.below(8) as usize;
            Loop::builder().demux(kernel.demux()).budget(budget).build().unwrap()
        };
        let (server, sea) = (lp(), lp());
        let (harbours, clients) = (Vec::new(), Vec::new());
        let mut fleet = Fleet { server, sea, harbours, clients, closing: false, busy: 0 };
        for number in 0..1 + random.below(3) {
            let kind = KINDS[random.below(KINDS.len() as u64) as usize];
            let address = if random.chance(0.3) {
                format!("unix:@harbour-{number}")
            } else {
                format!("127.0.0.1:{}", 7000 + number)
            };
            let demanding = random.chance(0.25);
            let rigging = rigging(&fleet.server, random, demanding, kind);
            let coats = rigging.coats.clone();
            let leaves_early = random.chance(0.1);
            fleet.open(kind, &address.parse().unwrap(), rigging, ledger, random.fork());
            fleet.harbours.last_mut().expect("just opened").leaves_early = leaves_early;
            if kind == Kind::Bulk {
                fleet.open_file(kernel);
            }
            let strict = fair && !demanding && !leaves_early;
            for _ in 0..1 + random.below(5) {
                fleet.add_client(kind, &coats, &address.parse().unwrap(), ledger, random, strict);
            }
        }
        fleet
    }

    fn open(
        &mut self,
        kind: Kind,
        address: &Address,
        rigging: Rigging,
        ledger: &Ledger,
        mut random: Random,
    ) {
        let made = Rc::new(Cell::new(0));
        let (settings, rigging) = (rigging.settings.clone(), Rc::new(rigging));
        let busy_is_told = !settings.busy_message.is_empty();
        let listener = loop {
            let (made, ledger) = (Rc::clone(&made), ledger.clone());
            let (rigging, random) = (Rc::clone(&rigging), RefCell::new(random.fork()));
            let make = move |_: &Address| {
                made.set(made.get() + 1);
                let (number, random) = (made.get() as usize, random.borrow_mut().fork());
                Talker::new(kind, &ledger, number, random, &rigging)
            };
            match Listener::bind(&self.server, address, settings.clone(), make) {
                Ok(listener) => break listener,
                // A storm may have no descriptor for it at first.
                Err(error) => assert!(
                    error.to_string().contains("Too many") || error.raw_os_error() == Some(24),
                    "{error}"
                ),
            }
        };
        let (file, clients) = (Rc::clone(&rigging.file), Vec::new());
        let leaves_early = false;
        self.harbours.push(Harbour { listener, made, busy_is_told, file, leaves_early, clients });
    }

    /// Opens a file for the last harbour, unless there is no descriptor for it.
    fn open_file(&self, kernel: &Kernel) {
        kernel.add_file(FILE, (0..20_000).map(pattern).collect::<Vec<u8>>());
        let options = OpenOptions { read: true, ..OpenOptions::default() };
        let slot = Rc::clone(&self.harbours.last().expect("opened before").file);
        self.server.operate(Operation::Open { path: FILE.into(), options }, move |_, done| {
            if let Ok(Outcome::Opened(file)) = done.result {
                slot.set(Some(file));
            }
        });
    }

    /// Closes the files that nobody sends any more.
    fn close_files(&self) {
        for harbour in self.harbours.iter().filter(|harbour| harbour.listener.stats().open() == 0) {
            if let Some(handle) = harbour.file.take() {
                self.server.operate(Operation::Close { handle }, |_, _| ());
            }
        }
    }

    fn add_client(
        &mut self,
        kind: Kind,
        coats: &[u8],
        address: &Address,
        ledger: &Ledger,
        random: &mut Random,
        strict: bool,
    ) {
        let (number, address) = (self.clients.len(), address.clone());
        let client = Client::new(number, kind, coats, address, ledger, random.fork(), strict);
        let start = Rc::clone(&client);
        let delay = random.duration(Duration::from_millis(30));
        self.sea.after(delay, move |lp| Rc::clone(&start).start(lp));
        self.clients.push(Rc::clone(&client));
        self.harbours.last_mut().expect("opened before").clients.push(client);
    }

    /// Lets every loop do what there is to do; if that is nothing, lets one sleep.
    fn step(&mut self, kernel: &Kernel, ledger: &Ledger, random: &mut Random) {
        if self.busy > 0 {
            self.busy -= 1;
            self.sea.run_ready().unwrap();
            kernel.advance_to_next_event();
            return;
        }
        if random.chance(0.02) {
            self.busy = random.below(30);
        }
        if random.chance(0.05) {
            ledger.send_task(random);
        }
        if random.chance(0.001) {
            for harbour in self.harbours.iter().filter(|harbour| harbour.leaves_early) {
                harbour.listener.close(&self.server);
            }
        }
        if self.closing {
            self.close_files();
        }
        let loops = [&self.server, &self.sea];
        for lp in loops {
            lp.run_ready().unwrap();
        }
        if !self.closing && self.clients.iter().all(|client| client.end().is_some()) {
            self.closing = true;
            for harbour in &self.harbours {
                harbour.listener.close(&self.server);
            }
            return;
        }
        // A fair driver never lets one loop sleep past the timer of another, nor past work it has.
        let next = (loops.iter().enumerate())
            .filter_map(|(number, lp)| Some((lp.timeout()?, number)))
            .min();
        match next {
            Some((Duration::ZERO, _)) => {}
            Some((_, number)) if random.chance(0.5) => loops[number].run_once().unwrap(),
            Some((timeout, _)) => match kernel.next_event() {
                Some(event) => kernel.advance(timeout.min(event.saturating_sub(kernel.elapsed()))),
                None => kernel.advance(timeout),
            },
            None if self.is_over() => {}
            None if random.chance(0.5) && kernel.advance_to_next_event() => {}
            // Nothing is due, ever, on this loop: the kernel says so, if it is true of all.
            None => loops[random.below(2) as usize].run_once().unwrap(),
        }
    }

    fn is_over(&self) -> bool {
        let files = self.harbours.iter().any(|harbour| harbour.file.get().is_some());
        self.closing && !files && self.server.is_idle() && self.sea.is_idle()
    }

    fn check_counters(&self, ledger: &Ledger, fair: bool) {
        let mut panics = 0;
        for harbour in &self.harbours {
            let stats = harbour.listener.stats();
            let made = harbour.made.get();
            panics += stats.panics;
            ledger.expect(stats.opened == stats.closed, || format!("{stats:?}"));
            let told = if harbour.busy_is_told { stats.turned_away } else { 0 };
            let adds_up = made <= stats.opened && stats.opened <= made + told;
            ledger.expect(adds_up, || format!("{made} were made: {stats:?}"));
            let connected =
                harbour.clients.iter().filter(|client| client.is_connected()).count() as u64;
            let accepted = made + stats.turned_away;
            let exact = fair && !harbour.leaves_early;
            let all = if exact { accepted == connected } else { accepted <= connected };
            ledger.expect(all, || format!("{connected} connected: {stats:?}, {made} were made"));
        }
        ledger.expect(panics == ledger.panics(), || format!("{panics} panics were counted"));
    }

    fn dump(&self) -> String {
        self.server.dump() + &self.sea.dump()
    }
}

/// What the connections of a harbour have in common.
fn rigging(lp: &Loop, random: &mut Random, demanding: bool, kind: Kind) -> Rigging {
    let settings = settings(random, demanding);
    // Who gives its socket away must have it to itself.
    let coats = if kind == Kind::Hijack { 0 } else { random.below(6).saturating_sub(3) };
    let coats = (0..coats).map(|_| random.below(200) as u8).collect();
    let mut rate = || {
        let mut bytes_per_second = || random.chance(0.7).then(|| 2000 + random.below(200_000));
        let (receive, send) = (bytes_per_second(), bytes_per_second());
        let burst = [100, 1000, 20_000][random.below(3) as usize];
        RateLimit {
            receive_bytes_per_second: receive,
            send_bytes_per_second: send,
            burst_bytes: 20 + random.below(burst),
        }
    };
    let (own, shared) = (rate(), rate());
    let rate = random.chance(0.2).then_some(own);
    let group = random.chance(0.2).then(|| RateGroup::new(lp, &shared));
    Rigging { settings, coats, rate, group, file: Rc::default() }
}

/// Limits of a harbour: those of a demanding one are met by many.
fn settings(random: &mut Random, demanding: bool) -> Settings {
    let high_mark_bytes = 50 + random.below(3000) as usize;
    let mut settings = Settings {
        high_mark_bytes,
        low_mark_bytes: random.below(high_mark_bytes as u64 + 1) as usize,
        limit_output_bytes: 1 << 20,
        limit_input_bytes: 64 << 10,
        limit_memory: Some(MemoryLimit::new(64 << 20)),
        write_timeout: random.chance(0.5).then_some(Duration::from_secs(100_000)),
        drain: Duration::from_secs(100_000),
        ..Settings::default()
    };
    if demanding {
        settings.limit_output_bytes = high_mark_bytes + random.below(1000) as usize;
        settings.limit_input_bytes = 100 + random.below(1000) as usize;
        settings.idle_timeout = random.chance(0.5).then_some(Duration::from_millis(300));
        settings.write_timeout = random.chance(0.5).then_some(Duration::from_millis(50));
        settings.drain = random.duration(Duration::from_millis(200));
        if random.chance(0.5) {
            let bytes = 100 + random.below(4000) as usize;
            settings.limit_memory = Some(MemoryLimit::new(bytes));
        }
        settings.limit_connections = 1 + random.below(3) as usize;
        settings.busy_message = if random.chance(0.7) { BUSY } else { &[] }.into();
    }
    settings
}
