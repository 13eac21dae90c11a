//! Which labs and links run, by name: one socket each in a directory of the user's own.
//!
//! The only names outside that anything made here has. A socket that nobody listens to any more is
//! removed by whoever comes next.

use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plumb_sys::process;

/// Longest name, in bytes: a socket's path has 108 in all (unix(7)).
const NAME_MAX: usize = 32;

/// How long an end of a connection that was asked for nothing is waited for.
const PROBE_TIMEOUT: Duration = Duration::from_millis(200);

/// Why a name cannot be had or found.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// It is none.
    #[error(
        "'{0}' is not a link name; it has 1 to {NAME_MAX} letters, digits, '-', '_' and '.', and \
         begin with a letter or digit"
    )]
    Name(String),
    /// Another has it.
    #[error("there is a link '{0}' already; choose another name, or end it: plumb link down {0}")]
    Taken(String),
    /// Nobody has it.
    #[error("no link '{0}' is running; 'plumb link list' shows those that are")]
    Unknown(String),
    /// Somebody else could put sockets into the directory.
    #[error(
        "{0} is not this user's alone, and could lead to somebody else's links; remove it, or set XDG_RUNTIME_DIR to a \
         directory of your own"
    )]
    NotPrivate(PathBuf),
    /// The kernel refused.
    #[error("cannot use {path}: {source}; set XDG_RUNTIME_DIR to a directory of your own")]
    Io {
        /// Where.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
}

/// The directory of sockets.
#[derive(Clone, Debug)]
pub struct LinkRegistry {
    directory: PathBuf,
}

impl LinkRegistry {
    /// That of this user: `$XDG_RUNTIME_DIR/plumb/link`, or `/tmp/plumb-UID/link`.
    ///
    /// # Errors
    /// It cannot be made, or belongs to somebody else.
    pub fn of_user() -> Result<Self, RegistryError> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
        let parent = match runtime {
            Some(path) => Path::new(&path).join("plumb"),
            None => PathBuf::from(format!("/tmp/plumb-{}", process::effective_user())),
        };
        Self::in_private(&parent)
    }

    /// That in a directory which is made, or is this user's alone.
    fn in_private(parent: &Path) -> Result<Self, RegistryError> {
        let directory = parent.join("link");
        for directory in [parent, &directory] {
            let failed = |source| RegistryError::Io { path: directory.to_owned(), source };
            match DirBuilder::new().mode(0o700).create(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed(error));
                }
                _ => {}
            }
            let found = fs::symlink_metadata(directory).map_err(failed)?;
            let own = found.uid() == process::effective_user();
            if !own || !found.is_dir() || found.permissions().mode() & 0o022 != 0 {
                return Err(RegistryError::NotPrivate(directory.to_owned()));
            }
        }
        Ok(Self { directory })
    }

    /// That at a path which [`LinkRegistry::path`] gave, for a process that is another user by name.
    pub fn at(path: PathBuf) -> Self {
        Self { directory: path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Whether it can be a name.
    ///
    /// # Errors
    /// [`RegistryError::Name`].
    pub fn check(name: &str) -> Result<(), RegistryError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins && name.len() <= NAME_MAX && name.chars().all(allowed) {
            Ok(())
        } else {
            Err(RegistryError::Name(name.to_owned()))
        }
    }

    /// Takes a name, and listens under it until what is returned is dropped. `process` is the number of
    /// this process outside, which tells others whether it still lives. What a killed one has left of this name is
    /// removed before, by [`LinkRegistry::remove_stale`]: whoever publishes may see no process outside.
    ///
    /// # Errors
    /// It is no name, or another has it.
    pub fn register(&self, name: &str, process: u32) -> Result<RegisteredName, RegistryError> {
        Self::check(name)?;
        let path = self.directory.join(name);
        // Bound under a name of its own first: nobody shall find it before it listens.
        let making = self.directory.join(format!(".{name}.{process}"));
        let failed = |source| RegistryError::Io { path: path.clone(), source };
        fs::remove_file(&making).ok();
        let listener = UnixListener::bind(&making).map_err(failed)?;
        let linked = fs::hard_link(&making, &path);
        fs::remove_file(&making).map_err(failed)?;
        linked.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => RegistryError::Taken(name.to_owned()),
            _ => failed(error),
        })?;
        Ok(RegisteredName { listener, path })
    }

    /// A connection to the link of a name.
    ///
    /// # Errors
    /// [`RegistryError::Unknown`] where none runs.
    pub fn connect(&self, name: &str) -> Result<UnixStream, RegistryError> {
        Self::check(name)?;
        UnixStream::connect(self.directory.join(name))
            .map_err(|_| RegistryError::Unknown(name.to_owned()))
    }

    /// The names of all that run, in order.
    pub fn names(&self) -> Vec<String> {
        let is_one =
            |name: &String| !name.starts_with('.') && is_listening(&self.directory.join(name));
        let mut names: Vec<String> = self.files().into_iter().filter(is_one).collect();
        names.sort_unstable();
        names
    }

    /// Removes the sockets of those that have ended without doing so; how many. Not from inside a tree of processes of
    /// its own, where those that are making theirs cannot be seen.
    pub fn remove_stale(&self) -> usize {
        let is_stale = |name: &String| {
            // One that is being made does not listen yet.
            let maker = name.strip_prefix('.').and_then(|rest| rest.rsplit_once('.'));
            let maker = maker.and_then(|(_, process)| process.parse().ok());
            !is_listening(&self.directory.join(name)) && !maker.is_some_and(process::exists)
        };
        let stale = self.files().into_iter().filter(is_stale);
        stale.filter(|name| fs::remove_file(self.directory.join(name)).is_ok()).count()
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }
}

