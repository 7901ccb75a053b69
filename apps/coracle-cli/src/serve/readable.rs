//! Whether who serves may read what is to be served: asked by whom it is, when privileges are given up.

use super::privileges::Account;
use super::setup::Setup;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::Path;

/// Fails if there is a directory of files or scripts that cannot be entered: all that is in it would be a 403.
/// `who` is who asks.
pub(super) fn check(setup: &Setup, who: Option<&Account>) -> io::Result<()> {
    for site in setup.sites() {
        let listed = site.listing.then_some(site.directory.as_path());
        for directory in site.published().chain(site.gateways.script_directories()) {
            let (what, wanted) = match Some(directory) == listed {
                true => ("list and enter", Access::READ_OK | Access::EXEC_OK),
                false => ("enter", Access::EXEC_OK),
            };
            if access(directory, wanted) == Err(Errno::ACCESS) && !is_other(directory) {
                return Err(refused(who, what, directory, "it would be refused to everybody"));
            }
        }
    }
    Ok(())
}

/// The files that stand for a directory at the top of a site and cannot be read.
pub(super) fn warnings(setup: &Setup) -> impl Iterator<Item = String> {
    setup.sites().flat_map(move |site| {
        let index = |directory: &Path| {
            let mut files = site.index.iter().map(|name| directory.join(name));
            let first = files.find(|file| file.is_file())?;
            let so = "its page would be refused to everybody";
            let is_refused = access(&first, Access::READ_OK) == Err(Errno::ACCESS);
            is_refused.then(|| refused(setup.account.as_ref(), "read", &first, so).to_string())
        };
        site.published().filter_map(index).collect::<Vec<_>>()
    })
}

/// Whether it is no directory, which is told by who is to serve it.
fn is_other(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|it| !it.is_dir())
}

fn refused(who: Option<&Account>, what: &str, path: &Path, so: &str) -> io::Error {
    let error = io::Error::from(Errno::ACCESS);
    let who = who.map(|who| format!("the user {who} "));
    let (who, path) = (who.unwrap_or_default(), path.display());
    let cure = "change its mode or its owner, or serve as another user";
    io::Error::new(error.kind(), format!("{who}cannot {what} {path}: {error}; {so}: {cure}"))
}
