//! Row N1: files are sent whole, whatever their size and whoever reads them.

use crate::client::Client;
use crate::harness::Harness;
use crate::site::{Site, pattern};
use coracle_http::Settings;
use coracle_loop::demux::{Operation, Outcome};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The file of another's server that arrived as 3.9 MB.
pub(crate) fn n1_large_file_is_whole(h: &Harness) {
    let site = Site::new();
    let contents = pattern(5_000_000);
    site.file("large.bin", &contents);
    let client = Client::of(h, site.files());
    for _ in 0..2 {
        let answer = client.get("/large.bin");
        assert_eq!((answer.status, answer.header("content-length")), (200, Some("5000000")));
        assert!(answer.body == contents, "every byte of it");
    }
    client.send("HEAD /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().header("content-length"), Some("5000000"));
    assert_eq!(client.get("/large.bin").body.len(), 5_000_000, "the framing is whole");
}

/// Around every size at which something else is done.
pub(crate) fn n1_files_of_all_sizes_are_whole(h: &Harness) {
    let site = Site::new();
    let client = Client::of(h, site.files());
    for size in [0, 1, 4095, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20] {
        for size in [size, size + 1] {
            let name = format!("f{size}");
            let contents = pattern(size);
            site.file(&name, &contents);
            // Two at once, and something else behind them.
            let request = format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n");
            client.send(format!("{request}{request}GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"));
            for _ in 0..2 {
                let answer = client.answer();
                assert_eq!(answer.status, 200);
                assert!(answer.body == contents, "{size} bytes");
            }
            assert_eq!(client.answer().status, 404);
        }
    }
}

/// More than may wait in memory for one connection (16 MiB), to a slow client: it waits in the file.
pub(crate) fn n1_slow_reader_gets_more_than_fits_into_memory(h: &Harness) {
    let site = Site::new();
    let size = 24 << 20;
    let path = site.file("sparse", "");
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(size).unwrap();
    let client = Client::of(h, site.files());
    client.send("GET /sparse HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().header("content-length"), Some("25165824"));
    let mut received = 0;
    while received < size {
        h.run_for(Duration::from_millis(1));
        let piece = client.take(1 << 20);
        assert!(!piece.is_empty() && piece.iter().all(|&byte| byte == 0), "at {received}");
        received += piece.len() as u64;
    }
    assert_eq!(client.get("/nothing").status, 404, "the framing is whole");
}

/// A large file, and a client that takes so many bytes of it each second, at most: how many it got until it had
/// all of it or was cut, how many seconds that took, and whether it was cut.
fn drip(h: &Harness, min_send_rate: u32, bytes_per_second: usize) -> (usize, u32, u64) {
    let site = Site::new();
    let contents = pattern(DRIPPED_BYTES);
    site.file("large", &contents);
    let settings =
        Settings { write_timeout: Duration::from_secs(6), min_send_rate, ..Settings::default() };
    let client = Client::with(h, settings, site.files());
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let mut received = client.take_received();
    let mut seconds = 0;
    while received.len() < contents.len() && client.service.stats().timed_out == 0 {
        h.run_for(Duration::from_secs(1));
        seconds += 1;
        let space = vec![0; bytes_per_second].into();
        let finished = h.operate(Operation::Receive { socket: client.socket, space });
        let Ok(Outcome::Count(count @ 1..)) = finished.result else { break };
        received.extend_from_slice(&finished.payload.into_vec()[..count]);
    }
    assert!(contents.starts_with(&received), "every byte in its place");
    (received.len(), seconds, client.service.stats().timed_out)
}

const DRIPPED_BYTES: usize = 256 << 10;

/// The clock is looked at twenty times meanwhile, and each time enough of it was taken. In simulated time.
pub(crate) fn n1_long_download_is_not_taken_for_a_slow_one(h: &Harness) {
    // At the end it takes what is on its way, of which the server sees nothing.
    let (bytes, seconds, timed_out) = drip(h, 500, 2000);
    assert!(seconds >= 90, "{seconds}");
    assert_eq!((bytes, timed_out), (DRIPPED_BYTES, 0));
}

/// In simulated time: it takes something each second, and too little.
pub(crate) fn n1_reader_that_takes_too_little_is_cut(h: &Harness) {
    let (bytes, seconds, timed_out) = drip(h, 500, 100);
    assert!(bytes < DRIPPED_BYTES && seconds <= 80, "{bytes} bytes in {seconds} s");
    assert_eq!(timed_out, 1);
}

/// It waits for as long as that takes: nothing is decided by how fast the machine is.
pub(crate) fn n1_reader_that_takes_nothing_is_cut(h: &Harness) {
    let site = Site::new();
    let size = 64 << 20;
    let path = site.file("sparse", "");
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(size).unwrap();
    let settings = Settings { write_timeout: Duration::from_secs(1), ..Settings::default() };
    let client = Client::with(h, settings, site.files());
    client.send("GET /sparse HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let lp = h.lp.clone();
    h.run_until(&client.server, move |server| server.with(&lp, |_| ()).is_none());
    assert!((client.rest().len() as u64) < size, "what was on its way already, and no more");
}

pub(crate) fn n1_file_that_is_cut_while_it_is_sent_cuts_the_connection(h: &Harness) {
    let site = Site::new();
    let size = 16 << 20;
    let path = site.file("shrinking", pattern(size));
    let client = Client::of(h, site.files());
    client.send("GET /shrinking HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().header("content-length"), Some("16777216"));
    let left = 1 << 20;
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(left as u64).unwrap();
    let rest = client.rest();
    assert!(rest.len() < size, "it is not there any more");
    // What the kernel had on its way is sent, or zeros in its place: it sends from the file's own memory.
    let expected = pattern(size);
    assert!(rest[..left.min(rest.len())] == expected[..left.min(rest.len())]);
    let behind = rest.iter().zip(&expected).skip(left);
    assert!(behind.into_iter().all(|(&came, &was)| came == was || came == 0), "nothing else came");
}

pub(crate) fn n1_file_that_is_replaced_while_it_is_sent_is_the_old_one(h: &Harness) {
    let site = Site::new();
    let old = pattern(8 << 20);
    site.file("file", &old);
    let client = Client::of(h, site.files().revalidate_after(Duration::ZERO));
    client.send("GET /file HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    site.replace("file", "something else");
    assert!(client.take(old.len()) == old);
    assert_eq!(client.get("/file").text(), "something else");
}

pub(crate) fn n1_client_that_goes_away_leaves_no_file_open(h: &Harness) {
    let site = Site::new();
    let path = site.file("large", pattern(16 << 20));
    let files = site.files().limit_cache_descriptors(0);
    let client = Client::of(h, files.clone());
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    assert!(times_open(&path) > 0, "it is being sent");
    h.close(client.socket);
    while times_open(&path) > 0 {
        h.run_for(Duration::from_millis(1));
    }
    // And one who has it all.
    let client = Client::of(h, files);
    assert_eq!(client.get("/large").body.len(), 16 << 20);
    while times_open(&path) > 0 {
        h.run_for(Duration::from_millis(1));
    }
}

pub(crate) fn n1_file_that_is_kept_is_sent_by_one_descriptor(h: &Harness) {
    let site = Site::new();
    let path = site.file("large", pattern(4 << 20));
    let files = site.files();
    let clients: Vec<Client<'_>> = (0..10).map(|_| Client::of(h, files.clone())).collect();
    for client in &clients {
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for client in &clients {
        assert_eq!(client.head().status, 200);
    }
    // Ten are being sent.
    let times = times_open(&path);
    assert!(times <= 2, "it is open {times} times");
    for client in &clients {
        assert!(client.take(4 << 20) == pattern(4 << 20));
    }
}

/// How often this process has the file open.
fn times_open(path: &Path) -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").expect("procfs").flatten();
    descriptors.filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == path)).count()
}
