//! Which scripts are run, and what they are told.

use crate::harness::Harness;
use crate::scripts::Scripts;
use crate::talking::{ask, get, serve};
use coracle_http::{Cgi, Router};
use std::collections::BTreeMap;

fn mounted(cgi: Cgi) -> Router<()> {
    Router::new(()).mount("/cgi-bin", cgi)
}

const PRINT_ENVIRONMENT: &str = "printf 'Content-Type: text/plain\\n\\n'; pwd; env";

pub(crate) fn o1_script_is_told_what_the_rfc_says_and_nothing_else(h: &Harness) {
    let scripts = Scripts::new();
    scripts.sh("deep/a.sh", PRINT_ENVIRONMENT);
    let root = scripts.root();
    let answer = serve(h, mounted(Cgi::new(&root).unwrap()), |address, _| {
        let fields = "Proxy: evil\r\nX_Under: evil\r\nAuthorization: evil\r\nCookie: a=1\r\nCookie: b=2\r\n\
                      X-Empty:\r\nX-Quote: $(reboot) `x` ;'\"\r\n";
        ask(address, "GET", "/cgi-bin/deep/a.sh/in%20fo/?q=1&%41", fields)
    });
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/plain")));
    let (directory, environment) = answer.text().split_once('\n').unwrap();
    assert_eq!(directory, root.join("deep").to_str().unwrap());
    let mut told: BTreeMap<_, _> =
        environment.lines().filter_map(|line| line.split_once('=')).collect();
    assert!(!environment.contains("evil"), "{environment}");
    let port = told.remove("REMOTE_PORT").expect("a port");
    assert!(port.parse::<u16>().is_ok());
    let path = told.remove("PATH").expect("a path");
    assert!(path.contains("/usr/bin:"));
    // What the shell itself sets.
    for own in ["PWD", "OLDPWD", "SHLVL", "_"] {
        told.remove(own);
    }
    let file = root.join("deep/a.sh");
    let expected = [
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("HTTP_COOKIE", "a=1; b=2"),
        ("HTTP_HOST", "a:81"),
        ("HTTP_X_EMPTY", ""),
        ("HTTP_X_QUOTE", "$(reboot) `x` ;'\""),
        ("PATH_INFO", "/in fo/"),
        ("QUERY_STRING", "q=1&%41"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_SCHEME", "http"),
        ("REQUEST_URI", "/cgi-bin/deep/a.sh/in%20fo/?q=1&%41"),
        ("SCRIPT_FILENAME", file.to_str().unwrap()),
        ("SCRIPT_NAME", "/cgi-bin/deep/a.sh"),
        ("SERVER_NAME", "a"),
        ("SERVER_PORT", "81"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_SOFTWARE", concat!("coracle/", env!("CARGO_PKG_VERSION"))),
    ];
    assert_eq!(told, BTreeMap::from(expected));
}

pub(crate) fn o1_script_has_three_descriptors_and_a_group_of_its_own(h: &Harness) {
    let scripts = Scripts::of(
        "printf 'Content-Type: text/plain\\n\\n'\n\
         i=0; while [ $i -lt 1024 ]; do [ -e /proc/$$/fd/$i ] && printf '%s ' $i; i=$((i+1)); done; echo\n\
         cut -d' ' -f5 /proc/$$/stat; echo $$",
    );
    let answer = serve(h, mounted(scripts.cgi()), |address, _| {
        let _more = std::net::TcpStream::connect(address).unwrap();
        get(address, "/cgi-bin/a")
    });
    let lines: Vec<_> = answer.text().lines().collect();
    // dash reads its script by descriptor 10 or 11, bash by 255. Those that whoever has started this program left
    // open for everybody are in that process, too.
    let parent = format!("/proc/{}/fd", std::os::unix::process::parent_id());
    let left_open = |fd: &str| {
        let here = std::fs::read_link(format!("/proc/self/fd/{fd}"));
        here.is_ok_and(|here| {
            std::fs::read_link(format!("{parent}/{fd}")).is_ok_and(|it| it == here)
        })
    };
    let descriptors: Vec<_> = lines[0].trim_end().split(' ').collect();
    assert_eq!(descriptors[..3], ["0", "1", "2"]);
    for fd in &descriptors[3..] {
        let is_shells = ["10", "11", "255"].contains(fd);
        assert!(is_shells || left_open(fd), "{fd} of {descriptors:?} is ours");
    }
    assert_eq!(lines[1], lines[2], "its group has its number");
}

pub(crate) fn o1_what_is_no_script_is_not_run(h: &Harness) {
    let scripts = Scripts::of("echo Status: 200; echo");
    scripts.file("plain", "#!/bin/sh\necho Status: 200; echo\n", 0o644);
    scripts.file("unmarked", "echo Status: 200; echo; touch \"$BESIDE/shell\"\n", 0o755);
    scripts.file("nobody", "#!/nonexistent/program\n", 0o755);
    scripts.sh(".hidden", "echo Status: 200; echo");
    scripts.sh("directory/b", "echo Status: 200; echo");
    std::fs::copy(scripts.root().join("a"), scripts.beside().join("outside")).unwrap();
    std::os::unix::fs::symlink("../outside", scripts.root().join("out")).unwrap();
    std::os::unix::fs::symlink("directory/b", scripts.root().join("in")).unwrap();
    let said = serve(h, mounted(scripts.cgi()), |address, journal| {
        for (target, status) in [
            ("/cgi-bin/a", 200),
            ("/cgi-bin/in", 200),
            ("/cgi-bin/plain", 403),
            ("/cgi-bin/plain/x", 403),
            ("/cgi-bin/unmarked", 500),
            ("/cgi-bin/nobody", 500),
            ("/cgi-bin/.hidden", 404),
            ("/cgi-bin/directory", 404),
            ("/cgi-bin/directory/", 404),
            ("/cgi-bin/gone", 404),
            ("/cgi-bin/", 404),
            ("/cgi-bin", 404),
            ("/cgi-bin/out", 404),
            ("/cgi-bin/../outside", 400),
            ("/cgi-bin/%2e%2e/outside", 400),
            ("/cgi-bin/directory%2fb", 400),
            ("/cgi-bin/a%00", 400),
            ("/cgi-bin//a", 404),
        ] {
            assert_eq!(get(address, target).status, status, "{target}");
        }
        journal.text()
    });
    assert!(said.contains("chmod +x"), "{said}");
    assert!(said.contains("#!/bin/sh"), "{said}");
    assert!(!scripts.beside().join("shell").exists(), "no shell has run it");
}

pub(crate) fn o1_standard_error_is_logged_line_by_line(h: &Harness) {
    let scripts = Scripts::of(
        "echo first >&2; printf 'escape \\033[2J\\n' >&2; printf 'Content-Type: a/b\\n\\n'; printf last >&2\n\
         yes \"$(printf '%01000d' 0)\" | head -c 200000 >&2",
    );
    let said = serve(h, mounted(scripts.cgi()), |address, journal| {
        assert_eq!(get(address, "/cgi-bin/a").status, 200);
        journal.text()
    });
    let lines: Vec<_> = said.lines().filter(|line| line.contains("/scripts/a")).collect();
    assert!(lines[0].contains("WARN") && lines[0].contains("first"), "{said}");
    assert!(lines[1].contains(r"escape \u{1b}[2J"), "{said}");
    assert!(lines[2].contains("last"), "{said}");
    assert!(lines.last().unwrap().contains("says more"), "{:?}", lines.last());
    assert!(said.len() < 4 << 20);
}

pub(crate) fn o1_words_of_a_query_are_arguments_only_if_asked_for(h: &Harness) {
    let scripts =
        Scripts::of("printf 'Content-Type: a/b\\n\\n'; for a in \"$@\"; do echo \"<$a>\"; done");
    let app = Router::new(())
        .mount("/plain", scripts.cgi())
        .mount("/words", scripts.cgi().search_words(true));
    serve(h, app, |address, _| {
        assert_eq!(get(address, "/plain/a?-x+y").text(), "");
        assert_eq!(get(address, "/words/a?a%20b+c;d").text(), "<a b>\n<c;d>\n");
        assert_eq!(get(address, "/words/a?a=b+c").text(), "");
        assert_eq!(get(address, "/words/a?a%00+c").text(), "");
    });
}
