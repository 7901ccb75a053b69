//! A directory for the files of a work, which goes with this.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A directory below the system's temporary one. Dropping this removes it.
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty one; `what` it is for is in its name.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(what: &str) -> io::Result<Scratch> {
        let name = format!("coracle-bench-{what}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    /// Where it is.
    ///
    /// # Panics
    /// When the system's temporary directory has a name that is no text.
    pub fn path(&self) -> &str {
        self.0.to_str().expect("a directory of ours has a plain name")
    }

    /// Writes a file, and returns where it is.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, bytes)?;
        Ok(path)
    }

    /// Writes a file of so many KiB, and returns its name.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_kibibytes(&self, kibibytes: u32) -> io::Result<String> {
        let bytes: Vec<u8> = (0..kibibytes as usize * 1024).map(|at| (at % 251) as u8).collect();
        let name = format!("{kibibytes}.bin");
        self.write(&name, bytes)?;
        Ok(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
