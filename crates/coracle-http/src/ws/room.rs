//! Many WebSockets that are told the same, on whatever loops they live.
//!
//! ```text
//!   tell ──► encoded once ──┬── one job ──► loop 0: each of its members, one after the other
//!                           └── one job ──► loop 1: …
//! ```

use super::round::{Members, Untold};
use super::{Encoded, Handle};
use coracle_loop::{Loop, LoopHandle};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// So many members of a loop are told something before it is somebody else's turn.
const MEMBERS_PER_TURN: usize = 256;

/// Between so many of them, it is looked whether a timer is late: then it is somebody else's turn already.
const MEMBERS_PER_LOOK: usize = 16;

/// So many messages may wait until a loop has told its members those before them.
const LIMIT_UNTOLD: usize = 64 << 10;

/// A list of WebSockets. What is told to it is encoded once, and each loop is posted one job for all its members.
/// Several messages that wait for a member are sent together. Any thread.
///
/// ```
/// use coracle_http::ws::{self, End, Handle, Message, Peer, Room};
/// use std::io;
/// use std::sync::Arc;
///
/// struct Member(Arc<Room>, Option<Handle>);
///
/// impl ws::Handler for Member {
///     fn on_open(&mut self, peer: &mut Peer<'_>) -> io::Result<()> {
///         self.0.enter(self.1.insert(peer.handle()));
///         Ok(())
///     }
///
///     fn on_message(&mut self, _: &mut Peer<'_>, message: Message) -> io::Result<()> {
///         self.0.tell(message); // everybody, this one as well
///         Ok(())
///     }
///
///     fn on_close(&mut self, _: &End) {
///         self.1.iter().for_each(|handle| self.0.leave(handle));
///     }
/// }
/// # let _ = Member(Arc::default(), None);
/// ```
///
/// Who does not read what it is told is let go, or misses some of it:
/// [`Settings::when_full`](super::Settings::when_full).
#[derive(Default)]
pub struct Room {
    floors: Mutex<Vec<Floor>>,
}

/// The members on one loop.
struct Floor {
    lp: LoopHandle,
    members: Members<Handle>,
    queue: Arc<Mutex<Queue>>,
}

/// What the members on one loop are still to be told.
#[derive(Default)]
struct Queue {
    untold: Untold<Handle>,
    /// A job of the loop is at it.
    running: bool,
}

impl Room {
    /// A room with nobody in it.
    pub fn new() -> Room {
        Room::default()
    }

    /// Adds a member. Who is there already is there twice.
    pub fn enter(&self, member: &Handle) {
        let mut floors = self.floors.lock().unwrap_or_else(PoisonError::into_inner);
        match floors.iter_mut().find(|floor| floor.lp.is_same(&member.lp)) {
            Some(floor) => Arc::make_mut(&mut floor.members).push(member.clone()),
            None => {
                let members = Arc::new(vec![member.clone()]);
                floors.push(Floor { lp: member.lp.clone(), members, queue: Arc::default() });
            }
        }
    }

    /// Takes a member out.
    pub fn leave(&self, member: &Handle) {
        let mut floors = self.floors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(floor) = floors.iter_mut().find(|floor| floor.lp.is_same(&member.lp)) {
            let members = Arc::make_mut(&mut floor.members);
            if let Some(at) = members.iter().position(|other| other.is_same(member)) {
                members.swap_remove(at);
            }
        }
        floors.retain(|floor| !floor.members.is_empty());
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        let floors = self.floors.lock().unwrap_or_else(PoisonError::into_inner);
        floors.iter().map(|floor| floor.members.len()).sum()
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells everybody who is there now, in a later turn of each loop. What one thread tells arrives in the order
    /// in which it was told. A loop that is too far behind misses what is told until it has caught up, says
    /// the log.
    pub fn tell(&self, message: impl Into<Encoded>) {
        let message = message.into();
        let floors = self.floors.lock().unwrap_or_else(PoisonError::into_inner);
        for floor in floors.iter() {
            let mut queue = floor.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if queue.untold.waiting() >= LIMIT_UNTOLD {
                tracing::warn!("a loop is {LIMIT_UNTOLD} messages behind: its members miss one");
                continue;
            }
            queue.untold.push(message.clone(), &floor.members);
            if !std::mem::replace(&mut queue.running, true) {
                let same = Arc::clone(&floor.queue);
                if floor.lp.post(move |lp| tell(lp, &same)).is_err() {
                    *queue = Queue::default(); // it takes no more jobs
                }
            }
        }
    }
}

/// Goes on telling the members on this loop. Nobody is told twice in a turn: before it is judged by what waits for
/// it, the kernel has been offered that.
fn tell(lp: &Loop, queue: &Arc<Mutex<Queue>>) {
    let mut limit = MEMBERS_PER_TURN;
    loop {
        let mut locked = queue.lock().unwrap_or_else(PoisonError::into_inner);
        if locked.untold.is_empty() {
            return locked.running = false;
        }
        let Some(stretch) = locked.untold.take(limit.min(MEMBERS_PER_LOOK)) else { break };
        drop(locked); // whoever is written to may be closed, and leave
        let members = stretch.members();
        members.iter().for_each(|member| member.send_together(lp, &stretch.messages));
        limit = stretch.left(limit);
        if lp.has_late_timer() {
            break;
        }
    }
    let queue = Arc::clone(queue);
    lp.defer(move |lp| tell(lp, &queue));
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("members", &self.len()).finish()
    }
}
