//! What the connections of one loop share: where they are found, and how many there are.
//!
//! ```text
//!   Loop ──extension──► Hub ──► Link, Link, Link …        a stale key finds nothing, never the next owner
//!                        ▲ weak          │
//!                        └── Service ◄───┘                settings and counters of one kind of connection
//!                               ▲
//!                            Current                      the one that new connections get
//! ```

use crate::link::Link;
use crate::memory::Share;
use crate::room::Room;
use crate::scratch::Scratch;
use crate::stats::ServiceStats;
use crate::{Conn, Settings, guard};
use coracle_loop::{Loop, LoopHandle};
use slotmap::SlotMap;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

slotmap::new_key_type! {
    /// Names a connection of one loop; never reused.
    pub(crate) struct LinkKey;
}

/// What to do when the last connection of a loop is gone.
type Emptied = Box<dyn FnOnce(&Loop)>;

/// The connections of one loop.
#[derive(Default)]
pub(crate) struct Hub {
    links: RefCell<SlotMap<LinkKey, Rc<Link>>>,
    /// What the running callback has written: sent from here when it returns, and empty between callbacks.
    scratch: Rc<Scratch>,
    emptied: RefCell<Option<Emptied>>,
}

impl Hub {
    /// The hub of `lp`.
    pub(crate) fn of(lp: &Loop) -> Rc<Hub> {
        lp.extension(Hub::default)
    }

    pub(crate) fn insert(&self, make: impl FnOnce(LinkKey) -> Rc<Link>) -> Rc<Link> {
        let mut links = self.links.borrow_mut();
        let key = links.insert_with_key(make);
        Rc::clone(&links[key])
    }

    #[inline]
    pub(crate) fn get(&self, key: LinkKey) -> Option<Rc<Link>> {
        self.links.borrow().get(key).cloned()
    }

    /// Forgets a connection that is gone.
    pub(crate) fn remove(&self, lp: &Loop, key: LinkKey) {
        let removed = self.links.borrow_mut().remove(key);
        drop(removed);
        if self.links.borrow().is_empty()
            && let Some(emptied) = self.emptied.take()
        {
            emptied(lp);
        }
    }

    /// The keys of all connections, of one service if that is given.
    pub(crate) fn keys(&self, service: Option<&str>) -> Vec<LinkKey> {
        let links = self.links.borrow();
        let wanted = |link: &Link| service.is_none_or(|name| link.service().name() == name);
        links.iter().filter(|(_, link)| wanted(link)).map(|(key, _)| key).collect()
    }

    /// Calls `emptied` when there is no connection left: now, if there is none.
    pub(crate) fn when_empty(&self, lp: &Loop, emptied: impl FnOnce(&Loop) + 'static) {
        if self.links.borrow().is_empty() {
            return emptied(lp);
        }
        *self.emptied.borrow_mut() = Some(Box::new(emptied));
    }
}

/// One kind of connection on one loop.
pub(crate) struct Service {
    name: Arc<str>,
    pub(crate) settings: Settings,
    pub(crate) stats: Arc<ServiceStats>,
    pub(crate) scratch: Rc<Scratch>,
    /// What its connections have waiting.
    pub(crate) memory: Share,
    hub: Weak<Hub>,
    /// What it shares with the services and loops of its server, if it is a server's.
    room: Option<Arc<Room>>,
    counts: Rc<Counts>,
}

/// Connections of one kind on one loop, with whatever settings.
#[derive(Default)]
struct Counts {
    open: Cell<usize>,
    /// How many of them are only told that there is no room.
    turning_away: Cell<usize>,
}

/// One kind of connection, as new ones find it: its settings may change, those of connections that are there do
/// not.
pub(crate) struct Current(RefCell<Rc<Service>>);

impl Current {
    pub(crate) fn new(service: Rc<Service>) -> Rc<Current> {
        Rc::new(Current(RefCell::new(service)))
    }

    #[inline]
    pub(crate) fn service(&self) -> Rc<Service> {
        Rc::clone(&self.0.borrow())
    }

    pub(crate) fn set_settings(&self, settings: Settings) {
        let new = self.0.borrow().with_settings(settings);
        let old = self.0.replace(new);
        drop(old); // when nothing is borrowed any more
    }
}

impl Service {
    pub(crate) fn new(
        lp: &Loop,
        name: impl Into<Arc<str>>,
        settings: Settings,
        stats: Arc<ServiceStats>,
        room: Option<Arc<Room>>,
    ) -> Rc<Service> {
        let hub = Hub::of(lp);
        Rc::new(Service {
            name: name.into(),
            memory: Share::new(settings.limit_memory.clone()),
            settings,
            stats,
            scratch: Rc::clone(&hub.scratch),
            hub: Rc::downgrade(&hub),
            room,
            counts: Rc::default(),
        })
    }

