//! smoltcp over a TAP, through plumb's own device.

use plumb_base::time;
use plumb_clock::Stopwatch;
use plumb_harness::mirror::mirror_process::{
    DatagramMirror, MirrorControl, MirrorSetup, NamedSamples, ReplayTask,
};
use plumb_harness::report::LaunchFault;
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

/// A TAP as smoltcp sees it: a frame in hand, and where frames are sent.
///
/// Each with a pool of its own, because smoltcp may write a frame while it still reads another.
struct TapPort {
    pool: Pool,
    received: Vec<Packet>,
    sender: TapSender,
}

/// Where frames are sent.
struct TapSender {
    tap: TapDevice,
    pool: Pool,
    frames: Vec<Packet>,
    /// The counter when the last frame was ready to be sent.
    sent_at: u64,
    watch: Stopwatch,
    probing: bool,
    failure: Option<DeviceError>,
}

impl SmoltcpTapMirror {
    pub fn new(mut site: MirrorSetup) -> Result<Self, LaunchFault> {
        let fd = site
            .fds
            .pop()
            .ok_or_else(|| LaunchFault::Failed("no TAP was handed over".to_owned()))?;
        let tap = TapDevice::adopt(fd, site.spec.tap_settings())
            .map_err(|error| LaunchFault::Unavailable(error.to_string()))?;
        let frames = PoolConfig { count: 64, size: 2_048, large: 0 };
        let sender = TapSender {
            tap,
            pool: Pool::new(frames),
            frames: Vec::with_capacity(1),
            sent_at: 0,
            watch: site.watch,
            probing: false,
            failure: None,
        };
        let mut port = TapPort { pool: Pool::new(frames), received: Vec::with_capacity(1), sender };
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
        if !self.port.sender.probing {
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
            self.send.push(ns(received, self.port.sender.sent_at));
        }
        self.mirrored += mirrored;
    }
}

impl DatagramMirror for SmoltcpTapMirror {
    fn mirror(&mut self, reins: &MirrorControl) -> Result<(), LaunchFault> {
        let broken = |error: DeviceError| LaunchFault::Failed(error.to_string());
        while !reins.stop() {
            let TapPort { pool, received, sender } = &mut self.port;
            if !sender.tap.wait(None, pool).map_err(broken)? {
                continue;
            }
            sender.tap.receive(time::Instant::ORIGIN, received, 1, pool).map_err(broken)?;
            self.port.sender.probing = reins.probing();
            // The time only ages neighbours, which a test bed's are not here to do.
            self.turn(Instant::ZERO);
            self.port.pool.free_all(&mut self.port.received);
            if let Some(error) = self.port.sender.failure.take() {
                return Err(broken(error));
            }
        }
        Ok(())
    }

    fn replay(&mut self, _task: &ReplayTask) -> Result<Vec<f64>, LaunchFault> {
        Err(LaunchFault::Unavailable("a TAP replays nothing".to_owned()))
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
        let packet = self.received.last()?;
        Some((RxToken(self.pool.bytes(packet)), TapTxToken(&mut self.sender)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Self::TxToken<'_>> {
        Some(TapTxToken(&mut self.sender))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(1500)
    }
}

/// The right to send one frame.
struct TapTxToken<'a>(&'a mut TapSender);

impl phy::TxToken for TapTxToken<'_> {
    fn consume<R, F>(self, len: usize, f: F) -> R
    where
        F: FnOnce(&mut [u8]) -> R,
    {
        let TapSender { tap, pool, frames, sent_at, watch, probing, failure } = self.0;
        let mut packet = pool.allocate_for(len).expect("one frame is under way at a time");
        let result = f(pool.append(&mut packet, len).expect("allocated for this length"));
        frames.push(packet);
        if *probing {
            *sent_at = watch.begin();
        }
        if let Err(error) = tap.transmit(frames, pool) {
            *failure = Some(error);
        }
        result
    }
}
