//! The program `coracle`.

mod asynchronous;
mod coroutine;
mod daemon;
mod hello;
mod listening;
mod load;
mod loops;
mod options;
mod placement;
mod privileges;
mod proxy;
mod serve;
mod services;
mod space;
mod style;
mod time;

use clap::{Parser, Subcommand};
use coracle::demux::Address;
use coracle::net::{Protocol, Server, ToAddresses, Worker};
use listening::Listening;
use options::{ServeOptions, announce, announce_processes};
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use style::Style;
use tracing::level_filters::LevelFilter;

/// Servers on coracle. Without a command, `serve` with its defaults.
///
/// Each server prints where it listens, on which backend and how many loops. SIGINT (Ctrl-C) and SIGTERM stop it
/// gracefully: connections finish what they do; a second one ends it at once. SIGQUIT writes what its loops do to
/// standard error. With --processes, SIGHUP replaces the processes one by one.
#[derive(Parser)]
#[command(name = "coracle", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// What to log: off, error, warn, info, debug or trace.
    #[arg(long, global = true, value_name = "LEVEL", default_value = "info")]
    log: LevelFilter,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the files of a directory by HTTP; on 127.0.0.1:8080, unless --listen says where.
    ///
    /// SIGHUP reads the configuration again, and opens the access log anew; one that is wrong is refused, and the
    /// old one stays.
    Serve {
        #[command(flatten)]
        arguments: Box<serve::Arguments>,
    },
    /// Say what is wrong with a configuration file of `serve`, or that it is fine.
    Check {
        /// The file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Send back whatever arrives; on 127.0.0.1:7000, unless --listen says where.
    Echo {
        #[command(flatten)]
        options: ServeOptions,
        /// How the server is written; what it does is the same.
        #[arg(long, value_enum, default_value_t)]
        style: Style,
    },
    /// Answer each message with the time and the message; on port 12345 of every interface.
    Time {
        #[command(flatten)]
        options: ServeOptions,
        /// How the server is written; what it does is the same.
        #[arg(long, value_parser = style::without_hook(), default_value_t)]
        style: Style,
        /// Listen on this port of every interface, if --listen says nothing else.
        #[arg(short, long, default_value_t = 12345)]
        port: u16,
        /// Run in the background, without a terminal.
        #[arg(short, long)]
        daemon: bool,
        /// With --daemon: a file for the process id.
        #[arg(long, value_name = "PATH", requires = "daemon")]
        pid_file: Option<PathBuf>,
    },
    /// Continue every connection to another address; on 127.0.0.1:7001.
    Proxy {
        #[command(flatten)]
        options: ServeOptions,
        /// The other address: HOST:PORT or unix:PATH.
        #[arg(long, value_name = "ADDR")]
        to: String,
        /// How the server is written; what it does is the same.
        #[arg(long, value_parser = style::without_hook(), default_value_t)]
        style: Style,
    },
    /// Answer every HTTP request with "Hello, World!"; on 127.0.0.1:8080.
    Hello {
        #[command(flatten)]
        options: ServeOptions,
        /// How the handler runs; what it answers is the same.
        #[arg(long, value_parser = style::without_hook(), default_value_t = Style::Coroutine)]
        style: Style,
    },
    /// Read, and say nothing (RFC 863); on 127.0.0.1:7009.
    Discard {
        #[command(flatten)]
        options: ServeOptions,
    },
    /// Send lines of characters as fast as they are read (RFC 864); on 127.0.0.1:7019.
    Chargen {
        #[command(flatten)]
        options: ServeOptions,
    },
    /// Put load on an echo server, and compare every answer with what was sent.
    Load {
        #[command(flatten)]
        options: load::LoadOptions,
    },
}

