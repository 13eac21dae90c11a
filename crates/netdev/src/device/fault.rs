//! A device whose link is hostile: it loses, bursts, reorders, duplicates, corrupts and truncates.
//!
//! Each kind of fault draws from a stream of its own, so that changing one leaves the others where
//! they were, and the same seed and packets give the same faults.

use std::os::fd::BorrowedFd;

use plumb_base::seed::{RandomStream, Seed};
use plumb_base::time::{Instant, Span};
use plumb_wire::checksum;
use plumb_wire::packet::{Batch, ChecksumState, Packet, Pool};
use rand::RngExt as _;

use super::{Device, DeviceError, DeviceLayer};

/// Longest time for which a packet is held back when no other one passes it.
const HELD_MAX: Span = Span::from_ms(1);

/// How often a packet meets which fault: probabilities from 0 to 1, each packet on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    /// Lost alone.
    pub lose: f64,
    /// A burst of losses begins.
    pub burst_begin: f64,
    /// Having begun, it ends: all packets before that are lost (Gilbert 1960, with all lost in the
    /// bad state).
    pub burst_end: f64,
    /// Cut at a random length.
    pub truncate: f64,
    /// One random bit inverted.
    pub corrupt: f64,
    /// Delivered twice.
    pub duplicate: f64,
    /// Held back until `distance` others have passed.
    pub reorder: f64,
    /// How many pass one that is held back.
    pub reorder_distance: u32,
}

/// What happened to packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Packets that came to the link.
    pub offered: u64,
    /// Lost alone.
    pub lost: u64,
    /// Lost in bursts.
    pub lost_in_bursts: u64,
    /// Cut.
    pub truncated: u64,
    /// Corrupted.
    pub corrupted: u64,
    /// Delivered twice: copies made.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
}

/// One direction of a hostile link.
#[derive(Debug)]
struct FaultyDirection {
    faults: FaultRates,
    lose: RandomStream,
    burst: RandomStream,
    truncate: RandomStream,
    corrupt: RandomStream,
    duplicate: RandomStream,
    reorder: RandomStream,
    in_burst: bool,
    /// Packets held back, and how many others have still to pass.
    held: Vec<(u32, Packet)>,
    counters: FaultCounters,
}

impl FaultyDirection {
    fn new(faults: FaultRates, seed: Seed) -> Self {
        Self {
            faults,
            lose: seed.stream("lose"),
            burst: seed.stream("burst"),
            truncate: seed.stream("truncate"),
            corrupt: seed.stream("corrupt"),
            duplicate: seed.stream("duplicate"),
            reorder: seed.stream("reorder"),
            in_burst: false,
            held: Vec::new(),
            counters: FaultCounters::default(),
        }
    }

    /// Lets the packets of `batch` from `from` on pass the link.
    fn apply(&mut self, batch: &mut Batch, from: usize, pool: &mut Pool) {
        let arriving: Vec<Packet> = batch.drain(from..).collect();
        for mut packet in arriving {
            self.counters.offered += 1;
            if self.is_lost() {
                pool.free(packet);
                continue;
            }
            self.damage(&mut packet, pool);
            let twin = chance(&mut self.duplicate, self.faults.duplicate)
                .then(|| copy(&packet, pool))
                .flatten();
            if chance(&mut self.reorder, self.faults.reorder) {
                self.counters.reordered += 1;
                self.held.push((self.faults.reorder_distance.max(1), packet));
            } else {
                batch.push(packet);
                self.release_due(batch);
            }
            if let Some(twin) = twin {
                self.counters.duplicated += 1;
                batch.push(twin);
                self.release_due(batch);
            }
        }
    }

    fn is_lost(&mut self) -> bool {
        let ends = if self.in_burst { self.faults.burst_end } else { self.faults.burst_begin };
        self.in_burst ^= chance(&mut self.burst, ends);
        let alone = chance(&mut self.lose, self.faults.lose);
        self.counters.lost_in_bursts += u64::from(self.in_burst);
        self.counters.lost += u64::from(alone && !self.in_burst);
        self.in_burst || alone
    }

