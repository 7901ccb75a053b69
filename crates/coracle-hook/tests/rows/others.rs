//! Time, children and names.

use crate::harness::{HOUR, Harness, now};
use crate::helping::said;
use coracle_coro::{WaitsFor, join_all, spawn, yield_now};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A thousand that sleep for long, at the same time: one after the other they would take weeks of the loop's time.
pub(crate) fn t3_thread_sleep_parks(h: &Harness) {
    h.run(|| {
        let begin = now();
        let sleepers: Vec<_> = (0..1000).map(|_| spawn(|| thread::sleep(20 * MS))).collect();
        sleepers.into_iter().for_each(|one| one.join().expect("it sleeps"));
        assert!(now() - begin >= 20 * MS, "{:?}", now() - begin);
        assert!(now() - begin < 10_000 * MS, "{:?}", now() - begin);
        Ok(())
    });
}

pub(crate) fn s32_sleeping_until(h: &Harness) {
    h.run(|| {
        let begin = now();
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: places for times.
        unsafe {
            libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time);
            time.tv_sec += 1;
            let absolute = libc::TIMER_ABSTIME;
            let early = libc::timespec { tv_sec: 1, tv_nsec: 0 };
            let none = std::ptr::null_mut();
            assert_eq!(
                libc::clock_nanosleep(libc::CLOCK_REALTIME, absolute, &raw const early, none),
                0
            );
            assert!(now() - begin < 900 * MS);
            assert_eq!(
                libc::clock_nanosleep(libc::CLOCK_REALTIME, absolute, &raw const time, none),
                0
            );
            assert!(now() - begin >= 900 * MS, "{:?}", now() - begin);
            let wrong = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000_000 };
            assert_eq!(
                libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const wrong, none),
                libc::EINVAL
            );
        }
        Ok(())
    });
}

pub(crate) fn s35_children_are_waited_for(h: &Harness) {
    h.run(|| {
        let ended = Rc::new(Cell::new(false));
        let shared = Rc::clone(&ended);
        // It ends when its input does, which is when the other coroutine has run.
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().expect("a pipe");
        let waiting = spawn(move || {
            let mut text = String::new();
            child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("read");
            let status = child.wait().expect("wait");
            shared.set(true);
            (status.success(), text)
        });
        yield_now();
        assert!(!ended.get());
        input.write_all(b"meow")?;
        drop(input);
        assert_eq!(waiting.join().expect("it waits"), (true, "meow".to_owned()));
        Ok(())
    });
}

/// `output` reads two pipes at once, by `poll`.
pub(crate) fn s35_output_of_children(h: &Harness) {
    h.run(|| {
        let running: Vec<_> = (0..5)
            .map(|me| {
                spawn(move || {
                    let script = format!("echo out {me}; echo err {me} >&2; exit {me}");
                    Command::new("sh").arg("-c").arg(script).output().expect("output")
                })
            })
            .collect();
        for (me, one) in running.into_iter().enumerate() {
            let output = one.join().expect("it runs");
            assert_eq!(output.status.code(), Some(me as i32));
            assert_eq!(output.stdout, format!("out {me}\n").into_bytes());
            assert_eq!(output.stderr, format!("err {me}\n").into_bytes());
        }
        Ok(())
    });
}

/// A wait in the kernel would stop the one who lets the child go on.
pub(crate) fn s35_waitid_and_wait4(h: &Harness) {
    h.run(|| {
        let make = || Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let (mut one, mut two) = (make()?, make()?);
        let inputs = (one.stdin.take(), two.stdin.take());
        let pids = (one.id(), two.id());
        let waiting = spawn(move || {
            // SAFETY: places for the answers.
            unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                let seen = said(libc::waitid(
                    libc::P_PID,
                    pids.0,
                    &raw mut info,
                    libc::WEXITED | libc::WNOWAIT,
                ));
                let who = info.si_pid();
                let (mut status, mut usage) = (-1, std::mem::zeroed());
                let first = said(libc::wait4(pids.0 as i32, &raw mut status, 0, &raw mut usage));
                let second = said(libc::waitpid(pids.1 as i32, std::ptr::null_mut(), 0));
                let third = said(libc::waitpid(pids.1 as i32, std::ptr::null_mut(), 0));
                (seen, who as u32, first, status, second, third)
            }
        });
        yield_now();
        drop(inputs.0);
        coracle_coro::sleep(2 * MS)?;
        drop(inputs.1);
        let seen = waiting.join().expect("it waits");
        let (one, two) = (i64::from(pids.0), i64::from(pids.1));
        assert_eq!(seen, (Ok(0), pids.0, Ok(one), 0, Ok(two), Err(libc::ECHILD)));
        Ok(())
    });
}

