//! The link that this process runs behind: what it was asked to be when it was first looked at, and
//! whether it has changed since, by a schedule or by anybody.
//!
//! Left out: its far side (`plumb_host::harness::remote`).

use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use plumb_host::harness::remote::{self, OUTER_CONTROL};

use super::control::{Answer, Present, Question, ask};

/// What was found at the first look, and whether the link itself has said so.
#[derive(Debug)]
struct Found {
    present: Present,
    is_heard: bool,
}

fn found() -> Option<&'static Found> {
    // One text for a whole run, whatever becomes of the link.
    static FOUND: OnceLock<Option<Found>> = OnceLock::new();
    let look = || {
        let link = remote::outer_link()?;
        Some(match heard() {
            Some(present) => Found { present, is_heard: true },
            None => Found { present: Present { link, changes: 0 }, is_heard: false },
        })
    };
    FOUND.get_or_init(look).as_ref()
}

/// What the link says of itself now; none where there is none, or it does not answer.
fn heard() -> Option<Present> {
    let path = std::env::var_os(OUTER_CONTROL).filter(|path| !path.is_empty())?;
    let stream = UnixStream::connect(path).ok()?;
    match ask(&stream, &Question::Present) {
        Ok(Answer::Present(present)) => Some(present),
        _ => None,
    }
}

/// The text of the link that this process runs behind, as it was at the first look, if it runs behind
/// one whose far side it knows.
pub fn outer_link() -> Option<String> {
    found().map(|found| found.present.link.clone())
}

/// What that link is now, where it has changed since the first look, be it there and back.
pub fn changed() -> Option<String> {
    let found = found().filter(|found| found.is_heard)?;
    heard().filter(|now| *now != found.present).map(|now| now.link)
}
