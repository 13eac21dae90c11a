//! Frames from memory, once or for ever, as fast as they are taken.
//!
//! Each is copied into a frame of the pool, which is part of what this device costs; what is sent is
//! counted and freed.

use std::ops::Range;
use std::path::Path;

use plumb_base::time::{Instant, Span};
use plumb_wire::capture::{CaptureError, CaptureReader, CapturedPacket};
use plumb_wire::machine::DeviceCapabilities;
use plumb_wire::packet::{Batch, HEADROOM, LARGE_FRAME, Pool};

use crate::device::{Device, DeviceCounters, DeviceError, DeviceInfo, DeviceOpenError};

/// Longest frame that a packet holds.
pub const FRAME_MAX: usize = LARGE_FRAME - HEADROOM;

/// How often all frames are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayCount {
    /// So many times.
    Times(u64),
    /// For ever.
    Forever,
}

/// A device at which given frames arrive.
#[derive(Debug)]
pub struct ReplaySource {
    info: DeviceInfo,
    bytes: Vec<u8>,
    /// Where each frame lies in the bytes.
    frames: Vec<Range<usize>>,
    /// The next frame.
    next: usize,
    /// Rounds left, this one included; none is for ever.
    rounds: Option<u64>,
    counters: DeviceCounters,
}

impl ReplaySource {
    /// These frames, as fast as they are taken.
    pub fn new<'a>(
        capabilities: DeviceCapabilities,
        frames: impl IntoIterator<Item = &'a [u8]>,
        repeat: ReplayCount,
    ) -> Self {
        let mut bytes = Vec::new();
        let mut ranges = Vec::new();
        for frame in frames {
            let start = bytes.len();
            bytes.extend_from_slice(frame);
            ranges.push(start..bytes.len());
        }
        let rounds = match repeat {
            ReplayCount::Forever => None,
            ReplayCount::Times(times) => Some(times),
        };
        let info = DeviceInfo { name: "memory".to_owned(), capabilities, mac: None };
        let counters = DeviceCounters::default();
        Self { info, bytes, frames: ranges, next: 0, rounds, counters }
    }

    fn is_finished(&self) -> bool {
        self.rounds == Some(0) || self.frames.is_empty()
    }
}

impl Device for ReplaySource {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// # Errors
    /// [`DeviceError::Finished`] after the last frame of the last round.
    #[inline]
    fn receive(
        &mut self,
        now: Instant,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    ) -> Result<usize, DeviceError> {
        let mut count = 0;
        for _ in 0..max {
            if self.is_finished() {
                if count > 0 {
                    break;
                }
                return Err(DeviceError::Finished);
            }
            let range = self.frames[self.next].clone();
            if let Some(mut packet) = pool.packet_of(&self.bytes[range.clone()]) {
                packet.meta.received = now;
                self.counters.rx_packets += 1;
                self.counters.rx_bytes += packet.len() as u64;
                batch.push(packet);
                count += 1;
            } else if !fits(pool, range.len()) {
                self.counters.rx_dropped += 1;
            } else {
                // It comes when there is room.
                break;
            }
            self.next += 1;
            if self.next == self.frames.len() {
                self.next = 0;
                self.rounds = self.rounds.map(|rounds| rounds - 1);
            }
        }
        Ok(count)
    }

    #[inline]
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), DeviceError> {
        self.counters.tx_packets += batch.len() as u64;
        for packet in batch.drain(..) {
            self.counters.tx_bytes += packet.len() as u64;
            pool.free(packet);
        }
        Ok(())
    }

    fn wait(&mut self, _: Option<Span>, _: &mut Pool) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}

/// Whether a pool has frames that can hold so many bytes, free or not.
fn fits(pool: &Pool, len: usize) -> bool {
    let frames = pool.frames();
    let max = if frames.large > 0 { LARGE_FRAME } else { frames.size as usize };
    HEADROOM + len <= max
}

/// Largest IP packet that may be sent to a capture.
const MTU: u32 = 1_500;

