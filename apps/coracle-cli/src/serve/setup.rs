//! What is to be served, and how: from the configuration file and the command line, checked.

use super::arguments::Arguments;
use super::config::{Config, Format, Http2, Limits, Timeouts};
use super::mistake::Mistakes;
use super::proxies::{self, ProxySetup};
use super::site_setup::{SiteSetup, cannot_read, host_site, read_site};
use super::tls_setup::TlsSetup;
use crate::options::ServeOptions;
use crate::privileges::Account;
use coracle::http::middleware::LogFormat;
use coracle::http::{self, Networks};
use coracle::net::ToAddresses;
use std::fmt;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// The most seconds that a time-out may have: a day.
pub(super) const SECONDS: RangeInclusive<i64> = 1..=86_400;

/// Everything that was decided.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) options: ServeOptions,
    /// Who serves, if it is not who has started it.
    pub(super) account: Option<Account>,
    pub(super) settings: http::Settings,
    pub(super) request_ids: bool,
    pub(super) log: Option<Log>,
    /// For hosts that are not named; none if those get nothing.
    pub(super) site: Option<SiteSetup>,
    pub(super) hosts: Vec<(Vec<String>, SiteSetup)>,
    pub(super) proxies: Vec<ProxySetup>,
    /// Who says for whom a connection is.
    pub(super) proxy_protocol: Networks,
    pub(super) tls: Option<TlsSetup>,
}

/// Where a line is written for each answer. Two that are the same write to the same file in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Log {
    /// `-` for standard output.
    pub(super) file: PathBuf,
    pub(super) format: LogFormat,
}

/// Why there is no setup.
#[derive(Debug)]
pub(super) enum Refused {
    /// The file has mistakes.
    Mistakes(Box<Mistakes>),
    /// It cannot be read, or the command line makes no sense.
    Other(io::Error),
}

impl Setup {
    /// Of a command line, and of the file that it names.
    pub(super) fn load(arguments: &Arguments) -> Result<Setup, Refused> {
        let mut setup = match &arguments.config {
            Some(path) => Setup::read(path)?,
            None => Setup::default(),
        };
        setup.adopt(arguments).map_err(Refused::Other)?;
        setup.options.tls = setup.tls.as_ref().map(|tls| tls.redirect.clone());
        setup.refuse_published().map_err(Refused::Other)?;
        Ok(setup)
    }

    /// All sites from which something is served.
    pub(super) fn sites(&self) -> impl Iterator<Item = &SiteSetup> {
        let has_rest = !self.proxies.iter().any(|proxy| proxy.path == "/");
        let sites = self.site.iter().chain(self.hosts.iter().map(|(_, site)| site));
        sites.filter(move |_| has_rest)
    }

    /// The directories whose files everybody can read.
    pub(super) fn published(&self) -> impl Iterator<Item = &Path> {
        self.sites().flat_map(SiteSetup::published)
    }

