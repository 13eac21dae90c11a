//! Requests and responses in datagrams; each shows the session's token and its number.
//!
//! A response is never longer than its request and goes only to the one address that has shown the token. What
//! does not come back in time is lost: one after another, the next request is sent then; at even times ([`paced`]) no
//! request waits for any other. Left out: how the two sides met (`super::super::udp::udp_handshake`).

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::time::Duration;

use plumb_sys::socket::{IntOption, set_option};

mod paced;
mod response_timeout;

use super::closed_loop::ClosedLoop;
use super::{
    RequestPacing, RequestResponseError, RequestResponseSpec, RequesterReport, ResponderBounds,
    ResponderReport,
};
use crate::measure::bulk::Counter;
use plumb_clock::monotonic_ns;
use plumb_remote::datagram_header::{
    HEADER_BYTES, TestDatagramHeader, TestDatagramKind, TokenBytes,
};
use plumb_remote::udp_handshake::{self, is_transient};
use response_timeout::{OverdueRequests, ResponseTimeout};

/// Bytes of the shortest request and response: token and number.
pub const BYTES_MIN: u32 = 40;
/// Bytes of the longest: what one datagram of IPv4 carries.
pub const BYTES_MAX: u32 = 65_507;
/// How often the end is said where nobody says that it was heard.
const END_TRIES: u32 = 5;
/// Room for datagrams that come while nobody reads.
const BUFFER_BYTES: i32 = 1 << 20;

/// Asks over a connected socket whose peer is ready; `is_over` says whether the time for it has passed.
///
/// # Errors
/// [`RequestResponseError`].
pub fn send_requests(
    socket: &UdpSocket,
    token: &TokenBytes,
    spec: &RequestResponseSpec,
    progress: &Counter,
    is_over: &dyn Fn() -> bool,
) -> Result<RequesterReport, RequestResponseError> {
    spec.check()?;
    // Whatever the kernel allows.
    set_option(socket.as_fd(), IntOption::ReceiveBuffer, BUFFER_BYTES).ok();
    match spec.pacing {
        RequestPacing::Open { per_second } => {
            paced::send_requests(socket, token, spec, per_second, progress, is_over)
        }
        RequestPacing::Closed | RequestPacing::Connect => {
            ask_in_turn(socket, token, spec, progress, is_over)
        }
    }
}

