//! A network namespace that is held by a descriptor.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use plumb_sys::namespace::{self, NamespaceKind};
use plumb_sys::process;

use crate::lab::{LabError, NetlinkSocket};

/// Where a thread finds the network namespace it is in.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace; it ends, with every device in it, when its last holder does: this
/// descriptor, a process inside, or a socket.
#[derive(Debug)]
pub struct NetNamespace {
    fd: OwnedFd,
}

impl NetNamespace {
    /// Makes a new one, in which only a loopback exists, and brings that up. This thread stays where
    /// it is.
    ///
    /// # Errors
    /// [`LabError::NotPermitted`] without CAP_SYS_ADMIN: see [`become_root`].
    pub fn new() -> Result<Self, LabError> {
        // A thread of its own leaves its namespace for a new one and never has to come back.
        let made = std::thread::scope(|scope| {
            let maker = std::thread::Builder::new().name("namespace".to_owned());
            let maker = maker.spawn_scoped(scope, || {
                namespace::unshare_network()?;
                File::open(OWN)
            })?;
            maker.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
        });
        let namespace = Self { fd: made.map_err(LabError::from_netns_error)?.into() };
        namespace.enter(bring_up_loopback)??;
        Ok(namespace)
    }

    /// The one that this thread is in.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn current() -> Result<Self, LabError> {
        let file =
            File::open(OWN).map_err(|error| LabError::refused(format!("open {OWN}"), error))?;
        Ok(Self { fd: file.into() })
    }

    /// Another descriptor of it.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn try_clone(&self) -> Result<Self, LabError> {
        let cloned = self.fd.try_clone();
        Ok(Self { fd: cloned.map_err(|error| LabError::refused("hold a namespace twice", error))? })
    }

    /// Runs `work` on this thread with this namespace as the thread's own, and returns to the one
    /// it was in. Descriptors opened inside (sockets, TAP queues) and processes started inside stay
    /// in this namespace.
    ///
    /// When the thread cannot return, which would leave it silently in another network, the process
    /// is aborted with a message.
    ///
    /// # Errors
    /// The kernel does not let this thread in; `work` has not run then.
    pub fn enter<R>(&self, work: impl FnOnce() -> R) -> Result<R, LabError> {
        let guard = NamespaceGuard { home: Self::current()? };
        namespace::enter(self.fd.as_fd(), NamespaceKind::Network)
            .map_err(|error| LabError::refused("enter a network namespace", error))?;
        let result = work();
        drop(guard);
        Ok(result)
    }

    /// A connection to its routing tables; it stays in this namespace whichever thread uses it.
    ///
    /// # Errors
    /// As [`NetNamespace::enter`].
    pub fn netlink(&self) -> Result<NetlinkSocket, LabError> {
        self.enter(NetlinkSocket::open)?
    }
}

impl From<OwnedFd> for NetNamespace {
    /// Of a descriptor that another process has handed over.
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for NetNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes the thread home when it is dropped, by a panic too.
struct NamespaceGuard {
    home: NetNamespace,
}

impl Drop for NamespaceGuard {
    fn drop(&mut self) {
        if let Err(error) = namespace::enter(self.home.fd.as_fd(), NamespaceKind::Network) {
            // A panic would unwind through code that believes it is at home.
            abort(&format!("cannot return to the first network namespace: {error}"));
        }
    }
}

#[expect(clippy::print_stderr, reason = "the last words of a process that cannot go on")]
fn abort(message: &str) -> ! {
    eprintln!("plumb: {message}");
    std::process::abort()
}

/// Gives this process the rights to make namespaces: nothing to do for root; otherwise a user
/// namespace, in which it is root, and with it an empty network namespace of its own. To be called
/// before any thread is started.
///
/// Returns whether the process now is in namespaces of its own.
///
/// # Errors
/// [`LabError::NotPermitted`] where user namespaces are not allowed to this user,
/// [`LabError::MultiThreaded`] in a process of several threads.
pub fn become_root() -> Result<bool, LabError> {
    // On this thread, and back: a thread that was started and joined may still count as one when
    // the kernel looks.
    let home = NetNamespace::current()?;
    match namespace::unshare_network() {
        Ok(()) => {
            if namespace::enter(home.fd.as_fd(), NamespaceKind::Network).is_ok() {
                return Ok(false);
            }
            // Root of a user namespace that the first network does not belong to may leave that one, and
            // not return. It stays in the new one, as every other user.
            bring_up_loopback()?;
            return Ok(true);
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        Err(error) => return Err(LabError::from_netns_error(error)),
    }
    let (user, group) = (process::effective_user(), process::effective_group());
    namespace::unshare_user_and_network().map_err(|source| match source.raw_os_error() {
        Some(EINVAL) => LabError::MultiThreaded,
        _ if source.kind() == io::ErrorKind::StorageFull => LabError::TooMany { source },
        _ => LabError::NotPermitted { source },
    })?;
    let write = |file: &str, text: String| {
        let path = format!("/proc/self/{file}");
        fs::write(&path, text).map_err(|source| match source.kind() {
            // Where a security module gives a user namespace without its rights.
            io::ErrorKind::PermissionDenied => LabError::NotPermitted { source },
            _ => LabError::refused(format!("write {path}"), source),
        })
    };
    // user_namespaces(7): a group may be mapped without privilege only where setgroups is denied.
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("0 {user} 1"))?;
    write("gid_map", format!("0 {group} 1"))?;
    bring_up_loopback()?;
    Ok(true)
}

/// In the namespace that this thread is in.
fn bring_up_loopback() -> Result<(), LabError> {
    let mut netlink = NetlinkSocket::open()?;
    let loopback = netlink.interface("lo")?.index;
    netlink.set_up(loopback, true)
}

/// unshare(2) of a user namespace by a process of several threads, and nothing else that is asked
/// here.
const EINVAL: i32 = 22;

/// Sets `net.…` in a namespace: `name` is what follows `net/`, with slashes.
///
/// # Errors
/// The kernel has no such switch, refuses the value, or /proc/sys is mounted read-only, as in most
/// containers.
pub fn set_sysctl(namespace: &NetNamespace, name: &str, value: &str) -> Result<(), LabError> {
    let path = format!("/proc/sys/net/{name}");
    namespace
        .enter(|| fs::write(&path, value))?
        .map_err(|error| LabError::refused(format!("write {value} to {path}"), error))
}

/// What `net.…` is in a namespace, without white space around it.
///
/// # Errors
/// The kernel has no such switch.
pub fn sysctl(namespace: &NetNamespace, name: &str) -> Result<String, LabError> {
    let path = format!("/proc/sys/net/{name}");
    let text = namespace
        .enter(|| fs::read_to_string(&path))?
        .map_err(|error| LabError::refused(format!("read {path}"), error))?;
    Ok(text.trim().to_owned())
}

/// Makes a namespace a router of both families, or a host again.
///
/// # Errors
/// As [`set_sysctl`].
pub fn set_forwarding(namespace: &NetNamespace, on: bool) -> Result<(), LabError> {
    let value = if on { "1" } else { "0" };
    set_sysctl(namespace, "ipv4/ip_forward", value)?;
    match sysctl(namespace, "ipv6/conf/all/forwarding") {
        Ok(_) => set_sysctl(namespace, "ipv6/conf/all/forwarding", value),
        // A kernel without IPv6.
        Err(_) => Ok(()),
    }
}
