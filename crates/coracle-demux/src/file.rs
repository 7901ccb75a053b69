//! File operations, done to the end on whatever thread calls: they may wait for a disk.

use crate::backend::Threads;
use crate::lock::Lock;
use crate::memory::Memory;
use crate::operation::{FileKind, Metadata, OpenOptions};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, retry_on_intr};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A file operation on its way to a thread. It shares the file, so that nobody closes it meanwhile.
pub(crate) enum Work {
    Open {
        path: PathBuf,
        options: OpenOptions,
    },
    Stat {
        file: Arc<OwnedFd>,
    },
    Read {
        file: Arc<OwnedFd>,
        offset: u64,
        space: Memory,
    },
    Write {
        file: Arc<OwnedFd>,
        offset: u64,
        memory: Memory,
    },
    /// Read a stretch for its effect on the page cache.
    Warm {
        file: Arc<OwnedFd>,
        offset: u64,
        count: usize,
    },
}

/// A file operation on its way back.
pub(crate) struct Report {
    pub(crate) result: io::Result<Fact>,
    pub(crate) memory: Option<Memory>,
}

/// What a thread found out.
pub(crate) enum Fact {
    Opened(OwnedFd),
    Metadata(Metadata),
    Count(usize),
    Warm,
}

impl Work {
    /// The memory it carries.
    fn into_memory(self) -> Option<Memory> {
        match self {
            Work::Read { space: memory, .. } | Work::Write { memory, .. } => Some(memory),
            Work::Open { .. } | Work::Stat { .. } | Work::Warm { .. } => None,
        }
    }

    /// Does it. May wait for a disk.
    pub(crate) fn perform(self) -> Report {
        match self {
            Work::Open { path, options } => {
                Report { result: open(&path, options).map(Fact::Opened), memory: None }
            }
            Work::Stat { file } => Report { result: stat(&file).map(Fact::Metadata), memory: None },
            Work::Read { file, offset, mut space } => {
                let result = read(&file, offset, &mut space).map(Fact::Count);
                Report { result, memory: Some(space) }
            }
            Work::Write { file, offset, memory } => {
                let result = write(&file, offset, &memory).map(Fact::Count);
                Report { result, memory: Some(memory) }
            }
            Work::Warm { file, offset, count } => {
                warm(&file, offset, count);
                Report { result: Ok(Fact::Warm), memory: None }
            }
        }
    }
}

/// Opens a file. A FIFO or device does not block the opening thread.
fn open(path: &Path, options: OpenOptions) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(options.mode & 0o7777);
    Ok(retry_on_intr(|| rustix::fs::open(path, flags(options), mode))?)
}

/// How open(2) takes the options.
pub(crate) fn flags(options: OpenOptions) -> OFlags {
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    flags |= match (options.read, options.write) {
        (_, false) => OFlags::RDONLY,
        (false, true) => OFlags::WRONLY,
        (true, true) => OFlags::RDWR,
    };
    flags.set(OFlags::CREATE, options.create);
    flags.set(OFlags::TRUNC, options.truncate);
    flags
}

fn stat(fd: impl AsFd) -> io::Result<Metadata> {
    Ok(metadata(&rustix::fs::fstat(fd)?))
}

fn metadata(stat: &Stat) -> Metadata {
    Metadata {
        len: stat.st_size as u64,
        modified: time(stat.st_mtime, stat.st_mtime_nsec as u32),
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            _ => FileKind::Other,
        },
        mode: stat.st_mode & 0o7777,
        inode: stat.st_ino,
        device: stat.st_dev,
    }
}

/// A time as the kernel gives it, before or after 1970.
pub(crate) fn time(seconds: i64, nanoseconds: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if seconds >= 0 { epoch.checked_add(whole) } else { epoch.checked_sub(whole) };
    time.unwrap_or(epoch) + Duration::from_nanos(nanoseconds.into())
}

fn read(fd: impl AsFd, offset: u64, space: &mut Memory) -> io::Result<usize> {
    let Some(space) = space.as_mut_slice() else {
        return Err(Errno::FAULT.into()); // memory that is only for sending
    };
    Ok(retry_on_intr(|| rustix::io::pread(&fd, &mut *space, offset))?)
}

fn write(fd: impl AsFd, offset: u64, memory: &Memory) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::pwrite(&fd, memory.as_slice(), offset))?)
}

/// Brings a stretch of a file into the page cache.
fn warm(fd: impl AsFd, offset: u64, count: usize) {
    let mut scratch = vec![0u8; 64 << 10];
    let mut position = offset;
    let end = offset.saturating_add(count as u64);
    while position < end {
        let take = ((end - position) as usize).min(scratch.len());
        match retry_on_intr(|| rustix::io::pread(&fd, &mut scratch[..take], position)) {
            Ok(0) | Err(_) => return, // the end of the file, or an error that sendfile will report
            Ok(read) => position += read as u64,
        }
    }
}

/// Gives `work` to a thread, or back the memory it carries.
pub(crate) fn give_to_thread(
    threads: &Threads,
    work: Work,
    deliver: impl FnOnce(Report) + Send + 'static,
) -> Result<(), Option<Memory>> {
    // The work waits where both ends can reach it: a refused job is dropped, what it was to do is not.
    let work = Arc::new(Lock::new(Some(work)));
    let order = Order { work: Arc::clone(&work), deliver: Some(deliver) };
    threads.run(Box::new(move || order.fulfil())).map_err(|refused| {
        let work = work.lock().take();
        drop(refused);
        work.and_then(Work::into_memory)
    })
}

/// Work on its way to a thread. If it is dropped there instead of being done, that is told.
struct Order<F: FnOnce(Report)> {
    work: Arc<Lock<Option<Work>>>,
    deliver: Option<F>,
}

impl<F: FnOnce(Report)> Order<F> {
    fn fulfil(mut self) {
        let work = self.work.lock().take();
        if let (Some(work), Some(deliver)) = (work, self.deliver.take()) {
            deliver(work.perform());
        }
    }
}

impl<F: FnOnce(Report)> Drop for Order<F> {
    fn drop(&mut self) {
        let work = self.work.lock().take();
        if let (Some(work), Some(deliver)) = (work, self.deliver.take()) {
            deliver(Report { result: Err(Errno::AGAIN.into()), memory: work.into_memory() });
        }
    }
}
