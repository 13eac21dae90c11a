//! Who may be sent to: only an address from which a datagram with the session's token came.
//!
//! The side that knows the other's address announces itself, and is welcomed with a number drawn for this meeting;
//! only who announces itself again with that number, and so is where it says that it is, is admitted. The
//! admitting side then connects its socket to that address, so that the kernel passes nothing else. Every answer
//! is as long as the shortest question, and there is one for each question: nobody is sent more than they
//! sent. Left out: addresses and tokens, which the control connection carries.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use ring::hmac;

use crate::datagram_header::{HEADER_BYTES, TestDatagramHeader, TestDatagramKind, TestToken};

/// How often an announcement is repeated.
const REPEAT_NS: u64 = 100_000_000;
/// How long one wait lasts at most, so that a stop is seen.
const WAIT: Duration = Duration::from_millis(20);
/// The same for a side that is about to send, whose beginning this may make later.
const WAIT_TO_SEND: Duration = Duration::from_millis(1);

/// Two sides that did not meet.
#[derive(Debug, thiserror::Error)]
pub enum UdpHandshakeError {
    /// Nobody answered.
    #[error(
        "no datagram came back from {peer} within {waited}: its UDP port is filtered or nobody is there; \
         open UDP between the hosts, or measure TCP alone"
    )]
    NoReply {
        /// Who was asked.
        peer: SocketAddr,
        /// For how long.
        waited: Span,
    },
    /// Nobody asked.
    #[error(
        "no datagram with the session's token came within {waited}: UDP towards this host is filtered; \
         open the port, or measure TCP alone"
    )]
    NoClient {
        /// For how long was waited.
        waited: Span,
    },
    /// The other side was told to stop waiting.
    #[error("the UDP handshake was cancelled")]
    Canceled,
    /// The kernel refused.
    #[error("UDP failed during the handshake: {0}")]
    Kernel(#[from] io::Error),
}

/// The answer to a datagram that asks for one: a welcome, that the end was heard, how long a probe was.
pub fn reply_to(token: &TestToken, bytes: &[u8]) -> Option<[u8; HEADER_BYTES]> {
    let header = TestDatagramHeader::read(token, bytes)?;
    let kind = match header.kind {
        TestDatagramKind::Hello => TestDatagramKind::HelloReply,
        TestDatagramKind::End => TestDatagramKind::EndAck,
        TestDatagramKind::Probe => TestDatagramKind::ProbeAck,
        TestDatagramKind::Data
        | TestDatagramKind::EndAck
        | TestDatagramKind::HelloReply
        | TestDatagramKind::ProbeAck
        | TestDatagramKind::Presence => return None,
    };
    let number = match kind {
        TestDatagramKind::ProbeAck => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        _ => header.intended_ns,
    };
    Some(TestDatagramHeader::of(kind, header.stream, header.sequence, number).to_bytes(token))
}

