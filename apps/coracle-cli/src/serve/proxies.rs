//! Paths that other servers answer for: `--proxy` and `[[proxy]]`.

use super::config;
use super::mistake::Mistakes;
use super::setup::number;
use super::site::SharedApp;
use coracle::http::proxy::{Balance, HealthCheck, HostPolicy, ProxyVersion, Settings};
use coracle::http::{Networks, Proxy, Router};
use coracle::tls::{ClientSettings, ClientTls, Roots};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use toml::Spanned;

/// One of them, checked.
#[derive(Debug, Clone)]
pub(super) struct ProxySetup {
    pub(super) path: String,
    pub(super) to: Vec<String>,
    settings: Settings,
}

impl ProxySetup {
    /// What the command line says, with what is usual.
    ///
    /// # Errors
    /// It is no path, or no URL.
    pub(super) fn new(path: &str, to: &str) -> io::Result<ProxySetup> {
        let wrong = |why: &str| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("--proxy {path}={to}: {why}"))
        };
        if let Some(why) = wrong_path(path) {
            return Err(wrong(why));
        }
        if let Some(why) = wrong_upstream(to) {
            return Err(wrong(&why));
        }
        Ok(ProxySetup {
            path: path.to_owned(),
            to: vec![to.to_owned()],
            settings: Settings::default(),
        })
    }

    fn proxy(&self) -> io::Result<Proxy> {
        Proxy::to(self.to.iter().map(String::as_str))?.settings(self.settings.clone())
    }
}

/// One of the file, whose paths begin at `base`: `[[proxy]]`. `known` are the paths of those before it.
pub(super) fn read(
    proxy: &Spanned<config::Proxy>,
    mistakes: &mut Mistakes,
    base: &Path,
    known: &mut Vec<String>,
) -> ProxySetup {
    let told = proxy.get_ref();
    let path = told.path.get_ref();
    if let Some(why) = wrong_path(path) {
        mistakes.add(told.path.span(), why);
    } else if known.contains(path) {
        mistakes.add(told.path.span(), format!("there are two proxies for `{path}`"));
    }
    known.push(path.clone());
    if told.to.get_ref().is_empty() {
        mistakes.add(told.to.span(), "a proxy needs a server: to = [\"http://127.0.0.1:9000\"]");
    }
    for to in told.to.get_ref() {
        if let Some(why) = wrong_upstream(to.get_ref()) {
            mistakes.add(to.span(), why);
        }
    }
    let mut settings = Settings {
        balance: match told.balance {
            config::Balance::RoundRobin => Balance::RoundRobin,
            config::Balance::LeastConnections => Balance::LeastConnections,
        },
        x_forwarded: told.x_forwarded.unwrap_or(true),
        forwarded: told.forwarded,
        trusted: networks(&told.trusted, mistakes),
        send_proxy: told.send_proxy.map(|version| match version {
            config::ProxyVersion::V1 => ProxyVersion::V1,
            config::ProxyVersion::V2 => ProxyVersion::V2,
        }),
        ..Settings::default()
    };
    if let Some(host) = &told.host {
        settings.host = match host.get_ref().as_str() {
            "keep" => HostPolicy::Keep,
            "upstream" => HostPolicy::Upstream,
            name => HostPolicy::Fixed(name.to_owned()),
        };
        check(&settings, mistakes, host.span());
    }
    if let Some(file) = &told.roots {
        let roots = Roots::from_file(base.join(file.get_ref()));
        match roots.and_then(|roots| ClientTls::new(ClientSettings::trusting(roots))) {
            Ok(tls) => settings.secure = Some(Arc::new(tls)),
            Err(error) => mistakes.add(file.span(), error.to_string()),
        }
    }
    if let Some(path) = &told.health {
        settings.health =
            Some(HealthCheck { path: path.get_ref().clone(), ..HealthCheck::default() });
        check(&settings, mistakes, path.span());
    }
    let mut seconds = |value: &Option<Spanned<i64>>, to: &mut Duration| {
        let seconds = number(mistakes, value.as_ref(), 1..=86_400);
        *to = seconds.map_or(*to, Duration::from_secs);
    };
    seconds(&told.connect_seconds, &mut settings.connect_timeout);
    seconds(&told.head_seconds, &mut settings.head_timeout);
    seconds(&told.body_seconds, &mut settings.body_timeout);
    if let Some(health) = &mut settings.health {
        seconds(&told.health_seconds, &mut health.interval);
    } else if let Some(alone) = &told.health_seconds {
        mistakes.add(alone.span(), "how often needs what: add `health = \"/health\"`");
    }
    if let Some(bytes) = number(mistakes, told.body_bytes.as_ref(), 0..=i64::MAX) {
        settings.limit_body_bytes = bytes;
    }
    let to = told.to.get_ref().iter().map(|to| to.get_ref().clone()).collect();
    ProxySetup { path: path.clone(), to, settings }
}

/// Addresses, one network each.
pub(super) fn networks(list: &[Spanned<String>], mistakes: &mut Mistakes) -> Networks {
    let mut good = Vec::new();
    for text in list {
        match text.get_ref().parse::<Networks>() {
            Ok(_) => good.push(text.get_ref().as_str()),
            Err(error) => mistakes.add(text.span(), error.to_string()),
        }
    }
    good.join(",").parse().unwrap_or_default()
}

fn check(settings: &Settings, mistakes: &mut Mistakes, span: std::ops::Range<usize>) {
    if let Err(error) = settings.check() {
        mistakes.add(span, error.to_string());
    }
}

/// Why nothing can be handed on to it.
fn wrong_upstream(to: &str) -> Option<String> {
    Proxy::to([to]).err().map(|error| error.to_string())
}

/// Why nothing can be below such a path.
fn wrong_path(path: &str) -> Option<&'static str> {
    let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"{}*?#%\\".contains(&byte));
    if !path.starts_with('/') {
        return Some("a path begins with a slash");
    }
    if !plain {
        return Some("a path of a proxy has no spaces, escapes, `*`, `?`, `#` or braces in it");
    }
    if path != "/" && path.ends_with('/') {
        return Some("write it without the slash at its end: what is below it is meant");
    }
    let mut segments = path.split('/').skip(1);
    (path != "/" && segments.any(|segment| matches!(segment, "" | "." | "..")))
        .then_some("a path of a proxy has no empty segments, no `.` and no `..` in it")
}

/// The proxies, and for all other paths the app.
pub(super) fn before(app: SharedApp, proxies: &[ProxySetup]) -> io::Result<SharedApp> {
    if proxies.is_empty() {
        return Ok(app);
    }
    let mut router = Router::new(());
    if !proxies.iter().any(|proxy| proxy.path == "/") {
        router = router.mount("/", app);
    }
    for proxy in proxies {
        router = router.mount(&proxy.path, proxy.proxy()?);
    }
    Ok(Arc::new(router))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q1_paths_of_proxies_are_plain() {
        for path in ["/", "/api", "/a/b-c_d.e", "/~x"] {
            assert_eq!(wrong_path(path), None, "{path}");
        }
        for path in
            ["", "api", "/api/", "//", "/a//b", "/a/../b", "/a*", "/{a}", "/a?b", "/a b", "/%61"]
        {
            assert!(wrong_path(path).is_some(), "{path}");
        }
    }
}