/// Whether somebody listens to a socket. One that is being killed may still seem to, and resets the
/// connection a moment later; one that lives ends it, or takes its time.
fn is_listening(path: &Path) -> bool {
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) => return error.kind() != io::ErrorKind::ConnectionRefused,
    };
    // Nothing is asked: that ends it.
    let quiet = stream.shutdown(Shutdown::Write).and(stream.set_read_timeout(Some(PROBE_TIMEOUT)));
    let is_reset = |error: io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    quiet.is_ok() && !stream.read(&mut [0]).is_err_and(is_reset)
}

/// A name that is taken.
#[derive(Debug)]
pub struct RegisteredName {
    /// Clients of the control socket connect here.
    pub listener: UnixListener,
    path: PathBuf,
}

impl RegisteredName {
    /// Where the listener is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RegisteredName {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> (tempfile::TempDir, LinkRegistry) {
        let directory = tempfile::tempdir().unwrap();
        let registry = LinkRegistry::at(directory.path().to_owned());
        (directory, registry)
    }

    #[test]
    fn a_name_is_had_by_one_and_free_again_when_that_one_ends() {
        let (_directory, registry) = registry();
        let first = registry.register("lab", 1).unwrap();
        assert!(matches!(registry.register("lab", 2), Err(RegistryError::Taken(_))));
        assert_eq!(registry.names(), ["lab"]);
        registry.connect("lab").unwrap();
        drop(first);
        assert!(matches!(registry.connect("lab"), Err(RegistryError::Unknown(_))));
        registry.register("lab", 2).unwrap();
        assert_eq!(registry.files(), Vec::<String>::new());
    }

    #[test]
    fn what_a_killed_one_leaves_is_removed_by_the_next() {
        let (directory, registry) = registry();
        drop(UnixListener::bind(directory.path().join("killed")).unwrap());
        // No process has this number.
        drop(UnixListener::bind(directory.path().join(".made.4294967295")).unwrap());
        let own = format!(".making.{}", std::process::id());
        drop(UnixListener::bind(directory.path().join(&own)).unwrap());
        assert_eq!(registry.names(), Vec::<String>::new(), "nobody is heard");
        assert_eq!(registry.files().len(), 3, "and nothing removed by looking");
        // Nor by taking a name: others that are making theirs may not be seen from there.
        drop(registry.register("other", 1).unwrap());
        assert_eq!(registry.files().len(), 3);
        assert_eq!(registry.remove_stale(), 2);
        assert_eq!(registry.files(), [own]);
    }

    #[test]
    fn a_directory_that_others_made_or_can_change_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let refused = |parent: &Path| {
            let error = LinkRegistry::in_private(parent).unwrap_err();
            assert!(matches!(error, RegistryError::NotPrivate(_)), "{error}");
            assert!(error.to_string().contains("XDG_RUNTIME_DIR"), "{error}");
        };
        let own = place.path().join("own");
        assert_eq!(LinkRegistry::in_private(&own).unwrap().path(), own.join("link"));
        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
        refused(&own);
        let symlink = place.path().join("symlink");
        std::os::unix::fs::symlink(place.path(), &symlink).unwrap();
        refused(&symlink);
        // Without the right to change a directory's owner, one of root's is used.
        let given = place.path().join("given");
        fs::create_dir(&given).unwrap();
        let is_given = std::os::unix::fs::chown(&given, Some(65_534), None).is_ok();
        refused(if is_given { &given } else { Path::new("/usr") });
    }

    #[test]
    fn names_lead_nowhere_else() {
        for name in ["", ".", "..", "a/b", "-x", ".hidden", "a b", &"x".repeat(33)] {
            assert!(LinkRegistry::check(name).is_err(), "{name}");
        }
        LinkRegistry::check("lab-1.two_3").unwrap();
    }
}
