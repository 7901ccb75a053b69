//! FastCGI with a real php-fpm, over a Unix socket and over TCP.

use crate::harness::Harness;
use crate::scripts::{Scripts, eventually};
use crate::talking::{ask, connect, get, pattern, post, rest, serve, talk};
use coracle_http::FastCgi;
use coracle_http::files::Files;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A php-fpm of this case; ended with it.
struct Fpm {
    child: Child,
    addresses: [String; 2],
}

impl Drop for Fpm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where php-fpm is. Where there is none, the case is left out, and says so; not where continuous integration is.
fn find() -> Option<PathBuf> {
    let found =
        ["/usr/sbin", "/usr/local/sbin"].iter().filter_map(|dir| std::fs::read_dir(dir).ok());
    let mut found = found.flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let fpm = found.find(|path| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"php-fpm"))
    });
    if fpm.is_none() {
        assert!(std::env::var_os("CI").is_none(), "php-fpm is missing: apt-get install php-fpm");
        eprintln!("SKIPPED: there is no php-fpm here; apt-get install php-fpm");
    }
    fpm
}

fn start(scripts: &Scripts) -> Option<Fpm> {
    let program = find()?;
    let (socket, log) = (scripts.beside().join("fpm.sock"), scripts.beside().join("fpm.log"));
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let pool = |name: &str, listen: &str| {
        format!(
            "[{name}]\nlisten = {listen}\npm = static\npm.max_children = 4\nclear_env = yes\n\
             user = root\ngroup = root\nphp_admin_value[memory_limit] = 256M\n\
             php_admin_value[post_max_size] = 64M\nphp_admin_flag[log_errors] = on\n\
             php_admin_value[output_buffering] = 0\n"
        )
    };
    let config = format!(
        "[global]\nerror_log = {}\ndaemonize = no\n{}{}",
        log.display(),
        pool("unix", socket.to_str().unwrap()),
        pool("tcp", &format!("127.0.0.1:{port}")),
    );
    let path = scripts.beside().join("fpm.conf");
    std::fs::write(&path, config).unwrap();
    let child = Command::new(program)
        .args(["--nodaemonize", "--allow-to-run-as-root", "--fpm-config"])
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("php-fpm starts");
    eventually("php-fpm listens", || {
        socket.exists() && std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    Some(Fpm {
        child,
        addresses: [format!("unix:{}", socket.display()), format!("127.0.0.1:{port}")],
    })
}

pub(crate) fn o2_php_answers_and_is_told(h: &Harness) {
    let scripts = Scripts::new();
    scripts.file(
        "index.php",
        "<?php foreach (['SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'REQUEST_METHOD', 'SCRIPT_FILENAME', \
         'DOCUMENT_ROOT', 'REMOTE_ADDR', 'HTTP_X_A', 'HTTP_PROXY'] as $n) \
         echo $n, '=', $_SERVER[$n] ?? '-', \"\\n\";",
        0o644,
    );
    scripts.file(
        "status.php",
        "<?php http_response_code(418); header('X-Own: 1'); echo 'tea';",
        0o644,
    );
    scripts.file("away.php", "<?php header('Location: https://example.org/');", 0o644);
    let Some(fpm) = start(&scripts) else { return };
    for server in &fpm.addresses {
        let app = FastCgi::new(server, scripts.root()).unwrap().mounted_at("/app");
        let root = scripts.root();
        serve(h, app, move |address, _| {
            let root = root.to_str().unwrap();
            let answer =
                ask(address, "GET", "/app/index.php/in/fo?a=b", "X-A: b\r\nProxy: evil\r\n");
            assert!(answer.header("content-type").unwrap().starts_with("text/html"));
            assert_eq!(
                answer.text(),
                format!(
                    "SCRIPT_NAME=/app/index.php\nPATH_INFO=/in/fo\nQUERY_STRING=a=b\nREQUEST_METHOD=GET\n\
                     SCRIPT_FILENAME={root}/index.php\nDOCUMENT_ROOT={root}\nREMOTE_ADDR=127.0.0.1\n\
                     HTTP_X_A=b\nHTTP_PROXY=-\n"
                )
            );
            assert!(get(address, "/app/").text().contains("SCRIPT_NAME=/app/index.php\n"));
            let answer = get(address, "/app?a=b");
            assert_eq!((answer.status, answer.header("location")), (301, Some("/app/?a=b")));
            let answer = get(address, "/app/status.php");
            assert_eq!(
                (answer.status, answer.header("x-own"), answer.text()),
                (418, Some("1"), "tea")
            );
            let answer = get(address, "/app/away.php");
            assert_eq!(
                (answer.status, answer.header("location")),
                (302, Some("https://example.org/"))
            );
            for _ in 0..20 {
                assert_eq!(get(address, "/app/status.php").status, 418); // more often than it has processes
            }
        });
    }
}

pub(crate) fn o2_php_takes_and_gives_long_bodies(h: &Harness) {
    const LONG: usize = 8 << 20;
    let scripts = Scripts::new();
    scripts.file(
        "echo.php",
        "<?php header('Content-Type: a/b'); $in = fopen('php://input', 'rb'); fpassthru($in);",
        0o644,
    );
    scripts.file("post.php", "<?php echo $_POST['a'], ' ', strlen($_POST['b']);", 0o644);
    let Some(fpm) = start(&scripts) else { return };
    for server in &fpm.addresses {
        let app = FastCgi::new(server, scripts.root()).unwrap().limit_body_bytes(LONG as u64);
        serve(h, app, |address, _| {
            let body = pattern(LONG);
            let stream = connect(address);
            let mut writer = stream.try_clone().unwrap();
            let sent = body.clone();
            let sending = std::thread::spawn(move || {
                writer.write_all(post("/echo.php", LONG).as_bytes()).unwrap();
                writer.write_all(&sent).unwrap();
            });
            let answer = rest(stream);
            sending.join().unwrap();
            assert!(answer.whole && answer.body == body, "{} bytes came back", answer.body.len());
            let form = format!("a=b&b={}", "x".repeat(100_000));
            let head = post("/post.php", form.len());
            let head = head
                .replace("Host: a", "Host: a\r\nContent-Type: application/x-www-form-urlencoded");
            assert_eq!(talk(address, head + &form).text(), "b 100000");
        });
    }
}

pub(crate) fn o2_php_errors_are_logged_and_tricks_are_404(h: &Harness) {
    let scripts = Scripts::new();
    scripts.file("index.php", "<?php echo 'index';", 0o644);
    scripts.file("error.php", "<?php error_log('something is wrong'); echo 'fine';", 0o644);
    scripts.file("photo.jpg", "<?php echo 'run';", 0o644);
    std::fs::write(scripts.beside().join("secret.php"), "<?php echo 'run';").unwrap();
    std::os::unix::fs::symlink("../secret.php", scripts.root().join("out.php")).unwrap();
    let Some(fpm) = start(&scripts) else { return };
    let files = Files::new(scripts.root()).unwrap();
    let app = FastCgi::new(&fpm.addresses[0], scripts.root()).unwrap().fallback(files);
    serve(h, app, |address, journal| {
        assert_eq!(get(address, "/error.php").text(), "fine");
        assert!(journal.text().contains("something is wrong"), "{}", journal.text());
        assert_eq!(get(address, "/photo.jpg").text(), "<?php echo 'run';", "it is a photo");
        for (target, status) in [
            ("/photo.jpg/x.php", 404),
            ("/photo.jpg/.php", 404),
            ("/photo.jpg%00.php", 400),
            ("/index.PHP", 404),
            ("/out.php", 404),
            ("/../secret.php", 400),
            ("/gone.php", 404),
        ] {
            let answer = get(address, target);
            assert_eq!(answer.status, status, "{target}");
            assert!(!answer.text().contains("run"), "{target}");
        }
    });
}
