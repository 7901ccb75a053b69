//! `serve`: the files of a directory, by HTTP. `check`: what is wrong with its configuration.
//!
//! ```text
//!   command line ─┐
//!   coracle.toml ─┴─► Setup (checked) ─┬► app of all hosts ──► Live ──────────┬► loops
//!                        ▲             └► limits, time-outs ─► LiveSettings ──┘
//!                     SIGHUP: the same again
//! ```

mod arguments;
mod browser;
mod config;
mod gateways;
mod live;
mod mistake;
mod proxies;
mod readable;
mod redirects;
mod reload;
mod setup;
mod site;
mod site_setup;
mod tls_setup;
mod welcome;
mod whole;

pub(crate) use arguments::Arguments;

use crate::options::{count, tell_where};
use crate::{privileges, say, stopped};
use coracle::demux::Backend;
use coracle::http::middleware::AccessLog;
use coracle::http::{self, LiveSettings};
use coracle::net::{Address, Buffer, Conn, Worker};
use coracle::tls::ServerTls;
use live::Live;
use reload::Reloader;
use setup::Setup;
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;
use tls_setup::TlsSetup;
use welcome::{Facts, Welcome};

const ADDRESS: &str = "127.0.0.1:8080";

/// What it means that the user who serves cannot read everything again.
const NO_RELOAD: &str = "SIGHUP will change nothing, only a new start will";

