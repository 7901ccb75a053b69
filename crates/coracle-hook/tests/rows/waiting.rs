//! Waiting for several descriptors at once.

use crate::harness::Harness;
use crate::helping::{apart, as_in_a_thread, pair, said};
use coracle_coro::{spawn, timeout, yield_now};
use libc::{c_int, c_short, pollfd};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

fn poll(list: &mut [pollfd], timeout: c_int) -> Result<i64, i32> {
    // SAFETY: a list of so many.
    said(unsafe { libc::poll(list.as_mut_ptr(), list.len() as u64, timeout) })
}

fn entry(fd: &impl AsRawFd, events: c_short) -> pollfd {
    pollfd { fd: fd.as_raw_fd(), events, revents: -1 }
}

pub(crate) fn s32_poll_parks_and_says_what_the_kernel_says(h: &Harness) {
    h.run(|| {
        let (near, mut far) = pair()?;
        let (reader, writer) = io::pipe()?;
        let waiting = spawn(move || {
            let mut list = [
                entry(&near, libc::POLLIN),
                entry(&reader, libc::POLLIN),
                pollfd { fd: -1, events: libc::POLLIN, revents: -1 },
            ];
            let first = poll(&mut list, -1);
            let seen = list.map(|entry| entry.revents);
            (&near).read_exact(&mut [0; 4]).expect("read");
            let second = poll(&mut list, 60_000);
            ((first, seen), (second, list.map(|entry| entry.revents)))
        });
        yield_now();
        far.write_all(b"ahoy")?;
        yield_now();
        coracle_coro::sleep(Duration::from_millis(3))?;
        drop(writer);
        let (first, second) = waiting.join().expect("it waits");
        assert_eq!(first, (Ok(1), [libc::POLLIN, 0, 0]));
        assert_eq!(second, (Ok(1), [0, libc::POLLHUP, 0]));
        Ok(())
    });
}

pub(crate) fn s32_masks_of_poll(h: &Harness) {
    as_in_a_thread(h, || {
        let (near, far) = pair().expect("a pair");
        let file = std::fs::File::open("/proc/self/stat").expect("a file");
        let all = libc::POLLIN | libc::POLLOUT | libc::POLLPRI | libc::POLLRDHUP;
        let look = |fds: &[&dyn AsRawFd], events, timeout| {
            let mut list: Vec<pollfd> =
                fds.iter().map(|fd| pollfd { fd: fd.as_raw_fd(), events, revents: -1 }).collect();
            let answer = poll(&mut list, timeout);
            (answer, list.iter().map(|entry| entry.revents).collect::<Vec<_>>())
        };
        let mut seen = vec![
            look(&[&near, &far], all, 1),
            look(&[&near, &near], libc::POLLIN, 0),
            look(&[&near, &near], libc::POLLIN, 2),
            look(&[&near, &file], libc::POLLIN, -1),
            look(&[&near], 0, 2),
            look(&[&near], libc::POLLPRI, 2),
            look(&[], 0, 2),
        ];
        drop(far);
        seen.push(look(&[&near], 0, 2));
        seen.push(look(&[&near], libc::POLLRDHUP, -1));
        seen.push(look(&[&near], all, -1));
        let mut list = [pollfd { fd: 9999, events: libc::POLLIN, revents: 0 }];
        seen.push((poll(&mut list, -1), vec![list[0].revents]));
        seen
    });
}

/// Urgent data, and a hang-up without anything else, are waited for by a set made for it.
pub(crate) fn s32_poll_for_what_a_loop_does_not_know(h: &Harness) {
    h.run(|| {
        let (near, far) = pair()?;
        let waiting = spawn(move || {
            let mut list = [entry(&near, libc::POLLPRI), entry(&near, libc::POLLPRI)];
            let urgent = (poll(&mut list, -1), list[1].revents);
            let mut list = [entry(&near, libc::POLLRDHUP)];
            (urgent, (poll(&mut list, -1), list[0].revents))
        });
        yield_now();
        // SAFETY: one byte.
        said(unsafe { libc::send(far.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) } as i64)
            .expect("urgent data");
        coracle_coro::sleep(Duration::from_millis(5))?;
        drop(far);
        let (urgent, ended) = waiting.join().expect("it waits");
        assert_eq!(urgent, (Ok(2), libc::POLLPRI));
        assert_eq!(ended, (Ok(1), libc::POLLRDHUP));
        Ok(())
    });
}

