//! The kernel's own stack as a mirror: a process that receives and sends, as small as it can be.
//!
//! The socket was bound in the mirror's namespace, to which it still belongs.

use std::io;
use std::net::UdpSocket;

use super::peer::{Mirror, MirrorError, Reins, ReplayTask, Site};
use crate::local::mechanism::Wake;

/// A bound UDP socket and room for the largest datagram.
#[derive(Debug)]
pub(super) struct KernelMirror {
    socket: UdpSocket,
    buffer: Vec<u8>,
    mirrored: u64,
}

impl KernelMirror {
    pub(super) fn new(mut site: Site) -> Result<Self, MirrorError> {
        let fd = site
            .fds
            .pop()
            .ok_or_else(|| MirrorError::Broken("no socket was handed over".to_owned()))?;
        let socket = UdpSocket::from(fd);
        // Connected, as the client is: the route is looked up once, not for every datagram.
        socket.connect(site.client)?;
        socket.set_nonblocking(site.spec.wake == Wake::Spin)?;
        Ok(Self { socket, buffer: vec![1; 1 << 16], mirrored: 0 })
    }
}

impl Mirror for KernelMirror {
    fn mirror(&mut self, reins: &Reins) -> Result<(), MirrorError> {
        while !reins.stop() {
            match self.socket.recv(&mut self.buffer) {
                Ok(len) => {
                    self.socket.send(&self.buffer[..len])?;
                    self.mirrored += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::hint::spin_loop();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn replay(&mut self, _task: &ReplayTask) -> Result<Vec<f64>, MirrorError> {
        Err(MirrorError::Unavailable("the kernel's stack takes no frames from memory".to_owned()))
    }

    fn tally(&mut self) -> Vec<(String, u64)> {
        vec![("mirrored".to_owned(), std::mem::take(&mut self.mirrored))]
    }
}