    /// The same with other settings: what was counted counts on. Memory is bounded as before, unless they say
    /// otherwise.
    fn with_settings(&self, mut settings: Settings) -> Rc<Service> {
        let memory = settings.limit_memory.take().or_else(|| self.settings.limit_memory.clone());
        settings.limit_memory.clone_from(&memory);
        Rc::new(Service {
            name: Arc::clone(&self.name),
            memory: Share::new(memory),
            settings,
            stats: Arc::clone(&self.stats),
            scratch: Rc::clone(&self.scratch),
            hub: Weak::clone(&self.hub),
            room: self.room.clone(),
            counts: Rc::clone(&self.counts),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    #[inline]
    pub(crate) fn hub(&self) -> Option<Rc<Hub>> {
        self.hub.upgrade()
    }

    /// Whether one more can be served, here and on the whole server. Who is only told that there is no room takes
    /// none.
    pub(crate) fn has_room(&self) -> bool {
        let served = self.counts.open.get() - self.counts.turning_away.get();
        served < self.settings.limit_connections
            && self.room.as_ref().is_none_or(|room| room.has_place())
            && !self.memory.is_full()
    }

    /// How many are only told that there is no room, on the whole server.
    pub(crate) fn turning_away(&self) -> usize {
        let here = self.counts.turning_away.get();
        self.room.as_ref().map_or(here, |room| room.turning_away())
    }

    pub(crate) fn begin_turning_away(&self) {
        self.counts.turning_away.set(self.counts.turning_away.get() + 1);
        self.room.iter().for_each(|room| room.begin_turning_away());
    }

    pub(crate) fn end_turning_away(&self) {
        self.counts.turning_away.set(self.counts.turning_away.get() - 1);
        self.room.iter().for_each(|room| room.end_turning_away());
    }

    pub(crate) fn opened(&self) {
        self.counts.open.set(self.counts.open.get() + 1);
        self.room.iter().for_each(|room| room.opened());
        self.stats.opened.add(1);
    }

    pub(crate) fn closed(&self) {
        self.counts.open.set(self.counts.open.get() - 1);
        self.room.iter().for_each(|room| room.closed());
        self.stats.closed.add(1);
    }
}

/// Names a connection from anywhere: other connections, other loops, any thread. It does not keep it open, and
/// never means the next connection that happens to get the same descriptor.
#[derive(Clone)]
pub struct ConnHandle {
    lp: LoopHandle,
    pub(crate) key: LinkKey,
}

impl ConnHandle {
    pub(crate) fn new(lp: LoopHandle, key: LinkKey) -> ConnHandle {
        ConnHandle { lp, key }
    }

    /// Runs `task` with the connection, in a later turn of its loop; or `gone`, if there is no such connection any
    /// more, or its loop takes no more jobs. One of the two is called, once. Any thread.
    pub fn run(
        &self,
        task: impl FnOnce(&mut Conn<'_>) -> io::Result<()> + Send + 'static,
        gone: impl FnOnce() + Send + 'static,
    ) {
        // The job is called, or dropped when the loop refuses it: dropped, it says that the connection is gone.
        let mut job = Errand { gone: Some(Box::new(gone)) };
        let key = self.key;
        let _ = self.lp.post(move |lp| {
            if let Some(link) = Hub::of(lp).get(key).filter(|link| link.is_open()) {
                job.is_done();
                link.run(lp, task);
            }
        });
    }

    /// Calls `f` with the connection at once, if it lives on `lp`, is open, and is not in a callback of its own.
    /// How connections of one loop talk to each other without a detour (a proxy's two sides). Loop thread only.
    /// From a callback of another connection, [`Conn::with`] is cheaper.
    pub fn with<T>(&self, lp: &Loop, f: impl FnOnce(&mut Conn<'_>) -> T) -> Option<T> {
        self.with_of(&Hub::of(lp), lp, f)
    }

    /// The same, for who has the hub of `lp` at hand.
    #[inline]
    pub(crate) fn with_of<T>(
        &self,
        hub: &Hub,
        lp: &Loop,
        f: impl FnOnce(&mut Conn<'_>) -> T,
    ) -> Option<T> {
        if !self.lives_on(lp) {
            return None;
        }
        let link = hub.get(self.key)?;
        if link.is_open() { link.interrupt(lp, f) } else { None }
    }

    /// Sends something on the connection, if it is still there. Any thread.
    pub fn write(&self, bytes: impl Into<bytes::Bytes>) {
        let bytes = bytes.into();
        self.run(
            |conn| {
                conn.write(bytes);
                Ok(())
            },
            || (),
        );
    }

    /// Whether the connection lives, or lived, on `lp`.
    #[inline]
    pub(crate) fn lives_on(&self, lp: &Loop) -> bool {
        self.lp.is_of(lp)
    }

    /// Whether both name the same connection.
    pub fn is_same(&self, other: &ConnHandle) -> bool {
        self.key == other.key && self.lp.is_same(&other.lp)
    }
}

impl fmt::Debug for ConnHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConnHandle").field(&self.key).finish()
    }
}

/// Says that the connection is gone unless somebody took that back.
struct Errand {
    gone: Option<Box<dyn FnOnce() + Send>>,
}

impl Errand {
    fn is_done(&mut self) {
        self.gone = None;
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        if let Some(gone) = self.gone.take() {
            guard::call("the fallback of a task for a connection", gone);
        }
    }
}
