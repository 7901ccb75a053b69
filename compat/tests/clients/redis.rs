//! `redis`, against redis-server: by TCP and by a Unix socket.

use crate::helping::{MANY, MS, held, on_each, parked};
use crate::servers::{Folder, Nobody, Server, find};
use std::io;
use std::net::TcpStream;
use std::process::Command;
use std::rc::Rc;

fn server(folder: &Folder) -> Option<Server> {
    let program = find("redis-server", "redis-server")?;
    let command = |port: u16| {
        let mut command = Command::new(&program);
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--unixsocket",
            "socket",
        ]);
        command.args(["--save", "", "--appendonly", "no", "--tcp-backlog", "4096"]);
        command.current_dir(folder.path());
        command
    };
    let socket = folder.path().join("socket");
    Some(Server::start(command, |port| {
        TcpStream::connect(("127.0.0.1", port)).is_ok() && socket.exists()
    }))
}

/// Waits at the server for an entry of a list.
fn pop(client: &redis::Client, me: usize) -> redis::RedisResult<(String, usize)> {
    let mut connection = client.get_connection()?;
    redis::cmd("BLPOP").arg(format!("list-{me}")).arg(0).query(&mut connection)
}

fn blocked(connection: &mut redis::Connection) -> bool {
    let info: String = redis::cmd("INFO").arg("clients").query(connection).expect("info");
    info.contains(&format!("blocked_clients:{MANY}\r\n"))
}

#[test]
pub(crate) fn t3_redis() {
    let folder = Folder::new();
    let Some(server) = server(&folder) else { return };
    let urls = [
        format!("redis://127.0.0.1:{}/", server.port),
        format!("redis+unix://{}", folder.path().join("socket").display()),
    ];
    for url in urls {
        on_each(move |_| {
            let client = redis::Client::open(url.clone()).map_err(io::Error::other)?;
            let mut asking = client.get_connection().expect("a connection");
            let mut giving = client.get_connection().expect("a connection");
            let popping = move |me| assert_eq!(pop(&client, me).expect("a value").1, me);
            held(
                MANY,
                popping,
                || blocked(&mut asking),
                || {
                    for me in 0..MANY {
                        let list = format!("list-{me}");
                        let _: () = redis::cmd("RPUSH")
                            .arg(list)
                            .arg(me)
                            .query(&mut giving)
                            .expect("pushed");
                    }
                },
            );
            Ok(())
        });
    }
}

#[test]
pub(crate) fn t3_redis_errors() {
    on_each(|_| {
        let folder = Folder::new();
        let Some(server) = server(&folder) else { return Ok(()) };
        let server = Rc::new(server);
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port))
            .map_err(io::Error::other)?;
        let mut late = client.get_connection().expect("a connection");
        late.set_read_timeout(Some(30 * MS)).map_err(io::Error::other)?;
        let error = parked(|| redis::cmd("BLPOP").arg("nothing").arg(0).query::<()>(&mut late))
            .unwrap_err();
        assert!(error.is_timeout(), "{error:?}");
        drop(late);
        // The server goes while all wait for it.
        let (mut asking, killing) =
            (client.get_connection().expect("a connection"), Rc::clone(&server));
        let popping = {
            let client = client.clone();
            move |me| {
                let error = pop(&client, me).unwrap_err();
                assert!(error.is_connection_dropped() || error.is_io_error(), "{error:?}");
            }
        };
        held(MANY, popping, move || blocked(&mut asking), move || killing.kill());
        let nobody = Nobody::new();
        let gone = redis::Client::open(format!("redis://127.0.0.1:{}/", nobody.port));
        let error = gone.and_then(|gone| gone.get_connection()).map(|_| ()).unwrap_err();
        assert!(error.is_connection_refusal(), "{error:?}");
        Ok(())
    });
}
