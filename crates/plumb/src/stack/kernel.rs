//! A course over the kernel's stack: a connected UDP socket, as any program has one.
//!
//! Left out: the course itself (`super::course`).

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use plumb_base::time::{Instant, Span};
use plumb_host::clock::Timeline;
use plumb_host::device::Wait;
use plumb_host::stop;

use super::course::Course;
use super::station::Ended;
use crate::problem::Problem;

/// How long one call waits, before deadlines and requests to stop are looked at.
const NAP: Duration = Duration::from_millis(20);

/// Longest datagram.
const DATAGRAM_MAX: usize = 65_535;

/// Runs a course over the kernel's stack; why it ended.
///
/// # Errors
/// No socket, or one that fails for good.
pub fn run(
    course: &mut Course,
    remote: SocketAddr,
    wait: Wait,
    timeline: Timeline,
    mut until: impl FnMut(&Course, Instant) -> Option<Ended>,
) -> Result<Ended, Problem> {
    let socket = open(remote, wait).map_err(|error| {
        Problem::trouble(format!("cannot open a UDP socket to {remote}"))
            .because(error)
            .fix("see 'ip route get ADDRESS' for whether this machine has a route")
    })?;
    let mut buffer = vec![0; DATAGRAM_MAX];
    let mut looked = timeline.now();
    loop {
        if stop::requests() > 0 {
            return Ok(Ended::Interrupted);
        }
        if let Some(ended) = until(course, looked) {
            return Ok(ended);
        }
        let sent_at = timeline.now();
        if let Some(payload) = course.poll_payload() {
            match socket.send(payload) {
                Ok(_) => course.on_sent(sent_at),
                Err(error) if is_passing(&error) => {}
                Err(error) => course.on_refused(said(&error)),
            }
        }
        match receive(&socket, &mut buffer, wait, timeline) {
            Ok(len) => {
                looked = timeline.now();
                course.handle_answer(looked, &buffer[..len]);
            }
            Err(error) if is_passing(&error) => {
                looked = timeline.now();
                course.handle_deadline(looked);
            }
            Err(error) => course.on_refused(said(&error)),
        }
    }
}

fn open(remote: SocketAddr, wait: Wait) -> io::Result<UdpSocket> {
    let any = match remote.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(remote)?;
    if wait == Wait::Block {
        socket.set_read_timeout(Some(NAP))?;
    } else {
        socket.set_nonblocking(true)?;
    }
    Ok(socket)
}

fn receive(
    socket: &UdpSocket,
    buffer: &mut [u8],
    wait: Wait,
    timeline: Timeline,
) -> io::Result<usize> {
    let spins = match wait {
        Wait::Block => return socket.recv(buffer),
        Wait::Poll(span) => span,
        Wait::Spin => Span::from_ms(10),
    };
    let end = timeline.now() + spins;
    loop {
        match socket.recv(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && timeline.now() < end => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && wait != Wait::Spin => break,
            other => return other,
        }
    }
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(NAP))?;
    let received = socket.recv(buffer);
    socket.set_nonblocking(true)?;
    received
}

/// Whether an error says only to try again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn said(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "the kernel says: nobody listens at the port".to_owned(),
        _ => format!("the kernel says: {error}"),
    }
}
