//! `rusqlite`, as whole calls on the worker pool: SQLite reads and writes files, sleeps, and holds its own locks
//! meanwhile, so that nobody may be parked inside.

use crate::helping::{held, on_each};
use crate::servers::Folder;
use coracle::offload;
use rusqlite::Connection;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// How many want to write at once: SQLite tries again and again, with longer and longer sleeps.
const WRITERS: usize = 30;

#[test]
pub(crate) fn t3_rusqlite_on_the_pool() {
    on_each(|_| {
        let folder = Folder::new();
        let path = folder.path().join("boats.db");
        let open = {
            let path = path.clone();
            move || -> rusqlite::Result<Connection> {
                let connection = Connection::open(&path)?;
                connection.busy_timeout(Duration::from_secs(100))?;
                Ok(connection)
            }
        };
        let holding = open().expect("a database");
        holding
            .execute_batch(
                "CREATE TABLE boats (number INTEGER PRIMARY KEY, name TEXT); BEGIN IMMEDIATE",
            )
            .expect("a table");
        // All of them want to write, and nobody can: SQLite sleeps and tries again, on the pool's threads.
        let begun = Rc::new(Cell::new(0));
        let call = {
            let begun = Rc::clone(&begun);
            move |me: usize| {
                begun.set(begun.get() + 1);
                let open = open.clone();
                let insert = move || -> rusqlite::Result<String> {
                    let connection = open()?;
                    let name = format!("boat {me}");
                    connection.execute("INSERT INTO boats VALUES (?1, ?2)", (me as i64, name))?;
                    let again =
                        connection.execute("INSERT INTO boats VALUES (?1, 'twice')", [me as i64]);
                    assert!(again.is_err(), "the number is taken");
                    let query = "SELECT name FROM boats WHERE number = ?1";
                    connection.query_row(query, [me as i64], |row| row.get(0))
                };
                let name = offload(insert).expect("the pool").expect("a row");
                assert_eq!(name, format!("boat {me}"));
            }
        };
        held(
            WRITERS,
            call,
            || begun.get() == WRITERS,
            || {
                holding.execute_batch("COMMIT").expect("it ends");
            },
        );
        let count = holding.query_row("SELECT COUNT(*) FROM boats", [], |row| row.get::<_, u32>(0));
        assert_eq!(count, Ok(WRITERS as u32));
        let sound = holding.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
        assert_eq!(sound.as_deref(), Ok("ok"));
        Ok(())
    });
}