/// How long the end may take that is written to the access log.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Serves until the process is asked to end.
pub(crate) fn serve(arguments: Arguments) -> io::Result<()> {
    let setup = Setup::load(&arguments)?;
    warn_of_published(&arguments, &setup);
    let is_worker = Worker::current().is_some();
    let browser = (arguments.open && !is_worker).then(browser::prepare).transpose()?;
    let mut server = setup.options.server(ADDRESS)?;
    let secure = setup.tls.as_ref().map(|_| server.local_addresses()).unwrap_or_default();
    let https_port = secure.iter().find_map(Address::ip).map_or(443, |address| address.port());
    setup.tls.iter().flat_map(TlsSetup::warnings).for_each(|warning| tracing::warn!("{warning}"));
    if !setup.proxies.is_empty() {
        server = server.capacity(crate::proxy::capacity()); // a client may have a server behind it
    }
    let redirect = setup.tls.as_ref().map(|tls| tls.redirect.clone()).unwrap_or_default();
    let loops = setup.options.loops();
    if let (Some(processes), false) = (setup.options.processes, is_worker) {
        if !redirect.is_empty() {
            // Who serves there is a worker.
            server = server.service("plain", redirect.as_slice(), |_| nobody)?;
        }
        privileges::give_up(setup.account.as_ref())?;
        read_as_user(&arguments, &setup)?; // as workers will
        readable::check(&setup, setup.account.as_ref())?;
        readable::warnings(&setup).for_each(|warning| tracing::warn!("{warning}"));
        coracle::seeing::dump_on_sigquit()?;
        // So that what cannot be served is told here, and once.
        whole::app(&setup, &Welcome::default(), None, https_port)?;
        if setup.tls.as_ref().is_some_and(|tls| tls.self_signed) {
            let text =
                "a self-signed certificate is for one process: each of several would make its own";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let addresses = server.local_addresses();
        let workforce =
            format!("{}, {} each", count(processes as usize, "process"), count(loops, "loop"));
        let announce = move |lp: &coracle::Loop| {
            announce(&addresses, &secure, lp.backend(), &workforce, browser.as_ref())
        };
        server.supervise(processes as usize).on_start(announce).run()?;
        return stopped("serve", Ok(()));
    }

    let mut server = http::Server::over(server);
    if !redirect.is_empty() {
        server = server.plain(redirect.as_slice())?;
    }
    if setup.options.processes.is_none() {
        server = server.listen()?; // only who is privileged may, perhaps
    }
    privileges::give_up(setup.account.as_ref())?;
    readable::check(&setup, setup.account.as_ref())?;
    if !is_worker {
        readable::warnings(&setup).for_each(|warning| tracing::warn!("{warning}"));
    }
    coracle::seeing::dump_on_sigquit()?;
    let welcome = Welcome::default();
    let log = setup.log.as_ref().map(whole::open_log).transpose()?;
    let live = Live::new(whole::app(&setup, &welcome, log.clone(), https_port)?);
    let tls = setup.tls.as_ref().map(|tls| ServerTls::new(tls.settings.clone())).transpose()?;
    let settings = LiveSettings::new(setup.settings.clone())?;
    let processes = setup.options.processes;
    let proxy_protocol = setup.proxy_protocol.clone();
    let is_reloadable =
        !is_worker && (arguments.config.is_some() || setup.log.is_some() || tls.is_some());
    if is_reloadable {
        if let Err(error) = read_as_user(&arguments, &setup) {
            tracing::warn!("{NO_RELOAD}: {error}");
        }
        let (log, live, settings) = (log.clone(), live.clone(), settings.clone());
        let (welcome, tls, retired) = (welcome.clone(), tls.clone(), Vec::new());
        Reloader { arguments, setup, log, live, settings, welcome, tls, https_port, retired }
            .start()?;
    }
    let init = move |handle: &coracle::net::ServerHandle| {
        let (backend, loops) = (handle.backend(), handle.loops());
        welcome.set(Facts { backend, loops, processes });
        if !is_worker {
            let loops = count(loops, "loop");
            announce(handle.local_addresses(), &secure, backend, &loops, browser.as_ref());
        }
    };
    let mut server = server.live_settings(&settings).on_init(init);
    if let Some(tls) = &tls {
        server = server.tls(tls);
    }
    if !proxy_protocol.is_empty() {
        server = server.proxy_protocol(proxy_protocol.into());
    }
    let ended = server.serve_each(move || Ok(live.on_loop()));
    log.into_iter().for_each(finish);
    if is_worker { ended } else { stopped("serve", ended) }
}

/// Reads everything once more, if another user is to serve: what only root may read, that user cannot read again.
fn read_as_user(arguments: &Arguments, setup: &Setup) -> io::Result<()> {
    let Some(account) = &setup.account else { return Ok(()) };
    match Setup::load(arguments) {
        Ok(_) => Ok(()),
        Err(refused) => {
            let error = io::Error::from(refused);
            let text = format!("the user {account} has to read what root could read: {error}");
            Err(io::Error::new(error.kind(), text))
        }
    }
}

/// Waits for the last lines to be written, but not for a reader that takes none.
fn finish(log: AccessLog) {
    let (tell, told) = mpsc::channel();
    let flush = move || {
        log.flush();
        let _ = tell.send(());
    };
    if thread::Builder::new().spawn(flush).is_err() || told.recv_timeout(LAST_LINES).is_err() {
        tracing::error!("the end of the access log is lost: it cannot be written");
    }
}

/// Says whether a configuration is fine; the error says what is not.
pub(crate) fn check(config: &Path) -> io::Result<()> {
    let setup = Setup::read(config)?;
    setup.refuse_published()?;
    whole::app(&setup, &Welcome::default(), None, 443)?;
    if let Some(tls) = &setup.tls {
        tls.check()?;
        tls.warnings().for_each(|warning| say(format_args!("{warning}")));
    }
    check_as_user(config, &setup)?;
    let hosts = match setup.hosts.len() {
        0 => String::new(),
        hosts => format!(", {}", count(hosts, "host")),
    };
    let addresses = setup.options.addresses(ADDRESS).join(", ");
    say(format_args!("{} is fine: it serves on {addresses}{hosts}", config.display()));
    Ok(())
}

/// Becomes who is to serve, if it may, and sees what can be read then.
fn check_as_user(config: &Path, setup: &Setup) -> io::Result<()> {
    if let Err(error) = privileges::give_up(setup.account.as_ref()) {
        say(format_args!("what that user may read is not known: {error}"));
        return Ok(());
    }
    let arguments = Arguments { config: Some(config.to_owned()), ..Arguments::default() };
    match read_as_user(&arguments, setup) {
        Err(error) if setup.options.processes.is_some() => return Err(error),
        Err(error) => say(format_args!("{NO_RELOAD}: {error}")),
        Ok(()) => {}
    }
    readable::check(setup, setup.account.as_ref())?;
    readable::warnings(setup).for_each(|warning| say(format_args!("{warning}")));
    Ok(())
}

/// Says where it can be reached, and opens a browser if that was asked for.
fn announce(
    addresses: &[Address],
    secure: &[Address],
    backend: Backend,
    workforce: &str,
    browser: Option<&Sender<String>>,
) {
    for address in addresses {
        tell_where("serve", address, backend, workforce);
        match (browser::url(address, secure.contains(address)), address.path()) {
            (Some(url), _) => say(format_args!("look at it: {url}; stop it: Ctrl-C")),
            (None, Some(path)) => {
                let path = path.display();
                say(format_args!(
                    "look at it: curl --unix-socket {path} http://localhost/; stop it: Ctrl-C"
                ));
            }
            (None, None) => {}
        }
    }
    let url = addresses.iter().find_map(|it| browser::url(it, secure.contains(it)));
    match (browser, url) {
        (Some(browser), Some(url)) => _ = browser.send(url),
        (Some(_), None) => tracing::warn!("no browser was opened: none can reach a Unix socket"),
        (None, _) => {}
    }
}

/// Serves nobody.
fn nobody(conn: &mut Conn<'_>, _input: &mut Buffer) -> io::Result<()> {
    conn.abort();
    Ok(())
}

/// A configuration that is among the files is read by everybody.
fn warn_of_published(arguments: &Arguments, setup: &Setup) {
    let Some(config) = arguments.config.as_ref().and_then(|path| path.canonicalize().ok()) else {
        return;
    };
    for directory in setup.published().filter_map(|directory| directory.canonicalize().ok()) {
        if config.starts_with(&directory) {
            let (config, directory) = (config.display(), directory.display());
            tracing::warn!("{config} is in {directory}, which is served: everybody can read it");
        }
    }
}
