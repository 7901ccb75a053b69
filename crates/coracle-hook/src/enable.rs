//! Switching hooks on, for the process and for a coroutine.
#![allow(unsafe_code)]

use crate::cache;
use crate::fork;
use crate::gate;
use crate::guest;
use crate::settings::Settings;
use crate::sleep;
use crate::status::{self, Status};
use crate::symbols;
use coracle_coro::hooking;
use std::panic::Location;
use std::sync::OnceLock;

/// Who was the first.
static ENABLED_BY: OnceLock<&'static Location<'static>> = OnceLock::new();

/// Has libc's blocking calls park the coroutine that makes them, from now on, in the whole process.
///
/// Call it once, at the beginning of `main`. A second call changes nothing. There is no way back, but for
/// [`off`], and for children made by `fork`, which may enable them for themselves.
///
/// # Safety
/// From now on, **any call that may wait may run other coroutines of the same thread**, wherever in the program
/// it is made: in the code of crates, of std, and of C libraries. Code that takes its thread for its own is then
/// entered by others in the middle. Much of that is a nuisance (a `RefCell` that is borrowed, a lock that
/// deadlocks), but code that is `unsafe` inside may be broken by it without any `unsafe` of yours. Who calls
/// this promises, for the whole program:
///
/// - No `unsafe` code, in whatever library, relies on nothing else running on its thread between the beginning and
///   the end of something in which it reads or writes a socket or pipe, sleeps by `clock_nanosleep`, waits for a
///   child or looks up a name. Scoped thread-locals (`scoped-tls` and its kin) around it are the best known of
///   what does.
/// - Objects of C libraries that are not to be used while a call of theirs is under way are not shared by
///   coroutines of a thread while they do such calls.
/// - Signal handlers that run on the stack of what they interrupt (without `SA_ONSTACK`), in a thread that has
///   coroutines, call nothing that may wait, but for a `write` or `send` of at most eight bytes to a descriptor
///   that is non-blocking.
/// - Signal handlers, on whatever stack and in whatever thread, call none of `close`, `dup2`, `dup3`,
///   `close_range`, `closefrom` and `fclose`: these look for who waits on the number, under a lock, which the
///   interrupted code may hold.
///
/// Only the crate with `main` knows enough to promise that: a library must not. Its name and line are told by
/// [`status`] and by the log. What is known of crates is in `SOUNDNESS.md`.
///
/// # Panics
/// If the functions are not in place, and calls would go on to block their threads: in a library that was loaded
/// by a program without them. The message names them. (A program that is linked statically does not come this
/// far: the linker refuses our names beside libc's, and if it is made to take them, the first call ends the
/// process, and says why.)
///
/// ```no_run
/// fn main() -> std::io::Result<()> {
///     // SAFETY: only std's sockets are used, by coroutines that share nothing.
///     unsafe { coracle_hook::enable() };
///     coracle_coro::run(|| Ok(std::thread::sleep(std::time::Duration::from_millis(1))))
/// }
/// ```
#[track_caller]
pub unsafe fn enable() {
    if !gate::is_enabled() {
        // SAFETY: the caller has promised it.
        unsafe { enable_with(Settings::default()) };
    }
}

/// As [`enable`], with [`Settings`] of one's own. Those of the last call count.
///
/// # Safety
/// As [`enable`]; with [`sleeping`](Settings::sleeping), for `nanosleep`, `usleep` and `sleep` as well, and with
/// [`sending`](Settings::sending), for sends that find room.
///
/// # Panics
/// As [`enable`].
///
/// ```no_run
/// // SAFETY: nothing in this program sleeps with a lock.
/// unsafe { coracle_hook::enable_with(coracle_hook::Settings { sleeping: true, ..Default::default() }) };
/// ```
#[track_caller]
pub unsafe fn enable_with(settings: Settings) {
    let missing = symbols::missing_here();
    assert!(
        missing.is_empty(),
        "cannot enable coracle's hooks: {}: link the program dynamically, and link coracle to the program itself \
         and not to a library it loads",
        missing.join(", ")
    );
    let caller = Location::caller();
    let by = ENABLED_BY.get_or_init(|| caller);
    symbols::resolve();
    coracle_loop::on_change_of_owner(cache::forget);
    fork::watch();
    sleep::set_sleeping(settings.sleeping);
    guest::set_sending(settings.sending);
    gate::set_enabled(true);
    tracing::info!("hooks are enabled, by {by}: blocking calls of coroutines park them");
}

/// Whether hooks are enabled, by whom, and what they have done so far. Any thread.
///
/// ```
/// println!("{}", coracle_hook::status());
/// ```
pub fn status() -> Status {
    status::status(ENABLED_BY.get().copied().filter(|_| gate::is_enabled()))
}

/// Runs `f`, in which the calls of this coroutine are not taken over: they block the thread, as without hooks.
/// For code that must not be entered by other coroutines; [`no_park`](coracle_coro::no_park()) does this, too.
///
/// Nothing outside a coroutine. Coroutines that are spawned in it have their hooks on.
///
/// ```
/// assert_eq!(coracle_hook::off(|| 1 + 2), 3);
/// ```
pub fn off<R>(f: impl FnOnce() -> R) -> R {
    hooking::unhooked(f)
}

/// Runs `f`, in which the calls of this coroutine are taken over, even inside an [`off`].
///
/// # Safety
/// Whoever has said `off` around it has a reason: the caller knows it, and `f` does not touch it.
///
/// ```
/// coracle_hook::off(|| {
///     // SAFETY: what is off here has nothing to do with the answer.
///     unsafe { coracle_hook::on(|| 42) }
/// });
/// ```
pub unsafe fn on<R>(f: impl FnOnce() -> R) -> R {
    hooking::hooked(f)
}
