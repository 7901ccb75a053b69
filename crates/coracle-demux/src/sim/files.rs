//! A file system in memory: just enough to open, look at, read, write and send files.
//!
//! ```text
//!  /site/index.html ──► inode 1 ──► bytes, mode, time of the last change
//!  /site            ──► a directory, because something lies below it
//! ```
//!
//! Directories are not made: a path is one as soon as a file lies below it.

use crate::operation::{FileKind, Metadata, OpenOptions};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The longest file; a wild offset must not eat the memory of the machine that simulates.
const LIMIT_FILE_BYTES: u64 = 64 << 20;

/// When virtual time begins: 14 November 2023, 22:13:20 UTC. A date that does not look like an accident.
const BIRTH: Duration = Duration::from_secs(1_700_000_000);

/// Permission bits that created files lose, as under the usual umask.
const UMASK: u32 = 0o022;

/// The files of one kernel.
#[derive(Default)]
pub(super) struct Files {
    names: BTreeMap<PathBuf, Inode>,
    nodes: BTreeMap<Inode, Node>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Inode(u64);

struct Node {
    bytes: Vec<u8>,
    mode: u32,
    modified: Duration,
}

/// What an opened descriptor leads to.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenFile {
    /// `None` for a directory.
    inode: Option<Inode>,
    read: bool,
    write: bool,
}

impl Files {
    /// Puts a file in place, replacing its contents if it was there.
    pub(super) fn put(&mut self, path: &Path, bytes: Vec<u8>, now: Duration) {
        let inode = self.create(path, 0o644, now);
        let node = self.nodes.get_mut(&inode).expect("names lead to nodes");
        node.bytes = bytes;
        node.modified = now;
    }

