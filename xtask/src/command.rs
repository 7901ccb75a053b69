//! Running other programs and telling what came of them.

use std::path::Path;
use std::process::{Command, Stdio};

/// A program of the repository (a path with a slash in it) or of the machine, to be run in `root`.
pub(crate) fn new(root: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = match program.contains('/') {
        true => Command::new(root.join(program)),
        false => Command::new(program),
    };
    command.args(arguments).current_dir(root);
    command
}

/// The cargo that runs this program.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root);
    command
}

/// Runs it; anything but success is an error that names it.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{}: {status}", text(command))),
        Err(error) => Err(format!("cannot run {}: {error}", text(command))),
    }
}

/// Runs it quietly and gives what it prints; anything but success is an error with its last words.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let name = text(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run {name}: {error}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name}: {}: {}", output.status, words.trim_end()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command as a person would type it, with the variables it sets.
pub(crate) fn text(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| {
        let value = value?.to_string_lossy();
        let value = if value.contains(' ') { format!("\"{value}\"") } else { value.into_owned() };
        Some(format!("{}={value}", name.to_string_lossy()))
    });
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    let words = words.map(|word| word.to_string_lossy().into_owned());
    set.chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_printed_as_it_would_be_typed() {
        let mut command = new(Path::new("/"), "cargo", &["test", "--release"]);
        command.env("RUSTFLAGS", "-Za -Cb").env("N", "1").env_remove("GONE");
        assert_eq!(text(&command), "N=1 RUSTFLAGS=\"-Za -Cb\" cargo test --release");
    }
}
