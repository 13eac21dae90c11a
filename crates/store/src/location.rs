//! Where the store is when nobody says: the rules of the XDG base directory specification.
//!
//! Left out: creating anything; [`crate::sqlite::Store::open`] does that.

use std::ffi::OsString;
use std::path::PathBuf;

/// No place for the store could be worked out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no place for the store: neither PLUMB_STORE, XDG_DATA_HOME nor HOME is set; \
     pass --store FILE or set PLUMB_STORE"
)]
pub struct StoreLocationError;

/// The path of the store: `explicit`, else `$PLUMB_STORE`, else `plumb/plumb.db` in
/// `$XDG_DATA_HOME`, else in `$HOME/.local/share`.
///
/// `environment` looks a variable up, so that this function asks the process nothing. Empty
/// variables count as unset, and a relative `$XDG_DATA_HOME` is ignored (XDG base directory
/// specification 0.8).
///
/// # Errors
/// When none of them is given.
pub fn default_path(
    explicit: Option<PathBuf>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, StoreLocationError> {
    let variable =
        |name: &str| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    explicit
        .or_else(|| variable("PLUMB_STORE"))
        .or_else(|| {
            let data = variable("XDG_DATA_HOME").filter(|path| path.is_absolute())?;
            Some(data.join("plumb/plumb.db"))
        })
        .or_else(|| Some(variable("HOME")?.join(".local/share/plumb/plumb.db")))
        .ok_or(StoreLocationError)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(explicit: Option<&str>, set: &[(&str, &str)]) -> Result<PathBuf, StoreLocationError> {
        default_path(explicit.map(PathBuf::from), |name| {
            set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_most_specific_place_wins() {
        let all = [("PLUMB_STORE", "/s.db"), ("XDG_DATA_HOME", "/xdg"), ("HOME", "/home/u")];
        assert_eq!(found(Some("/e.db"), &all), Ok("/e.db".into()));
        assert_eq!(found(None, &all), Ok("/s.db".into()));
        assert_eq!(found(None, &all[1..]), Ok("/xdg/plumb/plumb.db".into()));
        assert_eq!(found(None, &all[2..]), Ok("/home/u/.local/share/plumb/plumb.db".into()));
        assert_eq!(found(None, &[]), Err(StoreLocationError));
    }

    #[test]
    fn empty_variables_and_a_relative_data_home_are_ignored() {
        let set = [("PLUMB_STORE", ""), ("XDG_DATA_HOME", "data"), ("HOME", "/h")];
        assert_eq!(found(None, &set), Ok("/h/.local/share/plumb/plumb.db".into()));
    }
}