    /// Fails if the key of a certificate is among the files that everybody can read.
    pub(super) fn refuse_published(&self) -> io::Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        for directory in self.published() {
            if let Some(secret) = tls.secret_in(directory) {
                let (secret, directory) = (secret.display(), directory.display());
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "{secret} is in {directory}, which is served, so that everybody could read it: move it \
                         elsewhere, or serve another directory"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Of a file alone.
    pub(super) fn read(path: &Path) -> Result<Setup, Refused> {
        let text = fs::read_to_string(path)
            .map_err(|error| Refused::Other(cannot_read("the configuration", path, &error)))?;
        let mut mistakes = Mistakes::new(path, &text);
        let setup = match toml::from_str::<Config>(&text) {
            Ok(config) => Setup::of(&config, &mut mistakes, path.parent().unwrap_or(Path::new(""))),
            Err(error) => {
                mistakes.add_unread(&error);
                Setup::default()
            }
        };
        if mistakes.is_empty() { Ok(setup) } else { Err(Refused::Mistakes(Box::new(mistakes))) }
    }

    /// Paths in the file begin at `base`, where the file is.
    fn of(config: &Config, mistakes: &mut Mistakes, base: &Path) -> Setup {
        let mut options = ServeOptions::default();
        for listen in &config.listen {
            if let Err(error) = listen.get_ref().as_str().to_addresses() {
                mistakes.add(listen.span(), error.to_string());
            }
            options.listen.push(listen.get_ref().clone());
        }
        if let Some(backend) = &config.backend {
            match backend.get_ref().parse() {
                Ok(known) => options.backend = Some(known),
                Err(error) => mistakes.add(backend.span(), io::Error::to_string(&error)),
            }
        }
        options.threads = number(mistakes, config.threads.as_ref(), 1..=1024);
        options.processes = number(mistakes, config.processes.as_ref(), 1..=1024);
        options.pin_threads = config.pin_threads;
        options.placement = config.placement;
        options.drain = number(mistakes, config.drain_seconds.as_ref(), 0..=86_400);
        let account = config.user.as_ref().and_then(|user| {
            let found = Account::find(user.get_ref());
            found.map_err(|error| mistakes.add(user.span(), error.to_string())).ok()
        });
        let site = config.site.as_ref().map(|site| read_site(site, mistakes, base));
        let mut names = Vec::new();
        let hosts = config.host.iter().map(|host| host_site(host, mistakes, base, &mut names));
        let hosts: Vec<(Vec<String>, SiteSetup)> = hosts.collect();
        let log = config.access_log.as_ref().map(|log| {
            let file = match log.file.get_ref() {
                file if file == Path::new("-") => file.clone(),
                file => base.join(file),
            };
            if let Some(wrong) = wrong_log(&file) {
                mistakes.add(log.file.span(), wrong);
            }
            Log { file, format: log.format.into() }
        });
        let tls = config.tls.as_ref().map(|tls| TlsSetup::read(tls, mistakes, base));
        let site = site.or_else(|| hosts.is_empty().then(SiteSetup::default));
        let mut paths = Vec::new();
        let proxies = config.proxy.iter();
        let proxies = proxies.map(|proxy| proxies::read(proxy, mistakes, base, &mut paths));
        let proxies = proxies.collect();
        let proxy_protocol = proxies::networks(&config.proxy_protocol, mistakes);
        Setup {
            options,
            account,
            settings: http::Settings {
                http2: http2(&config.http2, mistakes),
                ..settings(&config.limits, &config.timeouts, mistakes)
            },
            request_ids: config.request_ids,
            log,
            site,
            hosts,
            proxies,
            proxy_protocol,
            tls,
        }
    }

    /// What the command line says counts.
    fn adopt(&mut self, arguments: &Arguments) -> io::Result<()> {
        let given = &arguments.options;
        if !given.listen.is_empty() {
            self.options.listen.clone_from(&given.listen);
        }
        self.options.backend = given.backend.or(self.options.backend);
        self.options.threads = given.threads.or(self.options.threads);
        self.options.processes = given.processes.or(self.options.processes);
        self.options.pin_threads |= given.pin_threads;
        self.options.placement = given.placement.or(self.options.placement);
        self.options.drain = given.drain.or(self.options.drain);
        if let Some(user) = &arguments.user {
            self.account = Some(Account::find(user)?);
        }
        self.request_ids |= arguments.request_ids;
        if let Some(limit) = arguments.limit_connections_per_address {
            self.settings.limit_connections_per_address = Some(limit as usize);
        }
        if let Some(file) = &arguments.access_log {
            if let Some(wrong) = wrong_log(file) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, wrong));
            }
            let format = arguments.access_log_format.unwrap_or_default().into();
            self.log = Some(Log { file: file.clone(), format });
        } else if let Some(format) = arguments.access_log_format {
            let Some(log) = &mut self.log else {
                let text = "--access-log-format says how, but nothing says where: add --access-log";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            };
            log.format = format.into();
        }
        for (path, to) in &arguments.proxy {
            let new = ProxySetup::new(path, to)?;
            match self.proxies.iter_mut().find(|proxy| proxy.path == *path) {
                Some(known) => known.to.push(to.clone()),
                None => self.proxies.push(new),
            }
        }
        self.tls = TlsSetup::adopt(self.tls.take(), arguments)?;
        if !arguments.tls_redirect.is_empty() && self.tls.is_none() {
            let text = "--tls-redirect sends clients to TLS, but there is none: add --tls-cert and --tls-key, \
                        or --self-signed";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if arguments.directory.is_some() {
            self.site.get_or_insert_default(); // for whom no host is named
        }
        self.site.as_mut().map_or(Ok(()), |site| site.adopt(arguments))
    }

    /// The names of what is different and cannot be changed while it serves.
    pub(super) fn fixed(&self, new: &Setup) -> Vec<&'static str> {
        let user_differs = self.account != new.account;
        let proxy_protocol = self.proxy_protocol != new.proxy_protocol;
        let (old, new) = (&self.options, &new.options);
        let differences = [
            ("proxy_protocol", proxy_protocol),
            ("listen", old.listen != new.listen),
            ("backend", old.backend != new.backend),
            ("threads", old.threads != new.threads),
            ("pin_threads", old.pin_threads != new.pin_threads),
            ("processes", old.processes != new.processes),
            ("placement", old.placement != new.placement),
            ("drain_seconds", old.drain != new.drain),
            ("user", user_differs),
            ("tls", old.tls.is_some() != new.tls.is_some()),
            ("tls.redirect", old.tls.is_some() && new.tls.is_some() && old.tls != new.tls),
        ];
        differences.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect()
    }
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            options: ServeOptions::default(),
            account: None,
            settings: http::Settings::default(),
            request_ids: false,
            log: None,
            site: Some(SiteSetup::default()),
            hosts: Vec::new(),
            proxies: Vec::new(),
            proxy_protocol: Networks::none(),
            tls: None,
        }
    }
}

impl From<Format> for LogFormat {
    fn from(format: Format) -> LogFormat {
        match format {
            Format::Common => LogFormat::Common,
            Format::Combined => LogFormat::Combined,
            Format::Json => LogFormat::Json,
        }
    }
}

