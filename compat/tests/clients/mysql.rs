//! `mysql`, against MariaDB: by TCP and by a Unix socket.

use crate::helping::{MANY, MS, held, on, on_each, parked};
use crate::servers::{Folder, Nobody, Server, find, is_root};
use coracle::demux::Backend;
use coracle::spawn;
use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

/// Little memory.
const LIGHT: [&str; 2] = ["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=8M"];

fn server(folder: &Folder) -> Option<Server> {
    const PACKAGE: &str = "mariadb-server-core mariadb-client-core";
    let program = find("mariadbd", PACKAGE)?;
    let data = folder.path().join("data");
    let set_up = |command: &mut Command| {
        if is_root() {
            command.arg("--user=root");
        }
        // One that starts removes the temporary files of all others in the same folder.
        command.args(LIGHT).env("TMPDIR", folder.path());
    };
    let mut install = Command::new(find("mariadb-install-db", PACKAGE)?);
    install.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
    install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    set_up(&mut install);
    let installed = install.stdin(Stdio::null()).output().expect("it starts");
    let said = [&installed.stdout[..], &installed.stderr].concat();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&said));
    let command = |port: u16| {
        let mut command = Command::new(&program);
        command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
        command.arg(format!("--socket={}", folder.path().join("socket").display()));
        command.arg(format!("--port={port}")).arg("--bind-address=127.0.0.1");
        command.args(["--max-connections=150", "--skip-name-resolve", "--connect-timeout=300"]);
        set_up(&mut command);
        command
    };
    let socket = folder.path().join("socket");
    Some(Server::start(command, |port| {
        TcpStream::connect(("127.0.0.1", port)).is_ok() && socket.exists()
    }))
}

fn by_tcp(port: u16) -> OptsBuilder {
    let opts = OptsBuilder::new().ip_or_hostname(Some("127.0.0.1")).tcp_port(port);
    opts.user(Some("root")).prefer_socket(false)
}

fn by_unix(folder: &Path) -> OptsBuilder {
    let socket = folder.join("socket").display().to_string();
    OptsBuilder::new().socket(Some(socket)).user(Some("root"))
}

fn connect(opts: &OptsBuilder) -> Conn {
    Conn::new(opts.clone()).expect("a connection")
}

/// How many wait for the table that is locked.
fn waiting(conn: &mut Conn) -> usize {
    let query = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%lock'";
    conn.query_first(query).expect("a list").expect("a number")
}

#[test]
pub(crate) fn t3_mysql() {
    let folder = Folder::new();
    let Some(server) = server(&folder) else { return };
    let mut first = connect(&by_tcp(server.port));
    first.query_drop("CREATE DATABASE boats").expect("a database");
    first.query_drop("CREATE TABLE boats.gate AS SELECT 1000 AS number").expect("a table");
    for opts in [by_tcp(server.port), by_unix(folder.path())] {
        on_each(move |_| {
            let (mut holding, mut asking) = (connect(&opts), connect(&opts));
            holding.query_drop("LOCK TABLES boats.gate WRITE").expect("a lock");
            let opts = opts.clone();
            let call = move |me: usize| {
                let mut conn = connect(&opts);
                let sum: Option<usize> =
                    conn.exec_first("SELECT number + ? FROM boats.gate", (me,)).expect("an answer");
                assert_eq!(sum, Some(1000 + me));
                let long: Option<String> = conn
                    .query_first(format!("SELECT REPEAT('{}', 100000)", me % 10))
                    .expect("an answer");
                assert_eq!(long, Some((me % 10).to_string().repeat(100_000)));
            };
            held(
                MANY,
                call,
                || waiting(&mut asking) == MANY,
                || {
                    holding.query_drop("UNLOCK TABLES").expect("unlocked");
                },
            );
            Ok(())
        });
    }
}

#[test]
pub(crate) fn t3_mysql_errors() {
    let folder = Folder::new();
    let Some(server) = server(&folder) else { return };
    let port = server.port;
    on_each(move |_| {
        let late = by_tcp(port).read_timeout(Some(100 * MS));
        // It holds for the handshake as well, and the server may be slow.
        let mut conn = loop {
            if let Ok(conn) = Conn::new(late.clone()) {
                break conn;
            }
        };
        let error = parked(|| conn.query_drop("SELECT SLEEP(1000)")).unwrap_err();
        assert!(error.to_string().contains("os error 11"), "{error:?}"); // EAGAIN, as the kernel says it
        let error = connect(&by_tcp(port)).query_drop("SELECT nonsense").unwrap_err();
        assert!(
            matches!(&error, mysql::Error::MySqlError(error) if error.code == 1054),
            "{error:?}"
        );
        // The server ends one of two connections that wait.
        let mut killed = connect(&by_tcp(port));
        let id = killed.connection_id();
        let killed = spawn(move || killed.query_drop("SELECT SLEEP(1001)"));
        let mut other = connect(&by_tcp(port));
        let listed = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id} AND info LIKE '%1001%'"
        );
        while other.query_first::<u32, _>(&listed).expect("a list") != Some(1) {
            thread::sleep(MS);
        }
        other.query_drop(format!("KILL CONNECTION {id}")).expect("killed");
        assert!(killed.join().expect("it waits").is_err());
        assert_eq!(other.query_first::<u32, _>("SELECT 5").expect("it goes on"), Some(5));
        let nobody = Nobody::new();
        let refused = by_tcp(nobody.port).tcp_connect_timeout(Some(Duration::from_secs(100)));
        let error = Conn::new(refused).map(|_| ()).unwrap_err();
        assert!(
            error.to_string().contains("refused") || matches!(error, mysql::Error::DriverError(_)),
            "{error:?}"
        );
        Ok(())
    });
    // The whole of it, while all wait.
    let server = Rc::new(server);
    on(Backend::Uring, move || {
        let mut asking = connect(&by_tcp(port));
        let listed =
            "SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'SELECT SLEEP(1002)'";
        let call = move |_| {
            let error = connect(&by_tcp(port)).query_drop("SELECT SLEEP(1002)").unwrap_err();
            assert!(!matches!(error, mysql::Error::MySqlError(_)), "{error:?}");
        };
        let all_wait = || asking.query_first::<usize, _>(listed).expect("a list") == Some(MANY);
        held(MANY, call, all_wait, || server.kill());
        Ok(())
    });
}
