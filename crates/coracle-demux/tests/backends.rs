//! What concerns one backend, or only the real ones: kinds of wake-up, foreign descriptors, the limits of
//! select, old kernels, full queues, exhausted descriptors.

use coracle_demux::{
    Address, Backend, Demux, Descriptor, Handle, Interest, Operation, Outcome, Outgoing, Payload,
    Readiness, Settings, SocketKind, Submitted, Token, WakeupKind,
};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

const REAL: [Backend; 4] = [Backend::Uring, Backend::Epoll, Backend::Poll, Backend::Select];

/// The test that runs out of descriptors must have the process for itself.
static DESCRIPTORS: RwLock<()> = RwLock::new(());

fn shared() -> RwLockReadGuard<'static, ()> {
    DESCRIPTORS.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn alone() -> RwLockWriteGuard<'static, ()> {
    DESCRIPTORS.write().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn open(backend: Backend, change: impl FnOnce(&mut Settings)) -> Box<dyn Demux> {
    let mut settings = Settings::default();
    settings.backend = Some(backend);
    change(&mut settings);
    let demux = coracle_demux::open(settings).unwrap();
    assert_eq!(demux.backend(), backend, "no fallback here");
    demux
}

fn pending(submitted: Submitted) -> Token {
    match submitted {
        Submitted::Pending(token) => token,
        Submitted::Done(finished) => panic!("finished at once: {finished:?}"),
    }
}

/// Drives `demux` until `wanted` is satisfied by the completions that come.
fn drive<T>(demux: &mut dyn Demux, mut wanted: impl FnMut(&mut dyn Demux) -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        if let Some(value) = wanted(demux) {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain");
        demux.wait(Some(Duration::from_millis(50))).unwrap();
    }
}

fn send(demux: &mut dyn Demux, socket: Handle, bytes: &[u8]) {
    let payload = Payload::from(bytes.to_vec());
    if let Submitted::Pending(token) = demux.submit(Operation::Send { socket, payload }) {
        drive(demux, |demux| {
            std::iter::from_fn(|| demux.next()).find(|completion| completion.token == token)
        });
    }
}

/// Receives `count` bytes with lent receives.
fn receive(demux: &mut dyn Demux, socket: Handle, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut token = pending(demux.submit(Operation::ReceiveLent { socket }));
    drive(demux, |demux| {
        while let Some(completion) = demux.next() {
            if completion.token != token {
                continue;
            }
            let Ok(Outcome::Lent(lent)) = completion.result else { panic!("not lent") };
            bytes.extend_from_slice(&lent);
            if !completion.more {
                token = pending(demux.submit(Operation::ReceiveLent { socket }));
            }
        }
        (bytes.len() >= count).then_some(())
    });
    demux.cancel(token);
    drive(demux, |demux| {
        (demux.in_flight() == 0).then_some(()).or_else(|| {
            demux.next();
            None
        })
    });
    bytes
}

#[test]
fn b4_every_kind_of_wakeup_ends_a_wait_on_every_backend() {
    let _shared = shared();
    for backend in REAL {
        for kind in [WakeupKind::Eventfd, WakeupKind::Pipe, WakeupKind::SocketPair] {
            let mut demux = open(backend, |settings| settings.wakeup = Some(kind));
            let waker = demux.waker();
            for _ in 0..3 {
                waker.wake();
                demux.wait(None).unwrap(); // would hang
                waker.wake(); // before anybody has looked at the first
                assert!(demux.next().is_none());
                demux.wait(None).unwrap();
                assert!(demux.next().is_none());
            }
            // More of them than a pipe or a socket has room for: none blocks, and all are used up.
            for _ in 0..200_000 {
                waker.wake();
            }
            demux.wait(None).unwrap();
            assert!(demux.next().is_none());
            let start = Instant::now();
            let mut waits = 0;
            while start.elapsed() < Duration::from_millis(20) {
                demux.wait(Some(Duration::from_millis(20))).unwrap();
                assert!(demux.next().is_none());
                waits += 1;
                assert!(waits < 20, "{backend} spins on a {kind:?} that was heard");
            }
            let thread = std::thread::spawn(move || waker.wake());
            demux.wait(None).unwrap();
            thread.join().unwrap();
        }
    }
}

