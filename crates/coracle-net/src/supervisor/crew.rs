//! The workers of a supervisor: who serves, who comes, who goes, and who is to be started next.
//!
//! ```text
//!   spawn ──► Starting ──ready──► Serving ──dismissed──► Leaving ──► gone
//!                │                   │                      └─ too slow: killed
//!                ├───────────────────┴── dies: its post is filled again, after a pause
//!                └─ too slow: killed
//! ```
//!
//! A worker fills a post. A post may have two for a while: one that serves, and its successor, which is of a later
//! generation. When that one is ready the other is dismissed; if it dies, the other goes on.
//! A post is filled when somebody of the wanted generation is there who is not leaving.

use super::Start;
use super::backoff::{Backoff, Step};
use super::spawn::{Recipe, Spawned};
use crate::operations;
use coracle_loop::demux::{Operation, Outcome};
use coracle_loop::{Loop, Timer};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What a worker is given beyond the time it gives its connections, before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// When to ask again for the end of a worker, when there was no descriptor left to ask with.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// How long workers may take.
pub(super) struct Times {
    /// To end their connections when they are asked to end.
    pub(super) drain: Duration,
    /// To begin to serve.
    pub(super) start: Duration,
}

pub(super) struct Crew {
    recipe: Recipe,
    times: Times,
    state: RefCell<State>,
}

struct State {
    posts: Vec<Post>,
    workers: Vec<Member>,
    /// What all shall be of. Each request to replace them begins another.
    generation: u64,
    next_id: u64,
    stopping: bool,
    /// To be called when all serve.
    start: Option<Start>,
}

/// What is known of a post beyond who is there.
struct Post {
    backoff: Backoff,
    /// Somebody will be started when it fires.
    pause: Option<Timer>,
}

/// One worker process.
struct Member {
    /// Never given twice, unlike the number of a process.
    id: u64,
    pid: u32,
    process: OwnedFd,
    post: usize,
    generation: u64,
    started: Instant,
    stage: Stage,
    /// When it is killed, if it is starting or leaving.
    deadline: Option<Timer>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Starting,
    Serving,
    Leaving,
}

impl Crew {
    pub(super) fn new(
        recipe: Recipe,
        processes: usize,
        times: Times,
        start: Option<Start>,
    ) -> Rc<Crew> {
        let posts = (0..processes).map(|_| Post { backoff: Backoff::new(), pause: None }).collect();
        let state =
            State { posts, workers: Vec::new(), generation: 0, next_id: 0, stopping: false, start };
        Rc::new(Crew { recipe, times, state: RefCell::new(state) })
    }

    /// Starts the first workers: all, or none.
    pub(super) fn begin(self: &Rc<Self>, lp: &Loop) -> io::Result<()> {
        let posts = self.state.borrow().posts.len();
        for post in 0..posts {
            if let Err(error) = self.spawn(lp, post) {
                self.stop(lp);
                lp.run()?;
                let text = format!("cannot start worker {post}: {error}");
                return Err(io::Error::new(error.kind(), text));
            }
        }
        Ok(())
    }

    /// Asks all to end, and stops the loop when they are gone.
    pub(super) fn stop(self: &Rc<Self>, lp: &Loop) {
        let mut state = self.state.borrow_mut();
        state.stopping = true;
        for post in &mut state.posts {
            if let Some(pause) = post.pause.take() {
                pause.cancel();
            }
        }
        let ids: Vec<u64> = state.workers.iter().map(|worker| worker.id).collect();
        drop(state);
        self.recipe.close(); // who comes now is refused when the workers have closed theirs, and does not wait
        tracing::info!("asking {} to end", count(ids.len()));
        for &id in &ids {
            self.dismiss(lp, id);
        }
        if ids.is_empty() {
            lp.stop();
        }
    }

    /// Replaces all, one after the other.
    pub(super) fn replace_all(self: &Rc<Self>, lp: &Loop) {
        let mut state = self.state.borrow_mut();
        if state.stopping {
            return;
        }
        state.generation += 1;
        let posts = state.posts.len();
        drop(state);
        tracing::info!("replacing {}", count(posts));
        self.replace_next(lp);
    }

    /// Sends a signal to those that serve. Others may not have said yet what they want done about it.
    pub(super) fn pass_on(&self, signal: Signal) {
        let state = self.state.borrow();
        for worker in state.workers.iter().filter(|worker| worker.stage == Stage::Serving) {
            worker.signal(signal);
        }
    }