    /// A copy of a file's contents.
    pub(super) fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let inode = self.names.get(path)?;
        Some(self.nodes[inode].bytes.clone())
    }

    pub(super) fn open(
        &mut self,
        path: &Path,
        options: OpenOptions,
        now: Duration,
    ) -> Result<OpenFile, Errno> {
        let OpenOptions { write, create, truncate, mode, .. } = options;
        // As open(2): without `write` it is read-only, whatever `read` says.
        let read = options.read || !write;
        if path.ancestors().skip(1).any(|parent| self.names.contains_key(parent)) {
            return Err(Errno::NOTDIR);
        }
        let inode = match self.names.get(path) {
            Some(&inode) => inode,
            None if self.is_directory(path) => {
                let wanted = if write || create { Err(Errno::ISDIR) } else { Ok(None) };
                return wanted.map(|inode| OpenFile { inode, read, write });
            }
            None if create => self.create(path, mode & !UMASK & 0o7777, now),
            None => return Err(Errno::NOENT),
        };
        if truncate {
            let node = self.nodes.get_mut(&inode).expect("names lead to nodes");
            node.bytes.clear();
            node.modified = now;
        }
        Ok(OpenFile { inode: Some(inode), read, write })
    }

    pub(super) fn metadata(&self, file: OpenFile) -> Metadata {
        let node = file.inode.map(|inode| &self.nodes[&inode]);
        Metadata {
            len: node.map_or(0, |node| node.bytes.len() as u64),
            modified: SystemTime::UNIX_EPOCH + BIRTH + node.map_or(Duration::ZERO, |n| n.modified),
            kind: if node.is_some() { FileKind::File } else { FileKind::Directory },
            mode: node.map_or(0o755, |node| node.mode),
            inode: file.inode.map_or(0, |inode| inode.0),
            device: 1,
        }
    }

    /// What lies at `offset`, at most `count` bytes; empty at and past the end.
    pub(super) fn read(&self, file: OpenFile, offset: u64, count: usize) -> Result<&[u8], Errno> {
        if !file.read {
            return Err(Errno::BADF);
        }
        let bytes = &self.nodes[&file.inode.ok_or(Errno::ISDIR)?].bytes;
        let start = usize::try_from(offset).map_or(bytes.len(), |start| start.min(bytes.len()));
        let end = start.saturating_add(count).min(bytes.len());
        Ok(&bytes[start..end])
    }

    /// Puts `bytes` at `offset`; a gap before them becomes zeros.
    pub(super) fn write(
        &mut self,
        file: OpenFile,
        offset: u64,
        bytes: &[u8],
        now: Duration,
    ) -> Result<(), Errno> {
        if !file.write {
            return Err(Errno::BADF);
        }
        let end = offset.checked_add(bytes.len() as u64).filter(|&end| end <= LIMIT_FILE_BYTES);
        let end = end.ok_or(Errno::FBIG)? as usize;
        let inode = file.inode.ok_or(Errno::BADF)?;
        let node = self.nodes.get_mut(&inode).expect("an open file has a node");
        if bytes.is_empty() {
            return Ok(()); // as write(2): nothing written, nothing grown
        }
        if node.bytes.len() < end {
            node.bytes.resize(end, 0);
        }
        node.bytes[end - bytes.len()..end].copy_from_slice(bytes);
        node.modified = now;
        Ok(())
    }

    fn create(&mut self, path: &Path, mode: u32, now: Duration) -> Inode {
        let next = Inode(self.nodes.len() as u64 + 1); // nothing is ever removed
        let inode = *self.names.entry(path.to_owned()).or_insert(next);
        self.nodes.entry(inode).or_insert(Node { bytes: Vec::new(), mode, modified: now });
        inode
    }

    fn is_directory(&self, path: &Path) -> bool {
        self.names.keys().any(|name| name != path && name.starts_with(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: OpenOptions =
        OpenOptions { read: true, write: false, create: false, truncate: false, mode: 0 };
    const WRITE: OpenOptions =
        OpenOptions { read: true, write: true, create: true, truncate: false, mode: 0o666 };

    #[test]
    fn what_is_written_is_read() {
        let mut files = Files::default();
        let path = Path::new("/a/b");
        assert_eq!(files.open(path, READ, Duration::ZERO).unwrap_err(), Errno::NOENT);
        let file = files.open(path, WRITE, Duration::ZERO).unwrap();
        files.write(file, 3, b"xyz", Duration::from_secs(5)).unwrap();
        assert_eq!(files.read(file, 0, 100).unwrap(), b"\0\0\0xyz");
        assert_eq!(files.read(file, 4, 1).unwrap(), b"y");
        assert_eq!(files.read(file, u64::MAX, 1).unwrap(), b"");
        assert_eq!(files.write(file, u64::MAX, b"x", Duration::ZERO), Err(Errno::FBIG));
        let metadata = files.metadata(file);
        assert_eq!((metadata.len, metadata.mode, metadata.kind), (6, 0o644, FileKind::File));
        assert_eq!(metadata.modified, SystemTime::UNIX_EPOCH + BIRTH + Duration::from_secs(5));
        assert_eq!(files.contents(path).unwrap(), b"\0\0\0xyz");
    }

    #[test]
    fn a_file_opened_for_one_thing_refuses_the_other() {
        let mut files = Files::default();
        files.put(Path::new("/a"), b"text".to_vec(), Duration::ZERO);
        let reader = files.open(Path::new("/a"), READ, Duration::ZERO).unwrap();
        assert_eq!(files.write(reader, 0, b"x", Duration::ZERO), Err(Errno::BADF));
        let options = OpenOptions { read: false, create: false, truncate: true, ..WRITE };
        let writer = files.open(Path::new("/a"), options, Duration::ZERO).unwrap();
        assert_eq!(files.read(writer, 0, 1).unwrap_err(), Errno::BADF);
        assert_eq!(files.contents(Path::new("/a")).unwrap(), b"");
    }

    #[test]
    fn what_lies_above_a_file_is_a_directory() {
        let mut files = Files::default();
        files.put(Path::new("/a/b"), Vec::new(), Duration::ZERO);
        let directory = files.open(Path::new("/a"), READ, Duration::ZERO).unwrap();
        assert_eq!(files.metadata(directory).kind, FileKind::Directory);
        assert_eq!(files.read(directory, 0, 1).unwrap_err(), Errno::ISDIR);
        assert_eq!(files.open(Path::new("/a"), WRITE, Duration::ZERO).unwrap_err(), Errno::ISDIR);
        assert_eq!(
            files.open(Path::new("/a/b/c"), READ, Duration::ZERO).unwrap_err(),
            Errno::NOTDIR
        );
    }
}
