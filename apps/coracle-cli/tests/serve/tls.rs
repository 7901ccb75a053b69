//! HTTPS, as curl and openssl see it, which are not ours.

use crate::client::{Dir, answer_of, command, raw, serve};
use crate::program::{Program, eventually, pattern, under};
use crate::reload::logging_to;
use coracle::tls::Identity;
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

/// Whether a tool is there. In continuous integration all are.
pub(crate) fn has(tool: &str) -> bool {
    if Command::new(tool).arg("version").stdin(Stdio::null()).output().is_ok() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "{tool} is not installed: apt-get install {tool}");
    eprintln!("SKIPPED: {tool} is not installed");
    false
}

/// Has openssl make something, in a directory.
fn openssl(dir: &Dir, arguments: &str) {
    let mut openssl = Command::new("openssl");
    openssl.args(arguments.split_whitespace()).current_dir(dir.file("."));
    let output = openssl.stdin(Stdio::null()).output().expect("openssl starts");
    assert!(
        output.status.success(),
        "openssl {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A certificate of its own for a name, in NAME.pem, and NAME.key.
pub(crate) fn make(dir: &Dir, file: &str, name: &str) {
    openssl(
        dir,
        &format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN={name} \
             -addext subjectAltName=DNS:{name} -addext basicConstraints=critical,CA:FALSE \
             -keyout {file}.key -out {file}.pem"
        ),
    );
}

/// What a site with certificates for two hosts consists of.
fn site() -> Dir {
    let dir = Dir::with(&[("site/index.html", "<h1>ahoy</h1>")]);
    make(&dir, "a", "a.example");
    make(&dir, "b", "b.example");
    dir
}

/// Asks for a URL of `host`, which is our server.
fn curl(server: &Program, host: &str, options: &[&str], path: &str) -> Output {
    let port = server.address.rsplit(':').next().unwrap();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "60"]).args(options);
    curl.args(["--resolve", &format!("{host}:{port}:127.0.0.1")]);
    curl.arg(format!("https://{host}:{port}{path}")).output().expect("curl starts")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn path(dir: &Dir, file: &str) -> String {
    dir.file(file).to_str().unwrap().to_owned()
}

