//! Scripts below a path: on the command line, and in the configuration.

use crate::client::{Dir, ask, get, serve};
use crate::program::{Program, coracle, log_of, run_to_the_end};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

const HELLO: &str = "#!/bin/sh\n\
    printf 'Content-Type: text/plain\\n\\n%s %s %s' $SCRIPT_NAME $PATH_INFO $OWN; echo ahoy >&2\n";

/// A site, and a script that is not in it.
fn dir(config: &str) -> Dir {
    let dir =
        Dir::with(&[("site/index.html", "home"), ("scripts/hello", HELLO), ("c.toml", config)]);
    fs::set_permissions(dir.file("scripts/hello"), Permissions::from_mode(0o755)).unwrap();
    dir.write("scripts/plain", HELLO);
    dir
}

/// What a script says, which is short: it comes as one chunk.
fn said(server: &Program, path: &str) -> String {
    let answer = get(server, path);
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    answer.text().split("\r\n").nth(1).unwrap().to_owned()
}

pub(crate) fn o1_scripts_of_a_directory_answer(backend: &str) {
    let dir = dir("");
    let (site, scripts) = (dir.file("site"), dir.file("scripts"));
    let tools = format!("/tools={}", scripts.display());
    let arguments =
        [site.to_str().unwrap(), "--cgi-dir", scripts.to_str().unwrap(), "--cgi-dir", &tools];
    let server = serve(backend, &arguments);
    assert_eq!(get(&server, "/").text(), "home");
    assert_eq!(said(&server, "/cgi-bin/hello/a"), "/cgi-bin/hello /a ");
    assert_eq!(said(&server, "/tools/hello/a"), "/tools/hello /a ");
    for (path, status) in [
        ("/cgi-bin/plain", 403),
        ("/cgi-bin/gone", 404),
        ("/cgi-bin/", 404),
        ("/cgi-bin", 404),
        ("/cgi-bin/../scripts/hello", 400),
        ("/cgi-binary/hello", 404),
        ("/hello", 404),
    ] {
        assert_eq!(get(&server, path).status, status, "{path}");
    }
    let log = log_of(&server.end());
    assert!(log.contains("ahoy") && log.contains("chmod +x"), "{log}");
}

pub(crate) fn o1_scripts_of_the_configuration_answer(backend: &str) {
    let dir = dir("[site]\ndirectory = \"site\"\n\
                   [[site.cgi]]\npath = \"/run/\"\ndirectory = \"scripts\"\ntimeout_seconds = 20\n\
                   limit_processes = 2\nvariables = { OWN = \"own\" }\n");
    let config = dir.file("c.toml");
    let server = serve(backend, &["--config", config.to_str().unwrap()]);
    assert_eq!(said(&server, "/run/hello/x"), "/run/hello /x own");
    let answer = ask(&server, "POST", "/run/hello", "Content-Length: 0\r\n");
    assert_eq!(answer.status, 200);
    assert_eq!(get(&server, "/").text(), "home");
}

/// Answers each request in the same way, whatever it is.
fn answer(listener: &UnixListener) -> std::io::Result<()> {
    for stream in listener.incoming() {
        let mut stream = stream?;
        let mut seen = Vec::new();
        while !seen.ends_with(&[1, 5, 0, 1, 0, 0, 0, 0]) {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            seen.push(byte[0]);
        }
        let text = b"Content-Type: a/b\n\nfine";
        stream.write_all(&[1, 6, 0, 1, 0, text.len() as u8, 0, 0])?;
        stream.write_all(text)?;
        stream.write_all(&[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
    }
    Ok(())
}

pub(crate) fn o2_fastcgi_of_the_configuration_answers(backend: &str) {
    let dir = dir("");
    dir.write("php/index.php", "source");
    dir.write("php/style.css", "css");
    let socket = dir.file("socket");
    let config = format!(
        "[site]\ndirectory = \"site\"\n\
         [[site.fastcgi]]\npath = \"/app\"\ndirectory = \"php\"\naddress = \"unix:{}\"\nfiles = true\n",
        socket.display()
    );
    dir.write("c.toml", config);
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || answer(&listener));
    let config = dir.file("c.toml");
    let server = serve(backend, &["--config", config.to_str().unwrap()]);
    assert_eq!(said(&server, "/app/index.php"), "fine");
    assert_eq!(get(&server, "/app/style.css").text(), "css");
    assert_eq!(get(&server, "/app/style.css/x.php").status, 404);
    assert_eq!(get(&server, "/").text(), "home");
}

pub(crate) fn o1_source_is_not_shown_however_the_path_is_escaped(backend: &str) {
    let dir = dir("");
    let socket = dir.file("socket");
    dir.write("app/config.php", "source");
    let config = format!(
        "[site]\ndirectory = \".\"\n[[site.cgi]]\npath = \"/scripts\"\ndirectory = \"scripts\"\n\
         [[site.fastcgi]]\npath = \"/app\"\ndirectory = \"app\"\naddress = \"unix:{}\"\nfiles = true\n",
        socket.display()
    );
    dir.write("c.toml", config);
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || answer(&listener));
    let config = dir.file("c.toml");
    let server = serve(backend, &["--config", config.to_str().unwrap()]);
    assert_eq!(said(&server, "/scripts/hello"), "/scripts/hello  ");
    assert_eq!(said(&server, "/app/config.php"), "fine");
    for path in [
        "/%73cripts/hello",
        "/script%73/hell%6f",
        "/%61pp/config.php",
        "/a%70p/config.ph%70",
        "/%61pp%2fconfig.php",
        "//app/config.php",
        "/./app/config.php",
    ] {
        let answer = get(&server, path);
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.status);
        let text = answer.text();
        assert!(!text.contains("source") && !text.contains("#!"), "{path}: {text}");
    }
}

