//! Files, children, signals, and failing on purpose.

use super::*;
use crate::operation::{FileKind, Interest, OpenOptions};
use crate::sim::Fault;
use rustix::io::Errno;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

const READ: OpenOptions =
    OpenOptions { read: true, write: false, create: false, truncate: false, mode: 0 };
const WRITE: OpenOptions =
    OpenOptions { read: true, write: true, create: true, truncate: true, mode: 0o600 };

impl Rig {
    fn open(&mut self, path: &str, options: OpenOptions) -> io::Result<Handle> {
        match self.result(Operation::Open { path: path.into(), options })? {
            Outcome::Opened(file) => Ok(file),
            other => panic!("an open opens, and not {other:?}"),
        }
    }
}

#[test]
fn files_are_read_written_and_looked_at() {
    on_kernels(|rig| {
        rig.kernel.add_file("/etc/motd", "ahoy");
        assert_eq!(errno(&rig.open("/etc/none", READ).unwrap_err()), Errno::NOENT);
        let file = rig.open("/etc/motd", READ).unwrap();
        let Ok(Outcome::Metadata(metadata)) = rig.result(Operation::Stat { file }) else {
            panic!("no metadata")
        };
        assert_eq!((metadata.len, metadata.kind), (4, FileKind::File));
        let mut text = Vec::new();
        loop {
            let offset = text.len() as u64;
            let read = rig.run(Operation::Read { file, offset, space: space(3) });
            let taken = count(read.result);
            text.extend(&read.payload.into_vec()[..taken]);
            if taken == 0 {
                break;
            }
        }
        assert_eq!(text, b"ahoy");
        let interest = Interest::READ;
        assert_eq!(rig.errno(Operation::Poll { handle: file, interest }), Errno::PERM);

        let copy = rig.open("/tmp/copy", WRITE).unwrap();
        let mut written = 0;
        while written < text.len() {
            let memory = text[written..].to_vec().into();
            let offset = written as u64;
            written += count(rig.result(Operation::Write { file: copy, offset, memory }));
        }
        assert_eq!(rig.kernel.file("/tmp/copy").unwrap(), b"ahoy");
        assert_eq!(rig.kernel.file("/tmp/other"), None);
        rig.close(file);
        rig.close(copy);
        assert_eq!(rig.errno(Operation::Stat { file }), Errno::BADF);
        assert_eq!(rig.kernel.open_descriptors(), 0);
    });
}

#[test]
fn a_file_is_sent_in_pieces_and_past_its_end_there_is_nothing() {
    on_kernels(|rig| {
        let contents: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        rig.kernel.add_file("/big", contents.clone());
        let file = rig.open("/big", READ).unwrap();
        let (a, b) = rig.tcp();
        let mut received = Vec::new();
        let mut offset = 0;
        loop {
            let count = 3000;
            let operation = Operation::SendFile { socket: a, file, offset, count };
            let sent = super::count(rig.result(operation));
            if sent == 0 {
                break;
            }
            offset += sent as u64;
            while (received.len() as u64) < offset {
                received.extend(rig.receive(b).unwrap());
            }
        }
        assert_eq!(received, contents);
    });
}

#[test]
fn closing_a_file_ends_the_send_file_that_reads_it() {
    let mut rig = Rig::kind();
    rig.kernel.add_file("/big", vec![0; 100_000]);
    let file = rig.open("/big", READ).unwrap();
    let (a, _b) = rig.tcp();
    let send = || Operation::SendFile { socket: a, file, offset: 0, count: 100_000 };
    assert_eq!(count(rig.result(send())), 64 << 10);
    let waiting = rig.start(send());
    let close = rig.start(Operation::Close { handle: file });
    assert_eq!(errno(&rig.take(waiting).result.unwrap_err()), Errno::CANCELED);
    rig.take(close).result.unwrap();
}

#[test]
fn a_child_ends_when_its_time_has_come_and_is_reaped_once() {
    on_kernels(|rig| {
        let status = ExitStatus::from_raw(3 << 8);
        let pid = rig.kernel.spawn_child(Duration::from_secs(60), status);
        let first = rig.start(Operation::ChildExit { pid });
        let second = rig.start(Operation::ChildExit { pid });
        let results = [rig.take(first).result, rig.take(second).result];
        assert!(rig.kernel.elapsed() >= Duration::from_secs(60));
        let exited = |result: &io::Result<Outcome>| match result {
            Ok(Outcome::Exited(reaped)) => *reaped == status,
            _ => false,
        };
        assert_eq!(results.iter().filter(|result| exited(result)).count(), 1);
        assert_eq!(rig.errno(Operation::ChildExit { pid }), Errno::SRCH);
    });
}