pub(crate) fn m1_curl_is_served_by_both_versions(backend: &str) {
    if !has("curl") || !has("openssl") {
        return;
    }
    let dir = site();
    dir.write(
        "site/large",
        pattern(3_000_000).iter().map(|byte| char::from(b'a' + byte % 26)).collect::<String>(),
    );
    let (certificate, key) = (path(&dir, "a.pem"), path(&dir, "a.key"));
    let server =
        serve(backend, &[&path(&dir, "site"), "--tls-cert", &certificate, "--tls-key", &key]);
    let trust = ["--cacert", &certificate];
    for version in [&["--tlsv1.3"][..], &["--tlsv1.2", "--tls-max", "1.2"]] {
        let options = [&trust[..], version].concat();
        assert_eq!(text(&curl(&server, "a.example", &options, "/")), "<h1>ahoy</h1>");
        let large = curl(&server, "a.example", &options, "/large");
        assert!(text(&large) == fs::read_to_string(dir.file("site/large")).unwrap());
        let part = [&options[..], &["--range", "1000000-1000009"]].concat();
        assert_eq!(text(&curl(&server, "a.example", &part, "/large")).len(), 10);
    }
    let old = ["--tlsv1.0", "--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0"];
    assert!(!curl(&server, "a.example", &[&trust[..], &old].concat(), "/").status.success());
    assert!(!curl(&server, "a.example", &[], "/").status.success(), "nobody trusts it");
    // Two requests on one connection.
    let port = server.address.rsplit(':').next().unwrap();
    let again = format!("https://a.example:{port}/");
    let twice = [&trust[..], &["--write-out", "%{num_connects}", &again]].concat();
    assert_eq!(text(&curl(&server, "a.example", &twice, "/")), "<h1>ahoy</h1>1<h1>ahoy</h1>0");
    // HTTP where HTTPS is spoken.
    let answer = answer_of(&raw(&server, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(
        (answer.status, &*answer.text()),
        (400, "this port speaks HTTPS: use https:// in the URL\n")
    );
    let output = server.end();
    assert!(output.status.success());
}

pub(crate) fn m5_self_signed_certificate_is_made(backend: &str) {
    if !has("curl") {
        return;
    }
    let dir = Dir::with(&[("index.html", "<h1>ahoy</h1>")]);
    let server = serve(backend, &[&path(&dir, "."), "--self-signed"]);
    assert_eq!(text(&curl(&server, "localhost", &["--insecure"], "/")), "<h1>ahoy</h1>");
    assert!(!curl(&server, "localhost", &[], "/").status.success());
    let output = server.end();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("look at it: https://127.0.0.1:"), "{said}");
}

pub(crate) fn m1_openssl_is_refused_a_renegotiation(backend: &str) {
    if !has("openssl") {
        return;
    }
    let dir = site();
    let server = serve(
        backend,
        &[
            &path(&dir, "site"),
            "--tls-cert",
            &path(&dir, "a.pem"),
            "--tls-key",
            &path(&dir, "a.key"),
        ],
    );
    let ask = |options: &[&str], input: &str| {
        let mut command = Command::new("openssl");
        command
            .args(["s_client", "-connect", &server.address, "-servername", "a.example"])
            .args(options);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    };
    let told = ask(&["-tls1_2"], "R\n");
    assert!(told.contains("no renegotiation"), "{told}");
    let told = ask(&["-tls1_2", "-reconnect"], "");
    assert!(told.contains("Reused, TLSv1.2"), "{told}");
    let told = ask(
        &["-tls1_3", "-ign_eof"],
        "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
    );
    assert!(told.contains("<h1>ahoy</h1>") && told.contains("TLSv1.3"), "{told}");
    let told = ask(&["-alpn", "h3"], "");
    assert!(told.contains("no application protocol"), "{told}");
    let told = ask(&["-alpn", "http/1.1"], "");
    assert!(told.contains("ALPN protocol: http/1.1"), "{told}");
    assert!(server.end().status.success());
}

pub(crate) fn m2_hosts_have_their_certificates_and_clients_theirs(backend: &str) {
    if !has("curl") || !has("openssl") {
        return;
    }
    let dir = site();
    make(&dir, "crew", "crew");
    dir.write("extensions", "subjectAltName=DNS:ahab\n");
    openssl(&dir, "req -newkey rsa:2048 -nodes -subj /CN=ahab -keyout ahab.key -out ahab.csr");
    openssl(
        &dir,
        "x509 -req -in ahab.csr -CA crew.pem -CAkey crew.key -CAcreateserial -days 30 \
         -extfile extensions -out ahab.pem",
    );
    let config = "[site]\ndirectory = \"site\"\n[tls]\ncertificate = \"a.pem\"\nkey = \"a.key\"\n\
                  client_roots = \"crew.pem\"\nclient_certificates = \"allow\"\nhsts_seconds = 600\n\
                  [[tls.identity]]\ncertificate = \"b.pem\"\nkey = \"b.key\"\n";
    dir.write("coracle.toml", config);
    let server = serve(backend, &["--config", &path(&dir, "coracle.toml")]);
    for host in ["a.example", "b.example"] {
        let trust = path(&dir, &format!("{}.pem", &host[..1]));
        let head = text(&curl(&server, host, &["--cacert", &trust, "--include"], "/"));
        assert!(head.contains("\r\nstrict-transport-security: max-age=600\r\n"), "{head}");
    }
    let trust = path(&dir, "a.pem");
    let elsewhere =
        ["--cacert", &trust, "--header", "Host: b.example", "--write-out", "%{http_code}"];
    assert!(text(&curl(&server, "a.example", &elsewhere, "/")).ends_with("421"));
    assert!(server.end().status.success());
    dir.write("coracle.toml", config.replace("\"allow\"", "\"require\""));
    let server = serve(backend, &["--config", &path(&dir, "coracle.toml")]);
    assert!(!curl(&server, "a.example", &["--cacert", &trust], "/").status.success());
    let refused = |server: Program, why: &str| {
        let output = server.end();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut lines = said.lines().filter(|line| line.contains("a client is not let in: "));
        let line = lines.next().unwrap_or_else(|| panic!("nothing is said: {said}"));
        assert!(line.contains(why) && line.contains(" peer=127.0.0.1:"), "{line}");
        assert!(output.status.success());
    };
    let (certificate, key) = (path(&dir, "ahab.pem"), path(&dir, "ahab.key"));
    let named = ["--cacert", &trust, "--cert", &certificate, "--key", &key];
    assert_eq!(text(&curl(&server, "a.example", &named, "/")), "<h1>ahoy</h1>");
    refused(server, "the client shows no certificate, and has to");
    // One whom somebody else has signed.
    let server = serve(backend, &["--config", &path(&dir, "coracle.toml")]);
    let (certificate, key) = (path(&dir, "b.pem"), path(&dir, "b.key"));
    let stranger = ["--cacert", &trust, "--cert", &certificate, "--key", &key];
    assert!(!curl(&server, "a.example", &stranger, "/").status.success());
    refused(server, "nobody who is trusted has signed it: whom to trust is said by `client_roots`");
}

pub(crate) fn m3_sighup_reads_certificates_again(backend: &str) {
    if !has("curl") || !has("openssl") {
        return;
    }
    let dir = site();
    fs::copy(dir.file("a.pem"), dir.file("now.pem")).unwrap();
    fs::copy(dir.file("a.key"), dir.file("now.key")).unwrap();
    let (certificate, key, log) = (path(&dir, "now.pem"), path(&dir, "now.key"), dir.file("log"));
    let arguments = [&path(&dir, "site"), "--tls-cert", &certificate, "--tls-key", &key];
    let server = Program::run(under(logging_to(&log), &command(backend, &arguments)));
    let (old, new) = (path(&dir, "a.pem"), path(&dir, "b.pem"));
    let is_served =
        |host: &str, trust: &str| curl(&server, host, &["--cacert", trust], "/").status.success();
    assert!(is_served("a.example", &old));
    // A certificate without its key.
    fs::copy(dir.file("b.pem"), dir.file("now.pem")).unwrap();
    server.signal(Signal::HUP);
    let logged = |text: &str| fs::read_to_string(&log).unwrap().contains(text);
    eventually("it is refused", || logged("the old one stays"));
    assert!(logged("the key does not belong to the certificate"));
    assert!(is_served("a.example", &old));
    fs::copy(dir.file("b.key"), dir.file("now.key")).unwrap();
    server.signal(Signal::HUP);
    eventually("the new one is shown", || is_served("b.example", &new));
    assert!(!is_served("a.example", &old));
    assert!(server.end().status.success());
}

pub(crate) fn m1_who_comes_without_tls_is_redirected(backend: &str) {
    if !has("curl") {
        return;
    }
    let dir = Dir::with(&[("index.html", "<h1>ahoy</h1>")]);
    let arguments = [&path(&dir, "."), "--self-signed", "--tls-redirect", "127.0.0.1:0"];
    let mut server = serve(backend, &arguments);
    let plain = server.next_address();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--noproxy", "*", "--insecure", "--include", "--max-time", "60"]);
    let output = curl.arg(format!("http://{plain}/a?b")).output().unwrap();
    let secure = &server.address;
    let told = text(&output);
    assert!(told.starts_with("HTTP/1.1 308 "), "{told}");
    assert!(told.contains(&format!("location: https://{secure}/a?b\r\n")), "{told}");
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--noproxy", "*", "--insecure", "--location", "--max-time", "60"]);
    assert_eq!(text(&curl.arg(format!("http://{plain}/")).output().unwrap()), "<h1>ahoy</h1>");
    assert!(server.end().status.success());
}

/// It is still listened to.
pub(crate) fn m3_port_of_the_redirect_is_never_served_in_clear(backend: &str) {
    let dir = Dir::with(&[("old/index.html", "old"), ("new/index.html", "new")]);
    let config = |site: &str, tls: &str| {
        dir.write("coracle.toml", format!("[site]\ndirectory = \"{site}\"\n{tls}"));
    };
    config("old", "[tls]\nself_signed = true\nredirect = [\"127.0.0.1:0\"]\n");
    let log = dir.file("log");
    let command = command(backend, &["--config", &path(&dir, "coracle.toml")]);
    let mut server = Program::run(under(logging_to(&log), &command));
    let plain = server.next_address();
    let ask = || {
        let mut stream = TcpStream::connect(&plain).expect("it listens");
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer_of(&answer).status
    };
    assert_eq!(ask(), 308);
    let reloads = || fs::read_to_string(&log).unwrap().matches("was read again").count();
    for (number, tls) in ["[tls]\nself_signed = true\n", ""].into_iter().enumerate() {
        config("new", tls);
        server.signal(Signal::HUP);
        eventually("it is read again", || reloads() == number + 1);
        for _ in 0..20 {
            assert_eq!(ask(), 308, "{tls:?}"); // whichever loop has it
        }
    }
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("tls.redirect: changed") && said.contains("tls: changed"), "{said}");
    assert!(server.end().status.success());
}

