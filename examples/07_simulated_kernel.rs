//! The echo server of the first example, unchanged, on a kernel that is made up from a seed.
//!
//! ```text
//! run:   cargo run -p coracle --example 07_simulated_kernel         or with a seed: … -- 7
//! ```
//!
//! Connections stall, counts come back short, operations that could finish at once do not: the seed
//! decides, and the same seed decides the same again. The client thinks for ten seconds between two
//! messages, and nobody waits: the clock is virtual.

// `accept` is all that is used of it.
#[allow(dead_code)]
#[path = "01_echo_loop.rs"]
mod server;

use coracle::Loop;
use coracle::demux::sim::{Faults, Kernel};
use coracle::demux::{Address, Handle, Operation, Outcome, Payload, SocketKind};
use std::cell::{Cell, RefCell};
use std::{env, io, rc::Rc, time::Duration};

const MESSAGES: usize = 3;
const THINKING: Duration = Duration::from_secs(10);

fn main() -> io::Result<()> {
    let seed = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(42);
    let kernel = Kernel::with_faults(seed, Faults::default());
    let lp = Loop::builder().demux(kernel.demux()).build()?;

    let address: Address = "10.0.0.1:7000".parse()?; // every address is this kernel's
    let listener = lp.listen(&address, 128)?;
    server::accept(&lp, listener);

    let socket = lp.socket(SocketKind::Tcp4)?;
    let client = Rc::new(Client {
        kernel: kernel.clone(),
        socket,
        message: (0..1000).map(|n| n as u8).collect(),
        echo: RefCell::default(),
        left: Cell::new(MESSAGES),
    });
    lp.operate(Operation::Connect { socket, address }, move |lp, finished| {
        finished.result.expect("the default faults break nothing");
        client.send(lp, client.message.clone().into());
    });
    lp.run()?;

    println!("seed {seed}: {} operations, {:?} virtual", kernel.operations(), kernel.elapsed());
    println!("faults: {}", kernel.describe_faults());
    Ok(())
}

struct Client {
    kernel: Kernel,
    socket: Handle,
    message: Vec<u8>,
    /// What has come back of it.
    echo: RefCell<Vec<u8>>,
    left: Cell<usize>,
}

impl Client {
    fn send(self: &Rc<Self>, lp: &Loop, payload: Payload) {
        let (socket, client) = (self.socket, Rc::clone(self));
        lp.operate(Operation::Send { socket, payload }, move |lp, finished| {
            let mut payload = finished.payload;
            match finished.result {
                Ok(Outcome::Count(count)) if count < payload.len() => {
                    payload.advance(count);
                    client.send(lp, payload);
                }
                result => {
                    result.expect("the default faults break nothing");
                    client.receive(lp);
                }
            }
        });
    }

    fn receive(self: &Rc<Self>, lp: &Loop) {
        let (socket, client) = (self.socket, Rc::clone(self));
        let space = vec![0; 4096].into();
        lp.operate(Operation::Receive { socket, space }, move |lp, finished| {
            let Ok(Outcome::Count(count)) = finished.result else {
                unreachable!("the default faults break nothing");
            };
            client.echo.borrow_mut().extend_from_slice(&finished.payload.into_vec()[..count]);
            if client.echo.borrow().len() < client.message.len() {
                client.receive(lp);
            } else {
                client.echoed(lp);
            }
        });
    }

    /// A whole message has come back: checks it, thinks, and sends the next.
    fn echoed(self: &Rc<Self>, lp: &Loop) {
        assert_eq!(self.echo.take(), self.message, "an echo says what was said");
        println!("{:>12.3?}  {} bytes echoed", self.kernel.elapsed(), self.message.len());
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            return lp.stop();
        }
        let client = Rc::clone(self);
        lp.after(THINKING, move |lp| client.send(lp, client.message.clone().into()));
    }
}
