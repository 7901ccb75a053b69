//! What a case works with: a loop on the backend under test, and ways to drive it.

use coracle_loop::demux::sim::{Faults, Kernel};
use coracle_loop::demux::{
    Address, Backend, Finished, Handle, Operation, Outcome, Payload, SocketKind, Submitted,
};
use coracle_loop::{Builder, HookKind, Loop};
use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Output};
use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// No case takes longer than this, however busy the machine. It decides no case: it ends those that hang.
const PATIENCE: Duration = Duration::from_secs(300);

/// Set in a process that a case has started for itself, to the name of the case.
const CHILD: &str = "CORACLE_ROWS_CHILD";

pub(crate) struct Harness {
    pub(crate) lp: Loop,
    pub(crate) backend: Backend,
    /// The path of the case, as the test runner knows it.
    path: &'static str,
    kernel: Option<Kernel>,
    _watchdog: Sender<()>,
}

impl Harness {
    /// Simulated, every choice the contract leaves open is made at random, and nothing goes wrong.
    pub(crate) fn new(backend: Backend, path: &'static str) -> Harness {
        Harness::with_faults(backend, path, Faults::benign())
    }

    pub(crate) fn with_faults(backend: Backend, path: &'static str, faults: Faults) -> Harness {
        let kernel = (backend == Backend::Sim).then(|| Kernel::with_faults(1, faults));
        let lp = builder(backend, kernel.as_ref()).build().expect("the backend opens");
        assert_eq!(lp.backend(), backend, "no fallback: this kernel must have them all");
        Harness { lp, backend, path, kernel, _watchdog: watch_over(path) }
    }

    /// A loop of its own on the same backend; simulated, on the same kernel.
    pub(crate) fn builder(&self) -> Builder {
        builder(self.backend, self.kernel.as_ref())
    }

    /// The same case on a kernel that is as kind or unkind as `faults` says. Simulator only.
    pub(crate) fn simulated(&self, faults: Faults) -> Harness {
        Harness::with_faults(Backend::Sim, self.path, faults)
    }

    /// Runs `case` on another thread with a harness of its own, because it may hang without ever waiting.
    pub(crate) fn must_not_hang(&self, case: impl FnOnce(&Harness) + Send + 'static) {
        let (backend, path) = (self.backend, self.path);
        let (over, done) = channel();
        let thread = std::thread::spawn(move || {
            case(&Harness::new(backend, path));
            let _ = over.send(());
        });
        match done.recv_timeout(PATIENCE / 10) {
            Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => thread.join().expect("the case"),
        }
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.kernel.is_some()
    }

    /// The simulated kernel, in cases that only run there.
    pub(crate) fn kernel(&self) -> &Kernel {
        self.kernel.as_ref().expect("this case runs on the simulator only")
    }

    // --- Driving ---------------------------------------------------------------------------------------

