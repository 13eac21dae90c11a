//! Requests and responses in datagrams, one under way at a time; each shows the session's token and its number.
//!
//! A response is never longer than its request and goes only to the one address that has shown the token. What
//! does not come back in time is lost, and the next request is sent. Left out: how the two sides met
//! ([`super::super::datagram::meeting`]).

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use super::turns::{Progress, Turns};
use super::{Bounds, ExchangeError, ExchangeReport, ExchangeSpec, ResponsesReport};
use crate::clock::steady_ns;
use crate::measure::datagram::header::{Header, Kind, LEN, Token};
use crate::measure::datagram::meeting::{self, is_passing};

/// Bytes of the shortest request and response: token and number.
pub const BYTES_MIN: u32 = 40;
/// Bytes of the longest: what one datagram of IPv4 carries.
pub const BYTES_MAX: u32 = 65_507;
/// How long a response is waited for, as long as nothing is known of the path, and at most.
const PATIENCE_NS: u64 = 1_000_000_000;
/// And at least.
const PATIENCE_MIN_NS: u64 = 50_000_000;
/// How often the end is said where nobody says that it was heard.
const ENDS: u32 = 5;

/// Asks over a connected socket whose peer is ready.
///
/// # Errors
/// [`ExchangeError`].
pub fn ask(
    socket: &UdpSocket,
    token: &Token,
    spec: &ExchangeSpec,
    progress: &Progress,
    is_halted: impl Fn() -> bool,
) -> Result<ExchangeReport, ExchangeError> {
    spec.check()?;
    let mut request = spec.request();
    let mut buffer = vec![0; BYTES_MAX as usize];
    let mut patience_ns = PATIENCE_NS;
    let wait = |ns: u64| socket.set_read_timeout(Some(Duration::from_nanos(ns)));
    wait(patience_ns).map_err(ExchangeError::at_once)?;
    let mut turns = Turns::new(spec, progress);
    let (mut sequence, mut longest_ns) = (0_u32, 0);
    while let Some(due) = turns.due() {
        turns.wait(due);
        sequence = sequence.wrapping_add(1);
        Header::of(Kind::Data, 0, sequence, 0).write(token, &mut request);
        match exchange(socket, token, &request, sequence, &mut buffer) {
            Ok(true) => longest_ns = longest_ns.max(turns.answered(due)),
            Ok(false) => {
                turns.lost(due);
                let patience = (4 * longest_ns).clamp(PATIENCE_MIN_NS, PATIENCE_NS);
                if longest_ns > 0 && patience != patience_ns {
                    patience_ns = patience;
                    if let Err(error) = wait(patience_ns) {
                        return Err(turns.broken(error));
                    }
                }
                if is_halted() {
                    break;
                }
            }
            Err(error) => return Err(turns.broken(error)),
        }
    }
    Ok(turns.conclude())
}

/// Whether the response came in time.
#[inline]
fn exchange(
    socket: &UdpSocket,
    token: &Token,
    request: &[u8],
    sequence: u32,
    buffer: &mut [u8],
) -> io::Result<bool> {
    match socket.send(request) {
        Err(error) if is_passing(&error) => return Ok(false),
        other => other?,
    };
    loop {
        match socket.recv(buffer) {
            // Shut down by whoever ends the test.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                let header = Header::read(token, &buffer[..len]);
                if header.is_some_and(|it| it.kind == Kind::Data && it.sequence == sequence) {
                    return Ok(true);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_passing(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

/// Tells the other side that it is over.
pub fn end(socket: &UdpSocket, token: &Token) {
    let said = Header::of(Kind::End, 0, 0, 0).to_bytes(token);
    let mut buffer = [0; LEN];
    socket.set_read_timeout(Some(Duration::from_millis(50))).ok();
    for _ in 0..ENDS {
        socket.send(&said).ok();
        while let Ok(len @ 1..) = socket.recv(&mut buffer) {
            let header = Header::read(token, &buffer[..len]);
            if header.is_some_and(|header| header.kind == Kind::EndHeard) {
                return;
            }
        }
    }
}

/// Answers over a socket that is connected to whoever showed the token, until the end is said or the socket is
/// shut down.
pub fn answer(
    socket: &UdpSocket,
    token: &Token,
    spec: &ExchangeSpec,
    bounds: Bounds<'_>,
) -> ResponsesReport {
    let mut report = ResponsesReport::default();
    let mut buffer = vec![0; BYTES_MAX as usize];
    let mut response = spec.response();
    let (expected, each) = (spec.request_bytes as usize, u64::from(spec.request_bytes) * 2);
    let began_ns = steady_ns();
    loop {
        let len = match socket.recv(&mut buffer) {
            Ok(0) => return report,
            Ok(len) => len,
            Err(error) if is_passing(&error) => continue,
            Err(error) => {
                report.error = Some(error.to_string());
                return report;
            }
        };
        match Header::read(token, &buffer[..len]) {
            Some(header) if header.kind == Kind::Data && len == expected => {
                response[..LEN].copy_from_slice(&buffer[..LEN]);
                if socket.send(&response).is_ok() {
                    report.answered += 1;
                }
                if let Err(error) = bounds.allow(began_ns, report.answered * each) {
                    report.error = Some(error.to_string());
                    return report;
                }
            }
            // A welcome or the word that the end was heard may have been lost.
            Some(header) if matches!(header.kind, Kind::Hello | Kind::End) => {
                if let Some(reply) = meeting::answer(token, &buffer[..len]) {
                    socket.send(&reply).ok();
                }
                if header.kind == Kind::End {
                    return report;
                }
            }
            _ => report.strange += 1,
        }
    }
}
