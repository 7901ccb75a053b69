//! Every example runs, says what its page says it says, and ends.
//!
//! `cargo test` builds the examples beside the tests: `target/…/deps/examples-…` is this program, and
//! `target/…/examples/` is where they are.

use coracle::http::ws;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// No example takes longer than this, by far, even on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn loop_ticks_for_a_second() {
    let output = run("00_tick", &[]);
    assert!(output.starts_with("a loop on "), "{output}");
    assert_eq!(output.matches("tick").count(), 4, "{output}");
}

#[test]
fn echo_answers_on_every_backend() {
    echoes("01_echo_loop", &["127.0.0.1:0"]);
}

#[test]
fn echo_from_lent_buffers_answers_on_every_backend() {
    echoes("11_lent_receives", &["--listen", "127.0.0.1:0"]);
}

#[test]
fn g5_echo_in_coroutines_answers_on_every_backend() {
    echoes("14_coroutine_echo", &["--listen", "127.0.0.1:0"]);
}

#[test]
fn s38_server_on_every_core_says_goodbye_on_every_backend() {
    echoes("22_every_core", &["127.0.0.1:0"]);
    for backend in ["uring", "epoll", "poll", "select"] {
        let mut echo = Running::start("22_every_core", &["127.0.0.1:0"], backend);
        let line = echo.line();
        let address = line.strip_prefix("echo on ").and_then(|rest| rest.split(',').next());
        let mut stream = TcpStream::connect(address.expect("it says where it listens")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"ahoy\n").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap(); // somebody serves it
        echo.signal("TERM");
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "goodbye\n", "{backend}");
        assert!(echo.end().0.success(), "{backend}");
    }
}

