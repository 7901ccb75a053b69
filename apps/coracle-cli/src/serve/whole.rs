//! The whole app: hosts, and around them what is done for every request.
//!
//! ```text
//!   request ──► id ──► access log ──► panics ──► https? ──┬► host ──► site: redirects, files, welcome page
//!                                                         └► proxy, if the path is below that of one
//! ```

use super::proxies;
use super::setup::{Log, Setup};
use super::site::{self, SharedApp};
use super::welcome::Welcome;
use coracle::http::Hosts;
use coracle::http::middleware::{AccessLog, ErrorPages, RequestIds, around, catch_panics};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The app of a setup, which logs where it is told.
pub(super) fn app(
    setup: &Setup,
    welcome: &Welcome,
    log: Option<AccessLog>,
    https_port: u16,
) -> io::Result<SharedApp> {
    let mut app = proxies::before(hosts(setup, welcome)?, &setup.proxies)?;
    if let Some(https) = setup.tls.as_ref().and_then(|tls| tls.middleware(https_port)) {
        app = Arc::new(around(https, app));
    }
    app = Arc::new(around(catch_panics, app));
    if let Some(log) = log {
        app = Arc::new(around(log, app));
    }
    if setup.request_ids {
        app = Arc::new(around(RequestIds::new(), app));
    }
    Ok(app)
}

fn hosts(setup: &Setup, welcome: &Welcome) -> io::Result<SharedApp> {
    let otherwise = setup.site.as_ref().map(|site| site::app(site, welcome)).transpose()?;
    if let ([], Some(site)) = (&setup.hosts[..], &otherwise) {
        return Ok(Arc::clone(site));
    }
    let mut hosts = Hosts::new();
    for (names, site) in &setup.hosts {
        let app = site::app(site, welcome)?;
        for name in names {
            hosts = hosts.host(name, Arc::clone(&app));
        }
    }
    if let Some(site) = otherwise {
        hosts = hosts.otherwise(site);
    }
    Ok(Arc::new(around(ErrorPages::new(), hosts)))
}

/// Opens an access log.
pub(super) fn open_log(log: &Log) -> io::Result<AccessLog> {
    if log.file == Path::new("-") {
        return Ok(AccessLog::to_writer(io::stdout(), log.format));
    }
    AccessLog::to_file(&log.file, log.format).map_err(|error| {
        let text = format!("cannot write the access log to {}: {error}", log.file.display());
        io::Error::new(error.kind(), text)
    })
}
