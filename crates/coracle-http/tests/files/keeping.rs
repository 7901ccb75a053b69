//! Row N7: a disk is waited for elsewhere, and what was sent is kept.

use crate::client::Client;
use crate::harness::Harness;
use crate::site::Site;
use coracle_loop::demux::{Interest, Operation};
use coracle_loop::pool::{Pool, PoolSettings};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::time::Duration;

pub(crate) fn n7_what_changes_is_sent_anew(h: &Harness) {
    let site = Site::new();
    site.file("page", "one");
    let client = Client::of(h, site.files());
    let first = client.get("/page");
    assert_eq!(first.text(), "one");
    site.replace("page", "another");
    // It is looked at again after a second, by the clock of the loop.
    let mut answer = client.get("/page");
    while answer.text() == "one" {
        assert_eq!(answer.header("etag"), first.header("etag"));
        h.run_for(Duration::from_millis(50));
        answer = client.get("/page");
    }
    assert_eq!(answer.text(), "another");
    assert_ne!(answer.header("etag"), first.header("etag"));
    std::fs::remove_file(site.root().join("page")).unwrap();
    while client.get("/page").status == 200 {
        h.run_for(Duration::from_millis(50));
    }
}

pub(crate) fn n7_files_are_looked_up_once(h: &Harness) {
    let site = Site::new();
    site.file("page", "contents");
    let files = site.files();
    let service = Client::of(h, files.clone()).service;
    let clients: Vec<_> = (0..20).map(|_| Client::to(h, &service)).collect();
    for client in &clients {
        client.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n".repeat(5));
    }
    for client in &clients {
        for _ in 0..5 {
            assert_eq!(client.answer().text(), "contents");
        }
    }
    assert_eq!(files.stats().looked_up, 1, "{:?}", files.stats());
}

/// The only thread that could read is held: who asks for a file that must be read waits, and nobody else.
pub(crate) fn n7_cold_file_does_not_hold_up_others(h: &Harness) {
    let settings = PoolSettings { threads: 1, ..PoolSettings::default() };
    let pool = Pool::new(settings).expect("a pool");
    let mut alone = Harness::new(h.backend, "n7_cold_file_does_not_hold_up_others");
    alone.lp = h.builder().pool(pool).build().expect("a loop");
    let h = &alone;
    let site = Site::new();
    site.file("warm", "warm");
    site.file("cold", "cold");
    let files = site.files().revalidate_after(Duration::from_secs(3600));
    let waiting = Client::of(h, files);
    let other = Client::to(h, &waiting.service);
    assert_eq!(other.get("/warm").text(), "warm");

    let (release, held) = channel::<()>();
    h.lp.offload(move || held.recv().is_ok(), |_, _| ()).expect("there is room");
    waiting.send("GET /cold HTTP/1.1\r\nHost: a\r\n\r\n");
    let answered = Rc::new(Cell::new(false));
    let set = Rc::clone(&answered);
    let poll = Operation::Poll { handle: waiting.socket, interest: Interest::READ };
    h.lp.operate(poll, move |_, _| set.set(true));
    for _ in 0..100 {
        assert_eq!(other.get("/warm").text(), "warm");
    }
    assert!(!answered.get(), "nobody could have read it");
    release.send(()).expect("it waits for that");
    h.run_until(&answered, |answered| answered.get());
    assert_eq!(waiting.answer().text(), "cold");
}
