//! Programs that answer below a path of a site: scripts (CGI), and servers that speak FastCGI.

use super::config;
use super::mistake::Mistakes;
use super::setup::{SECONDS, number};
use coracle::http::files::Files;
use coracle::http::{App, Cgi, FastCgi, Plan, Request, Response};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// Where `--cgi-dir` has its scripts, unless it says.
pub(super) const CGI_BIN: &str = "/cgi-bin";

/// All of a site: the longest path first.
#[derive(Debug, Clone, Default)]
pub(super) struct Gateways(Vec<Gateway>);

#[derive(Debug, Clone)]
struct Gateway {
    /// Without a slash at its end.
    path: String,
    directory: PathBuf,
    /// Whether other files of the directory are served, too.
    shows_files: bool,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Cgi(Cgi),
    FastCgi(Box<FastCgi>),
}

impl Gateways {
    /// A directory of scripts, from the command line.
    pub(super) fn add_cgi(&mut self, path: &str, directory: &Path) -> io::Result<()> {
        let cgi = Cgi::new(directory)?;
        self.add(path, directory, false, |path| Kind::Cgi(mounted(path, cgi, Cgi::mounted_at)));
        Ok(())
    }

    /// One in the place of another at the same path.
    fn add(
        &mut self,
        path: &str,
        directory: &Path,
        shows_files: bool,
        kind: impl FnOnce(&str) -> Kind,
    ) {
        let path = path.trim_end_matches('/');
        self.0.retain(|other| other.path != path);
        let (kind, directory) = (kind(path), directory.to_owned());
        self.0.push(Gateway { path: path.to_owned(), directory, shows_files, kind });
        self.0.sort_by_key(|gateway| std::cmp::Reverse(gateway.path.len()));
    }

    /// Who answers a request, if anybody of these. However its path is escaped: for who decodes it behind us,
    /// `/%73cripts` is `/scripts`, and the files of the site would show the source.
    fn find(&self, req: &Request<'_>) -> Option<&Gateway> {
        self.0.iter().find(|gateway| {
            let mut asked = req.segments().iter();
            gateway.path.split('/').skip(1).all(|name| asked.next() == Some(&name))
        })
    }

    pub(super) fn answer(&self, req: &Request<'_>) -> Option<Response> {
        let gateway = self.find(req)?;
        Some(match &gateway.kind {
            Kind::Cgi(cgi) => cgi.call(req),
            Kind::FastCgi(server) => server.call(req),
        })
    }

    pub(super) fn plan(&self, req: &Request<'_>) -> Option<Plan> {
        Some(match &self.find(req)?.kind {
            Kind::Cgi(cgi) => cgi.plan(req),
            Kind::FastCgi(server) => server.plan(req),
        })
    }

    /// The directories whose files are served, beside those scripts, and below which path: that of the site, if
    /// something is left for it, and those of gateways that serve files, too.
    pub(super) fn published<'a>(&'a self, site: &'a Path) -> Vec<(&'a str, &'a Path)> {
        let leave_nothing = self.0.iter().any(|gateway| gateway.path.is_empty());
        let site = (!leave_nothing).then_some(("", site));
        let own = self.0.iter().filter(|gateway| gateway.shows_files);
        site.into_iter().chain(own.map(|it| (it.path.as_str(), it.directory.as_path()))).collect()
    }

    /// The directories of scripts that are started here.
    pub(super) fn script_directories(&self) -> impl Iterator<Item = &Path> {
        let is_cgi = |gateway: &&Gateway| matches!(gateway.kind, Kind::Cgi(_));
        self.0.iter().filter(is_cgi).map(|gateway| gateway.directory.as_path())
    }

    /// The first whose scripts would be shown as files, by whoever answers there; and which.
    pub(super) fn shown_by(&self, site: &Path) -> Option<String> {
        let published = self.published(site).into_iter();
        let published: Vec<(&str, PathBuf)> = published
            .filter_map(|(path, directory)| Some((path, fs::canonicalize(directory).ok()?)))
            .collect();
        self.0.iter().find_map(|gateway| {
            let directory = fs::canonicalize(&gateway.directory).ok()?;
            published.iter().find_map(|(path, files)| {
                let below = directory.strip_prefix(files).ok()?.to_str()?;
                let slash = if below.is_empty() { "" } else { "/" };
                let there = format!("{path}{slash}{below}");
                let is_shown = match self.0.iter().find(|other| other.covers(&there)) {
                    None => true, // the site answers
                    // Where it is FastCGI that has these files, those that end like its scripts are not shown.
                    Some(other) => other.path == *path && matches!(gateway.kind, Kind::Cgi(_)),
                };
                is_shown.then(|| gateway.shown_at(&there))
            })
        })
    }
}

