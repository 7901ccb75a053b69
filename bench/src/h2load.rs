//! h2load, of nghttp2: how it is started, and what it says.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::affinity::pinned;
use crate::cpu_clock::children_cpu_time;
use crate::server::Server;

/// The length of the body of every answer.
const BODY_BYTES: u64 = 13;

/// The result of one run. There were as many good answers as requests, of the right length.
#[derive(Clone, Copy, Debug)]
pub struct H2loadReport {
    /// Requests that were answered.
    pub requests: u64,
    /// How long that took.
    pub seconds: f64,
    /// How long one took, in the mean.
    pub mean_us: f64,
    /// The server's processor time meanwhile, from the first connection to the last.
    pub server_cpu: Duration,
    /// That of h2load.
    pub load_cpu: Duration,
}

/// Where the program is, if it is there.
pub fn missing() -> Option<String> {
    let is_there = ["/usr/bin/h2load", "/usr/bin/nghttp"].iter().all(|it| Path::new(it).exists());
    (!is_there).then(|| "nghttp2-client is not installed".into())
}

/// Asks once, with a client that shows what was answered.
///
/// # Errors
/// It is not one of `bodies`.
pub fn probe(address: SocketAddr, bodies: &[&str]) -> io::Result<()> {
    let output = Command::new("nghttp").arg(format!("http://{address}/")).output()?;
    let body = String::from_utf8_lossy(&output.stdout);
    match bodies.contains(&&*body) {
        true => Ok(()),
        false => Err(io::Error::other(format!("wrong answer: {body:?}"))),
    }
}

/// Runs h2load on `core`: so many requests for `/`, with prior knowledge, over so many connections with so many
/// streams each.
///
/// # Errors
/// A request failed, or an answer was not what it ought to be.
pub fn run(
    server: &Server,
    core: usize,
    connections: u32,
    streams: u32,
    requests: u64,
) -> io::Result<H2loadReport> {
    let mut h2load = pinned(core, "h2load".as_ref());
    h2load.args(["--threads", "1", "--clients", &connections.to_string()]);
    h2load.args(["--max-concurrent-streams", &streams.to_string()]);
    h2load.args(["--requests", &requests.to_string()]);
    h2load.arg(format!("http://{}/", server.address()));
    let (server_before, load_before) = (server.cpu_time()?, children_cpu_time()?);
    let output = h2load.output()?;
    let load_cpu = children_cpu_time()? - load_before;
    server.settle()?;
    let server_cpu = server.cpu_time()? - server_before;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = Said::parse(&text)
        .ok_or_else(|| io::Error::other(format!("h2load is not understood: {text}")))?;
    if said.succeeded != requests || said.good != requests || said.data != requests * BODY_BYTES {
        return Err(io::Error::other(format!("of {requests} requests: {said:?}")));
    }
    let (seconds, mean_us) = (said.seconds, said.mean_us);
    Ok(H2loadReport { requests, seconds, mean_us, server_cpu, load_cpu })
}

/// What h2load says.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Said {
    seconds: f64,
    succeeded: u64,
    /// Answers with a status of 2xx.
    good: u64,
    /// Bytes of bodies.
    data: u64,
    mean_us: f64,
}

impl Said {
    fn parse(text: &str) -> Option<Said> {
        let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
        // "1000 total, 1000 started, …": the number before a word.
        let number = |list: &str, word: &str| -> Option<u64> {
            let item = list.split(", ").find(|item| item.ends_with(word))?;
            item.trim().split(' ').next()?.parse().ok()
        };
        let finished = line("finished in ")?;
        let data = line("traffic: ")?.split(", ").find(|item| item.ends_with(" data"))?;
        let (_, data) = data.split_once('(')?;
        // Least, most, mean, …
        let mean = line("time for request:")?.split_whitespace().nth(2)?;
        Some(Said {
            seconds: microseconds(finished.split(',').next()?)? / 1e6,
            succeeded: number(line("requests: ")?, "succeeded")?,
            good: number(line("status codes: ")?, "2xx")?,
            data: data.split(')').next()?.parse().ok()?,
            mean_us: microseconds(mean)?,
        })
    }
}

/// "1.02s", "17.5ms" or "350us".
fn microseconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let (number, unit) = units
        .iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?.parse::<f64>().ok()?, unit)))?;
    Some(number * unit)
}

#[cfg(test)]
mod tests {
    use super::Said;

    #[test]
    fn what_h2load_says_is_read() {
        let text = "starting benchmark...\n\nfinished in 12.50ms, 80000.00 req/s, 4.05MB/s\n\
            requests: 1000 total, 1000 started, 1000 done, 999 succeeded, 1 failed, 1 errored, 0 timeout\n\
            status codes: 998 2xx, 0 3xx, 1 4xx, 0 5xx\n\
            traffic: 51.9KB (53120) total, 3.91KB (4000) headers (space savings 94.81%), 12.7KB (13000) data\n\
            \x20                    min         max         mean         sd        +/- sd\n\
            time for request:       60us      1.55ms       187us       114us    91.20%\n\
            time for connect:       80us       103us        90us        10us    66.67%\n";
        let said = Said::parse(text).unwrap();
        let expected =
            Said { seconds: 0.0125, succeeded: 999, good: 998, data: 13000, mean_us: 187.0 };
        assert_eq!(said, expected);
        assert_eq!(Said::parse("nobody listens"), None);
    }
}
