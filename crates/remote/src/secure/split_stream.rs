//! An encrypted connection in two halves: one thread reads while another writes.
//!
//! Neither waits for the other: the state of the encryption is held only while bytes go through it, never
//! while the kernel is waited for. Left out: the handshake, which comes before ([`super::stream`]).

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::Connection;

use super::deadline_stream::DeadlineStream;

/// Bytes that are taken from the kernel at once.
const READ_BYTES: usize = 16 << 10;
/// Bytes that are encrypted at once.
const WRITE_BYTES: usize = 64 << 10;

/// What both halves share.
#[derive(Debug)]
struct SplitTlsState {
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
    shared: Arc<SplitTlsState>,
    socket: DeadlineStream,
    raw: Vec<u8>,
    /// What of `raw` is still to be decrypted.
    pending: std::ops::Range<usize>,
}

/// The half that writes.
#[derive(Debug)]
pub struct SecureWriter {
    shared: Arc<SplitTlsState>,
}

/// Ends both halves, whatever they wait for.
#[derive(Debug)]
pub struct ConnectionCloser {
    socket: TcpStream,
}

/// Takes a connection apart.
pub fn split(
    connection: Connection,
    reading: DeadlineStream,
    writing: DeadlineStream,
) -> io::Result<(SecureReader, SecureWriter, ConnectionCloser)> {
    let socket = reading.socket().try_clone()?;
    let output = TlsOutput { socket: writing, records: Vec::with_capacity(READ_BYTES) };
    let shared =
        Arc::new(SplitTlsState { connection: Mutex::new(connection), output: Mutex::new(output) });
    let reader = SecureReader {
        shared: Arc::clone(&shared),
        socket: reading,
        raw: vec![0; READ_BYTES],
        pending: 0..0,
    };
    Ok((reader, SecureWriter { shared }, ConnectionCloser { socket }))
}

impl SplitTlsState {
    fn connection(&self) -> MutexGuard<'_, Connection> {
        // A panic in rustls leaves a connection that reports its own state.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encrypts what `make` writes, and sends it.
    fn send(&self, make: impl FnOnce(&mut Connection) -> io::Result<usize>) -> io::Result<usize> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
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

impl ConnectionCloser {
    /// Ends the connection.
    pub fn close(&self) {
        self.socket.shutdown(Shutdown::Both).ok();
    }
}
