//! `--install`: copies this very program to the other host by ssh, into a place of its own.

use std::fs::File;
use std::process::Stdio;

use super::agent_connection::{CACHED_PROGRAM, ssh_command};
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
    let (own, len) = std::env::current_exe()
        .and_then(File::open)
        .and_then(|file| file.metadata().map(|data| (file, data.len())))
        .map_err(|error| failed(format!("this program's own file cannot be read: {error}")))?;
    let mut command = ssh_command(target, *port, ssh, &[], &install_script(len))?;
    let program = command.get_program().to_string_lossy().into_owned();
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

/// A script that puts so many bytes of standard input in the place of the program. A connection that is cut looks like
/// an end of input, so what is shorter is no copy.
fn install_script(len: u64) -> String {
    let (place, new) =
        (format!("\"$HOME/{CACHED_PROGRAM}\""), format!("\"$HOME/{CACHED_PROGRAM}.new.$$\""));
    format!(
        "sh -c 'umask 077 && mkdir -p \"$HOME/.cache/plumb\" && cat >{new} && test $(wc -c <{new}) -eq {len} && \
         chmod 700 {new} && mv -f {new} {place} || {{ rm -f {new}; exit 1; }}'"
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_copy_that_is_cut_short_replaces_nothing() {
        let home = tempfile::tempdir().unwrap();
        for (bytes, is_whole) in [(&b"new program"[..], true), (b"new pro", false)] {
            let mut command = Command::new("sh");
            command.args(["-c", &install_script(11)]).env("HOME", home.path());
            let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(bytes).unwrap();
            assert_eq!(child.wait().unwrap().success(), is_whole);
            let place = home.path().join(CACHED_PROGRAM);
            assert_eq!(std::fs::read(&place).unwrap(), b"new program");
            assert_eq!(std::fs::read_dir(place.parent().unwrap()).unwrap().count(), 1);
        }
    }
}
