//! Tests that need rights: skipped without, and failed under CI=true.

use plumb_netdev::lab::LabError;

/// What was made; none, with a word about it, where this process may not.
#[expect(clippy::print_stdout, reason = "a test that cannot run says so")]
pub fn allowed<T>(made: Result<T, LabError>) -> Option<T> {
    match made {
        Err(error @ LabError::NotPermitted { .. }) => {
            println!("skipped: {error}");
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "skipped under CI");
            None
        }
        made => Some(made.unwrap_or_else(|error| panic!("{error}"))),
    }
}