pub(crate) fn s32_poll_times_out(h: &Harness) {
    let simulated = h.lp.backend() == coracle_loop::demux::Backend::Sim;
    let seen = as_in_a_thread(h, move || {
        let (near, _far) = pair().expect("a pair");
        let begin = Instant::now();
        let mut list = [entry(&near, libc::POLLIN)];
        let answer = poll(&mut list, 30);
        let time = libc::timespec { tv_sec: 0, tv_nsec: 30_000_000 };
        // SAFETY: a list of one, and a time.
        let precise =
            said(unsafe { libc::ppoll(list.as_mut_ptr(), 1, &raw const time, std::ptr::null()) });
        (
            answer,
            precise,
            list[0].revents,
            simulated || begin.elapsed() >= Duration::from_millis(59),
        )
    });
    assert_eq!(seen, (Ok(0), Ok(0), 0, true));
}

fn select(
    read: &[c_int],
    write: &[c_int],
    timeout: Option<(i64, i64)>,
) -> (Result<i64, i32>, Vec<c_int>, bool) {
    // SAFETY: sets are numbers.
    let (mut readable, mut writable): (libc::fd_set, libc::fd_set) = unsafe { std::mem::zeroed() };
    let most = read.iter().chain(write).max().copied().unwrap_or(-1);
    // SAFETY: the tests have fewer than 1024 descriptors.
    unsafe {
        read.iter().for_each(|&fd| libc::FD_SET(fd, &raw mut readable));
        write.iter().for_each(|&fd| libc::FD_SET(fd, &raw mut writable));
    }
    let mut time = timeout.map(|(tv_sec, tv_usec)| libc::timeval { tv_sec, tv_usec });
    let place = time.as_mut().map_or(std::ptr::null_mut(), |time| time);
    // SAFETY: two sets, and a time.
    let answer = said(unsafe {
        libc::select(most + 1, &raw mut readable, &raw mut writable, std::ptr::null_mut(), place)
    });
    // SAFETY: as above.
    let set = |fd: &&c_int| unsafe {
        libc::FD_ISSET(**fd, &raw const readable) || libc::FD_ISSET(**fd, &raw const writable)
    };
    let left = time.is_some_and(|time| time.tv_sec > 0 || time.tv_usec > 0);
    (answer, read.iter().chain(write).filter(set).copied().collect(), left)
}

pub(crate) fn s32_select_parks(h: &Harness) {
    h.run(|| {
        let (near, mut far) = pair()?;
        let (reader, _writer) = io::pipe()?;
        let waiting = spawn(move || {
            let (fd, pipe) = (near.as_raw_fd(), reader.as_raw_fd());
            let quick = select(&[fd, pipe], &[fd], None);
            let slow = select(&[fd, pipe], &[], Some((3600, 0)));
            let late = select(&[pipe], &[], Some((0, 2000)));
            assert_eq!(quick, (Ok(1), vec![fd, fd], false)); // asked for in both
            assert_eq!(slow, (Ok(1), vec![fd], true));
            assert_eq!(late, (Ok(0), vec![], false));
            near
        });
        yield_now();
        coracle_coro::sleep(Duration::from_millis(3))?;
        far.write_all(b"ahoy")?;
        waiting.join().expect("it waits");
        Ok(())
    });
    let seen =
        as_in_a_thread(h, || [(0, -1), (0, 1000)].map(|time| select(&[], &[], Some(time)).0));
    assert_eq!(seen, [Err(libc::EINVAL), Ok(0)]);
    // Microseconds that are more than a second.
    let seen = as_in_a_thread(h, || {
        let (near, _far) = pair().expect("a pair");
        [(0, 1_500_000), (3600, 1_000_000)].map(|time| {
            let (answer, _, left) = select(&[], &[near.as_raw_fd()], Some(time));
            (answer, left)
        })
    });
    assert_eq!(seen, [(Ok(1), true); 2]);
}

/// Whoever finds something every time lets others have their turn nevertheless.
pub(crate) fn s32_poll_that_is_answered_at_once_gives_way(h: &Harness) {
    h.run(|| {
        let (near, _far) = pair()?;
        let other = spawn(|| ());
        // More than anybody does in a row, and few enough to end if nobody else ever runs.
        let mut rounds = 0..10_000;
        while !other.is_finished() && rounds.next().is_some() {
            assert_eq!(poll(&mut [entry(&near, libc::POLLOUT)], -1), Ok(1));
        }
        assert!(other.is_finished(), "it has never given way");
        Ok(())
    });
}

