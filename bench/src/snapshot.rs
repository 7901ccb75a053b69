//! What a load generator has done up to a moment, and what two moments come to.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::cpu_clock::{cpu_time, cpu_time_of};
use crate::load::LoadReport;

/// A moment.
pub struct Snapshot {
    at: Duration,
    answering: Duration,
    answered: u64,
    load_cpu: Duration,
    server_cpu: Duration,
}

impl Snapshot {
    /// Now, which is `at` since the start: so many were `answered`, and bursts took so long. The processes of the
    /// server are those to `watch`.
    ///
    /// # Errors
    /// A process is gone.
    pub fn take(
        at: Duration,
        answering: Duration,
        answered: u64,
        watch: &[u32],
    ) -> io::Result<Snapshot> {
        let load_cpu = cpu_time(std::process::id())?;
        Ok(Snapshot { at, answering, answered, load_cpu, server_cpu: cpu_time_of(watch)? })
    }

    /// What happened from here until `end`, with messages of so many `bytes`. Latencies are in nanoseconds.
    pub fn until(
        &self,
        end: &Snapshot,
        connections: usize,
        bytes: usize,
        latency: &Histogram<u64>,
    ) -> LoadReport {
        let operations = end.answered - self.answered;
        let seconds = (end.at - self.at).as_secs_f64();
        let answering = (end.answering - self.answering).as_secs_f64();
        let serving = if answering > 0.0 { answering } else { seconds };
        let quantile = |q| latency.value_at_quantile(q) as f64 / 1000.0;
        LoadReport {
            connections,
            bytes,
            operations,
            seconds,
            ops_per_second: operations as f64 / serving,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: quantile(1.0),
            errors: 0,
            load_cpu_seconds: (end.load_cpu - self.load_cpu).as_secs_f64(),
            server_cpu_seconds: (end.server_cpu - self.server_cpu).as_secs_f64(),
        }
    }
}
