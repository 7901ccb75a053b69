//! `--open`: a browser that shows what is served.

use coracle::net::Address;
use std::io;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;

/// A thread that waits to be told what to open. It is there before the process gives up what a browser may need:
/// the right to gain privileges, for its sandbox.
pub(super) fn prepare() -> io::Result<Sender<String>> {
    let (tell, told) = mpsc::channel::<String>();
    let body = move || {
        if let Ok(url) = told.recv() {
            open(&url);
        }
    };
    thread::Builder::new().name("coracle-open".into()).spawn(body)?;
    Ok(tell)
}

fn open(url: &str) {
    let mut command = Command::new("xdg-open");
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let why = match command.status() {
        Ok(status) if status.success() => return,
        Ok(status) => format!("xdg-open ended with {status}"),
        Err(error) => format!("cannot start xdg-open: {error}"),
    };
    tracing::warn!("no browser was opened: {why}; open {url} yourself");
}

/// What a browser calls it.
pub(super) fn url(address: &Address, is_secure: bool) -> Option<String> {
    let mut address = address.ip()?;
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    let scheme = if is_secure { "https" } else { "http" };
    Some(format!("{scheme}://{address}/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_browsers_take_them() {
        let told = |address: &str| url(&address.parse().unwrap(), false);
        assert_eq!(told("127.0.0.1:80").as_deref(), Some("http://127.0.0.1:80/"));
        assert_eq!(told("0.0.0.0:8080").as_deref(), Some("http://127.0.0.1:8080/"));
        assert_eq!(told("[::]:8080").as_deref(), Some("http://127.0.0.1:8080/"));
        assert_eq!(told("[::1]:8080").as_deref(), Some("http://[::1]:8080/"));
        assert_eq!(told("unix:/a"), None);
        let secure = url(&"127.0.0.1:8443".parse().unwrap(), true);
        assert_eq!(secure.as_deref(), Some("https://127.0.0.1:8443/"));
    }
}
