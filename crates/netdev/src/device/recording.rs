//! A device whose packets are recorded as a pcapng file, both ways.
//!
//! Packets are recorded as they would be on a wire: a checksum that was left to the other side is
//! completed in the copy; a super-segment is one long packet.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use plumb_base::time::{Instant, Span};
use plumb_clock::InstantClock;
use plumb_sys::clock::{self, ClockId};
use plumb_wire::capture::CaptureDirection;
use plumb_wire::packet::{Batch, ChecksumState, Packet, Pool};
use plumb_wire::{checksum, pcapng};

use super::{Device, DeviceError, DeviceLayer};

/// Bytes that are kept before they are written.
const BUFFER: usize = 64 << 10;
/// How long they are kept while nothing else happens.
const FLUSH_AFTER: Span = Span::from_ms(100);

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedDirections {
    /// All.
    Both,
    /// Only what is sent.
    Sent,
}

/// What happens to a device whose recording cannot be written any more.
enum RecordFailurePolicy {
    /// It fails too.
    Fail,
    /// It goes on, and somebody is told.
    Notify(Box<dyn FnOnce(&DeviceError) + Send>),
    /// It went on.
    Notified,
}

impl fmt::Debug for RecordFailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fail => "Fail",
            Self::Notify(_) => "Tell",
            Self::Notified => "Told",
        })
    }
}

/// A device, and the file that its packets are recorded in.
///
/// What is not written yet is written when nothing happens, and when the recorder is dropped.
#[derive(Debug)]
pub struct RecordingDevice<D> {
    device: D,
    file: File,
    path: PathBuf,
    what: RecordedDirections,
    timeline: InstantClock,
    /// Nanoseconds from 1970 to the timeline's origin.
    origin_ns: u64,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    flushed: Instant,
    /// Bytes of the file, of whole packets.
    written: u64,
    on_failure: RecordFailurePolicy,
}

impl<D: Device> RecordingDevice<D> {
    /// Begins a new file, in the place of one that is there. The timeline is that of `now`.
    ///
    /// # Errors
    /// When the file cannot be made or written.
    pub fn new(
        device: D,
        path: &Path,
        what: RecordedDirections,
        timeline: InstantClock,
    ) -> io::Result<Self> {
        let mut file = File::create(path)?;
        let mut buffer = Vec::with_capacity(2 * BUFFER);
        pcapng::begin(&mut buffer, concat!("plumb ", env!("CARGO_PKG_VERSION")));
        let info = device.info();
        pcapng::interface(&mut buffer, info.capabilities.medium.into(), &info.name, 0);
        // A file that cannot be written to fails here, not later.
        file.write_all(&buffer)?;
        let written = buffer.len() as u64;
        buffer.clear();
        let now = timeline.now();
        let origin_ns =
            clock::read_ns(ClockId::Realtime).saturating_sub(now.since_origin().as_ns());
        Ok(Self {
            device,
            file,
            path: path.to_owned(),
            what,
            timeline,
            origin_ns,
            buffer,
            scratch: Vec::new(),
            flushed: now,
            written,
            on_failure: RecordFailurePolicy::Fail,
        })
    }

    /// Has packets pass unrecorded once the file takes no more, as of a full disk, instead of failing;
    /// `tell` hears of that when it happens. What was written before stays a whole recording.
    #[must_use]
    pub fn continue_on_failure(mut self, tell: impl FnOnce(&DeviceError) + Send + 'static) -> Self {
        self.on_failure = RecordFailurePolicy::Notify(Box::new(tell));
        self
    }

    /// The device itself.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Writes what is not written yet.
    ///
    /// # Errors
    /// When the file takes no more, unless it goes on then.
    pub fn flush(&mut self) -> Result<(), DeviceError> {
        self.write_out()
    }

    fn record(
        &mut self,
        at: Instant,
        direction: CaptureDirection,
        packets: &[Packet],
        pool: &Pool,
    ) {
        if matches!(self.on_failure, RecordFailurePolicy::Notified) {
            return;
        }
        let time_ns = self.origin_ns.saturating_add(at.since_origin().as_ns());
        for packet in packets {
            let mut bytes = pool.bytes(packet);
            if let ChecksumState::Partial { start, offset } = packet.meta.checksum {
                self.scratch.clear();
                self.scratch.extend_from_slice(bytes);
                checksum::complete(&mut self.scratch, usize::from(start), usize::from(offset));
                bytes = &self.scratch;
            }
            pcapng::packet(&mut self.buffer, 0, time_ns, Some(direction), bytes);
        }
    }
}

