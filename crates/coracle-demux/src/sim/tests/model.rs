//! Hundreds of seeds against a model that knows only the contract.
//!
//! ```text
//!  seed ──► random operations, cancels, closes ──► SimDemux (hostile)
//!                    │                                │ completions
//!                    ▼                                ▼
//!             what must come back  ───── compared ─────
//! ```

use super::*;
use crate::operation::{Interest, OpenOptions};
use crate::sim::random::Random;
use crate::socket::SocketOption;
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::time::Duration;

const SEEDS: u64 = 200;

#[test]
fn the_bytes_of_a_stream_arrive_complete_and_in_order() {
    for seed in 0..SEEDS {
        let faults = Faults {
            reset: 0.0,
            exhaust_descriptors: 0.0,
            refuse_connect: 0.0,
            time_out_connect: 0.0,
            ..Faults::hostile()
        };
        let mut rig = Rig::new(Kernel::with_faults(seed, faults));
        let pairs = [rig.demux.socket_pair().unwrap(), rig.tcp()];
        let message: Vec<u8> = (0..=250).cycle().take(3000).collect();
        let mut transfers: Vec<Transfer> = (pairs.into_iter())
            .flat_map(|(a, b)| [Transfer::new(a, b), Transfer::new(b, a)])
            .collect();
        while !transfers.iter().all(|transfer| transfer.is_over) {
            for transfer in &mut transfers {
                transfer.go_on(&mut rig, &message);
            }
            // What finished at once leaves nothing to wait for.
            let is_idle = rig.demux.in_flight() == 0;
            rig.demux.wait(is_idle.then_some(Duration::ZERO)).unwrap();
            // Taken as a batch, so that all lent buffers may be out at once.
            let batch: Vec<Completion> = std::iter::from_fn(|| rig.demux.next()).collect();
            for completion in &batch {
                for transfer in &mut transfers {
                    transfer.note(completion);
                }
            }
        }
        for transfer in transfers {
            assert!(transfer.received == message, "seed {seed}");
        }
    }
}

/// One direction of a connection on its way.
struct Transfer {
    from: Handle,
    to: Handle,
    sent: usize,
    received: Vec<u8>,
    sending: Option<Token>,
    receiving: Option<Token>,
    is_shut_down: bool,
    is_over: bool,
}

impl Transfer {
    fn new(from: Handle, to: Handle) -> Transfer {
        Transfer {
            from,
            to,
            sent: 0,
            received: Vec::new(),
            sending: None,
            receiving: None,
            is_shut_down: false,
            is_over: false,
        }
    }

    /// Submits what is not in flight. Cancels now and then, because that must not lose anything either.
    fn go_on(&mut self, rig: &mut Rig, message: &[u8]) {
        if self.sending.is_none() && !self.is_shut_down {
            let operation = if self.sent < message.len() {
                let payload = message[self.sent..].to_vec().into();
                Operation::Send { socket: self.from, payload }
            } else {
                self.is_shut_down = true;
                Operation::Shutdown { socket: self.from, how: Shutdown::Write }
            };
            match rig.demux.submit(operation) {
                Submitted::Pending(token) => self.sending = Some(token),
                Submitted::Done(finished) => self.note_sent(finished.result),
            }
        }
        if self.receiving.is_none() && !self.is_over {
            let operation = if self.received.len().is_multiple_of(2) {
                Operation::ReceiveLent { socket: self.to }
            } else {
                Operation::Receive { socket: self.to, space: space(50) }
            };
            match rig.demux.submit(operation) {
                Submitted::Pending(token) => self.receiving = Some(token),
                Submitted::Done(finished) => self.note_received(finished.result, &finished.payload),
            }
        }
        if rig.demux.seed().is_multiple_of(8) {
            for token in [self.sending, self.receiving].into_iter().flatten() {
                rig.demux.cancel(token);
            }
        }
    }

    fn note(&mut self, completion: &Completion) {
        if self.sending == Some(completion.token) {
            self.sending = None;
            self.note_sent(copy(&completion.result));
        }
        if self.receiving == Some(completion.token) {
            if !completion.more {
                self.receiving = None;
            }
            match &completion.result {
                Ok(Outcome::Lent(lent)) if lent.is_empty() => self.is_over = true,
                Ok(Outcome::Lent(lent)) => self.received.extend_from_slice(lent),
                other => self.note_received(copy(other), &completion.payload),
            }
        }
    }

