//! Packet recordings: an old file is overwritten, but never one that the command itself uses.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use plumb_clock::InstantClock;
use plumb_netdev::device::Device;
use plumb_netdev::device::recording::{RecordedDirections, RecordingDevice};

use crate::problem::Problem;

/// Records the packets of a device in both directions at `path`; `taken` are the other files of the command.
///
/// # Errors
/// The file is one of `taken`, or cannot be created.
pub fn recorded<'a, D: Device>(
    device: D,
    path: &Path,
    taken: impl IntoIterator<Item = &'a Path>,
    timeline: InstantClock,
) -> Result<RecordingDevice<D>, Problem> {
    refuse_overwrite("recording", path, taken)?;
    RecordingDevice::new(device, path, RecordedDirections::Both, timeline)
        .map_err(|error| not_recorded(path, error))
}

/// The problem of a recording that cannot be created.
pub fn not_recorded(path: &Path, error: io::Error) -> Problem {
    Problem::usage(format!("cannot write the recording {}", path.display()))
        .because(error)
        .fix("name a file in a directory that exists and that you may write to")
}

/// Checks that `what` (a recording, a report) at `path` would not overwrite a file that the command uses.
///
/// # Errors
/// It would.
pub fn refuse_overwrite<'a>(
    what: &str,
    path: &Path,
    taken: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Problem> {
    match taken.into_iter().find(|taken| is_same(taken, path)) {
        Some(taken) => {
            let path = path.display();
            Err(Problem::usage(format!("a {what} in {path} would destroy it"))
                .because(format!("it is {}, which this command uses already", taken.display()))
                .fix(format!("name another file for the {what}")))
        }
        None => Ok(()),
    }
}

/// Whether both names are one regular file: terminals and null devices may be shared.
fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        metadata.is_file().then(|| (metadata.dev(), metadata.ino()))
    };
    place(one).is_some_and(|found| place(other) == Some(found))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_file_in_use_is_never_overwritten_under_any_name() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("in"), "precious").unwrap();
        fs::write(at("old"), "not needed any more").unwrap();
        fs::hard_link(at("in"), at("hard")).unwrap();
        std::os::unix::fs::symlink(at("in"), at("soft")).unwrap();
        let taken = [at("absent"), at("in"), "/dev/null".into()];
        for (name, is_free) in [
            ("in", false),
            ("./in", false),
            ("hard", false),
            ("soft", false),
            ("old", true),
            ("absent", true),
            ("/dev/null", true),
        ] {
            let checked =
                refuse_overwrite("recording", &at(name), taken.iter().map(PathBuf::as_path));
            assert_eq!(checked.is_ok(), is_free, "{name}");
        }
    }
}
