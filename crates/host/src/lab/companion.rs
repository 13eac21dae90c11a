//! A second process of this program that stays outside, with a socket to it.
//!
//! To be started before this process goes into namespaces. Left out: what it does
//! (`crate::gateway`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::process::{Child, Command, Stdio};

use plumb_sys::{fd, socket};

/// The companion, and this side's socket; dropping it ends both.
#[derive(Debug)]
pub struct Companion {
    socket: Option<OwnedFd>,
    child: Child,
}

impl Companion {
    /// Starts it: this program with `word` and the number of its descriptor.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(word: &str) -> io::Result<Self> {
        let (own, its) = socket::pair(socket::Kind::SeqPacket)?;
        fd::set_inheritable(its.as_fd(), true)?;
        let child = Command::new(std::env::current_exe()?)
            .arg(word)
            .arg(its.as_raw_fd().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { socket: Some(own), child })
    }

    /// Lets the next process that this one starts have the socket; by which number.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give_on(&self) -> io::Result<RawFd> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        fd::set_inheritable(socket.as_fd(), true)?;
        Ok(socket.as_raw_fd())
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        // It ends when nobody holds the other end of its socket.
        drop(self.socket.take());
        self.child.wait().ok();
    }
}

/// A descriptor that this process was started with, which its children shall not have.
///
/// # Errors
/// It is not open.
pub fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    let socket = fd::adopt(number)?;
    fd::set_inheritable(socket.as_fd(), false)?;
    Ok(socket)
}
