//! A course over plumb's own stack: one connected UDP socket, one datagram at a time.
//!
//! Left out: the course itself (`super::course`), and the kernel's stack (`super::kernel`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plumb_base::time::Instant;
use plumb_host::clock::Timeline;
use plumb_stack::host::{Event, Host};
use plumb_stack::udp::{CopyPolicy, UdpId, UdpOptions};
use plumb_wire::packet::Pool;

use super::course::Course;
use super::station::refused;
use crate::problem::{Exit, Problem};
use plumb_stack::node::Application;

/// A course and its socket.
#[derive(Debug)]
pub struct Sender {
    /// The course.
    pub course: Course,
    socket: UdpId,
    remote: SocketAddr,
    timeline: Timeline,
}

impl Sender {
    /// Opens a socket and connects it.
    ///
    /// # Errors
    /// The peer cannot be talked to from here.
    pub fn open(
        host: &mut Host,
        remote: SocketAddr,
        course: Course,
        timeline: Timeline,
    ) -> Result<Self, Problem> {
        let any = match remote.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let bound = host.udp_bind(SocketAddr::new(any, 0), UdpOptions::default());
        let problem = |error: plumb_stack::udp::BindError| {
            Problem::from_message(&error.to_string(), Exit::Usage)
        };
        let socket = bound.map_err(problem)?;
        host.udp_connect(timeline.now(), socket, remote).map_err(|error| {
            problem(error).fix(format!(
                "give the stack an address of {remote}'s network with --addr, or a router with --gateway"
            ))
        })?;
        Ok(Self { course, socket, remote, timeline })
    }
}

impl Application for Sender {
    fn handle(&mut self, now: Instant, host: &mut Host, pool: &mut Pool) {
        while let Some(datagram) = host.udp_receive(self.socket, pool) {
            let at = self.timeline.now();
            self.course.handle_answer(at, pool.bytes(&datagram.packet));
            pool.free(datagram.packet);
        }
        while let Some(event) = host.poll_event() {
            match event {
                Event::Failure(failure) if failure.udp == Some(self.socket) => {
                    let reporter = failure.reporter;
                    self.course.on_refused(format!("{reporter} says: {}", reason(failure.kind)));
                }
                Event::NeighbourFailed { address, .. } => {
                    self.course
                        .on_refused(format!("{address} does not answer {}", asking(address)));
                }
                _ => {}
            }
        }
        self.course.handle_deadline(now);
        let at = self.timeline.now();
        if let Some(payload) = self.course.poll_payload() {
            match host.udp_send(at, self.socket, payload, None, CopyPolicy::Fused, pool) {
                Ok(()) => self.course.on_sent(at),
                Err(error) => {
                    let problem = refused(&error.to_string());
                    self.course.on_refused(format!("{}: {}", self.remote, problem.what));
                }
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.course.deadline()
    }
}

/// How a link address is asked for.
pub fn asking(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ARP" } else { "neighbour discovery" }
}

/// An ICMP error in words.
pub fn reason(kind: plumb_stack::icmp::FailureKind) -> String {
    use plumb_stack::icmp::FailureKind;
    match kind {
        FailureKind::Network => "there is no route".to_owned(),
        FailureKind::Host => "the host cannot be reached".to_owned(),
        FailureKind::Protocol => "the host does not speak UDP".to_owned(),
        FailureKind::Port => "nobody listens at the port".to_owned(),
        FailureKind::Prohibited => "an administrator forbids it".to_owned(),
        FailureKind::TooBig(mtu) => format!("it does not fit a link of MTU {mtu}"),
        FailureKind::HopLimit => "it was passed on too often".to_owned(),
        FailureKind::Reassembly => "not all of its fragments arrived".to_owned(),
        FailureKind::Parameter(at) => format!("the octet at {at} makes no sense"),
        FailureKind::Other(kind, code) => format!("ICMP type {kind}, code {code}"),
    }
}
