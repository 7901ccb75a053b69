//! From the path of a request to a script below a directory, and what is left of the path behind it.
//!
//! ```text
//!   /cgi-bin/tools/hello.py/some/where
//!   └mounted┘└─ a script ──┘└PATH_INFO┘      found name by name: the first that is a file is the script
//! ```

use crate::files::open::{OpenError, Root, Seen};
use crate::files::{DotFiles, PathError, SitePath};
use crate::{IntoResponse, Request, Response, Status};
use coracle_coro::offload;
use rustix::fs::{Access, AtFlags, CWD};
use std::path::PathBuf;
use std::sync::Arc;

/// How many directories deep a script may be.
const LIMIT_DEPTH: usize = 32;

/// A script, and how it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Script {
    /// Where it is, from the root of the file system.
    pub(crate) file: PathBuf,
    /// Its path in the URL, decoded: `SCRIPT_NAME`.
    pub(crate) name: String,
    /// What is left of the path behind it, decoded: empty, or with a slash in front.
    pub(crate) path_info: String,
}

/// Why there is no script to be run.
#[derive(Debug)]
pub(crate) enum NoScript {
    /// There is nothing of that name, or it is not for others to run: 404.
    NotFound,
    /// What is there must not be run: 403. The log is told why.
    Forbidden(PathBuf, &'static str),
    /// The path is none.
    Bad(PathError),
    /// It cannot be looked up now.
    Failed(OpenError),
}

/// The part of a request's path that is below `prefix`, or below where the app is mounted; and what is above.
fn below<'a>(req: &Request<'a>, prefix: &str) -> Option<(String, &'a str)> {
    let below = req.path().strip_prefix(prefix)?;
    if !below.starts_with('/') {
        return None;
    }
    let above = req.full_path().strip_suffix(below).unwrap_or_default();
    Some((percent_encoding::percent_decode_str(above).decode_utf8_lossy().into_owned(), below))
}

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Search {
    /// What a script's name must end in, if anything.
    pub(crate) suffix: Option<String>,
    /// What is run for a directory, if anything.
    pub(crate) index: Option<String>,
    /// What is run where there is nothing else, if anything: below the root.
    pub(crate) front: Option<String>,
    /// Whether it must be executable.
    pub(crate) executable: bool,
}

impl Search {
    /// The script that a request is for, below `prefix`. A disk is waited for elsewhere.
    pub(crate) fn find_for(
        &self,
        req: &Request<'_>,
        prefix: &str,
        root: &Arc<Root>,
    ) -> Result<Script, NoScript> {
        let (above, path) = below(req, prefix).ok_or(NoScript::NotFound)?;
        parse(path)?;
        let (search, root, path) = (self.clone(), Arc::clone(root), path.to_owned());
        let found = offload(move || search.find(&root, &above, &parse(&path)?));
        found.map_err(|error| NoScript::Failed(OpenError::Busy(error)))?
    }

    /// Looks for the script that a path leads to. May wait for a disk.
    fn find(&self, root: &Root, above: &str, path: &SitePath<'_>) -> Result<Script, NoScript> {
        let found = self.walk(root, above, path);
        let (Err(NoScript::NotFound), Some(front)) = (&found, &self.front) else { return found };
        let path_info = match path.relative() {
            "" => String::new(),
            relative => format!("/{relative}{}", if path.is_directory() { "/" } else { "" }),
        };
        match root.look(front) {
            Ok(Seen::File(_)) => self.script(root, above, front, path_info),
            _ => found,
        }
    }

    fn walk(&self, root: &Root, above: &str, path: &SitePath<'_>) -> Result<Script, NoScript> {
        let relative = path.relative();
        let mut ends = relative.match_indices('/').map(|(at, _)| at).collect::<Vec<_>>();
        if !relative.is_empty() {
            ends.push(relative.len());
        }
        for end in ends.into_iter().take(LIMIT_DEPTH) {
            let begin = &relative[..end];
            let name = begin.rsplit('/').next().unwrap_or_default();
            if name.starts_with('.') {
                return Err(NoScript::NotFound); // behind a script, such a name is nothing to us
            }
            match root.look(begin).map_err(NoScript::from)? {
                Seen::Directory(_) => {}
                // A name behind a file that is no script does not make it one: `photo.jpg/x.php`.
                Seen::File(_) if !self.is_name(name) => return Err(NoScript::NotFound),
                Seen::File(_) => {
                    let slash = if path.is_directory() { "/" } else { "" };
                    let path_info = format!("{}{slash}", &relative[end..]);
                    return self.script(root, above, begin, path_info);
                }
            }
        }
        match &self.index {
            Some(index) if path.is_directory() => {
                let slash = if relative.is_empty() { "" } else { "/" };
                let index = format!("{relative}{slash}{index}");
                match root.look(&index).map_err(NoScript::from)? {
                    Seen::File(_) => self.script(root, above, &index, String::new()),
                    Seen::Directory(_) => Err(NoScript::NotFound),
                }
            }
            _ => Err(NoScript::NotFound),
        }
    }

    fn is_name(&self, name: &str) -> bool {
        let suffix = self.suffix.as_deref();
        suffix.is_none_or(|suffix| name.len() > suffix.len() && name.ends_with(suffix))
    }

