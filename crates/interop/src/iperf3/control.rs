//! A client's control connection: blocking, with a deadline for each thing that is waited for.
//!
//! Left out: what is said when ([`super::client`]), and the server's side, which is a state machine
//! ([`super::session`]).

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use plumb_base::time::Span;
use plumb_sys::errno::is_transient;
use serde_json::Value;

use super::message::{
    Iperf3Cookie, Iperf3ErrorCode, Iperf3Message, JsonFrameError, decode_frame, encode_frame,
    frame_len,
};
use plumb_clock::now;

/// Why nothing more can be said or heard.
#[derive(Debug, thiserror::Error)]
pub enum Iperf3ControlError {
    /// The user does not want to wait for it any more.
    #[error("stopped by its user")]
    Stopped,
    /// Nothing came in time.
    #[error("the server said nothing for {0}")]
    Deadline(Span),
    /// The server ended the connection.
    #[error("the server closed the control connection")]
    Closed,
    /// The kernel's word.
    #[error("the control connection broke: {0}")]
    Broken(#[from] io::Error),
    /// A byte that is no message.
    #[error("the server sent byte {0}, which is not a message: is it iperf3?")]
    UnknownByte(u8),
    /// A message that does not belong here.
    #[error("the server said {0} instead")]
    Unexpected(Iperf3Message),
    /// Another test is running.
    #[error("the server is busy with another test")]
    Busy,
    /// Somebody stopped it.
    #[error("the server was stopped")]
    Terminated,
    /// It gave up, and said why.
    #[error("the server gave up: {0}")]
    Refused(Iperf3ErrorCode),
    /// Not the JSON that it has to be.
    #[error(transparent)]
    Frame(#[from] JsonFrameError),
}

/// Whether the user wants the end; asked many times a second.
pub type StopCheck<'a> = &'a dyn Fn() -> bool;

/// The longest that a call waits before the user is asked again.
pub(super) const STOP_POLL_INTERVAL: Span = Span::from_ms(100);

/// The connection.
pub struct Iperf3Control<'a> {
    stream: TcpStream,
    cookie: Iperf3Cookie,
    stop: StopCheck<'a>,
}

impl fmt::Debug for Iperf3Control<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iperf3Control").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl<'a> Iperf3Control<'a> {
    /// Over a connection that is made, on which the cookie goes first.
    ///
    /// # Errors
    /// The kernel's.
    pub fn begin(
        stream: TcpStream,
        cookie: Iperf3Cookie,
        wait: Span,
        stop: StopCheck<'a>,
    ) -> Result<Self, Iperf3ControlError> {
        stream.set_nodelay(true)?;
        let mut control = Self { stream, cookie, stop };
        control.write(cookie.bytes(), wait)?;
        Ok(control)
    }

    /// What every connection of the test begins with.
    pub const fn cookie(&self) -> &Iperf3Cookie {
        &self.cookie
    }

