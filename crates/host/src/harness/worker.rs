//! The worker: a fresh process that opens one channel, starts its peer, and does all the timing.
//!
//! It takes its orders from standard input and answers on standard output, so that the
//! orchestrator sleeps while it measures. Left out: how each thing is timed (`super::bench` over
//! channels, `super::calls` and `super::clocks` without one).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use plumb_sys::socket::Kind;
use plumb_sys::{affinity, fd, process, signal, socket, timer};

use super::bench::{Bench, Trouble};
use super::checksums::Checksums;
use super::control::{Attach, Control, PeerReport, PeerTask, PeerToWorker, WorkerToPeer};
use super::page::Page;
use super::remote::{Site, crossing};
use super::spec::{
    BlockReport, BlockSpec, ChannelSpec, LaunchFacts, LaunchSpec, OrchestratorSays, Subject,
    WorkerSays,
};
use super::visits::Fetch;
use super::{calls, clocks, frame};
use crate::clock::Stopwatch;
use crate::local::{Channel, End, Handover, OpenError, Setup, Visitor, Watch, visit};

/// How often blocking calls are interrupted to look around.
pub(crate) const TICK_US: u32 = 20_000;

/// Bytes of the longest datagram that a lost one is waited for as long as.
const LONGEST_DATAGRAM: u64 = 1 << 16;

/// Ticks after which a datagram counts as lost.
pub(super) const PATIENCE_LOSSY_TICKS: u32 = 3;

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

/// What ties a worker to its peer beside the channel: a page and a control socket.
struct Ties {
    page: Page,
    page_fd: OwnedFd,
    own: OwnedFd,
    theirs: OwnedFd,
}

impl Ties {
    fn new() -> Result<Self, OpenError> {
        let (page, page_fd) = Page::create().map_err(broken("share a page with the peer"))?;
        let (own, theirs) =
            socket::pair(Kind::Stream).map_err(broken("make a socket to the peer"))?;
        Ok(Self { page, page_fd, own, theirs })
    }

    fn watch(&self, patience: u32) -> Result<Watch, OpenError> {
        let fd = self.own.try_clone().map_err(broken("duplicate a socket"))?;
        Ok(Watch::new(Arc::new(fd), patience, None))
    }

    /// Starts the peer with everything that it inherits.
    fn start_peer(&self, handover: &Handover) -> Result<Child, OpenError> {
        for fd in handover.fds.iter().chain([&self.page_fd, &self.theirs]) {
            fd::set_inheritable(fd.as_fd(), true).map_err(broken("hand a descriptor over"))?;
        }
        start_peer(Path::new(SELF), "__peer", &self.theirs)
            .map_err(broken("start the peer process"))
    }
}

fn broken(what: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    move |source| OpenError::Io { what, source }
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
        drop(peer.control.say(&WorkerToPeer::Quit));
        peer.wait()
    }
}

impl Session {
    /// Opens the channel, starts the peer and has it take over the other end.
    fn open<C: Channel>(&self) -> Result<(C::Local, Peer), OpenError> {
        let ties = Ties::new()?;
        let patience = if C::Local::LOSSY { self.lossy_ticks() } else { self.patience_ticks() };
        let watch = ties.watch(patience)?;
        let setup = Setup {
            channel: &self.channel,
            watch: &watch,
            ground: &self.site.ground,
            seed: self.spec.seed,
        };
        let (mut end, handover) = C::open(&setup)?;
        let child = ties.start_peer(&handover)?;
        end.meet(child.id());
        let peer = self.hand_over(ties, handover, child)?;
        Ok((end, peer))
    }

    /// Has the peer take over its end of the channel.
    fn hand_over(&self, ties: Ties, handover: Handover, child: Child) -> Result<Peer, OpenError> {
        let attach = WorkerToPeer::Attach(Attach {
            channel: self.channel.clone(),
            fds: handover.fds.iter().map(AsRawFd::as_raw_fd).collect(),
            numbers: handover.numbers,
            page_fd: ties.page_fd.as_raw_fd(),
            cpu: self.spec.cpu_peer,
            ticks_per_ns: self.spec.ticks_per_ns,
            seed: self.spec.seed,
        });
        let Ties { page, page_fd, own, theirs } = ties;
        drop((handover.fds, page_fd, theirs));
        let facts = handover.facts.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        let mut peer = Peer::new(Control::new(own), page, child);
        peer.facts = facts;
        let answer = peer.control.say(&attach).and_then(|()| peer.control.hear());
        match answer.map_err(broken("hand the channel to the peer"))? {
            PeerToWorker::Attached => Ok(peer),
            PeerToWorker::Unavailable(reason) => Err(OpenError::Unavailable(reason)),
            PeerToWorker::Failed(reason) => {
                Err(broken("attach the peer")(io::Error::other(reason)))
            }
            PeerToWorker::Armed | PeerToWorker::Done(_) => {
                Err(broken("attach the peer")(io::Error::from(io::ErrorKind::InvalidData)))
            }
        }
    }

    /// Ticks after which a datagram counts as lost: several of the path's own round trips.
    fn lossy_ticks(&self) -> u32 {
        let Subject::Remote(remote) = &self.spec.subject else { return PATIENCE_LOSSY_TICKS };
        let exchange = remote.path.exchange_ns(LONGEST_DATAGRAM, LONGEST_DATAGRAM);
        let ticks = exchange.saturating_mul(3) / (u64::from(TICK_US) * 1_000);
        PATIENCE_LOSSY_TICKS.saturating_add(u32::try_from(ticks).unwrap_or(u32::MAX))
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

/// The peer process as the worker knows it; killed when forgotten.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) control: Control,
    pub(crate) page: Page,
    child: Child,
    pub(super) facts: BTreeMap<String, String>,
}

impl Peer {
    pub(super) fn new(control: Control, page: Page, child: Child) -> Self {
        Self { control, page, child, facts: BTreeMap::new() }
    }

    /// Starts it on its part of a task.
    pub(super) fn begin(&mut self, task: PeerTask) -> Result<(), Trouble> {
        self.control.say(&WorkerToPeer::Begin(task))?;
        match self.control.hear()? {
            PeerToWorker::Armed => Ok(()),
            other => Err(out_of_turn(&other)),
        }
    }

    /// Its report, once its part is done.
    pub(super) fn done(&mut self) -> Result<PeerReport, Trouble> {
        match self.control.hear()? {
            PeerToWorker::Done(report) => Ok(*report),
            other => Err(out_of_turn(&other)),
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it is gone.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        self.child.wait().map(drop)
    }
}

fn out_of_turn(message: &PeerToWorker) -> Trouble {
    Trouble::Broken(match message {
        PeerToWorker::Failed(reason) => format!("the peer failed: {reason}"),
        other => format!("the peer said {other:?} out of turn"),
    })
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is reaped here.
        drop(self.child.kill());
        drop(self.child.wait());
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
