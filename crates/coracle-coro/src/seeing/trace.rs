//! A backtrace: addresses, until somebody wants to read it.

use std::fmt;
use std::path::PathBuf;

/// How many frames a backtrace has at most, beginning with the innermost.
pub(super) const LIMIT_FRAMES: usize = 128;

/// Functions of ours, and what the compiler puts between them and the user's.
const INNER_NAMES: &[&str] = &[
    "coracle_",
    "corosensei::",
    "backtrace::",
    "stack_init_trampoline",
    "stack_call_trampoline",
    "__rust_try",
    "__rustc::rust_begin",
    "alloc::boxed::",
    "core::ops::function::",
    "core::panic::unwind_safe::",
    "std::panic::",
    "std::panicking::",
    "std::sys::backtrace::__rust_begin_short_backtrace",
    "std::thread::local::",
];

/// The same by their files: a function that was inlined may have lost the beginning of its name.
const INNER_FILES: &[&str] = &[
    "/corosensei-",
    "/backtrace-0.",
    "/library/alloc/src/boxed.rs",
    "/library/core/src/ops/function.rs",
    "/library/core/src/panic/",
    "/library/std/src/panic.rs",
    "/library/std/src/panicking.rs",
    "/library/std/src/thread/local.rs",
];

/// Our crates, in whose directories `src` has our own code.
const CRATES: &[&str] =
    &["coracle-coro", "coracle-demux", "coracle-loop", "coracle-net", "coracle-stack"];

/// Where somebody was: the frames of its stack.
///
/// Taking one costs microseconds. Turning it into names and lines, which is done when it is displayed, reads the
/// debug information of the program, and takes up to a second the first time: not on a thread that has a loop
/// to run.
///
/// It is displayed without the frames of coracle and those that have no name; `{:#}` has them all.
#[derive(Clone, PartialEq, Eq)]
pub struct Trace {
    /// Where each frame goes on, innermost first.
    addresses: Vec<usize>,
}

/// One function of a [`Trace`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceFrame {
    /// Where it goes on. Several functions have the same, if one was inlined into the other.
    pub address: usize,
    /// What it is called, if that is known.
    pub name: Option<String>,
    /// The file and the line, if the program has debug information.
    pub place: Option<(PathBuf, u32)>,
    /// Whether it is coracle's, or one between coracle and the user's, or unknown.
    pub is_inner: bool,
}

impl Trace {
    pub(super) fn new(addresses: Vec<usize>) -> Trace {
        Trace { addresses }
    }

    /// The functions, innermost first.
    pub fn frames(&self) -> Vec<TraceFrame> {
        self.addresses.iter().flat_map(|&address| resolve(address)).collect()
    }

    fn write_frames(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frames = self.frames();
        let shown = if f.alternate() { frames.iter().collect() } else { of_user(&frames) };
        shown.into_iter().try_for_each(|frame| writeln!(f, "      {frame}"))
    }
}

/// A line for each frame, innermost first.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_frames(f)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} frames)", self.addresses.len())
    }
}

impl TraceFrame {
    /// Whether it is the standard library's.
    fn is_std(&self) -> bool {
        let name = self.name.as_deref().unwrap_or_default().trim_start_matches(['<', '&']);
        let file = self.place.as_ref().and_then(|(file, _)| file.to_str()).unwrap_or_default();
        ["core", "alloc", "std"].iter().any(|library| {
            name.strip_prefix(library).is_some_and(|rest| rest.starts_with("::"))
                || file.contains(&format!("/library/{library}/src/"))
        })
    }
}

/// `app::handle at src/main.rs:12`
impl fmt::Display for TraceFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name)?,
            None => write!(f, "{:#x}", self.address)?,
        }
        match &self.place {
            Some((file, line)) => write!(f, " at {}:{line}", file.display()),
            None => Ok(()),
        }
    }
}

/// The user's frames, and those of libraries that he has called: not what we have called, and not what was
/// between us and him. All, if there are none of his.
fn of_user(frames: &[TraceFrame]) -> Vec<&TraceFrame> {
    let is_users = |frame: &TraceFrame| !frame.is_inner && !frame.is_std();
    let (Some(first), Some(last)) =
        (frames.iter().position(is_users), frames.iter().rposition(is_users))
    else {
        return frames.iter().collect();
    };
    let above = frames[..first].iter().rposition(|frame| frame.is_inner).map_or(0, |at| at + 1);
    let below = frames[last..].iter().position(|frame| frame.is_inner);
    let end = below.map_or(frames.len(), |at| last + at);
    frames[above..end].iter().filter(|frame| !frame.is_inner).collect()
}