#[test]
fn a_signal_reaches_everyone_who_asked_for_it() {
    on_kernels(|rig| {
        rig.kernel.raise(15); // nobody listens yet
        let mut other = Rig::new(rig.kernel.clone());
        let waiting = [15, 15].map(|signal| rig.start(Operation::Signal { signal }));
        let elsewhere = other.start(Operation::Signal { signal: 15 });
        let unrelated = rig.start(Operation::Signal { signal: 1 });
        rig.kernel.raise(15);
        for token in waiting {
            assert!(matches!(rig.take(token).result, Ok(Outcome::Signal)));
        }
        assert!(matches!(other.take(elsewhere).result, Ok(Outcome::Signal)));
        assert!(rig.kept.iter().all(|kept| kept.token != unrelated));
        assert_eq!(rig.errno(Operation::Signal { signal: 9 }), Errno::INVAL);
    });
}

#[test]
fn a_signal_between_two_operations_is_not_lost() {
    let faults = Faults { end_multishot: 1.0, ..Faults::none() };
    let mut rig = Rig::new(Kernel::with_faults(1, faults));
    let first = rig.start(Operation::Signal { signal: 1 });
    rig.kernel.raise(1);
    assert!(!rig.take(first).more);
    rig.kernel.raise(1);
    let second = rig.start(Operation::Signal { signal: 1 });
    assert!(matches!(rig.take(second).result, Ok(Outcome::Signal)));
    // What was told is not told again.
    let third = rig.start(Operation::Signal { signal: 1 });
    rig.kernel.raise(1);
    assert!(matches!(rig.take(third).result, Ok(Outcome::Signal)));
    let fourth = rig.start(Operation::Signal { signal: 1 });
    rig.demux.wait(Some(Duration::from_secs(1))).unwrap();
    assert!(rig.demux.next().is_none());
    // Once cancelled, nobody listens.
    rig.demux.cancel(fourth);
    assert_eq!(errno(&rig.take(fourth).result.unwrap_err()), Errno::CANCELED);
    rig.kernel.raise(1);
    rig.start(Operation::Signal { signal: 1 });
    assert!(rig.demux.wait(None).is_err());
}

/// A little conversation, whatever goes wrong in it; everything it opens is closed at the end.
fn converse(rig: &mut Rig) -> io::Result<()> {
    rig.kernel.add_file("/page", "contents");
    let path = "/page".into();
    let Outcome::Opened(file) = rig.result(Operation::Open { path, options: READ })? else {
        unreachable!("an open opens")
    };
    let result = converse_with(rig, file);
    let closed = rig.result(Operation::Close { handle: file });
    result.and(closed.map(drop))
}

fn converse_with(rig: &mut Rig, file: Handle) -> io::Result<()> {
    let (a, b) = rig.demux.socket_pair()?;
    let mut result = Ok(());
    for operation in [
        Operation::SendFile { socket: a, file, offset: 0, count: 8 },
        Operation::Poll { handle: b, interest: Interest::READ },
        Operation::Receive { socket: b, space: space(8) },
        Operation::Shutdown { socket: a, how: std::net::Shutdown::Write },
    ] {
        result = result.and_then(|()| rig.result(operation).map(drop));
    }
    for handle in [a, b] {
        let closed = rig.result(Operation::Close { handle });
        result = result.and(closed.map(drop));
    }
    result
}

#[test]
fn every_operation_can_be_made_to_fail_and_nothing_leaks() {
    for seed in 0..20 {
        let faults = || Faults { end_multishot: 0.0, ..Faults::default() };
        let mut rig = Rig::new(Kernel::with_faults(seed, faults()));
        converse(&mut rig).unwrap();
        let operations = rig.kernel.operations();
        assert!(operations >= 8);
        for n in 1..=operations {
            let mut rig = Rig::new(Kernel::with_faults(seed, faults()));
            rig.kernel.fail_nth(n, Errno::IO.raw_os_error());
            let error = converse(&mut rig).expect_err("one operation fails");
            assert_eq!(errno(&error), Errno::IO, "seed {seed}, operation {n}");
            assert_eq!(rig.kernel.injected().count(Fault::FailNth), 1);
            assert_eq!(rig.kernel.open_descriptors(), 0, "seed {seed}, operation {n}");
            assert_eq!(rig.demux.in_flight(), 0);
        }
    }
}

