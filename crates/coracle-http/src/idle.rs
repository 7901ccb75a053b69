//! Who has been idle for too long, among the connections of one loop.
//!
//! A timer for each of ten thousand connections that wait is what they would mostly consist of. But all of them
//! wait equally long, so whoever has waited longest is the next: a list, in the order in which they began, and
//! one timer for the first of it. There are two, since a new connection has less time than one that has asked
//! something.
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

/// No node.
const NONE: u32 = u32::MAX;

/// Which list: by how long its connections may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing was asked yet.
    First,
    /// Between two requests.
    Next,
}

/// Those who wait, in two lists.
#[derive(Default)]
pub(crate) struct Idle(RefCell<Lists>);

struct Lists {
    nodes: Vec<Node>,
    /// The first of the nodes that are not used.
    free: u32,
    ends: [Ends; 2],
}

/// A connection, and its neighbours; those who do not wait are in no list.
struct Node {
    before: u32,
    after: u32,
    list: Option<Wait>,
    shared: Weak<Shared>,
}

#[derive(Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
    /// A timer is on its way.
    timed: bool,
}

impl Default for Lists {
    fn default() -> Lists {
        let ends = Ends { first: NONE, last: NONE, timed: false };
        Lists { nodes: Vec::new(), free: NONE, ends: [ends; 2] }
    }
}

impl Idle {
    /// A new connection waits: the number of its node.
    pub(crate) fn enter(&self, lp: &Loop, site: &Rc<Site>, shared: &Rc<Shared>) -> u32 {
        let mut lists = self.0.borrow_mut();
        let node = Node { before: NONE, after: NONE, list: None, shared: Rc::downgrade(shared) };
        let number = match lists.free {
            NONE => {
                lists.nodes.push(node);
                (lists.nodes.len() - 1) as u32
            }
            free => {
                lists.free = lists.nodes[free as usize].after;
                lists.nodes[free as usize] = node;
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
        lists.unlink(number);
        lists.link(number, list);
        if !std::mem::replace(&mut lists.ends[list as usize].timed, true) {
            drop(lists);
            set_timer(lp, site, list, patience(site, list));
        }
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
            let first = lists.ends[list as usize].first;
            if first == NONE {
                lists.ends[list as usize].timed = false;
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
    fn link(&mut self, number: u32, list: Wait) {
        let ends = &mut self.ends[list as usize];
        let last = std::mem::replace(&mut ends.last, number);
        if last == NONE {
            ends.first = number;
        } else {
            self.nodes[last as usize].after = number;
        }
        let node = &mut self.nodes[number as usize];
        (node.before, node.after, node.list) = (last, NONE, Some(list));
    }

    fn unlink(&mut self, number: u32) {
        let Node { before, after, list, .. } = self.nodes[number as usize];
        let Some(list) = list else { return };
        match before {
            NONE => self.ends[list as usize].first = after,
            before => self.nodes[before as usize].after = after,
        }
        match after {
            NONE => self.ends[list as usize].last = before,
            after => self.nodes[after as usize].before = before,
        }
        self.nodes[number as usize].list = None;
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
