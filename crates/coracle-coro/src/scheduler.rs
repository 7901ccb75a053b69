//! Whose turn is it among the coroutines of a loop? First come, first served.
//!
//! A scheduler is an extension of its loop, and runs in the loop's turn, as a deferred job: that is after due
//! timers and posted jobs, and before the wait. Whoever becomes ready during that is run in the same turn, up
//! to a budget; so a chain of coroutines that wake each other costs no turn for each, and cannot keep the
//! loop from its other work either.
//!
//! ```text
//!   spawn, wake, yield_now ──► ready ──► resume ──┬─► waits: in the table only
//!                              (FIFO)             ├─► gave way: back to ready
//!                                                 └─► over: its stack goes back to the pool
//! ```
//!
//! Futures have a table of their own (`future/table.rs`), and their turn in the same order.

use crate::budget::Rows;
use crate::coroutine::{CoroutineId, Ids};
use crate::current;
use crate::deadlock;
use crate::future::table::{self, Futures};
use crate::group::Member;
use crate::inbox::Inbox;
use crate::join::JoinHandle;
use crate::leak;
use crate::ready::Ready;
use crate::seeing::{self, Counters};
use crate::sleeper::Sleeper;
use crate::spare::Spare;
use crate::stack_use::Census;
use crate::stacks::Trimming;
use crate::task::{Key, Listed, Sent, Stamps, State, Task};
use crate::unasked::Notes;
use crate::waiter::current_loop;
use coracle_loop::demux::ForkGuard;
use coracle_loop::{Clock, Loop, LoopHandle};
use coracle_stack::{CoroutineResult, Pool, Seated, Stack, StackSize};
use slotmap::SlotMap;
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// How many coroutines and futures one turn of the loop runs.
const RESUMES_PER_TURN: usize = 1024;

/// Between so many of them it is looked whether a timer is late: then the others have to wait for the next turn.
const RESUMES_PER_LOOK: usize = 4;

/// How many tasks that are over are kept for the next who is spawned.
const LIMIT_SPARE_TASKS: usize = 1024;

/// How many of them keep their stacks: those of the default size, without a name. None in debug builds, so that
/// [`high_water`](Stack::high_water) tells of one user only.
const LIMIT_SPARE_STACKS: usize = 64;

pub(crate) struct Scheduler {
    handle: LoopHandle,
    /// Made when the first coroutine starts.
    pool: OnceCell<Pool>,
    /// Those that are not over, and those that are spare.
    tasks: RefCell<SlotMap<Key, Rc<Task>>>,
    /// How many are not over.
    living: Cell<usize>,
    ready: Ready,
    pub(crate) rows: Rows,
    /// Futures that are ready have their turn behind this task, which is in the queue; none if none are.
    futures_behind: Cell<Option<Listed>>,
    /// It is their turn.
    futures_due: Cell<bool>,
    spare: Spare,
    /// What runs without a stack.
    pub(crate) futures: Futures,
    /// How many futures are not over, and how much else is still to be done beside coroutines.
    others: Cell<usize>,
    ids: Ids,
    inbox: Arc<Inbox>,
    /// Memory for what comes in next.
    emptied: Cell<Vec<(Key, u64)>>,
    /// A deferred job is on its way that runs those who are ready, or is running.
    awake: Cell<bool>,
    /// The loop's time.
    clock: Clock,
    stamps: Stamps,
    counters: Counters,
    /// Somebody runs the loop until no coroutine is left.
    stop_when_empty: Cell<bool>,
    /// What was found when nothing could happen any more.
    deadlock: RefCell<Option<io::Error>>,
    /// How many are parked for good.
    leaked: Cell<usize>,
    /// If its loop is one of several that are one run.
    group: OnceCell<Member>,
    /// In a copy of the process, the coroutines of the original are not run.
    fork: ForkGuard,
    trimming: Trimming,
    census: Census,
    /// A timer is on its way that looks at the sockets of others: see `net/operate/guests.rs`.
    pub(crate) looks_at_guests: Cell<bool>,
    /// Calls whose time-outs are not known yet.
    pub(crate) notes: Notes,
}

