//! std itself: children, names and sleeps. Its sockets are in `web.rs`.

use crate::helping::{MS, held, many, on_each};
use crate::servers::Folder;
use std::cell::Cell;
use std::net::ToSocketAddrs;
use std::process::Command;
use std::rc::Rc;
use std::thread;

/// How many children there are at once.
const CHILDREN: usize = 20;

#[test]
pub(crate) fn t3_std_process() {
    on_each(|_| {
        let folder = Folder::new();
        let (file, begun) = (folder.path().join("open"), Rc::new(Cell::new(0)));
        let call = {
            let (file, begun) = (file.clone(), Rc::clone(&begun));
            move |me: usize| {
                begun.set(begun.get() + 1);
                let script = "while [ ! -e \"$0\" ]; do sleep 0.02; done; echo out $1; echo err $1 >&2; exit $1";
                let output = Command::new("sh")
                    .arg("-c")
                    .arg(script)
                    .arg(&file)
                    .arg(me.to_string())
                    .output();
                let output = output.expect("a child");
                assert_eq!(output.status.code(), Some(me as i32));
                assert_eq!(output.stdout, format!("out {me}\n").into_bytes());
                assert_eq!(output.stderr, format!("err {me}\n").into_bytes());
            }
        };
        held(
            CHILDREN,
            call,
            || begun.get() == CHILDREN,
            || std::fs::write(&file, "").expect("a file"),
        );
        let missing = Command::new("/no/such/program").output().unwrap_err();
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
        Ok(())
    });
}

#[test]
pub(crate) fn t3_std_names_and_sleep() {
    on_each(|_| {
        // All of them begin before the first is through: else they would have waited for one another.
        let begun = Rc::new(Cell::new(0));
        many(move |_| {
            begun.set(begun.get() + 1);
            let mut found = ("localhost", 9).to_socket_addrs().expect("an address");
            assert!(found.all(|address| address.ip().is_loopback() && address.port() == 9));
            while begun.get() < crate::helping::MANY {
                thread::sleep(MS);
            }
        });
        assert!(("no-such-name.invalid", 9).to_socket_addrs().is_err());
        Ok(())
    });
}
