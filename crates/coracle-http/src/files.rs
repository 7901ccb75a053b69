//! Static files: a directory, served.
//!
//! ```text
//!   path ──► SitePath (path.rs) ──► kept on this loop? (cache.rs) ──yes──────────────────────┐
//!                                        │ no, or not looked at for a second                 ▼
//!                                        └──► elsewhere: look, open, read (site.rs, open.rs) ──► answer.rs
//! ```
//!
//! A disk is waited for on a thread of the worker pool, never on the loop. What was sent before is kept: small
//! files in memory, so that head and contents go out together; large ones open, for sendfile(2).

mod answer;
mod cache;
pub(crate) mod conditional;
mod keeper;
mod listing;
mod mime;
pub(crate) mod open;
mod path;
mod range;
mod site;
#[cfg(test)]
pub(crate) mod test_dir;
#[cfg(test)]
mod tests;

pub use conditional::{Conditions, Validators, Verdict};
pub use keeper::FilesStats;
pub use open::Symlinks;
pub use path::{DotFiles, PathError, SitePath};
pub use range::{LIMIT_RANGES, Selection, content_range, select_ranges};

use crate::{App, Coding, Headers, Html, IntoResponse, Method, Request, Response, Status};
use cache::Bounds;
use keeper::Keeper;
use open::{OpenError, Root};
use site::{Found, Site};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The methods that files answer.
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// Serves the files of a directory. An [`App`], and a part of one.
///
/// ```
/// use coracle_http::files::Files;
/// use coracle_http::{App, OwnedRequest, Status};
///
/// # let dir = std::env::temp_dir().join(format!("coracle-site-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// std::fs::write(dir.join("index.html"), "<h1>ahoy</h1>")?;
/// let files = Files::new(&dir)?;
///
/// let response = files.call(&OwnedRequest::new("GET", "/").request());
/// assert_eq!(response.body().as_bytes(), Some(&b"<h1>ahoy</h1>"[..]));
/// assert_eq!(response.headers().get("content-type"), Some("text/html; charset=utf-8"));
///
/// let response = files.call(&OwnedRequest::new("GET", "/../etc/passwd").request());
/// assert_eq!(response.status(), Status::BAD_REQUEST);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// | | |
/// |---|---|
/// | never outside | Not by `..`, an escape or a link: openat2(2) sees to it. No dot-files, no devices. |
/// | only what is needed | `ETag` and `Last-Modified`, and 304 to who has it already; ranges, several too. |
/// | compressed | `app.js.br`, `.zst` and `.gz` go out for `app.js` to who takes them, unless they are older. |
/// | directories | `index.html`; a redirect to the slash at the end; a [listing](Files::listing) if you want. |
/// | kept | Small files in memory, large ones open, on each loop; looked at again after a second. |
///
/// Clones share what they keep, until one of them is set to do otherwise. Any thread.
#[derive(Debug, Clone)]
pub struct Files {
    site: Arc<Site>,
    keeper: Arc<Keeper>,
    prefix: String,
}

impl Files {
    /// Serves this directory: `index.html` for directories, no listings, links inside only, no dot-files, and
    /// siblings that are compressed.
    ///
    /// The path is followed anew whenever something is looked up: a link to the current version of a site can be
    /// switched to another while it is served.
    ///
    /// # Errors
    /// It is not a directory, or cannot be opened.
    pub fn new(directory: impl AsRef<Path>) -> io::Result<Files> {
        let directory = directory.as_ref();
        let root = Root::new(directory, Symlinks::default()).map_err(|error| {
            let path = directory.display();
            io::Error::new(error.kind(), format!("cannot serve the directory {path}: {error}"))
        })?;
        let site = Site {
            root,
            dot_files: DotFiles::default(),
            index: vec!["index.html".to_owned()],
            listing: false,
            codings: Coding::ALL.to_vec(),
            types: mime::Types::default(),
            cache_control: None,
            limit_memory_file_bytes: keeper::MEMORY_FILE_BYTES,
            limit_listed_names: keeper::LIMIT_LISTED_NAMES,
        };
        Ok(Files { site: Arc::new(site), keeper: Arc::default(), prefix: String::new() })
    }

