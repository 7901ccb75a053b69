//! What the cases have in common.

use crate::harness::Harness;
use coracle_coro::spawn;
use std::fmt::Debug;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once};

/// Enables hooks in this process.
pub(crate) fn enable() {
    static ONCE: Once = Once::new();
    // SAFETY: the tests know what they do: nothing of theirs is held over a call that may wait, except where that
    // is the case.
    ONCE.call_once(|| unsafe { coracle_hook::enable() });
}

/// Two ends of a TCP connection, of std's.
pub(crate) fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    Ok((near, far))
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
