//! What a case works with: a loop on the backend under test, and ways to drive it.

use coracle_loop::demux::sim::{Faults, Kernel};
use coracle_loop::demux::{
    Address, Backend, Completion, Finished, Handle, Operation, Outcome, Payload, SocketKind,
    Submitted,
};
use coracle_loop::{HookKind, Loop};
use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// No case takes longer than this, however busy the machine. It decides no case: it ends those that hang.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Harness {
    pub(crate) lp: Loop,
    pub(crate) backend: Backend,
    /// The path of the case, as the test runner knows it.
    path: &'static str,
    kernel: Option<Kernel>,
    _watchdog: Option<Sender<()>>,
}

impl Harness {
    /// Simulated, every choice the contract leaves open is made at random, and nothing goes wrong.
    pub(crate) fn new(backend: Backend, path: &'static str) -> Harness {
        let kernel = (backend == Backend::Sim).then(|| Kernel::with_faults(1, Faults::benign()));
        let builder = match &kernel {
            Some(kernel) => Loop::builder().demux(kernel.demux()),
            None => Loop::builder().backend(backend),
        };
        let lp = builder.build().expect("the backend opens");
        assert_eq!(lp.backend(), backend, "no fallback: this kernel must have them all");
        Harness { lp, backend, path, kernel, _watchdog: Some(watch_over(path)) }
    }

    /// The same case on a simulated kernel of its own, under the watchdog of this one.
    pub(crate) fn simulated(&self, seed: u64, faults: Faults) -> Harness {
        let kernel = Kernel::with_faults(seed, faults);
        kernel.set_patience(Duration::ZERO);
        let lp = Loop::builder().demux(kernel.demux()).build().expect("the simulator opens");
        let (backend, path) = (Backend::Sim, self.path);
        Harness { lp, backend, path, kernel: Some(kernel), _watchdog: None }
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.kernel.is_some()
    }

    /// The simulated kernel, in cases that only run there.
    pub(crate) fn kernel(&self) -> &Kernel {
        self.kernel.as_ref().expect("this case runs on the simulator only")
    }

    /// How many descriptors are open, where that can be known.
    pub(crate) fn open_descriptors(&self) -> usize {
        self.kernel.as_ref().map_or(0, Kernel::open_descriptors)
    }

    // --- Driving ---------------------------------------------------------------------------------------

    /// Runs until `reached`. What is never reached is ended by the watchdog, or by the simulator's finding that
    /// nothing can happen any more.
    pub(crate) fn run_until(&self, reached: impl Fn() -> bool + 'static) {
        let over = Rc::new(Cell::new(false));
        let look = Rc::new({
            let over = Rc::clone(&over);
            move |lp: &Loop| {
                if over.get() || reached() {
                    over.set(true);
                    lp.stop();
                }
            }
        });
        let hooks = [HookKind::Prepare, HookKind::Idle].map(|kind| {
            let look = Rc::clone(&look);
            self.lp.on_turn(kind, move |lp| look(lp))
        });
        while !over.get() {
            self.lp.run().expect("a run");
        }
        for hook in hooks {
            self.lp.remove_hook(hook);
        }
    }

    /// Runs turns for `time`, by the loop's clock.
    pub(crate) fn run_for(&self, time: Duration) {
        let over = Rc::new(Cell::new(false));
        let set = Rc::clone(&over);
        self.lp.after(time, move |_| set.set(true));
        self.run_until(move || over.get());
    }

    // --- Operations ------------------------------------------------------------------------------------

