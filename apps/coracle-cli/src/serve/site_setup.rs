//! What is to be served of one site: read from the configuration file, and checked there.

use super::arguments::Arguments;
use super::config::{self, Hidden};
use super::gateways::{self, Gateways};
use super::mistake::Mistakes;
use super::redirects::{Redirect, Redirects, Wrong};
use coracle::http::files::{DotFiles, Files, Symlinks};
use coracle::http::{Headers, Status};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// A directory, and how it is served.
#[derive(Debug, Clone)]
pub(super) struct SiteSetup {
    pub(super) directory: PathBuf,
    pub(super) index: Vec<String>,
    pub(super) listing: bool,
    pub(super) welcome: bool,
    pub(super) hidden: Hidden,
    pub(super) symlinks: config::Symlinks,
    pub(super) precompressed: bool,
    pub(super) compression: bool,
    pub(super) cache_control: Option<String>,
    /// By the ends of names.
    pub(super) content_types: Vec<(String, String)>,
    /// Read already.
    pub(super) error_pages: Vec<(Status, String)>,
    pub(super) redirects: Redirects,
    pub(super) gateways: Gateways,
}

impl Default for SiteSetup {
    fn default() -> SiteSetup {
        SiteSetup {
            directory: PathBuf::from("."),
            index: vec!["index.html".to_owned()],
            listing: false,
            welcome: true,
            hidden: Hidden::default(),
            symlinks: config::Symlinks::default(),
            precompressed: true,
            compression: false,
            cache_control: None,
            content_types: Vec::new(),
            error_pages: Vec::new(),
            redirects: Redirects::default(),
            gateways: Gateways::default(),
        }
    }
}

