//! Becoming a daemon: out of the terminal, out of the directory, and a file that says who we are.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Goes into the background. Returns in the daemon; the process that was started ends. Call it before any thread
/// is started: they would not come along.
pub(crate) fn daemonize(pid_file: Option<&Path>) -> io::Result<Option<PidFile>> {
    // While there is somebody to tell that it cannot be made.
    let pid_file = pid_file.map(PidFile::create).transpose()?;
    fork_and_leave()?;
    rustix::process::setsid()?;
    fork_and_leave()?; // no longer the leader of its session, so it can never get a terminal again
    std::env::set_current_dir("/")?;
    rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    rustix::stdio::dup2_stdout(null.as_fd())?;
    rustix::stdio::dup2_stderr(null.as_fd())?;
    if let Some(pid_file) = &pid_file {
        pid_file.write()?;
    }
    Ok(pid_file)
}

/// Forks; the parent ends at once.
fn fork_and_leave() -> io::Result<()> {
    // SAFETY: the process has one thread (the caller's promise), so the child may do all that the parent could.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(()),
        // SAFETY: nothing has to be flushed or cleaned up: that is the child's now.
        _ => unsafe { libc::_exit(0) },
    }
}

/// A file with the process id, removed when this is dropped.
pub(crate) struct PidFile {
    file: File,
    /// From the root: a daemon leaves its directory.
    path: PathBuf,
}

impl PidFile {
    fn create(path: &Path) -> io::Result<PidFile> {
        let file = File::create(path).map_err(|error| {
            let text = format!("cannot write the process id to {}: {error}", path.display());
            io::Error::new(error.kind(), text)
        })?;
        Ok(PidFile { file, path: std::path::absolute(path)? })
    }

    fn write(&self) -> io::Result<()> {
        writeln!(&self.file, "{}", std::process::id())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