    fn damage(&mut self, packet: &mut Packet, pool: &mut Pool) {
        let truncates = chance(&mut self.truncate, self.faults.truncate);
        let corrupts = chance(&mut self.corrupt, self.faults.corrupt);
        if packet.is_empty() || !(truncates || corrupts) {
            return;
        }
        complete_checksum(packet, pool);
        if truncates {
            self.counters.truncated += 1;
            let len = self.truncate.random_range(0..packet.len());
            pool.truncate(packet, len);
        }
        if corrupts && !packet.is_empty() {
            self.counters.corrupted += 1;
            let bit = self.corrupt.random_range(0..8 * packet.len());
            pool.bytes_mut(packet)[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// Counts one packet past those that are held back, and lets out those whose turn it is.
    fn release_due(&mut self, batch: &mut Batch) {
        for (others, _) in &mut self.held {
            *others -= 1;
        }
        batch
            .extend(self.held.extract_if(.., |(others, _)| *others == 0).map(|(_, packet)| packet));
    }

    /// Lets out all that is held back.
    fn release_all(&mut self, batch: &mut Batch) {
        batch.extend(self.held.drain(..).map(|(_, packet)| packet));
    }
}

fn chance(stream: &mut RandomStream, probability: f64) -> bool {
    // Drawn whether or not it can happen: a stream's place depends on the packets alone.
    stream.random::<f64>() < probability
}

/// Makes of a packet what it would be on a wire, where damage can be told: its checksum complete, and
/// nothing known about it.
fn complete_checksum(packet: &mut Packet, pool: &mut Pool) {
    if let ChecksumState::Partial { start, offset } = packet.meta.checksum {
        let bytes = pool.bytes_mut(packet);
        checksum::complete(bytes, usize::from(start), usize::from(offset));
    }
    packet.meta.checksum = ChecksumState::Plain;
    packet.meta.segments = None;
}

/// A second packet like this one; `None` when no frame is free for it.
fn copy(packet: &Packet, pool: &mut Pool) -> Option<Packet> {
    let bytes = pool.bytes(packet).to_vec();
    let mut twin = pool.packet_of(&bytes)?;
    twin.meta = packet.meta;
    Some(twin)
}

/// A device behind a hostile link.
#[derive(Debug)]
pub struct FaultyDevice<D> {
    device: D,
    rx: FaultyDirection,
    tx: FaultyDirection,
}

impl<D: Device> FaultyDevice<D> {
    /// A device with these faults on what it receives and on what it sends.
    pub fn new(device: D, rx: FaultRates, tx: FaultRates, seed: Seed) -> Self {
        let direction = |faults, label| FaultyDirection::new(faults, seed.derive(label));
        Self { device, rx: direction(rx, "fault.rx"), tx: direction(tx, "fault.tx") }
    }

    /// What happened to packets received, and to packets sent.
    pub fn faults(&self) -> (FaultCounters, FaultCounters) {
        (self.rx.counters, self.tx.counters)
    }

    /// The device itself.
    pub fn device(&self) -> &D {
        &self.device
    }
}

impl<D: Device> DeviceLayer for FaultyDevice<D> {
    type Below = D;

    #[inline]
    fn below(&self) -> &D {
        &self.device
    }

    #[inline]
    fn below_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// May append a few more than `max`: duplicates, and what was held back.
    fn receive_through(
        &mut self,
        now: Instant,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    ) -> Result<usize, DeviceError> {
        let from = batch.len();
        let result = self.device.receive(now, batch, max, pool);
        if batch.len() == from {
            self.rx.release_all(batch);
        } else {
            self.rx.apply(batch, from, pool);
        }
        match result {
            // Frames that were held back come before the end.
            Err(DeviceError::Finished) if batch.len() > from => Ok(batch.len() - from),
            result => result.map(|_| batch.len() - from),
        }
    }

    fn transmit_through(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), DeviceError> {
        self.tx.apply(batch, 0, pool);
        self.device.transmit(batch, pool)
    }

    fn wait_through(
        &mut self,
        timeout: Option<Span>,
        pool: &mut Pool,
    ) -> Result<bool, DeviceError> {
        if self.rx.held.is_empty() && self.tx.held.is_empty() {
            return self.device.wait(timeout, pool);
        }
        let at_most = timeout.map_or(HELD_MAX, |timeout| timeout.min(HELD_MAX));
        if self.device.wait(Some(at_most), pool)? {
            return Ok(true);
        }
        let mut late = Vec::new();
        self.tx.release_all(&mut late);
        if !late.is_empty() {
            self.device.transmit(&mut late, pool)?;
        }
        Ok(!self.rx.held.is_empty())
    }

    fn fd_through(&self) -> Option<BorrowedFd<'_>> {
        // Frames that are held back do not make the descriptor readable.
        if self.rx.held.is_empty() && self.tx.held.is_empty() { self.device.fd() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use plumb_wire::machine::{DeviceCapabilities, Medium};
    use plumb_wire::packet::PoolConfig;

    use super::*;
    use crate::device::DeviceWait;
    use crate::device::memory::{MemoryDevice, loopback};

    const SEED: Seed = Seed(0x5eed);
    const COUNT: u32 = 20_000;

    fn link(rx: FaultRates) -> FaultyDevice<MemoryDevice> {
        let plain = DeviceCapabilities::plain(Medium::Ethernet, 1_500);
        FaultyDevice::new(loopback(plain, DeviceWait::Spin), rx, FaultRates::default(), SEED)
    }

    /// Sends numbered packets over a link; what comes out of it.
    fn cross(link: &mut FaultyDevice<MemoryDevice>, pool: &mut Pool) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let mut batch = Vec::new();
        let mut take = |link: &mut FaultyDevice<MemoryDevice>, pool: &mut Pool| {
            link.receive(Instant::ORIGIN, &mut batch, 8, pool).unwrap();
            out.extend(batch.iter().map(|packet| pool.bytes(packet).to_vec()));
            pool.free_all(&mut batch);
        };
        for number in 0..COUNT {
            let packet = pool.packet_of(&number.to_be_bytes()).unwrap();
            link.transmit(&mut vec![packet], pool).unwrap();
            take(link, pool);
        }
        // Let out what is held back.
        while link.wait(None, pool).unwrap() {
            take(link, pool);
        }
        assert_eq!(pool.available(), (64, 0), "every frame came back; seed {SEED:?}");
        out
    }

    fn run(faults: FaultRates) -> (Vec<Vec<u8>>, FaultCounters) {
        let mut pool = Pool::new(PoolConfig { count: 64, size: 256, large: 0 });
        let mut link = link(faults);
        let out = cross(&mut link, &mut pool);
        (out, link.faults().0)
    }

    fn numbers(out: &[Vec<u8>]) -> Vec<u32> {
        out.iter().map(|bytes| u32::from_be_bytes(bytes[..].try_into().unwrap())).collect()
    }

    #[test]
    fn a_link_without_faults_changes_nothing() {
        let (out, counters) = run(FaultRates::default());
        assert_eq!(numbers(&out), (0..COUNT).collect::<Vec<_>>());
        assert_eq!(counters, FaultCounters { offered: COUNT.into(), ..FaultCounters::default() });
    }

    #[test]
    fn losses_are_as_frequent_as_asked_and_bursts_as_long() {
        let (out, counters) = run(FaultRates { lose: 0.1, ..FaultRates::default() });
        assert_eq!(out.len() as u64 + counters.lost, u64::from(COUNT));
        // 2,000 expected, standard deviation 42.
        assert!((1_800..2_200).contains(&counters.lost), "{counters:?}; seed {SEED:?}");

        let faults = FaultRates { burst_begin: 0.01, burst_end: 0.2, ..FaultRates::default() };
        let (out, counters) = run(faults);
        assert_eq!(out.len() as u64 + counters.lost_in_bursts, u64::from(COUNT));
        let arrived = numbers(&out);
        let bursts = arrived.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        let mean = counters.lost_in_bursts as f64 / bursts as f64;
        // 1 / 0.2 packets long.
        assert!((4.0..6.0).contains(&mean), "{mean}; seed {SEED:?}");
    }

    #[test]
    fn nothing_is_lost_or_made_by_reordering_and_duplicating_but_what_is_counted() {
        let faults = FaultRates {
            reorder: 0.05,
            reorder_distance: 3,
            duplicate: 0.05,
            ..FaultRates::default()
        };
        let (out, counters) = run(faults);
        assert_eq!(out.len() as u64, u64::from(COUNT) + counters.duplicated);
        let mut arrived = numbers(&out);
        let late = arrived.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
        assert!(counters.reordered > 500 && late > counters.reordered / 2, "{late} {counters:?}");
        arrived.sort_unstable();
        arrived.dedup();
        assert_eq!(arrived.len(), COUNT as usize);
    }

    #[test]
    fn damage_is_one_bit_or_a_cut_and_the_same_for_the_same_seed() {
        let faults = FaultRates { corrupt: 0.05, truncate: 0.05, ..FaultRates::default() };
        let (out, counters) = run(faults);
        assert_eq!(out.len(), COUNT as usize);
        let cut = out.iter().filter(|bytes| bytes.len() < 4).count() as u64;
        assert_eq!(cut, counters.truncated);
        let flipped: u64 = out
            .iter()
            .zip(0..COUNT)
            .filter(|(bytes, _)| bytes.len() == 4)
            .map(|(bytes, number)| {
                let got = u32::from_be_bytes(bytes[..].try_into().unwrap());
                u64::from((got ^ number).count_ones())
            })
            .sum();
        assert!(flipped > 500 && flipped <= counters.corrupted, "{flipped} {counters:?}");
        assert_eq!(run(faults).0, out);
    }

    #[test]
    fn one_fault_more_leaves_the_others_where_they_were() {
        let losing = FaultRates { lose: 0.1, ..FaultRates::default() };
        let (without, _) = run(losing);
        let (with, _) = run(FaultRates { duplicate: 0.1, ..losing });
        let mut with = numbers(&with);
        with.dedup();
        assert_eq!(with, numbers(&without));
    }

    #[test]
    fn damage_can_be_told_because_the_checksum_is_completed_before_it() {
        let mut pool = Pool::new(PoolConfig { count: 4, size: 256, large: 0 });
        let mut link = link(FaultRates { corrupt: 1.0, ..FaultRates::default() });
        let mut packet = pool.packet_of(&[0x12, 0x34, 0, 0]).unwrap();
        packet.meta.checksum = ChecksumState::Partial { start: 0, offset: 2 };
        link.transmit(&mut vec![packet], &mut pool).unwrap();
        let mut batch = Vec::new();
        link.receive(Instant::ORIGIN, &mut batch, 1, &mut pool).unwrap();
        assert_eq!(batch[0].meta.checksum, ChecksumState::Plain);
        let whole = u32::from_be_bytes([0x12, 0x34, 0xed, 0xcb]);
        let got = u32::from_be_bytes(pool.bytes(&batch[0]).try_into().unwrap());
        assert_eq!((got ^ whole).count_ones(), 1);
        pool.free_all(&mut batch);
    }
}
