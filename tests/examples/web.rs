//! Those that speak HTTP, WebSocket and TLS.

use crate::running::{PATIENCE, Running, run};
use coracle::http::ws;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

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
fn j12_https_client_is_told_whom_it_cannot_trust() {
    let told = run("35_https_client", &[]);
    let lines: Vec<&str> = told.lines().collect();
    let [welcome, stranger] = lines[..] else { panic!("{told}") };
    assert_eq!(welcome, "200 OK ahoy, by Tls13");
    assert!(stranger.contains("nobody who is trusted has signed it"), "{told}");
    let file = std::env::temp_dir().join(format!("coracle-35-{}.pem", std::process::id()));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&file, made.cert.pem()).unwrap();
    let arguments = ["--roots", file.to_str().unwrap(), "https://127.0.0.1:1/"];
    let refused = run("35_https_client", &arguments);
    std::fs::remove_file(&file).unwrap();
    assert!(refused.starts_with("no answer: cannot connect to 127.0.0.1:1"), "{refused}");
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
        assert!(get("/README.md").ends_with(include_str!("../../examples/README.md")), "{backend}");
        assert!(get("/").contains("<a href=\"./25_files.rs\">25_files.rs</a>"), "{backend}");
        assert!(get("/api/time").contains("SystemTime"), "{backend}");
        assert!(get("/../Cargo.toml").starts_with("HTTP/1.1 400 "), "{backend}");
        server.signal("TERM");
        assert!(server.end().0.success(), "{backend}");
    }
}

#[test]
fn o1_scripts_answer_on_every_backend() {
    let backends = ["uring", "epoll", "poll", "select"].into_iter();
    let options = [&["127.0.0.1:0"][..], &["--listen", "127.0.0.1:0"]];
    for (backend, options) in backends.zip(options.into_iter().cycle()) {
        let mut server = Running::start("33_cgi", options, backend);
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
