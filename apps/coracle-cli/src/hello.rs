//! `hello`: every HTTP request is answered with 13 bytes, in three styles.

use crate::options::{ServeOptions, announce, announce_processes};
use crate::privileges;
use crate::stopped;
use crate::style::Style;
use coracle::http::{self, App, Request, asynchronous, inline};
use coracle::net::Worker;
use std::io;

const ADDRESS: &str = "127.0.0.1:8080";
const GREETING: &str = "Hello, World!";

pub(crate) fn serve(options: &ServeOptions, style: Style) -> io::Result<()> {
    match style {
        Style::Callback => serve_app(options, inline(greet)),
        Style::Coroutine => serve_app(options, greet),
        Style::Async => serve_app(options, asynchronous(async |_: &Request<'_>| GREETING)),
        Style::Hook => Err(style.missing("hello")),
    }
}

fn greet(_: &Request<'_>) -> &'static str {
    GREETING
}

fn serve_app(options: &ServeOptions, app: impl App + Send + Sync) -> io::Result<()> {
    let server = options.server(ADDRESS)?;
    privileges::give_up(None)?;
    if Worker::current().is_some() {
        coracle::seeing::dump_on_sigquit()?;
        return http::Server::over(server).serve(app);
    }
    if let Some(processes) = options.processes {
        let (processes, loops) = (processes as usize, options.loops());
        let addresses = server.local_addresses();
        let announce = move |lp: &coracle::Loop| {
            announce_processes("hello", &addresses, lp.backend(), processes, loops);
        };
        server.supervise(processes).on_start(announce).run()?;
    } else {
        coracle::seeing::dump_on_sigquit()?;
        let server = server.on_init(move |handle| announce("hello", handle));
        http::Server::over(server).serve(app)?;
    }
    stopped("hello", Ok(()))
}