    /// Starts an operation and sees it through.
    pub(crate) fn operate(&self, operation: Operation) -> Finished {
        let finished = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&finished);
        self.lp.operate(operation, move |_, done| *slot.borrow_mut() = Some(done));
        let look = Rc::clone(&finished);
        self.run_until(move || look.borrow().is_some());
        finished.take().expect("it has finished")
    }

    /// Sends a few bytes on a stream.
    pub(crate) fn send(&self, socket: Handle, bytes: &[u8]) {
        let payload = Payload::from(bytes.to_vec());
        let sent = self.operate(Operation::Send { socket, payload }).result;
        assert!(matches!(sent, Ok(Outcome::Count(count)) if count == bytes.len()), "{sent:?}");
    }

    /// Receives exactly `count` bytes of a stream, or what there is before its end.
    pub(crate) fn receive(&self, socket: Handle, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < count {
            let space = vec![0; count - all.len()].into();
            let finished = self.operate(Operation::Receive { socket, space });
            let Ok(Outcome::Count(got)) = finished.result else { panic!("{:?}", finished.result) };
            if got == 0 {
                break;
            }
            all.extend_from_slice(&finished.payload.into_vec()[..got]);
        }
        all
    }

    /// Receives one datagram on a bare socket.
    pub(crate) fn receive_datagram(&self, socket: Handle) -> Vec<u8> {
        let space = vec![0; 1 << 16].into();
        let receive = Operation::ReceiveMessage { socket, space, limit_descriptors: 0 };
        let finished = self.operate(receive);
        let Ok(Outcome::Message(message)) = finished.result else {
            panic!("{:?}", finished.result);
        };
        finished.payload.into_vec()[..message.count].to_vec()
    }

    pub(crate) fn close(&self, handle: Handle) {
        self.operate(Operation::Close { handle }).result.expect("close");
    }

    // --- The world around ------------------------------------------------------------------------------

    /// A Unix name that no other case has.
    pub(crate) fn unix_name(&self, which: &str) -> Address {
        format!("unix:@{}-{}-{which}", self.path, std::process::id()).parse().expect("a name")
    }

    /// A bare socket with an address.
    pub(crate) fn bound(&self, kind: SocketKind, address: &Address) -> (Handle, Address) {
        let socket = self.lp.socket(kind).expect("socket");
        self.lp.bind(socket, address).expect("bind");
        (socket, self.lp.local_address(socket).expect("address"))
    }

    /// An address that refuses connections: a socket has it that does not listen, so that nobody else gets it.
    pub(crate) fn refusing(&self) -> Address {
        self.bound(SocketKind::Tcp4, &any()).1
    }

    /// An address that does not answer: one connection fits into its backlog, and is there already.
    pub(crate) fn silent(&self) -> Address {
        let listener = self.lp.listen(&any(), 0).expect("listen");
        let address = self.lp.local_address(listener).expect("address");
        let socket = self.lp.socket(SocketKind::Tcp4).expect("socket");
        let connect = Operation::Connect { socket, address: address.clone() };
        self.operate(connect).result.expect("the first one fits");
        address
    }

    /// A server that accepts and keeps what it has accepted.
    pub(crate) fn listening(&self, address: &Address) -> Listening {
        let listener = self.lp.listen(address, 16).expect("listen");
        let address = self.lp.local_address(listener).expect("address");
        let accepted: Rc<RefCell<Vec<Handle>>> = Rc::default();
        let list = Rc::clone(&accepted);
        let accept = move |_: &Loop, _: u32, completion: Completion| {
            if let Ok(Outcome::Accepted(socket)) = completion.result {
                list.borrow_mut().push(socket);
            }
        };
        let submitted = self.lp.submit(Operation::Accept { listener }, &Rc::new(accept), 0);
        assert!(matches!(submitted, Submitted::Pending(_)));
        Listening { address, accepted }
    }

    /// The `count`-th connection of a server.
    pub(crate) fn accepted(&self, server: &Listening, count: usize) -> Handle {
        let list = Rc::clone(&server.accepted);
        self.run_until(move || list.borrow().len() >= count);
        server.accepted.borrow()[count - 1]
    }
}

pub(crate) struct Listening {
    pub(crate) address: Address,
    pub(crate) accepted: Rc<RefCell<Vec<Handle>>>,
}

/// Any port of this machine.
pub(crate) fn any() -> Address {
    "127.0.0.1:0".parse().expect("an address")
}

/// Ends the process, naming the case, unless the case is over in time.
fn watch_over(path: &'static str) -> Sender<()> {
    let (alive, case) = channel();
    std::thread::spawn(move || {
        if case.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            // Not by a macro: the test runner would keep what it prints to itself.
            let _ = writeln!(io::stderr(), "{path} hangs: not over after {PATIENCE:?}");
            std::process::abort();
        }
    });
    alive
}