impl Gateway {
    /// Whether it may be asked for what is at this path: it is, unless another has a longer one.
    fn covers(&self, path: &str) -> bool {
        path.strip_prefix(&*self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// What is wrong if its directory is also that of files, at this path.
    fn shown_at(&self, path: &str) -> String {
        let scripts = self.directory.display();
        let there = if path.is_empty() { "/" } else { path };
        format!(
            "the scripts of {scripts} are also files of the site, which would show their source at \
             {path}/: move them elsewhere, or have them run there (path = {there:?}, or \
             --cgi-dir {there}={scripts})"
        )
    }
}

fn mounted<T>(path: &str, app: T, mount: impl FnOnce(T, &str) -> T) -> T {
    if path.is_empty() { app } else { mount(app, path) }
}

/// Reads both kinds of tables.
pub(super) fn read(site: &config::Site, mistakes: &mut Mistakes, base: &Path) -> Gateways {
    let mut gateways = Gateways::default();
    for table in &site.cgi {
        let directory = base.join(table.directory.get_ref());
        let limit = number(mistakes, table.limit_processes.as_ref(), 1..=65_536);
        let timeout = number(mistakes, table.timeout_seconds.as_ref(), SECONDS);
        let known = is_path(&table.path, mistakes) & are_variables(&table.variables, mistakes);
        match Cgi::new(&directory) {
            Err(error) => mistakes.add(table.directory.span(), error.to_string()),
            Ok(mut cgi) if known => {
                cgi = cgi.pass_authorization(table.pass_authorization);
                cgi = limit.map_or(cgi.clone(), |limit| cgi.limit_processes(limit));
                cgi = timeout.map_or(cgi.clone(), |it| cgi.timeout(Duration::from_secs(it)));
                for (name, value) in &table.variables {
                    cgi = cgi.variable(name.get_ref(), value);
                }
                let kind = |path: &str| Kind::Cgi(mounted(path, cgi, Cgi::mounted_at));
                gateways.add(table.path.get_ref(), &directory, false, kind);
            }
            Ok(_) => {}
        }
    }
    for table in &site.fastcgi {
        let directory = base.join(table.directory.get_ref());
        let timeout = number(mistakes, table.timeout_seconds.as_ref(), SECONDS);
        let limit = number(mistakes, table.limit_connections.as_ref(), 1..=65_536);
        let known = is_path(&table.path, mistakes) & are_variables(&table.variables, mistakes);
        let files = match Files::new(&directory) {
            Ok(files) => files,
            Err(error) => {
                mistakes.add(table.directory.span(), error.to_string());
                continue;
            }
        };
        match FastCgi::new(table.address.get_ref(), &directory) {
            Err(error) => mistakes.add(table.address.span(), error.to_string()),
            Ok(mut server) if known => {
                server = server.pass_authorization(table.pass_authorization);
                server = limit.map_or(server.clone(), |limit| server.limit_connections(limit));
                server =
                    timeout.map_or(server.clone(), |it| server.timeout(Duration::from_secs(it)));
                if let Some(name) = &table.front_controller {
                    server = server.front_controller(name);
                }
                if let Some(there) = &table.directory_there {
                    server = server.directory_there(there);
                }
                for (name, value) in &table.variables {
                    server = server.variable(name.get_ref(), value);
                }
                let path = table.path.get_ref();
                if table.files {
                    let trimmed = path.trim_end_matches('/');
                    server = server.fallback(mounted(trimmed, files, Files::mounted_at));
                }
                let kind = |path: &str| {
                    Kind::FastCgi(Box::new(mounted(path, server, FastCgi::mounted_at)))
                };
                gateways.add(path, &directory, table.files, kind);
            }
            Ok(_) => {}
        }
    }
    gateways
}

fn is_path(path: &Spanned<String>, mistakes: &mut Mistakes) -> bool {
    let is_path = path.get_ref().starts_with('/') && !path.get_ref().contains(['?', '#', '%']);
    if !is_path {
        mistakes.add(path.span(), "a path begins with a slash, and has no escapes: \"/cgi-bin\"");
    }
    is_path
}

fn are_variables(variables: &config::Variables, mistakes: &mut Mistakes) -> bool {
    let mut fine = true;
    for (name, value) in variables {
        if name.get_ref().is_empty() || name.get_ref().contains(['=', '\0']) || value.contains('\0')
        {
            mistakes
                .add(name.span(), "this cannot be a variable: no `=` in its name, no NUL at all");
            fine = false;
        }
    }
    fine
}
