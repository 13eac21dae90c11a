//! Who may be sent to: only an address from which a datagram with the session's token came.
//!
//! The side that knows the other's address announces itself, and is welcomed with a number drawn for this meeting;
//! only who announces itself again with that number, and so is where it says that it is, is admitted. The
//! admitting side then connects its socket to that address, so that the kernel passes nothing else. Every answer
//! is as long as the shortest question, and there is one for each question: nobody is sent more than they
//! sent. Left out: addresses and tokens, which the control connection carries.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plumb_base::time::Span;
use plumb_sys::clock::{Clock, read_ns};

use super::header::{Header, Kind, LEN, Token};

/// How often an announcement is repeated.
const REPEAT_NS: u64 = 100_000_000;
/// How long one wait lasts at most, so that a stop is seen.
const WAIT: Duration = Duration::from_millis(20);
/// The same for a side that is about to send, whose beginning this may make later.
const WAIT_TO_SEND: Duration = Duration::from_millis(1);

/// Two sides that did not meet.
#[derive(Debug, thiserror::Error)]
pub enum MeetingError {
    /// Nobody answered.
    #[error(
        "no datagram came back from {peer} within {waited}: its UDP port is filtered or nobody is there; \
         open UDP between the hosts, or measure TCP alone"
    )]
    Silence {
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
    NobodyCame {
        /// For how long was waited.
        waited: Span,
    },
    /// The other side was told to stop waiting.
    #[error("the meeting was called off")]
    CalledOff,
    /// The kernel refused.
    #[error("UDP failed while the two sides met: {0}")]
    Kernel(#[from] io::Error),
}

/// The answer to a datagram that asks for one: a welcome, that the end was heard, how long a probe was.
pub fn answer(token: &Token, bytes: &[u8]) -> Option<[u8; LEN]> {
    let header = Header::read(token, bytes)?;
    let kind = match header.kind {
        Kind::Hello => Kind::Welcome,
        Kind::End => Kind::EndHeard,
        Kind::Probe => Kind::ProbeHeard,
        Kind::Data | Kind::EndHeard | Kind::Welcome | Kind::ProbeHeard => return None,
    };
    let number = match kind {
        Kind::ProbeHeard => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        _ => header.intended_ns,
    };
    Some(Header::of(kind, header.stream, header.sequence, number).to_bytes(token))
}

/// Shows the token to the connected peer until it answers.
///
/// # Errors
/// [`MeetingError::Silence`] after `patience`.
pub fn announce(
    socket: &UdpSocket,
    token: &Token,
    stream: u16,
    patience: Span,
    stop: &AtomicBool,
) -> Result<(), MeetingError> {
    let begun = read_ns(Clock::MonotonicRaw);
    socket.set_read_timeout(Some(WAIT))?;
    let (mut next_ns, mut buffer) = (begun, [0; LEN]);
    // The number that the other side drew, once it is known.
    let mut drawn = 0;
    loop {
        let now = read_ns(Clock::MonotonicRaw);
        if stop.load(Ordering::Relaxed) {
            return Err(MeetingError::CalledOff);
        }
        if now - begun > patience.as_ns() {
            return Err(MeetingError::Silence { peer: socket.peer_addr()?, waited: patience });
        }
        if now >= next_ns {
            // A refusal or a full queue may pass before patience ends.
            let _ = socket.send(&Header::of(Kind::Hello, stream, 0, drawn).to_bytes(token));
            next_ns = now + REPEAT_NS;
        }
        // What is measured already stays where it is: its arrival is answer enough.
        match socket.peek(&mut buffer) {
            Ok(len) => match Header::read(token, &buffer[..len.min(LEN)]) {
                Some(Header { kind: Kind::Data | Kind::End, .. }) => return Ok(()),
                Some(Header { kind: Kind::Welcome, intended_ns: number, .. }) => {
                    socket.recv(&mut buffer)?;
                    // Zero echoes an announcement of before the number was known.
                    if number != 0 {
                        if number == drawn {
                            return Ok(());
                        }
                        (drawn, next_ns) = (number, now);
                    }
                }
                _ => drop(socket.recv(&mut buffer)),
            },
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until somebody shows the token and the number that was sent to it for that, and connects the socket to
/// its address.
///
/// # Errors
/// [`MeetingError::NobodyCame`] after `patience`.
pub fn admit(
    socket: &UdpSocket,
    token: &Token,
    patience: Span,
    stop: &AtomicBool,
) -> Result<SocketAddr, MeetingError> {
    let begun = read_ns(Clock::MonotonicRaw);
    socket.set_read_timeout(Some(WAIT))?;
    let drawn = draw()?;
    let mut buffer = [0; LEN];
    while read_ns(Clock::MonotonicRaw) - begun <= patience.as_ns() {
        if stop.load(Ordering::Relaxed) {
            return Err(MeetingError::CalledOff);
        }
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => {
                let header = Header::read(token, &buffer[..len]);
                let Some(hello) = header.filter(|header| header.kind == Kind::Hello) else {
                    continue;
                };
                let welcome = Header::of(Kind::Welcome, hello.stream, hello.sequence, drawn);
                // Whatever does not leave is asked for again.
                let _ = socket.send_to(&welcome.to_bytes(token), from);
                if hello.intended_ns == drawn {
                    socket.connect(from)?;
                    return Ok(from);
                }
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(MeetingError::NobodyCame { waited: patience })
}

/// A number that nobody guesses, and not zero.
fn draw() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes) | 1)
}

/// Answers whoever was admitted and has not heard so, until the stream is to begin.
///
/// # Errors
/// The kernel's.
pub fn stay(socket: &UdpSocket, token: &Token, goes_on: &dyn Fn() -> bool) -> io::Result<()> {
    socket.set_read_timeout(Some(WAIT_TO_SEND))?;
    let mut buffer = [0; LEN];
    while goes_on() {
        match socket.recv(&mut buffer) {
            Ok(len) => {
                if let Some(reply) = answer(token, &buffer[..len]) {
                    let _ = socket.send(&reply);
                }
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Errors that say "not now", or that an earlier datagram came to nothing.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::WouldBlock
            | Kind::TimedOut
            | Kind::Interrupted
            | Kind::ConnectionRefused
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
    )
}

/// Has the kernel join what belongs together and say when each came, and gives the largest buffer that is
/// allowed up to `bytes`; the bytes it has then.
pub(crate) fn prepare_receiving(socket: &UdpSocket, bytes: usize) -> io::Result<u64> {
    use plumb_sys::datagram::{Notice, notice};
    use plumb_sys::socket::{IntOption, option, set_option};
    let fd = socket.as_fd();
    let v6 = socket.local_addr()?.is_ipv6();
    for kind in [Notice::Time, Notice::Overflow, Notice::Joined] {
        // An old kernel without one of them is measured without it.
        let _ = notice(fd, v6, kind);
    }
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    if set_option(fd, IntOption::ReceiveBufferForce, bytes).is_err() {
        set_option(fd, IntOption::ReceiveBuffer, bytes)?;
    }
    Ok(u64::from(option(fd, IntOption::ReceiveBuffer)?.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = [9; 16];
    const OTHER: Token = [8; 16];

    #[test]
    fn nobody_without_the_token_is_answered_or_admitted() {
        let hello = |token: &Token| Header::of(Kind::Hello, 0, 0, 0).to_bytes(token);
        assert!(answer(&TOKEN, &hello(&OTHER)).is_none());
        let agent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.connect(agent.local_addr().unwrap()).unwrap();
        stranger.send(&hello(&OTHER)).unwrap();
        stranger.send(b"short").unwrap();
        let stop = AtomicBool::new(false);
        let outcome = admit(&agent, &TOKEN, Span::from_ms(60), &stop);
        assert!(matches!(outcome, Err(MeetingError::NobodyCame { .. })), "{outcome:?}");
        stranger.set_nonblocking(true).unwrap();
        let silence = stranger.recv(&mut [0; 64]).unwrap_err();
        assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn no_answer_is_longer_than_its_question() {
        for kind in [Kind::Hello, Kind::End, Kind::Probe] {
            let question = Header::of(kind, 3, 4, 5).to_bytes(&TOKEN);
            assert!(answer(&TOKEN, &question).unwrap().len() <= question.len());
        }
        for kind in [Kind::Data, Kind::EndHeard, Kind::Welcome, Kind::ProbeHeard] {
            assert!(answer(&TOKEN, &Header::of(kind, 3, 4, 5).to_bytes(&TOKEN)).is_none());
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
                let admitting = scope.spawn(|| admit(&agent, &TOKEN, patience, &stop));
                announce(&client, &TOKEN, 0, patience, &stop).unwrap();
                admitting.join().unwrap().unwrap()
            });
            assert_eq!(admitted, client.local_addr().unwrap());
            assert_eq!(agent.peer_addr().unwrap(), admitted);
        }
    }

    #[test]
    fn who_does_not_hear_the_welcome_is_not_admitted_whatever_it_says() {
        let agent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let deaf = UdpSocket::bind("127.0.0.1:0").unwrap();
        deaf.connect(agent.local_addr().unwrap()).unwrap();
        for number in [0, 1, u64::MAX] {
            deaf.send(&Header::of(Kind::Hello, 0, 0, number).to_bytes(&TOKEN)).unwrap();
        }
        let stop = AtomicBool::new(false);
        let outcome = admit(&agent, &TOKEN, Span::from_ms(60), &stop);
        assert!(matches!(outcome, Err(MeetingError::NobodyCame { .. })), "{outcome:?}");
    }

    #[test]
    fn an_admitted_side_that_missed_it_is_told_again_until_the_stream_begins() {
        let agent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        agent.connect(client.local_addr().unwrap()).unwrap();
        client.connect(agent.local_addr().unwrap()).unwrap();
        let begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| stay(&agent, &TOKEN, &|| !begun.load(Ordering::Relaxed)).unwrap());
            let stop = AtomicBool::new(false);
            client.send(&Header::of(Kind::Hello, 0, 0, 7).to_bytes(&TOKEN)).unwrap();
            let outcome = announce(&client, &TOKEN, 0, Span::from_secs(10), &stop);
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
        let outcome = announce(&client, &TOKEN, 0, Span::from_ms(50), &stop);
        assert!(matches!(outcome, Err(MeetingError::Silence { .. })), "{outcome:?}");
    }
}