#[test]
fn a1_a2_a4_each_backend_opens_and_says_what_it_can() {
    let _shared = shared();
    for backend in REAL {
        let demux = open(backend, |_| ());
        let features = demux.features();
        assert_eq!(features.completions, backend == Backend::Uring);
        assert_eq!(features.any_descriptor, backend != Backend::Select);
        assert!(features.early_close);
        assert_eq!(demux.as_fd().is_some(), features.constant_cost, "embeddable: epoll, io_uring");
    }
}

#[test]
fn a5_names_of_backends_are_read_and_unknown_ones_explained() {
    for backend in REAL {
        assert_eq!(backend.name().parse::<Backend>().unwrap(), backend);
    }
    assert_eq!("io_uring".parse::<Backend>().unwrap(), Backend::Uring);
    let error = "kqueue".parse::<Backend>().unwrap_err().to_string();
    assert_eq!(error, "unknown backend \"kqueue\": use uring, epoll, poll or select");
}

#[test]
fn a3_select_refuses_descriptors_it_cannot_wait_for() {
    let _alone = alone();
    let limit = getrlimit(Resource::Nofile);
    let enough = limit.maximum.map_or(1200, |maximum| maximum.min(1200));
    setrlimit(Resource::Nofile, Rlimit { current: Some(enough), maximum: limit.maximum }).unwrap();
    let mut demux = open(Backend::Select, |_| ());
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut held: Vec<OwnedFd> = Vec::new();
    while held.last().is_none_or(|fd| fd.as_raw_fd() < 1024) {
        held.push(file.try_clone().unwrap().into());
    }
    let error = demux.socket(SocketKind::Tcp4).unwrap_err().to_string();
    assert!(error.contains("beyond what select can wait for"), "{error}");
    let (a, _b) = UnixStream::pair().unwrap();
    assert!(demux.adopt(Descriptor::from(a)).is_err());
    let (a, _b) = UnixStream::pair().unwrap();
    assert!(demux.lend(a.as_fd()).is_err());
    drop(held);
    // Below the limit everything goes on.
    let (a, b) = demux.socket_pair().unwrap();
    send(&mut *demux, a, b"fine");
    assert_eq!(receive(&mut *demux, b, 4), b"fine");
    // Any other backend takes them.
    let held: Vec<OwnedFd> = (0..1030).map(|_| file.try_clone().unwrap().into()).collect();
    for backend in [Backend::Uring, Backend::Epoll, Backend::Poll] {
        let mut demux = open(backend, |_| ());
        let (a, b) = demux.socket_pair().unwrap();
        send(&mut *demux, a, b"fine");
        assert_eq!(receive(&mut *demux, b, 4), b"fine");
    }
    drop(held);
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn a11_lent_descriptors_are_polled_and_reclaimed() {
    let _shared = shared();
    for backend in REAL {
        let mut demux = open(backend, |_| ());
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let handle = demux.lend(b.as_fd()).unwrap();
        let poll = Operation::Poll { handle, interest: Interest::READ };
        let token = pending(demux.submit(poll));
        a.write_all(b"x").unwrap();
        let ready = drive(&mut *demux, |demux| {
            demux.next().map(|completion| (completion.token, completion.result.unwrap()))
        });
        assert_eq!(ready.0, token);
        assert!(matches!(ready.1, Outcome::Ready(ready) if ready.contains(Readiness::READ)));
        // Only polls: the seam must not read what belongs to somebody else.
        let Submitted::Done(refused) = demux.submit(Operation::ReceiveLent { socket: handle })
        else {
            panic!("a lent descriptor was read");
        };
        assert!(refused.result.is_err());
        b.read_exact(&mut [0]).unwrap();
        let token = pending(demux.submit(Operation::Poll { handle, interest: Interest::READ }));
        demux.reclaim(handle);
        let last = drive(&mut *demux, |demux| demux.next());
        assert_eq!(last.token, token);
        assert_eq!(last.result.unwrap_err().raw_os_error(), Some(Errno::CANCELED.raw_os_error()));
        a.write_all(b"y").unwrap();
        demux.wait(Some(Duration::from_millis(20))).unwrap();
        assert!(demux.next().is_none(), "{backend} watches a descriptor that was given back");
        assert_eq!(demux.in_flight(), 0);
        b.read_exact(&mut [0]).unwrap(); // still open, still ours
    }
}

/// Two who wait for one number do not know of each other: each is told what it waits for, and the end of one is
/// not the end of the other. epoll has a number once, and refuses the second.
#[test]
fn a11_one_number_may_be_waited_for_twice_or_is_refused() {
    let _shared = shared();
    for backend in REAL {
        let mut demux = open(backend, |_| ());
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let (one, two) = (demux.lend(b.as_fd()).unwrap(), demux.lend(b.as_fd()).unwrap());
        let poll = |handle, interest| Operation::Poll { handle, interest };
        let next = |demux: &mut dyn Demux| drive(demux, |demux| demux.next());
        let first = pending(demux.submit(poll(one, Interest::READ)));
        match demux.submit(poll(two, Interest::READ)) {
            Submitted::Done(finished) => {
                assert_eq!(backend, Backend::Epoll);
                let error = finished.result.unwrap_err().raw_os_error();
                assert_eq!(error, Some(Errno::EXIST.raw_os_error()));
            }
            Submitted::Pending(second) => {
                demux.cancel(second);
                assert_eq!(next(&mut *demux).token, second);
                let second = pending(demux.submit(poll(two, Interest::WRITE)));
                assert_eq!(next(&mut *demux).token, second);
            }
        }
        demux.reclaim(two);
        a.write_all(b"x").unwrap();
        let told = next(&mut *demux);
        assert_eq!(told.token, first, "{backend}");
        assert!(
            matches!(told.result.unwrap(), Outcome::Ready(ready) if ready.contains(Readiness::READ))
        );
        b.read_exact(&mut [0]).unwrap();
        if backend != Backend::Epoll {
            let two = demux.lend(b.as_fd()).unwrap();
            let mut both = [one, two].map(|one| pending(demux.submit(poll(one, Interest::READ))));
            a.write_all(b"y").unwrap();
            let mut told = [next(&mut *demux).token, next(&mut *demux).token];
            both.sort();
            told.sort();
            assert_eq!(told, both, "{backend}");
        }
        assert_eq!(demux.in_flight(), 0);
    }
}

#[test]
fn a11_pipes_send_and_receive() {
    let _shared = shared();
    for backend in REAL {
        let mut demux = open(backend, |_| ());
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = demux.adopt(Descriptor::from(reader)).unwrap();
        let writer = demux.adopt(Descriptor::from(writer)).unwrap();
        let token = pending(demux.submit(Operation::ReceiveLent { socket: reader }));
        send(&mut *demux, writer, b"through a pipe");
        let first = drive(&mut *demux, |demux| {
            std::iter::from_fn(|| demux.next()).find(|completion| completion.token == token)
        });
        let Ok(Outcome::Lent(bytes)) = first.result else { panic!("not lent") };
        assert_eq!(&bytes[..], b"through a pipe");
        // The reader goes away: an error, not a signal (D5).
        let _ = demux.submit(Operation::Close { handle: reader });
        drive(&mut *demux, |demux| match demux.next() {
            Some(_) => None,
            None => (demux.in_flight() == 0).then_some(()),
        });
        let payload = Payload::from(b"nobody".to_vec());
        let failed = match demux.submit(Operation::Send { socket: writer, payload }) {
            Submitted::Done(finished) => finished.result,
            Submitted::Pending(_) => drive(&mut *demux, |demux| demux.next()).result,
        };
        assert_eq!(failed.unwrap_err().raw_os_error(), Some(Errno::PIPE.raw_os_error()));
    }
}

#[test]
fn a4_uring_works_as_on_the_oldest_kernel_it_supports() {
    let _shared = shared();
    let mut demux = open(Backend::Uring, |settings| settings.modern_uring = false);
    let (a, b) = demux.socket_pair().unwrap();
    for round in 0..20u8 {
        send(&mut *demux, a, &[round; 100]);
        assert_eq!(receive(&mut *demux, b, 100), [round; 100]);
    }
    let listener = demux.socket(SocketKind::Tcp4).unwrap();
    let any: Address = "127.0.0.1:0".parse().unwrap();
    demux.bind(listener, &any).unwrap();
    demux.listen(listener, 16).unwrap();
    let address = demux.local_address(listener).unwrap();
    let accept = pending(demux.submit(Operation::Accept { listener }));
    for _ in 0..5 {
        let socket = demux.socket(SocketKind::Tcp4).unwrap();
        let _ = demux.submit(Operation::Connect { socket, address: address.clone() });
        drive(&mut *demux, |demux| {
            let completion = demux.next()?;
            if completion.token == accept {
                assert!(completion.more, "it is repeated by the seam");
                return completion.result.ok();
            }
            None
        });
    }
}

/// 4 buffers, 2 requests per batch, 8 completions at once, against 200 connections that all speak at once:
/// out of buffers, submission queue full, completion queue overflowing.
#[test]
fn a4_uring_survives_tiny_queues() {
    let _shared = shared();
    for modern in [true, false] {
        let mut demux = open(Backend::Uring, |settings| {
            settings.limit_lent_buffers = 4;
            settings.lent_buffer_bytes = 16;
            settings.limit_submissions = 2;
            settings.modern_uring = modern;
        });
        let pairs: Vec<(Handle, Handle)> = (0..200).map(|_| demux.socket_pair().unwrap()).collect();
        let mut receiving: Vec<(Token, Handle, usize)> = pairs
            .iter()
            .map(|&(_, b)| (pending(demux.submit(Operation::ReceiveLent { socket: b })), b, 0))
            .collect();
        for &(a, _) in &pairs {
            let payload = Payload::from(vec![7u8; 100]);
            let _ = demux.submit(Operation::Send { socket: a, payload });
        }
        drive(&mut *demux, |demux| {
            while let Some(completion) = demux.next() {
                let at = receiving.iter().position(|entry| entry.0 == completion.token);
                let Some(entry) = at.map(|at| &mut receiving[at]) else {
                    assert!(matches!(completion.result, Ok(Outcome::Count(100))), "a send");
                    continue;
                };
                let Ok(Outcome::Lent(bytes)) = completion.result else { panic!("not lent") };
                assert!(bytes.iter().all(|&byte| byte == 7));
                entry.2 += bytes.len();
                if !completion.more {
                    let socket = entry.1;
                    entry.0 = pending(demux.submit(Operation::ReceiveLent { socket }));
                }
            }
            receiving.iter().all(|entry| entry.2 == 100).then_some(())
        });
    }
}

/// Small sends that are carried, more of them than the queue takes and larger than the place they wait in.
#[test]
fn a4_uring_tried_sends_survive_tiny_queues() {
    let _shared = shared();
    for modern in [true, false] {
        let mut demux = open(Backend::Uring, |settings| {
            settings.limit_submissions = 2;
            settings.modern_uring = modern;
        });
        let pairs: Vec<(Handle, Handle)> = (0..100).map(|_| demux.socket_pair().unwrap()).collect();
        let message =
            |number: usize| vec![number as u8; if number.is_multiple_of(3) { 4096 } else { 10 }];
        for (number, &(a, _)) in pairs.iter().enumerate() {
            assert_eq!(demux.try_send(a, &message(number)).unwrap(), message(number).len());
        }
        for (number, &(_, b)) in pairs.iter().enumerate() {
            let token = pending(demux.submit(Operation::ReceiveLent { socket: b }));
            let mut received = Vec::new();
            drive(&mut *demux, |demux| {
                while let Some(completion) = demux.next() {
                    assert_eq!(completion.token, token);
                    let Ok(Outcome::Lent(bytes)) = completion.result else { panic!("not lent") };
                    received.extend_from_slice(&bytes);
                }
                (received.len() >= message(number).len()).then_some(())
            });
            assert!(received == message(number), "socket {number} got somebody else's bytes");
        }
    }
}

/// A wait that sets the alarm, with as many requests in the queue as fit, and more, is ended by what ends any.
#[test]
fn a4_uring_wait_with_a_full_queue_is_ended() {
    let _shared = shared();
    for modern in [true, false] {
        let mut demux = open(Backend::Uring, |settings| {
            settings.limit_submissions = 8;
            settings.modern_uring = modern;
        });
        let (start, waker) = (demux.now(), demux.waker());
        for requests in (6..=18).flat_map(|requests| [requests, 0]) {
            for _ in 0..requests {
                let (_, b) = demux.socket_pair().unwrap();
                pending(demux.submit(Operation::ReceiveLent { socket: b }));
            }
            waker.wake();
            // Earlier each time, so that it is set each time.
            let left = Duration::from_secs(3600) - demux.now().duration_since(start) * 2;
            demux.wait_until(demux.now() + left).unwrap();
            assert!(demux.next().is_none());
        }
        assert!(demux.now().duration_since(start) < Duration::from_secs(600), "a wake-up was lost");
    }
}

/// A message is sent by the call itself, and so is one received that follows another: no request, no completion.
#[test]
fn f4_messages_that_need_not_wait_are_done_at_once() {
    let _shared = shared();
    for backend in REAL {
        let mut demux = open(backend, |_| ());
        let socket = |demux: &mut dyn Demux| {
            let socket = demux.socket(SocketKind::Udp4).unwrap();
            demux.bind(socket, &"127.0.0.1:0".parse().unwrap()).unwrap();
            socket
        };
        let (a, b) = (socket(&mut *demux), socket(&mut *demux));
        let to = demux.local_address(b).unwrap();
        for byte in *b"123" {
            let (payload, to) = (Payload::from(vec![byte]), Some(to.clone()));
            let message = Box::new(Outgoing { payload, to, descriptors: Vec::new() });
            match demux.submit(Operation::SendMessage { socket: a, message }) {
                Submitted::Done(finished) => assert!(finished.result.is_ok(), "{finished:?}"),
                Submitted::Pending(_) => panic!("{backend}: there is room for it"),
            }
        }
        let space = || vec![0; 10].into();
        let receive =
            || Operation::ReceiveMessage { socket: b, space: space(), limit_descriptors: 0 };
        let first = demux.submit(receive());
        if let Submitted::Pending(token) = first {
            drive(&mut *demux, |demux| {
                demux.next().map(|completion| assert_eq!(completion.token, token))
            });
        }
        for expected in *b"23" {
            match demux.submit(receive()) {
                Submitted::Done(finished) => {
                    assert!(finished.result.is_ok(), "{finished:?}");
                    assert_eq!(finished.payload.into_vec()[0], expected);
                }
                Submitted::Pending(_) => panic!("{backend}: it is there"),
            }
        }
        // Nothing is there any more: this one waits, and goes with its socket.
        let token = pending(demux.submit(receive()));
        demux.cancel(token);
        drive(&mut *demux, |demux| demux.next().filter(|completion| completion.token == token));
    }
}

/// A receive that found no buffer goes on when there is one, also if they were given back before it was noticed.
#[test]
fn a4_uring_receive_without_a_buffer_is_not_forgotten() {
    let _shared = shared();
    let mut demux = open(Backend::Uring, |settings| {
        settings.limit_lent_buffers = 2;
    });
    let pairs: Vec<(Handle, Handle)> = (0..4).map(|_| demux.socket_pair().unwrap()).collect();
    for &(a, b) in &pairs {
        pending(demux.submit(Operation::ReceiveLent { socket: b }));
        assert_eq!(demux.try_send(a, b"ahoy").unwrap(), 4);
    }
    let mut received = 0;
    drive(&mut *demux, |demux| {
        // One completion a turn: buffers come back in other turns than those that want for one.
        if let Some(completion) = demux.next() {
            let Ok(Outcome::Lent(bytes)) = completion.result else { panic!("not lent") };
            received += bytes.len();
        }
        (received == 16).then_some(())
    });
}

#[test]
fn a4_unfit_limits_are_refused_with_their_name() {
    let mut settings = Settings::default();
    settings.backend = Some(Backend::Uring);
    settings.limit_lent_buffers = 1000;
    let Err(error) = coracle_demux::open(settings.clone()) else { panic!("1000 was accepted") };
    assert!(error.to_string().contains("limit_lent_buffers"), "{error}");
    settings.limit_lent_buffers = 1024;
    settings.lent_buffer_bytes = 0;
    let Err(error) = coracle_demux::open(settings) else { panic!("0 was accepted") };
    assert!(error.to_string().contains("lent_buffer_bytes"), "{error}");
}

/// Accepting without descriptors ends with EMFILE, spins nowhere, and loses nobody who waits.
#[test]
fn rule_13_accept_out_of_descriptors_loses_no_connection() {
    let _alone = alone();
    for backend in REAL {
        let mut demux = open(backend, |_| ());
        let listener = demux.socket(SocketKind::Tcp4).unwrap();
        demux.bind(listener, &"127.0.0.1:0".parse().unwrap()).unwrap();
        demux.listen(listener, 64).unwrap();
        let address = demux.local_address(listener).unwrap().ip().unwrap();
        let clients: Vec<_> =
            (0..5).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        let limit = getrlimit(Resource::Nofile);
        // No descriptor beyond those that are open now.
        let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
        setrlimit(Resource::Nofile, Rlimit { current: Some(next), maximum: limit.maximum })
            .unwrap();
        let accept = pending(demux.submit(Operation::Accept { listener }));
        let ended = drive(&mut *demux, |demux| demux.next());
        assert_eq!(ended.token, accept);
        assert!(!ended.more);
        assert_eq!(
            ended.result.unwrap_err().raw_os_error(),
            Some(Errno::MFILE.raw_os_error()),
            "{backend}"
        );
        demux.wait(Some(Duration::from_millis(5))).unwrap();
        assert!(demux.next().is_none(), "nothing goes on by itself");
        setrlimit(Resource::Nofile, limit).unwrap();
        let mut accept = pending(demux.submit(Operation::Accept { listener }));
        let mut accepted = 0;
        drive(&mut *demux, |demux| {
            while let Some(completion) = demux.next() {
                assert!(matches!(completion.result, Ok(Outcome::Accepted(_))));
                accepted += 1;
                if !completion.more {
                    accept = pending(demux.submit(Operation::Accept { listener }));
                }
            }
            (accepted == clients.len()).then_some(())
        });
    }
}

/// Memory the kernel may still write to is not freed with the demultiplexer.
#[test]
fn rule_04_dropping_with_operations_in_flight_is_safe() {
    let _shared = shared();
    for backend in REAL {
        let peers: Vec<UnixStream> = {
            let mut demux = open(backend, |_| ());
            (0..50)
                .map(|_| {
                    let (ours, theirs) = UnixStream::pair().unwrap();
                    let socket = demux.adopt(Descriptor::from(ours)).unwrap();
                    let space = vec![0; 4096].into();
                    pending(demux.submit(Operation::Receive { socket, space }));
                    demux.wait(Some(Duration::ZERO)).unwrap();
                    theirs
                })
                .collect()
        };
        for mut peer in peers {
            // The other end is closed: nobody is there to receive this.
            assert!(peer.write_all(b"too late").is_err() || peer.read(&mut [0]).unwrap_or(0) == 0);
        }
    }
}