impl Scheduler {
    /// The scheduler of a loop.
    pub(crate) fn of(lp: &Loop) -> Rc<Scheduler> {
        lp.extension(|| Scheduler {
            handle: lp.handle(),
            pool: OnceCell::new(),
            tasks: RefCell::default(),
            living: Cell::new(0),
            ready: Ready::default(),
            rows: Rows::default(),
            futures_behind: Cell::new(None),
            futures_due: Cell::new(false),
            spare: Spare::default(),
            futures: Futures::default(),
            others: Cell::new(0),
            ids: Ids::new(),
            inbox: Arc::default(),
            emptied: Cell::default(),
            awake: Cell::new(false),
            clock: lp.clock(),
            stamps: Stamps::new(lp.now()),
            counters: Counters::new(lp.now()),
            stop_when_empty: Cell::new(false),
            deadlock: RefCell::default(),
            leaked: Cell::new(0),
            group: OnceCell::new(),
            fork: ForkGuard::new(),
            trimming: Trimming::default(),
            census: Census::default(),
            looks_at_guests: Cell::new(false),
            notes: Notes::default(),
        })
    }

    /// Whether this is one of its coroutines.
    #[inline]
    pub(crate) fn owns(&self, sleeper: &Sleeper) -> bool {
        sleeper.is_of(&self.handle)
    }