    /// Serves what is below `prefix` in the paths of requests: with `/static`, `/static/app.js` is `app.js`.
    /// Everything else is 404.
    ///
    /// ```
    /// # use coracle_http::files::Files;
    /// let files = Files::new("/usr/share")?.mounted_at("/share");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// When it does not begin with a slash.
    #[must_use]
    pub fn mounted_at(mut self, prefix: &str) -> Files {
        assert!(prefix.starts_with('/'), "a path begins with a slash: {prefix:?}");
        prefix.trim_end_matches('/').clone_into(&mut self.prefix);
        self
    }

    /// The names that are looked for in a directory, in this order; `["index.html"]` unless set.
    #[must_use]
    pub fn index<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Files {
        self.with(|site| site.index = names.into_iter().map(Into::into).collect())
    }

    /// Whether directories without an index are listed; otherwise they are 404.
    #[must_use]
    pub fn listing(self, listing: bool) -> Files {
        self.with(|site| site.listing = listing)
    }

    /// What becomes of names that begin with a dot.
    #[must_use]
    pub fn dot_files(self, dot_files: DotFiles) -> Files {
        self.with(|site| site.dot_files = dot_files)
    }

    /// What becomes of symbolic links.
    #[must_use]
    pub fn symlinks(self, symlinks: Symlinks) -> Files {
        self.with(|site| site.root.set_symlinks(symlinks))
    }

    /// For which codings there may be files beside the others: `app.js.br` for [`Coding::Br`]. The best first; all
    /// of them unless set, and an empty list for none.
    #[must_use]
    pub fn precompressed(self, codings: impl IntoIterator<Item = Coding>) -> Files {
        self.with(|site| {
            site.codings.clear();
            for coding in codings {
                if !site.codings.contains(&coding) {
                    site.codings.push(coding);
                }
            }
        })
    }

    /// The `Content-Type` of files that end in `.extension`.
    ///
    /// # Panics
    /// When it cannot be sent: it has a line end in it.
    #[must_use]
    pub fn content_type(self, extension: &str, content_type: &str) -> Files {
        check_value("content-type", content_type);
        self.with(|site| site.types.set(extension, content_type))
    }

    /// The `Cache-Control` of all files; none unless set, and then browsers guess.
    ///
    /// ```
    /// # use coracle_http::files::Files;
    /// let files = Files::new("/usr/share")?.cache_control("public, max-age=3600");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// When it cannot be sent: it has a line end in it.
    #[must_use]
    pub fn cache_control(self, value: &str) -> Files {
        check_value("cache-control", value);
        self.with(|site| site.cache_control = Some(value.to_owned()))
    }

    /// How long what was found is taken to be so before it is looked at again; a second unless set.
    #[must_use]
    pub fn revalidate_after(self, pause: Duration) -> Files {
        self.keeping(|keeper| keeper.pause = pause)
    }

    /// The largest file that is kept in memory, 32 KiB unless set. Larger ones are sent by sendfile(2).
    #[must_use]
    pub fn limit_memory_file_bytes(self, bytes: u64) -> Files {
        self.with(|site| site.limit_memory_file_bytes = bytes)
    }

    /// How many bytes of files each loop keeps in memory, 16 MiB unless set.
    #[must_use]
    pub fn limit_cache_bytes(self, bytes: usize) -> Files {
        self.keeping(|keeper| keeper.bounds = Bounds { bytes, ..keeper.bounds })
    }

    /// How many files each loop keeps, 1,024 unless set; 0 keeps none.
    #[must_use]
    pub fn limit_cache_files(self, files: usize) -> Files {
        self.keeping(|keeper| keeper.bounds = Bounds { entries: files, ..keeper.bounds })
    }

    /// How many large files each loop keeps open, 64 unless set.
    #[must_use]
    pub fn limit_cache_descriptors(self, descriptors: usize) -> Files {
        self.keeping(|keeper| keeper.bounds = Bounds { open_files: descriptors, ..keeper.bounds })
    }

    /// How many names a listing has at most, 10,000 unless set; it says that there are more.
    #[must_use]
    pub fn limit_listed_names(self, names: usize) -> Files {
        self.with(|site| site.limit_listed_names = names)
    }

    fn with(mut self, change: impl FnOnce(&mut Site)) -> Files {
        self.keeper = Arc::new(self.keeper.like()); // what was found before was found otherwise
        change(Arc::make_mut(&mut self.site));
        self
    }