    fn note_sent(&mut self, result: io::Result<Outcome>) {
        match result {
            Ok(Outcome::Count(count)) => self.sent += count,
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
                // A shutdown that was cancelled has not happened.
                self.is_shut_down = false;
            }
        }
    }

    fn note_received(&mut self, result: io::Result<Outcome>, payload: &Payload) {
        match result {
            Ok(Outcome::Count(0)) => self.is_over = true,
            Ok(Outcome::Count(count)) => {
                let Payload::One(memory) = payload else { panic!("the memory comes back") };
                self.received.extend_from_slice(&memory.as_slice()[..count]);
            }
            Ok(other) => panic!("a receive counts, and not {other:?}"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ECANCELED)),
        }
    }
}

fn copy(result: &io::Result<Outcome>) -> io::Result<Outcome> {
    match result {
        Ok(Outcome::Count(count)) => Ok(Outcome::Count(*count)),
        Ok(_) => Ok(Outcome::Nothing),
        Err(error) => Err(io::Error::from_raw_os_error(error.raw_os_error().unwrap())),
    }
}

/// What the model knows of an operation in flight.
struct Expected {
    payload_bytes: usize,
    is_multishot: bool,
    /// Completes after everything else on its descriptor.
    closes: Option<Handle>,
    handle: Option<Handle>,
}

/// A program that does everything it can think of.
struct Model {
    random: Random,
    kernel: Kernel,
    demuxes: Vec<SimDemux>,
    handles: Vec<Vec<Handle>>,
    /// A file each of them has open.
    files: [Option<Handle>; 2],
    expected: Vec<BTreeMap<Token, Expected>>,
    completed: usize,
}

#[test]
fn no_operation_is_lost_doubled_or_left_without_its_memory() {
    let mut completed = 0;
    for seed in 0..SEEDS {
        // Without resets, `World::await_change` also asserts that `could_finish` foretells the truth.
        let reset = if seed.is_multiple_of(2) { 0.0 } else { Faults::hostile().reset };
        let kernel = Kernel::with_faults(seed, Faults { reset, ..Faults::hostile() });
        kernel.add_file("/file", vec![7; 500]);
        let demuxes: Vec<SimDemux> = (0..2).map(|_| kernel.demux()).collect();
        let mut model = Model {
            random: Random::new(seed ^ 0xabcd),
            kernel,
            handles: vec![Vec::new(); 2],
            files: [None; 2],
            expected: (0..2).map(|_| BTreeMap::new()).collect(),
            demuxes,
            completed: 0,
        };
        for _ in 0..300 {
            model.act();
            model.step(Duration::from_micros(500));
        }
        model.finish();
        completed += model.completed;
    }
    assert!(completed > 10_000, "the model has seen only {completed} completions");
}

impl Model {
    fn act(&mut self) {
        let which = self.random.below(2);
        match self.random.below(20) {
            0 => {
                let kinds = [SocketKind::Tcp4, SocketKind::UnixStream, SocketKind::Udp4];
                let kind = kinds[self.random.below(3)];
                self.socket(which, kind);
            }
            1 => {
                if let Ok((a, b)) = self.demuxes[which].socket_pair() {
                    self.handles[which].extend([a, b]);
                }
            }
            2 => self.serve(which),
            7 | 8 => self.call(which),
            3 => self.hand_over(which),
            9 => {
                if let Some(socket) = self.socket(which, SocketKind::Udp4) {
                    let _ = self.demuxes[which].bind(socket, &"127.0.0.1:2".parse().unwrap());
                }
            }
            4 => self.kernel.raise(10),
            5 | 6 => {
                let tokens: Vec<Token> = self.expected[which].keys().copied().collect();
                if !tokens.is_empty() {
                    let token = tokens[self.random.below(tokens.len())];
                    self.demuxes[which].cancel(token);
                }
            }
            _ => {
                if let Some(operation) = self.any_operation(which) {
                    self.submit(which, operation);
                }
            }
        }
    }

    fn socket(&mut self, which: usize, kind: SocketKind) -> Option<Handle> {
        let socket = self.demuxes[which].socket(kind).ok()?;
        self.handles[which].push(socket);
        Some(socket)
    }

