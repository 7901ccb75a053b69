//! Rows F1, F8, F11, I8 and T12: who connects is served, or told that there is no room; and it is counted.

use crate::harness::Harness;
use crate::peers::echo;
use coracle_loop::demux::{Address, Descriptor, Handle, Operation, SocketKind};
use coracle_net::{
    Buffer, Conn, ListenOptions, ListenSocket, Listener, Protocol, Settings, TurnedAway,
};
use rustix::net::sockopt;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn any() -> Address {
    "127.0.0.1:0".parse().expect("an address")
}

type Echo = fn(&mut Conn<'_>, &mut Buffer) -> io::Result<()>;

fn listener(h: &Harness, settings: Settings) -> (Listener, Address) {
    let listener = Listener::bind(&h.lp, &any(), settings, |_| echo as Echo).expect("it listens");
    let address = listener.local_address(&h.lp).expect("an address");
    (listener, address)
}

fn connect(h: &Harness, address: &Address) -> Handle {
    let socket = h.lp.socket(SocketKind::Tcp4).expect("a socket");
    let operation = Operation::Connect { socket, address: address.clone() };
    h.operate(operation).result.expect("it connects");
    socket
}

pub(crate) fn f8_all_who_wait_are_accepted(h: &Harness) {
    let (listener, address) = listener(h, Settings::default());
    let clients: Vec<Handle> = (0..100).map(|_| connect(h, &address)).collect();
    for (index, &client) in clients.iter().enumerate() {
        let text = format!("client {index}");
        h.send(client, text.as_bytes());
        assert_eq!(h.receive(client, text.len()), text.as_bytes());
    }
    assert_eq!(listener.stats().open(), 100);
    for client in clients {
        h.close(client);
    }
    h.run_until(&listener, |listener| listener.stats().open() == 0);
    assert_eq!(listener.stats().opened, 100);
}

pub(crate) fn f11_listener_takes_a_socket_with_options(h: &Harness) {
    let options = ListenOptions::new().no_delay(false).keep_alive(Duration::from_secs(77));
    let socket = ListenSocket::bind(&any(), &options).expect("it listens");
    let address = socket.local_address().clone();
    let served: Rc<RefCell<Option<Descriptor>>> = Rc::default();
    let slot = Rc::clone(&served);
    let listener = Listener::from_socket(&h.lp, socket, Settings::default(), move |_| {
        let slot = Rc::clone(&slot);
        move |conn: &mut Conn<'_>, _: &mut Buffer| {
            let slot = Rc::clone(&slot);
            conn.hijack(move |lp, socket, _| *slot.borrow_mut() = lp.detach(socket).ok());
            Ok(())
        }
    });
    if h.is_simulated() {
        let error = listener.err().expect("its sockets are of another kind");
        return assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
    let listener = listener.expect("it is taken over");
    let client = connect(h, &address);
    h.send(client, b"x");
    h.run_until(&served, |served| served.borrow().is_some());
    let Some(Descriptor::Os(socket)) = served.take() else { panic!("a socket of the system's") };
    assert!(!sockopt::tcp_nodelay(&socket).unwrap());
    assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), Duration::from_secs(77));
    listener.close(&h.lp);
}

pub(crate) fn i8_over_capacity_is_told_and_closed(h: &Harness) {
    let settings = Settings {
        limit_connections: 2,
        busy_message: "busy, come back later\n".into(),
        ..Settings::default()
    };
    let (listener, address) = listener(h, settings);
    let first: Vec<Handle> = (0..2).map(|_| connect(h, &address)).collect();
    for &client in &first {
        h.send(client, b"x");
        assert_eq!(h.receive(client, 1), b"x");
    }
    let third = connect(h, &address);
    assert_eq!(h.receive(third, 1000), b"busy, come back later\n");
    assert_eq!(listener.stats().turned_away, 1);
    h.close(third);
    h.close(first[0]);
    h.run_until(&listener, |listener| listener.stats().open() == 1);
    let fourth = connect(h, &address);
    h.send(fourth, b"room again");
    assert_eq!(h.receive(fourth, 10), b"room again");
}