    /// Whether this is a copy of the process that it belongs to. One load.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.fork.is_forked()
    }

    /// What other threads hold of its loop.
    #[inline]
    pub(crate) fn handle(&self) -> &LoopHandle {
        &self.handle
    }

    /// Whether the turn that is under way on this thread is one of its loop.
    #[inline]
    pub(crate) fn is_turning(&self) -> bool {
        self.handle.is_current()
    }

    // --- Spawning --------------------------------------------------------------------------------------

    /// Has `f` run later, as a coroutine of its own. Only in a turn of the loop.
    #[inline]
    pub(crate) fn spawn<F, T>(
        &self,
        name: Option<Box<str>>,
        size: StackSize,
        spawned: &'static Location<'static>,
        f: F,
    ) -> JoinHandle<T>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        let (task, handle) = self.prepare(name, spawned, f);
        self.enter(task, size);
        handle
    }

    /// Runs `f` as a coroutine of its own at once, until it waits, gives way, or is over. Only in a callback of
    /// the loop: nothing of it is borrowed, and no coroutine runs.
    #[inline]
    pub(crate) fn spawn_now<F, T>(
        &self,
        lp: &Loop,
        spawned: &'static Location<'static>,
        f: F,
    ) -> JoinHandle<T>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        let (task, handle) = self.prepare(None, spawned, f);
        self.admit(task, StackSize::default());
        if self.resume(lp, task) {
            self.remove(task);
        }
        handle
    }

    /// The same, without a handle.
    #[inline]
    pub(crate) fn start_now<F: FnOnce() + 'static>(
        &self,
        lp: &Loop,
        spawned: &'static Location<'static>,
        f: F,
    ) {
        let (task, id) = self.take_task(spawned);
        task.renew_detached(self, id, spawned, f);
        self.admit(task, StackSize::default());
        if self.resume(lp, task) {
            self.remove(task);
        }
    }

    /// A task that will run `f`.
    #[inline(always)]
    fn prepare<F, T>(
        &self,
        name: Option<Box<str>>,
        spawned: &'static Location<'static>,
        f: F,
    ) -> (Listed, JoinHandle<T>)
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        let (task, id) = self.take_task(spawned);
        (task, task.renew(self, id, name, spawned, f))
    }

    /// A task that is over, or was never used, and who it is from now on.
    #[inline(always)]
    fn take_task(&self, spawned: &'static Location<'static>) -> (Listed, CoroutineId) {
        let id = self.ids.next();
        let task = match self.spare.pop() {
            Some(task) => task,
            None => {
                let handle = self.handle.clone();
                self.keep(Arc::new(Sleeper::of_coroutine(handle, id, None, spawned)))
            }
        };
        (task, id)
    }

    /// A new task, which is kept until there are too many.
    #[cold]
    fn keep(&self, sleeper: Arc<Sleeper>) -> Listed {
        let task = Task::new(sleeper);
        let listed = task.listed();
        let key = self.tasks.borrow_mut().insert(task);
        listed.sleeper_ref().settle(self, key, &listed);
        listed
    }

    /// The same for one whose spawner, in another thread, knows it already.
    pub(crate) fn adopt<F, T>(&self, sent: Sent<F, T>, size: StackSize)
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let spare = self.spare.pop();
        let task = spare.unwrap_or_else(|| self.keep(Arc::clone(sent.sleeper())));
        sent.load(self, &task);
        self.enter(task, size);
    }

    #[inline(always)]
    fn enter(&self, task: Listed, size: StackSize) {
        self.admit(task, size);
        self.queue(task);
    }

    /// From here on it is one of those that are not over.
    #[inline(always)]
    fn admit(&self, task: Listed, size: StackSize) {
        self.counters.count_spawn();
        self.living.set(self.living.get() + 1);
        task.size.set(size);
        task.ticket.set(0);
        task.spawned_at.set(self.stamps.stamp(self.now()));
        if let Some(member) = self.group.get() {
            member.entered();
        }
        task.state.set(State::New);
        task.is_spare.set(false);
    }

    /// Has a future polled, later. Only in a turn of the loop.
    pub(crate) fn enter_future(&self, lp: &Loop, shell: Arc<table::Shell>, body: table::Body) {
        self.other_entered();
        shell.settle(self);
        let key = self.futures.enter(lp.now(), shell, body);
        self.push_future(key);
    }

    // --- Ready -----------------------------------------------------------------------------------------

    /// The wait with this ticket has ended: whoever is still in it goes on.
    pub(crate) fn make_ready(&self, key: Key, ticket: u64) {
        if let Some(task) = self.tasks.borrow().get(key) {
            task.go_on(ticket);
        }
    }

    /// Takes in what other threads have left in the inbox.
    pub(crate) fn take_in(&self) {
        let mut waits = self.inbox.take(self.emptied.take());
        for (key, ticket) in waits.drain(..) {
            self.make_ready(key, ticket);
        }
        self.emptied.set(waits);
    }

    /// Puts it at the end of the queue. Only in a turn of the loop, or of another that a coroutine of this one
    /// runs.
    #[inline]
    pub(crate) fn push(&self, task: Listed) {
        task.state.set(State::Ready);
        self.queue(task);
    }

    /// The same for who has let the loop go first.
    #[cold]
    pub(crate) fn push_again(&self, key: Key) {
        if let Some(task) = self.tasks.borrow().get(key) {
            self.push(task.listed());
        }
    }

    /// The same for a future, by its key.
    pub(crate) fn push_future(&self, key: table::Key) {
        if self.futures.push(key) {
            self.give_futures_a_turn();
        }
    }

    /// Behind all that are ready now.
    fn give_futures_a_turn(&self) {
        match self.ready.last() {
            None => self.futures_due.set(true),
            last => self.futures_behind.set(last),
        }
        if !self.awake.get() {
            self.wake_up();
        }
    }

    #[inline(always)]
    fn queue(&self, task: Listed) {
        self.ready.push(task);
        if !self.awake.get() {
            self.wake_up();
        }
    }

    #[cold]
    fn wake_up(&self) {
        self.awake.set(true);
        match Loop::current() {
            Some(lp) if self.handle.is_of(&lp) => defer(&lp),
            _ => self.call(),
        }
    }

    /// From a turn of another loop.
    fn call(&self) {
        if self.handle.post(|lp| Scheduler::of(lp).run_ready(lp)).is_err() {
            self.awake.set(false); // the next one who becomes ready calls again
        }
    }

    pub(crate) fn has_nobody_ready(&self) -> bool {
        self.ready.is_empty() && !self.futures_due.get()
    }

    /// Wakes of other threads: as many at a time as there are.
    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// What it waits for is there: it goes on at once, ahead of the queue, unless its wait was ended by something
    /// else, so that it is in the queue. Only for what the loop itself calls, with nothing borrowed: a completion.
    #[inline(always)]
    pub(crate) fn resume_now(&self, task: Listed) {
        if task.ticket.get() != 0 {
            task.ticket.set(0);
            let mut place = task.coroutine.borrow_mut();
            if self.go_on(&mut place, task) {
                drop(place);
                self.remove(task);
            }
        }
    }

    fn run_ready(&self, lp: &Loop) {
        self.counters.begin_turn(lp.now());
        let mut left = RESUMES_PER_TURN;
        while left > 0 {
            left -= 1;
            if left.is_multiple_of(RESUMES_PER_LOOK) && lp.has_late_timer() {
                break;
            }
            if self.is_forked() {
                return; // one of them has forked, and this is the copy
            }
            if self.futures_due.get() {
                left -= self.run_futures(left);
                continue;
            }
            match self.ready.pop() {
                Some(task) => {
                    if Some(task) == self.futures_behind.get() {
                        self.futures_behind.set(None);
                        self.futures_due.set(true);
                    }
                    if self.resume(lp, task) {
                        self.remove(task);
                    }
                }
                None => {
                    self.awake.set(false);
                    self.counters.end_turn(self.waiting());
                    self.trimming.rest(lp);
                    return;
                }
            }
        }
        self.counters.end_turn(self.waiting());
        defer(lp);
    }

    /// Polls the futures that are ready, one and up to `more`: how many more that were. Those that become so
    /// meanwhile are behind all others.
    #[cold]
    #[inline(never)]
    fn run_futures(&self, more: usize) -> usize {
        self.futures_due.set(false);
        let ran = self.futures.run(more + 1, || self.is_forked());
        if ran.again {
            self.give_futures_a_turn();
        }
        for _ in 0..ran.over {
            self.other_left();
        }
        ran.count.saturating_sub(1)
    }

    /// If nothing can happen any more, says so, and cancels all: that is the only way on. Whenever the loop is
    /// about to sleep: it may be anything that happened last, also a timer that woke nobody.
    pub(crate) fn look_for_deadlock(&self, lp: &Loop) {
        if self.stop_when_empty.get() && !self.is_empty() && deadlock::is_certain(lp) {
            let futures = self.futures.list(lp.now());
            let error = deadlock::describe(&seeing::list(lp, self, 0), &futures);
            tracing::error!("{error}");
            self.deadlock.borrow_mut().get_or_insert(error);
            self.cancel_all();
        }
    }

    /// What was found since the last call.
    pub(crate) fn take_deadlock(&self) -> Option<io::Error> {
        self.deadlock.take()
    }

    /// Runs a coroutine until it waits, gives way, or is over. True if it is over, and to be removed.
    #[inline(always)]
    fn resume(&self, lp: &Loop, task: Listed) -> bool {
        let mut place = task.coroutine.borrow_mut();
        if task.state.get() == State::New
            && let Err(error) = self.start(lp, task, &mut place)
        {
            drop(place);
            give_up(&task, &error);
            return true;
        }
        self.go_on(&mut place, task)
    }

    /// The same for one that was started. Always inlined, as all that a switch lies in.
    #[inline(always)]
    fn go_on(&self, place: &mut Option<Seated<(), (), ()>>, task: Listed) -> bool {
        task.state.set(State::Running);
        self.counters.count_switch();
        let coroutine = place.as_mut().expect("it was started");
        // Nothing of the scheduler's or the loop's is borrowed here, only what is being resumed.
        let outer = current::outer();
        let resumed = coroutine.resume(());
        outer.restore();
        if let CoroutineResult::Return(()) = resumed {
            if cfg!(debug_assertions) {
                self.census.note(*task.sleeper().spawned, coroutine.stack());
            }
            self.trimming.note_freed(self.living());
            return true;
        }
        false
    }

    /// On the stack that the former coroutine of the task has left there, or on another.
    #[inline(always)]
    fn start(
        &self,
        lp: &Loop,
        task: Listed,
        place: &mut Option<Seated<(), (), ()>>,
    ) -> io::Result<()> {
        match place {
            Some(former) if former.stack().size() == task.size.get() && !task.has_name() => {
                former.restart(current::body(self, lp, task));
                Ok(())
            }
            _ => self.start_elsewhere(lp, task, place),
        }
    }

    #[cold]
    fn start_elsewhere(
        &self,
        lp: &Loop,
        task: Listed,
        place: &mut Option<Seated<(), (), ()>>,
    ) -> io::Result<()> {
        *place = None;
        let stack = self.take_stack(&task)?;
        *place = Some(Seated::new(stack, current::body(self, lp, task)));
        Ok(())
    }

    fn take_stack(&self, task: &Task) -> io::Result<Stack> {
        let pool = self.pool()?;
        let mut stack = pool.take(task.size.get()).or_else(|_| {
            self.give_back_spare_stacks();
            pool.take(task.size.get())
        })?;
        if let Some(name) = &task.sleeper_ref().name {
            stack.set_name(&**name);
        }
        Ok(stack)
    }

    /// Gives the stacks that tasks have kept which are over back to the pool.
    pub(crate) fn give_back_spare_stacks(&self) {
        self.spare.iter().for_each(|spare| drop(spare.coroutine.take()));
    }

    /// The stacks of this loop.
    pub(crate) fn pool(&self) -> io::Result<&Pool> {
        match self.pool.get() {
            Some(pool) => Ok(pool),
            None => {
                let pool = Pool::new()?;
                Ok(self.pool.get_or_init(|| pool))
            }
        }
    }

    /// Has it use this pool. Not if it has one.
    pub(crate) fn set_pool(&self, pool: Pool) -> Result<(), Pool> {
        self.pool.set(pool)
    }

    pub(crate) fn trimming(&self) -> &Trimming {
        &self.trimming
    }

    pub(crate) fn census(&self) -> &Census {
        &self.census
    }

    // --- The end ---------------------------------------------------------------------------------------

    #[inline(always)]
    fn remove(&self, task: Listed) {
        let left = self.living.get() - 1;
        self.living.set(left);
        task.is_spare.set(true);
        let keeps_stack = !cfg!(debug_assertions)
            && self.spare.len() < LIMIT_SPARE_STACKS
            && task.size.get() == StackSize::default()
            && !task.has_name();
        if keeps_stack {
            self.spare.push(task);
        } else {
            self.put_away(task);
        }
        if !self.awake.get() {
            // It was resumed by a completion, and nobody follows who would count.
            self.counters.begin_turn(self.now());
            self.counters.end_turn(self.waiting());
        }
        match self.group.get() {
            Some(member) => member.left(self.leaked.get()),
            None => self.settle(),
        }
    }

    /// Its stack goes back to the pool, and the task is kept, if there are not too many.
    #[cold]
    fn put_away(&self, task: Listed) {
        drop(task.coroutine.take());
        if self.spare.len() < LIMIT_SPARE_TASKS {
            self.spare.push(task);
        } else {
            let removed = self.tasks.borrow_mut().remove(task.key());
            drop(removed);
        }
    }

    /// One of the coroutines will never run again.
    pub(crate) fn note_leak(&self, who: &Sleeper) {
        self.leaked.set(self.leaked.get() + 1);
        match self.group.get() {
            Some(member) => member.leaked(who.to_string()),
            None => current_loop().defer(|lp| Scheduler::of(lp).settle()),
        }
    }

    /// Stops the loop if somebody waits for that and no coroutine is left; ends the process if none that is left
    /// will ever be over.
    #[inline]
    fn settle(&self) {
        // Those that are left are at least those that are leaked.
        if self.living.get() + self.others.get() == self.leaked.get() && self.stop_when_empty.get()
        {
            self.conclude();
        }
    }

    #[cold]
    fn conclude(&self) {
        if self.leaked.get() > 0 {
            self.exit();
        }
        self.stop_when_empty.set(false);
        current_loop().stop();
    }

    fn exit(&self) -> ! {
        let leaked: Vec<_> = self.tasks().iter().map(|task| task.sleeper()).collect();
        leak::exit(&leaked)
    }

    /// One more future, or something else that is to be done before the end.
    pub(crate) fn other_entered(&self) {
        self.others.set(self.others.get() + 1);
        if let Some(member) = self.group.get() {
            member.entered();
        }
    }

    /// One of those is over, in a turn of the loop.
    pub(crate) fn other_left(&self) {
        self.others.set(self.others.get() - 1);
        match self.group.get() {
            Some(member) => member.left(self.leaked.get()),
            None => self.settle(),
        }
    }

    /// Whether it has no coroutine, and no future, and nobody [holds](crate::hold::Hold) it.
    pub(crate) fn is_empty(&self) -> bool {
        self.living() + self.others.get() == 0
    }

    /// How many coroutines it has.
    pub(crate) fn living(&self) -> usize {
        self.living.get()
    }

    /// Stops the loop when the last coroutine is over, and the last future.
    pub(crate) fn stop_when_empty(&self) {
        self.stop_when_empty.set(true);
    }

    /// Its loop is one of several. Once.
    pub(crate) fn join_group(&self, member: Member) {
        assert!(self.group.set(member).is_ok(), "a loop is made for one run");
    }

    pub(crate) fn group(&self) -> Option<&Member> {
        self.group.get()
    }

    /// False if it has stopped the loop since [`stop_when_empty`](Scheduler::stop_when_empty).
    pub(crate) fn will_stop(&self) -> bool {
        self.stop_when_empty.get()
    }

    pub(crate) fn cancel_all(&self) {
        for task in self.tasks() {
            task.sleeper().cancel();
        }
        self.futures.cancel_all();
    }

    // --- Seeing ----------------------------------------------------------------------------------------

    /// The loop's time, which stands still while coroutines run.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many wait for their turn.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// How many are parked for good.
    pub(crate) fn leaked(&self) -> usize {
        self.leaked.get()
    }

    /// How many wait for something, or run.
    pub(crate) fn waiting(&self) -> usize {
        self.living().saturating_sub(self.ready() + self.leaked())
    }

    /// How many run: the one that asks, if it is one of these.
    pub(crate) fn running(&self) -> usize {
        usize::from(current::with(|frame| {
            frame.is_some_and(|frame| std::ptr::eq(frame.scheduler(), self))
        }))
    }

    /// All that are not over.
    pub(crate) fn tasks(&self) -> Vec<Rc<Task>> {
        let tasks = self.tasks.borrow();
        tasks.values().filter(|task| !task.is_spare.get()).cloned().collect()
    }
}