#[test]
fn every_call_can_be_made_to_fail() {
    let mut rig = Rig::kind();
    rig.kernel.fail_nth_call(2, Errno::NOMEM.raw_os_error());
    rig.demux.socket_pair().unwrap();
    assert_eq!(errno(&rig.demux.socket(SocketKind::Tcp4).unwrap_err()), Errno::NOMEM);
    rig.demux.socket(SocketKind::Tcp4).unwrap();
    assert_eq!(rig.kernel.calls(), 3);
}

#[test]
fn running_out_of_descriptors_ends_an_accept_and_loses_nobody() {
    let mut rig =
        Rig::new(Kernel::with_faults(1, Faults { limit_descriptors: 2, ..Faults::none() }));
    let (listener, address) = rig.listener(SocketKind::Tcp4, "127.0.0.1:80");
    let client = rig.demux.socket(SocketKind::Tcp4).unwrap();
    assert_eq!(errno(&rig.demux.socket(SocketKind::Tcp4).unwrap_err()), Errno::MFILE);
    assert_eq!(errno(&rig.demux.socket_pair().unwrap_err()), Errno::MFILE);
    rig.result(Operation::Connect { socket: client, address }).unwrap();
    let accept = rig.start(Operation::Accept { listener });
    let completion = rig.take(accept);
    assert!(!completion.more);
    assert_eq!(errno(&completion.result.unwrap_err()), Errno::MFILE);
    rig.close(client);
    let accept = rig.start(Operation::Accept { listener });
    assert!(matches!(rig.take(accept).result, Ok(Outcome::Accepted(_))));
}

#[test]
fn a_connect_that_is_not_answered_times_out_or_is_cancelled() {
    let faults = Faults { time_out_connect: 1.0, cancel_loses: 1.0, ..Faults::none() };
    let mut rig = Rig::new(Kernel::with_faults(1, faults));
    let (_listener, address) = rig.listener(SocketKind::Tcp4, "127.0.0.1:80");
    let socket = rig.demux.socket(SocketKind::Tcp4).unwrap();
    let connect = || Operation::Connect { socket, address: address.clone() };
    assert_eq!(rig.errno(connect()), Errno::TIMEDOUT);
    assert_eq!(rig.kernel.elapsed(), Duration::from_secs(127));
    let connect = rig.start(connect());
    rig.demux.cancel(connect);
    assert_eq!(errno(&rig.take(connect).result.unwrap_err()), Errno::CANCELED);
    assert_eq!(rig.kernel.elapsed(), Duration::from_secs(127), "at once");
}

#[test]
fn dropping_a_demultiplexer_closes_what_it_held() {
    on_kernels(|rig| {
        let (listener, _) = rig.listener(SocketKind::Tcp4, "127.0.0.1:80");
        rig.start(Operation::Accept { listener });
        let mut other = Rig::new(rig.kernel.clone());
        let socket = other.demux.socket(SocketKind::Tcp4).unwrap();
        let address = "127.0.0.1:80".parse().unwrap();
        other.result(Operation::Connect { socket, address }).unwrap();
        rig.demux = rig.kernel.demux();
        let end = other.receive(socket);
        assert!(end.is_err() || end.is_ok_and(|bytes| bytes.is_empty()));
        other.close(socket);
        assert_eq!(rig.kernel.open_descriptors(), 0);
    });
}

#[test]
fn what_is_in_flight_can_be_listed() {
    let mut rig = Rig::kind();
    let (a, _b) = rig.demux.socket_pair().unwrap();
    rig.start(Operation::Receive { socket: a, space: space(1) });
    rig.start(Operation::Signal { signal: 15 });
    let mut text = String::new();
    rig.demux.describe(&mut text).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("receive on descriptor 1") && text.contains("signal 15"), "{text}");
}