pub(crate) fn i8_who_is_turned_away_is_told_of(h: &Harness) {
    let told: Arc<Mutex<Vec<Address>>> = Arc::default();
    let peers = Arc::clone(&told);
    let note = move |conn: &Conn<'_>| {
        peers.lock().unwrap().push(conn.peer_address().expect("its address"));
    };
    let settings = Settings {
        limit_connections: 1,
        busy_message: "busy\n".into(),
        on_turned_away: Some(TurnedAway::new(note)),
        ..Settings::default()
    };
    let (listener, address) = listener(h, settings.clone());
    let first = connect(h, &address);
    h.send(first, b"x");
    assert_eq!(h.receive(first, 1), b"x");
    assert!(told.lock().unwrap().is_empty(), "who is served is not");
    let others: Vec<Handle> = (0..3).map(|_| connect(h, &address)).collect();
    for &other in &others {
        assert_eq!(h.receive(other, 1000), b"busy\n");
    }
    let addresses: Vec<String> =
        others.iter().map(|&it| h.lp.local_address(it).unwrap().to_string()).collect();
    let mut told: Vec<String> = told.lock().unwrap().iter().map(Address::to_string).collect();
    told.sort_by_key(|peer| addresses.iter().position(|it| it == peer));
    assert_eq!(told, addresses);
    assert_eq!(listener.stats().turned_away, 3);
}

/// Turns those away who are not the first.
struct First {
    seats: Rc<Cell<u32>>,
}

impl Protocol for First {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        if self.seats.replace(self.seats.get() + 1) > 0 {
            conn.turn_away();
        }
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        echo(conn, input)
    }
}

pub(crate) fn i8_who_is_turned_away_by_its_protocol_takes_no_place(h: &Harness) {
    let settings = Settings {
        limit_connections: 2,
        busy_message: "not you\n".into(),
        drain: Duration::from_secs(3600),
        ..Settings::default()
    };
    let seats = Rc::new(Cell::new(0));
    let taken = Rc::clone(&seats);
    let listener =
        Listener::bind(&h.lp, &any(), settings, move |_| First { seats: Rc::clone(&taken) });
    let listener = listener.expect("it listens");
    let address = listener.local_address(&h.lp).expect("an address");
    let first = connect(h, &address);
    h.send(first, b"x");
    assert_eq!(h.receive(first, 1), b"x");
    for _ in 0..5 {
        let other = connect(h, &address); // it stays
        assert_eq!(h.receive(other, 1000), b"not you\n");
    }
    assert_eq!((listener.stats().turned_away, listener.stats().open()), (5, 6));
    seats.set(0);
    let second = connect(h, &address);
    h.send(second, b"y");
    assert_eq!(h.receive(second, 1), b"y");
}

pub(crate) fn f1_closed_listener_leaves_its_connections_alone(h: &Harness) {
    let (listener, address) = listener(h, Settings::default());
    let client = connect(h, &address);
    h.send(client, b"x");
    assert_eq!(h.receive(client, 1), b"x");
    listener.close(&h.lp);
    h.send(client, b"still here");
    assert_eq!(h.receive(client, 10), b"still here");
    h.run_for(Duration::from_millis(1)); // closing may take a turn
    let late = h.lp.socket(SocketKind::Tcp4).expect("a socket");
    let refused = h.operate(Operation::Connect { socket: late, address });
    assert_eq!(
        refused.result.expect_err("nobody listens").kind(),
        io::ErrorKind::ConnectionRefused
    );
}

pub(crate) fn t12_who_meets_a_limit_is_counted(h: &Harness) {
    let settings = Settings {
        limit_input_bytes: 100,
        high_mark_bytes: 100,
        low_mark_bytes: 100,
        limit_output_bytes: 100,
        drain: Duration::from_millis(10),
        limit_connections: 1,
        ..Settings::default()
    };
    // What each of them is told to do.
    let serve = |conn: &mut Conn<'_>, input: &mut Buffer| {
        match input.unread() {
            [b'f', ..] => conn.write(vec![b'x'; 64 << 20]), // flood it
            [b'c', ..] => conn.close(),
            _ => return Ok(()), // wait for more
        }
        input.take_all();
        Ok(())
    };
    let listener = Listener::bind(&h.lp, &any(), settings, move |_| serve).expect("it listens");
    let address = listener.local_address(&h.lp).expect("an address");
    let closed = |count| h.run_until(&listener, move |it| it.stats().closed == count);
    let unread = connect(h, &address);
    h.run_until(&listener, |listener| listener.stats().open() == 1);
    let over = connect(h, &address);
    assert_eq!(h.receive(over, 1), b"");
    h.send(unread, &[b'x'; 101]);
    closed(1);
    let slow = connect(h, &address);
    h.send(slow, b"f");
    closed(2);
    let late = connect(h, &address);
    h.send(late, b"c"); // and does not close its side
    closed(3);
    let stats = listener.stats();
    let counts = [stats.turned_away, stats.input_limit, stats.slow_reader, stats.deadline];
    assert_eq!(counts, [1, 1, 1, 1], "{stats:?}");
    [unread, over, slow, late].into_iter().for_each(|client| h.close(client));
}