/// A device at which the frames of a capture file arrive once; what is sent is counted and freed.
///
/// The file is read into memory first, so that no disk is in what is measured.
///
/// # Errors
/// When the file cannot be read, is no capture or not whole, is empty, or is of a medium that is not
/// known here.
pub fn open(path: &Path) -> Result<ReplaySource, DeviceOpenError> {
    let shown = path.display();
    let file = std::fs::read(path)
        .map_err(|source| DeviceOpenError::request(format!("cannot read {shown}: {source}")))?;
    let records = read(path, &file)?;
    let Some(first) = records.first() else {
        return Err(DeviceOpenError::request(format!("{shown} holds no packets")));
    };
    let medium_of = |record: &CapturedPacket<'_>| {
        record.link_type.medium().ok_or_else(|| {
            DeviceOpenError::request(format!(
                "{shown} holds frames of link type {}: only Ethernet (1) and raw IP (101, 228, 229) \
                 are known",
                record.link_type.0
            ))
        })
    };
    let medium = medium_of(first)?;
    for record in &records {
        if medium_of(record)? != medium {
            return Err(DeviceOpenError::request(format!(
                "{shown} holds frames of several media: choose one with `editcap`"
            )));
        }
    }
    let frames = records.iter().map(|record| record.bytes);
    let capabilities = DeviceCapabilities::plain(medium, MTU);
    let mut source = ReplaySource::new(capabilities, frames, ReplayCount::Times(1));
    source.info.name = format!("pcap:{shown}");
    Ok(source)
}