impl SiteSetup {
    /// What the command line says counts.
    pub(super) fn adopt(&mut self, arguments: &Arguments) -> io::Result<()> {
        if let Some(directory) = &arguments.directory {
            self.directory.clone_from(directory);
        }
        self.listing |= arguments.listing;
        self.compression |= arguments.compress;
        self.hidden = arguments.hidden.unwrap_or(self.hidden);
        self.symlinks = arguments.symlinks.unwrap_or(self.symlinks);
        if let Some(value) = &arguments.cache_control {
            if let Some(wrong) = wrong_value("cache-control", value) {
                let text = format!("--cache-control: {wrong}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            self.cache_control = Some(value.clone());
        }
        for (status, file) in &arguments.error_page {
            let page = fs::read_to_string(file)
                .map_err(|error| cannot_read("the error page", file, &error))?;
            self.set_error_page(Status::from_u16(*status).expect("it is 400 to 599"), page);
        }
        for (path, directory) in &arguments.cgi_dir {
            self.gateways.add_cgi(path, directory)?;
        }
        match self.gateways.shown_by(&self.directory) {
            Some(wrong) => Err(io::Error::new(io::ErrorKind::InvalidInput, wrong)),
            None => Ok(()),
        }
    }

    /// The directories whose files everybody can read.
    pub(super) fn published(&self) -> impl Iterator<Item = &Path> {
        self.gateways.published(&self.directory).into_iter().map(|(_, directory)| directory)
    }

    fn set_error_page(&mut self, status: Status, page: String) {
        self.error_pages.retain(|(other, _)| *other != status);
        self.error_pages.push((status, page));
    }

    /// Its files, as they are to be served.
    pub(super) fn files(&self) -> io::Result<Files> {
        let mut files = Files::new(&self.directory)?
            .index(self.index.iter().cloned())
            .listing(self.listing)
            .dot_files(match self.hidden {
                Hidden::Hide => DotFiles::Hide,
                Hidden::WellKnown => DotFiles::WellKnown,
                Hidden::Show => DotFiles::Show,
            })
            .symlinks(match self.symlinks {
                config::Symlinks::Inside => Symlinks::Inside,
                config::Symlinks::Never => Symlinks::Never,
                config::Symlinks::Anywhere => Symlinks::Anywhere,
            });
        if !self.precompressed {
            files = files.precompressed([]);
        }
        if let Some(value) = &self.cache_control {
            files = files.cache_control(value);
        }
        for (end, content_type) in &self.content_types {
            files = files.content_type(end, content_type);
        }
        Ok(files)
    }
}

/// The site of everybody: `[site]`.
pub(super) fn read_site(
    site: &Spanned<config::Site>,
    mistakes: &mut Mistakes,
    base: &Path,
) -> SiteSetup {
    if let Some(names) = &site.get_ref().names {
        let what = "`names` belongs to a host: write `[[host]]` in the place of `[site]`";
        mistakes.add(names.span(), what);
    }
    read(site.get_ref(), true, mistakes, base)
}

/// The site of a host: `[[host]]`. `known` are the names of those before it.
pub(super) fn host_site(
    site: &Spanned<config::Site>,
    mistakes: &mut Mistakes,
    base: &Path,
    known: &mut Vec<String>,
) -> (Vec<String>, SiteSetup) {
    let mut own = Vec::new();
    match &site.get_ref().names {
        Some(names) if !names.get_ref().is_empty() => {
            for name in names.get_ref() {
                let plain = name.get_ref().to_ascii_lowercase();
                if !is_host(&plain) {
                    let what = "this is no name of a host: write `example.org` or `*.example.org`, without a port";
                    mistakes.add(name.span(), what);
                } else if known.contains(&plain) {
                    mistakes.add(name.span(), format!("there are two hosts of the name `{plain}`"));
                } else {
                    known.push(plain.clone());
                    own.push(plain);
                }
            }
        }
        _ => mistakes.add(site.span(), "a host needs `names`: names = [\"example.org\"]"),
    }
    if site.get_ref().directory.is_none() {
        mistakes.add(site.span(), "a host needs a `directory`");
    }
    (own, read(site.get_ref(), false, mistakes, base))
}

fn read(site: &config::Site, welcome: bool, mistakes: &mut Mistakes, base: &Path) -> SiteSetup {
    let mut setup = SiteSetup {
        listing: site.listing,
        welcome: site.welcome.unwrap_or(welcome),
        hidden: site.hidden,
        symlinks: site.symlinks,
        precompressed: site.precompressed.unwrap_or(true),
        compression: site.compression,
        gateways: gateways::read(site, mistakes, base),
        ..SiteSetup::default()
    };
    if let Some(directory) = &site.directory {
        setup.directory = base.join(directory.get_ref());
        if let Err(error) = Files::new(&setup.directory) {
            mistakes.add(directory.span(), error.to_string());
        }
    }
    let tables = site.cgi.iter().map(|table| &table.directory);
    let first = tables.chain(site.fastcgi.iter().map(|table| &table.directory)).next();
    if let (Some(wrong), Some(first)) = (setup.gateways.shown_by(&setup.directory), first) {
        mistakes.add(first.span(), wrong);
    }
    if let Some(names) = &site.index {
        for name in
            names.iter().filter(|name| name.get_ref().contains('/') || name.get_ref().is_empty())
        {
            mistakes.add(name.span(), "an index is the name of a file, without slashes");
        }
        setup.index = names.iter().map(|name| name.get_ref().clone()).collect();
    }
    if let Some(value) = &site.cache_control {
        match wrong_value("cache-control", value.get_ref()) {
            Some(wrong) => mistakes.add(value.span(), wrong),
            None => setup.cache_control = Some(value.get_ref().clone()),
        }
    }
    for (end, value) in &site.content_types {
        match wrong_value("content-type", value.get_ref()) {
            Some(wrong) => mistakes.add(value.span(), wrong),
            None => {
                let end = end.trim_start_matches('.').to_owned();
                setup.content_types.push((end, value.get_ref().clone()));
            }
        }
    }
    for (status, file) in &site.error_pages {
        let number = status.get_ref().parse().ok().filter(|number| (400..600).contains(number));
        let Some(number) = number.and_then(|number: u16| Status::from_u16(number).ok()) else {
            mistakes.add(status.span(), "this is no status of an error: those are 400 to 599");
            continue;
        };
        let path = base.join(file.get_ref());
        match fs::read_to_string(&path) {
            Ok(page) => setup.set_error_page(number, page),
            Err(error) => {
                mistakes.add(file.span(), cannot_read("the error page", &path, &error).to_string());
            }
        }
    }
    for redirect in &site.redirect {
        let status = redirect.status.as_ref().map_or(307, |status| *status.get_ref());
        if let Some(written) = redirect.status.as_ref().filter(|_| !REDIRECTIONS.contains(&status))
        {
            let what =
                format!("{status} is no status of a redirect: use 301, 302, 303, 307 or 308");
            mistakes.add(written.span(), what);
            continue;
        }
        let status = Status::from_u16(status as u16).expect("it is one of those");
        match Redirect::new(redirect.from.get_ref(), redirect.to.get_ref(), status) {
            Ok(redirect) => setup.redirects.add(redirect),
            Err(Wrong::From(why)) => mistakes.add(redirect.from.span(), why),
            Err(Wrong::To(why)) => mistakes.add(redirect.to.span(), why),
        }
    }
    setup
}

/// Those that a redirect may have: for good or for now, with the same method or by GET.
const REDIRECTIONS: [i64; 5] = [301, 302, 303, 307, 308];

/// Whether [`Hosts`](coracle::http::Hosts) takes it.
fn is_host(name: &str) -> bool {
    let plain = name.strip_prefix('*').unwrap_or(name);
    let is_address = plain.starts_with('[') && plain.ends_with(']');
    let (is_wild, is_below) = (plain.len() != name.len(), plain.starts_with('.'));
    let is_text = plain.bytes().all(|byte| byte.is_ascii_graphic());
    let is_plain = is_text && !plain.contains(['/', '*', '?', '#', '@']) && !plain.ends_with('.');
    !plain.is_empty()
        && is_wild == is_below
        && is_plain
        && (is_address || !plain.contains([':', '[', ']']))
}

/// Why a header field cannot have this value.
fn wrong_value(name: &str, value: &str) -> Option<String> {
    Headers::new().insert(name, value).err().map(|error| error.to_string())
}

/// What was to be read, and why it was not.
pub(super) fn cannot_read(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot read {what} {}: {error}", path.display()))
}
