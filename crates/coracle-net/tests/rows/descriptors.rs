//! Row F9: a server that runs out of descriptors neither spins nor floods the log; it keeps those it serves, turns
//! some away, leaves the others in the backlog, and goes on when there are descriptors again.

use crate::harness::Harness;
use crate::peers::echo;
use coracle_loop::demux::sim::Faults;
use coracle_loop::demux::{Address, Handle, Operation, Outcome, SocketKind};
use coracle_net::{Buffer, Conn, Listener, Settings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tracing::span;

/// How many connections there are descriptors for, and how many come.
const ROOM: usize = 3;
const CLIENTS: usize = 12;

type Echo = fn(&mut Conn<'_>, &mut Buffer) -> io::Result<()>;

pub(crate) fn f9_server_without_descriptors_serves_on_and_recovers(h: &Harness) {
    if h.is_simulated() {
        // Everybody's are counted: the clients', two of the listener's, and those there is room for.
        let limit_descriptors = CLIENTS + 1 + 2 + ROOM;
        let h = h.simulated(Faults { limit_descriptors, ..Faults::benign() });
        return run_out(&h);
    }
    h.succeed_in_child(|| run_out(h));
}

fn run_out(h: &Harness) {
    let log = Arc::new(AtomicU64::new(0));
    let _logging = tracing::subscriber::set_default(Counting(Arc::clone(&log)));
    let (listener, address) = listen(h);
    let mut sockets: Vec<Handle> = (0..CLIENTS + 1).map(|_| socket(h)).collect();
    let late = sockets.pop().expect("one more than come at once");
    let before = (!h.is_simulated()).then(lower_limit);
    let start = h.lp.now();

    let clients: Vec<Rc<Caller>> =
        sockets.into_iter().map(|socket| Caller::call(h, socket, &address)).collect();
    let turned_away = listener.clone();
    h.run_until(&turned_away, |listener| listener.stats().turned_away >= 2);
    if h.is_simulated() {
        // All of them, and not one after each pause.
        h.run_until(&turned_away, |listener| {
            listener.stats().turned_away == (CLIENTS - ROOM) as u64
        });
        let after = h.lp.now() - start;
        assert!(after < Duration::from_millis(500), "{after:?}");
    }
    let clients = Rc::new(clients);
    h.run_until(&clients, |clients| clients.iter().filter(|it| it.is_served()).count() == ROOM);
    assert_eq!(listener.stats().opened, ROOM as u64, "as many as there is room for");

    // It waits, rather than try again and again.
    let turns = h.count_turns();
    h.run_for(Duration::from_millis(500));
    assert!(turns.get() < 200, "{} turns in half a second", turns.get());
    assert_eq!(log.load(Ordering::SeqCst), 1, "one line says that it began");
    let served: Vec<&Rc<Caller>> = clients.iter().filter(|client| client.is_served()).collect();
    assert_eq!(served.len(), ROOM);
    for client in &served {
        client.expect_echo(h, b"still there?");
    }

    // Two leave, and the limit is as it was: there is room for newcomers, and for whoever was not turned away.
    for client in &served[..2] {
        h.close(client.socket);
    }
    if let Some(limit) = before {
        setrlimit(Resource::Nofile, limit).expect("the limit is raised again");
    }
    let newcomer = Caller::call(h, late, &address);
    h.run_until(&newcomer, |newcomer| newcomer.is_served());
    newcomer.expect_echo(h, b"room again");
    served[2].expect_echo(h, b"still there!");
    let all = listener.clone();
    h.run_until(&all, |listener| {
        listener.stats().opened + listener.stats().turned_away == CLIENTS as u64 + 1
    });
    assert!(log.load(Ordering::SeqCst) <= 2, "one line when it began, one when it was over");
}

pub(crate) fn f9_server_at_the_edge_of_its_limit_does_not_flood_the_log(h: &Harness) {
    const ROUNDS: usize = 60;
    let limit_descriptors = CLIENTS + 2 + ROOM;
    let h = &h.simulated(Faults { limit_descriptors, ..Faults::benign() });
    let log = Arc::new(AtomicU64::new(0));
    let _logging = tracing::subscriber::set_default(Counting(Arc::clone(&log)));
    let (listener, address) = listen(h);
    let clients: Vec<Rc<Caller>> =
        (0..CLIENTS).map(|_| Caller::call(h, socket(h), &address)).collect();
    let clients = Rc::new(RefCell::new(clients));
    for _ in 0..ROUNDS {
        // One leaves; whoever waited takes its place, and there is none for the next.
        h.run_for(Duration::from_millis(30));
        let leaves =
            clients.borrow().iter().position(|client| client.is_served() || client.is_over());
        if let Some(leaves) = leaves {
            let client = clients.borrow_mut().remove(leaves);
            h.close(client.socket);
            if let Ok(socket) = h.lp.socket(SocketKind::Tcp4) {
                clients.borrow_mut().push(Caller::call(h, socket, &address));
            }
        }
    }
    let stats = listener.stats();
    assert!(
        stats.opened > 10 && stats.turned_away > 10,
        "there was some coming and going: {stats:?}"
    );
    let seconds = h.kernel().elapsed().as_secs();
    let lines = log.load(Ordering::SeqCst);
    assert!(lines <= 2 * (seconds + 1), "{lines} lines in {seconds} seconds");
}

fn listen(h: &Harness) -> (Listener, Address) {
    let any: Address = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(&h.lp, &any, Settings::default(), |_| echo as Echo);
    let listener = listener.expect("it listens");
    let address = listener.local_address(&h.lp).expect("an address");
    (listener, address)
}

fn socket(h: &Harness) -> Handle {
    h.lp.socket(SocketKind::Tcp4).expect("a socket")
}

/// Lowers the limit of this process to what it has and `ROOM` more; gives the limit it had.
fn lower_limit() -> Rlimit {
    let is_free = |fd: &u64| std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_err();
    let last = (0..).filter(is_free).nth(ROOM - 1).expect("numbers do not end");
    let before = getrlimit(Resource::Nofile);
    let lowered = Rlimit { current: Some(last + 1), maximum: before.maximum };
    setrlimit(Resource::Nofile, lowered).expect("the limit is lowered");
    before
}

/// A client that says something, and notes what becomes of it.
struct Caller {
    socket: Handle,
    heard: Cell<Option<bool>>,
}

impl Caller {
    fn call(h: &Harness, socket: Handle, address: &Address) -> Rc<Caller> {
        let caller = Rc::new(Caller { socket, heard: Cell::new(None) });
        let (this, operation) =
            (Rc::clone(&caller), Operation::Connect { socket, address: address.clone() });
        h.lp.operate(operation, move |lp, _| {
            let hello = Operation::Send { socket, payload: b"x".to_vec().into() };
            lp.operate(hello, |_, _| ());
            lp.operate(Operation::Receive { socket, space: vec![0; 1].into() }, move |_, done| {
                this.heard.set(Some(matches!(done.result, Ok(Outcome::Count(1)))));
            });
        });
        caller
    }

    fn is_served(&self) -> bool {
        self.heard.get() == Some(true)
    }

    fn is_over(&self) -> bool {
        self.heard.get() == Some(false)
    }

    fn expect_echo(&self, h: &Harness, text: &[u8]) {
        h.send(self.socket, text);
        assert_eq!(h.receive(self.socket, text.len()), text);
    }
}

/// Counts what is said to people.
struct Counting(Arc<AtomicU64>);

impl tracing::Subscriber for Counting {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
