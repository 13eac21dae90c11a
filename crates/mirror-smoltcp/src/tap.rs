//! smoltcp over a TAP, through plumb's own device.

use plumb_base::time;
use plumb_clock::Stopwatch;
use plumb_harness::mirror::mirror_process::{
    DatagramMirror, MirrorControl, MirrorError, MirrorSetup, NamedSamples, ReplayTask,
};
use plumb_netdev::device::tap::TapDevice;
use plumb_netdev::device::{Device as _, DeviceError};
use plumb_wire::packet::{Packet, Pool, PoolConfig};
use smoltcp::phy::{self, DeviceCapabilities};
use smoltcp::time::Instant;

use crate::stack::{RxToken, SmoltcpStack, capabilities};

/// A mirror over a TAP.
pub struct SmoltcpTapMirror {
    stack: SmoltcpStack,
    port: TapPort,
    watch: Stopwatch,
    mirrored: u64,
    receive: Vec<f64>,
    send: Vec<f64>,
}

/// A TAP as smoltcp sees it: a frame in hand, and a buffer for one to send.
///
/// Two pools, because smoltcp may write a frame while it still reads another.
struct TapPort {
    tap: TapDevice,
    rx_pool: Pool,
    tx_pool: Pool,
    rx: Vec<Packet>,
    tx: Vec<Packet>,
    /// The counter when the last frame was ready to be sent.
    sent_at: u64,
    watch: Stopwatch,
    probing: bool,
    failure: Option<DeviceError>,
}

impl SmoltcpTapMirror {
    pub fn new(mut site: MirrorSetup) -> Result<Self, MirrorError> {
        let fd = site
            .fds
            .pop()
            .ok_or_else(|| MirrorError::Failed("no TAP was handed over".to_owned()))?;
        let tap = TapDevice::adopt(fd, site.spec.tap_settings())
            .map_err(|error| MirrorError::Unavailable(error.to_string()))?;
        let frames = PoolConfig { count: 64, size: 2_048, large: 0 };
        let mut port = TapPort {
            tap,
            rx_pool: Pool::new(frames),
            tx_pool: Pool::new(frames),
            rx: Vec::with_capacity(1),
            tx: Vec::with_capacity(1),
            sent_at: 0,
            watch: site.watch,
            probing: false,
            failure: None,
        };
        let stack = SmoltcpStack::new(&site, &mut port)?;
        Ok(Self {
            stack,
            port,
            watch: site.watch,
            mirrored: 0,
            receive: Vec::new(),
            send: Vec::new(),
        })
    }

    /// One frame in, and what it causes out.
    #[inline]
    fn turn(&mut self, now: Instant) {
        if !self.port.probing {
            self.stack.receive(now, &mut self.port);
            self.mirrored += self.stack.mirror();
            self.stack.send(now, &mut self.port);
            return;
        }
        let arrived = self.watch.begin();
        self.stack.receive(now, &mut self.port);
        let received = self.watch.begin();
        let mirrored = self.stack.mirror();
        self.stack.send(now, &mut self.port);
        if mirrored > 0 {
            let ns = |from: u64, to: u64| self.watch.ns(to.wrapping_sub(from));
            self.receive.push(ns(arrived, received));
            self.send.push(ns(received, self.port.sent_at));
        }
        self.mirrored += mirrored;
    }
}

impl DatagramMirror for SmoltcpTapMirror {
    fn mirror(&mut self, reins: &MirrorControl) -> Result<(), MirrorError> {
        let broken = |error: DeviceError| MirrorError::Failed(error.to_string());
        while !reins.stop() {
            let TapPort { tap, rx_pool, rx, .. } = &mut self.port;
            if !tap.wait(None, rx_pool).map_err(broken)? {
                continue;
            }
            tap.receive(time::Instant::ORIGIN, rx, 1, rx_pool).map_err(broken)?;
            self.port.probing = reins.probing();
            // The time only ages neighbours, which a test bed's are not here to do.
            self.turn(Instant::ZERO);
            self.port.rx_pool.free_all(&mut self.port.rx);
            if let Some(error) = self.port.failure.take() {
                return Err(broken(error));
            }
        }
        Ok(())
    }

    fn replay(&mut self, _task: &ReplayTask) -> Result<Vec<f64>, MirrorError> {
        Err(MirrorError::Unavailable("a TAP replays nothing".to_owned()))
    }

    fn times(&mut self) -> NamedSamples {
        let (receive, send) = (std::mem::take(&mut self.receive), std::mem::take(&mut self.send));
        let stack = receive.iter().zip(&send).map(|(a, b)| a + b).collect();
        let named = |name: &str, values| (name.to_owned(), values);
        vec![named("receive", receive), named("send", send), named("stack", stack)]
    }

    fn tally(&mut self) -> Vec<(String, u64)> {
        vec![("mirrored".to_owned(), std::mem::take(&mut self.mirrored))]
    }
}

impl phy::Device for TapPort {
    type RxToken<'a> = RxToken<'a>;
    type TxToken<'a> = TapTxToken<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let Self { tap, rx_pool, tx_pool, rx, tx, sent_at, watch, probing, failure } = self;
        let packet = rx.last()?;
        let token = TapTxToken {
            tap,
            pool: tx_pool,
            tx,
            sent_at,
            watch: *watch,
            probing: *probing,
            failure,
        };
        Some((RxToken(rx_pool.bytes(packet)), token))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Self::TxToken<'_>> {
        let Self { tap, tx_pool, tx, sent_at, watch, probing, failure, .. } = self;
        Some(TapTxToken {
            tap,
            pool: tx_pool,
            tx,
            sent_at,
            watch: *watch,
            probing: *probing,
            failure,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(1500)
    }
}

/// The right to send one frame.
struct TapTxToken<'a> {
    tap: &'a mut TapDevice,
    pool: &'a mut Pool,
    tx: &'a mut Vec<Packet>,
    sent_at: &'a mut u64,
    watch: Stopwatch,
    probing: bool,
    failure: &'a mut Option<DeviceError>,
}

impl phy::TxToken for TapTxToken<'_> {
    fn consume<R, F>(self, len: usize, f: F) -> R
    where
        F: FnOnce(&mut [u8]) -> R,
    {
        let mut packet = self.pool.allocate_for(len).expect("one frame is under way at a time");
        let result = f(self.pool.append(&mut packet, len).expect("allocated for this length"));
        self.tx.push(packet);
        if self.probing {
            *self.sent_at = self.watch.begin();
        }
        if let Err(error) = self.tap.transmit(self.tx, self.pool) {
            *self.failure = Some(error);
        }
        result
    }
}
