//! What a path leads to, on the disk: looked up, opened, and small files read.
//!
//! ```text
//!   docs/ ──► resolve: docs/index.html, and docs/index.html.br, too ──► load: open both, read them if small
//!                    └─ again, a second later: the same? then what was loaded is still good
//! ```
//!
//! Everything here may wait for a disk: it is called on a thread of the worker pool.

use super::conditional::Validators;
use super::listing::{self, Line};
use super::mime::Types;
use super::open::{self, OpenError, Opened, Root, Seen, State};
use super::path::{self, DotFiles, SitePath};
use crate::shared_file::SharedFile;
use crate::{Coding, Headers};
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::SystemTime;

/// How often a file is opened again that changes while it is looked at.
const LIMIT_TRIES: u32 = 4;

/// A directory and how it is served.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) root: Root,
    pub(super) dot_files: DotFiles,
    pub(super) index: Vec<String>,
    pub(super) listing: bool,
    pub(super) codings: Vec<Coding>,
    pub(super) types: Types,
    pub(super) cache_control: Option<String>,
    pub(super) limit_memory_file_bytes: u64,
    pub(super) limit_listed_names: usize,
}

/// What a path leads to. As long as it is the same, what was loaded is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// A file, and those beside it that have the same in them, compressed.
    File { name: String, state: State, siblings: Vec<(Coding, State)> },
    /// A directory, asked for without the slash at its end.
    Redirect,
    /// A directory that is to be listed.
    Listing,
}

/// What there is to answer with.
#[derive(Debug)]
pub(super) enum Found {
    Entry(Entry),
    Redirect,
    /// The page.
    Listing(String),
}

/// A file, ready to be sent.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) target: Target,
    /// As it is first, then compressed ones, the best first.
    pub(super) variants: Vec<Variant>,
}

/// A file as it is, or in one coding.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) coding: Option<Coding>,
    pub(super) length: u64,
    pub(super) validators: Validators,
    pub(super) content_type: String,
    /// Those of a 200.
    pub(super) headers: Headers,
    pub(super) contents: Contents,
}

/// Where the bytes are.
#[derive(Debug)]
pub(super) enum Contents {
    Memory(Bytes),
    File(Arc<SharedFile>),
}

impl Entry {
    /// How many bytes of memory it holds.
    pub(super) fn memory_bytes(&self) -> usize {
        let variants = self.variants.iter().map(|variant| match &variant.contents {
            Contents::Memory(bytes) => bytes.len(),
            Contents::File(_) => 0,
        });
        variants.sum()
    }

    /// How many files it holds open.
    pub(super) fn open_files(&self) -> usize {
        let open = |variant: &&Variant| matches!(variant.contents, Contents::File(_));
        self.variants.iter().filter(open).count()
    }
}

impl Site {
    /// What is at a path.
    pub(super) fn find(&self, path: &SitePath<'_>) -> Result<Found, OpenError> {
        for _ in 1..LIMIT_TRIES {
            if let Some(found) = self.load(path, self.resolve(path)?, false)? {
                return Ok(found);
            }
        }
        // Somebody writes to it all the time. Then it is sent as it is when it is sent.
        let target = self.resolve(path)?;
        self.load(path, target, true)?.ok_or(OpenError::NotFound)
    }

    /// Where a path leads, by looks only.
    pub(super) fn resolve(&self, path: &SitePath<'_>) -> Result<Target, OpenError> {
        let name = path.relative();
        match (self.root.look(name)?, path.is_directory()) {
            (Seen::File(state), false) => Ok(self.with_siblings(name.to_owned(), state)),
            (Seen::File(_), true) => Err(OpenError::NotFound),
            (Seen::Directory(_), false) => Ok(Target::Redirect),
            (Seen::Directory(_), true) => self.resolve_index(name),
        }
    }

