//! smoltcp fed with one frame from memory, over and over.
//!
//! Each packet is put into a frame of a pool, and its answer into another, as plumb's are: what
//! differs is the stack.

use plumb_clock::Stopwatch;
use plumb_harness::mirror::mirror_process::{
    DatagramMirror, MirrorControl, MirrorFlow, MirrorSetup, ReplayTask,
};
use plumb_harness::report::LaunchFault;
use plumb_wire::packet::{Packet, Pool, PoolConfig};
use smoltcp::phy::{self, DeviceCapabilities};
use smoltcp::time::Instant;

use crate::stack::{RxToken, SmoltcpStack, capabilities};

/// Packets a sample.
const BATCH: u32 = 64;

/// A mirror of frames from memory.
pub struct SmoltcpReplayMirror {
    stack: SmoltcpStack,
    memory: ReplayDevice,
    watch: Stopwatch,
    source: MirrorFlow,
    packets: u64,
}

impl SmoltcpReplayMirror {
    pub fn new(site: &MirrorSetup) -> Result<Self, LaunchFault> {
        let frames = PoolConfig { count: 64, size: 2_048, large: 0 };
        let mut memory = ReplayDevice {
            frame: Vec::new(),
            rx_pool: Pool::new(frames),
            tx_pool: Pool::new(frames),
            rx: None,
            count: 0,
        };
        let stack = SmoltcpStack::new(site, &mut memory)?;
        let source = MirrorFlow::of(site);
        let mut this = Self { stack, memory, watch: site.watch, source, packets: 0 };
        // It answers nobody whose link address it has not seen.
        this.memory.frame = this.source.resolution();
        this.packet();
        Ok(this)
    }

    #[inline]
    fn packet(&mut self) {
        self.memory.rx = self.memory.rx_pool.packet_of(&self.memory.frame);
        self.stack.receive(Instant::ZERO, &mut self.memory);
        if let Some(packet) = self.memory.rx.take() {
            self.memory.rx_pool.free(packet);
        }
        self.stack.mirror();
        self.stack.send(Instant::ZERO, &mut self.memory);
    }
}

impl DatagramMirror for SmoltcpReplayMirror {
    fn mirror(&mut self, _reins: &MirrorControl) -> Result<(), LaunchFault> {
        Err(LaunchFault::Unavailable("memory has no client".to_owned()))
    }

    fn replay(&mut self, task: &ReplayTask) -> Result<Vec<f64>, LaunchFault> {
        if task.cold || task.frame > 1514 {
            return Err(LaunchFault::Unavailable(
                "smoltcp is replayed warm, in frames of Ethernet".to_owned(),
            ));
        }
        self.memory.frame = self.source.datagram(task.frame);
        self.memory.count = 0;
        let mut samples = Vec::with_capacity(task.samples_max);
        let begin = self.watch.begin();
        while samples.len() < task.samples_max {
            let start = self.watch.begin();
            for _ in 0..BATCH {
                self.packet();
            }
            let end = self.watch.end();
            samples.push(self.watch.ns(end.wrapping_sub(start)) / f64::from(BATCH));
            if end.wrapping_sub(begin) >= task.duration_ticks {
                break;
            }
        }
        let asked = samples.len() as u64 * u64::from(BATCH);
        if self.memory.count != asked {
            let sent = self.memory.count;
            return Err(LaunchFault::Failed(format!("{sent} of {asked} datagrams were mirrored")));
        }
        self.packets += asked;
        Ok(samples)
    }

    fn tally(&mut self) -> Vec<(String, u64)> {
        vec![("packets".to_owned(), std::mem::take(&mut self.packets))]
    }
}

/// A device that always has the same frame, and forgets what is sent.
struct ReplayDevice {
    frame: Vec<u8>,
    rx_pool: Pool,
    tx_pool: Pool,
    rx: Option<Packet>,
    count: u64,
}

impl phy::Device for ReplayDevice {
    type RxToken<'a> = RxToken<'a>;
    type TxToken<'a> = PoolTxToken<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let Self { rx_pool, tx_pool, rx, count, .. } = self;
        let packet = rx.as_ref()?;
        Some((RxToken(rx_pool.bytes(packet)), PoolTxToken { pool: tx_pool, count }))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Self::TxToken<'_>> {
        Some(PoolTxToken { pool: &mut self.tx_pool, count: &mut self.count })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(1500)
    }
}

/// The right to send one frame.
struct PoolTxToken<'a> {
    pool: &'a mut Pool,
    count: &'a mut u64,
}

impl phy::TxToken for PoolTxToken<'_> {
    fn consume<R, F>(self, len: usize, f: F) -> R
    where
        F: FnOnce(&mut [u8]) -> R,
    {
        *self.count += 1;
        let mut packet = self.pool.allocate_for(len).expect("each frame is given back at once");
        let result = f(self.pool.append(&mut packet, len).expect("allocated for this length"));
        self.pool.free(packet);
        result
    }
}
