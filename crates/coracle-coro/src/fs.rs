//! Files, with the names of `std::fs`: each call is made on a thread of the worker pool, and only the coroutine
//! waits.
//!
//! A disk has no "ready": a read of a file may take long, and there is no way to be told beforehand. So the
//! whole call goes [elsewhere](crate::offload()). In a plain thread these are the functions of std.
//!
//! **What only reads** may be left behind by a coroutine that is cancelled or late. **What changes something is
//! waited for**, and what came of it is told: nothing is written behind the back of who goes on. So is
//! whatever reads into a buffer of the caller's.
//!
//! ```
//! use coracle_coro::fs;
//!
//! coracle_coro::run(|| {
//!     let path = std::env::temp_dir().join(format!("coracle-fs-{}", std::process::id()));
//!     fs::write(&path, "ahoy")?;
//!     assert_eq!(fs::read_to_string(&path)?, "ahoy");
//!     fs::remove_file(&path)
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Errors
//! Those of std's functions, and those of [`offload`](crate::offload()).
//!
//! In the simulator they are made on the loop's own thread, and the files are real ones.
//!
//! Many calls in a row are cheaper as one closure for `offload`, and so is a library that uses files itself.

use crate::offload::{offload, offload_scoped};
use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The whole of a file.
///
/// ```
/// let hosts = coracle_coro::run(|| coracle_coro::fs::read("/etc/hosts"))?;
/// assert!(!hosts.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref().to_owned();
    offload(|| std::fs::read(path))?
}

/// The whole of a file, as text.
///
/// ```
/// let version = coracle_coro::run(|| coracle_coro::fs::read_to_string("/proc/version"))?;
/// assert!(version.contains("Linux"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref().to_owned();
    offload(|| std::fs::read_to_string(path))?
}

/// Makes a file of `contents`, in the place of one that is there.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("coracle-write-{}", std::process::id()));
/// coracle_coro::run(move || {
///     coracle_coro::fs::write(&path, b"written")?;
///     coracle_coro::fs::remove_file(&path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let (path, contents) = (path.as_ref(), contents.as_ref());
    offload_scoped(|| std::fs::write(path, contents))?
}

/// What is known of a file; links are followed.
///
/// ```
/// assert!(coracle_coro::run(|| coracle_coro::fs::metadata("/proc"))?.is_dir());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let path = path.as_ref().to_owned();
    offload(|| std::fs::metadata(path))?
}

/// The path without links, `.` and `..`.
///
/// ```
/// assert_eq!(coracle_coro::fs::canonicalize("/proc/../proc")?, std::path::Path::new("/proc"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref().to_owned();
    offload(|| std::fs::canonicalize(path))?
}

/// Copies a file and its permissions; returns how many bytes that were.
///
/// ```
/// # let copy = std::env::temp_dir().join(format!("coracle-copy-{}", std::process::id()));
/// assert!(coracle_coro::fs::copy("/etc/hosts", &copy)? > 0);
/// # std::fs::remove_file(copy)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    offload_scoped(|| std::fs::copy(from, to))?
}

/// Makes a directory, and those it is in.
///
/// ```
/// coracle_coro::fs::create_dir_all(std::env::temp_dir())?; // it is there
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    offload_scoped(|| std::fs::create_dir_all(path))?
}

/// Gives a file another name, in the place of one that has it.
///
/// ```
/// let missing = coracle_coro::fs::rename("/nowhere/old", "/nowhere/new").unwrap_err();
/// assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
/// ```
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    offload_scoped(|| std::fs::rename(from, to))?
}

/// Removes a file.
///
/// ```
/// let missing = coracle_coro::fs::remove_file("/nowhere/at/all").unwrap_err();
/// assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
/// ```
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    offload_scoped(|| std::fs::remove_file(path))?
}

/// Removes a directory with all that is in it.
///
/// ```
/// # let place = std::env::temp_dir().join(format!("coracle-dir-{}", std::process::id()));
/// coracle_coro::fs::create_dir_all(place.join("deep"))?;
/// coracle_coro::fs::remove_dir_all(&place)?;
/// assert!(!place.exists());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    offload_scoped(|| std::fs::remove_dir_all(path))?
}

/// An open file: what [`std::fs::File`] is, but only the coroutine waits.
///
/// Every read and write is a trip to a thread and back, some microseconds: put a
/// [`BufReader`](std::io::BufReader) or [`BufWriter`](std::io::BufWriter) around it, or use large pieces. Closing
/// it, by dropping, is done on the spot.
///
/// ```
/// use coracle_coro::fs::File;
/// use std::io::Read;
///
/// coracle_coro::run(|| {
///     let mut text = String::new();
///     File::open("/proc/version")?.read_to_string(&mut text)?;
///     assert!(text.contains("Linux"));
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct File(std::fs::File);

