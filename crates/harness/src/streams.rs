//! Streams: TCP connections from another process to the worker, a thread for each at both ends.
//!
//! The worker receives, and so counts what arrived; it reads the CPU clocks of both processes beside the time, and, by
//! tracepoints, which share of their CPU time is the protocol stack's. Left out: one message after another, which is a
//! channel's (`crate::bench`).

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use cpu_load::CpuLoadProcess;
use plumb_base::time::Span;
use plumb_clock::{Stopwatch, monotonic_ns, sleep_until};
use plumb_sys::sched;
use plumb_sys::socket::{self, IntOption, UnixSocketKind};
use receiver::StreamsReceiver;
use sender::{AttachStreams, SenderToWorker, WorkerToSender};

use super::child_process::{ControlledProcess, HiddenCommand, SELF_EXE, control_sockets};
use super::effort::KernelTimes;
use super::launch_network::LaunchNetwork;
use super::peer_handle::FarProcess;
use super::spec::{
    ChannelSpec, LaunchSpec, Mechanism, ProcessTweaks, SocketOptions, TcpStreamsSpec, WakeMode,
};
use crate::launch_protocol::{OrchestratorPipe, WorkerMessage};
use crate::mechanisms::{
    ChannelSetup, IoResultExt as _, PeerWatchdog, connected_pair, set_options,
};
use crate::report::{BlockError, BlockPartReport, LaunchFault};
use crate::trace::{CpuTimeShares, ProbeCost, TraceRecorder, TraceUnavailable, TracepointSet};

pub mod cpu_load;
mod process_tweaks;
mod receiver;
pub mod sender;

/// A worker's whole launch.
pub(super) fn work(
    launch: &LaunchSpec,
    spec: &TcpStreamsSpec,
    allowed: &[u32],
    mut orchestrator: OrchestratorPipe,
) -> io::Result<()> {
    let mut receiver = match open(launch, spec, allowed) {
        Ok(receiver) => receiver,
        Err(error) => return orchestrator.send(&WorkerMessage::Ready(Err(error))),
    };
    let facts = std::mem::take(&mut receiver.facts);
    orchestrator.send(&WorkerMessage::Ready(Ok(facts)))?;
    orchestrator.serve(|block| receiver.measure(block))?;
    receiver.sender.quit(&WorkerToSender::Quit)
}

/// Starts the process that sends, with the far ends.
pub(super) fn start_sender(
    far: Vec<OwnedFd>,
    cpus: Vec<u32>,
    tweaks: ProcessTweaks,
    seed: u64,
) -> Result<FarProcess, LaunchFault> {
    let fds = far.iter().map(AsRawFd::as_raw_fd).collect();
    let task = WorkerToSender::Attach(AttachStreams { fds, cpus, tweaks, seed });
    let (program, command) = (Path::new(SELF_EXE), HiddenCommand::StreamsSender);
    let (process, answer) =
        ControlledProcess::start(program, command, control_sockets()?, far, &task)?;
    match answer {
        SenderToWorker::Attached => Ok(FarProcess::Local(process)),
        SenderToWorker::Refused(reason) => Err(LaunchFault::Unavailable(reason)),
        other => {
            let said = format!("it said {other:?}");
            Err(LaunchFault::failed("hand the streams to the sender", said))
        }
    }
}

