//! Rules about unsafe code: where it may be, and that it is argued.

use super::lexer;
use super::sources::{numbered, rust};
use crate::tree::File;

/// The files that may lift the lint `unsafe_code`, and what they need it for.
const FENCED: &[(&str, &str)] = &[
    ("crates/coracle-coro/src/current.rs", "who runs now, on whose stack"),
    (
        "crates/coracle-coro/src/ending.rs",
        "a closure, and then a result, that one at a time touches",
    ),
    ("crates/coracle-coro/src/future/table.rs", "the scheduler of a future's loop"),
    ("crates/coracle-coro/src/join.rs", "the type of a result, which the coroutine has forgotten"),
    ("crates/coracle-coro/src/place.rs", "a value whose type is forgotten"),
    ("crates/coracle-coro/src/prefetch.rs", "a hint to the processor"),
    ("crates/coracle-coro/src/sleeper.rs", "one that is used again; the task of its coroutine"),
    ("crates/coracle-coro/src/task.rs", "a closure whose type is forgotten; what a task points to"),
    ("crates/coracle-coro/src/way.rs", "a pointer that counts, in one word"),
    ("crates/coracle-coro/tests/join_model.rs", "the code under test"),
    ("crates/coracle-coro/src/net/operate.rs", "a parked coroutine lends its memory to the kernel"),
    ("crates/coracle-coro/src/offload.rs", "work that borrows from who waits for it"),
    ("crates/coracle-coro/src/scope.rs", "children that borrow from who waits for them"),
    ("crates/coracle-coro/src/seeing/sample.rs", "a signal handler, and the registers it is told"),
    ("crates/coracle-coro/src/sync/mutex.rs", "a value that one at a time may change"),
    ("crates/coracle-coro/src/sync/ring.rs", "slots that one at a time touches"),
    ("crates/coracle-coro/src/sync/rwlock.rs", "a value that one at a time may change"),
    ("crates/coracle-coro/src/yielder.rs", "what a generator suspends itself by, on its own stack"),
    ("crates/coracle-demux/src/descriptor.rs", "borrows a descriptor whose owner keeps it open"),
    ("crates/coracle-demux/src/epoll.rs", "epoll_pwait2(2), which rustix does not call"),
    ("crates/coracle-demux/src/fork.rs", "a page that the kernel wipes in a child"),
    ("crates/coracle-demux/src/landing.rs", "places of parked coroutines that results land in"),
    ("crates/coracle-demux/src/lent.rs", "buffers that the kernel fills"),
    ("crates/coracle-demux/src/memory.rs", "memory that the kernel works on after a call"),
    ("crates/coracle-demux/src/poll.rs", "descriptors in a list that outlives a borrow"),
    ("crates/coracle-demux/src/select.rs", "select(2) takes bare numbers"),
    ("crates/coracle-demux/src/signal.rs", "signal handlers"),
    ("crates/coracle-demux/src/socket.rs", "an address as bytes"),
    ("crates/coracle-demux/src/tcp.rs", "socket options that rustix does not know"),
    ("crates/coracle-demux/src/uring.rs", "the rings shared with the kernel"),
    ("crates/coracle-demux/tests/contract/lending.rs", "space as a parked coroutine lends it"),
    ("crates/coracle-hook/src/accept.rs", "accept(2), with the caller's pointers"),
    ("crates/coracle-hook/src/bytes.rs", "read(2) and write(2), with the caller's pointers"),
    ("crates/coracle-hook/src/cache.rs", "functions with the names of libc's"),
    ("crates/coracle-hook/src/child.rs", "wait4(2), with the caller's pointers"),
    ("crates/coracle-hook/src/close.rs", "functions with the names of libc's"),
    ("crates/coracle-hook/src/connect.rs", "connect(2), with the caller's pointers"),
    ("crates/coracle-hook/src/copy.rs", "functions with the names of libc's"),
    ("crates/coracle-hook/src/enable.rs", "hooks change what every call may do"),
    ("crates/coracle-hook/src/fork.rs", "a function that runs in a copy of the process"),
    (
        "crates/coracle-hook/src/guest.rs",
        "recv(2), send(2), connect(2) and accept(2), with the caller's pointers",
    ),
    ("crates/coracle-hook/src/hold.rs", "functions with the names of libc's"),
    ("crates/coracle-hook/src/poll.rs", "poll(2) and its kin, with the caller's pointers"),
    ("crates/coracle-hook/src/raw.rs", "system calls past libc"),
    ("crates/coracle-hook/src/real.rs", "libc's own function behind ours"),
    ("crates/coracle-hook/src/receive.rs", "recv(2) and its kin, with the caller's pointers"),
    ("crates/coracle-hook/src/resolve.rs", "look-ups on threads, with the caller's pointers"),
    ("crates/coracle-hook/src/send.rs", "send(2) and its kin, with the caller's pointers"),
    ("crates/coracle-hook/src/sleep.rs", "functions with the names of libc's"),
    ("crates/coracle-hook/src/wait.rs", "a number that may be a descriptor"),
    ("crates/coracle-hook/tests/handlers.rs", "handles signals, and counts allocations"),
    ("crates/coracle-hook/tests/processes/main.rs", "enables hooks, calls libc, and forks"),
    ("crates/coracle-hook/tests/rows/main.rs", "enables hooks, and calls libc"),
    ("crates/coracle-net/src/supervisor/spawn.rs", "what a child does between fork and exec"),
    ("crates/coracle-net/src/worker.rs", "descriptors that were inherited by number"),
    ("crates/coracle-tls/tests/idle.rs", "counts allocations"),
    ("crates/coracle-stack/src/guard.rs", "guard regions"),
    ("crates/coracle-stack/src/label.rs", "names, as a signal handler finds them"),
    ("crates/coracle-stack/src/mapping.rs", "the memory of stacks"),
    ("crates/coracle-stack/src/overflow.rs", "a signal handler"),
    ("crates/coracle-stack/src/seat.rs", "a place at the top of a stack that nobody else uses"),
    ("crates/coracle-stack/src/switch.rs", "promises corosensei that a stack is one"),
    ("crates/coracle-stack/tests/rows/overflow.rs", "faults on purpose, and a thread of pthread's"),
    (
        "apps/coracle-cli/src/coroutine/hooked.rs",
        "enables hooks, of which it knows what they may do",
    ),
    ("apps/coracle-cli/src/daemon.rs", "fork(2), while there is one thread"),
    ("crates/coracle-coro/tests/forking/main.rs", "forks, to see what a copy does"),
    ("crates/coracle-loop/tests/rows/process.rs", "forks, to see that a loop survives them"),
    ("compat/tests/clients/helping.rs", "enables hooks"),
    ("compat/tests/clients/postgres.rs", "calls libpq, a library of C"),
    ("examples/23_hooked_chat.rs", "enables hooks"),
    ("bench/peers/hook-clients/src/main.rs", "enables hooks"),
    ("bench/src/calls.rs", "calls libc"),
    ("bench/src/buffer_ring.rs", "the ring of the limit server"),
    ("bench/src/cpu_clock.rs", "the clock of another process"),
    ("bench/src/load_ring.rs", "the load generators' own system calls"),
    ("bench/src/single_step.rs", "ptrace(2)"),
    ("bench/src/bin/ping.rs", "sends what it owns"),
    ("bench/src/bin/ask.rs", "sends what it owns"),
    ("bench/src/bin/crowd.rs", "sends what it owns"),
    ("bench/src/bin/raw_http_uring.rs", "the limit server"),
    ("bench/src/bin/raw_uring_own.rs", "the limit server"),
    ("bench/src/raw_ring.rs", "the limit server"),
    ("bench/src/raw_uring.rs", "the limit server"),
    ("bench/src/w6/parked.rs", "may's spawn is unsafe"),
    ("bench/src/w6/tasks_may.rs", "may's spawn is unsafe"),
    ("bench/peers/may-echo/src/main.rs", "may's spawn is unsafe"),
    ("bench/peers/coracle-wait/src/main.rs", "switching the hooks on is a promise"),
];

