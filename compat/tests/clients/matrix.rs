//! The matrix of `docs/reference/compatibility.md`: made of what is tested here and of the versions in
//! `Cargo.lock`. `CORACLE_WRITE=1 cargo test matrix` writes it anew.

use std::path::Path;

/// A line of it.
struct Row {
    /// What is used: crates, with the version that is locked.
    crates: &'static [&'static str],
    /// What it is called, with its version after it; `%` is where the version goes.
    name: &'static str,
    against: &'static str,
    verdict: &'static str,
    /// Names of tests, which are there: see `tests!`.
    tests: &'static [&'static str],
    remarks: &'static str,
}

/// The names of functions, which must be there.
macro_rules! tests {
    ($($file:ident :: $test:ident),*) => {{
        $(let _: fn() = crate::$file::$test;)*
        &[$(stringify!($test)),*]
    }};
}

fn rows() -> Vec<Row> {
    vec![
        Row {
            crates: &[],
            name: "`std::net`",
            against: "servers in threads",
            verdict: "works",
            tests: tests![web::t3_std_net],
            remarks: "All of it: more in `crates/coracle-hook/tests/rows`.",
        },
        Row {
            crates: &[],
            name: "`std::process`",
            against: "`sh`",
            verdict: "works",
            tests: tests![standard::t3_std_process],
            remarks: "Starting a child takes a moment of the loop's; waiting for it, and for what it says, \
                      does not.",
        },
        Row {
            crates: &[],
            name: "`ToSocketAddrs`, `std::thread::sleep`",
            against: "",
            verdict: "works",
            tests: tests![standard::t3_std_names_and_sleep],
            remarks: "Names are looked up by eight threads.",
        },
        Row {
            crates: &["ureq"],
            name: "`ureq` %",
            against: "web servers in threads, http and https",
            verdict: "works",
            tests: tests![web::t3_ureq, web::t3_ureq_https],
            remarks: "With a time-out set, it looks up names on a thread of its own and waits for that by a lock, \
                      which holds the loop for so long.",
        },
        Row {
            crates: &["redis"],
            name: "`redis` %",
            against: "redis-server, by TCP and by a Unix socket",
            verdict: "works",
            tests: tests![redis::t3_redis, redis::t3_redis_errors],
            remarks: "",
        },
        Row {
            crates: &["mysql"],
            name: "`mysql` %",
            against: "MariaDB, by TCP and by a Unix socket",
            verdict: "works",
            tests: tests![mysql::t3_mysql, mysql::t3_mysql_errors],
            remarks: "`Conn`. Its `Pool` waits by a lock when it is empty: use \
                      [`ConnPool`](../guides/coroutines.md), or give it as many connections as there are \
                      coroutines.",
        },
        Row {
            crates: &["memcache", "r2d2"],
            name: "`memcache` %, with `r2d2` %",
            against: "memcached",
            verdict: "works, its pool with care",
            tests: tests![memcache::t3_memcache, memcache::t3_memcache_errors],
            remarks: "`r2d2` waits by locks: while it connects, when no connection is free, and when the server \
                      is gone (as long as `connect_timeout` says). Make the client in `offload`, with as many \
                      connections as there are coroutines.",
        },
        Row {
            crates: &["tungstenite"],
            name: "`tungstenite` %",
            against: "itself",
            verdict: "works",
            tests: tests![websocket::t3_tungstenite],
            remarks: "",
        },
        Row {
            crates: &["rustls"],
            name: "`rustls` %",
            against: "itself",
            verdict: "works",
            tests: tests![tls::t3_rustls],
            remarks: "",
        },
        Row {
            crates: &["native-tls", "openssl"],
            name: "`native-tls` %, with `openssl` %",
            against: "`rustls`",
            verdict: "works",
            tests: tests![tls::t3_native_tls],
            remarks: "OpenSSL has one list of errors for each thread. `rustls` shares nothing, and is to be \
                      preferred.",
        },
        Row {
            crates: &["curl"],
            name: "libcurl, by `curl` %",
            against: "web servers in threads",
            verdict: "works",
            tests: tests![web::t3_curl],
            remarks: "A library of C, linked dynamically.",
        },
        Row {
            crates: &["pq-sys"],
            name: "libpq, by `pq-sys` %",
            against: "PostgreSQL",
            verdict: "works",
            tests: tests![postgres::t3_libpq],
            remarks: "A library of C, linked dynamically.",
        },
        Row {
            crates: &["postgres"],
            name: "`postgres` %",
            against: "PostgreSQL",
            verdict: "on the pool",
            tests: tests![
                postgres::t3_postgres_on_the_pool,
                postgres::t3_postgres_in_two_coroutines_panics
            ],
            remarks: "It has tokio inside, which takes its thread for its own: a second one in another coroutine \
                      of the thread panics. Use it in `offload`.",
        },
        Row {
            crates: &["rusqlite"],
            name: "`rusqlite` %",
            against: "SQLite",
            verdict: "on the pool",
            tests: tests![sqlite::t3_rusqlite_on_the_pool],
            remarks: "It reads and writes files, which never park, and holds the loop for so long. Use it in \
                      `offload`, each call as a whole.",
        },
    ]
}

/// The version of a crate that the lock file has.
fn version(name: &str) -> &'static str {
    let lock = include_str!("../../Cargo.lock");
    let line = format!("name = \"{name}\"\nversion = \"");
    let (_, rest) = lock.split_once(&line).unwrap_or_else(|| panic!("{name} is not in Cargo.lock"));
    rest.split('"').next().unwrap_or_default()
}

fn table() -> String {
    let mut text =
        String::from("| | against | in coroutines | remarks | tests |\n|---|---|---|---|---|\n");
    for row in rows() {
        let name = row
            .crates
            .iter()
            .fold(row.name.to_owned(), |name, krate| name.replacen('%', version(krate), 1));
        let tests: Vec<String> = row.tests.iter().map(|test| format!("`{test}`")).collect();
        let Row { against, verdict, remarks, .. } = row;
        text += &format!("| {name} | {against} | {verdict} | {remarks} | {} |\n", tests.join(", "));
    }
    text
}

#[test]
fn matrix_is_what_was_tested() {
    const MARKS: [&str; 2] =
        ["<!-- written by compat/tests/clients/matrix.rs -->\n", "<!-- end -->\n"];
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/compatibility.md");
    let page = std::fs::read_to_string(&file).expect("the page");
    let (before, rest) = page.split_once(MARKS[0]).expect("where the table begins");
    let (_, after) = rest.split_once(MARKS[1]).expect("where it ends");
    let wanted = [before, MARKS[0], &table(), MARKS[1], after].concat();
    if std::env::var_os("CORACLE_WRITE").is_some() {
        std::fs::write(&file, &wanted).expect("the page");
    } else {
        assert!(
            page == wanted,
            "docs/reference/compatibility.md is not up to date: CORACLE_WRITE=1 cargo test matrix"
        );
    }
}