/// Makes the network, connects every stream, and starts the process that sends.
fn open(
    launch: &LaunchSpec,
    spec: &TcpStreamsSpec,
    allowed: &[u32],
) -> Result<StreamsReceiver, LaunchFault> {
    let own_cpus = process_cpus(spec, launch.cpu_local, allowed)?;
    let site = match &spec.path {
        Some(path) => LaunchNetwork::for_path(path, launch, &launch.spare_cpus(allowed))?,
        None => LaunchNetwork::default(),
    };
    if spec.cpus.is_some() {
        // Not before: a supervisor on this very machine is to have all the CPUs that it may use.
        sched::bind(&own_cpus).attempt("run on some CPUs alone")?;
    }
    let mut facts = site.facts.clone();
    let mut cpus = own_cpus;
    let (sockets, source) = if let Some(host) = &site.remote_host {
        let mut supervisor = host.supervisor.lock();
        let sockets = supervisor.open_streams(launch, spec, host.any_address()?)?;
        facts.extend(supervisor.facts.clone());
        drop(supervisor);
        for socket in &sockets {
            set_stream_options(spec, socket.as_fd())?;
        }
        (sockets, FarProcess::Remote(host.supervisor.clone()))
    } else {
        let theirs = process_cpus(spec, launch.cpu_peer, allowed)?;
        cpus.extend(&theirs);
        let (sockets, far) = connect_streams(launch, spec, &site, &mut facts)?;
        (sockets, start_sender(far, theirs, spec.tweaks, launch.seed)?)
    };
    if let Some(socket) = sockets.first() {
        let bytes = socket::option(socket.as_fd(), IntOption::ReceiveBuffer);
        facts.insert("rcvbuf".to_owned(), bytes.attempt("read a socket's buffer")?.to_string());
    }
    cpus.sort_unstable();
    cpus.dedup();
    let slowed = loaded_cpus(spec, &cpus, allowed);
    if !slowed.is_empty() {
        // Whether it may be done at all is to be known before a block is begun.
        drop(CpuLoadProcess::start(&slowed, spec.cpu_percent)?);
        if let Some(host) = &site.remote_host {
            host.supervisor.lock().set_cpu_load(true)?;
            host.supervisor.lock().set_cpu_load(false)?;
        }
    }
    // Last, so that nothing that was started inherits it.
    spec.tweaks.apply().map_err(LaunchFault::Unavailable)?;
    Ok(StreamsReceiver {
        spec: spec.clone(),
        seed: launch.seed,
        stopwatch: Stopwatch::new(launch.ticks_per_ns),
        sockets,
        network: site,
        sender: source,
        loaded_cpus: slowed,
        kernel: KernelTimes::new(cpus.clone()),
        cpus,
        facts,
    })
}

/// The CPUs of which a part is taken away, where a process that may use some is to have less of them.
pub(super) fn loaded_cpus(spec: &TcpStreamsSpec, cpus: &[u32], allowed: &[u32]) -> Vec<u32> {
    match spec.cpu_percent {
        100.. => Vec::new(),
        _ if cpus.is_empty() => allowed.to_vec(),
        _ => cpus.to_vec(),
    }
}

/// The CPUs of a process: the first so many where the streams name a number, the launch's one otherwise, and none
/// where the scheduler may choose.
pub(super) fn process_cpus(
    spec: &TcpStreamsSpec,
    cpu: Option<u32>,
    allowed: &[u32],
) -> Result<Vec<u32>, LaunchFault> {
    let Some(count) = spec.cpus.map(usize::from) else {
        return Ok(cpu.into_iter().collect());
    };
    let Some(chosen) = allowed.get(..count).filter(|chosen| !chosen.is_empty()) else {
        return Err(LaunchFault::Unavailable(format!(
            "{count} CPUs are asked for, and {} may be used here",
            allowed.len()
        )));
    };
    Ok(chosen.to_vec())
}

/// Sets the options of a stream between two hosts on one of its ends.
pub(super) fn set_stream_options(
    spec: &TcpStreamsSpec,
    fd: BorrowedFd<'_>,
) -> Result<(), LaunchFault> {
    let fd = fd.try_clone_to_owned().attempt("duplicate a socket")?;
    // Buffers are set below, whatever the host allows others.
    set_options(&without_buffers(&spec.options), &fd)?;
    set_buffers(&fd, &spec.options)
}

/// Every stream's near end, and its far end to hand over.
fn connect_streams(
    launch: &LaunchSpec,
    spec: &TcpStreamsSpec,
    site: &LaunchNetwork,
    facts: &mut BTreeMap<String, String>,
) -> Result<(Vec<TcpStream>, Vec<OwnedFd>), LaunchFault> {
    // Nobody waits while they are made.
    let (nobody, _) = socket::pair(UnixSocketKind::Stream).attempt("make a socket")?;
    let watch = PeerWatchdog::new(Arc::new(nobody), u32::MAX, None);
    // Buffers are set below, whatever the host allows others.
    let options = without_buffers(&spec.options);
    let channel = ChannelSpec { mechanism: Mechanism::Tcp4, wake: WakeMode::Block, options };
    let setup = ChannelSetup {
        channel: &channel,
        watchdog: &watch,
        location: &site.location,
        seed: launch.seed,
    };
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..spec.streams {
        let (here, handover) = connected_pair(&setup, false)?;
        facts.extend(handover.facts.iter().map(|(name, fact)| ((*name).to_owned(), fact.clone())));
        let [there] = handover.take()?;
        set_buffers(&here, &spec.options)?;
        set_buffers(&there, &spec.options)?;
        let bytes = socket::option(there.as_fd(), IntOption::SendBuffer);
        facts.insert("sndbuf".to_owned(), bytes.attempt("read a socket's buffer")?.to_string());
        near.push(TcpStream::from(here));
        far.push(there);
    }
    Ok((near, far))
}

