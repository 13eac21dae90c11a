//! Namespaces: unshare(2), setns(2), and mounts inside.

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, UnmountFlags,
    fsconfig_create, fsmount, fsopen, mount, mount_bind, mount_change,
};

pub use rustix::thread::LinkNameSpaceType as NamespaceKind;
use rustix::thread::{UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// A network namespace for this thread, with nothing but a loopback that is down.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, EINVAL where the kernel is built without, ENOSPC at
/// user.max_net_namespaces.
pub fn unshare_network() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET)
}

/// A user and a network namespace: works without root where allowed.
///
/// # Errors
/// EINVAL in a process of several threads, EPERM where user namespaces are not allowed to this
/// user, ENOSPC at user.max_user_namespaces.
pub fn unshare_user_and_network() -> io::Result<()> {
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)
}

/// A process and a mount namespace: the next child is PID 1 of the former, and all of its descendants die with it.
/// This process can start no thread afterwards.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN.
pub fn unshare_processes_and_mounts() -> io::Result<()> {
    unshare(UnshareFlags::NEWPID | UnshareFlags::NEWNS)
}

/// A namespace for System V and POSIX message queues: with the rights as they are.
pub fn unshare_ipc() -> io::Result<()> {
    unshare(UnshareFlags::NEWIPC)
}

/// A user and an IPC namespace: works without root where allowed.
pub fn unshare_user_and_ipc() -> io::Result<()> {
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWIPC)
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES), "descriptors stay shared");
    // SAFETY: unsafe for the sake of CLONE_FILES only, which nothing here passes.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

/// setns(2) of this thread into a namespace; a PID namespace is entered by later children only.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN in both the namespace's owner and this thread's own user namespace; EINVAL where the
/// descriptor is of another kind, or, for users and mounts, where this process has several threads.
pub fn enter(namespace: BorrowedFd<'_>, kind: NamespaceKind) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace, Some(kind))?)
}

/// Keeps every later mount of this mount namespace out of all others.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN.
pub fn make_mounts_private() -> io::Result<()> {
    Ok(mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?)
}

const RESTRICTED: MountFlags =
    MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Mounts a proc of this thread's own process namespace over `/proc`.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, or inside a user namespace where parts of `/proc` are hidden.
pub fn mount_proc() -> io::Result<()> {
    Ok(mount(c"proc", c"/proc", c"proc", RESTRICTED, None)?)
}

/// A file system such as tracefs or sysfs attached to no directory, gone when its descriptor is closed: fsopen(2),
/// fsmount(2). A sysfs shows the devices of this thread's network namespace.
///
/// Its files are found below `/proc/self/fd/N`.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN, `ENODEV` where the kernel is built without it, `ENOSYS` before Linux 5.2.
pub fn detached_mount(file_system: &CStr) -> io::Result<OwnedFd> {
    let context = fsopen(file_system, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// Mounts an empty tmpfs over a directory.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ENOENT where there is no such directory.
pub fn mount_tmpfs(directory: &CStr) -> io::Result<()> {
    Ok(mount(c"tmpfs", directory, c"tmpfs", RESTRICTED, Some(c"mode=0755,size=1m"))?)
}

/// Bind-mounts a file over another.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ENOENT where either is missing.
pub fn bind_mount(file: &CStr, place: &CStr) -> io::Result<()> {
    Ok(mount_bind(file, place)?)
}

/// umount2(2) with MNT_DETACH: files that are open on it stay usable.
///
/// # Errors
/// EINVAL where nothing is mounted there.
pub fn unmount(place: &CStr) -> io::Result<()> {
    Ok(rustix::mount::unmount(place, UnmountFlags::DETACH)?)
}
