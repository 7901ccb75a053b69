//! The judges of TLS, and of HTTP/2 behind it.

use super::Verdict;
use super::judges::{Way, browse};
use super::server::{Programs, Server};
use crate::command;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// How our programs are told to speak TLS.
const SECURE: &[&str] = &["--self-signed"];

/// What curl ends with when no handshake comes about.
const SSL_CONNECT_ERROR: i32 = 35;

fn asking(arguments: &[&str], url: &str) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--insecure", "--noproxy", "*", "--max-time", "60"]);
    curl.args(arguments).arg(url);
    curl
}

/// Both versions of HTTP over both versions of TLS, and none over those that are too old.
pub(super) fn curl(_: &Path, programs: &Programs, backend: &str) -> Verdict {
    let server = programs.echo(backend, SECURE)?;
    let mut asked = 0;
    let body = "x".repeat(600_000);
    let large = std::env::temp_dir().join(format!("coracle-curl-tls-{}", std::process::id()));
    for (http, told_http) in [("--http1.1", "Http11"), ("--http2", "Http2")] {
        for (tls, told_tls) in [("1.2", "Tls12"), ("1.3", "Tls13")] {
            let version = format!("--tlsv{tls}");
            let mut ask = |arguments: &[&str], path: &str| {
                asked += 1;
                let fixed = [http, &version, "--tls-max", tls, "--fail"];
                let url = server.secure_url(path);
                command::output(&mut asking(&[&fixed[..], arguments].concat(), &url))
            };
            let text = ask(&[], "/a")?;
            for part in [
                format!("\"version\":\"{told_http}\""),
                format!("\"tls\":{{\"version\":\"{told_tls}\""),
            ] {
                if !text.contains(&part) {
                    return Err(format!("{http} {version}: {part} is not in {text}"));
                }
            }
            fs::write(&large, &body).map_err(|why| why.to_string())?;
            let from = format!("@{}", large.display());
            let uploaded = ask(&["--data-binary", &from], "/?raw");
            let _ = fs::remove_file(&large);
            if uploaded? != body {
                return Err(format!("{http} {version}: {} bytes are others", body.len()));
            }
        }
    }
    for tls in ["1.0", "1.1"] {
        // Its own library would not speak it otherwise.
        let version = format!("--tlsv{tls}");
        let arguments = [&version, "--tls-max", tls, "--ciphers", "DEFAULT@SECLEVEL=0"];
        let mut curl = asking(&arguments, &server.secure_url("/"));
        let output = curl.stdin(Stdio::null()).output().map_err(|why| format!("curl: {why}"))?;
        let words = String::from_utf8_lossy(&output.stderr);
        // It is the server that says no, by an alert.
        if output.status.code() != Some(SSL_CONNECT_ERROR) || !words.contains("alert") {
            return Err(format!("TLS {tls}: {}: {words}", output.status));
        }
    }
    server.end()?;
    Ok(format!("{asked} requests in HTTP/1.1 and 2 by TLS 1.2 and 1.3; 1.0 and 1.1 are refused"))
}

/// `nghttp` for one request and what it says of the frames, `h2load` for many.
pub(super) fn nghttp2(_: &Path, programs: &Programs, backend: &str) -> Verdict {
    let server = programs.echo(backend, SECURE)?;
    let mut nghttp = Command::new("nghttp");
    nghttp.args(["--verbose", "--no-dep", "--timeout", "60", &server.secure_url("/a")]);
    let text = command::output(&mut nghttp)?;
    let parts =
        ["The negotiated protocol: h2", ":status: 200", "\"version\":\"Http2\",", "\"tls\":"];
    if !parts.iter().all(|part| text.contains(part)) {
        return Err(text);
    }
    let mut h2load = Command::new("h2load");
    h2load.args(["--requests", "2000", "--clients", "8", "--max-concurrent-streams", "16"]);
    let text = command::output(h2load.arg(server.secure_url("/")))?;
    server.end()?;
    let parts = [
        "TLS Protocol: TLSv1.3",
        "Application protocol: h2",
        "2000 succeeded, 0 failed, 0 errored, 0 timeout",
    ];
    match parts.iter().all(|part| text.contains(part)) {
        true => Ok("a request by nghttp, 2000 by h2load".to_owned()),
        false => Err(text),
    }
}