    /// Begins to listen somewhere.
    fn serve(&mut self, which: usize) {
        let address = self.any_address();
        let kind = SocketKind::stream_for(&address);
        let Some(listener) = self.socket(which, kind) else { return };
        let demux = &mut self.demuxes[which];
        if self.random.below(4) == 0 {
            demux.set_option(listener, SocketOption::ResetOnClose(true)).unwrap();
        }
        if demux.bind(listener, &address).is_ok() && demux.listen(listener, 2).is_ok() {
            self.submit(which, Operation::Accept { listener });
        }
    }

    /// Connects to somewhere, where perhaps somebody listens.
    fn call(&mut self, which: usize) {
        let address = self.any_address();
        if let Some(socket) = self.socket(which, SocketKind::stream_for(&address)) {
            self.submit(which, Operation::Connect { socket, address });
        }
    }

    fn any_handle(&mut self, which: usize) -> Option<Handle> {
        let handles = &self.handles[which];
        if handles.is_empty() { None } else { Some(handles[self.random.below(handles.len())]) }
    }

    fn any_address(&mut self) -> Address {
        let all = ["127.0.0.1:1", "127.0.0.1:2", "unix:@a", "unix:/b", "127.0.0.1:0"];
        all[self.random.below(all.len())].parse().unwrap()
    }

    /// Passes a descriptor to the other loop.
    fn hand_over(&mut self, which: usize) {
        let Some(handle) = self.any_handle(which) else { return };
        if let Ok(descriptor) = self.demuxes[which].detach(handle) {
            self.handles[which].retain(|&other| other != handle);
            if let Ok(handle) = self.demuxes[1 - which].adopt(descriptor) {
                self.handles[1 - which].push(handle);
            }
        }
    }

    fn any_operation(&mut self, which: usize) -> Option<Operation> {
        // Now and then more than a datagram can hold, and space that cannot be written.
        let limit = if self.random.below(20) == 0 { 100_000 } else { 300 };
        let bytes = self.random.below(limit);
        let payload = Payload::from(vec![1; bytes]);
        let is_unwritable = self.random.below(20) == 0;
        let space = |bytes: usize| match is_unwritable {
            true => Memory::from(bytes::Bytes::from(vec![0; bytes])),
            false => space(bytes),
        };
        let descriptors = match self.random.below(4) {
            0 => vec![std::fs::File::open("/dev/null").unwrap().into()],
            _ => Vec::new(),
        };
        if self.random.below(12) == 0 {
            let options =
                OpenOptions { read: true, write: true, create: true, truncate: false, mode: 0o600 };
            let status = std::os::unix::process::ExitStatusExt::from_raw(0);
            return Some(match self.random.below(3) {
                0 => Operation::Open { path: "/file".into(), options },
                1 => Operation::Signal { signal: 10 },
                _ => {
                    let after = Duration::from_millis(self.random.below(100) as u64);
                    Operation::ChildExit { pid: self.kernel.spawn_child(after, status) }
                }
            });
        }
        // Sockets for files and files for sockets, now and then: they must be refused, not confused.
        let handle = self.any_handle(which)?;
        let file = match self.files[which] {
            Some(file) if self.random.below(4) > 0 => file,
            _ => handle,
        };
        let socket = handle;
        let offset = bytes as u64;
        Some(match self.random.below(16) {
            0 => Operation::Accept { listener: handle },
            1 => Operation::Connect { socket, address: self.any_address() },
            2 => Operation::Poll { handle, interest: Interest::WRITE },
            3 => Operation::ReceiveLent { socket },
            4 => Operation::Receive { socket, space: space(bytes) },
            5 => Operation::ReceiveMessage { socket, space: space(bytes), limit_descriptors: 1 },
            6..=8 => Operation::Send { socket, payload },
            9 => {
                let to = (self.random.below(2) == 0).then(|| self.any_address());
                let message = crate::operation::Outgoing { payload, to, descriptors };
                Operation::SendMessage { socket, message: Box::new(message) }
            }
            10 => Operation::SendFile { socket, file, offset, count: 100 },
            11 => Operation::Shutdown { socket, how: Shutdown::Write },
            12 => Operation::Poll { handle, interest: Interest::READ },
            13 => Operation::Read { file, offset, space: space(bytes) },
            14 => Operation::Write { file, offset, memory: vec![2; bytes].into() },
            _ => {
                self.handles[which].retain(|&other| other != handle);
                Operation::Close { handle }
            }
        })
    }