impl<D> RecordingDevice<D> {
    fn write_out(&mut self) -> Result<(), DeviceError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let result = self.file.write_all(&self.buffer);
        // Not to be tried again, half written as it may be.
        let len = self.buffer.len() as u64;
        self.buffer.clear();
        let Err(source) = result else {
            self.written += len;
            return Ok(());
        };
        let name = self.path.display().to_string();
        let error = DeviceError::Io { what: "write the recording", name, source };
        match std::mem::replace(&mut self.on_failure, RecordFailurePolicy::Notified) {
            RecordFailurePolicy::Fail => {
                self.on_failure = RecordFailurePolicy::Fail;
                return Err(error);
            }
            RecordFailurePolicy::Notify(tell) => {
                // Without the part of a packet. A pipe keeps it, and has no length.
                self.file.set_len(self.written).ok();
                tell(&error);
            }
            RecordFailurePolicy::Notified => {}
        }
        Ok(())
    }
}

impl<D> Drop for RecordingDevice<D> {
    fn drop(&mut self) {
        // `flush` reports errors; here there is nobody to report one to.
        let _ = self.write_out();
    }
}

impl<D: Device> DeviceLayer for RecordingDevice<D> {
    type Below = D;

    #[inline]
    fn below(&self) -> &D {
        &self.device
    }

    #[inline]
    fn below_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn receive_through(
        &mut self,
        now: Instant,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    ) -> Result<usize, DeviceError> {
        let before = batch.len();
        let result = self.device.receive(now, batch, max, pool);
        if self.what == RecordedDirections::Both {
            self.record(now, CaptureDirection::Inbound, &batch[before..], pool);
        }
        if self.buffer.len() >= BUFFER || result.is_err() {
            let flushed = self.flush();
            return result.and_then(|count| flushed.map(|()| count));
        }
        result
    }

    fn transmit_through(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), DeviceError> {
        let now = self.timeline.now();
        self.record(now, CaptureDirection::Outbound, batch, pool);
        let result = self.device.transmit(batch, pool);
        if self.buffer.len() >= BUFFER {
            let flushed = self.flush();
            return result.and(flushed);
        }
        result
    }

