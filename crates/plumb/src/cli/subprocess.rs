//! Commands of the user in another network, and this program started again inside it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

use plumb_netdev::lab::{PidNamespaceInit, TestBed};

use crate::problem::{ExitReason, Problem};

/// The arguments of this process, with more before its `--`.
pub fn inner_arguments(more: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    arguments.splice(end..end, more);
    arguments
}

/// The command, or the user's shell.
pub fn command_or_shell(words: &[OsString]) -> Command {
    let shell = || std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let mut command = Command::new(words.first().cloned().unwrap_or_else(shell));
    command.args(words.iter().skip(1));
    command
}

/// Lets a command find this program by its name. Its directory is searched last, so that what lies beside it takes
/// the place of no other program.
pub fn add_own_directory_to_path(command: &mut Command) {
    let own = std::env::current_exe().ok();
    let Some(directory) = own.as_deref().and_then(Path::parent) else { return };
    let Some(path) = std::env::var_os("PATH") else { return };
    let directories = std::env::split_paths(&path).chain([directory.to_owned()]);
    if let Ok(path) = std::env::join_paths(directories) {
        command.env("PATH", path);
    }
}

/// The error for a command that cannot be started in a place such as `behind the link`.
pub fn not_started(program: &OsStr, place: &str, error: &io::Error) -> Problem {
    Problem::usage(format!("cannot start '{}' {place}", program.to_string_lossy()))
        .because(error)
        .fix(format!("check the name; the files {place} are the same as outside"))
}

/// The exit code of a command, 128 + N for signal N as in a shell.
pub fn exit_reason(status: ExitStatus) -> ExitReason {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitReason::Failure, ExitReason::Command)
}

/// The path at which processes inside find the far side's network namespace, for `nsenter --net=`.
pub fn far_namespace_path(bed: &TestBed, contained: &PidNamespaceInit) -> Option<String> {
    let process = if contained.has_own_proc { 1 } else { contained.outer_pid };
    bed.far().map(|far| format!("/proc/{process}/fd/{}", far.as_fd().as_raw_fd()))
}

/// The addresses with prefix lengths of the near side, and of the far side.
pub fn address_lists(bed: &TestBed) -> [String; 2] {
    let list = |address: fn(IpAddr, IpAddr) -> IpAddr| {
        let addresses =
            bed.addresses().map(|(near, far, bits)| format!("{}/{bits}", address(near, far)));
        addresses.collect::<Vec<_>>().join("  ")
    };
    [list(|near, _| near), list(|_, far| far)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_beside_plumb_replace_none_of_the_path() {
        let mut command = Command::new("ls");
        add_own_directory_to_path(&mut command);
        let (_, path) = command.get_envs().find(|(name, _)| *name == "PATH").unwrap();
        let searched: Vec<_> = std::env::split_paths(path.unwrap()).collect();
        let outer = std::env::var_os("PATH").unwrap();
        let outer: Vec<_> = std::env::split_paths(&outer).collect();
        assert!(searched.starts_with(&outer), "{searched:?}");
        assert_eq!(
            searched.last().map(std::path::PathBuf::as_path),
            std::env::current_exe().unwrap().parent()
        );
    }
}
