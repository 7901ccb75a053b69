//! PostgreSQL: libpq, a library of C, in coroutines; `postgres`, which has tokio inside, on the worker pool, and
//! why.
#![allow(unsafe_code)]

use crate::helping::{MANY, MS, held, on, on_each, parked};
use crate::servers::{Folder, NOBODY, Nobody, Server, find, is_root};
use coracle::demux::Backend;
use coracle::{offload, spawn};
use postgres::{Client, NoTls};
use std::ffi::{CStr, CString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::NonNull;
use std::rc::Rc;
use std::thread;

/// How many use it at once: each has a process of its own at the server.
const SOME: usize = 40;

/// Says to a copy of this program where the server is.
const SERVER: &str = "CORACLE_COMPAT_POSTGRES";

fn server(folder: &Folder) -> Option<Server> {
    const PACKAGE: &str = "postgresql";
    let programs = (find("initdb", PACKAGE)?, find("postgres", PACKAGE)?);
    let data = folder.path().join("data");
    // It refuses to be run by root.
    let make = |program: &Path| {
        let mut command = Command::new(program);
        command.arg("-D").arg(&data).current_dir(folder.path());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    };
    let mut initdb = make(&programs.0);
    initdb.args(["--auth=trust", "--username=captain", "--no-sync", "--no-locale"]);
    let made = initdb.stdin(Stdio::null()).output().expect("it starts");
    let said = [&made.stdout[..], &made.stderr].concat();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&said));
    let command = |port: u16| {
        let mut command = make(&programs.1);
        command.args(["-p", &port.to_string(), "-k", "", "-c", "listen_addresses=127.0.0.1"]);
        command.args([
            "-c",
            "fsync=off",
            "-c",
            "max_connections=100",
            "-c",
            "authentication_timeout=600",
        ]);
        command
    };
    Some(Server::start(command, |port| Connection::open(port).is_ok()))
}

/// A connection of libpq's.
struct Connection(NonNull<pq_sys::PGconn>);

impl Connection {
    fn open(port: u16) -> Result<Connection, String> {
        let text =
            format!("host=127.0.0.1 port={port} user=captain dbname=postgres sslmode=disable");
        let text = CString::new(text).expect("no zero");
        // SAFETY: a text that ends with zero; it is copied.
        let raw = unsafe { pq_sys::PQconnectdb(text.as_ptr()) };
        let connection = Connection(NonNull::new(raw).expect("memory"));
        // SAFETY: it was just made.
        let status = unsafe { pq_sys::PQstatus(raw) };
        if status == pq_sys::ConnStatusType::CONNECTION_OK {
            Ok(connection)
        } else {
            Err(connection.error())
        }
    }

    fn error(&self) -> String {
        // SAFETY: a text that is there until the next call.
        unsafe { CStr::from_ptr(pq_sys::PQerrorMessage(self.0.as_ptr())) }
            .to_string_lossy()
            .into_owned()
    }

    /// The first value of the first row.
    fn query(&self, query: &str) -> Result<String, String> {
        let query = CString::new(query).expect("no zero");
        // SAFETY: a connection of ours and a text that ends with zero; the result is looked at before it is
        // cleared.
        unsafe {
            let result = pq_sys::PQexec(self.0.as_ptr(), query.as_ptr());
            let fine = pq_sys::PQresultStatus(result) == pq_sys::ExecStatusType::PGRES_TUPLES_OK;
            let value = fine.then(|| CStr::from_ptr(pq_sys::PQgetvalue(result, 0, 0)));
            let value = value.map(|value| value.to_string_lossy().into_owned());
            pq_sys::PQclear(result);
            value.ok_or_else(|| self.error())
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: it is ours, and not used again.
        unsafe { pq_sys::PQfinish(self.0.as_ptr()) };
    }
}

/// A lock at the server, behind which all wait.
struct Lock(Connection);

impl Lock {
    fn take(port: u16) -> Lock {
        let holding = Connection::open(port).expect("a connection");
        holding.query("SELECT pg_advisory_lock(1)").expect("a lock");
        Lock(holding)
    }

    fn waiting(&self) -> usize {
        let query = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        self.0.query(query).expect("locks").parse().expect("a number")
    }

