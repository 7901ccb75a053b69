//! A directory of scripts for one case, gone when it is dropped.

use coracle_http::Cgi;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) struct Scripts(PathBuf);

impl Scripts {
    pub(crate) fn new() -> Scripts {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("coracle-http-cgi-{}-{number}", std::process::id());
        let scripts = Scripts(std::env::temp_dir().join(name));
        fs::create_dir_all(scripts.root()).expect("a directory");
        scripts
    }

    /// With one script of sh, called `a`.
    pub(crate) fn of(script: &str) -> Scripts {
        let scripts = Scripts::new();
        scripts.sh("a", script);
        scripts
    }

    /// The directory they are in.
    pub(crate) fn root(&self) -> PathBuf {
        self.0.join("scripts")
    }

    /// A directory beside that, for what scripts leave behind.
    pub(crate) fn beside(&self) -> &Path {
        &self.0
    }

    pub(crate) fn cgi(&self) -> Cgi {
        let beside = self.0.to_str().expect("text");
        Cgi::new(self.root()).expect("it is a directory").variable("BESIDE", beside)
    }

    pub(crate) fn sh(&self, name: &str, script: &str) {
        self.file(name, &format!("#!/bin/sh\n{script}\n"), 0o755);
    }

    pub(crate) fn file(&self, name: &str, contents: &str, mode: u32) {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().expect("it is in the root")).expect("a directory");
        fs::write(&path, contents).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
    }

    /// What a script has left behind, when it is there: numbers of processes.
    pub(crate) fn pids(&self, name: &str) -> Vec<u32> {
        let path = self.beside().join(name);
        let mut pids = Vec::new();
        eventually("the script says who it is", || {
            let text = fs::read_to_string(&path).unwrap_or_default();
            pids = text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
            text.ends_with('\n')
        });
        pids
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Looks until something is so, for as long as the busiest machine may take.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(120), "never so: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether there is no process of this number any more, not even one that waits to be reaped.
pub(crate) fn is_gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}
