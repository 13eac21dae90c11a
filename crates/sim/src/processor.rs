//! A host's processor and the ring of its interface: what receiving and sending cost, and what finds no memory.
//!
//! A packet that arrives waits in the ring. If the processor is idle, an interrupt follows, after a delay that lets others come; it costs
//! time, and then each packet does, until the ring is empty. A packet that finds the ring full is lost.

use std::collections::VecDeque;

use plumb_base::time::{Instant, Span};
use plumb_wire::packet::Packet;

/// A simulated processor: its CPU time for each operation, and its receive ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorSpec {
    /// Its host: a node.
    pub node: u32,
    /// Time of an interrupt.
    pub per_interrupt: Span,
    /// Time of a packet that is received or sent.
    pub per_packet: Span,
    /// Picoseconds of each of its bytes.
    pub per_byte: Span,
    /// From the arrival of a packet until the interrupt.
    pub coalesce: Span,
    /// Packets that the ring holds.
    pub ring: u32,
}

/// What a processor did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorCounts {
    /// Interrupts.
    pub interrupts: u64,
    /// Packets received.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that found the ring full.
    pub dropped: u64,
    /// How long it was busy.
    pub busy: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessorState {
    Idle,
    /// An interrupt comes then.
    Waiting(Instant),
    /// The first packet of the ring is received then.
    Receiving(Instant),
}

/// A processor.
#[derive(Debug)]
pub struct Processor {
    spec: ProcessorSpec,
    ring: VecDeque<Packet>,
    state: ProcessorState,
    /// Until when it sends.
    sending_until: Instant,
    /// Whether its host has more to send then.
    is_awaited: bool,
    counts: ProcessorCounts,
}

impl Processor {
    /// An idle one.
    pub fn new(spec: ProcessorSpec) -> Self {
        Self {
            spec,
            ring: VecDeque::new(),
            state: ProcessorState::Idle,
            sending_until: Instant::ORIGIN,
            is_awaited: false,
            counts: ProcessorCounts::default(),
        }
    }

    /// When it has to be looked at; [`Instant::NEVER`] while idle.
    pub fn next(&self) -> Instant {
        let awaited = if self.is_awaited { self.sending_until } else { Instant::NEVER };
        match self.state {
            ProcessorState::Idle => awaited,
            ProcessorState::Waiting(at) | ProcessorState::Receiving(at) => at.min(awaited),
        }
    }

    /// Whether it may send at `now`; if not, its host is awaited.
    pub fn may_send(&mut self, now: Instant) -> bool {
        self.is_awaited = self.sending_until > now;
        !self.is_awaited
    }

    /// Whether its host was awaited, and may send now.
    pub fn is_due_to_send(&self, now: Instant) -> bool {
        self.is_awaited && self.sending_until <= now
    }

    /// A packet arrives.
    ///
    /// # Errors
    /// Returns it where the ring is full.
    pub fn arrive(&mut self, now: Instant, packet: Packet) -> Result<(), Packet> {
        if self.ring.len() >= self.spec.ring as usize {
            self.counts.dropped += 1;
            return Err(packet);
        }
        self.ring.push_back(packet);
        if self.state == ProcessorState::Idle {
            self.state = ProcessorState::Waiting(now + self.spec.coalesce);
        }
        Ok(())
    }

    /// Does what is due at `now`; the packet that has been received by then.
    pub fn step(&mut self, now: Instant) -> Option<Packet> {
        match self.state {
            ProcessorState::Waiting(at) if at <= now => {
                self.counts.interrupts += 1;
                self.counts.busy += self.spec.per_interrupt;
                let begin = now.max(self.sending_until) + self.spec.per_interrupt;
                self.receive_next(begin);
                None
            }
            ProcessorState::Receiving(at) if at <= now => {
                let packet = self.ring.pop_front();
                self.counts.received += 1;
                self.receive_next(now);
                packet
            }
            _ => None,
        }
    }

    fn receive_next(&mut self, begin: Instant) {
        self.state = match self.ring.front() {
            None => ProcessorState::Idle,
            Some(packet) => {
                let cost = self.cost(1, packet.len() as u64);
                self.counts.busy += cost;
                ProcessorState::Receiving(begin + cost)
            }
        };
    }

    /// It sends so many packets with so many bytes: what it receives is received later.
    pub fn send(&mut self, now: Instant, packets: u64, bytes: u64) {
        let cost = self.cost(packets, bytes);
        self.counts.sent += packets;
        self.counts.busy += cost;
        if let ProcessorState::Receiving(at) = &mut self.state {
            *at += cost;
        }
        self.sending_until = self.sending_until.max(now) + cost;
    }

    fn cost(&self, packets: u64, bytes: u64) -> Span {
        self.spec.per_packet * packets + self.spec.per_byte * bytes
    }

    /// Its host.
    pub fn spec(&self) -> &ProcessorSpec {
        &self.spec
    }

    /// What it did.
    pub fn counts(&self) -> ProcessorCounts {
        self.counts
    }

    /// Packets in the ring.
    pub fn waiting(&self) -> usize {
        self.ring.len()
    }
}
