//! The worker: a fresh process that opens one channel, starts its peer, and does all the timing.
//!
//! It takes its orders from standard input and answers on standard output, so that the
//! orchestrator sleeps while it measures.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use plumb_base::seed::Seed;
use plumb_clock::Stopwatch;
use plumb_sys::{process, sched, signal, timer};

use crate::bench::ChannelBench;
use crate::channel::{
    ChannelEnd, ChannelMechanism, ChannelSetup, IoResultExt as _, LOSS_TIMEOUT_TICKS, PeerWatchdog,
    TICK_US,
};
use crate::host_costs::HostBench;
use crate::launch_network::{LaunchNetwork, path_probe};
use crate::launch_protocol::{OrchestratorMessage, OrchestratorPipe, WorkerMessage};
use crate::mechanisms::{ChannelVisitor, visit_channel};
use crate::peer_handle::{FarProcess, PeerHandle, PeerStartup};
use crate::program_task::{self, ProgramRun, ProgramTasks};
use crate::report::LaunchFault;
use crate::spec::{ChannelSpec, LaunchSpec, LaunchSubject, PathKind};

/// Bytes of the longest datagram that a lost one is waited for as long as.
const LONGEST_DATAGRAM: u64 = 1 << 16;

/// The same on a way between two hosts, of whose rate nothing is known.
const LOSS_TIMEOUT_FAR_TICKS: u32 = 15;

/// Runs a worker over standard input and output, with what the program does in it; its exit code.
pub fn main(tasks: &ProgramTasks) -> u8 {
    match work(tasks) {
        Ok(()) => 0,
        // The orchestrator sees the closed pipe.
        Err(_) => 1,
    }
}

fn work(tasks: &ProgramTasks) -> io::Result<()> {
    process::set_parent_death_signal(io::stdin().as_fd())?;
    signal::ignore_keyboard_interrupt()?;
    let mut orchestrator = OrchestratorPipe::new();
    let Some(OrchestratorMessage::Launch(spec)) = orchestrator.receive()? else { return Ok(()) };
    let allowed = sched::allowed_cpus()?;
    if let Some(cpu) = spec.cpu_local
        && let Err(error) = sched::bind(&[cpu])
    {
        let reason = format!("may not run on CPU {cpu}: {error}");
        return orchestrator.send(&WorkerMessage::Ready(Err(LaunchFault::Unavailable(reason))));
    }
    // Page loads have deadlines of their own and need no tick.
    if !matches!(spec.subject, LaunchSubject::PageLoads(_)) {
        timer::start_periodic_tick(TICK_US)?;
        timer::tick_at_child_end()?;
    }
    match spec.subject.clone() {
        LaunchSubject::Channel(channel) => {
            let network = LaunchNetwork::default();
            let launch = ChannelLaunch { spec, channel, network, orchestrator };
            visit_channel(launch.channel.mechanism, launch)
        }
        LaunchSubject::Remote(remote) => {
            let network = LaunchNetwork::for_channel(&remote, &spec, &spec.spare_cpus(&allowed));
            let network = match network {
                Ok(network) => network,
                Err(error) => return orchestrator.send(&WorkerMessage::Ready(Err(error))),
            };
            let channel = remote.channel;
            let launch = ChannelLaunch { spec, channel, network, orchestrator };
            visit_channel(launch.channel.mechanism, launch)
        }
        LaunchSubject::Mirror(mirror) => super::mirror::work(&spec, &mirror, orchestrator),
        LaunchSubject::Streams(streams) => {
            super::streams::work(&spec, &streams, &allowed, orchestrator)
        }
        LaunchSubject::PageLoads(visits) => {
            super::page_load::work(&spec, &visits, &allowed, tasks.fetch, orchestrator)
        }
        LaunchSubject::Alone | LaunchSubject::VirtualTime => {
            measure_alone(&spec, tasks, orchestrator)
        }
    }
}

