//! Descriptors of std's, of loops and of children: numbers that go from one to another.

use super::{MS, alone, open, switch_on};
use coracle_coro::{net, run, run_on, spawn, yield_now};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;

fn is_open(fd: i32) -> bool {
    // SAFETY: a number.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// A socket of std's that was waited for, closed by another thread; and one of the loop's own has its number.
fn number_goes_to_the_loop(backend: &str) {
    switch_on();
    run_on(&open(backend).expect("a loop"), move || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let far = spawn({
            let listener = listener.try_clone()?;
            move || listener.accept().map(|(far, _)| far)
        });
        let far = far.join().expect("it accepts")?;
        let fd = near.as_raw_fd();
        let reading = spawn(move || {
            let mut near = near;
            near.read_exact(&mut [0; 4]).expect("read");
            thread::spawn(move || drop(near)).join().expect("a thread");
        });
        yield_now();
        (&far).write_all(b"ahoy")?;
        reading.join().expect("it reads");
        drop(far);
        assert!(!is_open(fd));
        let mut own = Vec::new();
        for _ in 0..20 {
            if !is_open(fd) {
                own.push(net::TcpStream::connect(listener.local_addr()?)?);
            }
        }
        assert!(is_open(fd), "the loop has taken twenty numbers, and not the lowest");
        let mut own = own.pop().expect("the last has the number");
        let mut far = None;
        while far
            .as_ref()
            .is_none_or(|far: &TcpStream| far.peer_addr().ok() != own.local_addr().ok())
        {
            far = Some(listener.accept()?.0);
        }
        let reading = spawn(move || {
            own.read_exact(&mut [0; 4]).expect("read");
            own
        });
        yield_now();
        // Somebody looks at the number, for a moment.
        let mut list = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        // SAFETY: a list of one.
        assert_eq!(unsafe { libc::poll(list.as_mut_ptr(), 1, 5) }, 0);
        far.as_ref().expect("a socket").write_all(b"ahoy")?;
        drop(reading.join().expect("it reads on"));
        assert_eq!(far.as_mut().expect("a socket").read(&mut [0; 4])?, 0);
        Ok(())
    })
    .expect("run");
}

#[test]
fn s32_number_goes_to_the_loop_on_uring() {
    alone("mixing::s32_number_goes_to_the_loop_on_uring", || number_goes_to_the_loop("uring"));
}

#[test]
fn s32_number_goes_to_the_loop_on_epoll() {
    alone("mixing::s32_number_goes_to_the_loop_on_epoll", || number_goes_to_the_loop("epoll"));
}

#[test]
fn s32_number_goes_to_the_loop_on_poll() {
    alone("mixing::s32_number_goes_to_the_loop_on_poll", || number_goes_to_the_loop("poll"));
}

#[test]
fn s32_number_goes_to_the_loop_on_select() {
    alone("mixing::s32_number_goes_to_the_loop_on_select", || number_goes_to_the_loop("select"));
}

/// A child that has our memory and descriptors of its own, until it starts a program: what it closes is open here.
#[test]
fn s54_child_with_our_memory_closes_its_own() {
    extern "C" fn child(fd: *mut libc::c_void) -> libc::c_int {
        // SAFETY: a number of its own.
        unsafe { libc::close(fd.addr() as i32) }
    }
    alone("mixing::s54_child_with_our_memory_closes_its_own", || {
        switch_on();
        run_on(&open("epoll").expect("a loop"), || {
            let (mut reader, mut writer) = io::pipe()?;
            let fd = reader.as_raw_fd();
            let reading =
                spawn(move || reader.read(&mut [0; 8]).map_err(|error| error.to_string()));
            yield_now();
            let mut stack = vec![0_u64; 16 << 10];
            // SAFETY: it has a stack of its own, and we go on when it has ended.
            let pid = unsafe {
                let top = stack.as_mut_ptr_range().end.cast();
                let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
                libc::clone(child, top, flags, std::ptr::without_provenance_mut(fd as usize))
            };
            assert!(pid > 0);
            thread::sleep(2 * MS);
            assert!(!reading.is_finished());
            writer.write_all(b"ahoy")?;
            assert_eq!(reading.join().expect("it reads"), Ok(4));
            let mut status = -1;
            // SAFETY: a place for the answer.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            assert_eq!(status, 0);
            Ok(())
        })
        .expect("run");
    });
}

/// A set that is as large as sets are, and a number that is as high as numbers could be: what is behind the set is
/// not touched.
#[test]
fn s32_select_stays_inside_the_set() {
    alone("mixing::s32_select_stays_inside_the_set", || {
        const PAGE: usize = 4096;
        switch_on();
        run(|| {
            let (reader, mut writer) = io::pipe()?;
            let fd = reader.as_raw_fd();
            let waiting = spawn(move || {
                // SAFETY: two pages of our own, of which the second is not to be touched.
                unsafe {
                    let (protection, flags) = (
                        libc::PROT_READ | libc::PROT_WRITE,
                        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    );
                    let pages =
                        libc::mmap(std::ptr::null_mut(), 2 * PAGE, protection, flags, -1, 0);
                    assert_ne!(pages, libc::MAP_FAILED);
                    assert_eq!(libc::mprotect(pages.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
                    let set: *mut libc::fd_set =
                        pages.byte_add(PAGE - size_of::<libc::fd_set>()).cast();
                    libc::FD_SET(fd, set);
                    let null = std::ptr::null_mut();
                    let ready = libc::select(1 << 20, set, null, null, std::ptr::null_mut());
                    (ready, libc::FD_ISSET(fd, set))
                }
            });
            yield_now();
            thread::sleep(2 * MS);
            writer.write_all(b"ahoy")?;
            assert_eq!(waiting.join().expect("it waits"), (1, true));
            Ok(())
        })
        .expect("run");
    });
}
