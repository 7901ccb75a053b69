//! Sending to who is gone: the error and the signal are the kernel's, whoever makes the call.

use super::{alone, open, switch_on};
use coracle_coro::{run_on, spawn};
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Many at once, so that the loop has several of their calls to make.
const MANY: u32 = 16;

fn gone(backend: &str) {
    switch_on();
    // SAFETY: a handler that counts.
    unsafe { libc::signal(libc::SIGPIPE, count as *const () as libc::sighandler_t) };
    let main = || -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut all = Vec::new();
        for flags in [0, libc::MSG_NOSIGNAL].repeat(MANY as usize / 2) {
            let near = TcpStream::connect(listener.local_addr()?)?;
            let (far, _) = listener.accept()?;
            all.push(spawn(move || {
                let send = || {
                    // SAFETY: a byte.
                    let sent =
                        unsafe { libc::send(near.as_raw_fd(), [7_u8].as_ptr().cast(), 1, flags) };
                    if sent == 1 {
                        0
                    } else {
                        io::Error::last_os_error().raw_os_error().unwrap_or(-1)
                    }
                };
                assert_eq!(send(), 0);
                drop(far); // with a byte that nobody has read: a reset
                let mut space = [0; 8];
                assert!(
                    (&near)
                        .read(&mut space)
                        .is_err_and(|error| error.raw_os_error() == Some(libc::ECONNRESET))
                );
                send()
            }));
        }
        for sending in all {
            assert_eq!(sending.join().expect("it sends"), libc::EPIPE);
        }
        assert_eq!(SIGNALS.load(Ordering::Relaxed), MANY / 2);
        Ok(())
    };
    run_on(&open(backend).expect("a loop"), main).expect("run");
}

macro_rules! cases {
    ($($name:ident $backend:literal;)*) => {$(
        #[test]
        fn $name() {
            alone(concat!("piping::", stringify!($name)), || gone($backend));
        }
    )*};
}

cases! {
    s32_signal_of_a_send_on_uring "uring";
    s32_signal_of_a_send_on_epoll "epoll";
    s32_signal_of_a_send_on_poll "poll";
    s32_signal_of_a_send_on_select "select";
    s32_signal_of_a_send_on_sim "sim";
}
