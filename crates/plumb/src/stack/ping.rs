//! Echo requests at an interval, and the replies to them.
//!
//! Pure. Left out: the messages themselves (`plumb_stack::icmp`), and what is printed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use plumb_analysis::document::stack::Exchange;
use plumb_analysis::summary::single;
use plumb_base::time::{Instant, Span};
use plumb_stack::host::{Event, Host};
use plumb_wire::packet::Pool;

use super::sender::{asking, reason};
use super::station::refused;
use plumb_stack::node::Application;

/// Requests that may be waiting for their replies; the stack remembers no more.
const WAITING_MAX: usize = 1_000;

/// What to ask, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whom.
    pub remote: IpAddr,
    /// How often; for ever where absent.
    pub count: Option<u64>,
    /// Time between two requests.
    pub interval: Span,
    /// How long a reply is waited for.
    pub timeout: Span,
    /// Bytes of data.
    pub data_bytes: usize,
    /// Bytes of a frame with them.
    pub frame_bytes: usize,
    /// Of every request.
    pub identifier: u16,
}

/// What just happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A reply in time.
    Reply {
        /// Its request, counted from 0.
        number: u64,
        /// Bytes of data.
        len: usize,
        /// Routers that it might still have passed.
        hop_limit: u8,
        /// Round trip.
        rtt: Span,
    },
    /// No reply in time.
    Lost {
        /// Its request.
        number: u64,
    },
    /// An error.
    Failure(String),
}

/// Requests sent and replies to them.
#[derive(Debug)]
pub struct Ping {
    request: Request,
    data: Vec<u8>,
    sent: u64,
    next: Option<Instant>,
    waiting: BTreeMap<u16, (u64, Instant)>,
    exchange: Exchange,
    samples: Vec<f64>,
    notices: Vec<Notice>,
}

impl Ping {
    /// Nothing sent yet.
    pub fn new(request: Request) -> Self {
        let exchange = Exchange {
            remote: request.remote.to_string(),
            frame_bytes: request.frame_bytes as u64,
            payload_bytes: request.data_bytes as u64,
            ..Exchange::default()
        };
        let pattern = (0..=u8::MAX).cycle();
        Self {
            request,
            data: pattern.take(request.data_bytes).collect(),
            sent: 0,
            next: Some(Instant::ORIGIN),
            waiting: BTreeMap::new(),
            exchange,
            samples: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// Whether every request was sent, and answered or given up.
    pub fn is_over(&self) -> bool {
        self.next.is_none() && self.waiting.is_empty()
    }

    /// Requests begun, whatever became of them: also of those that wait when it is stopped.
    pub fn begun(&self) -> u64 {
        self.sent
    }

    /// What happened since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// What came of it, and what a reader must know.
    pub fn into_result(mut self) -> (Exchange, Vec<String>) {
        // Still under way when it was stopped: neither answered nor lost.
        self.exchange.sent -= self.waiting.len() as u64;
        let (summary, flags) = single::summary(&self.samples);
        self.exchange.rtt = summary;
        (self.exchange, flags)
    }

    fn handle_event(&mut self, event: &Event) {
        match *event {
            Event::EchoReply { remote, identifier, sequence, hop_limit, len, sent, received } => {
                if remote != self.request.remote || identifier != self.request.identifier {
                    return;
                }
                let Some((number, _)) = self.waiting.remove(&sequence) else {
                    self.exchange.late += 1;
                    return;
                };
                if len != self.request.data_bytes {
                    self.exchange.corrupt += 1;
                    return;
                }
                let rtt = received.saturating_since(sent);
                self.exchange.answered += 1;
                match self.exchange.first_ns {
                    None => self.exchange.first_ns = Some(rtt.as_ns_f64()),
                    Some(_) => self.samples.push(rtt.as_ns_f64()),
                }
                self.notices.push(Notice::Reply { number, len, hop_limit, rtt });
            }
            Event::Failure(failure) if failure.remote.ip() == self.request.remote => {
                self.exchange.errors += 1;
                let text = format!("{} says: {}", failure.reporter, reason(failure.kind));
                self.notices.push(Notice::Failure(text));
            }
            Event::NeighbourFailed { address, .. } => {
                let text = format!("{address} does not answer {}", asking(address));
                self.notices.push(Notice::Failure(text));
            }
            Event::AddressConflict { address, mac, .. } => {
                let text = format!("another station, {mac}, claims to have {address}");
                self.notices.push(Notice::Failure(text));
            }
            Event::Failure(_) => {}
        }
    }

    fn give_up(&mut self, now: Instant) {
        let timeout = self.request.timeout;
        let crowded = self.waiting.len() >= WAITING_MAX;
        let late: Vec<u16> = self
            .waiting
            .iter()
            .filter(|(_, (_, sent))| crowded || now >= *sent + timeout)
            .map(|(&sequence, _)| sequence)
            .collect();
        for sequence in late {
            if let Some((number, _)) = self.waiting.remove(&sequence) {
                self.exchange.lost += 1;
                self.notices.push(Notice::Lost { number });
            }
        }
    }

    fn send(&mut self, now: Instant, host: &mut Host, pool: &mut Pool) {
        let Some(due) = self.next else { return };
        if now < due {
            return;
        }
        let number = self.sent;
        let sequence = u16::try_from(number & 0xffff).expect("16 bits");
        let key = (self.request.identifier, sequence);
        match host.ping(now, self.request.remote, key, &self.data, pool) {
            Ok(()) => {
                self.waiting.insert(sequence, (number, now));
                self.exchange.sent += 1;
            }
            Err(error) => {
                self.exchange.errors += 1;
                self.notices.push(Notice::Failure(refused(&error.to_string()).what));
            }
        }
        self.sent += 1;
        let more = self.request.count.is_none_or(|count| self.sent < count);
        // From now, not from when it was due: requests missed while stopped are not made up for.
        self.next = more.then(|| now + self.request.interval);
    }
}

impl Application for Ping {
    fn handle(&mut self, now: Instant, host: &mut Host, pool: &mut Pool) {
        while let Some(event) = host.poll_event() {
            self.handle_event(&event);
        }
        self.give_up(now);
        self.send(now, host, pool);
    }

    fn deadline(&self) -> Option<Instant> {
        let timeout = self.request.timeout;
        let first_late = self.waiting.values().map(|&(_, sent)| sent + timeout).min();
        match (self.next, first_late) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
