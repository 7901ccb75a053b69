//! Whether who serves may read what is to be served: asked by whom it is, when privileges are given up.

use super::setup::Setup;
use rustix::fs::{Access, access};
use std::io;
use std::path::Path;

/// Fails if there is a directory of files or scripts that cannot be entered: all that is in it would be a 403.
pub(super) fn check(setup: &Setup) -> io::Result<()> {
    for site in setup.sites() {
        let listed = site.listing.then_some(site.directory.as_path());
        for directory in site.published().chain(site.gateways.script_directories()) {
            let (what, wanted) = match Some(directory) == listed {
                true => ("list and enter", Access::READ_OK | Access::EXEC_OK),
                false => ("enter", Access::EXEC_OK),
            };
            access(directory, wanted).map_err(|error| {
                refused(setup, what, directory, error.into(), "it would be refused to everybody")
            })?;
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
            let error = access(&first, Access::READ_OK).err()?;
            let what = "its page would be refused to everybody";
            Some(refused(setup, "read", &first, error.into(), what).to_string())
        };
        site.published().filter_map(index).collect::<Vec<_>>()
    })
}

fn refused(setup: &Setup, what: &str, path: &Path, error: io::Error, so: &str) -> io::Error {
    let (path, who) = (path.display(), setup.account.as_ref());
    let cure = "change its mode or its owner, or serve as another user";
    let text = match who {
        Some(who) => format!("the user {who} cannot {what} {path}: {error}; {so}: {cure}"),
        None => format!("cannot {what} {path}: {error}; {so}: {cure}"),
    };
    io::Error::new(error.kind(), text)
}
