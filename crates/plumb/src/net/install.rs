//! `--install`: copies this very program to the other host by ssh, into a place of its own.
//!
//! Left out: system-wide installation.

use std::fs::File;
use std::process::{Command, Stdio};

use super::agent_connection::CACHED_PROGRAM;
use super::host_target::{HostTarget, ReachMethod};
use crate::problem::Problem;

/// Copies the program there, whole or not at all.
///
/// # Errors
/// The host is not reached by ssh, or the copy fails: no room, no login.
pub fn install(place: &HostTarget, ssh: &[String]) -> Result<(), Problem> {
    let ReachMethod::Ssh { target, port } = &place.method else {
        return Err(Problem::usage(format!("'{}' is not reached by ssh", place.requested))
            .because("plumb copies itself by ssh only")
            .fix("copy the program there by other means"));
    };
    let failed = |why: String| {
        Problem::failure(format!("could not copy plumb to '{}'", place.requested)).because(why).fix(
            format!(
                "make room in ~/{CACHED_PROGRAM} there, and make this work first: ssh {target} true"
            ),
        )
    };
    let own = std::env::current_exe()
        .and_then(File::open)
        .map_err(|error| failed(format!("this program's own file cannot be read: {error}")))?;
    let Some((program, options)) = ssh.split_first() else {
        return Err(Problem::usage("--ssh names no program").fix("leave it away"));
    };
    let mut command = Command::new(program);
    command.args(options).args(["-T", "-o", "ConnectTimeout=10"]);
    if let Some(port) = port {
        command.arg("-p").arg(port.to_string());
    }
    let script = format!(
        "sh -c 'umask 077 && mkdir -p \"$HOME/.cache/plumb\" && cat >\"$HOME/{CACHED_PROGRAM}.new.$$\" && \
         chmod 700 \"$HOME/{CACHED_PROGRAM}.new.$$\" && mv -f \"$HOME/{CACHED_PROGRAM}.new.$$\" \"$HOME/{CACHED_PROGRAM}\" || \
         {{ rm -f \"$HOME/{CACHED_PROGRAM}.new.$$\"; exit 1; }}'"
    );
    command.arg("--").arg(target).arg(script);
    let output = command
        .stdin(Stdio::from(own))
        .stdout(Stdio::null())
        .output()
        .map_err(|error| failed(format!("'{program}' cannot be run: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(if said.is_empty() { output.status.to_string() } else { said }))
}
