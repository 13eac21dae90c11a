//! The test bed: network namespaces, the devices between them, and their addresses.
//!
//! Nothing made here has a name outside: a namespace is held by descriptors and processes only, and
//! the devices inside die with it, so that whatever is killed, nothing remains.

use std::io;

mod interface;
mod namespace;
mod pid_namespace;
mod registry;
mod test_bed;

pub use interface::{
    EthtoolOffload, InterfaceChange, InterfaceStats, NetlinkSocket, NetworkInterface, VethEnd,
};
pub use namespace::{NetNamespace, become_root, set_forwarding, set_sysctl, sysctl};
pub use pid_namespace::{
    DriverPlacement, InitExit, NamespaceFds, OutsideProcess, PidNamespaceInit, SignalPolicy,
    adopt_fd, hide_directory, kill_others, leave_session, mount_text_over, run_in_pid_namespace,
    terminate_command,
};
pub use registry::{LinkRegistry, RegisteredName, RegistryError};
pub use test_bed::{FarEndMode, LabHost, RouterChain, TestBed, TestBedOptions};

/// Why the test bed could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// This process may not make network namespaces.
    #[error(
        "this process may not make a network namespace: {source}; run it as root (sudo …), or allow \
         user namespaces ('plumb doctor' says how)"
    )]
    NotPermitted {
        /// The kernel's answer.
        source: io::Error,
    },
    /// There are as many as this user may have.
    #[error(
        "there are as many network namespaces as this user may have: {source}; raise \
         /proc/sys/user/max_net_namespaces and max_user_namespaces, which may be 0 here"
    )]
    TooMany {
        /// The kernel's answer.
        source: io::Error,
    },
    /// There are as many process or mount namespaces as this user may have.
    #[error(
        "there are as many process or mount namespaces as this user may have: {source}; raise \
         /proc/sys/user/max_pid_namespaces and max_mnt_namespaces, which may be 0 here"
    )]
    TooManyProcessNamespaces {
        /// The kernel's answer.
        source: io::Error,
    },
    /// A user namespace was asked for too late.
    #[error(
        "this process has several threads, and the kernel gives a user namespace only to a process \
         of one; call become_root before starting threads, or run as root"
    )]
    MultiThreaded,
    /// The kernel refused a change; with its own words where it gave some.
    #[error("cannot {what}: {source}{}", kernel_message_suffix(kernel_message))]
    Refused {
        /// What was tried.
        what: String,
        /// The error.
        source: io::Error,
        /// What the kernel said beyond the error's number; may be empty.
        kernel_message: String,
    },
    /// A device does not take what it shall be; with the kernel's words where it gave some.
    #[error(
        "cannot {what}: {source}{}; 'ip -d link' says what each device takes",
        kernel_message_suffix(kernel_message)
    )]
    InvalidDeviceSetting {
        /// Which device, and what it shall be.
        what: String,
        /// The error.
        source: io::Error,
        /// What the kernel said beyond the error's number; may be empty.
        kernel_message: String,
    },
    /// The process that a contained one was to end with has ended.
    #[error("the process that started this one is gone; start the test bed again")]
    Orphaned,
    /// There is no such device.
    #[error("there is no network device {name} in this namespace; 'ip link' lists them")]
    NoDevice {
        /// Its name.
        name: String,
    },
}

impl LabError {
    /// A namespace that the kernel does not give.
    fn from_netns_error(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted { source },
            io::ErrorKind::StorageFull => Self::TooMany { source },
            _ => Self::refused("make a network namespace", source),
        }
    }

    /// A process namespace that the kernel does not give.
    fn from_pidns_error(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull => Self::TooManyProcessNamespaces { source },
            _ => Self::refused("make a process namespace", source),
        }
    }

    fn refused(what: impl Into<String>, source: io::Error) -> Self {
        Self::Refused { what: what.into(), source, kernel_message: String::new() }
    }
}

fn kernel_message_suffix(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}
