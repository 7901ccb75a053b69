//! Rows A7, A10 and A11 for foreign descriptors: pipes, eventfds, timerfds, sockets of std.

use crate::harness::{Harness, Log};
use coracle_loop::demux::{Interest, Readiness};
use coracle_loop::{Loop, Trigger, Watch, Watched};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::inotify;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A pipe whose reading end does not block.
fn pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&reader, true).unwrap();
    (reader, writer)
}

/// Watches `owner` for reading, and counts how often it is reported. `react` does the rest.
fn count_reports<F: AsFd + 'static>(
    lp: &Loop,
    owner: F,
    trigger: Trigger,
    mut react: impl FnMut(&Watched<F>) + 'static,
) -> (Watch<F>, Rc<Cell<u32>>) {
    let reports = Rc::new(Cell::new(0));
    let count = Rc::clone(&reports);
    let watch = lp.watch(owner, Interest::READ, trigger, move |watched, _| {
        count.set(count.get() + 1);
        react(watched);
    });
    (watch.unwrap(), reports)
}

// --- A7: level, edge, one-shot -------------------------------------------------------------------------

pub(crate) fn a7_level_is_reported_as_long_as_it_lasts(h: &Harness) {
    let (reader, mut writer) = pipe();
    // Reads a byte a time: as long as there is another, it is reported again.
    let read = |watched: &Watched<PipeReader>| {
        watched.with(|mut pipe| pipe.read_exact(&mut [0])).unwrap();
    };
    let (_watch, reports) = count_reports(&h.lp, reader, Trigger::Level, read);
    h.run_for(3 * MS);
    assert_eq!(reports.get(), 0);
    writer.write_all(b"five!").unwrap();
    h.run_until(&reports, move |reports| reports.get() == 5);
    h.run_for(3 * MS);
    assert_eq!(reports.get(), 5, "an empty pipe was reported");
    // One that is never read is reported once a turn, and the loop goes on with the rest of its work.
    let (idle, mut full) = pipe();
    let (_lazy, ignored) = count_reports(&h.lp, idle, Trigger::Level, |_| ());
    full.write_all(b"x").unwrap();
    h.run_for(3 * MS);
    assert!(ignored.get() > 1);
}

