//! The protocol in WebSocket messages over loopback (RFC 6455), as a browser speaks it: what the client sends is masked.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use plumb_display::server::{DisplayLimits, DisplayServer};
use plumb_display::transport::DisplayTransport;
use tungstenite::{Error, HandshakeError, Message, WebSocket};

use super::connection::{PATIENCE, display_thread};

/// A stream that goes on after a signal that concerns another part of the process.
#[derive(Debug)]
struct UninterruptedStream(TcpStream);

fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        let done = call();
        if !done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
            return done;
        }
    }
}

impl Read for UninterruptedStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| self.0.read(bytes))
    }
}

impl Write for UninterruptedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        uninterrupted(|| self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The client's end.
#[derive(Debug)]
pub struct WebSocketStream(WebSocket<UninterruptedStream>);

impl WebSocketStream {
    /// To a display of its own, in a thread on that CPU, if one is named, that ends with the connection.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn open(limits: DisplayLimits, cpu: Option<u32>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (near, far) = (TcpStream::connect(address)?, listener.accept()?.0);
        for stream in [&near, &far] {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(PATIENCE))?;
        }
        near.set_read_timeout(Some(PATIENCE))?;
        display_thread(cpu, move || {
            let socket =
                tungstenite::accept(UninterruptedStream(far)).map_err(|error| refused(&error))?;
            serve(socket, limits).map_err(io_error)
        })?;
        let opened =
            tungstenite::client(format!("ws://{address}/display"), UninterruptedStream(near));
        Ok(Self(opened.map_err(|error| refused(&error))?.0))
    }
}

impl DisplayTransport for WebSocketStream {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.send(Message::binary(bytes.to_vec())).map_err(io_error)
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let message = self.0.read().map_err(io_error)?;
        bytes.extend_from_slice(&message.into_data());
        Ok(())
    }
}

/// Answers a client until it goes.
fn serve(mut socket: WebSocket<UninterruptedStream>, limits: DisplayLimits) -> Result<(), Error> {
    let mut server = DisplayServer::new(limits);
    loop {
        server.handle(&socket.read()?.into_data());
        if !server.output().is_empty() {
            socket.send(Message::binary(server.output().to_vec()))?;
            server.clear_output();
        }
    }
}

fn io_error(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        Error::ConnectionClosed | Error::AlreadyClosed => io::ErrorKind::UnexpectedEof.into(),
        error => io::Error::other(error),
    }
}

fn refused<R: tungstenite::handshake::HandshakeRole>(error: &HandshakeError<R>) -> io::Error {
    io::Error::other(error.to_string())
}
