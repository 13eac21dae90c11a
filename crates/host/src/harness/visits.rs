//! Visits: a page with its images, fetched again and again from a server in a process of its own.
//!
//! The worker fetches and times, the server has the other CPU and, over a path, the other namespace or host. What
//! speaks HTTP is the program's own, which this crate does not know. Left out: messages of one
//! connection (`super::bench`).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdout, Command, Stdio};

use plumb_base::time::Span;
use plumb_sys::{affinity, clock, process, signal};
use serde::{Deserialize, Serialize};

use super::bench::Trouble;
use super::canary::Canary;
use super::effort::{CpuReading, KernelTimes};
use super::remote::Site;
use super::sampler;
use super::spec::{BlockReport, BlockSpec, LaunchFacts, LaunchSpec, PathSpec, Task, WorkerSays};
use super::steward::reach::Shared;
use super::worker::{SELF, Talk, others, told};
use crate::clock::Stopwatch;
use crate::local::{Attempt as _, Ground, OpenError};

/// The hidden subcommand that serves the page: it is given an address, and who alone may ask where that is not everybody, and prints the one that it has.
pub const WORD: &str = "__web";

/// What is visited, and how.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VisitsSpec {
    /// What stands between the two; loopback where there is nothing.
    pub path: Option<PathSpec>,
    /// The way to fetch the page, as the program names it.
    pub way: String,
}

impl VisitsSpec {
    /// A name for messages and records: `http2 over lan-1g`.
    pub fn name(&self) -> String {
        let over = self.path.as_ref().map_or("loopback", |path| path.name.as_str());
        format!("{} over {over}", self.way)
    }
}

/// Fetches the page from an address in one way, and says how many nanoseconds that took; or why it did not
/// come.
pub type Fetch = fn(SocketAddr, &str) -> Result<u64, String>;

/// Serves the page at an address until the process ends, to one guest where one is named, once it has been told where
/// that is; or why it cannot.
pub type Serve = fn(
    SocketAddr,
    Option<IpAddr>,
    &mut dyn FnMut(SocketAddr) -> io::Result<()>,
) -> Result<(), String>;

/// Runs the process that serves, as it is given; its exit code.
pub fn main(serve: Serve) -> u8 {
    let begin = || -> Result<(), String> {
        process::die_with_parent().map_err(|error| error.to_string())?;
        signal::ignore_keyboard_interrupt().map_err(|error| error.to_string())?;
        let address = std::env::args().nth(2).and_then(|text| text.parse().ok());
        let guest = std::env::args().nth(3).map(|text| text.parse()).transpose();
        let guest = guest.map_err(|_| "the guest has no address")?;
        serve(address.ok_or("no address is given")?, guest, &mut |address| say(&address))
    };
    match begin() {
        Ok(()) => 0,
        Err(reason) => {
            // The worker reads it where the address would be; without a worker nobody does.
            drop(say(&reason));
            1
        }
    }
}

