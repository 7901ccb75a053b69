//! Writes a work's report: `NAME.md`, and `NAME.svg` if there is a drawing, in the output directory.

use std::fs;
use std::io;
use std::path::Path;

use crate::comparison::Comparison;
use crate::environment;
use crate::options::Options;
use crate::plot::Figure;

/// A report under construction.
pub struct Report {
    name: &'static str,
    text: String,
}

impl Report {
    /// A report called `name` (also the file's name), with the circumstances at its top.
    pub fn new(name: &'static str, title: &str) -> Report {
        Report { name, text: format!("# {title}\n\n{}", environment::markdown()) }
    }

    /// Adds a paragraph, list or table.
    pub fn add(&mut self, markdown: &str) {
        self.text.push('\n');
        self.text.push_str(markdown.trim_end());
        self.text.push('\n');
    }

    /// Adds a heading.
    pub fn heading(&mut self, heading: &str) {
        self.add(&format!("## {heading}"));
    }

    /// Adds a list, if there is anything in it.
    pub fn list(&mut self, lines: &[String]) {
        if !lines.is_empty() {
            self.add(&lines.iter().map(|line| format!("- {line}\n")).collect::<String>());
        }
    }

    /// Adds a table of all figures for each value of what varies, with the remarks about it.
    pub fn details(&mut self, comparison: &Comparison<'_>, options: &Options) {
        for value in comparison.values() {
            self.heading(&format!("{}: {value}", comparison.varies()));
            self.add(&comparison.details(value));
            self.list(&comparison.remarks(value, options.keep_noisy));
        }
    }

    /// Writes both files, and prints the text too.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write(mut self, directory: &Path, figure: &Figure) -> io::Result<()> {
        self.add(&format!("![{}]({}.svg)", figure.title, self.name));
        fs::create_dir_all(directory)?;
        fs::write(directory.join(self.name).with_extension("svg"), figure.svg())?;
        self.write_text(directory)
    }

    /// Writes the text alone, and prints it too.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write_text(self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        fs::write(directory.join(self.name).with_extension("md"), &self.text)?;
        println!("{}", self.text);
        Ok(())
    }
}