/// Shows the token to the connected peer until it answers.
///
/// # Errors
/// [`UdpHandshakeError::NoReply`] after `patience`.
pub fn connect(
    socket: &UdpSocket,
    token: &TestToken,
    stream: u16,
    patience: Span,
    stop: &AtomicBool,
) -> Result<(), UdpHandshakeError> {
    let begun = monotonic_ns();
    socket.set_read_timeout(Some(WAIT))?;
    let (mut next_ns, mut buffer) = (begun, [0; HEADER_BYTES]);
    // The number that the other side drew, once it is known.
    let mut drawn = 0;
    loop {
        let now = monotonic_ns();
        if stop.load(Ordering::Relaxed) {
            return Err(UdpHandshakeError::Canceled);
        }
        if now - begun > patience.as_ns() {
            return Err(UdpHandshakeError::NoReply { peer: socket.peer_addr()?, waited: patience });
        }
        if now >= next_ns {
            // A refusal or a full queue may pass before patience ends.
            let _ = socket.send(
                &TestDatagramHeader::of(
                    TestDatagramKind::Hello,
                    stream,
                    u32::from(drawn != 0),
                    drawn,
                )
                .to_bytes(token),
            );
            next_ns = now + REPEAT_NS;
        }
        // A datagram of the test stays in the queue: its arrival is answer enough.
        match socket.peek(&mut buffer) {
            Ok(len) => match TestDatagramHeader::read(token, &buffer[..len.min(HEADER_BYTES)]) {
                Some(TestDatagramHeader {
                    kind: TestDatagramKind::Data | TestDatagramKind::End,
                    ..
                }) => return Ok(()),
                Some(TestDatagramHeader {
                    kind: TestDatagramKind::HelloReply,
                    intended_ns: number,
                    sequence,
                    ..
                }) => {
                    socket.recv(&mut buffer)?;
                    // Zero echoes an announcement of before the number was known.
                    if number != 0 {
                        // An answer to an announcement without the number admits nobody.
                        if number != drawn {
                            (drawn, next_ns) = (number, now);
                        } else if sequence != 0 {
                            return Ok(());
                        }
                    }
                }
                _ => drop(socket.recv(&mut buffer)),
            },
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until somebody shows the token and the number that was sent to it for that, and connects the socket to
/// its address, unless it is stopped before.
///
/// # Errors
/// [`UdpHandshakeError::NoClient`] after `patience`.
pub fn accept(
    socket: &UdpSocket,
    token: &TestToken,
    patience: Span,
    is_stopped: &dyn Fn() -> bool,
) -> Result<SocketAddr, UdpHandshakeError> {
    let begun = monotonic_ns();
    socket.set_read_timeout(Some(WAIT))?;
    let cookie = AddressCookie::draw()?;
    let mut buffer = [0; HEADER_BYTES];
    while monotonic_ns() - begun <= patience.as_ns() {
        if is_stopped() {
            return Err(UdpHandshakeError::Canceled);
        }
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => {
                if cookie.admits(socket, token, &buffer[..len], from) {
                    socket.connect(from)?;
                    return Ok(from);
                }
            }
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(UdpHandshakeError::NoClient { waited: patience })
}

/// Draws numbers that nobody guesses, another for each address: whoever shows the one of its own receives what is sent
/// there.
#[derive(Clone, Debug)]
pub struct AddressCookie(hmac::Key);

impl AddressCookie {
    /// A new one.
    ///
    /// # Errors
    /// The kernel gives no random bits.
    pub fn draw() -> io::Result<Self> {
        let mut bytes = [0; 32];
        plumb_sys::fill_random(&mut bytes)?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// The number of an address, which is not zero.
    fn number(&self, from: SocketAddr) -> u64 {
        let tag = hmac::sign(&self.0, from.to_string().as_bytes());
        tag.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)) | 1
    }

    /// Answers an announcement with its address's number, and says whether the announcement showed it already.
    pub fn admits(
        &self,
        socket: &UdpSocket,
        token: &TestToken,
        bytes: &[u8],
        from: SocketAddr,
    ) -> bool {
        let header = TestDatagramHeader::read(token, bytes);
        let Some(hello) = header.filter(|header| header.kind == TestDatagramKind::Hello) else {
            return false;
        };
        let (stream, sequence, number) = (hello.stream, hello.sequence, self.number(from));
        let kind = TestDatagramKind::HelloReply;
        let welcome = TestDatagramHeader::of(kind, stream, sequence, number).to_bytes(token);
        // If the send fails the client asks again.
        let _ = socket.send_to(&welcome, from);
        hello.intended_ns == number
    }
}

/// Answers whoever was admitted and has not heard so, until the stream is to begin.
///
/// # Errors
/// The kernel's.
pub fn answer_repeated_hellos(
    socket: &UdpSocket,
    token: &TestToken,
    goes_on: &dyn Fn() -> bool,
) -> io::Result<()> {
    socket.set_read_timeout(Some(WAIT_TO_SEND))?;
    let mut buffer = [0; HEADER_BYTES];
    while goes_on() {
        match socket.recv(&mut buffer) {
            Ok(len) => {
                if let Some(reply) = reply_to(token, &buffer[..len]) {
                    let _ = socket.send(&reply);
                }
            }
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Errors that say "not now", or that an earlier datagram came to nothing.
pub fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: TestToken = TestToken([9; 16]);
    const OTHER: TestToken = TestToken([8; 16]);

    #[test]
    fn nobody_without_the_token_is_answered_or_admitted() {
        let hello = |token: &TestToken| {
            TestDatagramHeader::of(TestDatagramKind::Hello, 0, 0, 0).to_bytes(token)
        };
        assert!(reply_to(&TOKEN, &hello(&OTHER)).is_none());
        let agent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let unknown_client = UdpSocket::bind("127.0.0.1:0").unwrap();
        unknown_client.connect(agent.local_addr().unwrap()).unwrap();
        unknown_client.send(&hello(&OTHER)).unwrap();
        unknown_client.send(b"short").unwrap();
        let outcome = accept(&agent, &TOKEN, Span::from_ms(60), &|| false);
        assert!(matches!(outcome, Err(UdpHandshakeError::NoClient { .. })), "{outcome:?}");
        unknown_client.set_nonblocking(true).unwrap();
        let silence = unknown_client.recv(&mut [0; 64]).unwrap_err();
        assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn no_answer_is_longer_than_its_question() {
        for kind in [TestDatagramKind::Hello, TestDatagramKind::End, TestDatagramKind::Probe] {
            let question = TestDatagramHeader::of(kind, 3, 4, 5).to_bytes(&TOKEN);
            assert!(reply_to(&TOKEN, &question).unwrap().len() <= question.len());
        }
        for kind in [
            TestDatagramKind::Data,
            TestDatagramKind::EndAck,
            TestDatagramKind::HelloReply,
            TestDatagramKind::ProbeAck,
            TestDatagramKind::Presence,
        ] {
            assert!(
                reply_to(&TOKEN, &TestDatagramHeader::of(kind, 3, 4, 5).to_bytes(&TOKEN)).is_none()
            );
        }
    }

    #[test]
    fn two_sides_meet_in_both_families_and_then_hear_nobody_else() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let agent = UdpSocket::bind(at).unwrap();
            let client = UdpSocket::bind(at).unwrap();
            client.connect(agent.local_addr().unwrap()).unwrap();
            let stop = AtomicBool::new(false);
            let patience = Span::from_secs(10);
            let admitted = std::thread::scope(|scope| {
                let admitting = scope.spawn(|| accept(&agent, &TOKEN, patience, &|| false));
                connect(&client, &TOKEN, 0, patience, &stop).unwrap();
                admitting.join().unwrap().unwrap()
            });
            assert_eq!(admitted, client.local_addr().unwrap());
            assert_eq!(agent.peer_addr().unwrap(), admitted);
        }
    }

    #[test]
    fn admission_requires_return_routability() {
        let agent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let cookie = AddressCookie::draw().unwrap();
        let admits = |from: &UdpSocket, number| {
            let hello = TestDatagramHeader::of(TestDatagramKind::Hello, 0, 0, number);
            cookie.admits(&agent, &TOKEN, &hello.to_bytes(&TOKEN), from.local_addr().unwrap())
        };
        for number in [0, 1, u64::MAX] {
            assert!(!admits(&one, number));
        }
        let mut welcome = [0; HEADER_BYTES];
        one.recv(&mut welcome).unwrap();
        let number = TestDatagramHeader::read(&TOKEN, &welcome).unwrap().intended_ns;
        // A welcome for one address admits no other.
        assert!(!admits(&other, number));
        assert!(admits(&one, number));
    }

    #[test]
    fn an_admitted_side_that_missed_it_is_told_again_until_the_stream_begins() {
        let agent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        agent.connect(client.local_addr().unwrap()).unwrap();
        client.connect(agent.local_addr().unwrap()).unwrap();
        let begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                answer_repeated_hellos(&agent, &TOKEN, &|| !begun.load(Ordering::Relaxed)).unwrap();
            });
            let stop = AtomicBool::new(false);
            client
                .send(&TestDatagramHeader::of(TestDatagramKind::Hello, 0, 0, 7).to_bytes(&TOKEN))
                .unwrap();
            let outcome = connect(&client, &TOKEN, 0, Span::from_secs(10), &stop);
            begun.store(true, Ordering::Relaxed);
            outcome.unwrap();
        });
    }

    #[test]
    fn a_port_that_nobody_listens_on_ends_in_silence() {
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(closed).unwrap();
        let stop = AtomicBool::new(false);
        let outcome = connect(&client, &TOKEN, 0, Span::from_ms(50), &stop);
        assert!(matches!(outcome, Err(UdpHandshakeError::NoReply { .. })), "{outcome:?}");
    }
}
