//! Who has been idle for too long, among the connections of one loop.
//!
//! A timer for each of ten thousand connections that wait is what they would mostly consist of. But all of them
//! wait equally long, so whoever has waited longest is the next: a list, in the order in which they began, and
//! one timer for the first of it. There are two, since a new connection has less time than one that has asked
//! something. Who begins something that has a time of its own leaves: else it would keep those behind it waiting.
//!
//! ```text
//!   timer ─► first ◄─► … ◄─► last         a connection that was answered goes to the end
//! ```

use crate::connection::Shared;
use crate::site::Site;
use coracle_loop::Loop;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// Which list: by how long its connections may wait. The number of the node that is both ends of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing was asked yet.
    First = 0,
    /// Between two requests.
    Next = 1,
}

/// Those who wait, in two lists.
#[derive(Default)]
pub(crate) struct Idle(RefCell<Lists>);

struct Lists {
    /// Two that are the ends of the lists, and one for each connection.
    nodes: Vec<Node>,
    /// The first of the nodes that are not used; 0, if there is none.
    free: u32,
    /// Of which list a timer is on its way.
    timed: [bool; 2],
}

/// A connection, and its neighbours in a ring; those who do not wait are their own.
struct Node {
    before: u32,
    after: u32,
    shared: Weak<Shared>,
}

impl Node {
    fn alone(number: u32, shared: Weak<Shared>) -> Node {
        Node { before: number, after: number, shared }
    }
}

impl Default for Lists {
    fn default() -> Lists {
        let nodes = [Wait::First, Wait::Next].map(|end| Node::alone(end as u32, Weak::new()));
        Lists { nodes: nodes.into(), free: 0, timed: [false; 2] }
    }
}

impl Idle {
    /// A new connection waits: the number of its node.
    pub(crate) fn enter(&self, lp: &Loop, site: &Rc<Site>, shared: &Rc<Shared>) -> u32 {
        let mut lists = self.0.borrow_mut();
        let shared = Rc::downgrade(shared);
        let number = match lists.free {
            0 => {
                let number =
                    u32::try_from(lists.nodes.len()).expect("so many sockets there are not");
                lists.nodes.push(Node::alone(number, shared));
                number
            }
            free => {
                lists.free = lists.nodes[free as usize].after;
                lists.nodes[free as usize] = Node::alone(free, shared);
                free
            }
        };
        drop(lists);
        self.wait(lp, site, number, Wait::First);
        number
    }

    /// A connection waits from now on.
    pub(crate) fn wait(&self, lp: &Loop, site: &Rc<Site>, number: u32, list: Wait) {
        let mut lists = self.0.borrow_mut();
        lists.move_before(number, list as u32);
        if !std::mem::replace(&mut lists.timed[list as usize], true) {
            drop(lists);
            set_timer(lp, site, list, patience(site, list));
        }
    }

    /// It waits no more: it has a timer of its own, or nobody waits for it.
    pub(crate) fn stop_waiting(&self, number: u32) {
        self.0.borrow_mut().unlink(number);
    }

    /// A connection is gone.
    pub(crate) fn leave(&self, number: u32) {
        let mut lists = self.0.borrow_mut();
        lists.unlink(number);
        let free = std::mem::replace(&mut lists.free, number);
        let node = &mut lists.nodes[number as usize];
        node.after = free;
        node.shared = Weak::new();
    }

    /// Those who have waited too long, and how long it is until the next one has. They are in no list any more.
    fn due(
        &self,
        list: Wait,
        now: Instant,
        patience: Duration,
    ) -> (Vec<Rc<Shared>>, Option<Duration>) {
        let mut lists = self.0.borrow_mut();
        let mut due = Vec::new();
        loop {
            let first = lists.nodes[list as usize].after;
            if first == list as u32 {
                lists.timed[list as usize] = false;
                return (due, None);
            }
            let shared = lists.nodes[first as usize].shared.upgrade();
            let left = shared
                .as_ref()
                .map(|it| (it.waits_since() + patience).saturating_duration_since(now));
            match left {
                Some(left) if !left.is_zero() => return (due, Some(left)),
                _ => {
                    lists.unlink(first);
                    due.extend(shared);
                }
            }
        }
    }
}

impl Lists {
    /// Out of its ring, and in front of `end`: last, in the ring of which that is both ends.
    fn move_before(&mut self, number: u32, end: u32) {
        self.unlink(number);
        let last = std::mem::replace(&mut self.nodes[end as usize].before, number);
        self.nodes[last as usize].after = number;
        let node = &mut self.nodes[number as usize];
        (node.before, node.after) = (last, end);
    }

    fn unlink(&mut self, number: u32) {
        let node = &mut self.nodes[number as usize];
        let before = std::mem::replace(&mut node.before, number);
        let after = std::mem::replace(&mut node.after, number);
        self.nodes[before as usize].after = after;
        self.nodes[after as usize].before = before;
    }
}

fn patience(site: &Site, list: Wait) -> Duration {
    match list {
        Wait::First => site.settings.header_timeout,
        Wait::Next => site.settings.idle_timeout,
    }
}

fn set_timer(lp: &Loop, site: &Rc<Site>, list: Wait, timeout: Duration) {
    let site = Rc::downgrade(site);
    lp.after(timeout, move |lp| {
        let Some(site) = site.upgrade() else { return };
        let (due, next) = site.idle.due(list, lp.now(), patience(&site, list));
        for shared in due {
            shared.has_waited(lp);
        }
        if let Some(next) = next {
            set_timer(lp, &site, list, next);
        }
    });
}