/// A number that is closed under a wait, and a stranger's before the wait is over: the stranger is not waited for.
pub(crate) fn s31_closed_number_is_not_polled_for_its_next_owner(h: &Harness) {
    fn polls(fd: c_int) -> (Result<i64, i32>, c_short) {
        let (other, _peer) = pair().expect("a pair");
        let mut list = [entry(&other, libc::POLLIN), pollfd { fd, ..entry(&other, libc::POLLIN) }];
        (poll(&mut list, -1), list[1].revents)
    }
    fn polls_rarely(fd: c_int) -> (Result<i64, i32>, c_short) {
        let mut list = [pollfd { fd, events: libc::POLLPRI, revents: 0 }];
        (poll(&mut list, -1), list[0].revents)
    }
    fn selects(fd: c_int) -> (Result<i64, i32>, c_short) {
        (select(&[fd], &[], None).0, 0)
    }
    type Call = fn(c_int) -> (Result<i64, i32>, c_short);
    let calls: [(Call, _); 3] = [
        (polls, (Ok(1), libc::POLLNVAL)),
        (polls_rarely, (Ok(1), libc::POLLNVAL)),
        (selects, (Err(libc::EBADF), 0)),
    ];
    h.run(move || {
        for (call, expected) in calls {
            let (near, _far) = pair()?;
            let (stranger, _peer) = pair()?;
            let fd = apart(near);
            let waiting = spawn(move || timeout(Duration::from_secs(60), || call(fd)));
            yield_now();
            coracle_coro::sleep(Duration::from_millis(2))?;
            assert!(!waiting.is_finished());
            // SAFETY: it is ours, and who waits there is told.
            assert_eq!(unsafe { libc::close(fd) }, 0);
            // SAFETY: a number that nobody has.
            let next = unsafe { libc::fcntl(stranger.as_raw_fd(), libc::F_DUPFD_CLOEXEC, fd) };
            assert_eq!(next, fd, "it was not free");
            assert_eq!(waiting.join().expect("it waits"), expected);
            // SAFETY: it is ours.
            assert_eq!(unsafe { libc::close(fd) }, 0);
        }
        Ok(())
    });
}

/// Somebody else's loop inside a coroutine.
pub(crate) fn s32_epoll_wait_parks(h: &Harness) {
    h.run(|| {
        let (near, mut far) = pair()?;
        let waiting = spawn(move || {
            // SAFETY: a set of our own, and events that live through the calls.
            unsafe {
                let set = libc::epoll_create1(libc::EPOLL_CLOEXEC);
                let set = OwnedFd::from_raw_fd(set);
                let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 42 };
                let add = libc::EPOLL_CTL_ADD;
                said(libc::epoll_ctl(set.as_raw_fd(), add, near.as_raw_fd(), &raw mut event))
                    .expect("added");
                let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
                let none = said(libc::epoll_wait(set.as_raw_fd(), events.as_mut_ptr(), 4, 2));
                let one = said(libc::epoll_wait(set.as_raw_fd(), events.as_mut_ptr(), 4, -1));
                (none, one, { events[0].u64 })
            }
        });
        yield_now();
        coracle_coro::sleep(Duration::from_millis(5))?;
        far.write_all(b"ahoy")?;
        assert_eq!(waiting.join().expect("it waits"), (Ok(0), Ok(1), 42));
        Ok(())
    });
}

/// An eventfd, which is neither socket nor pipe.
pub(crate) fn s32_eventfds_park(h: &Harness) {
    h.run(|| {
        // SAFETY: numbers, and a descriptor that is ours.
        let fd = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        let fd = std::rc::Rc::new(std::fs::File::from(fd));
        let reading = {
            let fd = std::rc::Rc::clone(&fd);
            spawn(move || {
                let mut space = [0; 8];
                (&*fd).read_exact(&mut space).expect("read");
                u64::from_ne_bytes(space)
            })
        };
        yield_now();
        (&*fd).write_all(&7_u64.to_ne_bytes())?;
        assert_eq!(reading.join().expect("it reads"), 7);
        Ok(())
    });
}