fn resolve(address: usize) -> Vec<TraceFrame> {
    let mut frames = Vec::new();
    // It is an address to look up, and never used as a pointer.
    backtrace::resolve(std::ptr::without_provenance_mut(address), |symbol| {
        let name = symbol.name().map(|name| format!("{name:#}"));
        let place = symbol.filename().zip(symbol.lineno());
        let file = place.and_then(|(file, _)| file.to_str());
        let is_inner = name.as_deref().is_none_or(is_inner_name) || file.is_some_and(is_inner_file);
        let place = place.map(|(file, line)| (file.to_owned(), line));
        frames.push(TraceFrame { address, name, place, is_inner });
    });
    if frames.is_empty() {
        frames.push(TraceFrame { address, name: None, place: None, is_inner: true });
    }
    frames
}

/// `<coracle_coro::join::Finish<T>>::run` is, `<app::Handler as FnOnce>::call_once` is not.
fn is_inner_name(name: &str) -> bool {
    let name = name.trim_start_matches(['<', '&']).trim_start_matches("dyn ");
    INNER_NAMES.iter().any(|inner| name.starts_with(inner))
}

/// `…/crates/coracle-coro/src/join.rs` is, and `…/coracle-coro-0.1.0/src/join.rs`; what is in `tests` is not.
fn is_inner_file(path: &str) -> bool {
    let is_ours = |directory: &str| {
        let rest = CRATES.iter().find_map(|name| directory.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let parts: Vec<&str> = path.split('/').collect();
    parts.windows(2).any(|pair| pair[1] == "src" && is_ours(pair[0]))
        || INNER_FILES.iter().any(|inner| path.contains(inner))
}

#[cfg(test)]
mod tests {
    use super::{TraceFrame, is_inner_file, is_inner_name, of_user};

    #[test]
    fn s49_own_frames_are_told_from_the_users() {
        for name in [
            "coracle_coro::waiter::Waiter::wait",
            "<coracle_coro::join::Finish<T>>::run",
            "<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once",
            "stack_init_trampoline",
        ] {
            assert!(is_inner_name(name), "{name}");
        }
        for name in [
            "app::handle",
            "<app::Handler as coracle_net::Protocol>::on_data",
            "read",
            "coracle::main",
        ] {
            assert!(!is_inner_name(name), "{name}");
        }

        for path in [
            "/home/me/coracle/crates/coracle-coro/src/join.rs",
            "/home/me/.cargo/registry/src/index/coracle-loop-0.1.0/src/lib.rs",
            "/rustc/59807616e1/library/core/src/ops/function.rs",
        ] {
            assert!(is_inner_file(path), "{path}");
        }
        for path in [
            "/home/me/coracle/crates/coracle-coro/tests/watchdog/child.rs",
            "/home/me/coracle-corolla/src/main.rs",
            "src/main.rs",
            "/rustc/59807616e1/library/std/src/thread/mod.rs",
        ] {
            assert!(!is_inner_file(path), "{path}");
        }
    }

    #[test]
    fn s49_what_stands_between_us_and_the_user_is_not_shown() {
        let frame = |name: &str| TraceFrame {
            address: 1,
            name: Some(name.to_owned()),
            place: None,
            is_inner: is_inner_name(name),
        };
        let names = |names: &[&str]| {
            let frames: Vec<TraceFrame> = names.iter().copied().map(frame).collect();
            let shown = of_user(&frames).into_iter().map(|frame| frame.name.clone().unwrap());
            shown.collect::<Vec<String>>()
        };
        let all = [
            "core::iter::fold", // called by us
            "coracle_coro::waiter::Waiter::wait",
            "std::io::copy", // called by the user
            "app::inner",
            "core::iter::map",
            "coracle_coro::scope::scope",
            "app::outer",
            "core::slice::sort", // between us and the user
            "coracle_coro::join::Finish::run",
            "std::thread::spawn",
        ];
        let shown =
            ["std::io::copy", "app::inner", "core::iter::map", "app::outer", "core::slice::sort"];
        assert_eq!(names(&all), shown);
        let none = ["core::iter::fold", "coracle_coro::join::Finish::run"];
        assert_eq!(names(&none), none);
    }
}