    /// Runs until `reached`, as [`run_until`].
    pub(crate) fn run_until<T: Clone + 'static>(
        &self,
        state: &T,
        reached: impl Fn(&T) -> bool + 'static,
    ) {
        run_until(&self.lp, state, reached);
    }

    /// Runs turns for `time`, by the loop's clock.
    pub(crate) fn run_for(&self, time: Duration) {
        let over = Rc::new(Cell::new(false));
        let set = Rc::clone(&over);
        self.lp.after(time, move |_| set.set(true));
        self.run_until(&over, move |over| over.get());
    }

    /// Counts turns from now on.
    pub(crate) fn count_turns(&self) -> Rc<Cell<u32>> {
        let turns = Rc::new(Cell::new(0));
        let count = Rc::clone(&turns);
        self.lp.on_turn(HookKind::Check, move |_| count.set(count.get() + 1));
        turns
    }

    // --- Operations ------------------------------------------------------------------------------------

    /// Starts an operation and sees it through.
    pub(crate) fn operate(&self, operation: Operation) -> Finished {
        let finished = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&finished);
        self.lp.operate(operation, move |_, done| *slot.borrow_mut() = Some(done));
        self.run_until(&finished, move |finished| finished.borrow().is_some());
        finished.take().expect("it has finished")
    }

    /// Sends all of `bytes`.
    pub(crate) fn send(&self, socket: Handle, bytes: &[u8]) {
        let mut left = bytes.to_vec();
        while !left.is_empty() {
            let payload = Payload::from(left);
            let finished = self.operate(Operation::Send { socket, payload });
            let Outcome::Count(sent) = finished.result.expect("send") else { unreachable!() };
            left = finished.payload.into_vec().split_off(sent);
        }
    }

    /// Receives exactly `count` bytes, or what there is before the end of the stream.
    pub(crate) fn receive(&self, socket: Handle, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < count {
            let space = vec![0; (count - all.len()).min(1 << 20)].into();
            let finished = self.operate(Operation::Receive { socket, space });
            let Outcome::Count(got) = finished.result.expect("receive") else { unreachable!() };
            if got == 0 {
                break;
            }
            all.extend_from_slice(&finished.payload.into_vec()[..got]);
        }
        all
    }

    pub(crate) fn close(&self, handle: Handle) {
        self.operate(Operation::Close { handle }).result.expect("close");
    }

    /// A TCP connection: its two ends.
    pub(crate) fn connection(&self) -> (Handle, Handle) {
        let any: Address = "127.0.0.1:0".parse().unwrap();
        let listener = self.lp.listen(&any, 16).expect("listen");
        let address = self.lp.local_address(listener).expect("address");
        let accepted = Rc::new(Cell::new(None));
        let slot = Rc::clone(&accepted);
        let accept = move |_: &Loop, _, completion: coracle_loop::demux::Completion| {
            if let Ok(Outcome::Accepted(socket)) = completion.result {
                slot.set(Some(socket));
            }
        };
        let submitted = self.lp.submit(Operation::Accept { listener }, &Rc::new(accept), 0);
        assert!(matches!(submitted, Submitted::Pending(_)));
        let client = self.lp.socket(SocketKind::Tcp4).expect("socket");
        self.operate(Operation::Connect { socket: client, address }).result.expect("connect");
        self.run_until(&accepted, move |accepted| accepted.get().is_some());
        self.close(listener);
        (client, accepted.get().expect("it was accepted"))
    }

    // --- The world around ------------------------------------------------------------------------------

    pub(crate) fn raise(&self, signal: i32) {
        match &self.kernel {
            Some(kernel) => kernel.raise(signal),
            None => send_signal(std::process::id(), signal),
        }
    }

    /// A child that ends soon, by exiting with `code`. Its status is taken by the operation under test.
    pub(crate) fn spawn_child(&self, code: i32) -> u32 {
        match &self.kernel {
            Some(kernel) => {
                kernel.spawn_child(Duration::from_millis(5), ExitStatus::from_raw(code << 8))
            }
            None => {
                let script = format!("sleep 0.01; exit {code}");
                Command::new("sh").args(["-c", &script]).spawn().expect("sh starts").id()
            }
        }
    }

    /// Runs `case` in a process where it is alone: signals, forks, limits and the environment are the
    /// process's. Says in the parent how that process ended, in the child nothing: it does not return.
    pub(crate) fn in_child(&self, case: impl FnOnce()) -> Option<Output> {
        self.in_child_with(&[], case)
    }

    /// The same with an environment.
    pub(crate) fn in_child_with(
        &self,
        environment: &[(&str, &str)],
        case: impl FnOnce(),
    ) -> Option<Output> {
        if is_child() {
            case();
            return None;
        }
        Some(self.child(environment).output().expect("the test runner starts"))
    }

    /// The same, and it has to succeed.
    pub(crate) fn succeed_in_child(&self, case: impl FnOnce()) {
        self.succeed_in_child_with(&[], case);
    }

    pub(crate) fn succeed_in_child_with(&self, environment: &[(&str, &str)], case: impl FnOnce()) {
        if let Some(output) = self.in_child_with(environment, case) {
            assert!(output.status.success(), "{}", describe(&output));
        }
    }

    /// This test in a process of its own.
    pub(crate) fn child(&self, environment: &[(&str, &str)]) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("the test has a path"));
        command.args([self.path, "--exact", "--nocapture", "--include-ignored"]);
        command.env(CHILD, self.path).env_remove("CORACLE_BACKEND");
        command.envs(environment.iter().copied());
        command
    }
}

/// Runs `lp` until `state` has `reached` what is waited for. What is never reached is ended by the watchdog,
/// or by the simulator's finding that nothing can happen any more.
pub(crate) fn run_until<T: Clone + 'static>(
    lp: &Loop,
    state: &T,
    reached: impl Fn(&T) -> bool + 'static,
) {
    let over = Rc::new(Cell::new(false));
    let look = {
        let (state, over) = (state.clone(), Rc::clone(&over));
        move |lp: &Loop| {
            if over.get() || reached(&state) {
                over.set(true);
                lp.stop();
            }
        }
    };
    // Before every wait; and once more before a sleep, behind the idle hooks of the case itself.
    let look = Rc::new(look);
    let hooks = [HookKind::Prepare, HookKind::Idle].map(|kind| {
        let look = Rc::clone(&look);
        lp.on_turn(kind, move |lp| look(lp))
    });
    while !over.get() {
        lp.run().expect("a run");
    }
    for hook in hooks {
        lp.remove_hook(hook);
    }
}

/// Whether this process was started by a case for itself.
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// What a process said and how it ended, for people.
pub(crate) fn describe(output: &Output) -> String {
    format!(
        "{}\n--- standard output\n{}\n--- standard error\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

pub(crate) fn send_signal(pid: u32, signal: i32) {
    let signal = rustix::process::Signal::from_named_raw(signal).expect("a signal");
    let pid = rustix::process::Pid::from_raw(pid.try_into().expect("a process id"));
    rustix::process::kill_process(pid.expect("a process id"), signal).expect("kill");
}

/// The error number of something that failed.
pub(crate) fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.expect_err("it must fail").raw_os_error().expect("an error of the system")
}

/// Whether two loops are one: what is posted to the one is in the queue of the other.
pub(crate) fn same_loop(a: &Loop, b: &Loop) -> bool {
    let before = b.handle().posted_jobs();
    a.handle().post(|_| ()).expect("there is room");
    b.handle().posted_jobs() == before + 1
}

/// A list that callbacks write to.
#[derive(Clone, Default)]
pub(crate) struct Log(Rc<RefCell<Vec<&'static str>>>);

impl Log {
    pub(crate) fn add(&self, what: &'static str) {
        self.0.borrow_mut().push(what);
    }

    pub(crate) fn take(&self) -> Vec<&'static str> {
        self.0.take()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    pub(crate) fn contains(&self, what: &str) -> bool {
        self.0.borrow().contains(&what)
    }
}

fn builder(backend: Backend, kernel: Option<&Kernel>) -> Builder {
    match kernel {
        Some(kernel) => Loop::builder().demux(kernel.demux()),
        None => Loop::builder().backend(backend),
    }
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
