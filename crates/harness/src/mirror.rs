//! Mirrors: a stack that returns every datagram, timed from outside by a client of the kernel's.
//!
//! The worker makes the two-namespace test bed, holds the client's socket, and does the timing; the peer, a fresh
//! process, holds the stack. Without a client the mirror itself times frames from memory: a replay.

use std::io;
use std::path::PathBuf;

use plumb_clock::Stopwatch;
use plumb_netdev::device::{DeviceWait, tap};
use plumb_wire::machine::Medium;

use crate::bench::ChannelBench;
use crate::channel::{
    ChannelSetup, EndpointLocation, IoResultExt as _, LOSS_TIMEOUT_TICKS, OpenError,
};
use crate::child_process::SELF_EXE;
use crate::effort::{Canary, EffortMeter, KernelTimes};
use crate::mechanisms::UdpEnd;
use crate::orchestrator_pipe::{OrchestratorPipe, WorkerMessage, open_failure};
use crate::peer_handle::{PeerHandle, PeerStartup};
use crate::peer_protocol::{PeerEnd, PeerRole, PeerTask, PeerToWorker, WorkerToPeer};
use crate::report::{BlockError, BlockReport, CpuUsage, LaunchFacts};
use crate::sampler;
use crate::spec::{
    BlockSpec, BlockTask, ChannelSpec, LaunchSpec, Mechanism, MirrorSpec, MirrorStack,
    SocketOptions, WakeMode,
};

pub mod mirror_process;
mod test_bed;

/// Name of the program beside this one that mirrors with smoltcp.
const SMOLTCP_PROGRAM: &str = "plumb-mirror-smoltcp";

impl MirrorSpec {
    /// How the TAP of a mirror is opened, by the worker that makes it and by the mirror that adopts it.
    pub fn tap_settings(&self) -> tap::TapOptions {
        tap::TapOptions {
            medium: Medium::Ethernet,
            wait: self.wait(),
            offload: if self.offloads { tap::TapOffload::Checksum } else { tap::TapOffload::None },
            mtu: Some(1500),
        }
    }

    /// How its device waits.
    pub fn wait(&self) -> DeviceWait {
        match self.wake {
            WakeMode::Spin => DeviceWait::Spin,
            _ => DeviceWait::Block,
        }
    }
}

/// A worker's whole launch of a mirror.
pub(super) fn work(
    spec: &LaunchSpec,
    mirror: &MirrorSpec,
    mut talk: OrchestratorPipe,
) -> io::Result<()> {
    let (client, mut peer) = match open(spec, mirror) {
        Ok(opened) => opened,
        Err(error) => return talk.send(&open_failure(error)),
    };
    let facts = std::mem::take(&mut peer.facts);
    talk.send(&WorkerMessage::Ready(LaunchFacts { facts }))?;
    match client {
        Some((end, channel)) => {
            let mut bench = ChannelBench::new(end, &mut peer, spec, &channel);
            talk.serve(|block| bench.measure(block))?;
        }
        None => talk.serve(|block| measure_replay(&mut peer, spec, block))?,
    }
    peer.quit()
}

type MirrorClient = Option<(UdpEnd, ChannelSpec)>;

/// Makes the test bed, connects the client through it, and starts the mirror.
fn open(spec: &LaunchSpec, mirror: &MirrorSpec) -> Result<(MirrorClient, PeerHandle), OpenError> {
    let startup = PeerStartup::new()?;
    let watch = startup.watchdog(LOSS_TIMEOUT_TICKS)?;
    let bed = test_bed::make(mirror)?;
    let end = PeerEnd::Mirror {
        mirror: mirror.clone(),
        interface: bed.interface,
        mac: bed.mac.0,
        client_mac: bed.client_mac.0,
        local: bed.mirror_address,
        client: bed.client_address,
    };
    let program = program(mirror.stack)?;
    let mut peer = startup.start(&program, bed.handover, end, spec.peer_context())?;
    peer.facts = bed.facts;
    let Some(socket) = bed.client else { return Ok((None, peer)) };
    let channel = ChannelSpec {
        mechanism: if mirror.ipv6 { Mechanism::Udp6 } else { Mechanism::Udp4 },
        wake: mirror.wake,
        options: SocketOptions::default(),
    };
    let ground = &EndpointLocation::Loopback;
    let setup =
        ChannelSetup { channel: &channel, watchdog: &watch, location: ground, seed: spec.seed };
    let end = UdpEnd::over(&setup, socket.into())?;
    Ok((Some((end, channel)), peer))
}

/// The program that mirrors with a stack: this one, or one that stands beside it.
fn program(stack: MirrorStack) -> Result<PathBuf, OpenError> {
    if stack != MirrorStack::Smoltcp {
        return Ok(PathBuf::from(SELF_EXE));
    }
    let own = std::env::current_exe().attempt("find plumb's own binary")?;
    let beside = own.with_file_name(SMOLTCP_PROGRAM);
    if beside.is_file() {
        return Ok(beside);
    }
    Err(OpenError::Unavailable(format!(
        "{SMOLTCP_PROGRAM} does not stand beside plumb: build it with \
         'cargo build --release -p {SMOLTCP_PROGRAM}'"
    )))
}

/// Measures one block of a replay.
fn measure_replay(
    peer: &mut PeerHandle,
    launch: &LaunchSpec,
    spec: &BlockSpec,
) -> Result<BlockReport, BlockError> {
    let BlockTask::Replay { frame, cold } = spec.task else {
        return Err(BlockError::wrong_task("frames from memory"));
    };
    let watch = Stopwatch::new(launch.ticks_per_ns);
    let canary = Canary::before(watch, spec);
    let mut kernel = KernelTimes::new(launch.cpu_peer.into_iter().collect());
    let meter = EffortMeter::start(&mut kernel, watch);
    let (duration_ns, samples_max) = (spec.duration_ns, spec.samples_max);
    let role = PeerRole::Replay { cold, duration_ns, samples_max };
    peer.send(WorkerToPeer::Begin(PeerTask { role, size: frame, ack: 0 }))?;
    let done = loop {
        match peer.receive()? {
            PeerToWorker::Armed => {}
            PeerToWorker::Done(report) => break *report,
            PeerToWorker::Unavailable(why) | PeerToWorker::Failed(why) => {
                return Err(BlockError::Unavailable(why));
            }
            PeerToWorker::Attached => {
                return Err(BlockError::Failed(
                    "protocol error: unexpected message from the mirror".to_owned(),
                ));
            }
        }
    };
    let effort = meter.stop(&mut kernel, watch, 0);
    let mut report = BlockReport { batch: 1, effort, ..BlockReport::default() };
    // The worker only waits.
    report.effort.local = CpuUsage::default();
    report.effort.peer = done.cpu;
    report.effort.canary_ns = canary.after();
    report.counters = done.counters.into_iter().filter(|(_, n)| *n > 0).collect();
    report.effort.operations = report.counters.get("packets").copied().unwrap_or(0);
    report.flags.push("peer-timed".to_owned());
    report.flags.push("batched".to_owned());
    let values = done.times.into_iter().find(|(name, _)| name == "packet");
    let values = values.map(|(_, values)| values).unwrap_or_default();
    if values.is_empty() {
        return Err(BlockError::Unavailable("the mirror timed nothing".to_owned()));
    }
    sampler::summarize(&values, 0.001, spec, &mut report);
    Ok(report)
}
