//! One loop's share of a server: its listeners, its services, and how they come to their end.

use super::{Spec, chooser, handle::Shared};
use crate::hub::{Current, Hub, Service};
use crate::listener::{Listener, Local, Serve, serve};
use crate::placement::{Chooser, Placement};
use crate::stats::ServiceStats;
use crate::{Protocol, Reason, Settings, Worker, operations};
use coracle_loop::demux::{Address, Descriptor, Handle};
use coracle_loop::{Loop, LoopHandle, Timer};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What a loop has of a server.
pub(crate) struct Site {
    index: usize,
    services: Vec<Rc<Current>>,
    specs: Arc<[Spec]>,
    /// Sockets that will listen once all loops are there.
    sockets: RefCell<Vec<(usize, Handle)>>,
    listeners: RefCell<Vec<Listener>>,
    /// When those who are still there are aborted; present once it is being stopped.
    deadline: RefCell<Option<Timer>>,
    /// The connections have been told.
    told: Cell<bool>,
}

impl Site {
    /// Prepares `lp`; it accepts nobody before [`begin`](Site::begin).
    pub(super) fn open(
        lp: &Loop,
        index: usize,
        specs: &Arc<[Spec]>,
        sockets: Vec<(usize, OwnedFd)>,
        shared: &Shared,
    ) -> io::Result<()> {
        shared.note_backend(lp.backend());
        if !lp.features().any_descriptor {
            shared.room().lower_for_select();
        }
        let services = (specs.iter().enumerate())
            .map(|(service, spec)| {
                let stats = Arc::clone(&shared.stats()[index][service]);
                let room = Some(Arc::clone(shared.room()));
                let settings = spec.settings.clone();
                Current::new(Service::new(lp, Arc::clone(&spec.name), settings, stats, room))
            })
            .collect();
        let mut handles = Vec::new();
        for (service, fd) in sockets {
            handles.push((service, lp.adopt(fd)?));
        }
        lp.extension(|| Site {
            index,
            services,
            specs: Arc::clone(specs),
            sockets: RefCell::new(handles),
            listeners: RefCell::default(),
            deadline: RefCell::default(),
            told: Cell::new(false),
        });
        Ok(())
    }

    /// The share of `lp`, which has one.
    pub(super) fn of(lp: &Loop) -> Rc<Site> {
        lp.extension(|| -> Site {
            unreachable!("the loop of a server has its share from the beginning")
        })
    }

    /// Begins to accept.
    pub(super) fn begin(
        self: &Rc<Self>,
        lp: &Loop,
        loops: &Arc<[LoopHandle]>,
        placement: Placement,
        shared: &Shared,
    ) {
        if self.deadline.borrow().is_some() {
            return; // it was stopped before it began
        }
        for (service, socket) in self.sockets.take() {
            let stats = Arc::clone(&self.services[service].service().stats);
            let alone = placement == Placement::ReusePort || loops.len() == 1;
            let listener = if alone {
                let make = Arc::clone(&self.specs[service].make);
                let make = Box::new(move |peer: &Address| -> Box<dyn Protocol> { make(peer) });
                let service = Rc::clone(&self.services[service]);
                Listener::on(lp, socket, stats, Local { service, make })
            } else {
                let spread = Spread {
                    site: Rc::downgrade(self),
                    service,
                    stats: Arc::clone(&stats),
                    loops: Arc::clone(loops),
                    chooser: RefCell::new(chooser(placement, shared.stats(), service)),
                };
                Listener::on(lp, socket, stats, spread)
            };
            // Only sockets that cannot do what `ReusePort` says are shared by loops.
            let by_loops = placement == Placement::ReusePort
                && loops.len() > 1
                && lp.local_address(socket).is_ok_and(|address| address.ip().is_none());
            if by_loops || Worker::current().is_some() {
                listener.share(lp);
            }
            if Worker::current().is_some() {
                listener.be_patient();
            }
            self.listeners.borrow_mut().push(listener);
        }
    }

    /// Gives these settings to connections that come from now on, of services that have none of their own.
    pub(super) fn set_settings(&self, settings: &Settings) {
        for (service, spec) in self.services.iter().zip(&*self.specs) {
            if !spec.has_own_settings {
                service.set_settings(settings.clone());
            }
        }
    }

