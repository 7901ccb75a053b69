//! Files: statements 9 and 11.

use crate::harness::{Harness, count, errno};
use coracle_demux::{FileKind, Handle, OpenOptions, Operation, Outcome, SocketOption};
use rustix::io::Errno;

fn open(h: &mut Harness, path: std::path::PathBuf) -> Handle {
    let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    match h.run(Operation::Open { path, options }) {
        Ok(Outcome::Opened(file)) => file,
        other => panic!("not opened: {other:?}"),
    }
}

pub(crate) fn rule_09_send_file_sends_a_stretch_of_a_file(h: &mut Harness) {
    let path = h.file(b"0123456789");
    let file = open(h, path);
    let (socket, peer) = h.connection();
    let sent = h.run(Operation::SendFile { socket, file, offset: 3, count: 4 });
    assert_eq!(count(sent), 4);
    assert_eq!(h.receive_exactly(peer, 4), b"3456");
    let past = h.run(Operation::SendFile { socket, file, offset: 10, count: 4 });
    assert_eq!(count(past), 0, "nothing is left past the end");
    let short = h.run(Operation::SendFile { socket, file, offset: 8, count: 100 });
    assert_eq!(count(short), 2);
    assert_eq!(h.receive_exactly(peer, 2), b"89");
}

pub(crate) fn rule_09_send_file_to_a_slow_reader_sends_everything(h: &mut Harness) {
    let contents: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let path = h.file(&contents);
    let file = open(h, path);
    let (socket, peer) = h.connection();
    h.demux.set_option(socket, SocketOption::SendBuffer(16 << 10)).unwrap();
    let mut received = Vec::new();
    let mut offset = 0;
    while offset < contents.len() {
        let rest = contents.len() - offset;
        let send =
            h.submit(Operation::SendFile { socket, file, offset: offset as u64, count: rest });
        if let crate::harness::Submission::Pending(_) = send {
            received.extend(h.receive(peer, 100_000).unwrap());
        }
        let sent = count(h.finish(send).result);
        assert!(sent > 0);
        offset += sent;
    }
    let rest = contents.len() - received.len();
    received.extend(h.receive_exactly(peer, rest));
    assert!(received == contents, "the file arrived changed");
}

pub(crate) fn rule_09_what_goes_before_a_file_comes_before_it(h: &mut Harness) {
    let path = h.file(b"contents");
    let file = open(h, path);
    let (socket, peer) = h.connection();
    for _ in 0..20 {
        // What was tried before may still be on its way to the kernel: then all is sent in the ordinary way.
        let earlier = h.demux.try_send(socket, b"earlier ").unwrap();
        h.send_all(socket, &b"earlier "[earlier..]);
        let head = h.demux.try_send_before_file(socket, b"head ").unwrap();
        h.send_all(socket, &b"head "[head..]);
        let sent = h.run(Operation::SendFile { socket, file, offset: 0, count: 8 });
        assert_eq!(count(sent), 8);
        assert_eq!(h.receive_exactly(peer, 21), b"earlier head contents");
    }
}

pub(crate) fn rule_09_what_goes_before_no_file_comes_all_the_same(h: &mut Harness) {
    let (socket, peer) = h.connection();
    let head = h.demux.try_send_before_file(socket, b"head").unwrap();
    h.send_all(socket, &b"head"[head..]);
    assert_eq!(h.receive_exactly(peer, 4), b"head");
    h.close(socket);
    let stale = h.demux.try_send_before_file(socket, b"gone");
    assert_eq!(errno(stale), Errno::BADF.raw_os_error());
}

pub(crate) fn rule_11_file_is_written_and_read_back(h: &mut Harness) {
    let path = h.file(b"");
    let file = open(h, path);
    let written = h.run(Operation::Write { file, offset: 2, memory: b"hello".to_vec().into() });
    assert_eq!(count(written), 5);
    let read = h.submit(Operation::Read { file, offset: 0, space: vec![9; 16].into() });
    let finished = h.finish(read);
    assert_eq!(count(finished.result), 7);
    assert_eq!(finished.payload.into_vec()[..8], *b"\0\0hello\x09");
    h.close(file);
}

pub(crate) fn rule_11_missing_file_is_an_error(h: &mut Harness) {
    let path = "/nowhere/to/be/found".into();
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let result = h.run(Operation::Open { path, options });
    assert_eq!(errno(result), Errno::NOENT.raw_os_error());
}

pub(crate) fn rule_11_read_at_the_end_gives_nothing(h: &mut Harness) {
    let path = h.file(b"abc");
    let file = open(h, path);
    let read = h.run(Operation::Read { file, offset: 3, space: vec![0; 8].into() });
    assert_eq!(count(read), 0);
}

pub(crate) fn rule_11_stat_tells_the_size(h: &mut Harness) {
    let path = h.file(&[1; 12345]);
    let file = open(h, path);
    match h.run(Operation::Stat { file }) {
        Ok(Outcome::Metadata(metadata)) => {
            assert_eq!(metadata.len, 12345);
            assert_eq!(metadata.kind, FileKind::File);
        }
        other => panic!("{other:?}"),
    }
}

/// A send_file may be waiting for its bytes to be read by a thread when it is cancelled: its end comes once, and
/// what the thread says later concerns nobody.
pub(crate) fn rule_04_cancelled_send_file_ends_once(h: &mut Harness) {
    let contents: Vec<u8> = (0..2_000_000u32).map(|n| (n % 251) as u8).collect();
    let path = h.file(&contents);
    if !h.is_simulated() {
        let file = std::fs::File::open(&path).unwrap();
        file.sync_all().unwrap();
        // Out of the page cache, where the file system does that.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
    let file = open(h, path);
    let (socket, peer) = h.connection();
    let send = h.submit(Operation::SendFile { socket, file, offset: 0, count: contents.len() });
    if let crate::harness::Submission::Pending(token) = &send {
        h.demux.cancel(*token);
    }
    let sent = match h.finish(send).result {
        Ok(Outcome::Count(sent)) => sent,
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(Errno::CANCELED.raw_os_error()));
            0
        }
    };
    assert!(h.settle().is_empty(), "nothing comes after the end");
    assert!(h.receive_exactly(peer, sent) == contents[..sent]);
    h.send_all(socket, b"still usable");
    assert_eq!(h.receive_exactly(peer, 12), b"still usable");
    h.close(file);
}