    /// Its addresses: this side's, then the server's.
    ///
    /// # Errors
    /// The kernel's: it is connected no longer.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.stream.local_addr()?, self.stream.peer_addr()?))
    }

    fn write(&mut self, bytes: &[u8], wait: Span) -> Result<(), Iperf3ControlError> {
        self.stream.set_write_timeout(Some(wait.into()))?;
        self.stream.write_all(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Iperf3ControlError::Deadline(wait)
            }
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Iperf3ControlError::Closed
            }
            _ => Iperf3ControlError::Broken(error),
        })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn send_message(
        &mut self,
        message: Iperf3Message,
        wait: Span,
    ) -> Result<(), Iperf3ControlError> {
        self.write(&[message.byte()], wait)
    }

    /// Sends JSON.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn send_json(&mut self, value: &Value, wait: Span) -> Result<(), Iperf3ControlError> {
        self.write(&encode_frame(value), wait)
    }

    fn read(&mut self, bytes: &mut [u8], wait: Span) -> Result<(), Iperf3ControlError> {
        let deadline = now() + wait;
        let mut filled = 0;
        while filled < bytes.len() {
            let left = deadline.saturating_since(now());
            if left < Span::from_ms(1) {
                return Err(Iperf3ControlError::Deadline(wait));
            }
            if (self.stop)() {
                return Err(Iperf3ControlError::Stopped);
            }
            self.stream.set_read_timeout(Some(left.min(STOP_POLL_INTERVAL).into()))?;
            match self.stream.read(&mut bytes[filled..]) {
                Ok(0) => return Err(Iperf3ControlError::Closed),
                Ok(read) => filled += read,
                Err(error) if is_transient(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(Iperf3ControlError::Closed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads the next message. One that ends everything is an error.
    ///
    /// # Errors
    /// Nothing came in time, the connection is gone, or the server has given up.
    pub fn receive_message(&mut self, wait: Span) -> Result<Iperf3Message, Iperf3ControlError> {
        let mut byte = [0];
        self.read(&mut byte, wait)?;
        match Iperf3Message::from_byte(byte[0]) {
            None => Err(Iperf3ControlError::UnknownByte(byte[0])),
            Some(Iperf3Message::AccessDenied) => Err(Iperf3ControlError::Busy),
            Some(Iperf3Message::ServerTerminate) => Err(Iperf3ControlError::Terminated),
            Some(Iperf3Message::ServerError) => {
                let mut numbers = [0; 8];
                self.read(&mut numbers, wait)?;
                Err(Iperf3ControlError::Refused(Iperf3ErrorCode::from_bytes(numbers)))
            }
            Some(message) => Ok(message),
        }
    }

    /// Reads the message that has to come now.
    ///
    /// # Errors
    /// As `Iperf3Control::receive_message`, and another message.
    pub fn expect(&mut self, wanted: Iperf3Message, wait: Span) -> Result<(), Iperf3ControlError> {
        match self.receive_message(wait)? {
            message if message == wanted => Ok(()),
            message => Err(Iperf3ControlError::Unexpected(message)),
        }
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// As `Iperf3Control::receive_message`, and what is no JSON or too long.
    pub fn receive_json(
        &mut self,
        limit: usize,
        what: &'static str,
        wait: Span,
    ) -> Result<Value, Iperf3ControlError> {
        let mut head = [0; 4];
        self.read(&mut head, wait)?;
        // A server that gives up says so where its results should be.
        if head[0] == Iperf3Message::ServerError.byte() {
            let mut numbers = [0; 8];
            numbers[..3].copy_from_slice(&head[1..]);
            self.read(&mut numbers[3..], wait)?;
            return Err(Iperf3ControlError::Refused(Iperf3ErrorCode::from_bytes(numbers)));
        }
        let len = frame_len(head, limit, what)?;
        let mut text = vec![0; len];
        self.read(&mut text, wait)?;
        Ok(decode_frame(&text, what)?)
    }

    /// Says goodbye, and waits a little for the server's end. Everything has been said by then, so
    /// nothing of it can fail.
    pub fn finish(mut self, wait: Span) {
        self.stop = &|| false;
        if self.send_message(Iperf3Message::Done, wait).is_ok() {
            self.stream.shutdown(std::net::Shutdown::Write).ok();
            self.read(&mut [0; 1], wait).ok();
        }
    }

    /// Tells the server that this client has been stopped, and waits a little for the server's end: only then is it
    /// free for the next test.
    pub fn terminate(mut self) {
        self.stop = &|| false;
        if self.send_message(Iperf3Message::ClientTerminate, Span::from_secs(1)).is_ok() {
            self.read(&mut [0; 1], Span::from_ms(500)).ok();
        }
    }
}

impl AsFd for Iperf3Control<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const WAIT: Span = Span::from_secs(5);

    /// A control connection to a server that says these bytes and ends.
    fn with(bytes: &[u8]) -> Iperf3Control<'static> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let control =
            Iperf3Control::begin(stream, Iperf3Cookie::received([b'a'; 37]), WAIT, &|| false)
                .unwrap();
        server.read_exact(&mut [0; 37]).unwrap();
        server.write_all(bytes).unwrap();
        control
    }

    #[test]
    fn what_ends_everything_is_an_error_that_says_what_happened() {
        for (bytes, words) in [
            (&[0xFF][..], "busy with another test"),
            (&[11], "was stopped"),
            (&[0xFE, 0, 0, 0, 142, 0, 0, 0, 0], "a user and a password"),
            (&[77], "byte 77"),
            (&[], "closed the control connection"),
            (&[1], "TEST_START"),
        ] {
            let error = with(bytes).expect(Iperf3Message::ParameterExchange, WAIT).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn a_connection_that_is_reset_before_anything_is_sent_counts_as_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // As iperf3's server does between two tests: the connection was never accepted.
        drop(listener);
        let cookie = Iperf3Cookie::received([b'a'; 37]);
        let error = Iperf3Control::begin(stream, cookie, WAIT, &|| false).unwrap_err();
        assert!(matches!(error, Iperf3ControlError::Closed), "{error}");
    }

    #[test]
    fn a_server_that_gives_up_instead_of_its_results_is_understood() {
        let fault = Iperf3ErrorCode { code: 144, system: 0 };
        let error = with(&fault.bytes()).receive_json(100, "results", WAIT).unwrap_err();
        assert!(matches!(error, Iperf3ControlError::Refused(found) if found == fault), "{error}");
        assert!(with(&[0, 0, 1, 0]).receive_json(255, "results", WAIT).is_err());
        let json = serde_json::json!({"a": 1});
        assert_eq!(with(&encode_frame(&json)).receive_json(100, "results", WAIT).unwrap(), json);
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_when_the_user_stops_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _server = listener.accept().unwrap();
        let asked = std::cell::Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) > 5;
        let cookie = Iperf3Cookie::received([b'a'; 37]);
        let mut control = Iperf3Control::begin(stream, cookie, WAIT, &stop).unwrap();
        let error = control.receive_message(Span::from_ms(30)).unwrap_err();
        assert!(error.to_string().contains("said nothing for 30.0 ms"), "{error}");
        // Without asking `stop` this would wait for an hour.
        let error = control.receive_message(Span::from_secs(3_600)).unwrap_err();
        assert!(matches!(error, Iperf3ControlError::Stopped), "{error}");
    }
}
