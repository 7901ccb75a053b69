//! F3: outgoing connections, with time-outs, several addresses, retries and cancel.

use crate::harness::{Harness, Listening, any};
use coracle_loop::demux::sim::{Fault, Faults};
use coracle_loop::demux::{Address, Descriptor, Handle, Operation};
use coracle_loop::{HookKind, Loop};
use coracle_net::{Connecting, Connector, Retry};
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const ECANCELED: i32 = 125;
const EMFILE: i32 = 24;

/// What a connector's callback has heard.
#[derive(Clone, Default)]
struct Heard(Rc<RefCell<Vec<io::Result<Handle>>>>);

impl Heard {
    fn callback(&self) -> impl FnOnce(&Loop, io::Result<Handle>) + use<> {
        let heard = self.clone();
        move |_, result| heard.0.borrow_mut().push(result)
    }

    fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// What it has heard, which must be one thing.
    fn only(&self) -> io::Result<Handle> {
        let mut heard = self.0.take();
        assert_eq!(heard.len(), 1, "the callback is called once: {heard:?}");
        heard.pop().expect("one")
    }

    fn cancelled(&self) {
        let error = self.only().expect_err("it was cancelled");
        assert_eq!(error.raw_os_error(), Some(ECANCELED), "{error}");
    }
}

/// Connects, and waits for what comes of it.
fn connect(h: &Harness, connector: &Connector) -> io::Result<Handle> {
    let heard = Heard::default();
    connector.connect(&h.lp, heard.callback());
    let look = heard.clone();
    h.run_until(move || look.count() > 0);
    heard.only()
}

/// Both ends of a connection work.
fn converse(h: &Harness, client: Handle, server: Handle) {
    h.send(client, b"ahoy");
    assert_eq!(h.receive(server, 4), b"ahoy");
    h.send(server, b"ahoy yourself");
    assert_eq!(h.receive(client, 13), b"ahoy yourself");
}

fn again(rounds: u32, first: Duration) -> Retry {
    Retry { rounds, first, limit: HOUR }
}

// --- Connecting ----------------------------------------------------------------------------------------

pub(crate) fn f3_connects_and_sends_small_packets_at_once(h: &Harness) {
    let server = h.listening(&any());
    let client = connect(h, &Connector::to([server.address.clone()])).expect("it listens");
    let accepted = h.accepted(&server, 1);
    converse(h, client, accepted);
    assert_eq!(h.lp.peer_address(client).unwrap(), server.address);
    if let Descriptor::Os(client) = h.lp.detach(client).expect("nothing is in flight on it") {
        assert!(rustix::net::sockopt::tcp_nodelay(client).unwrap());
    }
}

pub(crate) fn f3_connects_to_a_unix_socket(h: &Harness) {
    let server = h.listening(&h.unix_name("server"));
    let client = connect(h, &Connector::to([server.address.clone()])).expect("it listens");
    let accepted = h.accepted(&server, 1);
    converse(h, client, accepted);
}

pub(crate) fn f3_connects_after_a_refused_address(h: &Harness) {
    let server = h.listening(&any());
    let open = h.open_descriptors();
    let addresses = [h.refusing(), h.refusing(), server.address.clone()];
    let client = connect(h, &Connector::to(addresses)).expect("the last one listens");
    assert_eq!(h.lp.peer_address(client).unwrap(), server.address);
    let accepted = h.accepted(&server, 1);
    converse(h, client, accepted);
    h.run_for(5 * MS);
    if h.is_simulated() {
        // The two that refuse are held by this case; the rest are the ends of the connection.
        assert_eq!(h.open_descriptors(), open + 2 + 2);
    }
}

pub(crate) fn f3_connects_after_an_address_that_does_not_answer(h: &Harness) {
    let server = h.listening(&any());
    let addresses = [h.silent(), server.address.clone()];
    let client = connect(h, &Connector::to(addresses).timeout(10 * MS)).expect("one answers");
    assert_eq!(h.lp.peer_address(client).unwrap(), server.address);
    let accepted = h.accepted(&server, 1);
    converse(h, client, accepted);
}

