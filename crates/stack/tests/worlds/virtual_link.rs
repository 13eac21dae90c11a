//! Machines on one link, in virtual time, with the faults of a hostile link.

use std::collections::BTreeMap;

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_wire::checksum;
use plumb_wire::machine::{Machine, Medium, PortId};
use plumb_wire::packet::{ChecksumState, Packet, PacketMeta, Pool, PoolConfig};
use plumb_wire::segmentation::{SegmentChecksums, segment_packet};

mod faults;

pub use faults::{LinkCounts, LinkFaults};

use faults::FaultInjector;

/// The port that every machine has on the link.
pub const PORT: PortId = PortId(0);

/// Packets taken from a machine, or handed to one, at once.
const BATCH: usize = 32;

/// A packet on its way.
#[derive(Debug)]
struct InFlightPacket {
    to: usize,
    packet: Packet,
}

/// Machines on one link that all of them hear: two of them are a pair, more a local network.
#[derive(Debug)]
pub struct VirtualLink<M> {
    /// The machines, by their number.
    pub machines: Vec<M>,
    /// The memory that all of them share.
    pub pool: Pool,
    now: Instant,
    medium: Medium,
    delay: Span,
    injector: FaultInjector,
    flights: BTreeMap<(Instant, u64), InFlightPacket>,
    sequence: u64,
    fates: LinkCounts,
    batch: Vec<Packet>,
    pieces: Vec<Packet>,
}

impl<M: Machine> VirtualLink<M> {
    /// A world at rest in which a packet takes 10 µs; its faults are off.
    pub fn new(machines: Vec<M>, medium: Medium, frames: PoolConfig, seed: Seed) -> Self {
        Self {
            machines,
            pool: Pool::new(frames),
            now: Instant::ORIGIN + Span::from_secs(1),
            medium,
            delay: Span::from_us(10),
            injector: FaultInjector::new(seed.stream("link")),
            flights: BTreeMap::new(),
            sequence: 0,
            fates: LinkCounts::default(),
            batch: Vec::with_capacity(BATCH),
            pieces: Vec::new(),
        }
    }

    /// What time it is.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Sets what the link does to packets from now on.
    pub fn set_faults(&mut self, faults: LinkFaults) {
        self.injector.faults = faults;
    }

    /// What happened to the packets that the link was given.
    pub fn fates(&self) -> &LinkCounts {
        &self.fates
    }

    /// Packets on their way.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Calls `act` with a machine, the time and the pool: how an application does something.
    pub fn with<R>(
        &mut self,
        machine: usize,
        act: impl FnOnce(&mut M, Instant, &mut Pool) -> R,
    ) -> R {
        act(&mut self.machines[machine], self.now, &mut self.pool)
    }

    /// Puts a frame on the link that none of the machines sent; all of them hear it.
    ///
    /// `false` when no frame of the pool is free.
    pub fn inject(&mut self, bytes: &[u8]) -> bool {
        let Some(packet) = self.pool.packet_of(bytes) else { return false };
        self.fates.sent += 1;
        self.broadcast(None, packet);
        true
    }