/// How many lines above an unsafe block its argument may begin.
const REACH: usize = 8;

/// How many lines above an unsafe fn its documentation may begin.
const REACH_DOCUMENTATION: usize = 30;

pub(super) fn check_fences(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in rust(files) {
        let code = lexer::code(&file.text);
        let lifted = numbered(&code).find(|(_, line)| line.contains("allow(unsafe_code)"));
        let listed = FENCED.iter().any(|(path, _)| *path == file.path);
        match lifted {
            Some((number, _)) if !listed => {
                let path = &file.path;
                problems
                    .push(format!("{path}:{number}: unsafe code outside the fence (list FENCED)"));
            }
            None if listed => {
                problems.push(format!("{}: needs no place in the list FENCED", file.path));
            }
            _ => {}
        }
    }
    problems
}

pub(super) fn check_arguments(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in rust(files) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (number, line) in numbered(&lexer::code(&file.text)) {
            let above = |reach: usize| &lines[number.saturating_sub(reach + 1)..number];
            let has = |reach, words: &str| above(reach).iter().any(|line| line.contains(words));
            let path = &file.path;
            let block = ["unsafe {", "unsafe impl ", "unsafe extern "];
            let duty = ["unsafe fn ", "unsafe trait "];
            if block.iter().any(|words| line.contains(words)) && !has(REACH, "SAFETY:") {
                problems
                    .push(format!("{path}:{number}: unsafe without a SAFETY: argument above it"));
            } else if duty.iter().any(|words| line.contains(words))
                && !has(REACH_DOCUMENTATION, "# Safety")
                && !has(REACH, "SAFETY:")
            {
                problems.push(format!("{path}:{number}: unsafe without a `# Safety` section"));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_without_an_argument_is_found() {
        let check = |text: &str| check_arguments(&[File::new("a.rs", text)]).len();
        assert_eq!(check("let x = unsafe { f() };"), 1);
        assert_eq!(check("// SAFETY: f is harmless.\nlet x = unsafe { f() };"), 0);
        assert_eq!(check("unsafe impl Send for X {}"), 1);
        assert_eq!(check("pub unsafe fn f() {}"), 1);
        assert_eq!(check("/// # Safety\n/// Call it on Mondays.\npub unsafe fn f() {}"), 0);
        assert_eq!(check("// prose about unsafe { }\nlet text = \"unsafe { }\";"), 0);
    }

    #[test]
    fn unsafe_outside_the_fence_is_found() {
        let lifted = "#![allow(unsafe_code)]\n";
        assert_eq!(check_fences(&[File::new("src/new.rs", lifted)]).len(), 1);
        assert_eq!(check_fences(&[File::new(FENCED[0].0, lifted)]).len(), 0);
        assert_eq!(check_fences(&[File::new(FENCED[0].0, "")]).len(), 1);
    }
}
