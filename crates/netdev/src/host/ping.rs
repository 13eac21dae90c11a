//! Ping: ICMP echo requests at an interval, and their replies. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use plumb_base::time::{Instant, Span};
use plumb_stack::host::{HostEvent, IpHost};
use plumb_stack::icmp;
use plumb_stack::service::HostApplication;
use plumb_wire::packet::Pool;

use super::WatchedApplication;
use super::echo_test::{RoundTripSeries, failure_text, first_part, neighbor_protocol};
use super::services::address_conflict;

/// Most outstanding requests, as many as the stack remembers. None is sent beyond it.
const WAITING_MAX: usize = icmp::PENDING_MAX;

/// Parameters of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingRequest {
    /// Destination.
    pub remote: IpAddr,
    /// Requests to send; none means no limit.
    pub count: Option<u64>,
    /// Time between two requests.
    pub interval: Span,
    /// Time to wait for a reply.
    pub timeout: Span,
    /// Bytes of data per request.
    pub data_bytes: usize,
    /// Bytes of a frame with that data.
    pub frame_bytes: usize,
    /// ICMP identifier of all requests.
    pub identifier: u16,
}

/// An event of a ping.
#[derive(Clone, Debug, PartialEq)]
pub enum PingEvent {
    /// A reply in time.
    Reply {
        /// Number of the request, from 0.
        number: u64,
        /// Bytes of data.
        len: usize,
        /// Hop limit of the reply.
        hop_limit: u8,
        /// Round trip.
        rtt: Span,
    },
    /// No reply in time.
    Lost {
        /// Number of the request.
        number: u64,
    },
    /// An error.
    Failure(String),
}

/// Requests sent and replies to them.
#[derive(Debug)]
pub struct PingApplication {
    request: PingRequest,
    data: Vec<u8>,
    /// Requests begun, including those that failed.
    pub sent: u64,
    next: Option<Instant>,
    /// Whether a request was delayed by [`WAITING_MAX`].
    held_back: bool,
    waiting: BTreeMap<u16, (u64, Instant)>,
    series: RoundTripSeries,
    events: Vec<PingEvent>,
}

impl PingApplication {
    /// Nothing sent yet.
    pub fn new(request: PingRequest) -> Self {
        let series = RoundTripSeries {
            frame_bytes: request.frame_bytes,
            payload_bytes: request.data_bytes,
            ..RoundTripSeries::default()
        };
        let pattern = (0..=u8::MAX).cycle();
        Self {
            request,
            data: pattern.take(request.data_bytes).collect(),
            sent: 0,
            next: Some(Instant::ORIGIN),
            held_back: false,
            waiting: BTreeMap::new(),
            series,
            events: Vec::new(),
        }
    }

    /// Events since the last call.
    pub fn take_events(&mut self) -> Vec<PingEvent> {
        std::mem::take(&mut self.events)
    }

    /// The result, and flags for its reader.
    pub fn into_result(mut self) -> (RoundTripSeries, Vec<String>) {
        // Requests outstanding at the end are neither answered nor lost.
        self.series.sent -= self.waiting.len() as u64;
        let flag = self.held_back.then(|| {
            format!("some requests were delayed: {WAITING_MAX} were outstanding, the most possible")
        });
        (self.series, flag.into_iter().collect())
    }

    fn handle_event(&mut self, event: &HostEvent) {
        match *event {
            HostEvent::EchoReply {
                remote,
                identifier,
                sequence,
                hop_limit,
                len,
                sent,
                received,
            } => {
                if remote != self.request.remote || identifier != self.request.identifier {
                    return;
                }
                let Some((number, _)) = self.waiting.remove(&sequence) else {
                    self.series.late += 1;
                    return;
                };
                if len != self.request.data_bytes {
                    self.series.corrupt += 1;
                    return;
                }
                let rtt = received.saturating_since(sent);
                self.series.answered += 1;
                match self.series.first_ns {
                    None => self.series.first_ns = Some(rtt.as_ns_f64()),
                    Some(_) => self.series.samples.push(rtt.as_ns_f64()),
                }
                self.events.push(PingEvent::Reply { number, len, hop_limit, rtt });
            }
            HostEvent::DeliveryFailed(failure) if failure.remote.ip() == self.request.remote => {
                self.series.errors += 1;
                let text = format!("{} reports: {}", failure.reporter, failure_text(failure.kind));
                self.events.push(PingEvent::Failure(text));
            }
            HostEvent::NeighborFailed { address, .. } => {
                let text = format!("{address} does not answer {}", neighbor_protocol(address));
                self.events.push(PingEvent::Failure(text));
            }
            HostEvent::AddressConflict { address, mac, .. } => {
                self.events.push(PingEvent::Failure(address_conflict(address, mac)));
            }
            HostEvent::DeliveryFailed(_) => {}
        }
    }