/// Which versions and ciphers there are, and what is known to be wrong with many. Without the groups of keys, for
/// which it waits; `testssl` looks at them.
pub(super) fn sslscan(_: &Path, programs: &Programs, backend: &str) -> Verdict {
    let server = programs.echo(backend, SECURE)?;
    let mut scan = Command::new("sslscan");
    scan.args(["--no-colour", "--no-groups", &server.address.to_string()]);
    let text = command::output(&mut scan)?;
    server.end()?;
    let lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "SSLv2 disabled",
        "SSLv3 disabled",
        "TLSv1.0 disabled",
        "TLSv1.1 disabled",
        "TLSv1.2 enabled",
        "TLSv1.3 enabled",
        "Session renegotiation not supported",
        "TLSv1.3 not vulnerable to heartbleed",
        "TLSv1.2 not vulnerable to heartbleed",
    ];
    for part in expected {
        if !lines.iter().any(|line| line == part) {
            return Err(format!("{part} is not in\n{text}"));
        }
    }
    let is_cipher =
        |line: &&String| line.starts_with("Preferred ") || line.starts_with("Accepted ");
    let ciphers: Vec<&String> = lines.iter().filter(is_cipher).collect();
    let is_strong = |line: &&&String| is_strong(line);
    match ciphers.iter().find(|line| !is_strong(line)) {
        _ if ciphers.is_empty() => Err(format!("no cipher in\n{text}")),
        Some(weak) => Err(format!("{weak} is weak:\n{text}")),
        None => Ok(format!("TLS 1.2 and 1.3 with {} ciphers, all of them strong", ciphers.len())),
    }
}

/// Encryption that also shows what was changed, and keys that are gone when the connection is.
fn is_strong(line: &str) -> bool {
    let is_sealed = line.contains("_GCM_") || line.contains("-GCM-") || line.contains("POLY1305");
    let is_ephemeral = line.contains(" TLS_") || line.contains(" ECDHE-");
    is_sealed && is_ephemeral
}

/// What `testssl` must have found to be good.
const GOOD: &[&str] = &[
    "SSLv2",
    "SSLv3",
    "TLS1_2",
    "TLS1_3",
    "ALPN_HTTP2",
    "cipherlist_NULL",
    "cipherlist_aNULL",
    "cipherlist_EXPORT",
    "cipherlist_LOW",
    "cipherlist_STRONG",
    "PFS",
    "heartbleed",
    "CCS",
    "ticketbleed",
    "ROBOT",
    "secure_renego",
    "secure_client_renego",
    "CRIME_TLS",
    "POODLE_SSL",
    "SWEET32",
    "FREAK",
    "DROWN",
    "LOGJAM",
    "BEAST",
    "LUCKY13",
    "RC4",
];

/// What it finds fault with that is not the server's: its certificate is made for a trial, its app says nothing of
/// security, the client chooses among ciphers that are all good, and an engine is missing where `testssl` runs.
const FORGIVEN: &[&str] =
    &["cert", "DNS_CAArecord", "HSTS", "security_headers", "cipher_order", "engine_problem"];

/// What it says of a session that it could not resume because it had hung up before the ticket came: so it is now
/// and then on a busy machine. Then it looks again, at most so many times.
const TOO_EARLY: &str = "check failed because of connect problem";
const LIMIT_AGAIN: u32 = 2;

/// Everything that is known to be wrong with servers of TLS, one after the other.
pub(super) fn testssl(_: &Path, programs: &Programs, backend: &str) -> Verdict {
    let server = programs.echo(backend, SECURE)?;
    let mut table = table_of(&server);
    for _ in 0..LIMIT_AGAIN {
        if !table.as_ref().is_ok_and(|table| table.contains(TOO_EARLY)) {
            break;
        }
        table = table_of(&server);
    }
    server.end()?;
    judge_table(&table?)
}

fn table_of(server: &Server) -> Result<String, String> {
    let table = std::env::temp_dir().join(format!("coracle-testssl-{}.csv", std::process::id()));
    let _ = fs::remove_file(&table); // it does not write over one
    let mut test = Command::new("testssl");
    test.args(["--quiet", "--color", "0", "--warnings", "batch", "--csvfile"]).arg(&table);
    let test = test.args(["--ip", "127.0.0.1", &server.address.to_string()]);
    // It ends with the number of what it has found, which is looked at here.
    let output = test.stdin(Stdio::null()).output().map_err(|why| format!("testssl: {why}"))?;
    let text = fs::read_to_string(&table)
        .map_err(|why| format!("{why}: {}", String::from_utf8_lossy(&output.stdout)));
    let _ = fs::remove_file(&table);
    text
}