    fn resolve_index(&self, directory: &str) -> Result<Target, OpenError> {
        for index in &self.index {
            let name = join(directory, index);
            match self.root.look(&name) {
                Ok(Seen::File(state)) => return Ok(self.with_siblings(name, state)),
                Ok(Seen::Directory(_)) | Err(OpenError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        if self.listing { Ok(Target::Listing) } else { Err(OpenError::NotFound) }
    }

    /// One that is older than the file it was made from has something else in it, and does not count.
    fn with_siblings(&self, name: String, state: State) -> Target {
        let mut siblings = Vec::new();
        for &coding in &self.codings {
            if let Ok(Seen::File(sibling)) = self.root.look(&sibling_name(&name, coding))
                && sibling.modified_seconds() >= state.modified_seconds()
            {
                siblings.push((coding, sibling));
            }
        }
        Target::File { name, state, siblings }
    }

    /// Opens what a path leads to; `None` if it has changed meanwhile, unless that is to be put up with.
    fn load(
        &self,
        path: &SitePath<'_>,
        target: Target,
        anyway: bool,
    ) -> Result<Option<Found>, OpenError> {
        let (name, state, siblings) = match &target {
            Target::Redirect => return Ok(Some(Found::Redirect)),
            Target::Listing => return self.list(path.relative()).map(Found::Listing).map(Some),
            Target::File { name, state, siblings } => (name, *state, siblings),
        };
        let vary = !siblings.is_empty();
        let parts = std::iter::once((None, state))
            .chain(siblings.iter().map(|&(coding, state)| (Some(coding), state)));
        let mut variants = Vec::with_capacity(1 + siblings.len());
        for (coding, expected) in parts {
            let file_name = match coding {
                None => name.clone(),
                Some(coding) => sibling_name(name, coding),
            };
            let Opened::File(file, state) = self.root.open(&file_name)? else { return Ok(None) };
            if state != expected && !anyway {
                return Ok(None);
            }
            let Some(contents) = self.contents(file, state, anyway)? else { return Ok(None) };
            variants.push(self.variant(name, coding, vary, state, contents));
        }
        Ok(Some(Found::Entry(Entry { target, variants })))
    }

    /// Reads a small file; `None` if it changes meanwhile.
    fn contents(&self, file: File, state: State, anyway: bool) -> io::Result<Option<Contents>> {
        if anyway || state.length > self.limit_memory_file_bytes {
            return Ok(Some(Contents::File(SharedFile::new(file))));
        }
        let mut bytes = vec![0; state.length as usize];
        match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let same = State::of(&file)? == state;
        Ok(same.then(|| Contents::Memory(bytes.into())))
    }

    fn variant(
        &self,
        name: &str,
        coding: Option<Coding>,
        vary: bool,
        state: State,
        contents: Contents,
    ) -> Variant {
        let validators = state.validators();
        let content_type = self.types.of(name).into_owned();
        let last_modified = validators.last_modified(SystemTime::now());
        let mut headers = Headers::new();
        let mut add = |name: &str, value: &str| {
            headers.append(name, value).expect("checked when it was set, or made here");
        };
        add("content-type", &content_type);
        add("etag", validators.etag());
        if let Some(date) = last_modified {
            add("last-modified", &date);
        }
        add("accept-ranges", "bytes");
        if let Some(coding) = coding {
            add("content-encoding", coding.name());
        }
        if vary {
            add("vary", "accept-encoding");
        }
        if let Some(cache_control) = &self.cache_control {
            add("cache-control", cache_control);
        }
        add("x-content-type-options", "nosniff");
        Variant { coding, length: state.length, validators, content_type, headers, contents }
    }

    /// The page that lists a directory: only what would be served.
    fn list(&self, directory: &str) -> Result<String, OpenError> {
        let Opened::Directory(opened) = self.root.open(directory)? else {
            return Err(OpenError::NotFound);
        };
        let mut lines = Vec::new();
        let mut more = false;
        for name in open::names(&opened)? {
            let Ok(name) = name?.into_string() else { continue };
            if path::check(&name, directory.is_empty(), self.dot_files).is_err() {
                continue;
            }
            if lines.len() == self.limit_listed_names {
                more = true;
                break;
            }
            let seen = match open::look_in(&opened, name.as_ref()) {
                Ok(Some(seen)) => seen,
                Ok(None) => match self.root.look(&join(directory, &name)) {
                    Ok(seen) => seen,
                    Err(_) => continue, // a link that leads nowhere, or out
                },
                Err(_) => continue, // a device, or gone already
            };
            let (length, state) = match seen {
                Seen::File(state) => (Some(state.length), state),
                Seen::Directory(state) => (None, state),
            };
            lines.push(Line { name, length, modified: state.modified_seconds() });
        }
        listing::sort(&mut lines);
        Ok(listing::page(directory, &lines, more))
    }
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

fn sibling_name(name: &str, coding: Coding) -> String {
    format!("{name}.{}", coding.extension())
}
