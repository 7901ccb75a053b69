//! SIGHUP: the configuration is read again, and the access log opened anew.
//!
//! Sites change from the next request on; limits, time-outs and certificates from the next connection on; where it
//! listens and with how many threads does not.
//!
//! A configuration that is wrong is refused: the log says why, and the old one stays.

use super::arguments::Arguments;
use super::live::Live;
use super::readable;
use super::setup::{Refused, Setup};
use super::site::SharedApp;
use super::tls_setup::TlsSetup;
use super::welcome::Welcome;
use super::whole;
use coracle::Builder;
use coracle::demux::Backend;
use coracle::http::LiveSettings;
use coracle::http::middleware::AccessLog;
use coracle::tls::ServerTls;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread;

/// What is served now, and how to find out what is to be served.
pub(super) struct Reloader {
    pub(super) arguments: Arguments,
    pub(super) setup: Setup,
    pub(super) log: Option<AccessLog>,
    pub(super) live: Arc<Live>,
    pub(super) settings: LiveSettings,
    pub(super) welcome: Welcome,
    /// What new connections are shown, if TLS is spoken; and where it is.
    pub(super) tls: Option<ServerTls>,
    pub(super) https_port: u16,
    /// What was replaced, while somebody may still be busy with it: its end may have to wait for a file, which is
    /// nothing for a loop.
    pub(super) retired: Vec<SharedApp>,
}

impl Reloader {
    /// Listens for SIGHUP from now on, on a thread of its own: files are read there.
    pub(super) fn start(mut self) -> io::Result<()> {
        let (tell, told) = mpsc::channel();
        let body = move || {
            let lp = match Builder::new().backend(Backend::Poll).build() {
                Ok(lp) => lp,
                Err(error) => return drop(tell.send(Err(error))),
            };
            let listens = lp.on_signal(libc::SIGHUP, move |_| self.reload());
            let (listens, _listener) = match listens {
                Ok(listener) => (Ok(()), Some(listener)),
                Err(error) => (Err(error), None),
            };
            let _ = tell.send(listens);
            if let Err(error) = lp.run() {
                tracing::error!("SIGHUP will not be heard any more: {error}");
            }
        };
        thread::Builder::new().name("coracle-reload".into()).spawn(body)?;
        told.recv().unwrap_or_else(|_| Err(io::Error::other("the thread for SIGHUP has panicked")))
    }

    fn reload(&mut self) {
        match self.try_reload() {
            Ok(()) => tracing::info!("the configuration was read again"),
            Err(refused) => {
                for line in refused.lines() {
                    tracing::error!("the configuration is not taken, the old one stays: {line}");
                }
            }
        }
        self.retired.retain(|app| Arc::strong_count(app) > 1);
    }

    fn try_reload(&mut self) -> Result<(), Refused> {
        let mut setup = Setup::load(&self.arguments)?;
        readable::check(&setup, self.setup.account.as_ref()).map_err(Refused::Other)?;
        TlsSetup::keep_fixed(self.setup.tls.as_ref(), &mut setup.tls);
        setup.refuse_published().map_err(Refused::Other)?; // what was kept has keys, too
        let log = match &self.log {
            Some(log) if self.setup.log == setup.log => Some(log.clone()),
            _ => setup.log.as_ref().map(whole::open_log).transpose().map_err(Refused::Other)?,
        };
        let app = whole::app(&setup, &self.welcome, log.clone(), self.https_port);
        let app = app.map_err(Refused::Other)?;
        if let Some(tls) = &setup.tls {
            ServerTls::new(tls.settings.clone()).map_err(Refused::Other)?; // it can be used, then
        }
        self.settings.replace(setup.settings.clone()).map_err(Refused::Other)?;
        if let (Some(live), Some(tls)) = (&self.tls, &setup.tls) {
            live.replace(tls.settings.clone()).map_err(Refused::Other)?;
            tls.warnings().for_each(|warning| tracing::warn!("{warning}"));
        }
        let fixed = self.setup.fixed(&setup).join(", ");
        if !fixed.is_empty() {
            tracing::warn!(
                "{fixed}: changed in the file, but fixed while it serves; restart it for that"
            );
        }
        if self.setup.log == setup.log
            && let Some(log) = &log
        {
            log.reopen(); // it may have been renamed to make room for a new one
        }
        self.retired.push(self.live.replace(app));
        self.log = log;
        // What cannot be changed is compared with what it was at the start.
        let options = std::mem::take(&mut self.setup.options);
        let account = self.setup.account.take();
        self.setup = Setup { options, account, ..setup };
        Ok(())
    }
}
