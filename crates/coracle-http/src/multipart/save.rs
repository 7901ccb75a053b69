//! Files that were sent, on disk until somebody keeps them.

use super::{Multipart, Part};
use crate::Problem;
use coracle_coro::fs::{self, File};
use std::fs::OpenOptions;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Written to a file at a time.
const WRITE_BYTES: usize = 128 << 10;

/// A form that was read: fields in memory, files on disk.
#[derive(Debug, Default)]
pub struct Upload {
    fields: Vec<(String, String)>,
    files: Vec<SavedFile>,
}

impl Upload {
    /// The value of the first field of this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// All fields: name and value.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// All files.
    pub fn files(&self) -> &[SavedFile] {
        &self.files
    }

    /// Takes the files out, to [keep](SavedFile::keep) them.
    pub fn take_files(&mut self) -> Vec<SavedFile> {
        std::mem::take(&mut self.files)
    }
}

/// A file that was sent. Dropped, it is removed, unless it was [kept](SavedFile::keep).
#[derive(Debug)]
pub struct SavedFile {
    name: String,
    file_name: String,
    content_type: Option<String>,
    path: PathBuf,
    len: u64,
    kept: bool,
}

impl SavedFile {
    /// The name of the field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the client calls it. Anything may be in it: show it, but never use it as a path.
    pub fn file_name(&self) -> &str {
        &self.file_name
    }

    /// What the client says it is.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none: as that of a form in which no file was chosen.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Moves it to where it is to stay, on the same file system; what was there is replaced.
    ///
    /// # Errors
    /// When it cannot be moved. Then it is removed.
    pub fn keep(mut self, path: impl AsRef<Path>) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for SavedFile {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let path = std::mem::take(&mut self.path);
        let remove = move || {
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!("cannot remove the upload {}: {error}", path.display());
            }
        };
        // Not on a loop's thread: to remove a long file takes its time. Nobody waits for it.
        match coracle_loop::Loop::current() {
            Some(lp) => {
                let again = remove.clone();
                if lp.offload(remove, |_, _| {}).is_err() {
                    again();
                }
            }
            None => remove(),
        }
    }
}

pub(super) fn save(form: &mut Multipart<'_>, folder: &Path) -> Result<Upload, Problem> {
    let mut upload = Upload::default();
    let mut text_left = form.limits.limit_text_bytes;
    while let Some(mut part) = form.next_part()? {
        if part.file_name().is_some() {
            upload.files.push(save_file(&mut part, folder)?);
        } else {
            let text = part.text_up_to(text_left)?;
            text_left -= text.len().min(text_left);
            upload.fields.push((part.name().to_owned(), text));
        }
    }
    Ok(upload)
}

fn save_file(part: &mut Part<'_, '_>, folder: &Path) -> Result<SavedFile, Problem> {
    let (file, path) = create(folder)?;
    // From here on it is removed, whatever happens.
    let mut saved = SavedFile {
        name: part.name().to_owned(),
        file_name: part.file_name().unwrap_or_default().to_owned(),
        content_type: part.content_type().map(str::to_owned),
        path,
        len: 0,
        kept: false,
    };
    let mut waiting = Vec::new();
    while part.fill()? {
        waiting.extend_from_slice(&part.form.piece);
        part.form.piece.clear();
        if waiting.len() >= WRITE_BYTES {
            file.write_all_at(&waiting, saved.len)?;
            saved.len += waiting.len() as u64;
            waiting.clear();
        }
    }
    file.write_all_at(&waiting, saved.len)?;
    saved.len += waiting.len() as u64;
    Ok(saved)
}

/// A file that was not there, and that nobody else may read.
fn create(folder: &Path) -> io::Result<(File, PathBuf)> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    loop {
        let name = format!("upload-{:016x}{:016x}", random(), random());
        let path = folder.join(name);
        match File::open_with(&options, &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (file, path)),
        }
    }
}

fn random() -> u64 {
    RandomState::new().hash_one(0)
}