/// What `coracle check` says of a site with these lines for TLS.
fn check(dir: &Dir, tls: &str) -> (bool, String) {
    dir.write("coracle.toml", format!("[site]\ndirectory = \"site\"\n[tls]\n{tls}"));
    checked(dir)
}

/// Whether it finds the file fine, and what it says.
fn checked(dir: &Dir) -> (bool, String) {
    let mut check = Command::new(env!("CARGO_BIN_EXE_coracle"));
    let output = check.args(["check", "--config", &path(dir, "coracle.toml")]).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

pub(crate) fn m2_check_says_what_is_wrong_with_a_file(_backend: &str) {
    if !has("openssl") {
        return;
    }
    let dir = site();
    let (fine, said) = check(&dir, "certificate = \"a.pem\"\nkey = \"a.key\"\n");
    assert!(fine, "{said}");
    // A root, and below it a server; a key that is encrypted; one that is no longer valid.
    make(&dir, "root", "root");
    openssl(
        &dir,
        "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=c.example -keyout c.key -out c.csr",
    );
    openssl(
        &dir,
        "x509 -req -in c.csr -CA root.pem -CAkey root.key -CAcreateserial -days 30 -out c.pem",
    );
    let read = |file: &str| fs::read_to_string(dir.file(file)).unwrap();
    dir.write("chain.pem", read("c.pem") + &read("root.pem"));
    dir.write("reversed.pem", read("root.pem") + &read("c.pem"));
    dir.write("strangers.pem", read("c.pem") + &read("a.pem"));
    openssl(&dir, "pkcs8 -topk8 -in a.key -passout pass:secret -out encrypted.key");
    dir.write("password", "secret\n");
    dir.write("wrong-password", "guess\n");
    openssl(&dir, "x509 -in a.pem -outform der -out a.der");
    openssl(&dir, "x509 -req -in c.csr -CA root.pem -CAkey root.key -days -1 -out expired.pem");
    // Whatever version it has, which depends on who has made it.
    openssl(&dir, "x509 -req -in c.csr -CA root.pem -CAkey root.key -days 30 -out version1.pem");
    assert!(check(&dir, "certificate = \"chain.pem\"\nkey = \"c.key\"\n").0);
    let encrypted = "certificate = \"a.pem\"\nkey = \"encrypted.key\"\n";
    let (fine, said) = check(&dir, &format!("{encrypted}key_password_file = \"password\"\n"));
    assert!(fine, "{said}");
    let wrong_password = format!("{encrypted}key_password_file = \"wrong-password\"\n");
    for (tls, why) in [
        (
            "certificate = \"a.pem\"\nkey = \"b.key\"\n",
            "the key does not belong to the certificate (CN=a.example)",
        ),
        ("certificate = \"a.key\"\nkey = \"a.pem\"\n", "are certificate and key exchanged?"),
        ("certificate = \"none.pem\"\nkey = \"a.key\"\n", "none.pem cannot be read: No such file"),
        ("certificate = \"a.pem\"\n", "`key` is missing"),
        (
            "certificate = \"reversed.pem\"\nkey = \"c.key\"\n",
            "in the wrong order: the key belongs to number 2",
        ),
        (
            "certificate = \"strangers.pem\"\nkey = \"c.key\"\n",
            "in the wrong order: number 1 was signed by CN=root",
        ),
        (
            encrypted,
            "encrypted.key: the key is encrypted: name the file with its password, by key_password_file in \
             the configuration or --tls-key-password-file on the command line",
        ),
        (&wrong_password, "cannot be decrypted: is it this password?"),
        ("certificate = \"a.der\"\nkey = \"a.key\"\n", "it is DER, and PEM is wanted"),
        (
            "certificate = \"expired.pem\"\nkey = \"c.key\"\n",
            "expired.pem: the certificate of CN=c.example has expired ",
        ),
        ("certificate = \"expired.pem\"\nkey = \"c.key\"\n", " ago, on 20"),
        (
            "certificate = \"version1.pem\"\nkey = \"a.key\"\n",
            "a.key: the key does not belong to the certificate (CN=c.example): take the key with which",
        ),
        ("", "there is no certificate"),
        ("self_signed = true\nclient_roots = \"a.key\"\n", "no certificate"),
        ("self_signed = true\nredirect = [\"nowhere\"]\n", "nowhere"),
        ("self_signed = true\noldest_version = \"1.1\"\n", "unknown value `1.1`"),
        ("self_signed = true\nhsts_second = 1\n", "did you mean `hsts_seconds`?"),
    ] {
        let (fine, said) = check(&dir, tls);
        assert!(!fine && said.contains(why), "{tls}: {said}");
    }
    assert!(Identity::from_files(dir.file("a.pem"), dir.file("a.key")).is_ok());
}

pub(crate) fn m2_key_among_the_files_is_not_served(backend: &str) {
    if !has("openssl") {
        return;
    }
    let dir = site();
    let why = "which is served, so that everybody could read it";
    dir.write(
        "all.toml",
        "[site]\ndirectory = \".\"\n[tls]\ncertificate = \"a.pem\"\nkey = \"a.key\"\n",
    );
    let (config, certificate, key) =
        (path(&dir, "all.toml"), path(&dir, "a.pem"), path(&dir, "a.key"));
    for arguments in [
        &["check", "--config", &config][..],
        &["serve", "--listen", "127.0.0.1:0", "--backend", backend, "--config", &config],
        &[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--backend",
            backend,
            dir.path().to_str().unwrap(),
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
        ],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_coracle")).args(arguments).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
    }
    // Beside scripts, behind a link, or not used any more: each is among the files.
    dir.write("app/a.key", fs::read(dir.file("a.key")).unwrap());
    std::os::unix::fs::symlink("../a.key", dir.file("site/link.key")).unwrap();
    std::os::unix::fs::symlink("../keys", dir.file("site/keys")).unwrap();
    dir.write("keys/a.key", fs::read(dir.file("a.key")).unwrap());
    let scripts =
        "[[site.fastcgi]]\npath = \"/app\"\naddress = \"127.0.0.1:9\"\ndirectory = \"app\"\n";
    let with_files = format!("{scripts}files = true\n");
    for (table, key, is_secret) in [
        (&*with_files, "app/a.key", false),
        (scripts, "app/a.key", true),
        ("symlinks = \"anywhere\"\n", "site/link.key", false),
        ("symlinks = \"anywhere\"\n", "site/keys/a.key", false),
        ("symlinks = \"anywhere\"\n", "site/../a.key", true),
    ] {
        dir.write(
            "coracle.toml",
            format!(
                "[site]\ndirectory = \"site\"\n{table}[tls]\ncertificate = \"a.pem\"\nkey = \"{key}\"\n"
            ),
        );
        let (fine, said) = checked(&dir);
        assert_eq!((fine, said.contains(why)), (is_secret, !is_secret), "{table}{key}: {said}");
    }
    let mut serving = command(backend, &["--config", &config, "--self-signed"]);
    let output = serving.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(why), "{said}");
}

/// What is kept of TLS, though the file does not name it any more, has its key.
pub(crate) fn m3_key_that_is_kept_is_not_served(backend: &str) {
    if !has("curl") || !has("openssl") {
        return;
    }
    let dir = site();
    let tls = "[tls]\ncertificate = \"a.pem\"\nkey = \"a.key\"\n";
    dir.write("coracle.toml", format!("[site]\ndirectory = \"site\"\n{tls}"));
    let log = dir.file("log");
    let command = command(backend, &["--config", &path(&dir, "coracle.toml")]);
    let server = Program::run(under(logging_to(&log), &command));
    dir.write("coracle.toml", "[site]\ndirectory = \".\"\n");
    server.signal(Signal::HUP);
    let logged = |text: &str| fs::read_to_string(&log).unwrap().contains(text);
    eventually("it is read", || logged("the old one stays") || logged("was read again"));
    assert!(logged("a.key is in "));
    let output = curl(&server, "a.example", &["--cacert", &path(&dir, "a.pem")], "/a.key");
    assert!(!text(&output).contains("PRIVATE KEY"));
    assert!(server.end().status.success());
}
