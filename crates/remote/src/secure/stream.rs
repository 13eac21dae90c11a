//! The encrypted connection that both ends hand on: it reads, it writes, it knows its peer, and nothing waits for ever.
//!
//! One thread may read while another writes: the state of the encryption is held only while bytes go through it, never
//! while the kernel is waited for.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plumb_base::time::{Instant, Span};
use rustls::Connection;
use rustls::pki_types::CertificateDer;

use super::admission::PairingBinding;
use super::identity::Fingerprint;
use crate::control_stream::ControlStream;

/// RFC 9266: label of the `tls-exporter` channel binding; its context is empty.
const EXPORTER_LABEL: &[u8] = b"EXPORTER-Channel-Binding";
/// Bytes that are taken from the kernel at once.
const READ_BYTES: usize = 16 << 10;
/// Bytes that are encrypted at once.
const WRITE_BYTES: usize = 64 << 10;

/// An encrypted connection.
#[derive(Debug)]
pub struct SecureStream {
    reader: SecureReader,
    writer: SecureWriter,
}

impl SecureStream {
    /// Either end, once its handshake is done.
    ///
    /// # Errors
    /// The handshake's, with its reason.
    pub(super) fn handshake(
        mut connection: Connection,
        mut socket: DeadlineStream,
    ) -> io::Result<Self> {
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        while connection.wants_write() {
            connection.write_tls(&mut socket)?;
        }
        let (reader, writer) = split(connection, socket)?;
        Ok(Self { reader, writer })
    }

