//! Frames from memory, once or for ever, as fast as they are taken or by their own times.
//!
//! Each is copied into a frame of the pool, which is part of what this device costs; what is sent is
//! counted and freed.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use plumb_base::time::{Instant, Span};
use plumb_sys::timer;
use plumb_wire::capture::{CaptureError, CaptureReader, CapturedPacket, LinkType};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::DeviceCapabilities;
use plumb_wire::packet::{Batch, HEADROOM, LARGE_FRAME, Pool};

use crate::device::{Device, DeviceCounters, DeviceError};

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
    name: String,
    capabilities: DeviceCapabilities,
    bytes: Vec<u8>,
    frames: Vec<ReplayFrame>,
    /// The next frame.
    next: usize,
    /// Rounds left, this one included; none is for ever.
    rounds: Option<u64>,
    /// Whether frames wait for their time.
    paced: bool,
    /// When this round's first frame came.
    began: Option<Instant>,
    /// The last moment that a caller told.
    now: Instant,
    counters: DeviceCounters,
}

/// A frame: where its bytes are, and when it comes, from the first.
#[derive(Clone, Debug)]
struct ReplayFrame {
    range: Range<usize>,
    after: Span,
}

impl ReplaySource {
    /// These frames, as fast as they are taken.
    pub fn new<'a>(
        capabilities: DeviceCapabilities,
        frames: impl IntoIterator<Item = &'a [u8]>,
        repeat: ReplayCount,
    ) -> Self {
        let frames = frames.into_iter().map(|bytes| (Span::ZERO, bytes));
        Self::with("memory".to_owned(), capabilities, frames, repeat, false)
    }

    /// These frames, each so long after the first.
    pub fn paced<'a>(
        capabilities: DeviceCapabilities,
        frames: impl IntoIterator<Item = (Span, &'a [u8])>,
        repeat: ReplayCount,
    ) -> Self {
        Self::with("memory".to_owned(), capabilities, frames, repeat, true)
    }

    pub(in crate::device) fn with<'a>(
        name: String,
        capabilities: DeviceCapabilities,
        frames: impl IntoIterator<Item = (Span, &'a [u8])>,
        repeat: ReplayCount,
        paced: bool,
    ) -> Self {
        let mut bytes = Vec::new();
        let mut list = Vec::new();
        for (after, frame) in frames {
            let start = bytes.len();
            bytes.extend_from_slice(frame);
            list.push(ReplayFrame { range: start..bytes.len(), after });
        }
        let rounds = match repeat {
            ReplayCount::Forever => None,
            ReplayCount::Times(times) => Some(times),
        };
        Self {
            name,
            capabilities,
            bytes,
            frames: list,
            next: 0,
            rounds,
            paced,
            began: None,
            now: Instant::ORIGIN,
            counters: DeviceCounters::default(),
        }
    }

    fn is_finished(&self) -> bool {
        self.rounds == Some(0) || self.frames.is_empty()
    }

    /// How long until the next frame's time.
    fn due_in(&self, now: Instant) -> Span {
        match (self.paced, self.began, self.frames.get(self.next)) {
            (true, Some(began), Some(frame)) => (began + frame.after).saturating_since(now),
            _ => Span::ZERO,
        }
    }
}

impl Device for ReplaySource {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities
    }

    fn mac(&self) -> Option<MacAddr> {
        None
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
        self.now = now;
        let mut count = 0;
        for _ in 0..max {
            if self.is_finished() {
                if count > 0 {
                    break;
                }
                return Err(DeviceError::Finished);
            }
            if self.paced {
                self.began.get_or_insert(now);
                if self.due_in(now) > Span::ZERO {
                    break;
                }
            }
            let range = self.frames[self.next].range.clone();
            if let Some(mut packet) = pool.packet_of(&self.bytes[range.clone()]) {
                packet.meta.received = now;
                self.counters.rx_packets += 1;
                self.counters.rx_bytes += packet.len() as u64;
                batch.push(packet);
                count += 1;
            } else if self.paced || !fits(pool, range.len()) {
                // It came, and nobody had room for it.
                self.counters.rx_dropped += 1;
            } else {
                // It comes when there is room.
                break;
            }
            self.next += 1;
            if self.next == self.frames.len() {
                self.next = 0;
                self.began = None;
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

    /// Sleeps until the next frame's time; there is always one at once where frames are not paced.
    fn wait(&mut self, timeout: Option<Span>, _: &mut Pool) -> Result<bool, DeviceError> {
        let due = self.due_in(self.now);
        let nap = timeout.map_or(due, |timeout| due.min(timeout));
        if nap > Span::ZERO && !self.is_finished() {
            self.counters.calls += 1;
            if !timer::sleep_ns(nap.as_ps().div_ceil(1_000)) {
                return Ok(false);
            }
        }
        Ok(due <= nap)
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

/// How a capture is replayed.
///
/// The file is read into memory first, so that no disk is in what is measured. What is sent is counted and freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcapOptions {
    /// How often.
    pub repeat: ReplayCount,
    /// By the file's own times instead of as fast as frames are taken.
    pub paced: bool,
    /// Largest IP packet that may be sent.
    pub mtu: u32,
}

impl Default for PcapOptions {
    fn default() -> Self {
        Self { repeat: ReplayCount::Times(1), paced: false, mtu: 1_500 }
    }
}

/// Why a capture cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// It is no capture, or a damaged one.
    #[error("{}, after {whole} whole packets: {source}{}", path.display(), fix(source, path))]
    Capture {
        /// The file.
        path: PathBuf,
        /// Packets before the trouble.
        whole: usize,
        /// What is wrong.
        source: CaptureError,
    },
    /// Nothing in it.
    #[error("{} holds no packets", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Frames of a kind that no host here can be on the medium of.
    #[error(
        "{} holds frames of link type {}: only Ethernet (1) and raw IP (101, 228, 229) are known",
        path.display(), link_type.0
    )]
    LinkType {
        /// The file.
        path: PathBuf,
        /// The kind.
        link_type: LinkType,
    },
    /// Frames of more than one medium.
    #[error("{} holds frames of several media: choose one with `editcap`", path.display())]
    Mixed {
        /// The file.
        path: PathBuf,
    },
}