    fn script(
        &self,
        root: &Root,
        above: &str,
        relative: &str,
        path_info: String,
    ) -> Result<Script, NoScript> {
        let file = root.path().join(relative);
        if self.executable
            && let Err(error) = rustix::fs::accessat(CWD, &file, Access::EXEC_OK, AtFlags::EACCESS)
        {
            return Err(match error {
                rustix::io::Errno::ACCESS => {
                    NoScript::Forbidden(file, "it is not executable: chmod +x it")
                }
                error => NoScript::from(OpenError::from(error)),
            });
        }
        Ok(Script { file, name: format!("{above}/{relative}"), path_info })
    }
}

fn parse(path: &str) -> Result<SitePath<'_>, NoScript> {
    SitePath::parse(path, DotFiles::Show).map_err(NoScript::Bad)
}

impl From<OpenError> for NoScript {
    fn from(error: OpenError) -> NoScript {
        match error {
            OpenError::NotFound => NoScript::NotFound,
            error => NoScript::Failed(error),
        }
    }
}

impl IntoResponse for NoScript {
    fn into_response(self) -> Response {
        match self {
            NoScript::NotFound => Status::NOT_FOUND.into_response(),
            NoScript::Forbidden(file, why) => {
                tracing::warn!("the script {} is not run: {why}", file.display());
                Status::FORBIDDEN.into_response()
            }
            NoScript::Bad(error) => {
                let status = Status::from_u16(error.status());
                status.unwrap_or(Status::BAD_REQUEST).into_response()
            }
            NoScript::Failed(error) => {
                tracing::error!("a script cannot be looked up: {error:?}");
                let status = Status::from_u16(error.status());
                status.unwrap_or(Status::INTERNAL_SERVER_ERROR).into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Symlinks;
    use crate::files::test_dir::TestDir;
    use std::os::unix::fs::PermissionsExt;

    fn find(search: &Search, dir: &TestDir, path: &str) -> Result<(String, String), u16> {
        let root = Root::new(&dir.path().join("site"), Symlinks::Inside).unwrap();
        match parse(path).and_then(|path| search.find(&root, "/up", &path)) {
            Ok(script) => Ok((script.name, script.path_info)),
            Err(no_script) => Err(no_script.into_response().status().as_u16()),
        }
    }

    fn found(name: &str, path_info: &str) -> Result<(String, String), u16> {
        Ok((name.to_owned(), path_info.to_owned()))
    }

    #[test]
    fn o1_scripts_are_found_and_the_path_is_split() {
        let dir = TestDir::new();
        dir.file("secret", "").file("site/a.sh", "").file("site/d/b.sh", "").file("site/.h/c", "");
        dir.file("site/not.sh", "").link("site/out", "../secret").link("site/in", "a.sh");
        for name in ["site/a.sh", "site/d/b.sh", "site/.h/c", "secret"] {
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(dir.path().join(name), mode).unwrap();
        }
        let mode = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(dir.path().join("site/not.sh"), mode).unwrap();
        let search = Search { executable: true, ..Search::default() };
        for (path, expected) in [
            ("/a.sh", found("/up/a.sh", "")),
            ("/a.sh/", found("/up/a.sh", "/")),
            ("/a.sh/x/.y", found("/up/a.sh", "/x/.y")),
            ("/d/b.sh/%41", found("/up/d/b.sh", "/A")),
            ("/in", found("/up/in", "")),
            ("/out", Err(404)),
            ("/", Err(404)),
            ("/d", Err(404)),
            ("/d/", Err(404)),
            ("/gone", Err(404)),
            ("/.h/c", Err(404)),
            ("/not.sh", Err(403)),
            ("/../secret", Err(400)),
            ("/%2e%2e/secret", Err(400)),
            ("/a.sh/../x", Err(400)),
            ("/a.sh%2fx", Err(400)),
            ("/a.sh%00", Err(400)),
        ] {
            assert_eq!(find(&search, &dir, path), expected, "{path}");
        }
    }

    #[test]
    fn o2_only_what_is_named_so_is_a_script() {
        let dir = TestDir::new();
        dir.file("site/index.php", "").file("site/photo.jpg", "").file("site/d/index.php", "");
        dir.file("site/.php", "").file("site/x.php.bak", "");
        let mut search = Search {
            suffix: Some(".php".to_owned()),
            index: Some("index.php".to_owned()),
            ..Search::default()
        };
        for (path, expected) in [
            ("/index.php", found("/up/index.php", "")),
            ("/index.php/a/b", found("/up/index.php", "/a/b")),
            ("/", found("/up/index.php", "")),
            ("/d/", found("/up/d/index.php", "")),
            ("/photo.jpg", Err(404)),
            ("/photo.jpg/x.php", Err(404)),
            ("/photo.jpg%00.php", Err(400)),
            ("/x.php.bak", Err(404)),
            ("/.php", Err(404)),
            ("/nothing/here", Err(404)),
        ] {
            assert_eq!(find(&search, &dir, path), expected, "{path}");
        }
        search.front = Some("index.php".to_owned());
        assert_eq!(find(&search, &dir, "/nothing/here"), found("/up/index.php", "/nothing/here"));
        assert_eq!(
            find(&search, &dir, "/photo.jpg/x.php"),
            found("/up/index.php", "/photo.jpg/x.php")
        );
        assert_eq!(find(&search, &dir, "/a/../b"), Err(400));
    }
}
