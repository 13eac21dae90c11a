//! What carries the protocol, and how a client drives it: the same over every transport.

use std::io;

use crate::client::{ClientError, ClientMode, ClientStep, DisplayClient};
use crate::server::{DisplayLimits, DisplayServer};

/// Carries bytes to a display and back.
pub trait DisplayTransport {
    /// Sends all of these bytes.
    ///
    /// # Errors
    /// The display is gone, or does not read.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Waits for some bytes and appends them.
    ///
    /// # Errors
    /// The display is gone, or silent.
    fn receive(&mut self, bytes: &mut Vec<u8>) -> io::Result<()>;
}

/// Why a drawing did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The transport failed.
    #[error("the connection to the display broke: {0}")]
    Transport(#[from] io::Error),
    /// The client cannot go on.
    #[error("{0}")]
    Client(#[from] ClientError),
}

/// A client with what connects it.
#[derive(Debug)]
pub struct DisplayConnection<T> {
    /// The client.
    pub client: DisplayClient,
    transport: T,
    received: Vec<u8>,
}

impl<T: DisplayTransport> DisplayConnection<T> {
    /// Greets a display.
    ///
    /// # Errors
    /// It is none, or is gone.
    pub fn open(transport: T) -> Result<Self, DriveError> {
        let client = DisplayClient::new(ClientMode::BATCHED);
        let mut connection = Self { client, transport, received: Vec::new() };
        connection.finish()?;
        Ok(connection)
    }

    /// What connects it.
    pub const fn transport(&self) -> &T {
        &self.transport
    }

    /// Does steps in a mode until every reply that was asked for has come. Bytes are sent once there are so many, or when there is nothing
    /// else to do.
    ///
    /// # Errors
    /// The display refuses a message, or is gone.
    pub fn perform(
        &mut self,
        steps: &[ClientStep],
        mode: ClientMode,
        write: usize,
    ) -> Result<(), DriveError> {
        self.client.set_mode(mode);
        for step in steps {
            while !self.client.is_ready() {
                self.wait()?;
            }
            self.client.perform(step);
            if self.client.output().len() >= write {
                self.send()?;
            }
        }
        self.finish()
    }

    /// Goes on after a refusal, once every reply that was asked for before has come.
    pub(crate) fn recover(&mut self) -> Result<(), DriveError> {
        loop {
            self.client.forget_refusal();
            match self.finish() {
                Err(DriveError::Client(ClientError::Refused(code))) if !code.is_final() => {}
                done => return done,
            }
        }
    }

    /// Sends what is there and waits for every reply.
    fn finish(&mut self) -> Result<(), DriveError> {
        self.client.finish();
        self.send()?;
        while !self.client.is_answered() {
            self.wait()?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), DriveError> {
        if !self.client.output().is_empty() {
            self.transport.send(self.client.output())?;
            self.client.clear_output();
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), DriveError> {
        self.send()?;
        self.client.note_wait();
        self.received.clear();
        self.transport.receive(&mut self.received)?;
        Ok(self.client.handle(&self.received)?)
    }
}

/// A display in the same thread.
#[derive(Debug)]
pub struct DirectTransport(pub DisplayServer);

impl DirectTransport {
    /// A display of its own.
    pub fn new(limits: DisplayLimits) -> Self {
        Self(DisplayServer::new(limits))
    }
}

impl DisplayTransport for DirectTransport {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.handle(bytes);
        Ok(())
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        if self.0.output().is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(self.0.output());
        self.0.clear_output();
        Ok(())
    }
}