pub(crate) fn a7_edge_is_reported_after_drained_and_never_lost(h: &Harness) {
    let (reader, mut writer) = pipe();
    let seen: Rc<RefCell<Vec<u8>>> = Rc::default();
    let bytes = Rc::clone(&seen);
    let drain = move |watched: &Watched<PipeReader>| {
        let mut chunk = [0; 3];
        loop {
            match watched.with(|mut pipe| pipe.read(&mut chunk)) {
                Ok(count) => bytes.borrow_mut().extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        watched.drained().unwrap();
        watched.drained().unwrap(); // saying so twice is no harm
    };
    let (_watch, _) = count_reports(&h.lp, reader, Trigger::Edge, drain);
    for round in 0..50u8 {
        writer.write_all(&[round; 7]).unwrap();
        let expected = 7 * (usize::from(round) + 1);
        h.run_until(&seen, move |seen| seen.borrow().len() == expected);
        // Written between two turns, without anything else to wake the loop.
        assert_eq!(seen.borrow()[expected - 7..], [round; 7]);
    }
    // Without `drained` there is one report, however much comes.
    let (reader, mut writer) = pipe();
    let (_lazy, reports) = count_reports(&h.lp, reader, Trigger::Edge, |_| ());
    for _ in 0..3 {
        writer.write_all(b"x").unwrap();
        h.run_for(3 * MS);
    }
    assert_eq!(reports.get(), 1);
}

pub(crate) fn a7_one_shot_is_reported_once_until_rearmed(h: &Harness) {
    let (reader, mut writer) = pipe();
    let (watch, reports) = count_reports(&h.lp, reader, Trigger::OneShot, |_| ());
    writer.write_all(b"x").unwrap();
    h.run_until(&reports, move |reports| reports.get() == 1);
    writer.write_all(b"y").unwrap();
    h.run_for(3 * MS);
    assert_eq!(reports.get(), 1, "one shot is one");
    for round in 2..5 {
        watch.rearm().unwrap(); // it is still readable, and that is reported
        h.run_until(&reports, move |reports| reports.get() == round);
    }
    h.run_for(3 * MS);
    assert_eq!(reports.get(), 4);
}

pub(crate) fn a7_interest_in_writing(h: &Harness) {
    let (mut a, b) = UnixStream::pair().unwrap();
    b.set_nonblocking(true).unwrap();
    while (&b).write(&[0; 4096]).is_ok() {}
    let writable = Rc::new(Cell::new(0));
    let count = Rc::clone(&writable);
    let watch = h.lp.watch(b, Interest::WRITE, Trigger::OneShot, move |_, ready| {
        assert!(ready.contains(Readiness::WRITE));
        assert!(!ready.contains(Readiness::READ), "nobody has asked for that");
        count.set(count.get() + 1);
    });
    let _watch = watch.unwrap();
    h.run_for(3 * MS);
    assert_eq!(writable.get(), 0, "a full socket is not writable");
    let mut space = vec![0; 1 << 20];
    a.set_nonblocking(true).unwrap();
    while a.read(&mut space).is_ok() {}
    h.run_until(&writable, move |writable| writable.get() == 1);
}

pub(crate) fn a7_callback_may_drop_its_own_watch(h: &Harness) {
    for trigger in [Trigger::Level, Trigger::Edge, Trigger::OneShot] {
        let (reader, mut writer) = pipe();
        let own: Rc<RefCell<Option<Watch<PipeReader>>>> = Rc::default();
        let doomed = Rc::clone(&own);
        let (watch, reports) = count_reports(&h.lp, reader, trigger, move |_| drop(doomed.take()));
        *own.borrow_mut() = Some(watch);
        writer.write_all(b"x").unwrap();
        h.run_until(&reports, move |reports| reports.get() == 1);
        h.run_for(3 * MS);
        assert_eq!(reports.get(), 1);
        let error = writer.write_all(b"x").expect_err("the reading end is closed with the watch");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}

pub(crate) fn a7_watch_gives_its_descriptor_back(h: &Harness) {
    let (reader, mut writer) = pipe();
    let (watch, reports) = count_reports(&h.lp, reader, Trigger::Level, |_| ());
    writer.write_all(b"mine again").unwrap();
    let mut reader = watch.into_inner();
    h.run_for(3 * MS);
    assert_eq!(reports.get(), 0, "what was given back is not watched any more");
    let mut bytes = [0; 10];
    reader.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"mine again");
    // And it can be watched once more, by this loop or another.
    let (watch, reports) = count_reports(&h.lp, reader, Trigger::OneShot, |_| ());
    writer.write_all(b"x").unwrap();
    h.run_until(&reports, move |reports| reports.get() == 1);
    drop(watch);
}

// --- A10: nothing stale --------------------------------------------------------------------------------

pub(crate) fn a10_watch_dropped_in_the_same_batch_is_not_reported(h: &Harness) {
    // All are ready at once, and whoever is reported first drops the others. Descriptors that take over
    // their numbers must not inherit their events.
    let watches: Rc<RefCell<Vec<Option<Watch<PipeReader>>>>> = Rc::default();
    let log = Log::default();
    type Newcomers = Rc<RefCell<Vec<(Watch<PipeReader>, PipeWriter)>>>;
    let newcomers: Newcomers = Rc::default();
    let mut writers = Vec::new();
    for number in 0..10 {
        let (reader, writer) = pipe();
        writers.push(writer);
        let (doomed, log) = (Rc::clone(&watches), log.clone());
        let newcomers = Rc::clone(&newcomers);
        let react = move |watched: &Watched<PipeReader>| {
            log.add("reported");
            for other in (0..10).filter(|&other| other != number) {
                drop(doomed.borrow_mut()[other].take());
            }
            for _ in 0..9 {
                let (reader, writer) = pipe();
                let react = |_: &Watched<PipeReader>| unreachable!("nothing was written to it");
                let (watch, _) = count_reports(&watched.lp(), reader, Trigger::Level, react);
                newcomers.borrow_mut().push((watch, writer));
            }
        };
        let (watch, _) = count_reports(&h.lp, reader, Trigger::OneShot, react);
        watches.borrow_mut().push(Some(watch));
    }
    h.run_for(MS);
    for writer in &mut writers {
        writer.write_all(b"x").unwrap();
    }
    h.run_until(&log, move |log| log.len() > 0);
    h.run_for(5 * MS);
    assert_eq!(log.take(), ["reported"]);
    newcomers.borrow_mut().clear();
    watches.borrow_mut().clear();
}

// --- A11: whatever can be polled -----------------------------------------------------------------------

pub(crate) fn a11_pipe_timerfd_eventfd_inotify_and_terminal_are_watched(h: &Harness) {
    let reported = |what: &str, owner: OwnedFd, interest, make_ready: &mut dyn FnMut()| {
        let reports = Rc::new(Cell::new(0));
        let count = Rc::clone(&reports);
        let watch = h.lp.watch(owner, interest, Trigger::OneShot, move |_, ready| {
            assert!(!ready.is_empty());
            count.set(count.get() + 1);
        });
        let watch = watch.unwrap_or_else(|error| panic!("{what}: {error}"));
        make_ready();
        h.run_until(&reports, move |reports| reports.get() == 1);
        drop(watch);
    };

    let (reader, mut writer) = pipe();
    reported("a pipe", reader.into(), Interest::READ, &mut || writer.write_all(b"x").unwrap());

    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).unwrap();
    let value = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
    rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once).unwrap();
    reported("a timerfd", timer, Interest::READ, &mut || ());

    let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    let copy = event.try_clone().unwrap();
    reported("an eventfd", event, Interest::READ, &mut || {
        rustix::io::write(&copy, &1u64.to_ne_bytes()).unwrap();
    });

    let folder =
        std::env::temp_dir().join(format!("coracle-rows-{}-{}", std::process::id(), h.backend));
    std::fs::create_dir_all(&folder).unwrap();
    let notify =
        inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&notify, &folder, inotify::WatchFlags::CREATE).unwrap();
    reported("an inotify", notify, Interest::READ, &mut || {
        std::fs::write(folder.join("news"), b"").unwrap();
    });
    std::fs::remove_dir_all(&folder).unwrap();

    let terminal = File::options().read(true).write(true).open("/dev/ptmx").unwrap();
    reported("a terminal", terminal.into(), Interest::WRITE, &mut || ());

    let (mut a, b) = UnixStream::pair().unwrap();
    reported("a socket", b.into(), Interest::READ, &mut || a.write_all(b"x").unwrap());
}

