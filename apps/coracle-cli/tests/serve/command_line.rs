//! The command line of `serve`: what it takes, and what it says to what it does not.

use crate::client::{Dir, command, get, serve, serve_dir};
use crate::program::{Program, coracle, run_to_the_end};
use coracle::demux::Processors;
use std::collections::BTreeSet;
use std::net::TcpListener;

#[test]
fn r2_without_arguments_it_serves_the_current_directory() {
    // The test needs the port; somebody else may have it.
    match TcpListener::bind("127.0.0.1:8080") {
        Ok(listener) => drop(listener),
        Err(error) => {
            eprintln!("SKIPPED: port 8080 is not free: {error}");
            return;
        }
    }
    let dir = Dir::with(&[("index.html", "ahoy")]);
    let mut command = coracle();
    command.current_dir(dir.path());
    let server = Program::run(command);
    assert_eq!(server.address, "127.0.0.1:8080");
    assert_eq!(get(&server, "/").text(), "ahoy");
    let output = server.end();
    assert!(output.status.success());
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        told,
        "look at it: http://127.0.0.1:8080/; stop it: Ctrl-C\ncoracle serve: stopped\n"
    );
}

#[test]
fn q1_port_in_use_is_an_error_that_names_address_and_reason() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run_to_the_end(coracle().args(["serve", "--listen", &address]));
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let expected = format!(
        "coracle: cannot listen on {address}: address already in use (another program listens there); \
         choose another with --listen"
    );
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn q1_second_server_on_the_same_port_is_refused() {
    let dir = Dir::with(&[("index.html", "first")]);
    let first = serve_dir("epoll", &dir, &[]);
    let output =
        run_to_the_end(coracle().args(["serve", "--threads", "2", "--listen", &first.address]));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("address already in use"));
    (0..10).for_each(|_| assert_eq!(get(&first, "/").text(), "first"));
}

#[test]
fn q1_what_makes_no_sense_is_an_error_that_says_so() {
    let dir = Dir::with(&[("file", "")]);
    let (path, file, none) = (dir.path().display(), dir.file("file"), dir.file("none"));
    let (file, none) = (file.display(), none.display());
    for (arguments, code, expected) in [
        (
            format!("{none}"),
            1,
            format!("coracle: cannot serve the directory {none}: No such file or directory"),
        ),
        (
            format!("{file}"),
            1,
            format!("coracle: cannot serve the directory {file}: Not a directory"),
        ),
        (
            format!("--error-page 404={none}"),
            1,
            format!("coracle: cannot read the error page {none}: No such file"),
        ),
        ("--error-page 404".into(), 2, "write it as 404=FILE".into()),
        (
            "--error-page 200=x".into(),
            2,
            "\"200\" is no status of an error: those are 400 to 599".into(),
        ),
        ("--hidden maybe".into(), 2, "[possible values: hide, well-known, show]".into()),
        ("--symlinks maybe".into(), 2, "[possible values: inside, never, anywhere]".into()),
        ("--access-log-format xml".into(), 2, "[possible values: common, combined, json]".into()),
        ("--access-log-format json".into(), 1, "nothing says where: add --access-log".into()),
        (
            format!("--access-log {path}"),
            1,
            "it is a directory (to serve it, and log to standard output".into(),
        ),
        (format!("--access-log {none}/log"), 1, format!("there is no directory {none}")),
        ("--limit-connections-per-address 0".into(), 2, "0 is not in 1..".into()),
        (
            "--cache-control \u{1}".into(),
            1,
            "coracle: --cache-control: cannot send the header".into(),
        ),
        (
            "--cgi-dir tools=scripts".into(),
            2,
            "\"tools\" is no path, which begins with a slash, and \"tools=scripts\" is no directory: write \
             it as /tools=DIR or DIR"
                .into(),
        ),
        (
            "--cgi-dir /tools=".into(),
            2,
            "there is no directory behind the `=`: write it as /tools=DIR".into(),
        ),
        ("--cgi-dir=".into(), 2, "there is no directory: write it as DIR or /tools=DIR".into()),
        ("--cgi-dir /a%62=x".into(), 2, "is no path without escapes: write it as /tools=DIR".into()),
        ("--listen nowhere".into(), 1, "cannot read \"nowhere\" as an address".into()),
        ("--lisen :80".into(), 2, "a similar argument exists: '--listen'".into()),
    ] {
        let mut command = coracle();
        command.current_dir(dir.path()).arg("serve").args(arguments.split(' '));
        if !arguments.contains("--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let output = run_to_the_end(&mut command);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(code), 0),
            "{arguments}: {text}"
        );
        assert!(text.contains(&expected), "{arguments}: {text}");
    }
}

