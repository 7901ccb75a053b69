//! Many WebSockets that are told the same, on whatever loops they live.
//!
//! ```text
//!   tell ──► encoded once ──┬── one job ──► loop 0: each of its members, one after the other
//!                           └── one job ──► loop 1: …
//! ```

use super::{Encoded, Handle};
use coracle_loop::{Loop, LoopHandle};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// So many members of a loop are told something before it is somebody else's turn.
const MEMBERS_PER_TURN: usize = 256;

/// So many messages may wait until a loop has told its members those before them.
const LIMIT_UNTOLD: usize = 64 << 10;

/// A list of WebSockets. What is told to it is encoded once, and each loop is posted one job for all its members.
/// Any thread.
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
    /// Copied when it changes while somebody is told something.
    members: Arc<Vec<Handle>>,
    untold: Arc<Mutex<Untold>>,
}

/// What the members on one loop are still to be told, in order.
#[derive(Default)]
struct Untold {
    messages: VecDeque<(Encoded, Arc<Vec<Handle>>)>,
    /// How many of the first were told already.
    told: usize,
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
                floors.push(Floor { lp: member.lp.clone(), members, untold: Arc::default() });
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
            let mut untold = floor.untold.lock().unwrap_or_else(PoisonError::into_inner);
            if untold.messages.len() >= LIMIT_UNTOLD {
                tracing::warn!("a loop is {LIMIT_UNTOLD} messages behind: its members miss one");
                continue;
            }
            untold.messages.push_back((message.clone(), Arc::clone(&floor.members)));
            if !std::mem::replace(&mut untold.running, true) {
                let queue = Arc::clone(&floor.untold);
                if floor.lp.post(move |lp| tell(lp, &queue)).is_err() {
                    *untold = Untold::default(); // it takes no more jobs
                }
            }
        }
    }
}

/// Goes on telling the members on this loop.
fn tell(lp: &Loop, queue: &Arc<Mutex<Untold>>) {
    let mut left = MEMBERS_PER_TURN;
    loop {
        let mut untold = queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((message, members)) = untold.messages.front().cloned() else {
            return untold.running = false;
        };
        let from = untold.told;
        let to = members.len().min(from + left);
        untold.told = to;
        if to == members.len() {
            untold.messages.pop_front();
            untold.told = 0;
        }
        drop(untold); // whoever is written to may be closed, and leave
        for member in &members[from..to] {
            member.send_now(lp, &message);
        }
        left -= to - from;
        if left == 0 {
            let queue = Arc::clone(queue);
            return lp.defer(move |lp| tell(lp, &queue));
        }
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("members", &self.len()).finish()
    }
}
