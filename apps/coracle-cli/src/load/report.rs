//! What a load has found, for people and for programs.

use super::tally::Tally;
use coracle::demux::Backend;
use std::fmt::{self, Write};
use std::io;
use std::time::Duration;

/// The end of a load.
pub(super) struct Report {
    pub(super) connect: String,
    /// How many connections were asked for.
    pub(super) connections: usize,
    /// The size of a message; `None` when the connections were only held.
    pub(super) bytes: Option<usize>,
    pub(super) rate: Option<u32>,
    pub(super) loops: usize,
    pub(super) backend: Backend,
    /// How long it took to open the connections.
    pub(super) opening: Duration,
    /// From the first message to the last answer.
    pub(super) sending: Duration,
    pub(super) tally: Tally,
}

/// The latencies that are told: name, and the part of all messages that were as quick or quicker.
const QUANTILES: [(&str, f64); 6] =
    [("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

impl Report {
    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        self.write_text(&mut text).expect("a String takes everything");
        text
    }

    fn write_text(&self, out: &mut String) -> fmt::Result {
        let Report { tally, loops, backend, .. } = self;
        let plural = if *loops == 1 { "" } else { "s" };
        writeln!(out, "coracle load: {} from {loops} loop{plural} on {backend}", self.connect)?;
        writeln!(
            out,
            "connections: {} of {} opened in {}, {} open at the end",
            tally.opened,
            self.connections,
            Time(self.opening.as_nanos() as u64),
            tally.open_at_end,
        )?;
        if let Some(bytes) = self.bytes {
            let how = match self.rate {
                Some(rate) => format!("{rate} due per second"),
                None => "one after the other on each connection".to_owned(),
            };
            writeln!(out, "messages:    {} of {bytes} bytes, {how}", tally.messages)?;
            writeln!(
                out,
                "speed:       {:.0} per second, {:.1} MB/s in each direction",
                self.per_second(),
                self.per_second() * bytes as f64 / 1e6,
            )?;
            if tally.unsent > 0 {
                writeln!(out, "not sent:    {} were due: this is too fast", tally.unsent)?;
            }
        }
        if tally.messages > 0 {
            write!(out, "latency:    ")?;
            for (index, (name, nanoseconds)) in self.latencies().into_iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                write!(out, "{comma} {name} {}", Time(nanoseconds))?;
            }
            writeln!(out)?;
        }
        let failures: u64 = tally.refusals.values().sum();
        if failures > 0 {
            writeln!(out, "connect failures: {failures}")?;
            for (reason, count) in &tally.refusals {
                writeln!(out, "  {count} × {reason}")?;
            }
        }
        if tally.errors.is_empty() {
            return match tally.opened {
                0 => Ok(()), // nothing could go wrong any more
                _ => writeln!(out, "errors:      none"),
            };
        }
        writeln!(out, "errors:      {}", tally.errors.values().map(|it| it.count).sum::<u64>())?;
        for (kind, trouble) in &tally.errors {
            writeln!(out, "  {} × {kind}; the first: {}", trouble.count, trouble.example)?;
        }
        Ok(())
    }

    /// For programs: one line.
    pub(super) fn json(&self) -> String {
        let tally = &self.tally;
        let nullable = |number: Option<u64>| number.map_or("null".to_owned(), |it| it.to_string());
        let latency: Vec<(String, String)> = (self.latencies().into_iter())
            .filter(|_| tally.messages > 0)
            .map(|(name, nanoseconds)| (name.to_owned(), nanoseconds.to_string()))
            .collect();
        let counts = |(kind, count): (&String, u64)| (kind.clone(), count.to_string());
        let errors: Vec<_> =
            tally.errors.iter().map(|(kind, it)| counts((kind, it.count))).collect();
        let refusals: Vec<_> =
            tally.refusals.iter().map(|(kind, it)| counts((kind, *it))).collect();
        let examples = tally.errors.values().map(|it| quoted(&it.example));
        object(&[
            ("connect".into(), quoted(&self.connect)),
            ("backend".into(), quoted(self.backend.name())),
            ("loops".into(), self.loops.to_string()),
            ("connections".into(), self.connections.to_string()),
            ("opened".into(), tally.opened.to_string()),
            ("opening_seconds".into(), format!("{:.6}", self.opening.as_secs_f64())),
            ("open_at_end".into(), tally.open_at_end.to_string()),
            ("message_bytes".into(), nullable(self.bytes.map(|bytes| bytes as u64))),
            ("rate".into(), nullable(self.rate.map(u64::from))),
            ("messages".into(), tally.messages.to_string()),
            ("sending_seconds".into(), format!("{:.6}", self.sending.as_secs_f64())),
            ("messages_per_second".into(), format!("{:.1}", self.per_second())),
            ("latency_nanoseconds".into(), object(&latency)),
            ("wrong".into(), tally.wrong.to_string()),
            ("missing".into(), tally.missing.to_string()),
            ("lost".into(), tally.lost.to_string()),
            ("unsent".into(), tally.unsent.to_string()),
            ("errors".into(), object(&errors)),
            ("examples".into(), format!("[{}]", examples.collect::<Vec<_>>().join(","))),
            ("connect_failures".into(), object(&refusals)),
        ])
    }

    /// # Errors
    /// An answer was wrong or missing, a connection was lost, or there was none.
    pub(super) fn verdict(&self) -> io::Result<()> {
        let Tally { wrong, missing, lost, .. } = self.tally;
        if self.tally.opened == 0 {
            let reason = self.tally.refusals.keys().next().map_or("", String::as_str);
            return Err(io::Error::other(format!("nothing could be connected: {reason}")));
        }
        let complaints: Vec<String> = [
            (wrong, "wrong answer(s)"),
            (missing, "missing answer(s)"),
            (lost, "connection(s) lost"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
        if complaints.is_empty() {
            return Ok(());
        }
        Err(io::Error::other(format!("the server did not echo: {}", complaints.join(", "))))
    }

    fn per_second(&self) -> f64 {
        let seconds = self.sending.as_secs_f64();
        if seconds > 0.0 { self.tally.messages as f64 / seconds } else { 0.0 }
    }

    fn latencies(&self) -> [(&'static str, u64); 6] {
        let latency = &self.tally.latency;
        QUANTILES.map(|(name, quantile)| {
            let value = match name {
                "min" => latency.min(),
                "max" => latency.max(),
                _ => latency.value_at_quantile(quantile),
            };
            (name, value)
        })
    }
}

/// Nanoseconds, in a unit that suits them.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.1} µs", value / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.2} ms", value / 1e6),
            _ => write!(f, "{:.2} s", value / 1e9),
        }
    }
}

/// A JSON object of members that are JSON already.
fn object(members: &[(String, String)]) -> String {
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}:{value}", quoted(name))).collect();
    format!("{{{}}}", members.join(","))
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter < ' ' => {
                write!(out, "\\u{:04x}", letter as u32).expect("a String takes everything");
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_that_suits_them() {
        let texts = [999, 1_000, 999_949, 1_000_000, 1_500_000_000].map(|it| Time(it).to_string());
        assert_eq!(texts, ["999 ns", "1.0 µs", "999.9 µs", "1.00 ms", "1.50 s"]);
    }

    #[test]
    fn json_text_is_escaped() {
        assert_eq!(quoted("a \"b\" \\ \n"), r#""a \"b\" \\ \u000a""#);
        assert_eq!(
            object(&[("n".into(), "1".into()), ("o".into(), "{}".into())]),
            r#"{"n":1,"o":{}}"#
        );
    }
}
