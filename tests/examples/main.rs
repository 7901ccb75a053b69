//! Every example runs, says what its page says it says, and ends.
//!
//! `cargo test` builds the examples beside the tests: `target/…/deps/examples-…` is this program, and
//! `target/…/examples/` is where they are.

mod running;
mod web;

use running::{PATIENCE, Running, run};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

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