    fn give_up(&mut self, now: Instant) {
        let timeout = self.request.timeout;
        let late: Vec<u16> = self
            .waiting
            .iter()
            .filter(|(_, (_, sent))| now >= *sent + timeout)
            .map(|(&sequence, _)| sequence)
            .collect();
        for sequence in late {
            if let Some((number, _)) = self.waiting.remove(&sequence) {
                self.series.lost += 1;
                self.events.push(PingEvent::Lost { number });
            }
        }
    }

    /// Whether the most requests are outstanding.
    fn is_window_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    fn send(&mut self, now: Instant, host: &mut IpHost, pool: &mut Pool) {
        let Some(due) = self.next else { return };
        if now < due || self.is_window_full() {
            return;
        }
        let number = self.sent;
        let sequence = u16::try_from(number & 0xffff).expect("16 bits");
        let key = (self.request.identifier, sequence);
        match host.ping(now, self.request.remote, key, &self.data, pool) {
            Ok(()) => {
                self.waiting.insert(sequence, (number, now));
                self.series.sent += 1;
            }
            Err(error) => {
                self.series.errors += 1;
                self.events.push(PingEvent::Failure(first_part(&error)));
            }
        }
        self.sent += 1;
        let more = self.request.count.is_none_or(|count| self.sent < count);
        // From now: requests missed while the process was stopped are not sent later.
        self.next = more.then(|| now + self.request.interval);
    }
}

impl HostApplication for PingApplication {
    fn handle(&mut self, now: Instant, host: &mut IpHost, pool: &mut Pool) {
        // Before replies make room: a request that is due was delayed.
        let is_due = self.next.is_some_and(|due| now >= due);
        self.held_back |= is_due && self.is_window_full();
        while let Some(event) = host.poll_event() {
            self.handle_event(&event);
        }
        self.give_up(now);
        self.send(now, host, pool);
    }

    fn deadline(&self) -> Option<Instant> {
        let timeout = self.request.timeout;
        let first_late = self.waiting.values().map(|&(_, sent)| sent + timeout).min();
        match (self.next.filter(|_| !self.is_window_full()), first_late) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

impl WatchedApplication for PingApplication {
    /// Every request was sent, and answered or lost.
    fn is_complete(&self) -> bool {
        self.next.is_none() && self.waiting.is_empty()
    }

    fn has_news(&self) -> bool {
        !self.events.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use plumb_stack::host::HostConfig;
    use plumb_stack::interface::InterfaceConfig;
    use plumb_wire::machine::{Machine as _, PortId};
    use plumb_wire::packet::PoolConfig;

    use super::*;

    #[test]
    fn requests_are_lost_at_their_timeout_and_limited_in_number() {
        let remote: IpAddr = "10.0.0.2".parse().unwrap();
        let config =
            InterfaceConfig::ip(1_500).with_address("10.0.0.1".parse::<IpAddr>().unwrap(), 24);
        let mut host = IpHost::new(HostConfig::default(), Seed(1));
        host.add_interface(&config).unwrap();
        let mut pool = Pool::new(PoolConfig::default());
        let timeout = Span::from_secs(10);
        let mut ping = PingApplication::new(PingRequest {
            remote,
            count: None,
            interval: Span::from_ms(1),
            timeout,
            data_bytes: 8,
            frame_bytes: 50,
            identifier: 7,
        });
        let mut now = Instant::ORIGIN + Span::from_secs(1);
        let begun = now;
        let mut batch = Vec::new();
        while now < begun + Span::from_secs(25) {
            ping.handle(now, &mut host, &mut pool);
            host.poll_packets(now, PortId(0), &mut batch, usize::MAX, &mut pool);
            pool.free_all(&mut batch);
            let next = ping.deadline().unwrap();
            assert!(next > now, "time moves on");
            if ping.series.lost > 0 {
                assert!(now >= begun + timeout, "lost after {:?}", now.saturating_since(begun));
            }
            assert!(ping.waiting.len() <= WAITING_MAX);
            now = next;
        }
        let most = WAITING_MAX as u64;
        assert!((2 * most..=3 * most).contains(&ping.series.lost), "{}", ping.series.lost);
        let (_, flags) = ping.into_result();
        assert!(flags.iter().any(|flag| flag.contains("delayed")), "{flags:?}");
    }
}