    /// Takes what the machines have to send, then lets time pass until something happens, and lets it
    /// happen. `false`, at the time `until`, when nothing does before.
    pub fn step(&mut self, until: Instant) -> bool {
        self.collect();
        let flight = self.flights.keys().next().map(|(at, _)| *at);
        let deadline = self.machines.iter().filter_map(Machine::deadline).min();
        let next = flight.into_iter().chain(deadline).min();
        let Some(next) = next.filter(|next| *next <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(next);
        self.deliver_due();
        for machine in &mut self.machines {
            if machine.deadline().is_some_and(|deadline| deadline <= self.now) {
                machine.handle_deadline(self.now, &mut self.pool);
                assert!(
                    machine.deadline().is_none_or(|deadline| deadline > self.now),
                    "what was due has been done"
                );
            }
        }
        true
    }

    /// Lets `span` of time pass.
    pub fn run(&mut self, span: Span) {
        let until = self.now + span;
        while self.step(until) {}
    }

    /// Lets time pass until nothing is on its way and no machine waits for anything; `false` when that
    /// takes longer than `limit`.
    pub fn settle(&mut self, limit: Span) -> bool {
        let until = self.now + limit;
        loop {
            self.collect();
            if self.flights.is_empty() && self.machines.iter().all(|m| m.deadline().is_none()) {
                return true;
            }
            if !self.step(until) {
                return false;
            }
        }
    }

    /// Takes everything that the machines have to send.
    fn collect(&mut self) {
        for from in 0..self.machines.len() {
            loop {
                let mut batch = std::mem::take(&mut self.batch);
                let machine = &mut self.machines[from];
                machine.poll_packets(self.now, PORT, &mut batch, BATCH, &mut self.pool);
                let done = batch.is_empty();
                assert!(batch.len() <= BATCH, "no more packets than asked for");
                for packet in batch.drain(..) {
                    self.send(from, packet);
                }
                self.batch = batch;
                if done {
                    break;
                }
            }
        }
    }

    /// What a device does: cuts super-segments and completes checksums, then sends.
    fn send(&mut self, from: usize, packet: Packet) {
        let mut pieces = std::mem::take(&mut self.pieces);
        if packet.meta.segments.is_some() {
            let cut = segment_packet(
                packet,
                self.medium,
                SegmentChecksums::Complete,
                &mut self.pool,
                &mut pieces,
            );
            if let Err((packet, _)) = cut {
                self.fates.sent += 1;
                self.fates.lost += 1;
                self.pool.free(packet);
            }
        } else {
            pieces.push(packet);
        }
        for mut piece in pieces.drain(..) {
            if let ChecksumState::Partial { start, offset } = piece.meta.checksum {
                let (start, offset) = (usize::from(start), usize::from(offset));
                let completed = checksum::complete(self.pool.bytes_mut(&mut piece), start, offset);
                assert!(completed, "a partial checksum lies within its packet");
            }
            self.fates.sent += 1;
            self.broadcast(Some(from), piece);
        }
        self.pieces = pieces;
    }

    /// A copy for each machine that hears a packet.
    fn broadcast(&mut self, from: Option<usize>, packet: Packet) {
        let hears = |to: usize| Some(to) != from;
        let last = (0..self.machines.len()).rev().find(|to| hears(*to));
        for to in (0..self.machines.len()).filter(|to| hears(*to) && Some(*to) != last) {
            let copy = self.copy(&packet);
            self.transmit(to, copy);
        }
        match last {
            Some(to) => {
                self.fates.heard += 1;
                self.transmit(to, Some(packet));
            }
            None => self.pool.free(packet),
        }
    }

    fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        self.fates.heard += 1;
        let mut copy = self.pool.allocate_for(packet.len())?;
        self.pool.append_from(&mut copy, packet, 0..packet.len(), |source, target| {
            target.copy_from_slice(source);
        });
        Some(copy)
    }

    /// Sends a packet on its way to one machine, as the faults will have it. `None`: the pool had no
    /// frame for it, and it is lost.
    fn transmit(&mut self, to: usize, packet: Option<Packet>) {
        let Some(mut packet) = packet else {
            self.fates.lost += 1;
            return;
        };
        let fate = self.injector.decide(packet.len());
        if fate.is_lost {
            self.fates.lost += 1;
            self.pool.free(packet);
            return;
        }
        let copy = if fate.is_duplicated { self.copy(&packet) } else { None };
        if let Some((at, pattern)) = fate.corruption {
            self.fates.corrupted += 1;
            for (byte, flip) in self.pool.bytes_mut(&mut packet)[at..].iter_mut().zip(pattern) {
                *byte ^= flip;
            }
        }
        if let Some(len) = fate.truncated {
            self.fates.truncated += 1;
            self.pool.truncate(&mut packet, len);
        }
        if fate.is_duplicated {
            // The copy that `heard` counted belongs to `duplicated`.
            self.fates.heard -= 1;
            if let Some(copy) = copy {
                self.fates.duplicated += 1;
                self.schedule(to, copy, self.delay + fate.copy_delay);
            }
        }
        self.fates.delayed += u64::from(fate.delay > Span::ZERO);
        self.schedule(to, packet, self.delay + fate.delay);
    }

    fn schedule(&mut self, to: usize, packet: Packet, delay: Span) {
        self.flights.insert((self.now + delay, self.sequence), InFlightPacket { to, packet });
        self.sequence += 1;
    }

    /// Hands the machines what arrives now, each in batches.
    fn deliver_due(&mut self) {
        let later = self.flights.split_off(&(self.now + Span::from_ps(1), 0));
        let due = std::mem::replace(&mut self.flights, later);
        let mut batches: Vec<Vec<Packet>> = self.machines.iter().map(|_| Vec::new()).collect();
        for (_, InFlightPacket { to, mut packet }) in due {
            packet.meta = PacketMeta { received: self.now, ..PacketMeta::default() };
            self.fates.delivered += 1;
            batches[to].push(packet);
        }
        for (machine, batch) in self.machines.iter_mut().zip(&mut batches) {
            if !batch.is_empty() {
                machine.handle_packets(self.now, PORT, batch, &mut self.pool);
                assert!(batch.is_empty(), "every packet is taken");
            }
        }
    }
}
