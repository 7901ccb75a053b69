//! Row N1: files are sent whole, whatever their size and whoever reads them.

use crate::client::Client;
use crate::harness::Harness;
use crate::site::{Site, pattern};
use coracle_http::Settings;
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

/// The clock is looked at many times meanwhile, and each time enough of it was taken.
pub(crate) fn n1_long_download_is_not_taken_for_a_slow_one(h: &Harness) {
    let site = Site::new();
    let contents = pattern(48 << 20);
    site.file("large", &contents);
    site.file("small", "small");
    let pause = Duration::from_secs(6); // which nothing short of a frozen machine fills
    let settings = Settings { write_timeout: pause, min_send_rate: 1, ..Settings::default() };
    let client = Client::with(h, settings, site.files());
    assert_eq!(client.get("/small").text(), "small");
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let mut received = Vec::new();
    for _ in 0..80 {
        received.extend_from_slice(&client.take(512 << 10));
        h.run_for(Duration::from_millis(100));
    }
    received.extend_from_slice(&client.take(contents.len() - received.len()));
    assert!(received == contents, "{} bytes came", received.len());
}

pub(crate) fn n1_reader_that_is_too_slow_is_cut(h: &Harness) {
    let site = Site::new();
    let size = 64 << 20;
    site.file("large", vec![7; size]);
    let settings = Settings {
        write_timeout: Duration::from_secs(2),
        min_send_rate: 1_000_000_000,
        ..Settings::default()
    };
    let client = Client::with(h, settings, site.files());
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let mut received = 0;
    loop {
        let piece = client.take(512 << 10);
        received += piece.len();
        if piece.len() < 512 << 10 {
            break;
        }
        h.run_for(Duration::from_millis(50));
    }
    assert!(received < size, "all of it came");
    assert_eq!(client.service.stats().timed_out, 1);
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
    assert!(is_open(&path), "it is being sent");
    h.close(client.socket);
    while is_open(&path) {
        h.run_for(Duration::from_millis(1));
    }
    // And one who has it all.
    let client = Client::of(h, files);
    assert_eq!(client.get("/large").body.len(), 16 << 20);
    while is_open(&path) {
        h.run_for(Duration::from_millis(1));
    }
}

/// Whether this process has the file open.
fn is_open(path: &Path) -> bool {
    let descriptors = fs::read_dir("/proc/self/fd").expect("procfs");
    descriptors.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == path))
}