    fn keeping(mut self, change: impl FnOnce(&mut Keeper)) -> Files {
        let mut keeper = self.keeper.like();
        change(&mut keeper);
        self.keeper = Arc::new(keeper);
        self
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        self.site.root.path()
    }

    /// What was found in memory and what was not, on all loops. Any thread.
    pub fn stats(&self) -> FilesStats {
        self.keeper.stats()
    }

    /// Answers a request with the file at `path`, whatever the path of the request is. For routers that know
    /// what is left of it: with escapes, and a slash in front.
    ///
    /// ```
    /// # use coracle_http::files::Files;
    /// # use coracle_http::{App, OwnedRequest, Status};
    /// # let dir = std::env::temp_dir().join(format!("coracle-answer-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?;
    /// std::fs::write(dir.join("a b.txt"), "ahoy")?;
    /// let request = OwnedRequest::new("GET", "/some/where/else");
    /// let response = Files::new(&dir)?.answer(&request.request(), "/a%20b.txt");
    /// assert_eq!(response.status(), Status::OK);
    /// # std::fs::remove_dir_all(dir)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn answer(&self, req: &Request<'_>, path: &str) -> Response {
        match req.method() {
            Method::Get | Method::Head => {}
            Method::Options => return with_allow(Response::new(Status::NO_CONTENT)),
            _ => return with_allow(Status::METHOD_NOT_ALLOWED.into_response()),
        }
        let path = match SitePath::parse(path, self.site.dot_files) {
            Ok(path) => path,
            Err(error) => return status(error.status()).into_response(),
        };
        let found = match self.keeper.find(&self.site, &path) {
            Ok(found) => found,
            Err(error) => return refused(&error, path.relative()),
        };
        match &*found {
            Found::Redirect => add_slash(req),
            Found::Listing(page) => list(page.clone()),
            Found::Entry(entry) => {
                let answer = answer::answer(entry, req.method(), req.headers(), SystemTime::now());
                answer.unwrap_or_else(|error| refused(&error.into(), path.relative()))
            }
        }
    }
}

impl App for Files {
    fn call(&self, req: &Request<'_>) -> Response {
        let path = req.path();
        // Mounted at `/static`, `/` is what is asked for by `/static`, too.
        if path == "/" && !req.full_path().ends_with('/') {
            return add_slash(req);
        }
        match path.strip_prefix(&*self.prefix) {
            Some("") if !self.prefix.is_empty() => add_slash(req),
            Some(below) if below.starts_with('/') || self.prefix.is_empty() => {
                self.answer(req, below)
            }
            _ => Status::NOT_FOUND.into_response(),
        }
    }
}

fn status(code: u16) -> Status {
    Status::from_u16(code).unwrap_or(Status::INTERNAL_SERVER_ERROR)
}

fn with_allow(response: Response) -> Response {
    response.with_header("allow", ALLOW)
}

/// The same path, with a slash at its end: then what is linked in the directory is found in it. It has no two
/// slashes in front, which would lead to another host.
pub(crate) fn add_slash(req: &Request<'_>) -> Response {
    if req.full_path().starts_with("//") {
        return Status::NOT_FOUND.into_response();
    }
    let query = req.query().map(|query| format!("?{query}")).unwrap_or_default();
    Status::MOVED_PERMANENTLY
        .into_response()
        .with_header("location", format!("{}/{query}", req.full_path()))
}

fn list(page: String) -> Response {
    // The page is ours, and needs nothing but its own style.
    Html(page)
        .into_response()
        .with_header("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'")
        .with_header("x-content-type-options", "nosniff")
}

/// The client is told the status, the log why.
fn refused(error: &OpenError, path: &str) -> Response {
    let response = status(error.status()).into_response();
    match error {
        OpenError::NotFound | OpenError::Forbidden => response,
        OpenError::Busy(why) => {
            tracing::warn!("cannot serve {path:?} now: {why}");
            response.with_header("retry-after", "1")
        }
        OpenError::Failed(why) => {
            tracing::error!("cannot serve {path:?}: {why}");
            response
        }
    }
}

fn check_value(name: &'static str, value: &str) {
    if let Err(error) = Headers::new().insert(name, value) {
        panic!("{error}");
    }
}
