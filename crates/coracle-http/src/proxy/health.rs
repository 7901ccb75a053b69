//! Asking upstreams now and then how they are.

use super::head::write_question;
use super::settings::{HealthCheck, ProxyVersion};
use super::upstream::Upstream;
use crate::client::pools::Keeping;
use crate::{Headers, Method, proxy_protocol};
use coracle_loop::{Loop, Timer};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Weak};

/// How they are asked.
pub(super) struct Asking {
    pub(super) check: HealthCheck,
    pub(super) keeping: Keeping,
    pub(super) parsing: crate::Settings,
    pub(super) send_proxy: Option<ProxyVersion>,
}

/// Asks all of them on this loop, from now on, until nobody needs them any more.
pub(super) fn start(lp: &Loop, upstreams: &Arc<[Upstream]>, asking: Asking) {
    let upstreams: Weak<[Upstream]> = Arc::downgrade(upstreams);
    let (interval, asking) = (asking.check.interval, Rc::new(asking));
    let timer = Rc::new(Cell::new(None::<Timer>));
    let own = Rc::clone(&timer);
    let ask_all = move |_: &Loop| {
        let Some(upstreams) = upstreams.upgrade() else {
            own.take().iter().for_each(|timer| _ = timer.cancel()); // they are gone
            return;
        };
        for upstream in upstreams.iter() {
            let (upstream, asking) = (upstream.clone(), Rc::clone(&asking));
            drop(coracle_coro::spawn(move || {
                let timeout = asking.check.timeout;
                let asked = coracle_coro::timeout(timeout, || asking.ask(&upstream));
                upstream.note_health(&asked);
            }));
        }
    };
    timer.set(Some(lp.every(interval, ask_all)));
}

impl Asking {
    fn ask(&self, upstream: &Upstream) -> io::Result<()> {
        let place = upstream.place();
        let mut link = match self.send_proxy {
            None => self.keeping.connect(place)?,
            // Who expects a header gets one; it says that we speak for ourselves.
            Some(version) => self.keeping.connect_with(place, &|_| {
                let mut out = Vec::new();
                proxy_protocol::write(&mut out, version, None, None);
                out
            })?,
        };
        let path = format!("{}{}", upstream.base(), self.check.path);
        write_question(&mut link.out, &path, upstream.host());
        link.send()?;
        let facts = link.receive_head(Method::Get, &self.parsing, &mut Headers::new())?;
        match facts.status.as_u16() {
            ..400 => Ok(()),
            status => Err(io::Error::other(format!("it answers {status}"))),
        }
    }
}