    /// Starts the next successor, unless one is on its way: it may turn out that it cannot serve.
    fn replace_next(self: &Rc<Self>, lp: &Loop) {
        let state = self.state.borrow();
        let coming = state.workers.iter().any(|worker| worker.stage == Stage::Starting);
        let awaited = state.posts.iter().any(|post| post.pause.is_some());
        if state.stopping || coming || awaited {
            return;
        }
        let open = (0..state.posts.len()).find(|&post| !state.is_filled(post));
        drop(state);
        if let Some(post) = open {
            self.fill(lp, post);
        }
    }

    /// Starts a worker, or arranges for another attempt.
    fn fill(self: &Rc<Self>, lp: &Loop, post: usize) {
        if let Err(error) = self.spawn(lp, post) {
            let what = format!("worker {post} cannot be started: {error}");
            self.fill_later(lp, post, Duration::ZERO, &what);
        }
    }

    /// Starts a worker after a pause, because of `what`, which came about after somebody `lived` so long.
    fn fill_later(self: &Rc<Self>, lp: &Loop, post: usize, lived: Duration, what: &str) {
        let mut state = self.state.borrow_mut();
        let Step { pause, is_news } = state.posts[post].backoff.died(lived);
        if is_news {
            tracing::warn!("{what}; the next is started in {pause:?}");
        } else {
            tracing::debug!("{what}; the next is started in {pause:?}, as before");
        }
        let crew = Rc::clone(self);
        let timer = lp.after(pause, move |lp| {
            crew.state.borrow_mut().posts[post].pause = None;
            crew.fill(lp, post);
        });
        state.posts[post].pause = Some(timer);
    }

    fn spawn(self: &Rc<Self>, lp: &Loop, post: usize) -> io::Result<()> {
        let Spawned { pid, process, ready } = self.recipe.spawn(post)?;
        let mut state = self.state.borrow_mut();
        let id = state.next_id;
        state.next_id += 1;
        let crew = Rc::clone(self);
        let deadline = lp.after(self.times.start, move |_| crew.is_too_slow(id));
        let member = Member {
            id,
            pid,
            process,
            post,
            generation: state.generation,
            started: Instant::now(),
            stage: Stage::Starting,
            deadline: Some(deadline),
        };
        state.workers.push(member);
        drop(state);
        tracing::debug!("worker {post} is process {pid}");
        self.watch(lp, id, pid);
        self.await_readiness(lp, id, ready);
        Ok(())
    }

    /// Waits for the end of a worker.
    fn watch(self: &Rc<Self>, lp: &Loop, id: u64, pid: u32) {
        let crew = Rc::clone(self);
        lp.operate(Operation::ChildExit { pid }, move |lp, finished| match finished.result {
            Ok(Outcome::Exited(status)) => crew.ended(lp, id, Some(status)),
            Ok(other) => unreachable!("the end of a process is not {other:?}"),
            // This process was started with SIGCHLD ignored: then the kernel keeps nobody's status.
            Err(error)
                if [Errno::CHILD, Errno::SRCH]
                    .map(|errno| Some(errno.raw_os_error()))
                    .contains(&error.raw_os_error()) =>
            {
                crew.ended(lp, id, None);
            }
            Err(error) => {
                tracing::warn!("cannot watch process {pid}: {error}");
                lp.after(WATCH_PAUSE, move |lp| crew.watch(lp, id, pid));
            }
        });
    }

    fn await_readiness(self: &Rc<Self>, lp: &Loop, id: u64, ready: OwnedFd) {
        let socket = match lp.adopt(ready) {
            Ok(socket) => socket,
            Err(error) => return tracing::warn!("cannot ask a worker whether it serves: {error}"),
        };
        let crew = Rc::clone(self);
        lp.operate(Operation::Receive { socket, space: vec![0].into() }, move |lp, finished| {
            operations::close(lp, socket);
            if matches!(finished.result, Ok(Outcome::Count(1))) {
                crew.serves(lp, id);
            }
        });
    }

