//! Visits: a page with its images, fetched again and again from a server in a process of its own.
//!
//! The worker fetches and times, the server has the other CPU and, over a path, the other namespace or host. What
//! speaks HTTP is the program's own, which this crate does not know.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use plumb_clock::Stopwatch;
use plumb_sys::{clock, process, sched, signal};

use crate::channel::IoResultExt as _;
use crate::child_process::{
    ChildProcess, HiddenCommand, SELF_EXE, START_TIMEOUT, no_answer, wait_readable,
};
use crate::effort::{Canary, EffortMeter, KernelTimes};
use crate::launch_network::LaunchNetwork;
use crate::launch_protocol::{OrchestratorPipe, WorkerMessage};
use crate::report::{BlockError, BlockOutcome, BlockReport, LaunchFault, summarize};
use crate::spec::{BlockSpec, BlockTask, LaunchSpec, PageLoadSpec};
use crate::supervisor::client::SharedSupervisor;

/// Fetches the page from an address in one way, and says how many nanoseconds that took; or why it did not
/// come.
pub type FetchPage = fn(SocketAddr, &str) -> Result<u64, String>;

/// Serves the page at an address until the process ends, to one client where one is named, once it has been told where
/// that is; or why it cannot.
pub type ServePage = fn(
    SocketAddr,
    Option<IpAddr>,
    &mut dyn FnMut(SocketAddr) -> io::Result<()>,
) -> Result<(), String>;

/// Runs the process that serves, at an address and to one client or to all; its exit code.
pub fn main(address: SocketAddr, client: Option<IpAddr>, serve: ServePage) -> u8 {
    let begin = process::set_parent_death_signal(io::stdout().as_fd())
        .and_then(|()| signal::ignore_keyboard_interrupt());
    let served = begin
        .map_err(|error| error.to_string())
        .and_then(|()| serve(address, client, &mut |address| print_line(&address)));
    match served {
        Ok(()) => 0,
        Err(reason) => {
            // The worker reads it where the address would be; without a worker nobody does.
            drop(print_line(&reason));
            1
        }
    }
}

