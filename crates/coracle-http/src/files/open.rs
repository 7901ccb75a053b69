//! Opening what lies below a directory, and nothing else: not through a symbolic link, not in a race, not a
//! device.
//!
//! ```text
//!   docs/a.html ──► openat2(root, …, O_PATH, BENEATH | NO_MAGICLINKS) ──► what is it?
//!              a file ──► the same again, for reading    a directory ──► as it is    anything else ──► not there
//! ```
//!
//! The kernel follows the path and promises that it never leaves the root, whatever is renamed meanwhile.
//! Kernels before 5.6, and sandboxes that do not know openat2(2), get a walk of our own, name by name, under the
//! same rules; so does a path with `..` in its links while somebody renames directories on the same machine
//! again and again, of which the kernel can only say that it is not sure. Nothing is opened for reading before
//! it is known to be a file: opening a FIFO wakes its writer, and a device may do anything.
//!
//! Everything here may wait for a disk: it is called on a thread of the worker pool.

use super::conditional::Validators;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, Stat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often the kernel is asked again whose look-up a rename has disturbed, wherever that was: then we walk.
const LIMIT_TRIES: u32 = 16;

/// How many symbolic links one path may lead through, as in the kernel.
const LIMIT_LINKS: u32 = 40;

/// The longest path the kernel takes (`PATH_MAX`, which counts a NUL).
const PATH_BYTES: usize = 4096;

/// What becomes of symbolic links below the directory that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Symlinks {
    /// They are followed as long as they stay inside. Only relative ones can: an absolute one is not there,
    /// even if it leads back inside.
    #[default]
    Inside,
    /// They are not there.
    Never,
    /// They are followed wherever they lead. Whoever may make one in the directory can then publish every file
    /// that the server can read.
    Anywhere,
}

/// The directory that is served.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    symlinks: Symlinks,
    /// Whether the kernel has openat2(2), as far as is known.
    openat2: AtomicBool,
    /// How often it is asked.
    tries: u32,
}

/// What was found, open.
#[derive(Debug)]
pub(super) enum Opened {
    /// A regular file, for reading.
    File(File, State),
    /// A directory, as a place only (`O_PATH`).
    Directory(OwnedFd),
}

/// What was found, by a look only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    File(State),
    Directory(State),
}

/// What tells whether a file is still the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub(super) length: u64,
    device: u64,
    inode: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

/// Why something cannot be served.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// It is not there, or might as well not be: 404.
    NotFound,
    /// The server may not read it: 403.
    Forbidden,
    /// There are no descriptors or no memory now: 503.
    Busy(io::Error),
    /// Something is broken: 500.
    Failed(io::Error),
}

impl Clone for Root {
    fn clone(&self) -> Root {
        let openat2 = AtomicBool::new(self.openat2.load(Ordering::Relaxed));
        Root { path: self.path.clone(), symlinks: self.symlinks, openat2, tries: self.tries }
    }
}

impl Root {
    /// Serves this directory. The path is followed anew each time, so that a link that is switched to another
    /// version takes effect; it does not depend on the current directory.
    pub(crate) fn new(path: &Path, symlinks: Symlinks) -> io::Result<Root> {
        let path = std::path::absolute(path)?;
        let root = Root { path, symlinks, openat2: AtomicBool::new(true), tries: LIMIT_TRIES };
        root.open_root()?;
        Ok(root)
    }

    pub(crate) fn set_symlinks(&mut self, symlinks: Symlinks) {
        self.symlinks = symlinks;
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn open_root(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, &self.path, flags, Mode::empty())
    }

    /// Opens what `relative` leads to: names with slashes between them, or nothing for the root itself.
    pub(super) fn open(&self, relative: &str) -> Result<Opened, OpenError> {
        let root = self.open_root()?;
        let place = self.find(root.as_fd(), relative)?;
        match Seen::of(&place.descriptor)? {
            Seen::Directory(_) => Ok(Opened::Directory(place.descriptor)),
            Seen::File(_) => self.open_file(root.as_fd(), relative, &place),
        }
    }

    /// Looks at what `relative` leads to, and opens nothing.
    pub(crate) fn look(&self, relative: &str) -> Result<Seen, OpenError> {
        let root = self.open_root()?;
        let place = self.find(root.as_fd(), relative)?;
        Seen::of(&place.descriptor)
    }

