//! `hook`: what the hooks cost, and what they make possible.
//!
//! Three questions. What a hooked call costs beside one of coracle's own sockets: the echo, by CPU time, system
//! calls and instructions. Whether blocking clients wait together on one thread: many at once, each for a tenth of
//! a second, and a neighbour who must not be late. And what libc's calls cost where nobody is hooked.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde::Deserialize;

use crate::affinity::pinned;
use crate::calls::CALLS_MEASURED;
use crate::candidate::{Candidate, Kind, available};
use crate::comparison::{Column, Comparison};
use crate::counting::{self, Counted};
use crate::load::{self, Amount, Place};
use crate::options::Options;
use crate::programs::{self, program};
use crate::report::Report;
use crate::server::{Server, free_address};
use crate::statistics::Summary;
use crate::table::Table;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct Hook {
    /// Numbers of connections of the echo.
    #[arg(long, value_delimiter = ',', default_value = "64,1024")]
    connections: Vec<u32>,
    /// Measured time of a repetition of the echo, in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Time before it that is not measured.
    #[arg(long, default_value_t = 0.5)]
    warmup: f64,
    /// Count system calls and instructions at this number of connections; 0 leaves it out.
    #[arg(long, default_value_t = 64)]
    count_connections: u32,
    /// Only these parts.
    #[arg(long, value_delimiter = ',', default_value = "echo,clients,calls")]
    parts: Vec<String>,
}

/// What a repetition of the echo yields.
const COLUMNS: [Column; 5] = [
    Column { heading: "server CPU µs/op", decimals: 2 },
    Column { heading: "ops/s", decimals: 0 },
    Column { heading: "server busy %", decimals: 0 },
    Column { heading: "load busy %", decimals: 0 },
    Column { heading: "p50 µs", decimals: 0 },
];

/// Measures, and writes the report.
///
/// # Errors
/// When a program fails or answers wrongly.
pub fn run(options: &Options, hook: &Hook) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_hook_clients()?;
    }
    let has = |part: &str| hook.parts.iter().any(|name| name == part);
    let mut report = Report::new("hook", "Hooks: unmodified blocking Rust in coroutines");
    if has("echo") {
        echo(options, hook, &mut report)?;
    }
    if has("clients") {
        clients(options, &mut report)?;
    }
    if has("calls") {
        calls(options, &mut report)?;
    }
    report.write_text(&options.out())
}

// --- The echo ----------------------------------------------------------------------------------------------

/// What the echo may cost beside coracle's own sockets: with what is remembered of descriptors, and without.
const TARGETS: [(&str, f64); 2] = [("hook", 1.10), ("stateless", 1.40)];

fn echo(options: &Options, hook: &Hook, report: &mut Report) -> io::Result<()> {
    let (candidates, skipped) = available(echoes(), &[]);
    let counted = count(options, hook, &candidates)?;
    let mut measured = Comparison::new("connections", &COLUMNS);
    for &connections in &hook.connections {
        eprintln!("hook: echo, {connections} connections");
        let all: Vec<&Candidate> = candidates.iter().collect();
        measured.measure(options, connections, &all, |candidate| {
            let server = Server::start(candidate, options.server_core)?;
            let amount = Amount::Time { warmup: hook.warmup, seconds: hook.seconds };
            let loaded = load::run(&server, Place::Core(options.load_core), connections, amount)?;
            Ok(loaded.figures()[..COLUMNS.len()].to_vec())
        })?;
    }
    report.heading("The echo over the sockets of std, beside coracle's own");
    report.add(
        "8 bytes, ping-pong; the same server, once over `coracle::coro::net` and once over `std::net` with hooks: \
         *hook* remembers what it has seen of descriptors since they were made, *stateless* asks the kernel each \
         time. Server CPU microseconds per operation, minimum / median of the repetitions.",
    );
    report.add(&measured.overview());
    report.add(&ratios(&measured));
    counting::report(report, &counted);
    report.details(&measured, options);
    report.list(&skipped);
    Ok(())
}