impl Refused {
    /// For a log: a line for each reason.
    pub(super) fn lines(&self) -> Vec<String> {
        match self {
            Refused::Mistakes(mistakes) => mistakes.lines().collect(),
            Refused::Other(error) => vec![error.to_string()],
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Mistakes(mistakes) => mistakes.fmt(f),
            Refused::Other(error) => error.fmt(f),
        }
    }
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> io::Error {
        match refused {
            Refused::Mistakes(mistakes) => {
                io::Error::new(io::ErrorKind::InvalidInput, mistakes.to_string())
            }
            Refused::Other(error) => error,
        }
    }
}

fn settings(limits: &Limits, timeouts: &Timeouts, mistakes: &mut Mistakes) -> http::Settings {
    let mut settings = http::Settings::default();
    let many = 1..=i64::from(u32::MAX);
    let mut set = |to: &mut usize, value: &Option<Spanned<i64>>, range| {
        *to = number(mistakes, value.as_ref(), range).unwrap_or(*to);
    };
    set(&mut settings.limit_connections, &limits.connections, many.clone());
    set(&mut settings.limit_header_bytes, &limits.header_bytes, 64..=1 << 20);
    set(&mut settings.limit_headers, &limits.headers, 1..=256);
    set(&mut settings.limit_target_bytes, &limits.target_bytes, 1..=1 << 20);
    settings.limit_connections_per_address =
        number(mistakes, limits.connections_per_address.as_ref(), many.clone());
    if let Some(requests) = number(mistakes, limits.requests_per_connection.as_ref(), many) {
        settings.limit_requests = requests;
    }
    if let Some(bytes) = number(mistakes, limits.body_bytes.as_ref(), 0..=256 << 20) {
        settings.limit_body_bytes = bytes;
    }
    let mut set = |to: &mut Duration, value: &Option<Spanned<i64>>| {
        let seconds = number(mistakes, value.as_ref(), SECONDS);
        *to = seconds.map_or(*to, Duration::from_secs);
    };
    set(&mut settings.header_timeout, &timeouts.header_seconds);
    set(&mut settings.body_timeout, &timeouts.body_seconds);
    set(&mut settings.idle_timeout, &timeouts.idle_seconds);
    set(&mut settings.write_timeout, &timeouts.write_seconds);
    settings.request_timeout =
        number(mistakes, timeouts.request_seconds.as_ref(), SECONDS).map(Duration::from_secs);
    settings
}

fn http2(config: &Http2, mistakes: &mut Mistakes) -> http::Http2Settings {
    let mut settings = http::Http2Settings::default();
    settings.prior_knowledge = config.prior_knowledge.unwrap_or(settings.prior_knowledge);
    let mut set = |to: &mut u32, value: &Option<Spanned<i64>>, range| {
        *to = number(mistakes, value.as_ref(), range).unwrap_or(*to);
    };
    set(&mut settings.limit_streams, &config.streams, 1..=65_536);
    set(&mut settings.limit_resets, &config.resets, 1..=1 << 20);
    set(&mut settings.limit_control_frames, &config.control_frames, 1..=1 << 20);
    // Less than that nobody can take back (RFC 9113, 6.9.2).
    let windows = 65_535..=(1 << 31) - 1;
    set(&mut settings.stream_window_bytes, &config.stream_window_bytes, windows.clone());
    set(&mut settings.connection_window_bytes, &config.connection_window_bytes, windows);
    settings.ping_interval =
        number(mistakes, config.ping_seconds.as_ref(), SECONDS).map(Duration::from_secs);
    let timeout = number(mistakes, config.ping_timeout_seconds.as_ref(), SECONDS);
    settings.ping_timeout = timeout.map_or(settings.ping_timeout, Duration::from_secs);
    settings
}

/// A number that has to be between others.
pub(super) fn number<T: TryFrom<i64>>(
    mistakes: &mut Mistakes,
    value: Option<&Spanned<i64>>,
    range: RangeInclusive<i64>,
) -> Option<T> {
    let value = value?;
    let number = *value.get_ref();
    if range.contains(&number) {
        return T::try_from(number).ok();
    }
    let what = match number < *range.start() {
        true => format!("{number} is too small: {} is the least", range.start()),
        false => format!("{number} is too large: {} is the most", range.end()),
    };
    mistakes.add(value.span(), what);
    None
}

/// Why no lines can be written there, as far as can be told without doing it.
fn wrong_log(file: &Path) -> Option<String> {
    if file == Path::new("-") {
        return None;
    }
    let shown = file.display();
    if file.is_dir() {
        return Some(format!(
            "cannot write the access log to {shown}: it is a directory (to serve it, and log to standard \
             output, write it before --access-log)"
        ));
    }
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.filter(|parent| !parent.is_dir()).map(|parent| {
        format!(
            "cannot write the access log to {shown}: there is no directory {}",
            parent.display()
        )
    })
}
