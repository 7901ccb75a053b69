//! Row E7: what comes while nobody reads waits, and so does its end.

use crate::harness::Harness;
use crate::peers::{Notes, Noting};
use coracle_loop::demux::Operation;
use coracle_net::{Buffer, Conn, Settings, attach};
use std::cell::Cell;
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

pub(crate) fn e7_end_is_told_after_what_came_before_it(h: &Harness) {
    // The end comes while the protocol is paused: it is told behind the bytes, not before them.
    let (client, socket) = h.connection();
    h.send(client, &[b'x'; 20_000]);
    let how = Shutdown::Write;
    h.operate(Operation::Shutdown { socket: client, how }).result.expect("shutdown");
    h.run_for(Duration::from_millis(5));
    let notes = Notes::default();
    let (got, paused) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let count = Rc::clone(&got);
    let protocol = Noting {
        notes: Rc::clone(&notes),
        on_data: move |conn: &mut Conn<'_>, input: &mut Buffer| {
            if !paused.replace(true) {
                conn.pause();
                return Ok(());
            }
            count.set(count.get() + input.take_all().len());
            Ok(())
        },
    };
    let server = attach(&h.lp, socket, Settings::default(), protocol).expect("attach");
    h.run_for(Duration::from_millis(20));
    assert!(!notes.borrow().contains(&"end".to_owned()), "paused: {:?}", notes.borrow());
    server.with(&h.lp, |conn| conn.resume()).expect("it is there");
    h.run_until(&notes, |notes| notes.borrow().contains(&"end".to_owned()));
    assert_eq!(got.get(), 20_000, "all of it came before the end");
}