fn echoes() -> Vec<Candidate> {
    let echo = |name, style, backend| {
        Candidate::new(name, Kind::Coracle, program("hook-clients")).arguments(&[
            "echo",
            "--style",
            style,
            "--backend",
            backend,
        ])
    };
    vec![
        echo("coroutine-uring", "coroutine", "uring"),
        echo("hook-uring", "hook", "uring"),
        echo("stateless-uring", "stateless", "uring"),
        echo("coroutine-epoll", "coroutine", "epoll"),
        echo("hook-epoll", "hook", "epoll"),
        echo("stateless-epoll", "stateless", "epoll"),
    ]
}

fn count(options: &Options, hook: &Hook, candidates: &[Candidate]) -> io::Result<Vec<Counted>> {
    if hook.count_connections == 0 {
        return Ok(Vec::new());
    }
    let place = Place::Core(options.load_core);
    let count =
        |candidate| counting::count(options, candidate, place, hook.count_connections, false);
    candidates.iter().map(count).collect()
}

/// The hooked echo divided by coracle's own, by the minima and by the medians.
fn ratios(measured: &Comparison<'_>) -> String {
    let mut table = Table::new(&[
        "CPU of it / of coracle's own sockets",
        "connections",
        "minimum",
        "median",
        "at most",
    ]);
    for backend in ["uring", "epoll"] {
        for (style, target) in TARGETS {
            for connections in measured.values() {
                let of =
                    |style: &str| measured.summary(&format!("{style}-{backend}"), connections, 0);
                if let (Some(own), Some(hooked)) = (of("coroutine"), of(style)) {
                    table.row(&[
                        format!("{style}-{backend}"),
                        connections.to_string(),
                        format!("{:.2}", hooked.min / own.min),
                        format!("{:.2}", hooked.median / own.median),
                        format!("{target:.2}"),
                    ]);
                }
            }
        }
    }
    table.markdown()
}

// --- The clients -------------------------------------------------------------------------------------------