pub(crate) fn f3_first_address_that_answers_is_taken(h: &Harness) {
    let (first, second) = (h.listening(&any()), h.listening(&any()));
    let connector = Connector::to([first.address.clone(), second.address.clone()]);
    for count in 1..=3 {
        let client = connect(h, &connector).expect("both listen");
        assert_eq!(h.lp.peer_address(client).unwrap(), first.address);
        h.accepted(&first, count);
    }
    assert!(second.accepted.borrow().is_empty(), "nobody asked for it");
}

pub(crate) fn f3_connects_when_the_server_comes_later(h: &Harness) {
    let name = h.unix_name("later");
    let heard = Heard::default();
    let connector = Connector::to([name.clone()]).retry(again(u32::MAX, MS));
    let connecting = Rc::new(connector.connect(&h.lp, heard.callback()));
    let look = Rc::clone(&connecting);
    h.run_until(move || look.attempts() > 3);
    assert_eq!(heard.count(), 0, "nobody listens, and it does not give up");
    let server = h.listening(&name);
    let look = heard.clone();
    h.run_until(move || look.count() > 0);
    let accepted = h.accepted(&server, 1);
    converse(h, heard.only().expect("it listens now"), accepted);
    let attempts = connecting.attempts();
    h.run_for(20 * MS);
    assert_eq!(connecting.attempts(), attempts, "and that was the end of it");
    assert_eq!(server.accepted.borrow().len(), 1);
}

// --- Failing -------------------------------------------------------------------------------------------

pub(crate) fn f3_refusal_names_the_address_the_cause_and_the_attempts(h: &Harness) {
    let nobody = h.refusing();
    let error = connect(h, &Connector::to([nobody.clone()])).expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let expected = format!("cannot connect to {nobody}: connection refused (1 attempt)");
    assert_eq!(error.to_string(), expected);
    let connector = Connector::to([nobody.clone()]).retry(again(3, MS));
    let error = connect(h, &connector).expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let expected = format!("cannot connect to {nobody}: connection refused (3 attempts)");
    assert_eq!(error.to_string(), expected);
}

pub(crate) fn f3_each_address_is_named_with_its_cause(h: &Harness) {
    let (refusing, silent) = (h.refusing(), h.silent());
    let addresses = [refusing.clone(), silent.clone()];
    let connector = Connector::to(addresses).timeout(5 * MS).retry(again(2, MS));
    let error = connect(h, &connector).expect_err("neither answers");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "the kind of the last one");
    let expected = format!(
        "cannot connect to {refusing}: connection refused; {silent}: timed out (4 attempts)"
    );
    assert_eq!(error.to_string(), expected);
}

pub(crate) fn f3_time_out_is_told(h: &Harness) {
    let silent = h.silent();
    let before = h.lp.now();
    let connector = Connector::to([silent.clone()]).timeout(20 * MS);
    let error = connect(h, &connector).expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let expected = format!("cannot connect to {silent}: timed out (1 attempt)");
    assert_eq!(error.to_string(), expected);
    assert!(h.lp.now() - before >= 20 * MS, "early");
}

pub(crate) fn f3_no_address_is_an_error(h: &Harness) {
    let error = connect(h, &Connector::to([] as [Address; 0])).expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), "cannot connect: there is no address to connect to");
}

pub(crate) fn f3_callback_is_never_called_from_inside_connect(h: &Harness) {
    let server = h.listening(&any());
    let lists = [vec![], vec![server.address.clone()], vec![h.refusing()]];
    for addresses in lists {
        for cancel in [false, true] {
            let heard = Heard::default();
            let connecting = Connector::to(addresses.clone()).connect(&h.lp, heard.callback());
            assert_eq!(heard.count(), 0);
            if cancel {
                connecting.cancel(&h.lp);
                assert_eq!(heard.count(), 0, "nor from inside cancel");
            }
            let look = heard.clone();
            h.run_until(move || look.count() > 0);
            h.run_for(3 * MS);
            assert_eq!(heard.count(), 1);
        }
    }
}

