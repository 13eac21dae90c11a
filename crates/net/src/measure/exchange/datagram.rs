//! Requests and responses in datagrams; each shows the session's token and its number.
//!
//! A response is never longer than its request and goes only to the one address that has shown the token. What
//! does not come back in time is lost: one after another, the next request is sent then; at even times ([`paced`]) no
//! request waits for any other. Left out: how the two sides met ([`super::super::datagram::meeting`]).

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::time::Duration;

use plumb_sys::socket::{IntOption, set_option};

mod paced;
mod patience;

use super::turns::{Progress, Turns};
use super::{Bounds, ExchangeError, ExchangeReport, ExchangeSpec, Pacing, ResponsesReport};
use crate::clock::steady_ns;
use crate::measure::datagram::header::{Header, Kind, LEN, Token};
use crate::measure::datagram::meeting::{self, is_passing};
use patience::{Overdue, Patience};

/// Bytes of the shortest request and response: token and number.
pub const BYTES_MIN: u32 = 40;
/// Bytes of the longest: what one datagram of IPv4 carries.
pub const BYTES_MAX: u32 = 65_507;
/// How often the end is said where nobody says that it was heard.
const ENDS: u32 = 5;
/// Room for datagrams that come while nobody reads.
const BUFFER_BYTES: i32 = 1 << 20;

/// Asks over a connected socket whose peer is ready; `is_over` says whether the time for it has passed.
///
/// # Errors
/// [`ExchangeError`].
pub fn ask(
    socket: &UdpSocket,
    token: &Token,
    spec: &ExchangeSpec,
    progress: &Progress,
    is_over: &dyn Fn() -> bool,
) -> Result<ExchangeReport, ExchangeError> {
    spec.check()?;
    // Whatever the kernel allows.
    set_option(socket.as_fd(), IntOption::ReceiveBuffer, BUFFER_BYTES).ok();
    match spec.pacing {
        Pacing::Open { per_second } => {
            paced::ask(socket, token, spec, per_second, progress, is_over)
        }
        Pacing::Closed | Pacing::Connect => ask_in_turn(socket, token, spec, progress, is_over),
    }
}

fn ask_in_turn(
    socket: &UdpSocket,
    token: &Token,
    spec: &ExchangeSpec,
    progress: &Progress,
    is_over: &dyn Fn() -> bool,
) -> Result<ExchangeReport, ExchangeError> {
    let mut request = spec.request();
    let mut buffer = vec![0; BYTES_MAX as usize];
    let mut patience = Patience::begin(socket).map_err(ExchangeError::at_once)?;
    let mut overdue = Overdue::default();
    let mut turns = Turns::new(spec, progress);
    let mut sequence = 0_u32;
    while let Some(due) = turns.due() {
        sequence = sequence.wrapping_add(1);
        Header::of(Kind::Data, 0, sequence, 0).write(token, &mut request);
        let mut came = exchange(socket, token, &request, sequence, &mut buffer);
        // Whatever else comes does not make the wait begin anew.
        while let Ok(Came::Other(number)) = came {
            if let Some(began) = number.and_then(|number| overdue.take(number)) {
                patience.came_late(turns.found(began));
            }
            came = match patience.wait_on(due) {
                Ok(true) => listen(socket, token, sequence, &mut buffer),
                Ok(false) => Ok(Came::Nothing),
                Err(error) => Err(error),
            };
        }
        match came {
            Ok(Came::Response) => patience.came(turns.answered(due)),
            // Shut down by whoever ends the test.
            Err(_) if is_over() => {
                turns.lost(due);
                break;
            }
            Err(error) => return Err(turns.broken(error)),
            Ok(Came::Nothing | Came::Other(_)) => {
                turns.lost(due);
                overdue.note(sequence, due);
                patience.lost();
                if is_over() {
                    break;
                }
            }
        }
        if let Err(error) = patience.settle() {
            return Err(turns.broken(error));
        }
    }
    Ok(turns.conclude())
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// The response that was waited for.
    Response,
    /// Something else: a response of this number, or nothing of this test.
    Other(Option<u32>),
    /// Nothing in time, or the word that nothing will come.
    Nothing,
}

#[inline]
fn exchange(
    socket: &UdpSocket,
    token: &Token,
    request: &[u8],
    sequence: u32,
    buffer: &mut [u8],
) -> io::Result<Came> {
    match socket.send(request) {
        Err(error) if is_passing(&error) => return Ok(Came::Nothing),
        other => other?,
    };
    listen(socket, token, sequence, buffer)
}

/// One datagram, or none within the time that the socket waits.
#[inline]
fn listen(socket: &UdpSocket, token: &Token, sequence: u32, buffer: &mut [u8]) -> io::Result<Came> {
    match socket.recv(buffer) {
        // Shut down by whoever ends the test.
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(len) => {
            let header = Header::read(token, &buffer[..len]);
            let number = header.filter(|it| it.kind == Kind::Data).map(|it| it.sequence);
            let is_own = number == Some(sequence);
            Ok(if is_own { Came::Response } else { Came::Other(number) })
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Came::Other(None)),
        Err(error) if is_passing(&error) => Ok(Came::Nothing),
        Err(error) => Err(error),
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
    // Whatever the kernel allows: at a rate, more than one request may be there.
    set_option(socket.as_fd(), IntOption::ReceiveBuffer, BUFFER_BYTES).ok();
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

#[cfg(test)]
mod tests;