    fn submit(&mut self, which: usize, operation: Operation) {
        let expected = Expected {
            payload_bytes: match &operation {
                Operation::Receive { space, .. }
                | Operation::ReceiveMessage { space, .. }
                | Operation::Read { space, .. } => space.len(),
                Operation::Write { memory, .. } => memory.len(),
                Operation::Send { payload, .. } => payload.len(),
                Operation::SendMessage { message, .. } => message.payload.len(),
                _ => 0,
            },
            is_multishot: matches!(
                operation,
                Operation::Accept { .. } | Operation::ReceiveLent { .. } | Operation::Signal { .. }
            ),
            closes: match operation {
                Operation::Close { handle } => Some(handle),
                _ => None,
            },
            handle: operation.handle(),
        };
        match self.demuxes[which].submit(operation) {
            Submitted::Done(finished) => {
                assert_eq!(finished.payload.len(), expected.payload_bytes);
                let is_refused = finished.result.is_err();
                assert!(is_refused || !expected.is_multishot, "multishot operations are pending");
                self.note_result(which, finished.result);
            }
            Submitted::Pending(token) => {
                let earlier = self.expected[which].insert(token, expected);
                assert!(earlier.is_none(), "a token is used for one operation at a time");
            }
        }
    }

    /// Lets both loops take what there is, waiting a little for it.
    fn step(&mut self, timeout: Duration) {
        for which in 0..2 {
            self.demuxes[which].wait(Some(timeout)).unwrap();
            while let Some(completion) = self.demuxes[which].next() {
                self.note(which, completion);
            }
            assert_eq!(self.demuxes[which].in_flight(), self.expected[which].len());
        }
    }

    fn note(&mut self, which: usize, completion: Completion) {
        let Completion { token, more, result, payload } = completion;
        self.completed += 1;
        if more {
            let expected = &self.expected[which][&token];
            assert!(expected.is_multishot && matches!(payload, Payload::Nothing));
        } else {
            let ended =
                self.expected[which].remove(&token).expect("it is in flight, and ends once");
            assert_eq!(payload.len(), ended.payload_bytes, "the memory comes back, whole");
            if let Some(closed) = ended.closes {
                let left = self.expected[which].values();
                let left = left.filter(|other| other.handle == Some(closed)).count();
                assert_eq!(left, 0, "a close is the last to complete");
            }
        }
        self.note_result(which, result);
    }

    fn note_result(&mut self, which: usize, result: io::Result<Outcome>) {
        match result {
            Ok(Outcome::Accepted(handle)) => self.handles[which].push(handle),
            Ok(Outcome::Opened(handle)) => {
                self.handles[which].push(handle);
                self.files[which] = Some(handle);
            }
            Ok(_) => {}
            Err(error) => {
                let error = errno(&error);
                use rustix::io::Errno;
                assert!(!matches!(error, Errno::AGAIN | Errno::INTR), "{error}");
            }
        }
    }

    /// Closes everything and takes every completion: nothing may be left.
    fn finish(&mut self) {
        for which in 0..2 {
            for handle in std::mem::take(&mut self.handles[which]) {
                self.submit(which, Operation::Close { handle });
            }
            for token in self.expected[which].keys().copied().collect::<Vec<_>>() {
                self.demuxes[which].cancel(token);
            }
        }
        for _ in 0..10_000 {
            self.step(Duration::from_millis(100));
            for which in 0..2 {
                // A cancel that came too late has opened something.
                for handle in std::mem::take(&mut self.handles[which]) {
                    self.submit(which, Operation::Close { handle });
                }
            }
            if self.expected.iter().all(BTreeMap::is_empty) {
                break;
            }
        }
        let seed = self.kernel.seed();
        for which in 0..2 {
            assert_eq!(self.demuxes[which].in_flight(), 0, "seed {seed}");
        }
        assert_eq!(self.kernel.open_descriptors(), 0, "seed {seed}");
    }
}