fn read<'a>(path: &Path, file: &'a [u8]) -> Result<Vec<CapturedPacket<'a>>, DeviceOpenError> {
    let wrong = |whole: usize, source: CaptureError| {
        let shown = path.display();
        let fix = match source {
            CaptureError::Truncated { .. } | CaptureError::Damaged { .. } => {
                format!("; `editcap {shown} OUT` keeps what is whole")
            }
            CaptureError::Foreign(_) | CaptureError::Version { .. } => String::new(),
        };
        DeviceOpenError::request(format!("{shown}, after {whole} whole packets: {source}{fix}"))
    };
    let mut records = Vec::new();
    for record in CaptureReader::new(file).map_err(|error| wrong(0, error))? {
        records.push(record.map_err(|error| wrong(records.len(), error))?);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use plumb_wire::capture::LinkType;
    use plumb_wire::machine::Medium;
    use plumb_wire::packet::PoolConfig;
    use plumb_wire::{pcap, pcapng};

    use super::*;

    const PLAIN: DeviceCapabilities = DeviceCapabilities::plain(Medium::Ethernet, 1_500);

    fn take(source: &mut ReplaySource, pool: &mut Pool, now: Instant, max: usize) -> Vec<Vec<u8>> {
        let mut batch = Vec::new();
        source.receive(now, &mut batch, max, pool).unwrap();
        let taken = batch.iter().map(|packet| pool.bytes(packet).to_vec()).collect();
        source.transmit(&mut batch, pool).unwrap();
        taken
    }

    #[test]
    fn frames_come_in_order_as_many_times_as_asked_and_then_no_more() {
        let mut pool = Pool::new(PoolConfig::default());
        let frames: [&[u8]; 2] = [b"one", b"two"];
        let mut source = ReplaySource::new(PLAIN, frames, ReplayCount::Times(2));
        assert_eq!(take(&mut source, &mut pool, Instant::ORIGIN, 3), [b"one", b"two", b"one"]);
        assert_eq!(take(&mut source, &mut pool, Instant::ORIGIN, 3), [b"two"]);
        let end = source.receive(Instant::ORIGIN, &mut Vec::new(), 3, &mut pool);
        assert!(matches!(end, Err(DeviceError::Finished)), "{end:?}");
        let counters = source.counters();
        assert_eq!((counters.rx_packets, counters.rx_bytes), (4, 12));
        assert_eq!((counters.tx_packets, counters.tx_bytes), (4, 12));
        assert_eq!(pool.available().0, 1_024);
    }

    #[test]
    fn one_frame_for_ever_waits_for_room_and_is_never_dropped() {
        let mut pool = Pool::new(PoolConfig { count: 3, size: 256, large: 0 });
        let frames: [&[u8]; 1] = [b"frame"];
        let mut source = ReplaySource::new(PLAIN, frames, ReplayCount::Forever);
        let mut batch = Vec::new();
        assert_eq!(source.receive(Instant::ORIGIN, &mut batch, 8, &mut pool).unwrap(), 3);
        assert_eq!(source.counters().rx_dropped, 0);
        pool.free_all(&mut batch);
        assert_eq!(source.receive(Instant::ORIGIN, &mut batch, 2, &mut pool).unwrap(), 2);
        pool.free_all(&mut batch);
    }

    #[test]
    fn a_frame_that_no_pool_frame_holds_is_dropped_and_passed_over() {
        let mut pool = Pool::new(PoolConfig { count: 3, size: 256, large: 0 });
        let frames: [&[u8]; 2] = [&[0; 200], b"frame"];
        let mut source = ReplaySource::new(PLAIN, frames, ReplayCount::Forever);
        assert_eq!(take(&mut source, &mut pool, Instant::ORIGIN, 4), [b"frame", b"frame"]);
        assert_eq!(source.counters().rx_dropped, 2);
    }

    fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn the_frames_of_a_file_come_once_and_then_the_device_is_at_its_end() {
        let mut bytes = Vec::new();
        pcap::begin(&mut bytes, LinkType::RAW);
        pcap::packet(&mut bytes, 1_000, b"first");
        pcap::packet(&mut bytes, 2_000, b"second");
        let file = file_of(&bytes);
        let mut device = open(file.path()).unwrap();
        assert_eq!(device.info().capabilities.medium, Medium::Ip);
        let mut pool = Pool::new(PoolConfig::default());
        let mut batch = Vec::new();
        assert_eq!(device.receive(Instant::ORIGIN, &mut batch, 8, &mut pool).unwrap(), 2);
        assert_eq!(pool.bytes(&batch[1]), b"second");
        let end = device.receive(Instant::ORIGIN, &mut batch, 8, &mut pool);
        assert!(matches!(end, Err(DeviceError::Finished)), "{end:?}");
    }

    #[test]
    fn trouble_with_a_file_names_the_file_and_what_to_do() {
        let said = |bytes: &[u8]| {
            let file = file_of(bytes);
            let said = open(file.path()).unwrap_err().to_string();
            assert!(said.contains(file.path().to_str().unwrap()), "{said}");
            said
        };
        let mut bytes = Vec::new();
        pcap::begin(&mut bytes, LinkType::ETHERNET);
        assert!(said(&bytes).ends_with("holds no packets"));
        pcap::packet(&mut bytes, 0, b"frame");
        let cut = said(&bytes[..bytes.len() - 1]);
        assert!(cut.contains("after 0 whole packets") && cut.contains("editcap"), "{cut}");
        assert!(said(b"frames, frames").contains("not a pcap"));
        let mut bytes = Vec::new();
        pcap::begin(&mut bytes, LinkType(105));
        pcap::packet(&mut bytes, 0, b"frame");
        assert!(said(&bytes).contains("link type 105"));
        let mut bytes = Vec::new();
        pcapng::begin(&mut bytes, "test");
        pcapng::interface(&mut bytes, LinkType::ETHERNET, "a", 0);
        pcapng::interface(&mut bytes, LinkType::RAW, "b", 0);
        pcapng::packet(&mut bytes, 0, 0, None, b"frame");
        pcapng::packet(&mut bytes, 1, 0, None, b"packet");
        assert!(said(&bytes).contains("several media"));
        let absent = open(Path::new("/nowhere/at.all")).unwrap_err();
        assert!(absent.to_string().starts_with("cannot read /nowhere/at.all"), "{absent}");
    }
}