pub(crate) fn f3_pause_between_rounds_is_not_cut_short(h: &Harness) {
    let before = h.lp.now();
    let connector = Connector::to([h.refusing()]).retry(again(3, 20 * MS));
    connect(h, &connector).expect_err("nobody listens");
    // Half of 20 and half of 40.
    assert!(h.lp.now() - before >= 30 * MS, "early");
}

/// Linux gives even ports to those who connect, one after the other: so many attempts are once round all of them.
pub(crate) fn f3_never_connects_to_itself(h: &Harness) {
    let mut nobody = h.refusing().ip().unwrap();
    nobody.set_port(nobody.port() & !1);
    let retry = Retry { rounds: 16_000, first: Duration::ZERO, limit: Duration::ZERO };
    match connect(h, &Connector::to([nobody]).retry(retry)) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}"),
        Ok(socket) => {
            // Another case may have begun to listen there.
            let (own, peer) = (h.lp.local_address(socket), h.lp.peer_address(socket));
            assert_ne!(own.unwrap(), peer.unwrap());
        }
    }
}

// --- Cancelling ----------------------------------------------------------------------------------------

pub(crate) fn f3_cancel_before_the_first_turn(h: &Harness) {
    let server = h.listening(&any());
    let open = h.open_descriptors();
    let heard = Heard::default();
    let connecting = Connector::to([server.address.clone()]).connect(&h.lp, heard.callback());
    connecting.cancel(&h.lp);
    connecting.cancel(&h.lp); // twice is no harm
    h.run_for(10 * MS);
    heard.cancelled();
    // It may have been established by then. If so, it was closed.
    let accepted = server.accepted.borrow().clone();
    for &socket in &accepted {
        assert_eq!(h.receive(socket, 1), b"");
    }
    if h.is_simulated() {
        assert_eq!(h.open_descriptors(), open + accepted.len());
    }
}

pub(crate) fn f3_cancel_while_an_address_does_not_answer(h: &Harness) {
    let silent = h.silent();
    let open = h.open_descriptors();
    let heard = Heard::default();
    let connector = Connector::to([silent]).timeout(HOUR).retry(again(10, HOUR));
    let connecting = connector.connect(&h.lp, heard.callback());
    h.run_for(3 * MS);
    assert_eq!(heard.count(), 0);
    connecting.cancel(&h.lp);
    h.lp.run_until_idle().unwrap(); // no operation and no timer of an hour is left
    heard.cancelled();
    assert_eq!(connecting.attempts(), 1);
    assert_eq!(h.open_descriptors(), open);
}

pub(crate) fn f3_cancel_during_a_pause(h: &Harness) {
    let nobody = h.refusing();
    let open = h.open_descriptors();
    let heard = Heard::default();
    let connecting =
        Connector::to([nobody]).retry(again(10, HOUR)).connect(&h.lp, heard.callback());
    let lp = h.lp.clone();
    h.run_until(move || lp.dump().contains("0 operations, 1 timers"));
    assert_eq!((heard.count(), connecting.attempts()), (0, 1));
    connecting.cancel(&h.lp);
    h.lp.run_until_idle().unwrap();
    heard.cancelled();
    assert_eq!(connecting.attempts(), 1);
    assert_eq!(h.open_descriptors(), open);
}

pub(crate) fn f3_cancel_after_the_end_changes_nothing(h: &Harness) {
    let server = h.listening(&any());
    let heard = Heard::default();
    let connecting = Connector::to([server.address.clone()]).connect(&h.lp, heard.callback());
    let look = heard.clone();
    h.run_until(move || look.count() > 0);
    connecting.cancel(&h.lp);
    h.run_for(3 * MS);
    let client = heard.only().expect("it was connected before");
    let accepted = h.accepted(&server, 1);
    converse(h, client, accepted);
}

pub(crate) fn f3_callback_may_connect_again(h: &Harness) {
    let server = h.listening(&any());
    let nobody = h.refusing();
    let heard = Heard::default();
    let (then, address) = (heard.callback(), server.address.clone());
    Connector::to([nobody]).connect(&h.lp, move |lp, result| {
        assert_eq!(result.expect_err("refused").kind(), ErrorKind::ConnectionRefused);
        Connector::to([address]).connect(lp, then);
    });
    let look = heard.clone();
    h.run_until(move || look.count() > 0);
    let accepted = h.accepted(&server, 1);
    converse(h, heard.only().expect("it listens"), accepted);
}

