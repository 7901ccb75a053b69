//! What `serve` takes on the command line. It counts before what the configuration file says.

use super::config::{Format, Hidden, Symlinks};
use super::gateways::CGI_BIN;
use crate::options::ServeOptions;
use std::path::{Path, PathBuf};

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Arguments {
    /// The directory; the current one, unless the configuration file names another.
    #[arg(value_name = "DIR")]
    pub(super) directory: Option<PathBuf>,
    /// A configuration file; docs/reference/config.md tells its keys.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) options: ServeOptions,
    /// Open a browser when it serves.
    #[arg(long)]
    pub(super) open: bool,
    /// List directories that have no index.
    #[arg(long)]
    pub(super) listing: bool,
    /// What becomes of names that begin with a dot [default: hide].
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(super) hidden: Option<Hidden>,
    /// What becomes of symbolic links [default: inside].
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(super) symlinks: Option<Symlinks>,
    /// The Cache-Control of all files, such as "public, max-age=3600".
    #[arg(long, value_name = "VALUE")]
    pub(super) cache_control: Option<String>,
    /// A directory of scripts (CGI), below /cgi-bin/ or below PATH/. May be repeated.
    #[arg(long, value_name = "[PATH=]DIR", value_parser = cgi_dir)]
    pub(super) cgi_dir: Vec<(String, PathBuf)>,
    /// Compress text that is not on the disk compressed.
    #[arg(long)]
    pub(super) compress: bool,
    /// A page of your own for an error: 404=FILE. May be repeated.
    #[arg(long, value_name = "STATUS=FILE", value_parser = error_page)]
    pub(super) error_page: Vec<(u16, PathBuf)>,
    /// Hand what is asked for below a path on to another server: /api=http://127.0.0.1:9000. May be repeated; the
    /// same path with another URL is one more server for it.
    #[arg(long, value_name = "PATH=URL", value_parser = proxy)]
    pub(super) proxy: Vec<(String, String)>,
    /// Write a line for each answer to this file; to standard output without one, or with `-`.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(super) access_log: Option<PathBuf>,
    /// How such a line is written [default: combined].
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(super) access_log_format: Option<Format>,
    /// Give each request a name, for the answer (X-Request-Id) and the access log.
    #[arg(long)]
    pub(super) request_ids: bool,
    /// Serve as this user, once it listens: NAME or NAME:GROUP. Only root may.
    #[arg(long, value_name = "NAME[:GROUP]")]
    pub(super) user: Option<String>,
    /// How many connections there may be from one address; those above are answered with 503.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) limit_connections_per_address: Option<u32>,
    /// Speak TLS, with this certificate (PEM, and behind it those who have signed).
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "self_signed")]
    pub(super) tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(super) tls_key: Option<PathBuf>,
    /// The file with the password of the key, if it is encrypted.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(super) tls_key_password_file: Option<PathBuf>,
    /// Speak TLS, with a certificate that is made now: for development.
    #[arg(long)]
    pub(super) self_signed: bool,
    /// Listen here without TLS, and send who comes there to TLS. May be repeated.
    #[arg(long, value_name = "ADDR")]
    pub(super) tls_redirect: Vec<String>,
}

fn cgi_dir(text: &str) -> Result<(String, PathBuf), String> {
    let scripts = |path: &str, directory: &str| Ok((path.to_owned(), directory.into()));
    match text.split_once('=') {
        None if text.is_empty() => {
            Err("there is no directory: write it as DIR or /tools=DIR".into())
        }
        None => scripts(CGI_BIN, text),
        Some((path, _)) if !path.starts_with('/') => match Path::new(text).is_dir() {
            true => scripts(CGI_BIN, text), // that is what it is called
            false => Err(format!(
                "{path:?} is no path, which begins with a slash, and {text:?} is no directory: write it as \
                 /tools=DIR or DIR"
            )),
        },
        Some((path, _)) if path.contains(['?', '#', '%']) => {
            Err(format!("{path:?} is no path without escapes: write it as /tools=DIR"))
        }
        Some((path, "")) => {
            Err(format!("there is no directory behind the `=`: write it as {path}=DIR"))
        }
        Some((path, directory)) => scripts(path, directory),
    }
}

fn error_page(text: &str) -> Result<(u16, PathBuf), String> {
    let (status, file) = text.split_once('=').ok_or("write it as 404=FILE")?;
    match status.parse() {
        Ok(status @ 400..=599) => Ok((status, file.into())),
        _ => Err(format!("{status:?} is no status of an error: those are 400 to 599")),
    }
}

fn proxy(text: &str) -> Result<(String, String), String> {
    let (path, url) = text.split_once('=').ok_or("write it as /api=http://127.0.0.1:9000")?;
    Ok((path.to_owned(), url.to_owned()))
}