fn echoes(name: &str, arguments: &[&str]) {
    for backend in ["uring", "epoll", "poll", "select"] {
        let mut echo = Running::start(name, arguments, backend);
        let line = echo.line();
        let address = line.strip_prefix("echo on ").and_then(|rest| rest.split(',').next());
        let mut stream = TcpStream::connect(address.expect("it says where it listens")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();

        let message: Vec<u8> = (0..100_000).map(|n| n as u8).collect();
        let mut writer = stream.try_clone().unwrap();
        let sent = message.clone();
        let sending = std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        sending.join().unwrap();
        assert!(answer == message, "{backend}: {} bytes came back", answer.len());

        echo.signal("TERM");
        assert!(echo.end().0.success(), "{backend}");
    }
}

#[test]
fn timers_fire_in_order() {
    let output = run("02_timers", &[]);
    for text in [
        "cancelled the timer of 15 ms",
        "once",
        "that was the third",
        "another thread cancelled the ticks",
        "idle for 100 ms: stop",
    ] {
        assert!(output.contains(text), "{text:?} is missing:\n{output}");
    }
    assert_eq!(output.matches("three times, every 20 ms").count(), 3, "{output}");
    assert!(!output.contains("this is not printed"), "{output}");
    assert!(output.trim_end().ends_with("idle for 100 ms: stop"), "{output}");
}

#[test]
fn s1_coroutines_wait_without_holding_the_thread() {
    let output = run("12_coroutines", &[]);
    for text in [
        "a hundred have slept, on one thread",
        "the longest word is coroutine",
        "first came the tortoise",
        "the squares of two loops add up to 385",
        "too late: the time for this wait is over (its own, or of a `timeout` or `deadline` around it)",
        "cancelled: Operation canceled (os error 125)",
        "it panicked, and nobody else has noticed",
    ] {
        assert!(output.contains(text), "{text:?} is missing:\n{output}");
    }
}

#[test]
fn t5_many_parked_coroutines_are_measured() {
    for arguments in [["2000", "256"], ["2000", "64"]] {
        let output = run("16_million", &arguments);
        let bytes = output.split(" bytes").next().and_then(|text| text.rsplit(' ').next());
        let bytes: u32 = bytes.and_then(|bytes| bytes.parse().ok()).expect("it says how many");
        assert!((4096..16384).contains(&bytes), "{output}");
        assert!(output.contains("2000 coroutines are woken and joined: "), "{output}");
    }
}

#[test]
fn s37_workers_share_a_channel() {
    let output = run("17_worker_pool", &[]);
    assert_eq!(output, "11301 primes below 120000\n3 workers at a time\n");
}

#[test]
fn pipeline_keeps_its_pace() {
    let output = run("18_pipeline", &[]);
    assert!(output.contains("the sum of 100 lines is 5050"), "{output}");
    assert!(output.contains("never far ahead: yes"), "{output}");
}

#[test]
fn posted_jobs_all_run() {
    let output = run("03_post_from_threads", &[]);
    assert!(output.contains("40000 jobs ran, their sum is 200020000"), "{output}");
    assert_eq!(output.matches("is done").count(), 4, "{output}");
}

#[test]
fn offloaded_work_answers_while_the_loop_ticks() {
    let output = run("04_offload", &[]);
    assert!(output.contains("the answer is 42"), "{output}");
    assert!(output.contains("the loop ticked meanwhile: yes"), "{output}");
    assert!(output.contains("it panicked: a number"), "{output}");
}

#[test]
fn signals_reload_and_stop() {
    let mut example = Running::start("05_signals", &[], "");
    assert!(example.line().starts_with("process "));
    example.signal("HUP");
    assert_eq!(example.line(), "configuration loaded for the 2. time");
    example.signal("TERM");
    let (status, output) = example.end();
    assert!(status.success() && output.ends_with("finished\n"), "{status}: {output}");
}

#[test]
fn second_signal_forces_the_end() {
    let mut example = Running::start("05_signals", &[], "");
    example.line();
    example.signal("INT");
    assert!(example.line().starts_with("finishing"));
    example.signal("INT");
    let (status, output) = example.end();
    assert_eq!(status.code(), Some(128 + 2), "{output}");
    assert!(!output.contains("finished"), "{output}");
}

#[test]
fn foreign_pipe_is_read_to_its_end() {
    let output = run("06_watch_foreign_descriptor", &[]);
    assert_eq!(output, "line 1\nline 2\nline 3\nthe child has ended: exit status: 3\n");
}

#[test]
fn simulation_replays_from_its_seed() {
    let first = run("07_simulated_kernel", &["7"]);
    assert!(first.contains("seed 7: "), "{first}");
    assert_eq!(first.matches("1000 bytes echoed").count(), 3, "{first}");
    assert_eq!(first, run("07_simulated_kernel", &["7"]), "the same seed, another story");
    assert_ne!(first, run("07_simulated_kernel", &["8"]), "another seed, the same story");
}

#[test]
fn embedded_loop_does_its_work_in_the_hosts_loop() {
    for backend in ["uring", "epoll"] {
        let (status, output) = Running::start("08_embedding", &[], backend).end();
        assert!(status.success(), "{backend}: {status}: {output}");
        assert!(output.ends_with("nothing is left to do\n"), "{backend}: {output}");
        for text in ["sent", "received Ok(Count(4))", "answered"] {
            assert!(output.contains(text), "{backend}: {text:?} is missing:\n{output}");
        }
    }
}

#[test]
fn r1_echo_server_answers_on_every_backend() {
    for backend in ["uring", "epoll", "poll", "select"] {
        let mut echo = Running::start("09_echo_server", &["127.0.0.1:0"], backend);
        let line = echo.line();
        let mut stream = TcpStream::connect(line.strip_prefix("echo on ").unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"ahoy").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "ahoy", "{backend}");
        echo.signal("TERM");
        assert!(echo.end().0.success(), "{backend}");
    }
}

#[test]
fn r1_chat_tells_everybody_else_on_every_backend() {
    chats("10_chat");
}

#[test]
fn r1_chat_in_coroutines_tells_everybody_else_on_every_backend() {
    chats("19_coroutine_chat");
}