fn without_buffers(options: &SocketOptions) -> SocketOptions {
    SocketOptions { send_buffer: None, receive_buffer: None, ..options.clone() }
}

/// Gives a socket buffers of the sizes asked for, which Linux doubles for its own records.
fn set_buffers(fd: &OwnedFd, options: &SocketOptions) -> Result<(), LaunchFault> {
    let (send, receive) = (options.send_buffer, options.receive_buffer);
    for (force, ask, limit, bytes) in [
        (IntOption::SendBufferForce, IntOption::SendBuffer, "wmem_max", send),
        (IntOption::ReceiveBufferForce, IntOption::ReceiveBuffer, "rmem_max", receive),
    ] {
        let Some(bytes) = bytes else { continue };
        let wanted = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
        if socket::set_option(fd.as_fd(), force, wanted).is_err() {
            socket::set_option(fd.as_fd(), ask, wanted).attempt("set a socket buffer")?;
        }
        let got = socket::option(fd.as_fd(), ask).attempt("read a socket's buffer")?;
        if got < wanted.saturating_mul(2) {
            return Err(LaunchFault::Unavailable(format!(
                "this host allows socket buffers of {} bytes, not {bytes}: run as root, or raise \
                 net.core.{limit}",
                got / 2
            )));
        }
    }
    Ok(())
}

/// For how long a stream is watched: thousands of messages.
const WATCHED: Span = Span::from_ms(20);

/// Watches the threads of two processes on some CPUs.
struct CpuTimeTrace {
    sender: u32,
    cpus: Vec<u32>,
    watch: Stopwatch,
    hit_ns: f64,
}

impl CpuTimeTrace {
    /// Finds out what a hit costs, before anything else wants the CPU.
    ///
    /// # Errors
    /// Where this host does not let anybody look, or the threads may run anywhere.
    fn new(sender: Option<u32>, cpus: &[u32], watch: Stopwatch) -> Result<Self, BlockError> {
        let (Some(sender), false, Ok(cpu)) = (sender, cpus.is_empty(), sched::current_cpu()) else {
            let why =
                "only threads of this host that are bound to CPUs are traced: choose a placement";
            return Err(BlockError::Unavailable(why.to_owned()));
        };
        let hit_ns = ProbeCost::measure_hit_ns(cpu, watch).map_err(|error| unavailable(&error))?;
        Ok(Self { sender, cpus: cpus.to_vec(), watch, hit_ns })
    }

    /// Watches the stream for a while: the shares of the stack and of what is unexplained.
    fn record(&self) -> Result<Vec<BlockPartReport>, BlockError> {
        let mut threads = thread_ids(std::process::id())?;
        threads.extend(thread_ids(self.sender)?);
        let set = TracepointSet::network();
        let mut recorder = TraceRecorder::open(&threads, &self.cpus, set, self.watch)
            .map_err(|error| unavailable(&error))?;
        let failed = |error| BlockError::Unavailable(format!("cannot record: {error}"));
        recorder.enable().map_err(failed)?;
        let until = monotonic_ns() + WATCHED.as_ns();
        // A tick ends a sleep early.
        while monotonic_ns() < until {
            sleep_until(until);
        }
        recorder.disable().map_err(failed)?;
        let shares = CpuTimeShares::of(&recorder.drain(), &threads, self.hit_ns);
        let part = |(response, share): (&str, Option<f64>)| BlockPartReport {
            response: response.to_owned(),
            n: u64::from(share.is_some()),
            samples: share.into_iter().collect(),
            histogram: Vec::new(),
            histogram_scale: 1.0,
            n_eff: None,
        };
        Ok([("in-stack", shares.stack()), ("unexplained", shares.unexplained())].map(part).to_vec())
    }
}

fn unavailable(error: &TraceUnavailable) -> BlockError {
    BlockError::Unavailable(error.to_string())
}

/// The threads of a process.
fn thread_ids(process: u32) -> Result<Vec<u32>, BlockError> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"))
        .map_err(|error| BlockError::Failed(format!("cannot list threads: {error}")))?;
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    Ok(tasks.filter_map(Result::ok).filter_map(number).collect())
}
