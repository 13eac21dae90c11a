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

/// How long one call waits at most, before deadlines and requests to stop are looked at.
const NAP: Span = Span::from_ms(20);
/// And at least: to wait for no time is to wait for ever.
const NAP_MIN: Span = Span::from_us(1);

/// How long a spinning wait spins, before it looks up.
const SPIN: Span = Span::from_ms(10);

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
    let failed = |error| {
        Problem::trouble(format!("cannot open a UDP socket to {remote}"))
            .because(error)
            .fix("see 'ip route get ADDRESS' for whether this machine has a route")
    };
    let mut socket = Socket::open(remote, wait).map_err(failed)?;
    let mut buffer = vec![0; DATAGRAM_MAX];
    let mut looked = timeline.now();
    loop {
        if stop::requests() > 0 {
            return Ok(Ended::Interrupted);
        }
        if let Some(ended) = until(course, looked) {
            return Ok(ended);
        }
        let left = course.deadline().map(|deadline| deadline.saturating_since(looked));
        socket.set_nap(left.unwrap_or(course.timeout())).map_err(failed)?;
        let sent_at = timeline.now();
        if let Some(payload) = course.poll_payload() {
            match socket.udp.send(payload) {
                Ok(_) => course.on_sent(sent_at),
                Err(error) if is_passing(&error) => {}
                Err(error) => course.on_refused(said(&error)),
            }
        }
        match socket.receive(&mut buffer, timeline) {
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

/// A connected socket, and how it waits.
struct Socket {
    udp: UdpSocket,
    wait: Wait,
    /// How long a call may sleep, as the kernel knows it.
    nap: Span,
}

impl Socket {
    fn open(remote: SocketAddr, wait: Wait) -> io::Result<Self> {
        let any = match remote.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let udp = UdpSocket::bind(SocketAddr::new(any, 0))?;
        udp.connect(remote)?;
        if wait != Wait::Block {
            udp.set_nonblocking(true)?;
        }
        Ok(Self { udp, wait, nap: Span::ZERO })
    }

    /// Lets calls sleep no longer than is left; the kernel is asked only when that changes, which it does
    /// not while answers come in time.
    fn set_nap(&mut self, left: Span) -> io::Result<()> {
        let nap = left.min(NAP).max(NAP_MIN);
        if nap != self.nap {
            self.udp.set_read_timeout(Some(Duration::from_nanos(nap.as_ns())))?;
            self.nap = nap;
        }
        Ok(())
    }

    fn receive(&self, buffer: &mut [u8], timeline: Timeline) -> io::Result<usize> {
        let spins = match self.wait {
            Wait::Block => return self.udp.recv(buffer),
            Wait::Poll(span) => span,
            Wait::Spin => SPIN,
        };
        let end = timeline.now() + spins.min(self.nap);
        loop {
            match self.udp.recv(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && timeline.now() < end => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.wait != Wait::Spin => {
                    break;
                }
                other => return other,
            }
        }
        self.udp.set_nonblocking(false)?;
        let received = self.udp.recv(buffer);
        self.udp.set_nonblocking(true)?;
        received
    }
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