    fn open_file(
        &self,
        root: BorrowedFd<'_>,
        relative: &str,
        place: &Place,
    ) -> Result<Opened, OpenError> {
        // A FIFO that has taken its place meanwhile does not hold us up, and a terminal does not become ours.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let descriptor = match place.open(flags) {
            Some(opened) => opened?,
            None => match self.openat2(root, relative, flags) {
                Err(Errno::AGAIN) => {
                    let place = self.walk(root, relative)?;
                    // It was a file; if it is a directory now, it is as if that had been there before.
                    place.open(flags).ok_or(OpenError::NotFound)??
                }
                opened => opened?,
            },
        };
        let Seen::File(state) = Seen::of(&descriptor)? else { return Err(OpenError::NotFound) };
        // On a file it means nothing to read(2), but io_uring would fail rather than wait for a disk.
        rustix::fs::fcntl_setfl(&descriptor, OFlags::empty())?;
        Ok(Opened::File(descriptor.into(), state))
    }

    /// Follows the path to a place.
    fn find(&self, root: BorrowedFd<'_>, relative: &str) -> Result<Place, OpenError> {
        if self.openat2.load(Ordering::Relaxed) {
            match self.openat2(root, relative, OFlags::PATH | OFlags::CLOEXEC) {
                // A sandbox may say EPERM where it means that it does not know the call.
                Err(Errno::NOSYS | Errno::PERM) => self.openat2.store(false, Ordering::Relaxed),
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
                Ok(descriptor) => return Ok(Place { descriptor, within: None }),
            }
        }
        Ok(self.walk(root, relative)?)
    }

    fn walk(&self, root: BorrowedFd<'_>, relative: &str) -> rustix::io::Result<Place> {
        Walk::new(root, self.symlinks)?.follow(relative)
    }

    /// Asks the kernel; `EAGAIN` when renames have disturbed it each time.
    fn openat2(
        &self,
        root: BorrowedFd<'_>,
        relative: &str,
        flags: OFlags,
    ) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::NO_MAGICLINKS
            | match self.symlinks {
                Symlinks::Inside => ResolveFlags::BENEATH,
                Symlinks::Never => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
                Symlinks::Anywhere => ResolveFlags::empty(),
            };
        let path = if relative.is_empty() { "." } else { relative };
        for _ in 0..self.tries {
            match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
                // A rename somewhere: the kernel cannot be sure, and leaves it to us to ask again.
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return result,
            }
        }
        Err(Errno::AGAIN)
    }
}

/// Where a path leads.
struct Place {
    /// An `O_PATH` descriptor.
    descriptor: OwnedFd,
    /// The directory it is in and its name there, if we have followed the path ourselves.
    within: Option<(OwnedFd, OsString)>,
}

impl Place {
    /// Opens what has its name, if we have followed the path ourselves.
    fn open(&self, flags: OFlags) -> Option<rustix::io::Result<OwnedFd>> {
        let (directory, name) = self.within.as_ref()?;
        Some(rustix::fs::openat(directory, name, flags | OFlags::NOFOLLOW, Mode::empty()))
    }
}

/// A path, followed name by name.
struct Walk {
    symlinks: Symlinks,
    /// The directories from the root to where we are. `..` in a link leads to the one before, and never out.
    stack: Vec<OwnedFd>,
    /// The top of the stack is the top of the file system, where `..` leads nowhere.
    at_top: bool,
}

impl Walk {
    fn new(root: BorrowedFd<'_>, symlinks: Symlinks) -> rustix::io::Result<Walk> {
        let root = open_place(root, OsStr::new("."))?;
        Ok(Walk { symlinks, stack: vec![root], at_top: false })
    }

    fn follow(mut self, relative: &str) -> rustix::io::Result<Place> {
        if relative.len() >= PATH_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        let mut names: VecDeque<OsString> = split(relative.as_bytes()).collect();
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            if name == "." {
                continue; // whatever was before it is a directory
            }
            if name == ".." {
                self.leave()?;
                continue;
            }
            let here = self.stack.last().ok_or(Errno::XDEV)?;
            let descriptor = open_place(here.as_fd(), &name)?;
            match FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode) {
                FileType::Symlink => {
                    links += 1;
                    if links > LIMIT_LINKS {
                        return Err(Errno::LOOP);
                    }
                    let target = self.enter_link(&descriptor)?;
                    for name in split(&target).collect::<Vec<_>>().into_iter().rev() {
                        names.push_front(name);
                    }
                }
                FileType::Directory => self.stack.push(descriptor),
                _ if !names.is_empty() => return Err(Errno::NOTDIR),
                _ => {
                    let directory = self.stack.pop().ok_or(Errno::XDEV)?;
                    return Ok(Place { descriptor, within: Some((directory, name)) });
                }
            }
        }
        let descriptor = self.stack.pop().ok_or(Errno::XDEV)?;
        Ok(Place { descriptor, within: None })
    }

    /// `..`, which only a link can say.
    fn leave(&mut self) -> rustix::io::Result<()> {
        if self.stack.len() > 1 {
            self.stack.pop();
        } else if self.symlinks == Symlinks::Anywhere {
            if !self.at_top {
                let above = open_place(self.stack[0].as_fd(), OsStr::new(".."))?;
                self.stack[0] = above;
            }
        } else {
            return Err(Errno::XDEV);
        }
        Ok(())
    }

    /// Where a link leads from here.
    fn enter_link(&mut self, link: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
        if self.symlinks == Symlinks::Never || rustix::fs::fstatfs(link)?.f_type == PROC_SUPER_MAGIC
        {
            return Err(Errno::LOOP);
        }
        let target = rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes();
        if target.starts_with(b"/") {
            if self.symlinks != Symlinks::Anywhere {
                return Err(Errno::XDEV);
            }
            self.stack = vec![open_place(CWD, OsStr::new("/"))?];
            self.at_top = true;
        }
        Ok(target)
    }
}