fn say(line: &dyn Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// A worker's whole launch.
pub(super) fn work(
    launch: &LaunchSpec,
    spec: &VisitsSpec,
    allowed: &[u32],
    fetch: Fetch,
    mut talk: Talk,
) -> io::Result<()> {
    let mut visitor = match open(launch, spec, allowed, fetch) {
        Ok(visitor) => visitor,
        Err(error) => return talk.say(&told(error)),
    };
    let facts = facts(&visitor.site, spec);
    talk.say(&WorkerSays::Ready(LaunchFacts { facts }))?;
    talk.serve(|block| visitor.measure(block))
}

/// What is known of the network, with what a visit over it takes at the least.
fn facts(site: &Site, spec: &VisitsSpec) -> BTreeMap<String, String> {
    let mut facts = site.facts.clone();
    if let Some(path) = &spec.path {
        facts.insert("round_trip_ns".to_owned(), path.round_trip_ns.to_string());
        facts.extend(path.rate.map(|rate| ("rate".to_owned(), rate.to_string())));
    }
    facts
}

/// The server's process; killed when forgotten.
#[derive(Debug)]
pub(super) struct Server {
    bond: Bond,
    pub(super) address: SocketAddr,
}

/// What it is held by.
#[derive(Debug)]
enum Bond {
    /// A process of this one's own.
    Here(Child),
    /// A process of a steward's.
    There(Shared),
}

impl Server {
    /// CPU time that it has used.
    pub(super) fn cpu_ns(&self) -> io::Result<u64> {
        match &self.bond {
            Bond::Here(child) => clock::process_cpu_ns(child.id()),
            Bond::There(steward) => steward.lock().server_cpu_ns(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Bond::Here(child) = &mut self.bond {
            // It may have ended by itself; either way it is reaped here.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

struct Visitor {
    site: Site,
    server: Server,
    way: String,
    fetch: Fetch,
    /// Whether there was a visit already: the first one is the server's first too.
    is_warm: bool,
    watch: Stopwatch,
    kernel: KernelTimes,
}

fn open(
    launch: &LaunchSpec,
    spec: &VisitsSpec,
    allowed: &[u32],
    fetch: Fetch,
) -> Result<Visitor, OpenError> {
    let site = match &spec.path {
        Some(path) => Site::over(path, launch, &others(launch, allowed))?,
        None => Site::loopback(),
    };
    site.forget_connections()?;
    let cpu = launch.cpu_peer;
    let mut cpus: Vec<u32> = launch.cpu_local.into_iter().collect();
    let server = if let Ground::Host(host) = &site.ground {
        let address = host.steward.lock().open_visits(launch, host.any_address()?)?;
        Server { bond: Bond::There(host.steward.clone()), address }
    } else {
        cpus.extend(cpu);
        let address = site.ground.far(false)?;
        let started = site.ground.in_far(|| start(address, cpu, None))?;
        started.attempt("start the web server")?
    };
    Ok(Visitor {
        site,
        server,
        way: spec.way.clone(),
        fetch,
        is_warm: false,
        watch: Stopwatch::new(launch.ticks_per_ns),
        kernel: KernelTimes::new(cpus),
    })
}

/// Starts the server where this thread is, on a CPU of its own, for all or for one guest, and waits for its address.
pub(super) fn start(
    address: SocketAddr,
    cpu: Option<u32>,
    guest: Option<IpAddr>,
) -> io::Result<Server> {
    let own = affinity::allowed_cpus()?;
    if let Some(cpu) = cpu {
        affinity::bind(&[cpu])?;
    }
    let spawned = Command::new(SELF)
        .args([WORD, &address.to_string()])
        .args(guest.map(|guest| guest.to_string()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    affinity::bind(&own)?;
    let mut child = spawned?;
    let said = child.stdout.take().map(first_line).transpose();
    let unspecified = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let mut server = Server { bond: Bond::Here(child), address: unspecified };
    let said = said?.unwrap_or_default();
    let said = said.trim();
    // Whatever is no address is the reason why there is none.
    server.address = said.parse().map_err(|_| io::Error::other(said.to_owned()))?;
    Ok(server)
}

fn first_line(output: ChildStdout) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    Ok(line)
}

impl Visitor {
    /// How long one took, or why it failed.
    fn visit(&self) -> Result<u64, String> {
        let (address, way, fetch) = (self.server.address, self.way.as_str(), self.fetch);
        let visited = self.site.ground.in_near(|| fetch(address, way));
        let visited = visited.map_err(|error| error.to_string())?;
        visited.map_err(|error| format!("a visit failed: {error}"))
    }

    /// Visits for as long as a block lasts, and at least as often as a warm-up takes.
    fn measure(&mut self, block: &BlockSpec) -> Result<BlockReport, Trouble> {
        if block.task != Task::Visits {
            return Err(Trouble::Impossible(format!("{:?} is nothing for visits", block.task)));
        }
        if !self.is_warm {
            self.visit().map_err(Trouble::Broken)?;
            self.is_warm = true;
        }
        let canary = Canary::before(self.watch, block);
        let most = usize::try_from(block.samples_max).unwrap_or(usize::MAX).max(1);
        let mut samples = Vec::with_capacity(most.min(1 << 16));
        let gone = |error: io::Error| Trouble::Broken(format!("the web server is gone: {error}"));
        let server_cpu_ns = self.server.cpu_ns().map_err(gone)?;
        self.kernel.begin();
        let cpu = CpuReading::now();
        let begin = self.watch.begin();
        loop {
            samples.push(self.visit().map_err(Trouble::Broken)? as f64);
            let wall_ns = self.watch.ns(self.watch.end().wrapping_sub(begin));
            if wall_ns >= block.duration_ns as f64 || samples.len() >= most {
                break;
            }
        }
        let wall_ns = self.watch.ns(self.watch.end().wrapping_sub(begin));
        let mut report = BlockReport { batch: 1, ..BlockReport::default() };
        report.effort.local = CpuReading::now().since(cpu);
        (report.effort.softirq_ns, report.effort.steal_ns) = self.kernel.since_begin();
        report.effort.peer.process_ns =
            self.server.cpu_ns().map_err(gone)?.saturating_sub(server_cpu_ns);
        report.effort.wall_ns = Span::from_secs_f64(wall_ns * 1e-9).as_ns();
        report.effort.operations = samples.len() as u64;
        sampler::summarise(&samples, 1.0, block, &mut report);
        self.site.tell(&mut report);
        report.effort.canary_ns = canary.after();
        Ok(report)
    }
}
