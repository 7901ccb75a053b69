//! What is logged, and what is not.

use super::writer::LIMIT_WAITING_BYTES;
use super::*;
use crate::middleware::{BasicAuth, RequestIds};
use crate::{App, OwnedRequest, Router, Status};
use std::fs;
use std::sync::Mutex;
use std::sync::mpsc;

/// A file in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Memory {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[test]
fn j14_every_answer_has_a_line() {
    let memory = Memory::default();
    let log = AccessLog::to_writer(memory.clone(), LogFormat::Json);
    let app = Router::new(())
        .with(RequestIds::new())
        .with(log.clone())
        .with(BasicAuth::new("r").check(|_, _| true))
        .get("/{id}", |_, _| "ahoy");
    let request =
        OwnedRequest::new("GET", "/7?q").with_header("authorization", "Basic YTox").unwrap();
    app.call(&request.request());
    app.call(&OwnedRequest::new("HEAD", "/").request());
    log.flush();
    let text = memory.text();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[0]["route"], &lines[0]["user"], &lines[0]["target"]),
        (&"/{id}".into(), &"a".into(), &"/7?q".into())
    );
    assert_eq!((&lines[0]["status"], &lines[0]["bytes"]), (&200.into(), &4.into()));
    assert!(lines[0]["id"].is_string());
    assert_eq!((&lines[1]["status"], &lines[1]["bytes"]), (&401.into(), &0.into()));
    assert!(lines[1].get("route").is_none());
}

#[test]
fn j14_a_stream_is_logged_when_it_is_written() {
    let memory = Memory::default();
    let log = AccessLog::to_writer(memory.clone(), LogFormat::Common);
    let app = Router::new(()).with(log.clone()).get("/", |_, _| {
        Body::stream(|out| {
            out.write_all(b"12345")?;
            Err(io::Error::other("gone"))
        })
    });
    let mut response = app.call(&OwnedRequest::new("GET", "/").request());
    log.flush();
    assert_eq!(memory.text(), "");
    let Kind::Stream { writer, .. } = response.take_body().0 else { panic!("it is a stream") };
    let mut sent = Vec::new();
    assert!(writer(&mut BodyWriter::new(&mut sent)).is_err());
    log.flush();
    assert!(memory.text().ends_with(" 200 5\n"), "{}", memory.text());

    drop(app.call(&OwnedRequest::new("GET", "/").request()));
    log.flush();
    assert!(memory.text().ends_with(" 200 0\n"), "one that nobody writes, too: {}", memory.text());
}

#[test]
fn j14_a_file_is_opened_again_by_its_name() {
    let folder = std::env::temp_dir().join(format!("coracle-log-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (path, old) = (folder.join("log"), folder.join("log.1"));
    let log = AccessLog::to_file(&path, LogFormat::Common).unwrap();
    let app = Router::new(()).with(log.clone());
    let ask = |path| app.call(&OwnedRequest::new("GET", path).request());
    ask("/1");
    log.flush();
    fs::rename(&path, &old).unwrap();
    ask("/2");
    log.reopen();
    log.flush();
    ask("/3");
    log.flush();
    let (old, new) = (fs::read_to_string(&old).unwrap(), fs::read_to_string(&path).unwrap());
    assert!(old.contains("/1") && old.contains("/2") && !old.contains("/3"), "{old}");
    assert!(new.contains("/3") && new.lines().count() == 1, "{new}");
    fs::remove_dir_all(&folder).unwrap();
}

/// A pipe that nobody reads until it is told to.
struct Stuck(mpsc::Receiver<()>, Memory);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn j14_a_log_that_cannot_be_written_holds_up_nobody_and_is_bounded() {
    let (go_on, stuck) = mpsc::channel();
    let memory = Memory::default();
    let log = AccessLog::to_writer(Stuck(stuck, memory.clone()), LogFormat::Combined);
    let app = Router::new(()).with(log.clone()).fallback(|_, _| Status::OK);
    let request =
        OwnedRequest::new("GET", "/").with_header("user-agent", &"x".repeat(4000)).unwrap();
    let asked = 4 * LIMIT_WAITING_BYTES / 4000;
    for _ in 0..asked {
        app.call(&request.request());
    }
    // At most one buffer is with the thread, and one waits.
    let dropped = log.dropped_lines();
    assert!(dropped >= asked as u64 / 4, "{dropped} of {asked}");
    drop(go_on);
    log.flush();
    assert_eq!(
        memory.text().lines().count() as u64 + log.dropped_lines(),
        asked as u64,
        "none is lost silently"
    );
}

#[test]
fn j14_what_waits_is_written_at_the_end() {
    let memory = Memory::default();
    let log = AccessLog::to_writer(memory.clone(), LogFormat::Common);
    let app = Router::new(()).with(log.clone());
    app.call(&OwnedRequest::new("GET", "/").request());
    drop((app, log));
    assert_eq!(memory.text().lines().count(), 1);
}
