//! What the cases have in common.

use crate::harness::Harness;
use coracle_coro::spawn;
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::mem::zeroed;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once};

/// Everything is tested once more, without a memory for descriptors: `tests/stateless` is a link to this folder.
const REMEMBERS: bool = !matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"stateless");

/// Enables hooks in this process; on io_uring and epoll, sends are handed over with those of others. (That they
/// are tried at once is what the other backends have.)
pub(crate) fn enable() {
    static ONCE: Once = Once::new();
    coracle_hook::remember(REMEMBERS);
    let settings = coracle_hook::Settings { sending: true, ..Default::default() };
    // SAFETY: the tests know what they do: nothing of theirs is held over a call that may wait, except where that
    // is the case.
    ONCE.call_once(|| unsafe { coracle_hook::enable_with(settings) });
}

/// Two ends of a TCP connection, of std's.
pub(crate) fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    Ok((near, far))
}

/// Two ends of a connection through which something has gone both ways, and which have nothing left to be read.
pub(crate) fn used_pair() -> io::Result<(TcpStream, TcpStream)> {
    let (near, far) = pair()?;
    for (from, to) in [(&far, &near), (&near, &far), (&far, &near)] {
        let (mut from, mut to) = (from, to);
        from.write_all(b"1")?;
        assert_eq!(to.read(&mut [0; 8])?, 1);
    }
    Ok((near, far))
}

/// The same file under a number that nobody else gets, also when it is closed. The kernel gives out the lowest;
/// these are higher than all cases together have, and lower than what select can watch.
pub(crate) fn apart(file: impl AsRawFd) -> i32 {
    static NEXT: AtomicI32 = AtomicI32::new(768);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: numbers.
    let copy = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, number) };
    assert!(
        copy >= 0,
        "{}: is there room above {number} (`ulimit -n`)?",
        io::Error::last_os_error()
    );
    assert_eq!(copy, number, "somebody has it");
    copy
}

/// A socket that another thread will close under a wait. On io_uring under a number nobody else gets: there the
/// kernel looks at it when the request is handed over, which may be after the close.
pub(crate) fn to_be_closed(socket: TcpStream) -> i32 {
    let on_uring = Loop::current().is_some_and(|lp| lp.backend() == Backend::Uring);
    if on_uring { apart(socket) } else { socket.into_raw_fd() }
}

/// Runs `script` in a plain thread, which is the kernel's own meaning, and in a coroutine: both must say the same.
pub(crate) fn as_in_a_thread<T: Debug + PartialEq + Send + 'static>(
    h: &Harness,
    script: impl Fn() -> T + Send + Sync + 'static,
) -> T {
    let script = Arc::new(script);
    let shared = Arc::clone(&script);
    let kernel = std::thread::spawn(move || shared()).join().expect("in a thread");
    let place = Arc::new(Mutex::new(None));
    let shared = Arc::clone(&place);
    h.run(move || {
        let said = spawn(move || script()).join().expect("in a coroutine");
        *shared.lock().unwrap() = Some(said);
        Ok(())
    });
    let hooked = place.lock().unwrap().take().expect("it has said something");
    assert_eq!(hooked, kernel, "a coroutine sees something else than a thread");
    hooked
}

/// What a call of libc's has said: its result, or its `errno`.
pub(crate) fn said(answer: impl TryInto<i64>) -> Result<i64, i32> {
    match answer.try_into().unwrap_or(i64::MIN) {
        -1 => Err(io::Error::last_os_error().raw_os_error().expect("an errno")),
        answer => Ok(answer),
    }
}

/// The error number of something of std's.
pub(crate) fn number<T: Debug>(result: io::Result<T>) -> Result<T, i32> {
    result.map_err(|error| error.raw_os_error().unwrap_or(-1))
}

/// Sends a message of these stretches, and a descriptor with it.
///
/// # Safety
/// The stretches are there until it returns.
pub(crate) unsafe fn send_with_descriptor(
    socket: &impl AsRawFd,
    parts: &mut [libc::iovec],
    passed: &impl AsRawFd,
) -> Result<i64, i32> {
    let mut control = [0_u64; 8];
    // SAFETY: a message of the caller's stretches, with one descriptor; all of it lives through the call.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(passed.as_raw_fd());
        said(libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) as i64)
    }
}

/// Receives until `space` is full, and the descriptor that comes with it.
pub(crate) fn receive_with_descriptor(
    socket: &impl AsRawFd,
    space: &mut [u8],
) -> (Result<i64, i32>, OwnedFd) {
    let mut parts = [libc::iovec { iov_base: space.as_mut_ptr().cast(), iov_len: space.len() }];
    let mut control = [0_u64; 8];
    // SAFETY: a message with space for bytes and control messages; all of it lives through the call. The
    // descriptor that has come is nobody else's.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let got =
            said(libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_WAITALL) as i64);
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        assert!(!header.is_null(), "no descriptor has come");
        let number = libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned();
        (got, OwnedFd::from_raw_fd(number))
    }
}

/// A folder of its own, which is removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "coracle-hook-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a new folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
