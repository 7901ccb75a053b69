//! The file of a Unix socket: never more open than asked, replaced when nobody answers, removed when done.
//!
//! ```text
//!   lock the directory ─► bind ─┬─ made ──────────────────► open what umask closed ─► listen ─► unlock
//!                          ▲    └─ there is a file already:
//!                          │         not a socket ─────────► refused
//!                          │         a socket, and it answers ► refused
//!                          └───────  a socket, nobody answers: a leftover, removed
//! ```
//!
//! **The mode.** Three ways were weighed. `umask` belongs to the process: other threads make files meanwhile.
//! Binding under another name and renaming leaves that other name in what `getsockname`, `getpeername` and
//! `ss` show for ever, and needs room in a path of 107 bytes. So the mode is given to the socket *before* it
//! has a name: Linux makes the file with the mode of the socket's own inode, less the umask (`unix_bind_bsd`,
//! net/unix/af_unix.c), so the file begins with what was asked or less. What the umask took is given back
//! after; nobody can connect before `listen`.
//!
//! **The lock.** Between `bind` and `listen` a socket looks like a leftover. Two programs started at once
//! could each remove the other's file; an advisory lock on the directory lets one finish first. It leaves no
//! file behind.
//!
//! **Whose file.** Before the file is removed, its device and inode are compared with those of the file that
//! was made. A descriptor of it (`O_PATH`) is held as long, so that its inode number cannot have been given
//! to another.

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often to make way for a socket: each time, somebody else put a file there in between.
const BIND_ATTEMPTS: usize = 8;

/// How often, and how far apart, to ask for the lock of the directory: a second in all. Others hold it for
/// microseconds.
const LOCK_ATTEMPTS: usize = 1000;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// The file of a Unix socket that listens. The last of its clones to be dropped removes it.
///
/// It comes from [`ListenSocket::file`](crate::ListenSocket::file), for whoever gives the socket itself away:
///
/// ```
/// use coracle_net::{ListenOptions, ListenSocket};
/// # let path = std::env::temp_dir().join(format!("coracle-doc-file-{}", std::process::id()));
/// # let address = format!("unix:{}", path.display()).parse().unwrap();
///
/// let socket = ListenSocket::bind(&address, &ListenOptions::new()).unwrap();
/// let file = socket.file().unwrap();
/// let descriptor = socket.into_fd(); // for a loop
/// assert!(path.exists());
/// drop(descriptor);
/// drop(file);
/// assert!(!path.exists());
/// ```
///
/// # Threads
/// Any.
#[derive(Debug, Clone)]
pub struct SocketFile {
    made: Arc<Made>,
}

#[derive(Debug)]
struct Made {
    /// Absolute: a daemon changes its directory.
    path: PathBuf,
    /// Holds the inode.
    inode: OwnedFd,
    kept: AtomicBool,
}

impl SocketFile {
    /// Where the file is, from the root.
    ///
    /// ```
    /// # use coracle_net::{ListenOptions, ListenSocket};
    /// # let path = std::env::temp_dir().join(format!("coracle-doc-path-{}", std::process::id()));
    /// # let address = format!("unix:{}", path.display()).parse().unwrap();
    /// let socket = ListenSocket::bind(&address, &ListenOptions::new()).unwrap();
    /// assert!(socket.file().unwrap().path().is_absolute());
    /// ```
    pub fn path(&self) -> &Path {
        &self.made.path
    }

    /// Leaves the file where it is, for all clones and for the socket it came from.
    ///
    /// A process that forks after binding calls this in each child that is not to remove the file of its parent.
    ///
    /// ```
    /// # use coracle_net::{ListenOptions, ListenSocket};
    /// # let path = std::env::temp_dir().join(format!("coracle-doc-keep-{}", std::process::id()));
    /// # let address = format!("unix:{}", path.display()).parse().unwrap();
    /// let socket = ListenSocket::bind(&address, &ListenOptions::new()).unwrap();
    /// socket.file().unwrap().keep();
    /// drop(socket);
    /// assert!(path.exists());
    /// # std::fs::remove_file(path).unwrap();
    /// ```
    pub fn keep(&self) {
        self.made.kept.store(true, Ordering::Relaxed);
    }

    /// Binds a socket to `path`. Hold the [lock](lock_directory) until it listens.
    pub(crate) fn bind(
        socket: BorrowedFd<'_>,
        path: &Path,
        mode: Option<u32>,
    ) -> io::Result<SocketFile> {
        let mode = mode.map(permissions).transpose()?;
        if let Some(mode) = mode {
            fs::fchmod(socket, mode)?;
        }
        let address = SocketAddrUnix::new(path)?;
        let mut attempts = 1..BIND_ATTEMPTS;
        while let Err(errno) = net::bind(socket, &address) {
            if errno != Errno::ADDRINUSE || attempts.next().is_none() {
                return Err(errno.into());
            }
            remove_leftover(path, &address)?;
        }
        let file = SocketFile::open(path)?;
        if let Some(mode) = mode {
            file.open_to(mode)?;
        }
        Ok(file)
    }

    /// Ends this share of the file; the last one leaves the file where it is.
    pub(crate) fn leave(self) {
        if let Some(made) = Arc::into_inner(self.made) {
            made.kept.store(true, Ordering::Relaxed);
        }
    }

