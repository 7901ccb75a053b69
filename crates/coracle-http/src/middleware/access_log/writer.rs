//! A thread that writes lines to a file, and the buffer they wait in.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// So many bytes of lines wait to be written; what comes when they are full is dropped, and counted.
pub(super) const LIMIT_WAITING_BYTES: usize = 1 << 20;

/// Lines that come together are written together: so long the first waits for others.
const GATHERING: Duration = Duration::from_millis(100);

/// So long the end of a program waits for a file that takes no more.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Dropped, it writes what waits, and ends its thread.
pub(super) struct Writer(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// There is something to do for the thread.
    work: Condvar,
    /// The thread has done something.
    done: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    lines: u64,
    dropped: u64,
    /// Somebody waits for all to be written, so do not gather.
    hurry: bool,
    reopen: bool,
    writing: bool,
    closing: bool,
    ended: bool,
}

impl Writer {
    pub(super) fn to_file(path: PathBuf) -> io::Result<Writer> {
        let open = move || OpenOptions::new().append(true).create(true).open(&path);
        let file = open()?;
        Ok(Writer::start(Out::File { file, open: Box::new(open) }))
    }

    pub(super) fn new(out: Box<dyn Write + Send>) -> Writer {
        Writer::start(Out::Other(out))
    }

    fn start(out: Out) -> Writer {
        let state = Mutex::default();
        let shared = Arc::new(Shared { state, work: Condvar::new(), done: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let spawned =
            thread::Builder::new().name("access-log".into()).spawn(move || of_thread.run(out));
        if let Err(error) = spawned {
            tracing::error!("there will be no access log: no thread for it: {error}");
            shared.lock().ended = true;
        }
        Writer(shared)
    }

    /// Leaves a line. Never waits for a file.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.0.lock();
        if state.ended || state.waiting.len() + line.len() > LIMIT_WAITING_BYTES {
            state.dropped += 1;
            return;
        }
        let first = state.waiting.is_empty();
        state.waiting.extend_from_slice(line);
        state.lines += 1;
        drop(state);
        if first {
            self.0.work.notify_one();
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }

    pub(super) fn reopen(&self) {
        self.0.lock().reopen = true;
        self.0.work.notify_one();
    }

    pub(super) fn flush(&self) {
        let mut state = self.0.lock();
        while !state.ended && (state.writing || state.reopen || !state.waiting.is_empty()) {
            state.hurry = true;
            self.0.work.notify_one();
            state = self.0.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closing = true;
        self.0.work.notify_one();
        let waited = self.0.done.wait_timeout_while(state, END_TIMEOUT, |state| !state.ended);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !state.ended {
            tracing::error!("the end of the access log is lost: it cannot be written");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut out: Out) {
        let mut taken = Vec::new();
        let mut told = 0;
        loop {
            let idle =
                |state: &mut State| state.waiting.is_empty() && !state.closing && !state.reopen;
            let state =
                self.work.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
            let gather = |state: &mut State| {
                let full = state.waiting.len() >= LIMIT_WAITING_BYTES / 2;
                !(full || state.hurry || state.closing || state.reopen)
            };
            let gathered = self.work.wait_timeout_while(state, GATHERING, gather);
            let (mut state, _) = gathered.unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut state.waiting, &mut taken);
            let lines = std::mem::take(&mut state.lines);
            let (reopen, closing) = (state.reopen, state.closing);
            (state.writing, state.hurry, state.reopen) = (true, false, false);
            drop(state);

            let written = out.write(&taken);
            taken.clear();
            if reopen {
                out.reopen();
            }

            let mut state = self.lock();
            state.writing = false;
            if let Err(error) = written {
                state.dropped += lines;
                tracing::error!("cannot write {lines} lines of the access log: {error}");
            } else if state.dropped > told {
                tracing::warn!("{} lines of the access log were dropped", state.dropped - told);
            }
            told = state.dropped;
            state.ended = closing && state.waiting.is_empty();
            self.done.notify_all();
            if state.ended {
                return;
            }
        }
    }
}

enum Out {
    File { file: File, open: Box<dyn Fn() -> io::Result<File> + Send> },
    Other(Box<dyn Write + Send>),
}

impl Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Out::File { file, .. } => file.write_all(bytes),
            Out::Other(out) => out.write_all(bytes).and_then(|()| out.flush()),
        }
    }

    fn reopen(&mut self) {
        if let Out::File { file, open } = self {
            match open() {
                Ok(new) => *file = new,
                Err(error) => tracing::error!(
                    "cannot open the access log again: {error}; the old one is used"
                ),
            }
        }
    }
}