fn print_line(line: &dyn Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// A worker's whole launch.
pub(super) fn work(
    launch: &LaunchSpec,
    spec: &PageLoadSpec,
    allowed: &[u32],
    fetch: FetchPage,
    mut orchestrator: OrchestratorPipe,
) -> io::Result<()> {
    let mut visitor = match open(launch, spec, allowed, fetch) {
        Ok(visitor) => visitor,
        Err(error) => return orchestrator.send(&WorkerMessage::Ready(Err(error))),
    };
    let facts = facts(&visitor.network, spec);
    orchestrator.send(&WorkerMessage::Ready(Ok(facts)))?;
    orchestrator.serve(|block| visitor.measure(block))
}

/// What is known about the network, with what a visit over it takes at the least.
fn facts(site: &LaunchNetwork, spec: &PageLoadSpec) -> BTreeMap<String, String> {
    let mut facts = site.facts.clone();
    if let Some(path) = &spec.path {
        facts.insert("round_trip_ns".to_owned(), path.round_trip_ns.to_string());
        facts.extend(path.rate.map(|rate| ("rate".to_owned(), rate.to_string())));
    }
    facts
}

/// The server's process.
#[derive(Debug)]
pub(super) struct PageServer {
    process: ServerProcess,
    pub(super) address: SocketAddr,
}

/// What it is held by.
#[derive(Debug)]
enum ServerProcess {
    /// A process of this one's own.
    Local(ChildProcess),
    /// A process of a supervisor's.
    Remote(SharedSupervisor),
}

impl PageServer {
    /// CPU time that it has used.
    pub(super) fn cpu_ns(&self) -> io::Result<u64> {
        match &self.process {
            ServerProcess::Local(process) => clock::process_cpu_ns(process.child.id()),
            ServerProcess::Remote(supervisor) => supervisor.lock().server_cpu_ns(),
        }
    }
}

struct PageLoader {
    network: LaunchNetwork,
    server: PageServer,
    fetch_mode: String,
    fetch: FetchPage,
    /// Whether there was a visit already: the first one is the server's first too.
    is_warm: bool,
    watch: Stopwatch,
    kernel: KernelTimes,
}

fn open(
    launch: &LaunchSpec,
    spec: &PageLoadSpec,
    allowed: &[u32],
    fetch: FetchPage,
) -> Result<PageLoader, LaunchFault> {
    let site = match &spec.path {
        Some(path) => LaunchNetwork::for_path(path, launch, &launch.spare_cpus(allowed))?,
        None => LaunchNetwork::default(),
    };
    site.forget_connections()?;
    let cpu = launch.cpu_peer;
    let mut cpus: Vec<u32> = launch.cpu_local.into_iter().collect();
    let server = if let Some(host) = &site.remote_host {
        let address = host.supervisor.lock().serve_page(launch, host.any_address()?)?;
        PageServer { process: ServerProcess::Remote(host.supervisor.clone()), address }
    } else {
        cpus.extend(cpu);
        let address = site.location.far_address(false)?;
        let started = site.location.in_far(|| start_page_server(address, cpu, None))?;
        started.attempt("start the web server")?
    };
    Ok(PageLoader {
        network: site,
        server,
        fetch_mode: spec.fetch_mode.clone(),
        fetch,
        is_warm: false,
        watch: Stopwatch::new(launch.ticks_per_ns),
        kernel: KernelTimes::new(cpus),
    })
}

/// Starts the server where this thread is, on a CPU of its own, for all clients or one, and waits for its address.
pub(super) fn start_page_server(
    address: SocketAddr,
    cpu: Option<u32>,
    client: Option<IpAddr>,
) -> io::Result<PageServer> {
    let own = sched::allowed_cpus()?;
    if let Some(cpu) = cpu {
        sched::bind(&[cpu])?;
    }
    let command = HiddenCommand::PageServer { address, client };
    let spawned = ChildProcess::spawn(
        Command::new(SELF_EXE)
            .args(command.arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::piped()),
    );
    sched::bind(&own)?;
    let mut process = spawned?;
    let stdout = process.child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    if !wait_readable(stdout.as_fd(), START_TIMEOUT, &mut || false)? {
        return Err(no_answer());
    }
    let mut said = String::new();
    BufReader::new(stdout).read_line(&mut said)?;
    let said = said.trim();
    // Anything but an address is the reason why there is none.
    let address = said.parse().map_err(|_| io::Error::other(said.to_owned()))?;
    Ok(PageServer { process: ServerProcess::Local(process), address })
}

impl PageLoader {
    /// How long one took, or why it failed.
    fn load_page(&self) -> Result<u64, String> {
        let (address, way, fetch) = (self.server.address, self.fetch_mode.as_str(), self.fetch);
        let visited = self.network.location.in_near(|| fetch(address, way));
        let visited = visited.map_err(|error| error.to_string())?;
        visited.map_err(|error| format!("page load failed: {error}"))
    }

    /// Visits for as long as a block lasts, and at least as often as a warm-up takes.
    fn measure(&mut self, block: &BlockSpec) -> BlockOutcome {
        if block.task != BlockTask::PageLoad {
            return Err(BlockError::wrong_task("page loads"));
        }
        if !self.is_warm {
            self.load_page().map_err(BlockError::Failed)?;
            self.is_warm = true;
        }
        let canary = Canary::before(self.watch, block);
        let mut samples = Vec::with_capacity((block.samples_max as usize).min(1 << 16));
        let gone =
            |error: io::Error| BlockError::Failed(format!("the page server exited: {error}"));
        let server_cpu_ns = self.server.cpu_ns().map_err(gone)?;
        let meter = EffortMeter::start(&mut self.kernel, self.watch, block);
        loop {
            samples.push(self.load_page().map_err(BlockError::Failed)? as f64);
            if meter.is_over(samples.len(), self.watch.end()) {
                break;
            }
        }
        let effort = meter.stop(&mut self.kernel, self.watch, samples.len() as u64);
        let mut report = BlockReport { batch: 1, effort, ..BlockReport::default() };
        report.effort.peer.process_ns =
            self.server.cpu_ns().map_err(gone)?.saturating_sub(server_cpu_ns);
        summarize(&samples, 1.0, block, &mut report);
        self.network.add_counters(&mut report);
        report.effort.canary_ns = canary.after();
        Ok(report)
    }
}