fn open_place(directory: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// The names of a path. Empty ones are none; but at its end they mean `.`, which is in directories only.
fn split(path: &[u8]) -> impl Iterator<Item = OsString> + '_ {
    let end: &[u8] = if path.ends_with(b"/") { b"." } else { b"" };
    let names = path.split(|&byte| byte == b'/').chain([end]).filter(|name| !name.is_empty());
    names.map(|name| OsStringExt::from_vec(name.to_vec()))
}

impl Seen {
    fn of(descriptor: &OwnedFd) -> Result<Seen, OpenError> {
        let stat = rustix::fs::fstat(descriptor)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Seen::File(State::new(&stat))),
            FileType::Directory => Ok(Seen::Directory(State::new(&stat))),
            _ => Err(OpenError::NotFound),
        }
    }
}

impl State {
    #[allow(clippy::unnecessary_cast)] // not everywhere the same types
    fn new(stat: &Stat) -> State {
        State {
            length: stat.st_size as u64,
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u32),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u32),
        }
    }

    /// That of an open file, now.
    pub(super) fn of(file: &File) -> io::Result<State> {
        Ok(State::new(&rustix::fs::fstat(file)?))
    }

    pub(super) fn modified(&self) -> SystemTime {
        let (seconds, nanos) = self.modified;
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let whole =
            if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
        whole
            .and_then(|whole| whole.checked_add(Duration::from_nanos(nanos.into())))
            .unwrap_or(UNIX_EPOCH)
    }

    pub(super) fn modified_seconds(&self) -> i64 {
        self.modified.0
    }

    pub(super) fn validators(&self) -> Validators {
        Validators::new(self.length, self.modified(), self.inode)
    }
}

/// What a listing needs to know of each name in a directory.
pub(super) fn names(directory: &OwnedFd) -> io::Result<impl Iterator<Item = io::Result<OsString>>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
    let entries = rustix::fs::Dir::new(readable)?;
    let entries = entries.map(|entry| {
        let entry = entry?;
        Ok(OsStr::from_bytes(entry.file_name().to_bytes()).to_owned())
    });
    Ok(entries.filter(|name| !matches!(name, Ok(name) if name == "." || name == "..")))
}

/// What a name in a directory is, without following it; `None` for a link.
pub(super) fn look_in(directory: &OwnedFd, name: &OsStr) -> Result<Option<Seen>, OpenError> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(Some(Seen::File(State::new(&stat)))),
        FileType::Directory => Ok(Some(Seen::Directory(State::new(&stat)))),
        FileType::Symlink => Ok(None),
        _ => Err(OpenError::NotFound),
    }
}

impl From<Errno> for OpenError {
    fn from(error: Errno) -> OpenError {
        match error {
            // EXDEV and ELOOP are how openat2 says that a link leads out, or that there is one.
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG => {
                OpenError::NotFound
            }
            // A socket, or a device that is not there.
            Errno::NXIO | Errno::NODEV | Errno::INVAL => OpenError::NotFound,
            Errno::ACCESS | Errno::PERM => OpenError::Forbidden,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
                OpenError::Busy(error.into())
            }
            other => OpenError::Failed(other.into()),
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => OpenError::Failed(error),
        }
    }
}

impl OpenError {
    /// The status that answers it.
    pub(crate) fn status(&self) -> u16 {
        match self {
            OpenError::NotFound => 404,
            OpenError::Forbidden => 403,
            OpenError::Busy(_) => 503,
            OpenError::Failed(_) => 500,
        }
    }
}

#[cfg(test)]
mod tests;
