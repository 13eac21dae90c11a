//! Memory as a device: two ends of a link within this process, or one that hears itself.
//!
//! Frames are copied on the way, so that the ends may have pools of their own and be in different
//! threads. What a kernel would do is left out, and so is a clock: `ReplaySource` is the form that
//! replays.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plumb_base::time::{Instant, Span};
use plumb_wire::machine::DeviceCapabilities;
use plumb_wire::packet::{Batch, PacketMeta, Pool};

use super::{Device, DeviceCounters, DeviceError, DeviceInfo, DeviceWait};

/// Frames that may be under way in one direction; more are dropped.
const QUEUE_MAX: usize = 1_024;
/// How long a blocked end sleeps before it looks up, so that its caller can stop.
const BLOCK_MAX: Duration = Duration::from_millis(20);

/// One direction of a link.
#[derive(Debug, Default)]
struct MemoryChannel {
    frames: Mutex<MemoryQueue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct MemoryQueue {
    queued: VecDeque<(Vec<u8>, PacketMeta)>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
    /// Its sender is gone.
    closed: bool,
}

impl MemoryChannel {
    fn lock(&self) -> MutexGuard<'_, MemoryQueue> {
        // The queue is consistent at every step, so a poisoned lock is harmless.
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end of a link in memory.
#[derive(Debug)]
pub struct MemoryDevice {
    info: DeviceInfo,
    wait: DeviceWait,
    incoming: Arc<MemoryChannel>,
    outgoing: Arc<MemoryChannel>,
    counters: DeviceCounters,
}

/// The two ends of a link: what one sends, the other receives.
pub fn pair(capabilities: DeviceCapabilities, wait: DeviceWait) -> (MemoryDevice, MemoryDevice) {
    let (one, other) = (Arc::new(MemoryChannel::default()), Arc::new(MemoryChannel::default()));
    let (near_in, far_out) = (Arc::clone(&one), Arc::clone(&one));
    let near = MemoryDevice::new("memory:a", capabilities, wait, [near_in, Arc::clone(&other)]);
    (near, MemoryDevice::new("memory:b", capabilities, wait, [other, far_out]))
}

/// A link whose one end receives what it sends.
pub fn loopback(capabilities: DeviceCapabilities, wait: DeviceWait) -> MemoryDevice {
    let channel = Arc::new(MemoryChannel::default());
    MemoryDevice::new("memory", capabilities, wait, [Arc::clone(&channel), channel])
}

impl MemoryDevice {
    fn new(
        name: &str,
        capabilities: DeviceCapabilities,
        wait: DeviceWait,
        [incoming, outgoing]: [Arc<MemoryChannel>; 2],
    ) -> Self {
        let info = DeviceInfo { name: name.to_owned(), capabilities, mac: None };
        Self { info, wait, incoming, outgoing, counters: DeviceCounters::default() }
    }
}

impl Drop for MemoryDevice {
    fn drop(&mut self) {
        self.outgoing.lock().closed = true;
        self.outgoing.arrived.notify_all();
    }
}

impl Device for MemoryDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// # Errors
    /// [`DeviceError::Finished`] when the other end is gone and all that it sent has come.
    fn receive(
        &mut self,
        now: Instant,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    ) -> Result<usize, DeviceError> {
        let mut count = 0;
        let mut frames = self.incoming.lock();
        while count < max {
            let Some((bytes, meta)) = frames.queued.pop_front() else { break };
            if let Some(mut packet) = pool.packet_of(&bytes) {
                packet.meta = PacketMeta { received: now, ..meta };
                self.counters.rx_packets += 1;
                self.counters.rx_bytes += bytes.len() as u64;
                batch.push(packet);
                count += 1;
            } else {
                self.counters.rx_dropped += 1;
            }
            frames.spare.push(bytes);
        }
        if count == 0 && frames.closed && frames.queued.is_empty() {
            return Err(DeviceError::Finished);
        }
        Ok(count)
    }

    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), DeviceError> {
        let mut frames = self.outgoing.lock();
        for packet in batch.drain(..) {
            if frames.queued.len() < QUEUE_MAX {
                let mut bytes = frames.spare.pop().unwrap_or_default();
                bytes.clear();
                bytes.extend_from_slice(pool.bytes(&packet));
                frames.queued.push_back((bytes, packet.meta));
                self.counters.tx_packets += 1;
                self.counters.tx_bytes += packet.len() as u64;
            } else {
                self.counters.tx_dropped += 1;
            }
            pool.free(packet);
        }
        drop(frames);
        self.outgoing.arrived.notify_one();
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Span>, _: &mut Pool) -> Result<bool, DeviceError> {
        let ready = |frames: &MemoryQueue| !frames.queued.is_empty() || frames.closed;
        let frames = self.incoming.lock();
        if ready(&frames) || self.wait == DeviceWait::Spin {
            return Ok(ready(&frames));
        }
        let at_most = timeout.map_or(BLOCK_MAX, |timeout| Duration::from(timeout).min(BLOCK_MAX));
        let (frames, _) = self
            .incoming
            .arrived
            .wait_timeout(frames, at_most)
            .unwrap_or_else(PoisonError::into_inner);
        Ok(ready(&frames))
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use plumb_wire::machine::Medium;
    use plumb_wire::packet::{ChecksumState, PoolConfig};

    use super::*;

    const PLAIN: DeviceCapabilities = DeviceCapabilities::plain(Medium::Ethernet, 1_500);

    fn send(end: &mut MemoryDevice, pool: &mut Pool, bytes: &[u8]) {
        let mut packet = pool.packet_of(bytes).unwrap();
        packet.meta.checksum = ChecksumState::Verified;
        end.transmit(&mut vec![packet], pool).unwrap();
    }

    #[test]
    fn what_one_end_sends_the_other_receives_in_order_with_all_that_is_known_of_it() {
        let (mut a, mut b) = pair(PLAIN, DeviceWait::Block);
        let mut pool = Pool::new(PoolConfig::default());
        send(&mut a, &mut pool, b"first");
        send(&mut a, &mut pool, b"second");
        assert!(b.wait(None, &mut pool).unwrap());
        let now = Instant::ORIGIN + Span::from_us(3);
        let mut batch = Vec::new();
        assert_eq!(b.receive(now, &mut batch, 8, &mut pool).unwrap(), 2);
        assert_eq!(pool.bytes(&batch[0]), b"first");
        assert_eq!(pool.bytes(&batch[1]), b"second");
        assert_eq!(batch[1].meta.checksum, ChecksumState::Verified);
        assert_eq!(batch[1].meta.received, now);
        pool.free_all(&mut batch);
        assert!(!a.wait(Some(Span::from_us(10)), &mut pool).unwrap());
        assert_eq!(pool.available(), (1_024, 16));
    }

    #[test]
    fn a_link_is_at_its_end_when_the_other_end_is_gone_and_all_has_come() {
        let (mut a, mut b) = pair(PLAIN, DeviceWait::Block);
        let mut pool = Pool::new(PoolConfig::default());
        send(&mut a, &mut pool, b"last words");
        drop(a);
        let mut batch = Vec::new();
        assert_eq!(b.receive(Instant::ORIGIN, &mut batch, 8, &mut pool).unwrap(), 1);
        assert!(b.wait(None, &mut pool).unwrap(), "there is an end to be told of");
        let end = b.receive(Instant::ORIGIN, &mut batch, 8, &mut pool);
        assert!(matches!(end, Err(DeviceError::Finished)), "{end:?}");
        pool.free_all(&mut batch);
    }

    #[test]
    fn a_full_link_and_an_empty_pool_drop_and_count() {
        let mut end = loopback(PLAIN, DeviceWait::Spin);
        let mut pool = Pool::new(PoolConfig { count: 4, size: 256, large: 0 });
        for _ in 0..QUEUE_MAX + 3 {
            send(&mut end, &mut pool, b"frame");
        }
        assert_eq!(end.counters().tx_dropped, 3);
        let mut batch = Vec::new();
        assert_eq!(end.receive(Instant::ORIGIN, &mut batch, 5, &mut pool).unwrap(), 4);
        assert_eq!(end.counters().rx_dropped, QUEUE_MAX as u64 - 4);
        pool.free_all(&mut batch);
    }
}
