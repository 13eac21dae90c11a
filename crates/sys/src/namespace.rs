//! Namespaces: leaving them for new ones, entering others by descriptor, and mounts inside.
//!
//! Left out: which are made when, and who holds them.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;

/// unshare(2) of this thread's network namespace: the new one has nothing but a loopback that is down.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, EINVAL where the kernel is built without, ENOSPC at
/// user.max_net_namespaces.
pub fn leave_network() -> io::Result<()> {
    unshare(libc::CLONE_NEWNET)
}

/// unshare(2) of the user and the network namespace together: works without root where allowed.
///
/// # Errors
/// EINVAL in a process of several threads, EPERM where user namespaces are not allowed to this
/// user, ENOSPC at user.max_user_namespaces.
pub fn leave_user_and_network() -> io::Result<()> {
    unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET)
}

/// unshare(2) of the process and mount namespaces: the next child is process 1 of the new one, and
/// with it die all of its descendants. This process can start no thread afterwards.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN.
pub fn leave_processes_and_mounts() -> io::Result<()> {
    unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS)
}

fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: takes plain numbers.
    check(unsafe { libc::unshare(flags) })?;
    Ok(())
}

/// setns(2) of this thread into the network namespace behind a descriptor.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN in both the user namespace that owns it and this thread's own,
/// EINVAL when the descriptor is of something else.
pub fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open; the kernel checks that it is a network namespace.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })?;
    Ok(())
}

/// mount(2) that keeps every later mount of this mount namespace out of all others.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN.
pub fn keep_mounts_private() -> io::Result<()> {
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: C strings; a change of propagation reads no source, type or data.
    check(unsafe {
        libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null())
    })?;
    Ok(())
}

/// mount(2) of a proc of this thread's own process namespace over `/proc`.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, or inside a user namespace where parts of `/proc` are hidden.
pub fn mount_proc() -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: C strings; proc takes no data.
    check(unsafe {
        libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), flags, std::ptr::null())
    })?;
    Ok(())
}

/// What a namespace is of, to enter it by a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Users and their rights.
    User,
    /// Mounts.
    Mounts,
    /// Processes: of children from now on, not of this one.
    Processes,
    /// The network.
    Network,
}

/// setns(2) of this thread into a namespace of a kind.
///
/// # Errors
/// EPERM without the rights there; EINVAL where the descriptor is of another kind, or, of users and
/// mounts, where this process has several threads.
pub fn enter(namespace: BorrowedFd<'_>, kind: Kind) -> io::Result<()> {
    let flag = match kind {
        Kind::User => libc::CLONE_NEWUSER,
        Kind::Mounts => libc::CLONE_NEWNS,
        Kind::Processes => libc::CLONE_NEWPID,
        Kind::Network => libc::CLONE_NEWNET,
    };
    // SAFETY: the descriptor is open; the kernel checks what it is of.
    check(unsafe { libc::setns(namespace.as_raw_fd(), flag) })?;
    Ok(())
}

/// mount(2) of an empty file system in memory over a directory, for this user alone.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ENOENT where there is no such directory.
pub fn mount_memory(directory: &CStr) -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let (kind, data) = (c"tmpfs".as_ptr(), c"mode=0755,size=1m".as_ptr());
    // SAFETY: C strings.
    check(unsafe { libc::mount(kind, directory.as_ptr(), kind, flags, data.cast()) })?;
    Ok(())
}

/// mount(2) that shows a file at the place of another.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ENOENT where either is missing.
pub fn mount_over(file: &CStr, place: &CStr) -> io::Result<()> {
    let (none, flags) = (std::ptr::null(), libc::MS_BIND);
    // SAFETY: C strings; a bind mount reads no type or data.
    check(unsafe { libc::mount(file.as_ptr(), place.as_ptr(), none, flags, none.cast()) })?;
    Ok(())
}

/// umount2(2) that takes a mount out of sight; what others hold of it lives on.
///
/// # Errors
/// EINVAL where nothing is mounted there.
pub fn unmount(place: &CStr) -> io::Result<()> {
    // SAFETY: a C string.
    check(unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) })?;
    Ok(())
}