    /// Makes a connection of a socket.
    fn serve(&self, lp: &Loop, service: usize, socket: Handle) {
        let current = self.services[service].service();
        if self.told.get() {
            // It was handed over too late: those who are here have been told already.
            current.stats.turned_away.add(1);
            current.stats.unopened.add(1);
            operations::close(lp, socket);
            return;
        }
        let make = &self.specs[service].make;
        serve(lp, &current, socket, |peer| make(peer));
    }

    /// Stops this loop: at once when there are no connections, when they are gone, or after `drain`. A loop that
    /// is being stopped has less time after this, or as much as it had.
    pub(super) fn stop(&self, lp: &Loop, drain: Duration) {
        if let Some(timer) = &*self.deadline.borrow() {
            if timer.deadline().is_some_and(|at| at.saturating_duration_since(lp.now()) > drain) {
                timer.rearm(drain);
            }
            return;
        }
        *self.deadline.borrow_mut() = Some(lp.after(drain, Site::abort_connections));
        for (_, socket) in self.sockets.take() {
            operations::close(lp, socket);
        }
        // What was accepted already is served, and told like the others.
        let listeners = self.listeners.take();
        let left = Rc::new(Cell::new(listeners.len()));
        if listeners.is_empty() {
            Site::stop_connections(lp);
        }
        for listener in listeners {
            let left = Rc::clone(&left);
            listener.close_then(lp, move |lp| {
                left.set(left.get() - 1);
                if left.get() == 0 {
                    Site::stop_connections(lp);
                }
            });
        }
    }

    fn stop_connections(lp: &Loop) {
        let site = Site::of(lp);
        site.told.set(true);
        let hub = Hub::of(lp);
        for key in hub.keys(None) {
            if let Some(link) = hub.get(key) {
                link.shut_down_service(lp);
            }
        }
        if site.is_too_late() {
            Site::abort_connections(lp); // those who came after the deadline
        }
        // In a turn of its own: what was closed last has its turn too.
        hub.when_empty(lp, move |lp| {
            if let Some(timer) = &*site.deadline.borrow() {
                timer.cancel();
            }
            lp.defer(Loop::stop);
        });
    }

    /// Whether the time is over that connections had to finish.
    fn is_too_late(&self) -> bool {
        self.deadline.borrow().as_ref().is_some_and(|timer| timer.deadline().is_none())
    }

    fn abort_connections(lp: &Loop) {
        let hub = Hub::of(lp);
        for key in hub.keys(None) {
            if let Some(link) = hub.get(key) {
                link.abort_now(lp, Reason::Deadline);
            }
        }
    }
}

/// Hands accepted connections to all loops.
struct Spread {
    site: std::rc::Weak<Site>,
    service: usize,
    stats: Arc<ServiceStats>,
    loops: Arc<[LoopHandle]>,
    chooser: RefCell<Chooser>,
}

impl Serve for Spread {
    fn serve(&self, lp: &Loop, socket: Handle) {
        let Some(site) = self.site.upgrade() else { return };
        let Ok(peer) = lp.peer_address(socket) else {
            // Gone before it was served.
            operations::close(lp, socket);
            return;
        };
        let index = self.chooser.borrow_mut().choose(&peer);
        if index == site.index {
            self.chooser.borrow().give(index);
            return site.serve(lp, self.service, socket);
        }
        let service = self.service;
        match lp.detach(socket) {
            Ok(Descriptor::Os(fd)) => {
                let posted = self.loops[index].post(move |lp| match lp.adopt(fd) {
                    Ok(socket) => Site::of(lp).serve(lp, service, socket),
                    Err(error) => {
                        tracing::warn!("cannot take over a connection: {error}");
                        Site::of(lp).services[service].service().stats.unopened.add(1);
                    }
                });
                match posted {
                    Ok(()) => self.chooser.borrow().give(index),
                    Err(_) => self.stats.turned_away.add(1), // that loop is gone, or has too much to do
                }
            }
            Ok(_) => unreachable!("a server has descriptors of the operating system"),
            Err(error) => {
                tracing::warn!("cannot hand a connection over: {error}");
                self.stats.turned_away.add(1);
                operations::close(lp, socket);
            }
        }
    }

    fn turned_away(&self) {
        self.stats.turned_away.add(1);
    }

    fn has_room(&self) -> bool {
        self.site.upgrade().is_none_or(|site| site.services[self.service].service().has_room())
    }
}