    fn open(path: &Path) -> io::Result<SocketFile> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inode = fs::open(path, flags, Mode::empty())
            .map_err(|error| because(error, "its file is gone again"))?;
        let path = std::path::absolute(path)?;
        Ok(SocketFile { made: Arc::new(Made { path, inode, kept: AtomicBool::new(false) }) })
    }

    /// Gives the file the mode, if the umask has taken some of it.
    fn open_to(&self, mode: Mode) -> io::Result<()> {
        let inode = &self.made.inode;
        if Mode::from_raw_mode(fs::fstat(inode)?.st_mode) == mode {
            return Ok(());
        }
        // By way of the descriptor: what is under the name may be another file by now, or a link to one.
        let path = format!("/proc/self/fd/{}", inode.as_raw_fd());
        fs::chmod(path, mode).map_err(|error| because(error, "the mode cannot be set"))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if *self.kept.get_mut() {
            return;
        }
        let is_ours = || -> Result<bool, Errno> {
            Ok(is_same(&fs::fstat(&self.inode)?, &fs::lstat(&self.path)?))
        };
        match is_ours() {
            Ok(true) => {
                if let Err(error) = fs::unlink(&self.path) {
                    tracing::warn!("cannot remove {}: {error}", self.path.display());
                }
            }
            Ok(false) => {
                tracing::debug!("{} is another file by now: left alone", self.path.display())
            }
            Err(_) => {} // gone, or out of sight
        }
    }
}

/// Keeps other programs that use this module out of the path's directory until the lock is dropped.
///
/// `None` when there is no lock to be had: a directory that may be written but not read, a file system
/// without locks, or somebody who holds it for long. Then it goes without, for whoever may read a directory
/// must not be able to stop others from starting.
pub(crate) fn lock_directory(path: &Path) -> Option<OwnedFd> {
    let directory = directory_of(path);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let lock = fs::open(directory, flags, Mode::empty()).ok()?;
    for _ in 0..LOCK_ATTEMPTS {
        match fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(lock),
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
            Err(_) => return None,
        }
    }
    tracing::warn!("{} is locked by somebody: going on without", directory.display());
    None
}

/// The directory a path is in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes way where a file is: only for a socket that nobody listens on.
fn remove_leftover(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    let in_the_way = |text: String| io::Error::new(io::ErrorKind::AddrInUse, text);
    let found = match fs::lstat(path) {
        Err(Errno::NOENT) => return Ok(()), // gone already
        found => found?,
    };
    let kind = FileType::from_raw_mode(found.st_mode);
    if kind != FileType::Socket {
        let kind = name_of(kind);
        return Err(in_the_way(format!(
            "there is {kind} of that name, not a socket (move it away or listen elsewhere)"
        )));
    }
    match knock(address) {
        Err(Errno::CONNREFUSED) => {}
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ACCESS | Errno::PERM) => {
            let text = "there is a socket of that name and no right to ask whether a program listens on it \
                        (remove it if none does)";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        // Accepted, its queue full (EAGAIN), or a socket of another type (EPROTOTYPE): somebody is there.
        _ => {
            return Err(in_the_way(
                "address already in use (another program listens there)".into(),
            ));
        }
    }
    // Unless it has been replaced since it was looked at.
    match fs::lstat(path) {
        Ok(now) if is_same(&found, &now) => {
            tracing::debug!("removing {}: nobody listens on it", path.display());
            match fs::unlink(path) {
                Err(Errno::NOENT) => Ok(()),
                removed => removed.map_err(|error| {
                    because(error, "nobody listens there, but the old socket cannot be removed")
                }),
            }
        }
        _ => Ok(()),
    }
}

/// Asks whether somebody listens: to connect is the only question there is. Whoever listens sees a connection that
/// is closed at once.
fn knock(address: &SocketAddrUnix) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, address)
}

fn because(error: Errno, what: &str) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn permissions(mode: u32) -> io::Result<Mode> {
    if mode > 0o777 {
        let text = format!("{mode:#o} is not a mode (three octal digits: 0o660, not 660)");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(Mode::from_raw_mode(mode))
}

fn is_same(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_in_decimal_is_caught() {
        assert_eq!(permissions(0o660).unwrap(), Mode::from_raw_mode(0o660));
        let error = permissions(660).unwrap_err();
        assert!(error.to_string().contains("0o660, not 660"), "{error}");
    }

    #[test]
    fn directory_of_a_bare_name_is_here() {
        assert_eq!(directory_of(Path::new("a.sock")), Path::new("."));
        assert_eq!(directory_of(Path::new("/run/a.sock")), Path::new("/run"));
        assert_eq!(directory_of(Path::new("/a.sock")), Path::new("/"));
    }

    #[test]
    fn lock_is_one_at_a_time() {
        let directory = std::env::temp_dir().join(format!("coracle-lock-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("a.sock");
        let first = lock_directory(&path);
        let has_first = first.is_some();
        let (waited, has_second) = thread::scope(|scope| {
            let second = scope.spawn(|| lock_directory(&path).is_some());
            thread::sleep(50 * LOCK_PAUSE);
            let waited = !second.is_finished();
            drop(first);
            (waited, second.join().unwrap())
        });
        std::fs::remove_dir(&directory).unwrap();
        assert!(has_first);
        assert!(waited, "two hold the lock");
        assert!(has_second, "the lock was not passed on");
        assert!(lock_directory(&path).is_none(), "there is nothing to lock");
    }
}
