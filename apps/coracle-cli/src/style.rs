//! In which style a server is written. What it does is the same in each.

use crate::options::ServeOptions;
use crate::placement::Placement;
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::fmt;
use std::io;

/// How the code of a server looks.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Style {
    /// One value per connection, which the loop calls.
    #[default]
    Callback,
    /// A coroutine per connection: plain blocking code.
    Coroutine,
    /// A future per connection: `async` and `await`.
    Async,
    /// A coroutine per connection, over the sockets of std: blocking calls park it.
    Hook,
}

/// Reads the style of a server that is not there in all of them: blocking calls are hooked for echo only.
pub(crate) fn without_hook() -> impl TypedValueParser<Value = Style> {
    let styles = Style::value_variants().iter().filter(|style| **style != Style::Hook);
    let values: Vec<PossibleValue> = styles.filter_map(ValueEnum::to_possible_value).collect();
    PossibleValuesParser::new(values)
        .map(|text| Style::from_str(&text, false).expect("it is one of them"))
}

impl Style {
    /// Refuses what a server of this style cannot do.
    pub(crate) fn check(self, options: &ServeOptions) -> io::Result<()> {
        if self == Style::Callback {
            return Ok(());
        }
        let text = if options.processes.is_some() {
            format!(
                "cannot serve with --processes and --style {self}: worker processes are there for \
                 --style callback; use --threads"
            )
        } else if options.placement.is_some_and(|it| it != Placement::ReusePort) {
            format!(
                "cannot serve with --placement and --style {self}: each loop listens by itself; \
                 the others are there for --style callback"
            )
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// What is said by a server that is not written in this style.
    pub(crate) fn missing(self, name: &str) -> io::Error {
        let text = format!(
            "cannot serve {name} with --style {self}: that is there for echo; use --style coroutine"
        );
        io::Error::new(io::ErrorKind::InvalidInput, text)
    }

    /// As the line at the start says it; nothing for what needs no word.
    pub(crate) fn told(self) -> &'static str {
        match self {
            Style::Callback => "",
            Style::Coroutine => ", in coroutines",
            Style::Async => ", in async",
            Style::Hook => ", in hooked coroutines",
        }
    }
}

impl fmt::Display for Style {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Style::Callback => "callback",
            Style::Coroutine => "coroutine",
            Style::Async => "async",
            Style::Hook => "hook",
        })
    }
}
