//! How scripts end, and that they do.

use crate::harness::Harness;
use crate::scripts::{Scripts, eventually, is_gone};
use crate::talking::{connect, get, serve};
use std::io::{Read, Write};
use std::time::Duration;

pub(crate) fn o1_late_script_is_killed_with_its_group(h: &Harness) {
    // One that ends when it is told to, and one that does not want to. Both have a child.
    let scripts = Scripts::new();
    scripts.sh("a", "sleep 1000 & echo $$ $! > \"$BESIDE/a\"; wait");
    scripts
        .sh("b", "trap '' TERM; sleep 1000 & echo $$ $! > \"$BESIDE/b\"; while :; do wait; done");
    scripts.sh("c", "printf 'Content-Type: a/b\\n\\nbegin'; echo $$ > \"$BESIDE/c\"; sleep 1000");
    let cgi = scripts.cgi().timeout(Duration::from_secs(2));
    serve(h, cgi, move |address, journal| {
        assert_eq!(get(address, "/a").status, 504);
        assert_eq!(get(address, "/b").status, 504);
        let answer = get(address, "/c");
        assert!(answer.status == 200 && !answer.whole, "what has begun is cut off");
        for name in ["a", "b", "c"] {
            for pid in scripts.pids(name) {
                eventually("it is gone", || is_gone(pid));
            }
        }
        assert!(journal.text().contains("takes too long"));
    });
}

pub(crate) fn o1_client_that_goes_away_ends_the_script(h: &Harness) {
    let scripts = Scripts::of(
        "sleep 1000 & echo $$ $! > \"$BESIDE/pids\"; printf 'Content-Type: a/b\\n\\n'; yes",
    );
    serve(h, scripts.cgi(), move |address, _| {
        let mut stream = connect(address);
        stream.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 100_000]).unwrap();
        drop(stream); // with much of it unread
        for pid in scripts.pids("pids") {
            eventually("it is gone", || is_gone(pid));
        }
    });
}

pub(crate) fn o1_script_that_dies_in_its_answer_cuts_it(h: &Harness) {
    let scripts = Scripts::of("printf 'Content-Type: a/b\\n\\nhalf of it'; kill -9 $$");
    serve(h, scripts.cgi(), |address, _| {
        let answer = get(address, "/a");
        assert_eq!((answer.status, answer.whole), (200, false));
        // To a client that knows no chunks the end of the connection is the end; so it is no plain one.
        let mut stream = connect(address);
        stream.write_all(b"GET /a HTTP/1.0\r\n\r\n").unwrap();
        let end = stream.read_to_end(&mut Vec::new());
        assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    });
}

pub(crate) fn o1_processes_are_limited(h: &Harness) {
    let scripts = Scripts::of(
        "mkdir \"$BESIDE/lock\" || exit 1; printf 'Content-Type: a/b\\n\\n'; sleep 0.1; rmdir \"$BESIDE/lock\"",
    );
    serve(h, scripts.cgi().limit_processes(1), |address, _| {
        let clients: Vec<_> =
            (0..6).map(|_| std::thread::spawn(move || get(address, "/a").status)).collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), 200, "another ran at the same time");
        }
    });
    // Who waits too long for one that is not there is told to come again.
    let scripts = Scripts::of(
        "echo $$ > \"$BESIDE/pid\"; printf 'Content-Type: a/b\\n\\n'; while :; do echo; sleep 1; done",
    );
    let cgi = scripts.cgi().limit_processes(1).timeout(Duration::from_secs(3));
    serve(h, cgi, move |address, _| {
        let mut first = connect(address);
        first.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        first.read_exact(&mut [0; 50]).unwrap();
        let answer = get(address, "/a");
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        drop(first);
    });
}

pub(crate) fn o1_scripts_are_reaped(h: &Harness) {
    let scripts = Scripts::new();
    scripts.sh("a", "printf 'Content-Type: a/b\\n\\n%s' $$; echo >&2");
    // It has said everything, and goes on for a while.
    scripts.sh("b", "printf 'Content-Type: a/b\\n\\n%s' $$; exec >&- 2>&-; sleep 2");
    // It leaves somebody behind who has its standard error.
    scripts.sh("c", "printf 'Content-Type: a/b\\n\\n%s' $$; sleep 4 >&- &");
    serve(h, scripts.cgi(), |address, _| {
        let pids: Vec<u32> = ["/a", "/b", "/c", "/a", "/a"]
            .iter()
            .map(|target| get(address, target).text().parse().unwrap())
            .collect();
        for pid in pids {
            eventually("it is reaped", || is_gone(pid));
        }
    });
}

pub(crate) fn o1_loop_that_ends_leaves_no_script(h: &Harness) {
    let scripts = Scripts::of("sleep 1000 & echo $$ $! > \"$BESIDE/pids\"; wait");
    let (backend, cgi) = (h.builder(), scripts.cgi());
    let lp = backend.build().unwrap();
    let service = coracle_http::Service::new(cgi, coracle_http::Settings::default()).unwrap();
    let (any, settings) = ("127.0.0.1:0".parse().unwrap(), service.connection_settings());
    let connection = move |peer: &_| service.connection(peer);
    let listener = coracle_net::Listener::bind(&lp, &any, settings, connection).unwrap();
    let address = listener.local_address(&lp).unwrap().ip().unwrap();
    let handle = lp.handle();
    let client = std::thread::spawn(move || {
        let mut stream = connect(address);
        stream.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let pids = scripts.pids("pids");
        handle.stop();
        (stream, pids)
    });
    lp.run().unwrap();
    let (stream, pids) = client.join().unwrap();
    drop(listener);
    drop(lp);
    drop(stream);
    for pid in pids {
        eventually("it is gone", || is_gone(pid));
    }
}

pub(crate) fn o1_times_may_be_endless(h: &Harness) {
    let scripts = Scripts::of("printf 'Content-Type: a/b\\n\\nfine'");
    let cgi = scripts.cgi().timeout(Duration::MAX).run_limit(Duration::MAX);
    serve(h, cgi, |address, _| assert_eq!(get(address, "/a").text(), "fine"));
}