    /// A worker serves: whoever had its post may go.
    fn serves(self: &Rc<Self>, lp: &Loop, id: u64) {
        let mut state = self.state.borrow_mut();
        let Some(worker) = state.workers.iter_mut().find(|worker| worker.id == id) else { return };
        if worker.stage != Stage::Starting {
            return; // dismissed before it began
        }
        worker.stage = Stage::Serving;
        worker.set_deadline(None);
        let post = worker.post;
        let of_post = state.workers.iter().filter(|it| it.post == post && it.id != id);
        let replaced: Vec<u64> = of_post.map(|worker| worker.id).collect();
        let begun = (0..state.posts.len()).all(|post| {
            state.workers.iter().any(|it| it.post == post && it.stage == Stage::Serving)
        });
        let start = if begun { state.start.take() } else { None };
        drop(state);
        for id in replaced {
            self.dismiss(lp, id);
        }
        if let Some(start) = start {
            start(lp);
        }
        self.replace_next(lp);
    }

    /// Asks a worker to end, once: a second request would end it at once.
    fn dismiss(self: &Rc<Self>, lp: &Loop, id: u64) {
        let mut state = self.state.borrow_mut();
        let Some(worker) = state.workers.iter_mut().find(|worker| worker.id == id) else { return };
        if worker.stage == Stage::Leaving {
            return;
        }
        worker.stage = Stage::Leaving;
        worker.signal(Signal::TERM);
        let crew = Rc::clone(self);
        let time = self.times.drain.saturating_add(GRACE);
        worker.set_deadline(Some(lp.after(time, move |_| crew.kill(id))));
    }

    /// The time of a worker that was to begin to serve is over. Its post is filled again when it is gone.
    fn is_too_slow(&self, id: u64) {
        let state = self.state.borrow();
        if let Some(worker) = state.workers.iter().find(|worker| worker.id == id) {
            let time = self.times.start;
            tracing::warn!("{} does not serve after {time:?}: killed", worker.name());
            worker.signal(Signal::KILL);
        }
    }

    /// The time of a worker that was asked to end is over.
    fn kill(&self, id: u64) {
        let state = self.state.borrow();
        if let Some(worker) = state.workers.iter().find(|worker| worker.id == id) {
            let time = self.times.drain.saturating_add(GRACE);
            tracing::warn!("{} does not end in {time:?}: killed", worker.name());
            worker.signal(Signal::KILL);
        }
    }

    /// A worker is gone.
    fn ended(self: &Rc<Self>, lp: &Loop, id: u64, status: Option<ExitStatus>) {
        let mut state = self.state.borrow_mut();
        let Some(at) = state.workers.iter().position(|worker| worker.id == id) else { return };
        let mut worker = state.workers.swap_remove(at);
        worker.set_deadline(None);
        // Who never served has died of its start, however long that took.
        let is_started = worker.stage != Stage::Starting;
        let lived = if is_started { worker.started.elapsed() } else { Duration::ZERO };
        let how = status.map_or("nobody knows how".to_owned(), |status| status.to_string());
        let what = format!("{} ended: {how}", worker.name());
        if worker.stage == Stage::Leaving {
            tracing::debug!("{what}, as asked");
        }
        if state.stopping {
            if state.workers.is_empty() {
                lp.stop();
            }
            return;
        }
        let post = worker.post;
        let vacant = !state.is_filled(post) && state.posts[post].pause.is_none();
        drop(state);
        match worker.stage {
            Stage::Leaving => {}
            _ if vacant => self.fill_later(lp, post, lived, &what),
            _ => tracing::warn!("{what}; its successor is on its way"),
        }
    }
}

impl State {
    /// Whether somebody of the wanted generation serves there, or soon will.
    fn is_filled(&self, post: usize) -> bool {
        self.workers.iter().any(|worker| {
            worker.post == post
                && worker.generation == self.generation
                && worker.stage != Stage::Leaving
        })
    }
}

impl Member {
    fn name(&self) -> String {
        format!("worker {} (process {})", self.post, self.pid)
    }

    /// Has it another time to be killed, or none.
    fn set_deadline(&mut self, deadline: Option<Timer>) {
        if let Some(before) = std::mem::replace(&mut self.deadline, deadline) {
            before.cancel();
        }
    }

    fn signal(&self, signal: Signal) {
        match pidfd_send_signal(&self.process, signal) {
            // It has ended, and the loop is about to hear of it.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => tracing::error!("cannot send {signal:?} to {}: {error}", self.name()),
        }
    }
}

fn count(workers: usize) -> String {
    if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") }
}
