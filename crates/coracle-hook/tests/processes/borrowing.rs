//! Children that have our memory, and descriptors of their own: `vfork`, and `clone` like it. Whatever they call
//! before they start a program, our coroutines and what is known of our descriptors stay as they are.

use super::{MS, alone, open, switch_on};
use coracle_coro::{run_on, spawn, yield_now};
use coracle_hook::status;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::thread;

/// What the child is told, and what it tells.
struct Errand {
    /// A socket that a coroutine of the parent reads.
    socket: i32,
    /// The ends of a pipe.
    reader: i32,
    writer: i32,
    /// A number from which on nothing is open.
    free: i32,
    failed: Cell<u32>,
}

/// What children call between their birth and their program, and more.
///
/// # Safety
/// In a child that has its parent's memory.
unsafe fn act(errand: &Errand) {
    let check = |line: u32, good: bool| {
        if !good && errand.failed.get() == 0 {
            errand.failed.set(line);
        }
    };
    // SAFETY: numbers of its own, and memory that the parent has no use for now.
    unsafe {
        let &Errand { socket, reader, writer, free, .. } = errand;
        // A word through the pipe, as that for an error; and back.
        let mut byte = 7_u8;
        check(line!(), libc::write(writer, (&raw const byte).cast(), 1) == 1);
        check(line!(), libc::read(reader, (&raw mut byte).cast(), 1) == 1);
        // Numbers of our own become others.
        check(line!(), libc::dup2(writer, socket) == socket);
        check(line!(), libc::dup3(writer, free, libc::O_CLOEXEC) == free);
        check(line!(), libc::close(socket) == 0);
        // The lowest that is free: the number that is a socket in the parent is another one here.
        let own = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0);
        check(line!(), own == socket);
        check(line!(), libc::recv(own, (&raw mut byte).cast(), 1, 0) == -1);
        check(line!(), libc::fcntl(own, libc::F_SETFD, 0) == 0);
        check(line!(), libc::fcntl(own, libc::F_SETFL, libc::O_NONBLOCK) == 0);
        check(line!(), libc::close_range(free as u32, free as u32, 0) == 0);
        check(line!(), libc::usleep(1) == 0);
        let soon = libc::timespec { tv_sec: 0, tv_nsec: 1000 };
        let clock = libc::CLOCK_MONOTONIC;
        check(line!(), libc::clock_nanosleep(clock, 0, &raw const soon, std::ptr::null_mut()) == 0);
        let mut list = [libc::pollfd { fd: reader, events: libc::POLLIN, revents: 0 }];
        check(line!(), libc::poll(list.as_mut_ptr(), 1, 1) == 0);
    }
}

/// A coroutine waits on a socket, and another one has a child by `bear`, which acts and tells its number.
fn has_a_child(backend: &str, bear: fn(&Errand) -> i32) {
    switch_on();
    let bear = move || -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut near = TcpStream::connect(listener.local_addr()?)?;
        let (mut far, _) = listener.accept()?;
        let (reader, writer) = io::pipe()?;
        let errand = Errand {
            socket: far.as_raw_fd(),
            reader: reader.as_raw_fd(),
            writer: writer.as_raw_fd(),
            free: 700,
            failed: Cell::new(0),
        };
        let reading = spawn(move || {
            let mut all = Vec::new();
            for _ in 0..2 {
                let mut space = [0; 4];
                far.read_exact(&mut space).map_err(|error| error.to_string())?;
                all.extend(space);
            }
            Ok::<_, String>(all)
        });
        yield_now();
        thread::sleep(2 * MS);
        let ran = Rc::new(Cell::new(false));
        let shared = Rc::clone(&ran);
        let other = spawn(move || shared.set(true));
        let (before, pid) = (status().calls, bear(&errand));
        assert!(pid > 0, "{}", io::Error::last_os_error());
        assert_eq!(errand.failed.get(), 0, "the line that failed in the child");
        assert!(!ran.get(), "a coroutine ran in the child");
        assert_eq!(status().calls, before, "a call of the child was taken over");
        other.join().expect("another one");
        assert!(!reading.is_finished());
        near.write_all(b"ahoy")?;
        thread::sleep(2 * MS);
        assert!(!reading.is_finished(), "it is as blocking as before");
        near.write_all(b"ship")?;
        assert_eq!(reading.join().expect("it reads"), Ok(b"ahoyship".to_vec()));
        let mut status = -1;
        // SAFETY: a place for the answer.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(libc::WEXITSTATUS(status), 0);
        Ok(())
    };
    run_on(&open(backend).expect("a loop"), bear).expect("run");
}

fn by_clone(errand: &Errand) -> i32 {
    extern "C" fn begin(errand: *mut libc::c_void) -> libc::c_int {
        // SAFETY: what the parent lends, which waits.
        unsafe { act(&*errand.cast::<Errand>()) };
        0
    }
    let mut stack = vec![0_u64; 16 << 10];
    let place = std::ptr::from_ref(errand).cast_mut().cast();
    // SAFETY: it has a stack of its own, and we go on when it has ended.
    unsafe {
        let top = stack.as_mut_ptr_range().end.cast();
        libc::clone(begin, top, libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, place)
    }
}

/// Not inlined: nothing of its frame may change when it goes on for the second time.
#[inline(never)]
#[allow(deprecated)] // it is not for the faint-hearted
fn by_vfork(errand: &Errand) -> i32 {
    // SAFETY: what the child does is in memory that the parent has lent, it does not return, and ends by itself.
    unsafe {
        let pid = libc::vfork();
        if pid == 0 {
            act(errand);
            libc::_exit(0);
        }
        pid
    }
}

macro_rules! cases {
    ($($name:ident $backend:literal $bear:ident;)*) => {$(
        #[test]
        fn $name() {
            alone(concat!("borrowing::", stringify!($name)), || has_a_child($backend, $bear));
        }
    )*};
}

cases! {
    s54_child_by_vfork_on_uring "uring" by_vfork;
    s54_child_by_vfork_on_epoll "epoll" by_vfork;
    s54_child_by_vfork_on_poll "poll" by_vfork;
    s54_child_by_vfork_on_select "select" by_vfork;
    s54_child_by_vfork_on_sim "sim" by_vfork;
    s54_child_by_clone_on_uring "uring" by_clone;
    s54_child_by_clone_on_epoll "epoll" by_clone;
    s54_child_by_clone_on_poll "poll" by_clone;
    s54_child_by_clone_on_select "select" by_clone;
    s54_child_by_clone_on_sim "sim" by_clone;
}

/// There is a process more, and our own goes on as before: also in a plain thread.
#[test]
#[allow(deprecated)]
fn s54_vfork_in_a_plain_thread() {
    alone("borrowing::s54_vfork_in_a_plain_thread", || {
        switch_on();
        for code in 0..20 {
            // SAFETY: the child does nothing but end.
            let pid = unsafe {
                let pid = libc::vfork();
                if pid == 0 {
                    libc::_exit(code);
                }
                pid
            };
            let mut status = -1;
            // SAFETY: a place for the answer.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            assert_eq!(libc::WEXITSTATUS(status), code);
        }
    });
}