impl File {
    /// Opens a file, for reading.
    ///
    /// ```
    /// assert!(coracle_coro::fs::File::open("/nowhere").is_err());
    /// ```
    pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
        File::open_with(OpenOptions::new().read(true), path)
    }

    /// Makes an empty file, or empties one that is there; for writing.
    ///
    /// ```
    /// assert!(coracle_coro::fs::File::create("/nowhere/file").is_err());
    /// ```
    pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
        File::open_with(OpenOptions::new().write(true).create(true).truncate(true), path)
    }

    /// Opens a file as `options` say.
    ///
    /// ```
    /// use coracle_coro::fs::File;
    /// use std::fs::OpenOptions;
    ///
    /// let log = File::open_with(OpenOptions::new().append(true), "/dev/null")?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open_with(options: &OpenOptions, path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        offload_scoped(|| options.open(path))?.map(File)
    }

    /// Reads at a place in the file, whatever its position; returns how much.
    ///
    /// ```
    /// use coracle_coro::fs::File;
    ///
    /// let mut magic = [0; 3];
    /// let program = File::open(std::env::current_exe()?)?;
    /// assert_eq!(program.read_at(&mut magic, 1)?, 3);
    /// assert_eq!(&magic, b"ELF");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        offload_scoped(|| self.0.read_at(buffer, offset))?
    }

    /// As [`read_at`](File::read_at), until the buffer is full.
    ///
    /// ```
    /// use coracle_coro::fs::File;
    ///
    /// let nothing = File::open("/dev/null")?;
    /// let error = nothing.read_exact_at(&mut [0; 8], 0).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        offload_scoped(|| self.0.read_exact_at(buffer, offset))?
    }

    /// Writes at a place in the file, whatever its position; returns how much.
    ///
    /// ```
    /// # use coracle_coro::fs::File;
    /// assert_eq!(File::create("/dev/null")?.write_at(b"gone", 7)?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        offload_scoped(|| self.0.write_at(bytes, offset))?
    }

    /// As [`write_at`](File::write_at), until all is written.
    ///
    /// ```
    /// # use coracle_coro::fs::File;
    /// File::create("/dev/null")?.write_all_at(b"gone", 7)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        offload_scoped(|| self.0.write_all_at(bytes, offset))?
    }

    /// What is known of it.
    ///
    /// ```
    /// # use coracle_coro::fs::File;
    /// assert!(File::open(std::env::current_exe()?)?.metadata()?.len() > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn metadata(&self) -> io::Result<Metadata> {
        offload_scoped(|| self.0.metadata())?
    }

    /// Cuts it off, or fills it up with zeros.
    ///
    /// ```
    /// # use coracle_coro::fs::File;
    /// assert!(File::open("/proc/version")?.set_len(0).is_err()); // open for reading only
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        offload_scoped(|| self.0.set_len(bytes))?
    }

    /// Returns when all that was written is on the disk.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("coracle-sync-{}", std::process::id()));
    /// # use coracle_coro::fs::File;
    /// File::create(&path)?.sync_all()?;
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sync_all(&self) -> io::Result<()> {
        offload_scoped(|| self.0.sync_all())?
    }

    /// The file as std's.
    ///
    /// ```
    /// # use coracle_coro::fs::File;
    /// let file: std::fs::File = File::open("/dev/null")?.into_std();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_std(self) -> std::fs::File {
        self.0
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> File {
        File(file)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        offload_scoped(|| (&self.0).read(buffer))?
    }

    /// In one trip.
    fn read_to_end(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        offload_scoped(|| (&self.0).read_to_end(bytes))?
    }

    /// In one trip.
    fn read_to_string(&mut self, text: &mut String) -> io::Result<usize> {
        offload_scoped(|| (&self.0).read_to_string(text))?
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_to_end(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(bytes)
    }

    fn read_to_string(&mut self, text: &mut String) -> io::Result<usize> {
        (&*self).read_to_string(text)
    }
}

impl Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        offload_scoped(|| (&self.0).write(bytes))?
    }

    /// In one trip.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        offload_scoped(|| (&self.0).write_all(bytes))?
    }

    /// There is nothing to flush.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        (&*self).write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        (&self.0).seek(position) // moves a number, and asks no disk
    }
}

impl Seek for File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        (&*self).seek(position)
    }
}
