//! The client of FastCGI against a server that is made for the case: what goes wrong, and what is kept.

use crate::harness::Harness;
use crate::scripts::Scripts;
use crate::talking::{PATIENCE, get, pause, post, serve, talk};
use coracle_http::FastCgi;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const END: &[u8] = &[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn stdout(text: &str) -> Vec<u8> {
    let mut record = vec![1, 6, 0, 1, 0, text.len() as u8, 0, 0];
    record.extend_from_slice(text.as_bytes());
    record
}

/// Reads a request to the end of its body: that.
fn read_request(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head)?;
        let mut content = vec![0; usize::from(head[4]) * 256 + usize::from(head[5])];
        stream.read_exact(&mut content)?;
        stream.read_exact(&mut vec![0; head[6].into()])?;
        if head[1] == 5 {
            if content.is_empty() {
                return Ok(body);
            }
            body.extend_from_slice(&content);
        }
    }
}

/// A server, which does `each` with each of its connections, in a thread for each; and how many there were.
fn listen(
    scripts: &Scripts,
    each: impl Fn(UnixStream) -> io::Result<()> + Send + Sync + 'static,
) -> (FastCgi, Arc<AtomicUsize>) {
    scripts.file("a.php", "", 0o644);
    let path: PathBuf = scripts.beside().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let (count, each) = (Arc::new(AtomicUsize::new(0)), Arc::new(each));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            let each = Arc::clone(&each);
            std::thread::spawn(move || each(stream.unwrap()));
        }
    });
    let address = format!("unix:{}", path.display());
    (FastCgi::new(&address, scripts.root()).unwrap().idle_timeout(Duration::from_secs(600)), count)
}

pub(crate) fn o2_connection_that_is_kept_is_used_again(h: &Harness) {
    let scripts = Scripts::new();
    let (app, count) = listen(&scripts, |mut stream| {
        loop {
            let body = read_request(&mut stream)?;
            let body = String::from_utf8_lossy(&body).into_owned();
            stream.write_all(&stdout(&format!("Content-Type: a/b\n\n<{body}>")))?;
            stream.write_all(&stdout(""))?;
            stream.write_all(END)?;
        }
    });
    serve(h, app, move |address, _| {
        for _ in 0..5 {
            assert_eq!(get(address, "/a.php").text(), "<>");
            assert_eq!(talk(address, post("/a.php", 3) + "abc").text(), "<abc>");
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
    });
}

pub(crate) fn o2_server_that_is_not_there_is_502_and_one_that_is_silent_504(h: &Harness) {
    let scripts = Scripts::new();
    scripts.file("a.php", "", 0o644);
    for address in ["unix:/nonexistent/socket", "127.0.0.1:1"] {
        let app = FastCgi::new(address, scripts.root()).unwrap();
        serve(h, app, move |client, journal| {
            assert_eq!(get(client, "/a.php").status, 502);
            assert!(journal.text().contains(address), "{}", journal.text());
        });
    }
    let (app, _) = listen(&scripts, |mut stream| {
        read_request(&mut stream)?;
        stream.read(&mut [0]).map(drop) // until it hangs up
    });
    serve(h, app.timeout(Duration::from_secs(1)), |address, _| {
        assert_eq!(get(address, "/a.php").status, 504);
    });
}

pub(crate) fn o2_nonsense_is_502(h: &Harness) {
    let scripts = Scripts::new();
    let number = AtomicUsize::new(0);
    const CASES: usize = 6;
    let (app, _) = listen(&scripts, move |mut stream| {
        read_request(&mut stream)?;
        let overloaded = [1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0];
        match number.fetch_add(1, Ordering::SeqCst) % CASES {
            0 => stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            1 => stream.write_all(END),
            2 => stream.write_all(&[stdout("no header\n\n"), END.to_vec()].concat()),
            3 => stream.write_all(&stdout("Content-Type: a/b\n")), // and hangs up
            4 => Ok(()),
            _ => stream.write_all(&overloaded),
        }
    });
    serve(h, app, |address, _| {
        for case in 0..CASES {
            let expected = if case == 5 { 503 } else { 502 };
            assert_eq!(get(address, "/a.php").status, expected, "case {case}");
        }
    });
}

pub(crate) fn o2_connection_that_was_closed_meanwhile_is_made_anew(h: &Harness) {
    let scripts = Scripts::new();
    // Each connection answers once, says that it is kept, and is closed when the next request comes on it.
    let (app, count) = listen(&scripts, |mut stream| {
        read_request(&mut stream)?;
        stream.write_all(&[stdout("Content-Type: a/b\n\nfine"), END.to_vec()].concat())?;
        stream.read(&mut [0; 64]).map(drop)
    });
    serve(h, app, move |address, _| {
        for _ in 0..3 {
            assert_eq!(get(address, "/a.php").text(), "fine");
        }
        assert_eq!(count.load(Ordering::SeqCst), 3);
    });
}

pub(crate) fn o2_idle_connection_is_closed_though_nobody_asks(h: &Harness) {
    let scripts = Scripts::new();
    let (tell, closed) = mpsc::channel();
    let tell = Mutex::new(tell);
    let (app, _) = listen(&scripts, move |mut stream| {
        read_request(&mut stream)?;
        stream.write_all(&[stdout("Content-Type: a/b\n\nfine"), END.to_vec()].concat())?;
        let count = stream.read(&mut [0])?;
        tell.lock().unwrap().send(count).map_err(io::Error::other)
    });
    let app = app.idle_timeout(Duration::from_millis(200)).timeout(Duration::MAX);
    serve(h, app, move |address, _| {
        assert_eq!(get(address, "/a.php").text(), "fine");
        let end = closed.recv_timeout(Duration::from_secs(60));
        assert_eq!(end, Ok(0), "it is closed");
    });
}

pub(crate) fn o2_padding_that_comes_late_is_not_of_the_next_answer(h: &Harness) {
    let scripts = Scripts::new();
    let (app, count) = listen(&scripts, |mut stream| {
        read_request(&mut stream)?;
        let mut end = END.to_vec();
        end[6] = 8; // so much is to follow
        stream.write_all(&[stdout("Content-Type: a/b\n\nfine"), end].concat())?;
        // If there is another request on this connection, its answer is behind that.
        read_request(&mut stream)?;
        stream.write_all(&[0; 8])?;
        stream.write_all(&[stdout("Content-Type: a/b\n\nfine"), END.to_vec()].concat())
    });
    serve(h, app, move |address, _| {
        for _ in 0..2 {
            let answer = get(address, "/a.php");
            assert_eq!((answer.status, answer.text()), (200, "fine"));
        }
        assert_eq!(count.load(Ordering::SeqCst), 2, "a connection for each");
    });
}

pub(crate) fn o2_server_is_not_late_while_the_client_is_waited_for(h: &Harness) {
    let scripts = Scripts::new();
    let (app, _) = listen(&scripts, |mut stream| {
        let length = read_request(&mut stream)?.len();
        let text = stdout(&format!("Content-Type: a/b\n\n{length}"));
        stream.write_all(&[text, END.to_vec()].concat())
    });
    serve(h, app.timeout(PATIENCE), |address, _| {
        assert_eq!(pause(address, "/a.php").text(), "30");
    });
}
