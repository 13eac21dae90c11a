//! The worker: a fresh process that opens one channel, starts its peer, and does all the timing.
//!
//! It takes its orders from standard input and answers on standard output, so that the
//! orchestrator sleeps while it measures. Left out: how each thing is timed (`super::bench` over
//! channels, `super::calls` and `super::clocks` without one).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use plumb_sys::{affinity, process, signal, timer};

use super::bench::{Bench, Trouble};
use super::checksums::Checksums;
use super::control::{Attach, WorkerToPeer};
use super::partner::{Peer, Ties};
use super::remote::{Site, crossing};
use super::spec::{
    BlockReport, BlockSpec, ChannelSpec, LaunchFacts, LaunchSpec, OrchestratorSays, Subject, Wire,
    WorkerSays,
};
use super::visits::Fetch;
use super::{calls, clocks, frame};
use crate::clock::Stopwatch;
use crate::local::{Attempt as _, Channel, End, Ground, OpenError, Setup, Visitor, Watch, visit};

/// How often blocking calls are interrupted to look around.
pub(crate) const TICK_US: u32 = 20_000;

/// Bytes of the longest datagram that a lost one is waited for as long as.
const LONGEST_DATAGRAM: u64 = 1 << 16;

/// Ticks after which a datagram counts as lost.
pub(super) const PATIENCE_LOSSY_TICKS: u32 = 3;

/// The same on a way between two hosts, of whose rate nothing is known.
const PATIENCE_FAR_TICKS: u32 = 15;

/// Runs a worker over standard input and output, which fetches pages as it is given; its exit code.
pub fn main(fetch: Fetch) -> u8 {
    match work(fetch) {
        Ok(()) => 0,
        // The orchestrator sees the closed pipe.
        Err(_) => 1,
    }
}

fn work(fetch: Fetch) -> io::Result<()> {
    process::die_with_parent()?;
    signal::ignore_keyboard_interrupt()?;
    let mut talk = Talk::new();
    let Some(OrchestratorSays::Launch(spec)) = talk.hear()? else { return Ok(()) };
    let allowed = affinity::allowed_cpus()?;
    if let Some(cpu) = spec.cpu_local
        && let Err(error) = affinity::bind(&[cpu])
    {
        let reason = format!("may not run on CPU {cpu}: {error}");
        return talk.say(&WorkerSays::Unavailable(reason));
    }
    // What fetches pages has deadlines of its own, and never has to look around.
    if !matches!(spec.subject, Subject::Visits(_)) {
        timer::start_ticking(TICK_US)?;
    }
    match spec.subject.clone() {
        Subject::Channel(channel) => {
            let site = Site::loopback();
            visit(channel.mechanism, Session { spec, channel, site, talk })
        }
        Subject::Remote(remote) => match Site::make(&remote, &spec, &others(&spec, &allowed)) {
            Ok(site) => {
                let channel = remote.channel;
                visit(channel.mechanism, Session { spec, channel, site, talk })
            }
            Err(error) => talk.say(&told(error)),
        },
        Subject::Mirror(mirror) => super::mirror::work(&spec, &mirror, talk),
        Subject::Streams(streams) => super::streams::work(&spec, &streams, &allowed, talk),
        Subject::Visits(visits) => super::visits::work(&spec, &visits, &allowed, fetch, talk),
        Subject::Alone => without_channel(&spec, talk),
    }
}

/// The worker's words with the orchestrator.
pub(super) struct Talk {
    answers: io::Stdout,
    orders: io::Stdin,
}

impl Talk {
    fn new() -> Self {
        Self { answers: io::stdout(), orders: io::stdin() }
    }

    pub(super) fn say(&mut self, message: &WorkerSays) -> io::Result<()> {
        frame::write(&mut self.answers.lock(), message)
    }

    fn hear(&mut self) -> io::Result<Option<OrchestratorSays>> {
        frame::read(&mut self.orders.lock())
    }

    /// Answers every block with `measure` until told to quit or something breaks for good.
    pub(super) fn serve(
        &mut self,
        mut measure: impl FnMut(&BlockSpec) -> Result<BlockReport, Trouble>,
    ) -> io::Result<()> {
        while let Some(OrchestratorSays::Measure(spec)) = self.hear()? {
            match measure(&spec) {
                Ok(report) => self.say(&WorkerSays::Block(Box::new(report)))?,
                Err(Trouble::Impossible(reason) | Trouble::Silent(reason)) => {
                    self.say(&WorkerSays::BlockUnavailable(reason))?;
                }
                Err(Trouble::Broken(reason)) => return self.say(&WorkerSays::Failed(reason)),
            }
        }
        Ok(())
    }
}

/// Clocks and kernel calls need no peer.
fn without_channel(spec: &LaunchSpec, mut talk: Talk) -> io::Result<()> {
    let watch = Stopwatch::new(spec.ticks_per_ns);
    talk.say(&WorkerSays::Ready(LaunchFacts { facts: watch.measure().facts() }))?;
    let cpus: Vec<u32> = spec.cpu_local.into_iter().collect();
    let mut checksums = Checksums::default();
    talk.serve(|block| {
        if let Some(report) = calls::measure(block, watch, &cpus)? {
            return Ok(report);
        }
        match checksums.measure(block, watch, &cpus)? {
            Some(report) => Ok(report),
            None => clocks::measure(block, watch),
        }
    })
}

