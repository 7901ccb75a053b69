//! The app of one site: redirects, then scripts, then files, then the welcome page where there is nothing else.

use super::site_setup::SiteSetup;
use super::welcome::Welcome;
use coracle::http::files::Files;
use coracle::http::middleware::{Compression, ErrorPages, around};
use coracle::http::{App, Method, Plan, Request, Response, Status};
use std::io;
use std::sync::Arc;

/// An app that all loops share.
pub(super) type SharedApp = Arc<dyn App + Send + Sync>;

struct Site {
    setup: SiteSetup,
    files: Files,
    welcome: Welcome,
}

impl App for Site {
    fn call(&self, req: &Request<'_>) -> Response {
        if let Some(moved) = self.setup.redirects.answer(req) {
            return moved;
        }
        if let Some(answer) = self.setup.gateways.answer(req) {
            return answer;
        }
        let response = self.files.call(req);
        if response.status() == Status::NOT_FOUND && self.setup.welcome && asks_for_the_top(req) {
            return self.welcome.page();
        }
        response
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        self.setup.gateways.plan(req).unwrap_or_default()
    }
}

fn asks_for_the_top(req: &Request<'_>) -> bool {
    req.path() == "/" && matches!(req.method(), Method::Get | Method::Head)
}

/// A site, with its error pages and its compression around it.
pub(super) fn app(setup: &SiteSetup, welcome: &Welcome) -> io::Result<SharedApp> {
    let mut pages = ErrorPages::new();
    for (status, page) in &setup.error_pages {
        let page = page.clone();
        pages = pages.page(*status, move |_| page.clone());
    }
    let site = Site { files: setup.files()?, setup: setup.clone(), welcome: welcome.clone() };
    let app = around(pages, site);
    Ok(match setup.compression {
        true => Arc::new(around(Compression::new(), app)),
        false => Arc::new(app),
    })
}
