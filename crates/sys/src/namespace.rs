//! Namespaces: leaving them for new ones, entering others by descriptor, and mounts inside.
//!
//! Left out: which are made when, and who holds them.

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