    fn wait_through(
        &mut self,
        timeout: Option<Span>,
        pool: &mut Pool,
    ) -> Result<bool, DeviceError> {
        if !self.buffer.is_empty() {
            let now = self.timeline.now();
            if now.saturating_since(self.flushed) > FLUSH_AFTER {
                self.flushed = now;
                self.flush()?;
            }
        }
        let found = self.device.wait(timeout, pool);
        if !matches!(found, Ok(true)) {
            let flushed = self.flush();
            return found.and_then(|found| flushed.map(|()| found));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use plumb_wire::capture::CaptureReader;
    use plumb_wire::machine::{DeviceCapabilities, Medium};
    use plumb_wire::packet::PoolConfig;

    use super::*;
    use crate::device::{DeviceWait, memory};
    use plumb_clock::Stopwatch;

    fn recorder(path: &Path, what: RecordedDirections) -> RecordingDevice<memory::MemoryDevice> {
        let plain = DeviceCapabilities::plain(Medium::Ethernet, 1_500);
        let timeline = InstantClock::begin(Stopwatch::new(None));
        RecordingDevice::new(memory::loopback(plain, DeviceWait::Spin), path, what, timeline)
            .unwrap()
    }

    #[test]
    fn both_directions_are_recorded_in_order_with_their_times() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut recorder = recorder(file.path(), RecordedDirections::Both);
        let mut pool = Pool::new(PoolConfig::default());
        let mut batch = vec![pool.packet_of(b"frame").unwrap()];
        recorder.transmit(&mut batch, &mut pool).unwrap();
        let now = recorder.timeline.now();
        recorder.receive(now, &mut batch, 8, &mut pool).unwrap();
        let epoch_ns = u64::try_from(plumb_clock::unix_ms()).unwrap() * 1_000_000;
        // Nothing more happens: it is written.
        assert!(!recorder.wait(None, &mut pool).unwrap());
        let bytes = std::fs::read(file.path()).unwrap();
        let records: Result<Vec<_>, _> = CaptureReader::new(&bytes).unwrap().collect();
        let records = records.unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].direction, Some(CaptureDirection::Outbound));
        assert_eq!(records[1].direction, Some(CaptureDirection::Inbound));
        assert_eq!(records[1].bytes, b"frame");
        assert!(records[0].time_ns <= records[1].time_ns);
        assert!(records[0].time_ns.abs_diff(epoch_ns) < 60_000_000_000, "{}", records[0].time_ns);
        drop(recorder);
        pool.free_all(&mut batch);
    }

    #[test]
    fn what_was_not_written_yet_is_written_when_the_recorder_goes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut recorder = recorder(file.path(), RecordedDirections::Sent);
        let mut pool = Pool::new(PoolConfig::default());
        let mut batch = vec![pool.packet_of(b"frame").unwrap()];
        recorder.transmit(&mut batch, &mut pool).unwrap();
        recorder.receive(Instant::ORIGIN, &mut batch, 8, &mut pool).unwrap();
        drop(recorder);
        let bytes = std::fs::read(file.path()).unwrap();
        assert_eq!(
            CaptureReader::new(&bytes).unwrap().count(),
            1,
            "what was received was not wanted"
        );
        pool.free_all(&mut batch);
    }

    #[test]
    fn an_open_checksum_is_completed_in_the_file_and_left_open_in_the_packet() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut recorder = recorder(file.path(), RecordedDirections::Both);
        let mut pool = Pool::new(PoolConfig::default());
        let sent = [0xaa, 0xbb, 0x12, 0x34, 0x00, 0x05, 0x10, 0x00];
        let mut packet = pool.packet_of(&sent).unwrap();
        packet.meta.checksum = ChecksumState::Partial { start: 2, offset: 2 };
        recorder.transmit(&mut vec![packet], &mut pool).unwrap();
        let mut batch = Vec::new();
        recorder.device.receive(Instant::ORIGIN, &mut batch, 8, &mut pool).unwrap();
        assert_eq!(pool.bytes(&batch[0]), sent);
        drop(recorder);
        let bytes = std::fs::read(file.path()).unwrap();
        let record = CaptureReader::new(&bytes).unwrap().next().unwrap().unwrap();
        // 0x1234 + 0x0005 + 0x1000 = 0x2239, complemented.
        assert_eq!(record.bytes, [0xaa, 0xbb, 0x12, 0x34, 0xdd, 0xc6, 0x10, 0x00]);
        pool.free_all(&mut batch);
    }

    #[test]
    fn a_device_goes_on_without_a_recording_that_takes_no_more_where_that_was_asked_for() {
        let mut pool = Pool::new(PoolConfig::default());
        let file = tempfile::NamedTempFile::new().unwrap();
        for goes_on in [true, false] {
            let (say, said) = std::sync::mpsc::channel();
            let mut recorder = recorder(file.path(), RecordedDirections::Sent);
            if goes_on {
                recorder = recorder.continue_on_failure(move |error| {
                    say.send(error.to_string()).unwrap();
                });
            }
            let mut batch = vec![pool.packet_of(b"frame").unwrap()];
            recorder.transmit(&mut batch, &mut pool).unwrap();
            recorder.flush().unwrap();
            // The same file, for reading alone.
            recorder.file = File::open(file.path()).unwrap();
            for _ in 0..3 {
                recorder.receive(Instant::ORIGIN, &mut batch, 8, &mut pool).unwrap();
                recorder.transmit(&mut batch, &mut pool).unwrap();
                assert_eq!(recorder.flush().is_ok(), goes_on);
            }
            assert_eq!(said.try_iter().count(), usize::from(goes_on), "once");
            drop(recorder);
            let bytes = std::fs::read(file.path()).unwrap();
            assert_eq!(CaptureReader::new(&bytes).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_file_that_cannot_be_made_is_an_error_at_once() {
        let plain = DeviceCapabilities::plain(Medium::Ethernet, 1_500);
        let timeline = InstantClock::begin(Stopwatch::new(None));
        let device = memory::loopback(plain, DeviceWait::Spin);
        let path = Path::new("/nowhere/at.all");
        assert!(RecordingDevice::new(device, path, RecordedDirections::Both, timeline).is_err());
    }
}