/// One channel's launch.
struct Session {
    spec: LaunchSpec,
    channel: ChannelSpec,
    site: Site,
    talk: Talk,
}

impl Visitor for Session {
    type Output = io::Result<()>;

    fn visit<C: Channel>(mut self) -> io::Result<()> {
        let opened = self.open::<C>();
        let (end, mut peer) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.talk.say(&told(error)),
        };
        let mut facts = std::mem::take(&mut peer.facts);
        facts.extend(self.site.facts.clone());
        self.talk.say(&WorkerSays::Ready(LaunchFacts { facts }))?;
        let mut bench = Bench::new(end, &mut peer, &self.spec, &self.channel);
        let site = &mut self.site;
        self.talk.serve(|block| {
            let mut report = match crossing::measure(site, &self.spec, block)? {
                Some(report) => report,
                None => bench.measure(block)?,
            };
            site.tell(&mut report);
            Ok(report)
        })?;
        drop(bench);
        // A peer that is gone already has quit.
        drop(peer.say(WorkerToPeer::Quit));
        peer.wait()
    }
}

impl Session {
    /// Opens the channel, starts the peer and has it take over the other end.
    fn open<C: Channel>(&self) -> Result<(C::Local, Peer), OpenError> {
        let patience = if C::Local::LOSSY { self.lossy_ticks() } else { self.patience_ticks() };
        if let Ground::Host(host) = &self.site.ground {
            let connection = host.steward.lock().connection();
            let connection = connection.attempt("watch over the connection to the other host")?;
            let watch = Watch::new(Arc::new(connection), patience, None);
            let (end, handover) = C::open(&self.setup(&watch))?;
            let mut peer = Peer::there(host.steward.clone());
            peer.facts = host.steward.lock().facts.clone();
            peer.facts.extend(handover.facts.into_iter().map(|(k, v)| (k.to_owned(), v)));
            return Ok((end, peer));
        }
        let ties = Ties::new()?;
        let watch = ties.watch(patience)?;
        let (mut end, handover) = C::open(&self.setup(&watch))?;
        let child = ties.start_peer(&handover)?;
        end.meet(child.id());
        let attach = Attach {
            channel: self.channel.clone(),
            fds: Vec::new(),
            numbers: Vec::new(),
            page_fd: 0,
            cpu: self.spec.cpu_peer,
            ticks_per_ns: self.spec.ticks_per_ns,
            is_apart: false,
            seed: self.spec.seed,
        };
        let peer = ties.hand_over(handover, child, attach)?;
        Ok((end, peer))
    }

    fn setup<'a>(&'a self, watch: &'a Watch) -> Setup<'a> {
        Setup { channel: &self.channel, watch, ground: &self.site.ground, seed: self.spec.seed }
    }

    /// Ticks after which a datagram counts as lost: several of the path's own round trips.
    fn lossy_ticks(&self) -> u32 {
        let Subject::Remote(remote) = &self.spec.subject else { return PATIENCE_LOSSY_TICKS };
        let exchange = remote.path.exchange_ns(LONGEST_DATAGRAM, LONGEST_DATAGRAM);
        let ticks = exchange.saturating_mul(3) / (u64::from(TICK_US) * 1_000);
        let least = match &remote.path.wire {
            // What rate it has is not known.
            Wire::Host(_) => PATIENCE_FAR_TICKS,
            _ => PATIENCE_LOSSY_TICKS,
        };
        least.saturating_add(u32::try_from(ticks).unwrap_or(u32::MAX))
    }

    fn patience_ticks(&self) -> u32 {
        let ticks = self.spec.deadline_ns / (u64::from(TICK_US) * 1_000);
        u32::try_from(ticks).unwrap_or(u32::MAX).max(2)
    }
}

/// The CPUs that neither worker nor peer is bound to; all, where none is left.
pub(super) fn others(spec: &LaunchSpec, allowed: &[u32]) -> Vec<u32> {
    let taken = [spec.cpu_local, spec.cpu_peer];
    let left: Vec<u32> =
        allowed.iter().copied().filter(|cpu| !taken.contains(&Some(*cpu))).collect();
    if left.is_empty() { allowed.to_vec() } else { left }
}

/// What becomes of a launch whose channel cannot be opened.
pub(super) fn told(error: OpenError) -> WorkerSays {
    match error {
        OpenError::Unavailable(reason) => WorkerSays::Unavailable(reason),
        broken @ OpenError::Io { .. } => WorkerSays::Failed(broken.to_string()),
    }
}

/// This same binary.
pub(super) const SELF: &str = "/proc/self/exe";

/// Starts a program as the peer, its control socket inherited by number.
pub(super) fn start_peer(program: &Path, word: &str, control: &OwnedFd) -> io::Result<Child> {
    Command::new(program)
        .arg(word)
        .arg(control.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
}