#[test]
fn o1_scripts_whose_source_would_be_shown_are_refused() {
    let dir =
        dir("[site]\ndirectory = \".\"\n[[site.cgi]]\npath = \"/run\"\ndirectory = \"scripts\"\n");
    let output = run_to_the_end(coracle().args(["check", "--config"]).arg(dir.file("c.toml")));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && told.contains("5:13: ") && told.contains("path = \"/scripts\""),
        "{told}"
    );
    let mut command = coracle();
    command.args(["serve", "--cgi-dir"]).arg(dir.file("scripts")).arg(dir.path());
    let output = run_to_the_end(&mut command);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("would show their source"),
        "{output:?}"
    );
}

#[test]
fn o1_source_is_shown_by_whoever_serves_the_files() {
    let config = |files: bool| {
        format!(
            "[site]\ndirectory = \".\"\n[[site.cgi]]\npath = \"/run\"\ndirectory = \"scripts\"\n\
             [[site.fastcgi]]\npath = \"/\"\ndirectory = \".\"\naddress = \"127.0.0.1:1\"\nfiles = {files}\n"
        )
    };
    // FastCGI has all other paths, and nothing is left for the site; unless it serves files, too.
    for (files, refused) in [(false, false), (true, true)] {
        let dir = dir(&config(files));
        let output = run_to_the_end(coracle().args(["check", "--config"]).arg(dir.file("c.toml")));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(told.contains("would show their source at /scripts/"), refused, "{told}");
        assert_eq!(output.status.success(), !refused, "{told}");
    }
}

#[test]
fn o1_who_answers_is_whoever_has_the_longest_path() {
    let cgi = |path: &str, directory: &str| {
        format!("[[site.cgi]]\npath = \"{path}\"\ndirectory = \"{directory}\"\n")
    };
    let fastcgi = |path: &str, directory: &str, files: bool| {
        format!(
            "[[site.fastcgi]]\npath = \"{path}\"\ndirectory = \"{directory}\"\n\
             address = \"127.0.0.1:1\"\nfiles = {files}\n"
        )
    };
    for (tables, shown_at) in [
        (cgi("/", ".") + &fastcgi("/php", ".", true), Some("/php/")),
        (cgi("/", ".") + &fastcgi("/php", ".", false), None),
        (
            cgi("/scripts", "scripts") + &fastcgi("/scripts/pub", ".", true),
            Some("/scripts/pub/scripts/"),
        ),
        // Somebody else has the path where the site would show them.
        (cgi("/run", "site/cgi") + &fastcgi("/cgi", "scripts", false), None),
        (cgi("/run", "site/cgi") + &fastcgi("/cgi", "scripts", true), None),
        // FastCGI shows no script of FastCGI.
        (fastcgi("/", ".", true) + &fastcgi("/php", ".", true), None),
    ] {
        let dir = dir(&format!("[site]\ndirectory = \"site\"\n{tables}"));
        dir.write("site/cgi/hello", HELLO);
        let output = run_to_the_end(coracle().args(["check", "--config"]).arg(dir.file("c.toml")));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = shown_at.map(|path| format!("would show their source at {path}: "));
        assert!(text.as_ref().is_none_or(|text| told.contains(text)), "{tables}: {told}");
        assert_eq!(output.status.success(), text.is_none(), "{tables}: {told}");
    }
}

#[test]
fn o1_mistakes_in_tables_of_scripts_are_told() {
    for (text, expected) in [
        ("[[site.cgi]]\npath = \"/a\"", "1:1: the key `directory` is missing here"),
        ("[[site.cgi]]\npath = \"a\"\ndirectory = \"scripts\"", "2:8: a path begins with a slash"),
        ("[[site.cgi]]\npath = \"/a\"\ndirectory = \"gone\"", "3:13: cannot run the scripts of "),
        (
            "[[site.cgi]]\npath = \"/a\"\ndirectory = \"scripts\"\nlimit_processes = 0",
            "4:19: 0 is too small",
        ),
        (
            "[[site.fastcgi]]\npath = \"/a\"\ndirectory = \"scripts\"\naddress = \"here\"",
            "4:11: \"here\" is no address of a FastCGI server",
        ),
    ] {
        let dir = dir(text);
        let output = run_to_the_end(coracle().args(["check", "--config"]).arg(dir.file("c.toml")));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(expected), "{text}: {told}");
    }
}