/// Where servers listen that are not told.
const ECHO: &str = "127.0.0.1:7000";
const PROXY: &str = "127.0.0.1:7001";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let colours = io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_target(false).with_ansi(colours);
    log.with_max_level(arguments.log).with_writer(io::stderr).init();
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coracle: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Option<Command>) -> io::Result<()> {
    let command = command.unwrap_or_else(|| Command::Serve { arguments: Box::default() });
    match command {
        Command::Serve { arguments } => serve::serve(*arguments),
        Command::Check { config } => serve::check(&config),
        Command::Echo { options, style } => {
            style.check(&options)?;
            match style {
                Style::Callback => {
                    serve_protocol("echo", &options, options.server(ECHO)?, |_| services::Echo)
                }
                Style::Coroutine => {
                    let listening = Listening::bind(&options, ECHO)?;
                    let service = coroutine::echo::Echo;
                    stopped("echo", coroutine::serve("echo", &options, listening, service))
                }
                Style::Async => {
                    let listening = Listening::bind(&options, ECHO)?;
                    let service = asynchronous::Echo;
                    stopped("echo", asynchronous::serve("echo", &options, listening, service))
                }
                Style::Hook => {
                    let listening = Listening::bind(&options, ECHO)?;
                    let service = coroutine::echo::Echo;
                    stopped("echo", coroutine::serve_hooked("echo", &options, listening, service))
                }
            }
        }
        Command::Time { options, style, port, daemon, pid_file } => {
            style.check(&options)?;
            let place = format!(":{port}");
            // A worker is a child of the daemon already.
            let daemon = daemon && Worker::current().is_none();
            let detach = || match daemon {
                true => daemon::daemonize(pid_file.as_deref()),
                false => Ok(None),
            };
            match style {
                Style::Callback => {
                    let server = options.server(&place)?;
                    let _pid_file = detach()?;
                    serve_protocol("time", &options, server, |_| time::Time)
                }
                Style::Coroutine => {
                    let listening = Listening::bind(&options, &place)?;
                    let _pid_file = detach()?;
                    let service = coroutine::time::Time;
                    stopped("time", coroutine::serve("time", &options, listening, service))
                }
                Style::Async => {
                    let listening = Listening::bind(&options, &place)?;
                    let _pid_file = detach()?;
                    let service = asynchronous::time::Time;
                    stopped("time", asynchronous::serve("time", &options, listening, service))
                }
                Style::Hook => Err(style.missing("time")),
            }
        }
        Command::Proxy { options, to, style } => {
            style.check(&options)?;
            let to = to.as_str().to_addresses()?;
            match style {
                Style::Callback => {
                    let server = options.server(PROXY)?.settings(coracle::net::Relay::settings());
                    let server = server.capacity(proxy::capacity());
                    serve_protocol("proxy", &options, server, move |_| {
                        proxy::Coming::to(to.clone())
                    })
                }
                Style::Coroutine => {
                    let listening = Listening::bind(&options, PROXY)?;
                    let service = coroutine::proxy::Proxy::to(to);
                    stopped("proxy", coroutine::serve("proxy", &options, listening, service))
                }
                Style::Async => {
                    let listening = Listening::bind(&options, PROXY)?;
                    let service = asynchronous::proxy::Proxy::to(to);
                    stopped("proxy", asynchronous::serve("proxy", &options, listening, service))
                }
                Style::Hook => Err(style.missing("proxy")),
            }
        }
        Command::Hello { options, style } => hello::serve(&options, style),
        Command::Discard { options } => {
            serve_protocol("discard", &options, options.server("127.0.0.1:7009")?, |_| {
                services::Discard
            })
        }
        Command::Chargen { options } => {
            serve_protocol("chargen", &options, options.server("127.0.0.1:7019")?, |_| {
                services::Chargen::default()
            })
        }
        Command::Load { options } => load::run(&options),
    }
}

/// Serves until the process is asked to end; with --processes, has others serve.
fn serve_protocol<P: Protocol>(
    name: &'static str,
    options: &ServeOptions,
    server: Server,
    make: impl Fn(&Address) -> P + Send + Sync + 'static,
) -> io::Result<()> {
    if Worker::current().is_some() {
        coracle::seeing::dump_on_sigquit()?;
        return server.serve(make); // the supervisor does the talking
    }
    if let Some(processes) = options.processes {
        let (processes, loops) = (processes as usize, options.loops());
        let addresses = server.local_addresses();
        let announce = move |lp: &coracle::Loop| {
            announce_processes(name, &addresses, lp.backend(), processes, loops);
        };
        server.supervise(processes).on_start(announce).run()?;
    } else {
        coracle::seeing::dump_on_sigquit()?;
        server.on_init(move |handle| announce(name, handle)).serve(make)?;
    }
    stopped(name, Ok(()))
}

/// Says that a server has ended as it should, if it has.
fn stopped(name: &str, ended: io::Result<()>) -> io::Result<()> {
    ended.inspect(|()| say(format_args!("coracle {name}: stopped")))
}

/// Says something to who has started the program. If nobody listens any more, that is no reason to end.
pub(crate) fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