fn chats(name: &str) {
    for backend in ["uring", "epoll", "poll", "select"] {
        let mut chat = Running::start(name, &["127.0.0.1:0"], backend);
        let line = chat.line();
        let address = line.strip_prefix("chat on ").unwrap().to_owned();
        let join = || {
            let stream = TcpStream::connect(&address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let name = stream.local_addr().unwrap().to_string();
            let writer = stream.try_clone().unwrap();
            let mut lines = BufReader::new(stream).lines();
            assert_eq!(lines.next().unwrap().unwrap(), format!("welcome, {name}"));
            (name, lines, writer)
        };
        let (ann, mut anns, mut ann_says) = join();
        let (bob, mut bobs, mut bob_says) = join();
        assert_eq!(anns.next().unwrap().unwrap(), format!("{bob} has come"));
        ann_says.write_all(b"ahoy\n").unwrap();
        let mut heard = bobs.next().unwrap().unwrap();
        if heard == format!("{ann} has come") {
            heard = bobs.next().unwrap().unwrap(); // he came before his loop was told of her
        }
        assert_eq!(heard, format!("{ann}: ahoy"));
        bob_says.write_all(b"/quit\nfarewell\n").unwrap();
        assert!(bobs.next().is_none(), "he is let go");
        drop((bobs, bob_says));
        assert_eq!(anns.next().unwrap().unwrap(), format!("{bob} has gone"));
        drop((anns, ann_says));
        chat.signal("TERM");
        assert!(chat.end().0.success());
    }
}

#[test]
fn r1_chat_over_websocket_tells_everybody_in_both_styles() {
    for (name, backend) in [
        ("27_websocket_chat", "uring"),
        ("27_websocket_chat", "select"),
        ("28_websocket_coroutine_chat", "epoll"),
        ("28_websocket_coroutine_chat", "poll"),
    ] {
        let mut chat = Running::start(name, &["127.0.0.1:0"], backend);
        let line = chat.line();
        let address = line.strip_prefix("chat on ").unwrap().to_owned();
        let page = ask(&address, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(page.contains("new WebSocket"), "{page}");
        let talked = coracle::run(move || {
            let join = || {
                let ws = ws::connect(&format!("ws://{address}/ws"))?;
                let welcome = hear(&ws)?.expect("a welcome");
                let name = welcome.strip_prefix("welcome, ").expect("a name").to_owned();
                Ok::<_, io::Error>((name, ws))
            };
            let (ann, anns) = join()?;
            // Somebody who is welcome is told everything from then on, himself as well.
            anns.send("alone")?;
            assert_eq!(hear(&anns)?, Some(format!("{ann}: alone")));
            let (bob, bobs) = join()?;
            assert_eq!(hear(&anns)?, Some(format!("{bob} has come")));
            bobs.send("ahoy <b>&")?;
            for person in [&anns, &bobs] {
                assert_eq!(hear(person)?, Some(format!("{bob}: ahoy <b>&")));
            }
            bobs.send("/quit")?;
            assert_eq!(hear(&bobs)?, None, "he is let go");
            assert_eq!(bobs.end().map(|end| end.code()), Some(ws::CloseCode::NORMAL));
            assert_eq!(hear(&anns)?, Some(format!("{bob} has gone")));
            chat.signal("TERM");
            assert_eq!(hear(&anns)?, None);
            assert_eq!(anns.end().map(|end| end.code()), Some(ws::CloseCode::GOING_AWAY));
            Ok(chat)
        });
        let chat = talked.unwrap_or_else(|error| panic!("{name} on {backend}: {error}"));
        assert!(chat.end().0.success());
    }
}

#[test]
fn k5_events_go_on_where_the_client_was() {
    let mut server = Running::start("29_events", &["127.0.0.1:0"], "");
    let line = server.line();
    let address = line.strip_prefix("events on ").unwrap();
    let page = ask(address, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(page.contains("new EventSource"), "{page}");
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = b"GET /events HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 7\r\n\r\n";
    (&stream).write_all(request).unwrap();
    let lines = BufReader::new(&stream).lines().map(Result::unwrap);
    let fields: Vec<String> =
        lines.filter(|line| line.starts_with("data") || line.starts_with("id")).take(4).collect();
    assert_eq!(fields, ["id: 8", "data: tick 8", "id: 9", "data: tick 9"]);
    drop(stream);
    server.signal("KILL");
    server.end();
}

#[test]
fn j12_client_asks_a_server_of_its_own() {
    let told = run("31_client", &[]);
    assert_eq!(told, "200 OK you were sent here\n200 OK 6\n404 Not Found\n");
    let refused = run("31_client", &["http://127.0.0.1:1/"]);
    assert!(refused.starts_with("cannot connect to 127.0.0.1:1: connection refused"), "{refused}");
}

#[test]
fn j15_proxy_has_two_servers_answer_on_every_backend() {
    for backend in ["uring", "epoll", "poll", "select"] {
        let mut proxy = Running::start("32_proxy", &["127.0.0.1:0"], backend);
        let line = proxy.line();
        let address = line.strip_prefix("proxy on ").unwrap();
        let get = |path: &str| {
            ask(address, &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
        };
        for name in ["port", "starboard", "port"] {
            let told = get("/api/hello");
            let body = format!("\r\n\r\n{name} was asked for /hello by 127.0.0.1\n");
            assert!(told.ends_with(&body), "{backend}: {told}");
        }
        assert!(get("/").ends_with("ask for /api/hello\n"));
        proxy.signal("TERM");
        assert!(proxy.end().0.success(), "{backend}");
    }
}

#[test]
fn t9_router_of_axum_is_mounted_under_a_path() {
    for backend in ["uring", "epoll", "poll", "select"] {
        let mut server = Running::start("34_axum", &["127.0.0.1:0"], backend);
        let line = server.line();
        let address = line.strip_prefix("axum on ").unwrap();
        let get = |path: &str| {
            ask(address, &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
        };
        assert!(get("/").ends_with("below /api they are axum's\n"));
        assert!(get("/api/hello/ahab").ends_with("hello, ahab\n"));
        assert!(get("/api/slow").ends_with("that took a while\n"));
        assert!(get("/api/nothing").starts_with("HTTP/1.1 404"));
        let sum = ask(
            address,
            "POST /api/add HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 18\r\n\
             Content-Type: application/json\r\n\r\n{\"a\": 20, \"b\": 22}",
        );
        assert!(sum.ends_with("{\"sum\":42}"), "{sum}");
        server.signal("TERM");
        assert!(server.end().0.success());
    }
}

#[test]
fn m3_https_leads_there_and_has_a_new_certificate_while_it_serves() {
    use coracle::tls::{ClientSettings, ClientTls, Identity, Roots};
    let directory = std::env::temp_dir().join(format!("coracle-30-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (certificate, key) = (directory.join("a.pem"), directory.join("a.key"));
    let renew = || {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        Roots::identity(&Identity::from_files(&certificate, &key).unwrap()).unwrap()
    };
    let old = renew();
    let files = [certificate.to_str().unwrap(), key.to_str().unwrap()];
    let mut server = Running::start("30_tls", &["127.0.0.1:0", files[0], files[1]], "");
    let line = server.line();
    let (secure, plain) = line.strip_prefix("https on ").unwrap().split_once(", http on ").unwrap();
    let (secure, plain) = (secure.to_owned(), plain.to_owned());
    let told = ask(&plain, "GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let port = secure.rsplit_once(':').unwrap().1;
    assert!(told.contains(&format!("location: https://localhost:{port}/a\r\n")), "{told}");
    // A new client each time: one that comes back goes on with its session, whatever the certificate is now.
    let connect = |roots: &Roots| {
        let tls = ClientTls::new(ClientSettings::trusting(roots.clone())).unwrap();
        let stream = TcpStream::connect(&secure).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        tls.connect("localhost", stream)
    };
    let mut stream = connect(&old).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    assert!(told.contains("\r\n\r\nTls13, TLS13_"), "{told}");
    let new = renew();
    server.signal("HUP");
    assert_eq!(server.line(), "a new certificate, for new connections");
    assert!(connect(&new).is_ok() && connect(&old).is_err());
    std::fs::write(&key, "nothing").unwrap();
    server.signal("HUP");
    assert!(server.line().starts_with("the old certificate stays: "));
    assert!(connect(&new).is_ok());
    server.signal("TERM");
    assert!(server.end().0.success());
    std::fs::remove_dir_all(&directory).unwrap();
}

/// What is said next, if something is.
fn hear(ws: &ws::WebSocket) -> io::Result<Option<String>> {
    let heard = coracle::timeout(PATIENCE, || ws.recv())?;
    Ok(heard.map(|message| message.as_text().expect("text").to_owned()))
}

/// The servers of std, in coroutines and in threads: the same function, and the same conversation.
#[cfg(feature = "hook")]
#[test]
fn t3_chat_of_std_is_the_same_in_coroutines_and_in_threads() {
    let ways = ["uring", "epoll", "poll", "select"].map(|backend| (backend, "--coroutines"));
    for (backend, how) in ways.into_iter().chain([("", "--threads")]) {
        let mut chat = Running::start("23_hooked_chat", &["127.0.0.1:0", how], backend);
        let line = chat.line();
        let address =
            line.strip_prefix("chat on ").and_then(|rest| rest.split(',').next()).unwrap();
        assert!(line.ends_with(how.trim_start_matches('-')), "{line}");
        let join = || {
            let stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let name = stream.local_addr().unwrap().to_string();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            assert_eq!(lines.next().unwrap().unwrap(), format!("welcome, {name}"));
            (name, lines, stream)
        };
        let (ann, mut anns, mut ann_says) = join();
        let (bob, mut bobs, mut bob_says) = join();
        assert_eq!(anns.next().unwrap().unwrap(), format!("{bob} has come"));
        ann_says.write_all(b"ahoy\n").unwrap();
        let mut heard = bobs.next().unwrap().unwrap();
        if heard == format!("{ann} has come") {
            heard = bobs.next().unwrap().unwrap(); // he came before everybody was told of her
        }
        assert_eq!(heard, format!("{ann}: ahoy"));
        bob_says.write_all(b"/quit\n").unwrap();
        assert!(bobs.next().is_none(), "he is let go");
        assert_eq!(anns.next().unwrap().unwrap(), format!("{bob} has gone"));
    }
}

#[test]
fn t2_three_styles_serve_one_connection_on_every_backend() {
    for backend in ["uring", "epoll", "poll", "select"] {
        let mut inn = Running::start("15_three_styles", &["127.0.0.1:0"], backend);
        let line = inn.line();
        let mut stream = TcpStream::connect(line.strip_prefix("open on ").unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"soup\n").unwrap();
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).unwrap();
        assert_eq!(answer, "one soup, hot\n", "{backend}");

        // Each style had its part in it, one after the other, and all on one thread.
        let said: Vec<String> = (0..4).map(|_| inn.line()).collect();
        let (said, threads): (Vec<_>, Vec<_>) =
            said.iter().map(|line| line.rsplit_once("    ").expect("a thread")).unzip();
        let styles = [
            "callback  somebody wants soup",
            "coroutine orders soup",
            "future    has cooked soup",
            "coroutine serves soup",
        ];
        assert_eq!(said, styles, "{backend}");
        assert!(threads.iter().all(|thread| *thread == threads[0]), "{backend}: {threads:?}");
        inn.signal("TERM");
        assert!(inn.end().0.success(), "{backend}");
    }
}

#[test]
fn s16_chat_in_coroutines_lets_go_of_who_does_not_read() {
    let mut chat = Running::start("19_coroutine_chat", &["127.0.0.1:0"], "");
    let line = chat.line();
    let address = line.strip_prefix("chat on ").unwrap().to_owned();
    let join = || {
        let stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let name = stream.local_addr().unwrap();
        (name, BufReader::new(stream.try_clone().unwrap()).lines(), stream)
    };
    let (_, mut anns, mut ann_says) = join();
    assert!(anns.next().unwrap().unwrap().starts_with("welcome, "));
    let (lazy, mut lazys, _lazy_says) = join(); // and reads no more than this
    assert!(lazys.next().unwrap().unwrap().starts_with("welcome, "));
    assert_eq!(anns.next().unwrap().unwrap(), format!("{lazy} has come"));
    let speech = std::thread::spawn(move || {
        let line = [&[b'a'; 4000][..], b"\n"].concat();
        while ann_says.write_all(&line).is_ok() {} // to the end of the server
    });
    assert_eq!(anns.next().unwrap().unwrap(), format!("{lazy} has gone"));
    drop(chat);
    speech.join().unwrap();
}

#[test]
fn r3_proxy_in_coroutines_goes_both_ways_on_every_backend() {
    for backend in ["uring", "epoll", "poll", "select"] {
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = upstream.local_addr().unwrap().to_string();
        let mut proxy = Running::start("20_coroutine_proxy", &["127.0.0.1:0", &to], backend);
        let line = proxy.line();
        let address = line.strip_prefix("proxy on ").and_then(|rest| rest.split(',').next());
        let address = address.expect("it says where it listens");
        let pair = || {
            let client = TcpStream::connect(address).unwrap();
            let (server, _) = upstream.accept().unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            (client, server)
        };
        // Either side may be the first to have nothing more to say.
        let (client, server) = pair();
        for (one, other) in [(&client, &server), (&server, &client)] {
            say_all(one, b"a question, or an answer");
            assert_eq!(hear_all(other), b"a question, or an answer", "{backend}");
        }
        // Who is gone takes the other along.
        let (mut client, server) = pair();
        client.write_all(b"unread, so that it is a reset").unwrap();
        assert_eq!((&server).read(&mut [0]).unwrap(), 1);
        drop(server);
        assert!(!matches!(client.read(&mut [0]), Ok(1..)), "{backend}");
        proxy.signal("TERM");
        assert!(proxy.end().0.success(), "{backend}");
    }
}

fn say_all(mut stream: &TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
}

fn hear_all(mut stream: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn s56_crawler_finds_the_same_in_every_style_on_every_backend() {
    for backend in ["uring", "epoll", "poll", "select"] {
        let (status, output) = Running::start("21_crawler", &[], backend).end();
        assert!(status.success(), "{backend}: {status}: {output}");
        for style in ["callbacks", "coroutines", "futures"] {
            let (_, found) = output.split_once(&format!("in {style}:\n")).expect("every style");
            for (line, expected) in found.lines().zip([
                "  /         200, 238 bytes",
                "  /1        200, 38 bytes",
                "  /2        200, 38 bytes",
                "  /3        200, 38 bytes",
                "  /4        200, 38 bytes",
                "  /5        200, 38 bytes",
                "  /6        200, 38 bytes",
                "  /7        200, 38 bytes",
                "  /8        200, 38 bytes",
                "  /9        200, 44 bytes",
                "  /long     200, 105020 bytes",
                "  /missing  404, 0 bytes",
                "  /slow     too late",
                "  13 pages, 3 at a time",
                "  each was asked for once",
            ]) {
                assert_eq!(line, expected, "{style} on {backend}:\n{found}");
            }
        }
        assert!(output.ends_with("all have found the same\n"), "{backend}: {output}");
    }
}

#[test]
fn generators_feed_walk_and_average() {
    let output = run("13_generator", &[]);
    for line in [
        "2 * (3 + 4) - 10 / 4 = 11.5",
        "in order: [1, 2, 3, 5, 8, 9]",
        "the same in another shape: true",
        "the first that differs: Some((3, 4))",
        "6 makes the average 3",
    ] {
        assert!(output.lines().any(|said| said == line), "{line:?} is missing:\n{output}");
    }
    assert!(run("13_generator", &["(1"]).starts_with("(1: it ends too early\n"));
    assert!(run("13_generator", &["1 2"]).starts_with("1 2: 2 is not expected there\n"));
    assert!(run("13_generator", &["3 × 4"]).starts_with("3 × 4: '×' is not expected there\n"));
}

/// What a server says to a request, up to the end.
fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn r2_http_answers_on_every_backend() {
    for backend in ["uring", "epoll", "poll", "select"] {
        let mut server = Running::start("24_http", &["--listen", "127.0.0.1:0"], backend);
        let line = server.line();
        let address = line.strip_prefix("http on ").expect("it says where it listens");
        let get = |path: &str| ask(address, &format!("GET {path} HTTP/1.0\r\n\r\n"));
        assert!(get("/hello/J%C3%BCrgen").ends_with("\r\n\r\nhello, Jürgen\n"), "{backend}");
        assert!(get("/").ends_with("<h1>coracle</h1>"), "{backend}");
        assert!(get("/slow").ends_with("that took a while\n"), "{backend}");
        assert!(get("/ticks").ends_with("tick 4\ntick 5\n"), "{backend}");
        assert!(get("/nowhere").starts_with("HTTP/1.1 404 Not Found\r\n"), "{backend}");
        let post =
            "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\nahoy";
        let created = ask(address, post);
        assert!(created.starts_with("HTTP/1.1 201 Created\r\n") && created.ends_with("ahoy"));
        server.signal("TERM");
        assert!(server.end().0.success(), "{backend}");
    }
}

#[test]
fn r2_files_are_served_on_every_backend() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    for backend in ["uring", "epoll", "poll", "select"] {
        let options = ["--listen", "127.0.0.1:0", directory];
        let mut server = Running::start("25_files", &options, backend);
        let line = server.line();
        let address = line.strip_prefix("files on ").expect("it says where it listens");
        let get = |path: &str| ask(address, &format!("GET {path} HTTP/1.0\r\n\r\n"));
        assert!(get("/README.md").ends_with(include_str!("../examples/README.md")), "{backend}");
        assert!(get("/").contains("<a href=\"./25_files.rs\">25_files.rs</a>"), "{backend}");
        assert!(get("/api/time").contains("SystemTime"), "{backend}");
        assert!(get("/../Cargo.toml").starts_with("HTTP/1.1 400 "), "{backend}");
        server.signal("TERM");
        assert!(server.end().0.success(), "{backend}");
    }
}

#[test]
fn o1_scripts_answer_on_every_backend() {
    for backend in ["uring", "epoll", "poll", "select"] {
        let mut server = Running::start("33_cgi", &["--listen", "127.0.0.1:0"], backend);
        let line = server.line();
        let address = line.strip_prefix("scripts on ").expect("it says where it listens");
        let answer = ask(address, "GET /cgi-bin/hello.sh/world?a=b HTTP/1.0\r\n\r\n");
        let hello = "Hello, world: you come from 127.0.0.1 and ask \"a=b\".\n";
        assert!(answer.ends_with(hello), "{backend}: {answer}");
        let post = "POST /cgi-bin/hello.sh/x HTTP/1.0\r\nContent-Length: 5\r\n\r\nabcde";
        assert!(ask(address, post).contains("You have sent 5 bytes."), "{backend}");
        assert!(
            ask(address, "GET / HTTP/1.0\r\n\r\n").contains("/cgi-bin/hello.sh/world"),
            "{backend}"
        );
        server.signal("TERM");
        assert!(server.end().0.success(), "{backend}");
    }
}

#[test]
fn j9_todo_remembers_its_user_on_every_backend() {
    for backend in ["uring", "epoll", "poll", "select"] {
        let mut server = Running::start("26_todo", &["--listen", "127.0.0.1:0"], backend);
        let line = server.line();
        let address = line.strip_prefix("todo on ").expect("it says where it listens");
        let post = |path: &str, kind: &str, cookie: &str, body: &str| {
            let length = body.len();
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nCookie: {cookie}\r\n"
            );
            ask(
                address,
                &format!("{head}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"),
            )
        };
        let get = |path: &str, cookie: &str| {
            ask(address, &format!("GET {path} HTTP/1.0\r\nCookie: {cookie}\r\n\r\n"))
        };
        let form = "application/x-www-form-urlencoded";
        assert!(get("/api/todos", "").starts_with("HTTP/1.1 401 "), "{backend}");
        let answer = post("/log-in", form, "", "name=ahab");
        let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        let cookie = cookie.expect("a session").split(';').next().expect("a pair");
        post("/todos", form, cookie, "title=%3Cwhale%3E");
        let multipart = "multipart/form-data; boundary=b";
        let file = "--b\r\nContent-Disposition: form-data; name=\"list\"; filename=\"x\"\r\n\r\n\
            row\nsail\r\n--b--";
        assert!(post("/import", multipart, cookie, file).starts_with("HTTP/1.1 303 "), "{backend}");
        post("/todos/1/done", form, cookie, "");
        let list = get("/api/todos", cookie);
        assert!(list.contains(r#"[{"title":"<whale>","done":false},"#), "{list}");
        assert!(
            list.ends_with(r#"{"title":"row","done":true},{"title":"sail","done":false}]"#),
            "{list}"
        );
        let page = get("/", cookie);
        assert!(page.contains("&lt;whale&gt;") && page.contains("<s>row</s>"), "{page}");
        server.signal("TERM");
        assert!(server.end().0.success(), "{backend}");
    }
}

#[test]
fn r2_http_echo_tells_what_it_received_and_keeps_its_limits() {
    let options = [
        ["--listen", "127.0.0.1:0"],
        ["--limit-header-bytes", "500"],
        ["--limit-body-bytes", "10"],
        ["--header-timeout", "0.1"],
        ["--body-timeout", "0.1"],
        ["--idle-timeout", "0.2"],
        ["--threads", "2"],
    ]
    .concat();
    for backend in ["uring", "epoll", "poll", "select"] {
        let options = [&options[..], &["--backend", backend]].concat();
        let mut server = Running::start("http_echo", &options, "");
        let line = server.line();
        let address = line.strip_prefix("http_echo on ").expect("it says where it listens");
        let post = |target: &str, fields: &str| {
            format!("POST {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}")
        };
        let answer = ask(address, &post("/a?b", "Content-Length: 4\r\n\r\na\"\n\0"));
        let expected = "{\"method\":\"POST\",\"path\":\"/a\",\"query\":\"b\",\"version\":\"Http11\",\
            \"headers\":[[\"Host\",\"a\"],[\"Connection\",\"close\"],[\"Content-Length\",\"4\"]],\
            \"trailers\":[],\"body\":\"a\\\"\\u000a\\u0000\"}\n";
        assert!(answer.ends_with(expected), "{answer}");
        let chunks = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: v\r\n\r\n";
        assert!(ask(address, &post("/?raw", chunks)).ends_with("\r\n\r\nabc"));
        assert!(ask(address, &post("/", chunks)).contains("\"trailers\":[[\"T\",\"v\"]]"));
        for (request, status) in [
            (post("/", "Content-Length: 11\r\n\r\n"), "413"),
            (post("/", &format!("a: {}\r\n\r\n", "b".repeat(500))), "431"),
            (post("/", "half"), "408"),
            (post("/", "Content-Length: 4\r\n\r\nab"), "408"),
        ] {
            let answer = ask(address, &request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        }
        let idle = ask(address, "GET /?raw HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(idle.starts_with("HTTP/1.1 200 OK\r\n"), "kept, and closed when it was idle");
        server.signal("TERM");
        assert!(server.end().0.success(), "{backend}");
    }
    let (status, _) = Running::start("http_echo", &["--listne", "127.0.0.1:0"], "").end();
    assert!(!status.success(), "an option that is not one");
}

/// Runs an example that ends by itself, and gives what it printed.
fn run(name: &str, arguments: &[&str]) -> String {
    let (status, output) = Running::start(name, arguments, "").end();
    assert!(status.success(), "{name}: {status}:\n{output}");
    output
}

/// An example under way; killed when dropped.
struct Running {
    name: String,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// `backend` may be empty: the best there is.
    fn start(name: &str, arguments: &[&str], backend: &str) -> Running {
        let program = program(name);
        let mut command = Command::new(&program);
        command.args(arguments).env("CORACLE_BACKEND", backend);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("cannot run {}: {error}; cargo build --examples", program.display())
            });
        let output = BufReader::new(child.stdout.take().expect("it was piped"));
        Running { name: name.to_owned(), child, output }
    }

    /// The next line it prints, without its end. Whoever prints nothing is ended by the test's own limit.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("its output can be read");
        line.trim_end().to_owned()
    }

    fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &kill]).status().expect("there is a shell");
        assert!(status.success(), "{kill}: {status}");
    }

    /// Waits for its end; gives the status and what was printed since the last line read.
    fn end(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().expect("it is our child") {
                Some(status) => break status,
                None if Instant::now() > deadline => panic!("{} does not end", self.name),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("it prints text");
        (status, rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already, and then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where cargo has put an example.
fn program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("a running program has a path");
    let target = tests.ancestors().nth(2).expect("tests lie in TARGET/PROFILE/deps");
    target.join("examples").join(name)
}
