//! Asking upstreams now and then how they are.

use super::head::write_question;
use super::settings::HealthCheck;
use super::upstream::Upstream;
use crate::client::pools::Keeping;
use crate::{Headers, Method};
use coracle_loop::{Loop, Timer};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Weak};

/// Asks all of them on this loop, from now on, until nobody needs them any more.
pub(super) fn start(
    lp: &Loop,
    upstreams: &Arc<[Upstream]>,
    check: &HealthCheck,
    keeping: &Keeping,
    parsing: &crate::Settings,
) {
    let upstreams: Weak<[Upstream]> = Arc::downgrade(upstreams);
    let what = Rc::new((check.clone(), keeping.clone(), parsing.clone()));
    let timer = Rc::new(Cell::new(None::<Timer>));
    let own = Rc::clone(&timer);
    let ask_all = move |_: &Loop| {
        let Some(upstreams) = upstreams.upgrade() else {
            own.take().iter().for_each(|timer| _ = timer.cancel()); // they are gone
            return;
        };
        for upstream in upstreams.iter() {
            let (upstream, what) = (upstream.clone(), Rc::clone(&what));
            drop(coracle_coro::spawn(move || {
                let (check, keeping, parsing) = &*what;
                let asked = coracle_coro::timeout(check.timeout, || {
                    ask(&upstream, check, keeping, parsing)
                });
                upstream.note_health(&asked);
            }));
        }
    };
    timer.set(Some(lp.every(check.interval, ask_all)));
}

fn ask(
    upstream: &Upstream,
    check: &HealthCheck,
    keeping: &Keeping,
    parsing: &crate::Settings,
) -> io::Result<()> {
    let mut link = keeping.connect(upstream.place())?;
    let path = format!("{}{}", upstream.base(), check.path);
    write_question(&mut link.out, &path, upstream.host());
    link.send()?;
    let facts = link.receive_head(Method::Get, parsing, &mut Headers::new())?;
    match facts.status.as_u16() {
        ..400 => Ok(()),
        status => Err(io::Error::other(format!("it answers {status}"))),
    }
}