/// Clocks, kernel calls and what the program does itself need no peer.
fn measure_alone(
    spec: &LaunchSpec,
    tasks: &ProgramTasks,
    mut orchestrator: OrchestratorPipe,
) -> io::Result<()> {
    let watch = Stopwatch::new(spec.ticks_per_ns);
    orchestrator.send(&WorkerMessage::Ready(Ok(watch.measure().facts())))?;
    let mut bench = HostBench::new(watch, spec.cpu_local.into_iter().collect());
    let mut seed = Seed(spec.seed);
    orchestrator.serve(|block| {
        seed = seed.derive("block");
        let duration_ticks = watch.ticks(block.duration_ns as f64);
        let cpu_peer = spec.cpu_peer;
        let run = ProgramRun { seed: seed.0, watch, duration_ticks, cpu_peer };
        program_task::measure(tasks, block, &run).unwrap_or_else(|| bench.measure(block))
    })
}

/// One channel's launch.
struct ChannelLaunch {
    spec: LaunchSpec,
    channel: ChannelSpec,
    network: LaunchNetwork,
    orchestrator: OrchestratorPipe,
}

impl ChannelVisitor for ChannelLaunch {
    type Output = io::Result<()>;

    fn visit<C: ChannelMechanism>(mut self) -> io::Result<()> {
        let opened = self.open::<C>();
        let (end, mut peer) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.orchestrator.send(&WorkerMessage::Ready(Err(error))),
        };
        let mut facts = std::mem::take(&mut peer.facts);
        facts.extend(self.network.facts.clone());
        self.orchestrator.send(&WorkerMessage::Ready(Ok(facts)))?;
        let mut bench = ChannelBench::new(end, &mut peer, &self.spec, &self.channel);
        let site = &mut self.network;
        self.orchestrator.serve(|block| {
            let mut report = match path_probe::measure(site, &self.spec, block)? {
                Some(report) => report,
                None => bench.measure(block)?,
            };
            site.add_counters(&mut report);
            Ok(report)
        })?;
        drop(bench);
        peer.quit()
    }
}

impl ChannelLaunch {
    /// Opens the channel, starts the peer and has it take over the other end.
    fn open<C: ChannelMechanism>(&self) -> Result<(C::Local, PeerHandle), LaunchFault> {
        let patience = if C::Local::LOSSY {
            self.loss_timeout_ticks()
        } else {
            self.operation_timeout_ticks()
        };
        if let Some(host) = &self.network.remote_host {
            let connection = host.supervisor.lock().connection();
            let connection = connection.attempt("watch over the connection to the other host")?;
            let watch = PeerWatchdog::new(Arc::new(connection), patience, None);
            let (end, handover) = C::open(&self.setup(&watch))?;
            let process = FarProcess::Remote(host.supervisor.clone());
            let facts = host.supervisor.lock().facts.clone();
            let mut peer = PeerHandle { process, page: None, facts };
            peer.facts.extend(handover.facts.into_iter().map(|(k, v)| (k.to_owned(), v)));
            return Ok((end, peer));
        }
        let startup = PeerStartup::new()?;
        let watchdog = startup.watchdog(patience)?;
        let (mut end, handover) = C::open(&self.setup(&watchdog))?;
        let channel = self.channel.clone();
        let peer = startup.start_channel(handover, channel, false, self.spec.peer_context())?;
        if let Some(pid) = peer.process.pid() {
            end.set_peer_pid(pid);
        }
        Ok((end, peer))
    }

    fn setup<'a>(&'a self, watch: &'a PeerWatchdog) -> ChannelSetup<'a> {
        ChannelSetup {
            channel: &self.channel,
            watchdog: watch,
            location: &self.network.location,
            seed: self.spec.seed,
        }
    }

    /// Ticks after which a datagram counts as lost: several of the path's own round trips.
    fn loss_timeout_ticks(&self) -> u32 {
        let LaunchSubject::Remote(remote) = &self.spec.subject else { return LOSS_TIMEOUT_TICKS };
        let exchange = remote.path.exchange_ns(LONGEST_DATAGRAM, LONGEST_DATAGRAM);
        let ticks = exchange.saturating_mul(3) / (u64::from(TICK_US) * 1_000);
        let least = match &remote.path.kind {
            // Its rate is not known.
            PathKind::Host(_) => LOSS_TIMEOUT_FAR_TICKS,
            _ => LOSS_TIMEOUT_TICKS,
        };
        least.saturating_add(u32::try_from(ticks).unwrap_or(u32::MAX))
    }

    fn operation_timeout_ticks(&self) -> u32 {
        let ticks = self.spec.deadline_ns / (u64::from(TICK_US) * 1_000);
        u32::try_from(ticks).unwrap_or(u32::MAX).max(2)
    }
}