    fn release(&self) {
        assert_eq!(self.0.query("SELECT pg_advisory_unlock(1)"), Ok("t".to_owned()));
    }
}

fn behind_the_lock(what: impl std::fmt::Display) -> String {
    format!("SELECT {what} FROM pg_advisory_lock_shared(1)")
}

#[test]
pub(crate) fn t3_libpq() {
    let folder = Folder::of_nobody();
    let Some(server) = server(&folder) else { return };
    let port = server.port;
    on_each(move |_| {
        let lock = Lock::take(port);
        let call = move |me: usize| {
            let connection = Connection::open(port).expect("a connection");
            assert_eq!(connection.query(&behind_the_lock(me)), Ok(me.to_string()));
            let long = connection.query(&format!("SELECT repeat('{}', 100000)", me % 10));
            assert_eq!(long, Ok((me % 10).to_string().repeat(100_000)));
        };
        held(SOME, call, || lock.waiting() == SOME, || lock.release());
        // What the server says, and that nobody is there.
        let connection = Connection::open(port).expect("a connection");
        let error = connection.query("SELECT nonsense").unwrap_err();
        assert!(error.contains("column \"nonsense\" does not exist"), "{error}");
        connection.query("SELECT set_config('statement_timeout', '30', false)").expect("set");
        let error = parked(|| connection.query("SELECT pg_sleep(1000)")).unwrap_err();
        assert!(error.contains("statement timeout"), "{error}");
        let nobody = Nobody::new();
        let error = Connection::open(nobody.port).map(|_| ()).unwrap_err();
        assert!(error.contains("refused"), "{error}");
        Ok(())
    });
    // It goes while all wait.
    let server = Rc::new(server);
    on(Backend::Uring, move || {
        let lock = Lock::take(port);
        let call = move |me: usize| {
            let connection = Connection::open(port).expect("a connection");
            let error = connection.query(&behind_the_lock(me)).unwrap_err();
            assert!(
                error.contains("server closed the connection") || error.contains("terminat"),
                "{error}"
            );
        };
        held(SOME, call, || lock.waiting() == SOME, || server.kill());
        Ok(())
    });
}

fn connect(port: u16) -> Result<Client, postgres::Error> {
    Client::connect(&format!("host=127.0.0.1 port={port} user=captain dbname=postgres"), NoTls)
}

#[test]
pub(crate) fn t3_postgres_on_the_pool() {
    let folder = Folder::of_nobody();
    let Some(server) = server(&folder) else { return };
    let port = server.port;
    on_each(move |_| {
        let lock = Lock::take(port);
        let call = move |me: usize| {
            let ask = move || -> Result<i32, postgres::Error> {
                Ok(connect(port)?.query_one(&behind_the_lock(me), &[])?.get(0))
            };
            assert_eq!(offload(ask).expect("the pool").expect("an answer"), me as i32);
        };
        // The pool has at least four threads; the others wait for one of them.
        held(MANY, call, || lock.waiting() >= 4, || lock.release());
        let nobody = Nobody::new();
        let port = nobody.port;
        assert!(offload(move || connect(port).map(|_| ()))?.is_err());
        Ok(())
    });
}

/// Two at the same time on one thread: tokio finds its thread in use. This is why it belongs on the pool.
#[test]
pub(crate) fn t3_postgres_in_two_coroutines_panics() {
    if let Some(port) = std::env::var(SERVER).ok().and_then(|port| port.parse().ok()) {
        on(Backend::Epoll, move || {
            let lock = Lock::take(port);
            let ask = move || {
                connect(port).and_then(|mut client| client.query_one(&behind_the_lock(1), &[]))
            };
            let first = spawn(ask);
            while lock.waiting() == 0 {
                thread::sleep(MS);
            }
            let second = spawn(ask);
            let _ = second.join();
            lock.release();
            let _ = first.join();
            Ok(())
        });
        return;
    }
    let folder = Folder::of_nobody();
    let Some(server) = server(&folder) else { return };
    let output = Command::new(std::env::current_exe().expect("a path"))
        .args(["postgres::t3_postgres_in_two_coroutines_panics", "--exact", "--nocapture"])
        .env(SERVER, server.port.to_string())
        .output()
        .expect("a copy of this program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Cannot start a runtime from within a runtime"), "{said}");
}
