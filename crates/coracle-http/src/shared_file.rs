//! A file that is sent: once, or again and again from where a site keeps it open.

use coracle_loop::demux::{Handle, Operation};
use coracle_loop::{Loop, LoopHandle};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

/// An open file. The loop that sends it first keeps a descriptor for it, as long as this is there.
#[derive(Debug)]
pub(crate) struct SharedFile {
    file: File,
    open: OnceLock<Arc<OpenFile>>,
}

impl SharedFile {
    pub(crate) fn new(file: File) -> Arc<SharedFile> {
        Arc::new(SharedFile { file, open: OnceLock::new() })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// As a loop can send it. Its position is not used, so several can.
    pub(crate) fn open(self: Arc<Self>, lp: &Loop) -> io::Result<Arc<OpenFile>> {
        if let Some(open) = self.open.get().filter(|open| open.lp.is_of(lp)) {
            return Ok(Arc::clone(open));
        }
        match Arc::try_unwrap(self) {
            Ok(SharedFile { file, .. }) => OpenFile::adopt(lp, file), // nobody sends it again
            Err(kept) => {
                let open = OpenFile::adopt(lp, kept.file.try_clone()?)?;
                let _ = kept.open.set(Arc::clone(&open)); // or it is another loop's
                Ok(open)
            }
        }
    }
}

/// A file that a loop has: closed when nobody sends it any more.
#[derive(Debug)]
pub(crate) struct OpenFile {
    lp: LoopHandle,
    handle: Handle,
}

impl OpenFile {
    fn adopt(lp: &Loop, file: File) -> io::Result<Arc<OpenFile>> {
        let handle = lp.adopt(OwnedFd::from(file))?;
        Ok(Arc::new(OpenFile { lp: lp.handle(), handle }))
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }
}

impl Drop for OpenFile {
    /// By the loop that has it: now, in one of its turns, or in the next, wherever this is. If there is none any
    /// more, neither is the file.
    fn drop(&mut self) {
        let close = Operation::Close { handle: self.handle };
        match Loop::current() {
            Some(lp) if self.lp.is_of(&lp) => _ = lp.operate(close, |_, _| ()),
            _ => _ = self.lp.post(move |lp| _ = lp.operate(close, |_, _| ())),
        }
    }
}
