//! Ways into a tree of processes from outside: descriptors of its namespaces, handed through a socket.
//!
//! Left out: who may ask for them, which is whoever reaches the socket.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitStatus};

use plumb_sys::namespace::{self, Kind};
use plumb_sys::{pass, process, signal};

use super::{LabError, Namespace};

/// What the kinds are called under /proc/self/ns, in the order in which they are entered: rights
/// first.
const KINDS: [(&str, Kind); 3] =
    [("user", Kind::User), ("mnt", Kind::Mounts), ("pid", Kind::Processes)];

/// Descriptors of the namespaces of one host of a lab.
#[derive(Debug)]
pub struct Doors {
    fds: Vec<OwnedFd>,
}

impl Doors {
    /// Those of this process, with the network of a host.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn here(network: &Namespace) -> Result<Self, LabError> {
        let refused = |error| LabError::refused("open the namespaces of this process", error);
        let mut fds: Vec<OwnedFd> = Vec::new();
        for (name, _) in KINDS {
            fds.push(File::open(format!("/proc/self/ns/{name}")).map_err(refused)?.into());
        }
        fds.push(network.as_fd().try_clone_to_owned().map_err(refused)?);
        Ok(Self { fds })
    }

    /// Hands them to whoever is at the other end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn hand_over(&self, socket: &UnixStream) -> io::Result<()> {
        let fds: Vec<_> = self.fds.iter().map(AsFd::as_fd).collect();
        pass::send(socket.as_fd(), b"\n", &fds)?;
        Ok(())
    }

    /// Takes them.
    ///
    /// # Errors
    /// The other end has none, or is gone.
    pub fn take(socket: &UnixStream) -> io::Result<Self> {
        let (_, fds) = pass::receive(socket.as_fd(), &mut [0; 1])?;
        if fds.len() == KINDS.len() + 1 {
            Ok(Self { fds })
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Goes in, runs a command there, and waits until it has ended; signals that ask this process to end are
    /// passed on to it, and where this process is killed, so is it. Needs a process of one thread, which stays
    /// inside.
    ///
    /// # Errors
    /// The kernel does not let this process in; the inner result is that of starting the command.
    pub fn run(&self, command: &mut Command) -> Result<io::Result<ExitStatus>, LabError> {
        let refused = |error| LabError::refused("enter the lab", error);
        let place = std::env::current_dir().ok();
        let kinds = KINDS.iter().map(|&(_, kind)| kind).chain([Kind::Network]);
        for (fd, kind) in self.fds.iter().zip(kinds) {
            // The kernel refuses to enter the users that one is of already.
            if kind == Kind::User && is_own(fd).map_err(refused)? {
                continue;
            }
            namespace::enter(fd.as_fd(), kind).map_err(refused)?;
        }
        // Entering mounts leads to their root.
        if let Some(place) = place {
            command.current_dir(place);
        }
        signal::pass_on().map_err(refused)?;
        process::end_with_starter(command);
        Ok(command.spawn().and_then(|mut child| {
            signal::set_heir(child.id());
            child.wait()
        }))
    }
}

/// Whether a descriptor is of the user namespace that this process is in.
fn is_own(fd: &OwnedFd) -> io::Result<bool> {
    let own = fs::metadata("/proc/self/ns/user")?;
    let other = File::from(fd.try_clone()?).metadata()?;
    Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
}

/// Leaves the terminal and the session of whoever started this process.
///
/// # Errors
/// This process leads a group of its own.
pub fn leave_session() -> io::Result<()> {
    process::leave_session()
}
