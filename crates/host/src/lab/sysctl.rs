//! The kernel's switches for the network, of one namespace.
//!
//! /proc/sys/net shows to each thread the namespace that the thread is in. Left out: switches that
//! all namespaces share.

use std::fs;

use super::{LabError, Namespace};

/// Sets `net.…` in a namespace: `name` is what follows `net/`, with slashes.
///
/// # Errors
/// The kernel has no such switch, refuses the value, or /proc/sys is mounted read-only, as in most
/// containers.
pub fn set_sysctl(namespace: &Namespace, name: &str, value: &str) -> Result<(), LabError> {
    let path = format!("/proc/sys/net/{name}");
    namespace
        .enter(|| fs::write(&path, value))?
        .map_err(|error| LabError::refused(format!("write {value} to {path}"), error))
}

/// What `net.…` is in a namespace, without white space around it.
///
/// # Errors
/// The kernel has no such switch.
pub fn sysctl(namespace: &Namespace, name: &str) -> Result<String, LabError> {
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
pub fn set_forwarding(namespace: &Namespace, on: bool) -> Result<(), LabError> {
    let value = if on { "1" } else { "0" };
    set_sysctl(namespace, "ipv4/ip_forward", value)?;
    match sysctl(namespace, "ipv6/conf/all/forwarding") {
        Ok(_) => set_sysctl(namespace, "ipv6/conf/all/forwarding", value),
        // A kernel without IPv6.
        Err(_) => Ok(()),
    }
}
