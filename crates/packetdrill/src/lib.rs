//! plumb's TCP as a shared object that packetdrill (<https://github.com/google/packetdrill>) runs scripts against, in virtual time.
//!
//! packetdrill reads a script, judges packets and times, and calls what [`interface`] hands it; the sockets behind it are those of
//! [`plumb_conform`]. Left out: `epoll`, pipes, and `%{ }%` code, for which packetdrill asks the kernel.
#![expect(unsafe_code, reason = "a C interface: this crate is its fence")]

pub mod constants;
pub mod interface;
pub mod shim;
