//! Opening a ring: the best this kernel gives, or the reason why it gives none.

use crate::backend::Settings;
use io_uring::IoUring;
use rustix::io::Errno;
use std::io;

/// The best ring this kernel gives: each rung of the ladder asks for less.
pub(super) fn open_ring(settings: &Settings) -> io::Result<IoUring> {
    let entries = settings.limit_submissions;
    let base = || {
        let mut builder = IoUring::builder();
        // Multishot operations complete more often than they are submitted.
        builder.setup_cqsize(entries * 4);
        builder
    };
    if settings.modern_uring {
        // Linux 6.1: completions run when this thread asks for them, and at no other time.
        let modern = base()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .build(entries);
        match modern {
            Err(error) if is_invalid(&error) => {}
            result => return check_features(result?),
        }
    }
    // Linux 5.19: without interrupts to this thread.
    match base().setup_coop_taskrun().setup_taskrun_flag().setup_submit_all().build(entries) {
        Err(error) if is_invalid(&error) => check_features(base().build(entries)?),
        result => check_features(result?),
    }
}

/// Compares the running kernel's release, `6.18.44-…`, with a version.
pub(super) fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

pub(super) fn is_invalid(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

pub(super) fn check_features(ring: IoUring) -> io::Result<IoUring> {
    if ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop() {
        return Ok(ring);
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel is too old (needs Linux 5.19)"))
}

/// Says why the kernel refuses io_uring, and what would help.
pub(super) fn explain_refusal(error: io::Error) -> io::Error {
    let reason = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM) => match std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled") {
            Ok(value) if value.trim() != "0" => format!(
                "disabled by sysctl kernel.io_uring_disabled={} (0 allows it)",
                value.trim()
            ),
            _ => "forbidden by a seccomp filter (containers: allow io_uring_setup, \
                  io_uring_enter, io_uring_register)"
                .to_owned(),
        },
        Some(Errno::NOSYS) => "the kernel has no io_uring, or a seccomp filter hides it".to_owned(),
        Some(Errno::NOMEM) => {
            "not enough locked memory (raise RLIMIT_MEMLOCK: ulimit -l)".to_owned()
        }
        _ => return error,
    };
    io::Error::new(error.kind(), reason)
}
