//! A directory for one case, gone when it is dropped.

use coracle_http::files::Files;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct Site(PathBuf);

impl Site {
    /// With `secret` beside what is served.
    pub(crate) fn new() -> Site {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("coracle-http-files-{}-{number}", std::process::id());
        let site = Site(std::env::temp_dir().join(name));
        fs::create_dir_all(site.root()).expect("a directory");
        fs::write(site.0.join("secret"), "TOPSECRET").expect("a file");
        site
    }

    /// The directory that is served.
    pub(crate) fn root(&self) -> PathBuf {
        self.0.join("site")
    }

    pub(crate) fn files(&self) -> Files {
        Files::new(self.root()).expect("it is a directory")
    }

    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().expect("it is in the root")).expect("a directory");
        fs::write(&path, contents).expect("a file");
        path
    }

    /// Puts another file in the place of one, at once.
    pub(crate) fn replace(&self, name: &str, contents: impl AsRef<[u8]>) {
        let new = self.0.join("new");
        fs::write(&new, contents).expect("a file");
        fs::rename(new, self.root().join(name)).expect("a rename");
    }

    pub(crate) fn directory(&self, name: &str) {
        fs::create_dir_all(self.root().join(name)).expect("a directory");
    }

    pub(crate) fn link(&self, name: &str, target: impl AsRef<Path>) {
        symlink(target, self.root().join(name)).expect("a link");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bytes that are not the same everywhere.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8 ^ (at >> 12) as u8).collect()
}