fn ask_in_turn(
    socket: &UdpSocket,
    token: &TokenBytes,
    spec: &RequestResponseSpec,
    progress: &Counter,
    is_over: &dyn Fn() -> bool,
) -> Result<RequesterReport, RequestResponseError> {
    let mut request = spec.request();
    let mut buffer = vec![0; BYTES_MAX as usize];
    let mut patience =
        ResponseTimeout::begin(socket).map_err(RequestResponseError::before_first)?;
    let mut overdue = OverdueRequests::default();
    let mut turns = ClosedLoop::new(spec, progress);
    let mut sequence = 0_u32;
    while let Some(due) = turns.next_request() {
        sequence = sequence.wrapping_add(1);
        TestDatagramHeader::of(TestDatagramKind::Data, 0, sequence, 0).write(token, &mut request);
        let mut came = exchange(socket, token, &request, sequence, &mut buffer);
        // Whatever else comes does not make the wait begin anew.
        while let Ok(ReceivedReply::Other(number)) = came {
            if let Some(began) = number.and_then(|number| overdue.take(number)) {
                patience.on_late_response(turns.on_late_response(began));
            }
            came = match patience.wait_remaining(due) {
                Ok(true) => receive_reply(socket, token, sequence, &mut buffer),
                Ok(false) => Ok(ReceivedReply::NoReply),
                Err(error) => Err(error),
            };
        }
        match came {
            Ok(ReceivedReply::Response) => patience.on_response(turns.on_response(due)),
            // Shut down by whoever ends the test.
            Err(_) if is_over() => {
                turns.on_lost(due);
                break;
            }
            Err(error) => return Err(turns.into_error(error)),
            Ok(ReceivedReply::NoReply | ReceivedReply::Other(_)) => {
                turns.on_lost(due);
                overdue.note(sequence, due);
                patience.on_lost();
                if is_over() {
                    break;
                }
            }
        }
        if let Err(error) = patience.restore() {
            return Err(turns.into_error(error));
        }
    }
    Ok(turns.into_report())
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceivedReply {
    /// The response that was waited for.
    Response,
    /// Something else: a response of this number, or nothing of this test.
    Other(Option<u32>),
    /// Nothing in time, or the word that nothing will come.
    NoReply,
}

#[inline]
fn exchange(
    socket: &UdpSocket,
    token: &TokenBytes,
    request: &[u8],
    sequence: u32,
    buffer: &mut [u8],
) -> io::Result<ReceivedReply> {
    match socket.send(request) {
        Err(error) if is_transient(&error) => return Ok(ReceivedReply::NoReply),
        other => other?,
    };
    receive_reply(socket, token, sequence, buffer)
}

/// One datagram, or none within the time that the socket waits.
#[inline]
fn receive_reply(
    socket: &UdpSocket,
    token: &TokenBytes,
    sequence: u32,
    buffer: &mut [u8],
) -> io::Result<ReceivedReply> {
    match socket.recv(buffer) {
        // Shut down by whoever ends the test.
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(len) => {
            let header = TestDatagramHeader::read(token, &buffer[..len]);
            let number =
                header.filter(|it| it.kind == TestDatagramKind::Data).map(|it| it.sequence);
            let is_own = number == Some(sequence);
            Ok(if is_own { ReceivedReply::Response } else { ReceivedReply::Other(number) })
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(ReceivedReply::Other(None)),
        Err(error) if is_transient(&error) => Ok(ReceivedReply::NoReply),
        Err(error) => Err(error),
    }
}

/// Tells the other side that it is over.
pub fn send_end(socket: &UdpSocket, token: &TokenBytes) {
    let said = TestDatagramHeader::of(TestDatagramKind::End, 0, 0, 0).to_bytes(token);
    let mut buffer = [0; HEADER_BYTES];
    socket.set_read_timeout(Some(Duration::from_millis(50))).ok();
    for _ in 0..END_TRIES {
        socket.send(&said).ok();
        while let Ok(len @ 1..) = socket.recv(&mut buffer) {
            let header = TestDatagramHeader::read(token, &buffer[..len]);
            if header.is_some_and(|header| header.kind == TestDatagramKind::EndAck) {
                return;
            }
        }
    }
}

/// Answers over a socket that is connected to whoever showed the token, until the end is said or the socket is
/// shut down.
pub fn respond(
    socket: &UdpSocket,
    token: &TokenBytes,
    spec: &RequestResponseSpec,
    bounds: ResponderBounds<'_>,
) -> ResponderReport {
    let mut report = ResponderReport::default();
    // Whatever the kernel allows: at a rate, more than one request may be there.
    set_option(socket.as_fd(), IntOption::ReceiveBuffer, BUFFER_BYTES).ok();
    let mut buffer = vec![0; BYTES_MAX as usize];
    let mut response = spec.response();
    let (expected, each) = (spec.request_bytes as usize, u64::from(spec.request_bytes) * 2);
    let began_ns = monotonic_ns();
    loop {
        let len = match socket.recv(&mut buffer) {
            Ok(0) => return report,
            Ok(len) => len,
            Err(error) if is_transient(&error) => continue,
            Err(error) => {
                report.error = Some(error.to_string());
                return report;
            }
        };
        match TestDatagramHeader::read(token, &buffer[..len]) {
            Some(header) if header.kind == TestDatagramKind::Data && len == expected => {
                response[..HEADER_BYTES].copy_from_slice(&buffer[..HEADER_BYTES]);
                if socket.send(&response).is_ok() {
                    report.answered += 1;
                }
                if let Err(error) = bounds.allow(began_ns, report.answered * each) {
                    report.error = Some(error.to_string());
                    return report;
                }
            }
            // A welcome or the word that the end was heard may have been lost.
            Some(header)
                if matches!(header.kind, TestDatagramKind::Hello | TestDatagramKind::End) =>
            {
                if let Some(reply) = udp_handshake::reply_to(token, &buffer[..len]) {
                    socket.send(&reply).ok();
                }
                if header.kind == TestDatagramKind::End {
                    return report;
                }
            }
            _ => report.strange += 1,
        }
    }
}

#[cfg(test)]
mod tests;
