//! `--install`: copies this very program to the other host by ssh, into a place of its own.
//!
//! Left out: system-wide installation.

use std::fs::File;
use std::process::{Command, Stdio};

use super::place::{Place, Way};
use super::reach::CACHED;
use crate::problem::Problem;

/// Copies the program there, whole or not at all.
///
/// # Errors
/// The host is not reached by ssh, or the copy fails: no room, no login.
pub fn install(place: &Place, ssh: &[String]) -> Result<(), Problem> {
    let Way::Ssh { target, port } = &place.way else {
        return Err(Problem::usage(format!("'{}' is not reached by ssh", place.asked))
            .because("plumb copies itself by ssh only")
            .fix("copy the program there by other means"));
    };
    let failed = |why: String| {
        Problem::trouble(format!("could not copy plumb to '{}'", place.asked)).because(why).fix(
            format!("make room in ~/{CACHED} there, and make this work first: ssh {target} true"),
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
        "sh -c 'umask 077 && mkdir -p \"$HOME/.cache/plumb\" && cat >\"$HOME/{CACHED}.new.$$\" && \
         chmod 700 \"$HOME/{CACHED}.new.$$\" && mv -f \"$HOME/{CACHED}.new.$$\" \"$HOME/{CACHED}\" || \
         {{ rm -f \"$HOME/{CACHED}.new.$$\"; exit 1; }}'"
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
