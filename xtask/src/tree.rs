//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the repository.
pub(crate) struct File {
    /// From the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    /// What its name ends in, without the dot.
    pub(crate) fn extension(&self) -> &str {
        Path::new(&self.path).extension().and_then(|ending| ending.to_str()).unwrap_or("")
    }

    /// Its name without ending.
    pub(crate) fn stem(&self) -> &str {
        Path::new(&self.path).file_stem().and_then(|stem| stem.to_str()).unwrap_or("")
    }
}

/// Where the repository is.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask lies in the repository").to_path_buf()
}

/// Where things are built: this program is TARGET/debug/xtask.
pub(crate) fn target() -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|why| format!("where are we? {why}"))?;
    let target = here.parent().and_then(Path::parent).ok_or("it is not in a target directory")?;
    Ok(target.to_path_buf())
}

/// Every text file people write: sources, manifests, documents, scripts. And the drawings that documents show,
/// without their text, which a program writes.
pub(crate) fn files(root: &Path) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let unreadable = |error| format!("cannot read {}: {error}", folder.display());
        for entry in fs::read_dir(&folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_symlink() || name == "target" || name == ".git" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if is_written_by_people(&path) {
                let text = fs::read_to_string(&path);
                let text =
                    text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                files.push(File::new(&below(root, &path), &text));
            } else if path.extension().is_some_and(|ending| ending == "svg") {
                files.push(File::new(&below(root, &path), ""));
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn below(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).expect("it lies below the root").to_string_lossy().into_owned()
}

fn is_written_by_people(path: &Path) -> bool {
    let known = ["rs", "md", "toml", "c", "h", "sh"];
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| known.contains(&ending)) || path.ends_with(".ci/run")
}
