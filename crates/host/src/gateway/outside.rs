//! The helper that stays outside: it makes sockets there, and hands them in.
//!
//! A socket belongs to the network namespace that it was made in, whoever uses it. Left out: what
//! the sockets are used for.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::inet::{self, Kind};
use plumb_sys::{pass, process};

/// The inner end: asks for sockets.
#[derive(Debug)]
pub struct Outside {
    socket: OwnedFd,
}

impl Outside {
    /// Of the descriptor whose other end a helper serves.
    pub const fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// A socket of the outer network that does not wait.
    ///
    /// # Errors
    /// The kernel's, there; an end where the helper is gone.
    pub(super) fn socket(&self, v6: bool, kind: Kind) -> io::Result<OwnedFd> {
        let request = [u8::from(v6), u8::from(kind == Kind::Datagram)];
        pass::send(self.socket.as_fd(), &request, &[])?;
        let mut answer = [0; 4];
        let (len, mut fds) = loop {
            match pass::receive(self.socket.as_fd(), &mut answer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        match (len, fds.pop()) {
            (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
            (_, Some(fd)) => Ok(fd),
            (_, None) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(answer))),
        }
    }
}

/// The helper: answers until the other end is closed, or the process that started it ends.
///
/// # Errors
/// The kernel's, of the pair of sockets.
pub fn serve(socket: &OwnedFd) -> io::Result<()> {
    process::die_with_parent()?;
    let mut request = [0; 2];
    loop {
        match pass::receive(socket.as_fd(), &mut request) {
            Ok((0, _)) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        let kind = if request[1] == 0 { Kind::Stream } else { Kind::Datagram };
        match inet::socket(request[0] != 0, kind) {
            Ok(fd) => pass::send(socket.as_fd(), &[0; 4], &[fd.as_fd()])?,
            Err(error) => {
                let number = error.raw_os_error().unwrap_or(0);
                pass::send(socket.as_fd(), &number.to_ne_bytes(), &[])?
            }
        };
    }
}