fn fix(error: &CaptureError, path: &Path) -> String {
    match error {
        CaptureError::Truncated { .. } | CaptureError::Damaged { .. } => {
            format!("; `editcap {} OUT` keeps what is whole", path.display())
        }
        CaptureError::Foreign(_) | CaptureError::Version { .. } => String::new(),
    }
}

/// A device at which the frames of a capture file arrive.
///
/// # Errors
/// When the file cannot be read, is no capture or not whole, is empty, or is of a medium that is not
/// known here.
pub fn open(path: &Path, settings: PcapOptions) -> Result<ReplaySource, PcapError> {
    let file =
        std::fs::read(path).map_err(|source| PcapError::Read { path: path.to_owned(), source })?;
    let records = read(path, &file)?;
    let Some(first) = records.first() else {
        return Err(PcapError::Empty { path: path.to_owned() });
    };
    let mut media = records.iter().map(|record| {
        let link_type = record.link_type;
        link_type.medium().ok_or(PcapError::LinkType { path: path.to_owned(), link_type })
    });
    let medium = media.next().expect("a first record")?;
    for other in media {
        if other? != medium {
            return Err(PcapError::Mixed { path: path.to_owned() });
        }
    }
    let frames = records
        .iter()
        .map(|record| (Span::from_ns(record.time_ns.saturating_sub(first.time_ns)), record.bytes));
    let capabilities = DeviceCapabilities::plain(medium, settings.mtu);
    let name = format!("pcap:{}", path.display());
    Ok(ReplaySource::with(name, capabilities, frames, settings.repeat, settings.paced))
}

fn read<'a>(path: &Path, file: &'a [u8]) -> Result<Vec<CapturedPacket<'a>>, PcapError> {
    let wrong = |whole, source| PcapError::Capture { path: path.to_owned(), whole, source };
    let mut records = Vec::new();
    for record in CaptureReader::new(file).map_err(|error| wrong(0, error))? {
        records.push(record.map_err(|error| wrong(records.len(), error))?);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn paced_frames_keep_their_distance_in_every_round() {
        let mut pool = Pool::new(PoolConfig::default());
        let ms = |ms| Instant::ORIGIN + Span::from_ms(ms);
        let frames: [(Span, &[u8]); 2] = [(Span::ZERO, b"one"), (Span::from_ms(10), b"two")];
        let mut source = ReplaySource::paced(PLAIN, frames, ReplayCount::Times(2));
        assert_eq!(take(&mut source, &mut pool, ms(100), 8), [b"one"]);
        assert!(take(&mut source, &mut pool, ms(109), 8).is_empty());
        assert!(!source.wait(Some(Span::from_us(100)), &mut pool).unwrap(), "1 ms is left");
        // The second round begins with the frame that ends the first.
        assert_eq!(take(&mut source, &mut pool, ms(110), 8), [b"two", b"one"]);
        assert_eq!(take(&mut source, &mut pool, ms(120), 8), [b"two"]);
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
        let mut device = open(file.path(), PcapOptions::default()).unwrap();
        assert_eq!(device.capabilities().medium, Medium::Ip);
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
            let said = open(file.path(), PcapOptions::default()).unwrap_err().to_string();
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
        let absent = open(Path::new("/nowhere/at.all"), PcapOptions::default()).unwrap_err();
        assert!(absent.to_string().starts_with("cannot read /nowhere/at.all"), "{absent}");
    }
}
