//! Many coroutines on one thread, each making one blocking call that takes a tenth of a second, and a neighbour
//! who wakes up every five milliseconds.

use clap::ValueEnum;
use coracle::demux::Backend;
use coracle::{Loop, run_on, spawn};
use serde::Serialize;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::process::Command;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

/// How often the neighbour wakes up. It is late if it is more than once as long too late.
const TICK: Duration = Duration::from_millis(5);

/// How to ask.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Client {
    /// `std::net`, by hand.
    Http,
    /// `redis`: `BLPOP` of nothing.
    Redis,
    /// `ureq`.
    Ureq,
    /// `mysql`: `SELECT SLEEP(0.1)`.
    Mysql,
    /// `std::process`: `sleep 0.1`.
    Children,
    /// `ToSocketAddrs`, of a name that the hosts file has.
    Hosts,
}

/// What came of it.
#[derive(Serialize)]
pub(crate) struct Asked {
    /// From the first call to the last answer.
    seconds: f64,
    /// How often the neighbour woke up meanwhile, and how often in time.
    ticks: u32,
    on_time: u32,
    /// How late it was at worst, in milliseconds.
    worst_ms: f64,
}

/// Asks.
pub(crate) fn ask(
    client: Client,
    count: usize,
    backend: Backend,
    server: Option<SocketAddr>,
) -> io::Result<Asked> {
    let lp = Loop::builder().backend(backend).build()?;
    run_on(&lp, move || {
        let server = server.map(|server| server.to_string()).unwrap_or_default();
        one(client, &server)?; // whatever is made only once
        let neighbour = Rc::new(Neighbour::default());
        let ticking = {
            let neighbour = Rc::clone(&neighbour);
            spawn(move || neighbour.tick())
        };
        coracle::yield_now();
        let begin = Instant::now();
        let server = Rc::new(server);
        let all: Vec<_> = (0..count)
            .map(|_| {
                let server = Rc::clone(&server);
                spawn(move || one(client, &server))
            })
            .collect();
        for asking in all {
            asking.join().map_err(|_| io::Error::other("a client has panicked"))??;
        }
        let seconds = begin.elapsed().as_secs_f64();
        neighbour.over.set(true);
        ticking.join().map_err(|_| io::Error::other("the neighbour has panicked"))?;
        Ok(Asked {
            seconds,
            ticks: neighbour.ticks.get(),
            on_time: neighbour.on_time.get(),
            worst_ms: neighbour.worst.get().as_secs_f64() * 1e3,
        })
    })
}

/// One call.
fn one(client: Client, server: &str) -> io::Result<()> {
    match client {
        Client::Http => {
            let mut stream = TcpStream::connect(server)?;
            stream.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            check(answer.ends_with("ahoy\n"))
        }
        Client::Ureq => {
            let mut answer =
                ureq::get(format!("http://{server}/")).call().map_err(io::Error::other)?;
            check(answer.body_mut().read_to_string().map_err(io::Error::other)? == "ahoy\n")
        }
        Client::Redis => {
            let client =
                redis::Client::open(format!("redis://{server}/")).map_err(io::Error::other)?;
            let mut connection = client.get_connection().map_err(io::Error::other)?;
            let nothing: Option<Vec<String>> = redis::cmd("BLPOP")
                .arg("nothing")
                .arg(0.1)
                .query(&mut connection)
                .map_err(io::Error::other)?;
            check(nothing.is_none())
        }
        Client::Mysql => {
            use mysql::prelude::Queryable;
            let address: SocketAddr = server.parse().map_err(io::Error::other)?;
            let options = mysql::OptsBuilder::new()
                .ip_or_hostname(Some(address.ip().to_string()))
                .tcp_port(address.port())
                .user(Some("coracle"))
                .prefer_socket(false);
            let mut connection = mysql::Conn::new(options).map_err(io::Error::other)?;
            let slept: Option<u8> =
                connection.query_first("SELECT SLEEP(0.1)").map_err(io::Error::other)?;
            check(slept == Some(0))
        }
        Client::Children => check(Command::new("sleep").arg("0.1").status()?.success()),
        Client::Hosts => check(("localhost", 80).to_socket_addrs()?.next().is_some()),
    }
}

fn check(right: bool) -> io::Result<()> {
    if right { Ok(()) } else { Err(io::Error::other("a wrong answer")) }
}

/// Who wakes up now and then.
#[derive(Default)]
struct Neighbour {
    over: Cell<bool>,
    ticks: Cell<u32>,
    on_time: Cell<u32>,
    worst: Cell<Duration>,
}

impl Neighbour {
    fn tick(&self) {
        while !self.over.get() {
            let begin = Instant::now();
            thread::sleep(TICK);
            let late = begin.elapsed().saturating_sub(TICK);
            self.ticks.set(self.ticks.get() + 1);
            self.on_time.set(self.on_time.get() + u32::from(late <= TICK));
            self.worst.set(self.worst.get().max(late));
        }
    }
}