/// A client: its name, how many of it, and what all of them may take together, in seconds.
struct Asking {
    name: &'static str,
    meaning: &'static str,
    count: u32,
    target: f64,
    server: Option<ServerKind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ServerKind {
    Web,
    Redis,
    Mysql,
}

const ASKING: [Asking; 6] = [
    Asking {
        name: "http",
        meaning: "`std::net`: a GET by hand",
        count: 1000,
        target: 0.2,
        server: Some(ServerKind::Web),
    },
    Asking {
        name: "redis",
        meaning: "`redis`: `BLPOP` of nothing, for 0.1 s, at a real `redis-server`",
        count: 1000,
        target: 0.3,
        server: Some(ServerKind::Redis),
    },
    Asking {
        name: "ureq",
        meaning: "`ureq`: a GET",
        count: 1000,
        target: 0.45,
        server: Some(ServerKind::Web),
    },
    Asking {
        name: "mysql",
        meaning: "`mysql`: `SELECT SLEEP(0.1)`, at a real MariaDB",
        count: 200,
        target: 0.25,
        server: Some(ServerKind::Mysql),
    },
    Asking {
        name: "children",
        meaning: "`std::process`: `sleep 0.1`",
        count: 50,
        target: 0.3,
        server: None,
    },
    Asking {
        name: "hosts",
        meaning: "`ToSocketAddrs`: `localhost`, from the hosts file, without a pause",
        count: 1000,
        target: 0.3,
        server: None,
    },
];

/// What `hook-clients ask` prints.
#[derive(Clone, Debug, Deserialize)]
struct Asked {
    seconds: f64,
    ticks: u32,
    on_time: u32,
    worst_ms: f64,
}

fn clients(options: &Options, report: &mut Report) -> io::Result<()> {
    let mut table = Table::new(&[
        "",
        "how many",
        "at most, s",
        "uring, s: best",
        "median",
        "epoll, s: best",
        "median",
        "ticks in time, %",
        "worst tick, ms late",
    ]);
    let (mut remarks, mut meanings) = (Vec::new(), Vec::new());
    for asking in &ASKING {
        eprintln!("hook: {} x {}", asking.count, asking.name);
        let server = match asking.server.map(|kind| kind.start(options)).transpose() {
            Ok(server) => server,
            Err(error) => {
                let text = format!("{} SKIPPED: {error}", asking.name);
                eprintln!("hook: {text}");
                remarks.push(text);
                continue;
            }
        };
        meanings.push(format!("{}: {}", asking.name, asking.meaning));
        let address = server.as_ref().map(Running::address);
        let backends = ["uring", "epoll"];
        let all = options
            .repetitions()
            .run(&backends, |backend| ask(options, asking, backend, address))?;
        let mut cells =
            vec![asking.name.to_owned(), asking.count.to_string(), format!("{}", asking.target)];
        for (backend, series) in backends.iter().zip(&all) {
            if let Some(remark) = series.remark(options.keep_noisy) {
                remarks.push(format!("{}, {backend}: {remark}", asking.name));
            }
            match Summary::of(series.kept.iter().map(|asked| asked.seconds)) {
                Some(seconds) => {
                    cells.push(format!("{:.3}", seconds.min));
                    cells.push(format!("{:.3}", seconds.median));
                }
                None => cells.extend(["–".to_owned(), "–".to_owned()]),
            }
        }
        let kept: Vec<&Asked> = all.iter().flat_map(|series| &series.kept).collect();
        let ticks: u32 = kept.iter().map(|asked| asked.ticks).sum();
        let on_time: u32 = kept.iter().map(|asked| asked.on_time).sum();
        let worst = kept.iter().map(|asked| asked.worst_ms).fold(0.0, f64::max);
        cells.push(format!("{:.1}", f64::from(on_time) / f64::from(ticks.max(1)) * 100.0));
        cells.push(format!("{worst:.1}"));
        table.row(&cells);
    }
    report.heading("Many blocking calls on one thread");
    report.add(
        "So many coroutines on one thread, each with an unmodified blocking client that makes one call of a tenth \
         of a second; from the first to the last, connections included. Beside them a coroutine that sleeps for 5 \
         ms again and again with `std::thread::sleep`: its ticks are in time if they are less than 5 ms late.",
    );
    report.add(&table.markdown());
    report.list(&meanings);
    report.list(&remarks);
    Ok(())
}

fn ask(
    options: &Options,
    asking: &Asking,
    backend: &str,
    server: Option<SocketAddr>,
) -> io::Result<Asked> {
    let mut command = pinned(options.server_core, &program("hook-clients"));
    command.args(["ask", asking.name, "--count", &asking.count.to_string()]);
    command.args(["--backend", backend]);
    if let Some(server) = server {
        command.args(["--connect", &server.to_string()]);
    }
    Ok(serde_json::from_slice(&printed(&mut command)?)?)
}

/// What a program prints.
fn printed(command: &mut Command) -> io::Result<Vec<u8>> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{command:?} failed: {}", output.status)));
    }
    Ok(output.stdout)
}

/// A server that runs, and what of it is to be removed.
struct Running {
    server: Server,
    directory: Option<PathBuf>,
}