pub(crate) fn f3_loop_dropped_while_connecting_drops_the_callback(h: &Harness) {
    let silent = h.silent();
    let builder = if h.is_simulated() {
        Loop::builder().demux(h.kernel().demux())
    } else {
        Loop::builder().backend(h.backend)
    };
    let lp = builder.build().unwrap();
    let owned = Rc::new(());
    let held = Rc::clone(&owned);
    let connecting = Connector::to([silent]).connect(&lp, move |_, _| drop(held));
    lp.run_ready().unwrap();
    drop(connecting);
    assert_eq!(Rc::strong_count(&owned), 2, "it is under way");
    drop(lp);
    assert_eq!(Rc::strong_count(&owned), 1);
}

// --- Exact, in the simulator ---------------------------------------------------------------------------

pub(crate) fn f3_time_out_is_exact(h: &Harness) {
    let h = h.simulated(1, Faults::none());
    let silent = h.silent();
    let before = h.kernel().elapsed();
    let connector = Connector::to([silent]).timeout(5 * SECOND);
    connect(&h, &connector).expect_err("nobody answers");
    let took = h.kernel().elapsed() - before;
    assert!(took >= 5 * SECOND && took < 5 * SECOND + MS, "{took:?}");
}

/// How long each pause was.
fn pauses(h: &Harness, retry: Retry) -> Vec<Duration> {
    let nobody = h.refusing();
    let heard = Heard::default();
    let connecting: Connecting =
        Connector::to([nobody]).retry(retry).connect(&h.lp, heard.callback());
    let times: Rc<RefCell<Vec<Duration>>> = Rc::new(RefCell::new(vec![h.kernel().elapsed()]));
    let (list, kernel) = (Rc::clone(&times), h.kernel().clone());
    h.lp.on_turn(HookKind::Prepare, move |_| {
        let mut times = list.borrow_mut();
        if times.len() < connecting.attempts() as usize {
            times.push(kernel.elapsed());
        }
    });
    let look = heard.clone();
    h.run_until(move || look.count() > 0);
    heard.only().expect_err("nobody listens");
    let times = times.take();
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

pub(crate) fn f3_pauses_grow_and_are_replayed_by_the_seed(h: &Harness) {
    let retry = Retry { rounds: 8, first: SECOND, limit: 10 * SECOND };
    let of_seed = |seed| pauses(&h.simulated(seed, Faults::none()), retry);
    let mut all = Vec::new();
    for seed in 0..20 {
        let pauses = of_seed(seed);
        let wholes = [1, 2, 4, 8, 10, 10, 10].map(|whole| whole * SECOND);
        assert_eq!(pauses.len(), wholes.len());
        for (&pause, &whole) in pauses.iter().zip(&wholes) {
            assert!(pause >= whole / 2 && pause <= whole + MS, "{pause:?} of {whole:?}");
        }
        assert_eq!(pauses, of_seed(seed), "the same seed, the same pauses");
        all.push(pauses[0]);
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 20, "chance decides: {all:?}");
}

/// A connector that has to work for it: refused, unanswered, then connected.
fn hard_way(h: &Harness) -> (Listening, Connector) {
    let (refusing, silent) = (h.refusing(), h.silent());
    let server = h.listening(&any());
    let addresses = [refusing, silent, server.address.clone()];
    let connector = Connector::to(addresses).timeout(30 * MS).retry(again(2, MS));
    (server, connector)
}

/// Ends what there is, and looks whether anything is left that should not be.
fn assert_no_leak(h: &Harness, server: &Listening, open: usize, result: io::Result<Handle>) {
    let ends = result.into_iter().chain(server.accepted.take());
    for handle in ends {
        h.lp.operate(Operation::Close { handle }, |_, _| ());
    }
    h.run_for(HOUR);
    // A connection whose client has gone may come late.
    for handle in server.accepted.take() {
        h.lp.operate(Operation::Close { handle }, |_, _| ());
    }
    h.run_for(HOUR);
    assert_eq!(h.open_descriptors(), open, "leaked: {}", h.lp.dump());
}

pub(crate) fn f3_any_failure_is_told_once_and_leaks_nothing(h: &Harness) {
    // One thing fails, and two rounds are tried: it connects all the same.
    let succeeds_although = |fail: &dyn Fn(&Harness)| {
        let h = h.simulated(3, Faults::none());
        let (server, connector) = hard_way(&h);
        let open = h.open_descriptors();
        fail(&h);
        let result = connect(&h, &connector);
        assert!(result.is_ok(), "{result:?}");
        let has_failed = h.kernel().injected().count(Fault::FailNth) == 1;
        assert_no_leak(&h, &server, open, result);
        has_failed
    };
    let mut operations = 0;
    while succeeds_although(&|h| {
        let next = h.kernel().operations() + 1;
        h.kernel().fail_nth(next + operations, EMFILE);
    }) {
        operations += 1;
    }
    assert!(operations >= 3, "three connects, and not {operations} operations");
    let mut calls = 0;
    while succeeds_although(&|h| {
        let next = h.kernel().calls() + 1;
        h.kernel().fail_nth_call(next + calls, EMFILE);
    }) {
        calls += 1;
    }
    assert!(calls >= 6, "three sockets with an option each, and not {calls} calls");
}

pub(crate) fn f3_cancel_of_an_attempt_that_could_not_begin(h: &Harness) {
    let h = h.simulated(1, Faults::none());
    let addresses = [h.refusing(), h.refusing()];
    let open = h.open_descriptors();
    h.kernel().fail_nth_call(h.kernel().calls() + 1, EMFILE);
    let heard = Heard::default();
    let connecting = Connector::to(addresses).connect(&h.lp, heard.callback());
    connecting.cancel(&h.lp);
    h.lp.run_until_idle().unwrap();
    heard.cancelled();
    assert_eq!(connecting.attempts(), 1, "it went on");
    assert_eq!(h.open_descriptors(), open);
}

pub(crate) fn f3_unkind_kernels_are_survived(h: &Harness) {
    let (mut connected, mut failed) = (0, 0);
    for seed in 0..300 {
        let faults = Faults {
            refuse_connect: 0.5,
            time_out_connect: 0.2,
            exhaust_descriptors: 0.0,
            ..Faults::hostile()
        };
        let h = h.simulated(seed, faults);
        let server = h.listening(&any());
        let open = h.open_descriptors();
        let retry = again(2, SECOND);
        let connector = Connector::to([server.address.clone()]).timeout(SECOND).retry(retry);
        let result = connect(&h, &connector);
        match &result {
            Ok(_) => connected += 1,
            Err(error) => {
                failed += 1;
                assert!(error.to_string().ends_with("(2 attempts)"), "{error}");
            }
        }
        assert_no_leak(&h, &server, open, result);
    }
    assert!(connected > 50 && failed > 50, "{connected} connected, {failed} failed");
}

pub(crate) fn f3_cancel_at_any_moment_leaks_nothing(h: &Harness) {
    let (mut cancelled, mut ended) = (0, 0);
    for seed in 0..300u32 {
        let h = h.simulated(seed.into(), Faults::benign());
        let (server, connector) = hard_way(&h);
        let open = h.open_descriptors();
        let heard = Heard::default();
        let connecting = connector.connect(&h.lp, heard.callback());
        // The whole takes some 30 ms: a refusal, a time-out, a connection.
        let moment = seed * MS * 40 / 300;
        h.run_for(moment);
        let before = heard.count();
        connecting.cancel(&h.lp);
        h.run_for(SECOND);
        let result = heard.only();
        match (before, &result) {
            (0, Err(error)) => {
                assert_eq!(error.raw_os_error(), Some(ECANCELED));
                cancelled += 1;
            }
            (1, Ok(_)) => ended += 1,
            other => panic!("{other:?}"),
        }
        assert_no_leak(&h, &server, open, result);
    }
    assert!(cancelled > 100 && ended > 10, "{cancelled} cancelled, {ended} ended before");
}
