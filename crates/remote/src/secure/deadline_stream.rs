//! A TCP connection on which nothing waits for ever: a time for each step, and a moment for all.
//!
//! A client that sends one byte a minute keeps every single read short; the moment for all of a
//! handshake ends it nevertheless. Left out: TLS ([`super::stream`]).

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use plumb_base::time::{Instant, Span};

/// The shortest time the kernel is asked to wait: none at all would mean for ever.
const WAIT_MIN: Span = Span::from_us(1);

/// A connection with its deadlines.
#[derive(Debug)]
pub struct DeadlineStream {
    socket: TcpStream,
    deadline: Instant,
    idle: Span,
    /// What the kernel was last told for reading and for writing.
    configured: [Option<Span>; 2],
}

impl DeadlineStream {
    /// A blocking connection of which each step may take `idle`, and all of them end at `deadline`.
    pub fn new(socket: TcpStream, deadline: Instant, idle: Span) -> Self {
        Self { socket, deadline, idle, configured: [None; 2] }
    }

    /// Other times from here on; [`Instant::NEVER`] is no deadline for all.
    pub fn set_times(&mut self, deadline: Instant, idle: Span) {
        (self.deadline, self.idle) = (deadline, idle);
    }

    /// Whom it leads to.
    ///
    /// # Errors
    /// When it has broken already.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Another handle on the same connection, with the same times.
    ///
    /// # Errors
    /// When the process may have no more descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::new(self.socket.try_clone()?, self.deadline, self.idle))
    }

    /// The connection itself, for what the kernel knows of it.
    pub const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Ends it for both sides.
    pub fn close(&self) {
        self.socket.shutdown(Shutdown::Both).ok();
    }

    /// How long this step may take.
    fn wait(&self) -> io::Result<Span> {
        let left = self.deadline.saturating_since(plumb_clock::now());
        if left == Span::ZERO {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the time for it is over"));
        }
        Ok(left.min(self.idle).max(WAIT_MIN))
    }

    /// The kernel's word for a wait that is over is "would block".
    fn explain_timeout(&self, error: io::Error) -> io::Error {
        if error.kind() != io::ErrorKind::WouldBlock {
            return error;
        }
        let silent = || io::Error::new(io::ErrorKind::TimedOut, "the other side was silent");
        self.wait().map_or_else(|over| over, |_| silent())
    }

    fn apply_timeout(&mut self, writing: bool) -> io::Result<()> {
        let wait = self.wait()?;
        let told = &mut self.configured[usize::from(writing)];
        if *told != Some(wait) {
            let timeout = Some(Duration::from(wait));
            if writing {
                self.socket.set_write_timeout(timeout)?;
            } else {
                self.socket.set_read_timeout(timeout)?;
            }
            *told = Some(wait);
        }
        Ok(())
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.apply_timeout(false)?;
        self.socket.read(buffer).map_err(|error| self.explain_timeout(error))
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.apply_timeout(true)?;
        self.socket.write(bytes).map_err(|error| self.explain_timeout(error))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.apply_timeout(true)?;
        self.socket.write_vectored(parts).map_err(|error| self.explain_timeout(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn a_silent_peer_and_one_that_trickles_are_both_ended() {
        let (near, mut far) = pair();
        let idle = Span::from_ms(20);
        let mut stream = DeadlineStream::new(near, Instant::NEVER, idle);
        let error = stream.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // One byte at a time, each well before the time of a step is over.
        stream.set_times(plumb_clock::now() + Span::from_ms(100), Span::from_secs(60));
        let trickle = std::thread::spawn(move || while far.write_all(b"x").is_ok() {});
        let error = loop {
            if let Err(error) = stream.read(&mut [0]) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        stream.close();
        trickle.join().unwrap();
    }

    #[test]
    fn a_peer_that_does_not_read_is_ended() {
        let (near, far) = pair();
        let mut stream =
            DeadlineStream::new(near, plumb_clock::now() + Span::from_ms(50), Span::from_ms(50));
        let block = vec![0; 65_536];
        let error = loop {
            if let Err(error) = stream.write(&block) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(far);
    }
}