pub(crate) fn a11_regular_file_is_refused_with_the_reason(h: &Harness) {
    let file = File::open(std::env::current_exe().unwrap()).unwrap();
    let error = h.lp.watch(file, Interest::READ, Trigger::Level, |_, _| ()).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(
        error.to_string(),
        "a regular file cannot be watched, it is always ready: use Operation::Read or offload"
    );
    let folder = File::open("/").unwrap();
    let error =
        h.lp.watch(folder, Interest::READ, Trigger::Level, |_, _| ()).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(h.lp.is_idle());
}

pub(crate) fn watch_and_loop_dropped_close_the_descriptor(h: &Harness) {
    struct Flagged(PipeReader, Rc<Cell<bool>>);
    impl AsFd for Flagged {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
    impl Drop for Flagged {
        fn drop(&mut self) {
            self.1.set(true);
        }
    }
    let closed = Rc::new(Cell::new(false));
    let lp = h.builder().build().unwrap();
    let handle = lp.handle();
    let (reader, _writer) = pipe();
    let owner = Flagged(reader, Rc::clone(&closed));
    let watch = lp.watch(owner, Interest::READ, Trigger::Level, |_, _| ()).unwrap();
    lp.run_ready().unwrap();
    drop(watch);
    drop(lp); // without another turn
    assert!(!handle.is_alive(), "a watch that has ended keeps its loop alive");
    assert!(closed.get(), "the watched descriptor was leaked");
}