/// Its table: what it looked at, where, on which port, how bad it is, and what that is.
fn judge_table(table: &str) -> Verdict {
    let rows: Vec<Vec<&str>> =
        table.lines().skip(1).map(|line| line.trim_matches('"').split("\",\"").collect()).collect();
    let of = |id: &str| rows.iter().find(|row| row.first() == Some(&id));
    let missing = GOOD.iter().find(|id| of(id).and_then(|row| row.get(3)) != Some(&"OK"));
    if let Some(id) = missing {
        return Err(format!("{id} is not good: {:?}", of(id)));
    }
    for id in ["TLS1", "TLS1_1"] {
        if of(id).and_then(|row| row.get(4)) != Some(&"not offered") {
            return Err(format!("{id}: {:?}", of(id)));
        }
    }
    let bad = rows.iter().find(|row| {
        let is_bad = !matches!(row.get(3), Some(&("OK" | "INFO")));
        is_bad && !FORGIVEN.iter().any(|id| row.first().is_some_and(|it| it.starts_with(id)))
    });
    match bad {
        Some(row) => Err(row.join(", ")),
        None => Ok(format!("{} things were looked at, and nothing is wrong", rows.len())),
    }
}

/// What `sslyze` must have said, whatever the spaces.
const SAID: &[&str] = &[
    "OK - Compression disabled",
    "OK - Not vulnerable to OpenSSL CCS injection",
    "TLS_FALLBACK_SCSV: OK - Supported",
    "OK - Not vulnerable to Heartbleed",
    "OK - Not vulnerable, RSA cipher suites not supported.",
    "Client Renegotiation DoS Attack: OK - Not vulnerable",
    "Secure Renegotiation: OK - Supported",
    "Forward Secrecy OK - Supported",
    "Legacy RC4 Algorithm OK - Not Supported",
];

/// Every cipher of every version, one at a time, and attacks.
pub(super) fn sslyze(_: &Path, programs: &Programs, backend: &str) -> Verdict {
    let server = programs.echo(backend, SECURE)?;
    let mut scan = Command::new("sslyze");
    scan.args(["--sslv2", "--sslv3", "--tlsv1", "--tlsv1_1", "--tlsv1_2", "--tlsv1_3"]);
    scan.args(["--heartbleed", "--openssl_ccs", "--robot", "--reneg", "--compression"]);
    let text = command::output(scan.args(["--fallback", &server.address.to_string()]))?;
    server.end()?;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(part) = SAID.iter().find(|part| !words.contains(**part)) {
        return Err(format!("{part} is not in\n{text}"));
    }
    let refused = words.matches("the server rejected all cipher suites").count();
    match (refused, words.contains("Error when running")) {
        (4, false) => Ok("SSL and TLS before 1.2 are refused, and no attack succeeds".to_owned()),
        _ => Err(text),
    }
}

pub(super) fn chromium(root: &Path, programs: &Programs, backend: &str) -> Verdict {
    browse(
        root,
        programs,
        backend,
        &Way { options: SECURE, page: "https", socket: "wss", agreed: "h2" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_ciphers_are_seen() {
        assert!(is_strong("Preferred TLSv1.3 128 bits TLS_AES_128_GCM_SHA256 Curve 25519 DHE 253"));
        assert!(is_strong("Accepted TLSv1.2 256 bits ECDHE-ECDSA-CHACHA20-POLY1305 Curve 25519"));
        assert!(!is_strong("Accepted TLSv1.2 256 bits AES256-GCM-SHA384"));
        assert!(!is_strong("Accepted TLSv1.2 256 bits ECDHE-RSA-AES256-SHA Curve 25519 DHE 253"));
    }

    #[test]
    fn table_with_a_finding_is_not_good() {
        let row = |id: &str, severity: &str, finding: &str| {
            format!(
                "\"{id}\",\"127.0.0.1/127.0.0.1\",\"1\",\"{severity}\",\"{finding}\",\"\",\"\"\n"
            )
        };
        let mut table =
            "\"id\",\"fqdn/ip\",\"port\",\"severity\",\"finding\",\"cve\",\"cwe\"\n".to_owned();
        assert!(judge_table(&table).is_err(), "nothing was looked at");
        GOOD.iter().for_each(|id| table += &row(id, "OK", "not vulnerable"));
        table += &row("TLS1", "INFO", "not offered");
        assert!(judge_table(&table).is_err(), "1.1 was not looked at");
        table += &row("TLS1_1", "INFO", "not offered");
        table += &row("cert_chain_of_trust", "CRITICAL", "failed (self signed).");
        assert!(judge_table(&table).is_ok());
        assert!(judge_table(&(table + &row("GREASE", "HIGH", "it fell over"))).is_err());
    }
}