impl Running {
    fn address(&self) -> SocketAddr {
        self.server.address()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A database writes until it is over: it is asked for that before its files go.
        let _ = self.server.process().kill();
        let _ = self.server.process().wait();
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

impl ServerKind {
    /// # Errors
    /// It is not installed, or does not start.
    fn start(self, options: &Options) -> io::Result<Running> {
        let core = options.load_core;
        match self {
            ServerKind::Web => {
                let mut command = pinned(core, &program("hook-clients"));
                let server = Server::start_command(command.arg("answer"), "answer")?;
                Ok(Running { server, directory: None })
            }
            ServerKind::Redis => {
                let path = installed("/usr/bin/redis-server", "redis-server")?;
                let address = free_address()?;
                let mut command = pinned(core, path);
                command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
                command.args(["--tcp-backlog", "4096", "--save", "", "--maxclients", "4000"]);
                let server = Server::start_at(&mut command, "redis-server", address)?;
                Ok(Running { server, directory: None })
            }
            ServerKind::Mysql => mariadb(core),
        }
    }
}

/// MariaDB with a database of its own, which nobody needs a password for.
fn mariadb(core: usize) -> io::Result<Running> {
    let path = installed("/usr/sbin/mariadbd", "mariadb-server")?;
    let address = free_address()?;
    let directory = std::env::temp_dir().join(format!("coracle-bench-db-{}", address.port()));
    let data = format!("--datadir={}", directory.join("data").display());
    fs::create_dir_all(&directory)?;
    let mut make = Command::new("mariadb-install-db");
    make.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    make.args([&data, "--user=root"]).stdout(Stdio::null()).stderr(Stdio::null());
    let made = make.status();
    let started = match made {
        Ok(status) if status.success() => {
            let mut command = pinned(core, path);
            command.args(["--no-defaults", "--user=root", "--skip-grant-tables", &data]);
            command.args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--back-log=4096"]);
            command.args(["--max-connections=1000", "--thread-cache-size=400"]);
            command.arg(format!("--port={}", address.port()));
            command.arg(format!("--socket={}", directory.join("socket").display()));
            command.arg(format!("--log-error={}", directory.join("log").display()));
            Server::start_at(&mut command, "mariadbd", address)
        }
        Ok(status) => Err(io::Error::other(format!("mariadb-install-db failed: {status}"))),
        Err(error) => Err(error),
    };
    match started {
        Ok(server) => Ok(Running { server, directory: Some(directory) }),
        Err(error) => {
            let _ = fs::remove_dir_all(&directory);
            Err(error)
        }
    }
}

fn installed<'a>(path: &'a str, package: &str) -> io::Result<&'a Path> {
    let path = Path::new(path);
    if path.exists() {
        Ok(path)
    } else {
        Err(io::Error::other(format!("Debian's package {package} is not installed")))
    }
}

// --- The calls ---------------------------------------------------------------------------------------------

fn calls(options: &Options, report: &mut Report) -> io::Result<()> {
    eprintln!("hook: calls outside coroutines");
    let without = (program("calls"), &[][..]);
    let linked = (program("hook-clients"), &["calls"][..]);
    let enabled = (program("hook-clients"), &["calls", "--enabled"][..]);
    let all = options.repetitions().run(&[without, linked, enabled], |(path, arguments)| {
        let mut command = pinned(options.server_core, path);
        Ok(serde_json::from_slice::<Vec<f64>>(&printed(command.args(*arguments))?)?)
    })?;
    let mut table = Table::new(&[
        "ns per call, least",
        "without the feature",
        "with it",
        "more",
        "enabled",
        "more",
        "what",
    ]);
    for (index, (name, meaning)) in CALLS_MEASURED.iter().enumerate() {
        let least = |which: usize| {
            let figures = all[which].kept.iter().map(|figures| figures[index]);
            Summary::of(figures).map_or(f64::NAN, |summary| summary.min)
        };
        let (without, linked, enabled) = (least(0), least(1), least(2));
        table.row(&[
            (*name).to_owned(),
            format!("{without:.1}"),
            format!("{linked:.1}"),
            format!("{:+.1}", linked - without),
            format!("{enabled:.1}"),
            format!("{:+.1}", enabled - without),
            (*meaning).to_owned(),
        ]);
    }
    report.heading("Calls outside coroutines");
    report.add(
        "The same loop over a call in a plain thread: in a program without hooks, in one that has them linked, \
         and in one that has enabled them.",
    );
    report.add(&table.markdown());
    let remarks = all.iter().filter_map(|series| series.remark(options.keep_noisy));
    report.list(&remarks.collect::<Vec<_>>());
    Ok(())
}