#[cold]
fn give_up(task: &Task, error: &io::Error) {
    let coroutine = task.sleeper().to_string();
    tracing::error!(coroutine, %error, "a coroutine cannot start");
    task.give_up();
}

/// Has the loop run those who are ready, later in this turn or in the next.
fn defer(lp: &Loop) {
    lp.defer(|lp| Scheduler::of(lp).run_ready(lp));
}

/// The loop is gone. What was started is leaked, with its stack: others may have references to what is on it,
/// and it can only be unwound by its own code. What was not started is dropped. Who waits for either is told, and
/// what they waited for goes to others.
impl Drop for Scheduler {
    fn drop(&mut self) {
        let tasks = self.tasks();
        let mut leaked = Vec::new();
        let (new, started): (Vec<_>, Vec<_>) =
            tasks.iter().partition(|task| task.state.get() == State::New);
        for task in &started {
            task.sleeper_ref().lose();
            if let Some(coroutine) = task.coroutine.take() {
                std::mem::forget(coroutine);
                leaked.push(task.sleeper().to_string());
            }
        }
        for task in started {
            task.lose();
        }
        new.into_iter().for_each(|task| task.give_up());
        if !leaked.is_empty() {
            let names = leaked.join(", ");
            tracing::warn!(
                count = leaked.len(),
                names,
                "a loop is gone whose coroutines were not over: they are leaked"
            );
        }
    }
}