    /// The certificate of the other side, whose key it holds.
    ///
    /// # Errors
    /// When it has shown none.
    pub fn peer(&self) -> io::Result<Fingerprint> {
        let connection = self.reader.shared.connection();
        let first = connection.peer_certificates().and_then(<[CertificateDer<'_>]>::first);
        let none = || io::Error::new(io::ErrorKind::InvalidData, "it has shown no certificate");
        Ok(Fingerprint::of(first.ok_or_else(none)?))
    }

    /// What a proof of pairing binds together on this connection.
    ///
    /// # Errors
    /// Before the handshake is done.
    pub(super) fn binding(&self, own: Fingerprint) -> io::Result<PairingBinding> {
        let peer = self.peer()?;
        let connection = self.reader.shared.connection();
        let exporter = connection.export_keying_material([0; 32], EXPORTER_LABEL, Some(b""));
        let exporter = exporter.map_err(io::Error::other)?;
        Ok(match &*connection {
            Connection::Server(_) => PairingBinding { client: peer, agent: own, exporter },
            Connection::Client(_) => PairingBinding { client: own, agent: peer, exporter },
        })
    }

    /// When everything has to be over, and how long a single read or write may wait.
    pub fn set_times(&mut self, deadline: Instant, idle: Span) {
        self.reader.socket.set_times(deadline, idle);
        self.writer.shared.output().socket.set_times(deadline, idle);
    }

    /// Says goodbye, and ends the connection.
    pub fn close(mut self) {
        self.writer.send_close_notify().ok();
        self.socket().shutdown(Shutdown::Both).ok();
    }

    /// Two halves for two threads, and what ends both when it is shut down.
    ///
    /// # Errors
    /// When the process may have no more descriptors.
    pub fn split(self) -> io::Result<(SecureReader, SecureWriter, TcpStream)> {
        let socket = self.socket().try_clone()?;
        Ok((self.reader, self.writer, socket))
    }

    /// What carries a session, with the name that the other side is known by.
    ///
    /// # Errors
    /// As [`SecureStream::split`].
    pub fn into_stream(self, peer: &str) -> io::Result<ControlStream> {
        let (reader, writer, socket) = self.split()?;
        Ok(ControlStream {
            reader: Box::new(reader),
            writer: Box::new(writer),
            hang_up: Box::new(move || drop(socket.shutdown(Shutdown::Both))),
            peer: peer.to_owned(),
        })
    }

    /// The connection under the encryption.
    pub const fn socket(&self) -> &TcpStream {
        &self.reader.socket.socket
    }
}

impl Read for SecureStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl Write for SecureStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// What both halves share.
#[derive(Debug)]
struct TlsState {
    connection: Mutex<Connection>,
    /// Held from the encryption of bytes until the kernel has them: records leave in their order. Taken
    /// before the connection, never after it.
    output: Mutex<TlsOutput>,
}

/// Where records leave by, and room for them.
#[derive(Debug)]
struct TlsOutput {
    socket: DeadlineStream,
    records: Vec<u8>,
}

/// The half that reads.
#[derive(Debug)]
pub struct SecureReader {
    shared: Arc<TlsState>,
    socket: DeadlineStream,
    raw: Vec<u8>,
    /// The part of `raw` that is still to be decrypted.
    pending: std::ops::Range<usize>,
}

/// The half that writes.
#[derive(Debug)]
pub struct SecureWriter {
    shared: Arc<TlsState>,
}

/// Takes a connection apart whose handshake is done.
///
/// # Errors
/// When the process may have no more descriptors.
pub fn split(
    connection: Connection,
    socket: DeadlineStream,
) -> io::Result<(SecureReader, SecureWriter)> {
    let output = TlsOutput { socket: socket.try_clone()?, records: Vec::with_capacity(READ_BYTES) };
    let shared =
        Arc::new(TlsState { connection: Mutex::new(connection), output: Mutex::new(output) });
    let writer = SecureWriter { shared: Arc::clone(&shared) };
    Ok((SecureReader { shared, socket, raw: vec![0; READ_BYTES], pending: 0..0 }, writer))
}

impl TlsState {
    fn connection(&self) -> MutexGuard<'_, Connection> {
        // A panic in rustls leaves a connection that reports its own state.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn output(&self) -> MutexGuard<'_, TlsOutput> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encrypts what `make` writes, and sends it.
    fn send(&self, make: impl FnOnce(&mut Connection) -> io::Result<usize>) -> io::Result<usize> {
        let mut output = self.output();
        let TlsOutput { socket, records } = &mut *output;
        records.clear();
        let taken = {
            let mut connection = self.connection();
            let taken = make(&mut connection)?;
            while connection.wants_write() {
                connection.write_tls(records)?;
            }
            taken
        };
        socket.write_all(records)?;
        Ok(taken)
    }
}

impl Read for SecureReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let fed = {
                let mut connection = self.shared.connection();
                match connection.reader().read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    done => return done,
                }
                if self.pending.is_empty() {
                    None
                } else {
                    let mut raw = &self.raw[self.pending.clone()];
                    let taken = connection.read_tls(&mut raw)?;
                    self.pending.start += taken;
                    connection.process_new_packets().map_err(io::Error::other)?;
                    Some(connection.wants_write())
                }
            };
            if fed == Some(true) {
                // An answer that the encryption itself owes, such as to a change of keys.
                self.shared.send(|_| Ok(0))?;
            } else if fed.is_none() {
                let read = self.socket.read(&mut self.raw)?;
                self.pending = 0..read;
                if read == 0 {
                    // Says so to the connection, which knows whether a goodbye came first.
                    self.shared.connection().read_tls(&mut io::empty())?;
                    return match self.shared.connection().reader().read(buffer) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                        done => done,
                    };
                }
            }
        }
    }
}

impl SecureWriter {
    /// Says that nothing more comes.
    ///
    /// # Errors
    /// The connection's.
    pub fn send_close_notify(&mut self) -> io::Result<()> {
        let goodbye = self.shared.send(|connection| {
            connection.send_close_notify();
            Ok(0)
        });
        goodbye.map(drop)
    }
}

impl Write for SecureWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(WRITE_BYTES)];
        self.shared.send(|connection| connection.writer().write(piece))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.shared.send(|_| Ok(0)).map(drop)
    }
}

/// The shortest time the kernel is asked to wait: none at all would mean for ever.
const WAIT_MIN: Span = Span::from_us(1);

/// A TCP connection on which nothing waits for ever: a time for each step, and a moment for all.
///
/// A client that sends one byte a minute keeps every single read short; the moment for all ends it nevertheless.
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

    /// Another handle on the same connection, with the same times.
    ///
    /// # Errors
    /// When the process may have no more descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::new(self.socket.try_clone()?, self.deadline, self.idle))
    }

    /// How long this step may take.
    fn wait(&self) -> io::Result<Span> {
        let left = self.deadline.saturating_since(plumb_clock::now());
        if left == Span::ZERO {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it timed out"));
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
        drop(stream);
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