#[test]
fn g4_loops_are_pinned_as_the_command_line_or_the_configuration_says() {
    let dir = Dir::new();
    dir.write("index.html", "hello");
    dir.write("coracle.toml", "pin_threads = true\n[site]\ndirectory = \".\"\n");
    let config = dir.file("coracle.toml");
    for options in [&["--pin-threads"][..], &["--config", config.to_str().unwrap()]] {
        let server = serve("epoll", options);
        assert_eq!(get(&server, "/").status, 200);
        let cores = Processors::of_this_thread().unwrap().numbers();
        let first_two: BTreeSet<String> = cores.iter().take(2).map(usize::to_string).collect();
        assert_eq!(server.bound_to(), first_two, "{options:?}");
    }
}

#[test]
fn q1_help_tells_of_every_option() {
    let output = run_to_the_end(coracle().args(["serve", "--help"]));
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for option in [
        "[DIR]",
        "--config",
        "--listen",
        "--backend",
        "--threads",
        "--pin-threads",
        "--placement",
        "--processes",
        "--drain",
        "--open",
        "--listing",
        "--hidden",
        "--symlinks",
        "--cache-control",
        "--compress",
        "--error-page",
        "--access-log",
        "--access-log-format",
        "--request-ids",
        "--limit-connections-per-address",
        "SIGHUP",
    ] {
        assert!(text.contains(option), "{option}: {text}");
    }
}

#[test]
fn q1_configuration_among_the_files_is_warned_of() {
    let dir = Dir::with(&[
        ("site/coracle.toml", "[site]\n"),
        ("coracle.toml", "[site]\ndirectory = \"site\"\n"),
    ]);
    for (config, warned) in [("site/coracle.toml", true), ("coracle.toml", false)] {
        let (config, site) = (dir.file(config), dir.file("site"));
        let server =
            serve("epoll", &[site.to_str().unwrap(), "--config", config.to_str().unwrap()]);
        assert_eq!(get(&server, "/none").status, 404);
        let log = String::from_utf8_lossy(&server.end().stderr).into_owned();
        assert_eq!(log.contains("which is served: everybody can read it"), warned, "{log}");
    }
}

#[test]
fn q1_configuration_beside_files_that_nobody_is_shown_is_not_warned_of() {
    let gateway =
        "[[site.fastcgi]]\npath = \"/\"\ndirectory = \"php\"\naddress = \"127.0.0.1:1\"\n";
    let proxy = "[[proxy]]\npath = \"/\"\nto = [\"http://127.0.0.1:1\"]\n";
    let in_php = "[[site.fastcgi]]\npath = \"/\"\ndirectory = \".\"\naddress = \"127.0.0.1:1\"\n";
    let shown = format!("{in_php}files = true\n");
    for (config, warned) in [(gateway, false), (proxy, false), (in_php, false), (&shown, true)] {
        let dir = Dir::with(&[("coracle.toml", config), ("php/index.php", "")]);
        let config_file = dir.file("coracle.toml");
        let mut command = command("epoll", &["--config", config_file.to_str().unwrap()]);
        command.current_dir(dir.path());
        let log = String::from_utf8_lossy(&Program::run(command).end().stderr).into_owned();
        assert_eq!(log.contains("which is served: everybody can read it"), warned, "{config}{log}");
    }
}
