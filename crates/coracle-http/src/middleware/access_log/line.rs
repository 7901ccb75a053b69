//! What is in a line of the access log. What others have sent is escaped.

use super::LogFormat;
use crate::Version;
use crate::calendar::Moment;
use serde::Serialize;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is known of an answer.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) peer: Option<IpAddr>,
    pub(super) user: Option<String>,
    pub(super) time: SystemTime,
    pub(super) took: Duration,
    pub(super) method: String,
    pub(super) target: String,
    pub(super) version: Option<Version>,
    pub(super) host: Option<String>,
    pub(super) status: u16,
    pub(super) bytes: u64,
    pub(super) referer: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) id: Option<String>,
    pub(super) route: Option<String>,
}

/// Adds a line, with its end.
pub(super) fn write(line: &mut String, format: LogFormat, entry: &Entry) {
    match format {
        LogFormat::Common => common(line, entry),
        LogFormat::Combined => {
            common(line, entry);
            for field in [&entry.referer, &entry.agent] {
                line.push_str(" \"");
                escape(line, field.as_deref().unwrap_or("-"));
                line.push('"');
            }
        }
        LogFormat::Json => json(line, entry),
    }
    line.push('\n');
}

fn common(line: &mut String, entry: &Entry) {
    match entry.peer {
        Some(peer) => push(line, format_args!("{peer}")),
        None => line.push('-'),
    }
    line.push_str(" - ");
    match entry.user.as_deref() {
        // A space would be the end of the field.
        Some(user) if !user.is_empty() => {
            let mut escaped = String::new();
            escape(&mut escaped, user);
            line.push_str(&escaped.replace(' ', "\\x20"));
        }
        _ => line.push('-'),
    }
    let (date, _) = date(entry.time);
    push(line, format_args!(" [{:02}/{}/{:04}:", date.day, date.month_name(), date.year));
    push(line, format_args!("{:02}:{:02}:{:02} +0000] \"", date.hour, date.minute, date.second));
    escape(line, &entry.method);
    line.push(' ');
    escape(line, &entry.target);
    push(line, format_args!(" {}\" {} {}", version(entry.version), entry.status, entry.bytes));
}

/// The date and the millisecond. What is before 1970 is 1970.
fn date(time: SystemTime) -> (Moment, u32) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    (Moment::of(since.as_secs() as i64), since.subsec_millis())
}

fn version(version: Option<Version>) -> &'static str {
    match version {
        Some(Version::Http10) => "HTTP/1.0",
        Some(Version::Http11) => "HTTP/1.1",
        Some(Version::Http2) => "HTTP/2.0",
        None => "-",
    }
}

#[derive(Serialize)]
struct Object<'a> {
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    method: &'a str,
    target: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    version: &'static str,
    status: u16,
    bytes: u64,
    microseconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    referer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
}

fn json(line: &mut String, entry: &Entry) {
    let (date, millisecond) = date(entry.time);
    let object = Object {
        time: format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            date.year, date.month, date.day, date.hour, date.minute, date.second, millisecond
        ),
        peer: entry.peer,
        user: entry.user.as_deref(),
        id: entry.id.as_deref(),
        host: entry.host.as_deref(),
        method: &entry.method,
        target: &entry.target,
        route: entry.route.as_deref(),
        version: version(entry.version),
        status: entry.status,
        bytes: entry.bytes,
        microseconds: u64::try_from(entry.took.as_micros()).unwrap_or(u64::MAX),
        referer: entry.referer.as_deref(),
        agent: entry.agent.as_deref(),
    };
    // It has text for keys and no maps, so it can be said.
    line.push_str(&serde_json::to_string(&object).unwrap_or_default());
}

/// As Apache does: quotes and backslashes behind a backslash, all that is not visible ASCII by its number.
fn escape(line: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'"' => line.push_str("\\\""),
            b'\\' => line.push_str("\\\\"),
            b' '..=b'~' => line.push(byte as char),
            other => push(line, format_args!("\\x{other:02x}")),
        }
    }
}

fn push(line: &mut String, text: std::fmt::Arguments<'_>) {
    line.write_fmt(text).expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry() -> Entry {
        Entry {
            peer: Some(IpAddr::from([127, 0, 0, 1])),
            user: None,
            time: UNIX_EPOCH + Duration::from_millis(784_111_777_042),
            took: Duration::from_micros(1500),
            method: "GET".into(),
            target: "/a?b=c".into(),
            version: Some(Version::Http11),
            host: Some("a.example".into()),
            status: 200,
            bytes: 5,
            referer: None,
            agent: Some("curl/8".into()),
            id: Some("7".into()),
            route: Some("/{x}".into()),
        }
    }

    fn line(format: LogFormat, entry: &Entry) -> String {
        let mut line = String::new();
        write(&mut line, format, entry);
        line
    }

    #[test]
    fn j14_lines_are_as_tools_expect_them() {
        let common = "127.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b=c HTTP/1.1\" 200 5";
        assert_eq!(line(LogFormat::Common, &entry()), format!("{common}\n"));
        assert_eq!(line(LogFormat::Combined, &entry()), format!("{common} \"-\" \"curl/8\"\n"));
        assert_eq!(
            line(LogFormat::Json, &entry()),
            "{\"time\":\"1994-11-06T08:49:37.042Z\",\"peer\":\"127.0.0.1\",\"id\":\"7\",\"host\":\"a.example\",\
             \"method\":\"GET\",\"target\":\"/a?b=c\",\"route\":\"/{x}\",\"version\":\"HTTP/1.1\",\"status\":200,\
             \"bytes\":5,\"microseconds\":1500,\"agent\":\"curl/8\"}\n"
        );
    }

    proptest! {
        /// Whatever is sent: one line, of visible ASCII, in which the quotes that are not escaped are the
        /// format's.
        #[test]
        fn j14_nobody_can_forge_a_line(text in any::<String>(), user in any::<String>()) {
            let entry = Entry {
                user: Some(user),
                agent: Some(text.clone()),
                referer: Some(text.clone()),
                target: text.clone(),
                ..entry()
            };
            let combined = line(LogFormat::Combined, &entry);
            prop_assert!(combined[..combined.len() - 1].bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            let plain = combined.replace("\\\\", "").replace("\\\"", "");
            prop_assert_eq!(plain.matches('"').count(), 6, "{}", combined);
            prop_assert_eq!(plain.split(" [06/Nov").next().unwrap().split(' ').count(), 3, "{}", combined);

            let json = line(LogFormat::Json, &entry);
            prop_assert_eq!(json.matches('\n').count(), 1);
            let read: serde_json::Value = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(&read["target"], &serde_json::Value::from(text));
        }
    }
}