pub(crate) fn s34_names_are_looked_up_elsewhere(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let accepting = spawn(move || listener.accept().expect("accept").1);
        let found: Vec<_> = ("localhost", port).to_socket_addrs()?.collect();
        assert!(
            !found.is_empty()
                && found.iter().all(|address| address.ip().is_loopback() && address.port() == port)
        );
        let stream = TcpStream::connect(("localhost", port))?;
        assert_eq!(accepting.join().expect("accepting"), stream.local_addr()?);
        let unknown = ("no-such-name.invalid", 1).to_socket_addrs();
        assert!(unknown.is_err());
        Ok(())
    });
}

/// More at a time than have a place.
pub(crate) fn s34_many_look_ups(h: &Harness) {
    h.run(|| {
        let find = |_| {
            move || -> io::Result<bool> {
                let found: Vec<_> = ("localhost", 9).to_socket_addrs().expect("found").collect();
                Ok(found.iter().all(|address| address.ip().is_loopback()))
            }
        };
        assert!(join_all((0..600).map(find))?.into_iter().all(|fine| fine));
        Ok(())
    });
}

pub(crate) fn s34_older_names_for_it(h: &Harness) {
    #[repr(C)]
    struct Space([u64; 256]);
    // SAFETY: as libc has them.
    unsafe extern "C" {
        fn gethostbyname(name: *const libc::c_char) -> *mut libc::hostent;
        fn gethostbyname_r(
            name: *const libc::c_char,
            place: *mut libc::hostent,
            space: *mut libc::c_char,
            len: usize,
            found: *mut *mut libc::hostent,
            error: *mut libc::c_int,
        ) -> libc::c_int;
    }
    let first = |found: *const libc::hostent| {
        // SAFETY: an entry, with an address of four bytes.
        let bytes = unsafe { (*(*found).h_addr_list).cast::<[u8; 4]>().read_unaligned() };
        IpAddr::from(bytes)
    };
    h.run(move || {
        // SAFETY: a name, and places for the answers.
        unsafe {
            let found = gethostbyname(c"localhost".as_ptr());
            assert!(!found.is_null());
            assert!(first(found).is_loopback());
            let mut space = Space([0; 256]);
            let mut place: libc::hostent = std::mem::zeroed();
            let (mut found, mut error) = (std::ptr::null_mut(), 0);
            let answer = gethostbyname_r(
                c"localhost".as_ptr(),
                &raw mut place,
                space.0.as_mut_ptr().cast(),
                2048,
                &raw mut found,
                &raw mut error,
            );
            assert_eq!(answer, 0);
            assert!(first(found).is_loopback());
            let mut address: libc::sockaddr_in = std::mem::zeroed();
            address.sin_family = libc::AF_INET as u16;
            address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
            let mut host = [0 as libc::c_char; 64];
            let answer = libc::getnameinfo(
                (&raw const address).cast(),
                size_of_val(&address) as u32,
                host.as_mut_ptr(),
                64,
                std::ptr::null_mut(),
                0,
                libc::NI_NUMERICHOST,
            );
            assert_eq!(answer, 0);
            assert_eq!(std::ffi::CStr::from_ptr(host.as_ptr()), c"127.0.0.1");
        }
        Ok(())
    });
}

/// While one waits by a blocking call, a neighbour's time is its own.
pub(crate) fn t3_neighbour_is_on_time(h: &Harness) {
    h.run(|| {
        let (mut reader, writer) = io::pipe()?;
        let blocked = spawn(move || reader.read(&mut [0; 8]).expect("read"));
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let waiting = spawn(move || child.wait().expect("wait").success());
        let sleeping = spawn(|| coracle_coro::timeout(50 * MS, || thread::sleep(HOUR)));
        for _ in 0..20 {
            thread::sleep(MS);
        }
        drop((writer, input));
        assert_eq!(blocked.join().expect("blocked"), 0);
        assert!(waiting.join().expect("waiting"));
        sleeping.join().expect("sleeping");
        Ok(())
    });
}

/// Who waits for a child is listed as such.
pub(crate) fn s49_wait_for_a_child_is_listed(h: &Harness) {
    h.run(|| {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
        let (input, pid) = (child.stdin.take(), child.id() as i32);
        let waiting = spawn(move || child.wait().expect("wait").success());
        yield_now();
        let all = coracle_coro::coroutines();
        let is_waiting = |what: Option<WaitsFor>| what == Some(WaitsFor::Child(pid));
        assert!(all.iter().any(|info| is_waiting(info.waits_for)));
        drop(input);
        assert!(waiting.join().expect("waiting"));
        Ok(())
    });
}
