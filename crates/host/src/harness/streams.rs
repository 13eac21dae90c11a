//! Streams: TCP connections from another process to the worker, a thread for each at both ends.
//!
//! The worker receives, and so counts what arrived; it reads the CPU clocks of both processes beside the
//! time. Left out: one message after another, which is a channel's (`super::bench`).

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;

use plumb_sys::socket::{self, IntOption, Kind};
use plumb_sys::{affinity, clock, fd};
use serde::{Deserialize, Serialize};

use super::bench::Trouble;
use super::control::Control;
use super::effort::KernelTimes;
use super::remote::Site;
use super::spec::{ChannelSpec, LaunchFacts, LaunchSpec, PathSpec, SocketOptions, WorkerSays};
use super::steward::reach::Shared;
use super::steward::word::{Ask, Tell};
use super::worker::{SELF, Talk, others, start_peer, told};
use crate::clock::Stopwatch;
use crate::local::mechanism::{Mechanism, Wake};
use crate::local::{Attempt as _, Ground, OpenError, Setup, Watch, connected_pair, set_options};

mod receiver;
pub mod share;
pub mod source;
mod tweaks;

use receiver::Receiver;
use share::Share;
use source::{Attach, SourceToWorker, WorkerToSource};

/// Streams and what both of their processes are given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StreamsSpec {
    /// What they cross; loopback where there is nothing.
    pub path: Option<PathSpec>,
    /// How many.
    pub streams: u16,
    /// CPUs that both processes may use, the first that are allowed; where absent, each process has the
    /// CPU of its own that the launch names.
    pub cpus: Option<u16>,
    /// Percent of their CPUs that both processes have; the rest is taken from them.
    pub cpu_percent: u8,
    /// Options of every socket.
    pub options: SocketOptions,
    /// SO_RCVLOWAT of the receivers while a block is measured.
    pub low_water: Option<u32>,
    /// What both processes ask of the kernel for themselves.
    pub tweaks: Tweaks,
}

/// What a process asks of the kernel for itself, to be disturbed less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tweaks {
    /// All of its memory stays in memory (mlockall(2)).
    pub locked: bool,
    /// Its threads run before all that have no real-time priority (SCHED_FIFO).
    pub real_time: bool,
    /// Its messages lie in a huge page.
    pub huge_pages: bool,
}

impl StreamsSpec {
    /// A name for messages and records: `4 streams over veth`.
    pub fn name(&self) -> String {
        let over = self.path.as_ref().map_or("loopback", |path| path.name.as_str());
        let streams = if self.streams == 1 { "stream" } else { "streams" };
        format!("{} {streams} over {over}", self.streams)
    }
}

/// A worker's whole launch.
pub(super) fn work(
    launch: &LaunchSpec,
    spec: &StreamsSpec,
    allowed: &[u32],
    mut talk: Talk,
) -> io::Result<()> {
    let mut receiver = match open(launch, spec, allowed) {
        Ok(receiver) => receiver,
        Err(error) => return talk.say(&told(error)),
    };
    let facts = std::mem::take(&mut receiver.facts);
    talk.say(&WorkerSays::Ready(LaunchFacts { facts }))?;
    talk.serve(|block| receiver.measure(block))?;
    receiver.source.end()
}

/// The process that sends, as the worker knows it; killed when forgotten.
#[derive(Debug)]
pub(super) struct Source(Bond);

/// What it is held by.
#[derive(Debug)]
enum Bond {
    /// A process of this one's own.
    Here { control: Control, child: Child },
    /// A process of a steward's.
    There(Shared),
}

impl Source {
    /// Starts it with the far ends.
    pub(super) fn start(
        far: Vec<OwnedFd>,
        cpus: Vec<u32>,
        tweaks: Tweaks,
        seed: u64,
    ) -> Result<Self, OpenError> {
        let (own, theirs) = socket::pair(Kind::Stream).attempt("make a socket to the sender")?;
        for fd in far.iter().chain([&theirs]) {
            fd::set_inheritable(fd.as_fd(), true).attempt("hand a descriptor over")?;
        }
        let child = start_peer(Path::new(SELF), source::WORD, &theirs)
            .attempt("start the sender's process")?;
        let mut this = Self(Bond::Here { control: Control::new(own), child });
        let fds = far.iter().map(AsRawFd::as_raw_fd).collect();
        let attach = WorkerToSource::Attach(Attach { fds, cpus, tweaks, seed });
        drop((far, theirs));
        let broken = |source| OpenError::Io { what: "hand the streams to the sender", source };
        match this.say(attach).and_then(|()| this.hear()).map_err(broken)? {
            SourceToWorker::Attached => Ok(this),
            SourceToWorker::Refused(reason) => Err(OpenError::Unavailable(reason)),
            _ => Err(broken(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Says something to it.
    pub(super) fn say(&mut self, message: WorkerToSource) -> io::Result<()> {
        match &mut self.0 {
            Bond::Here { control, .. } => control.say(&message),
            Bond::There(steward) => steward.lock().say(&Ask::ToSource(message)),
        }
    }

    /// Hears something from it; an error when it is gone.
    fn hear(&mut self) -> io::Result<SourceToWorker> {
        match &mut self.0 {
            Bond::Here { control, .. } => control.hear(),
            Bond::There(steward) => match steward.lock().hear()? {
                Tell::FromSource(message) => Ok(message),
                Tell::Failed(reason) => Ok(SourceToWorker::Failed(reason)),
                other => Err(io::Error::other(format!("the other host said {other:?}"))),
            },
        }
    }

    /// Its control socket once more, for who listens while another speaks.
    pub(super) fn ear(&self) -> io::Result<Control> {
        match &self.0 {
            Bond::Here { control, .. } => control.try_clone(),
            Bond::There(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether it is on another host.
    fn is_apart(&self) -> bool {
        matches!(self.0, Bond::There(_))
    }

    /// CPU time that it has used so far; none of a process of another host, which says itself in the end.
    fn cpu_ns(&self) -> Result<Option<u64>, Trouble> {
        let Bond::Here { child, .. } = &self.0 else { return Ok(None) };
        let gone = |error| Trouble::Broken(format!("the sender is gone: {error}"));
        clock::process_cpu_ns(child.id()).map(Some).map_err(gone)
    }

    /// Has it end, and waits until it is gone.
    fn end(&mut self) -> io::Result<()> {
        // One that is gone already has ended.
        drop(self.say(WorkerToSource::Quit));
        match &mut self.0 {
            Bond::Here { child, .. } => child.wait().map(drop),
            // Who forgets the steward waits for it.
            Bond::There(_) => Ok(()),
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Bond::Here { child, .. } = &mut self.0 {
            // It may have ended by itself; either way it is reaped here.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Makes the network, connects every stream, and starts the process that sends.
fn open(launch: &LaunchSpec, spec: &StreamsSpec, allowed: &[u32]) -> Result<Receiver, OpenError> {
    let own_cpus = seats(spec, launch.cpu_local, allowed)?;
    let site = match &spec.path {
        Some(path) => Site::over(path, launch, &others(launch, allowed))?,
        None => Site::loopback(),
    };
    if spec.cpus.is_some() {
        // Not before: a steward on this very machine is to have all the CPUs that it may use.
        affinity::bind(&own_cpus).attempt("run on some CPUs alone")?;
    }
    let mut facts = site.facts.clone();
    let mut cpus = own_cpus;
    let (sockets, source) = if let Ground::Host(host) = &site.ground {
        let mut steward = host.steward.lock();
        let sockets = steward.open_streams(launch, spec, host.any_address()?)?;
        facts.extend(steward.facts.clone());
        drop(steward);
        for socket in &sockets {
            prepare(spec, socket.as_fd())?;
        }
        (sockets, Source(Bond::There(host.steward.clone())))
    } else {
        let theirs = seats(spec, launch.cpu_peer, allowed)?;
        cpus.extend(&theirs);
        let (sockets, far) = connections(launch, spec, &site, &mut facts)?;
        (sockets, Source::start(far, theirs, spec.tweaks, launch.seed)?)
    };
    if let Some(socket) = sockets.first() {
        let bytes = socket::option(socket.as_fd(), IntOption::ReceiveBuffer);
        facts.insert("rcvbuf".to_owned(), bytes.attempt("read a socket's buffer")?.to_string());
    }
    cpus.sort_unstable();
    cpus.dedup();
    let slowed = slowed(spec, &cpus, allowed);
    if !slowed.is_empty() {
        // Whether it may be done at all is to be known before a block is begun.
        drop(Share::leave(&slowed, spec.cpu_percent)?);
        if let Ground::Host(host) = &site.ground {
            host.steward.lock().share(true)?;
            host.steward.lock().share(false)?;
        }
    }
    // Last, so that nothing that was started inherits it.
    spec.tweaks.take().map_err(OpenError::Unavailable)?;
    Ok(Receiver {
        spec: spec.clone(),
        seed: launch.seed,
        watch: Stopwatch::new(launch.ticks_per_ns),
        sockets,
        site,
        source,
        slowed,
        kernel: KernelTimes::new(cpus),
        facts,
    })
}

/// The CPUs of which a part is taken away, where a process that may use some is to have less of them.
pub(super) fn slowed(spec: &StreamsSpec, cpus: &[u32], allowed: &[u32]) -> Vec<u32> {
    match spec.cpu_percent {
        100.. => Vec::new(),
        _ if cpus.is_empty() => allowed.to_vec(),
        _ => cpus.to_vec(),
    }
}

/// The CPUs of a process: the first so many where the streams name a number, the launch's one otherwise, and none
/// where the scheduler may choose.
pub(super) fn seats(
    spec: &StreamsSpec,
    cpu: Option<u32>,
    allowed: &[u32],
) -> Result<Vec<u32>, OpenError> {
    let Some(count) = spec.cpus.map(usize::from) else {
        return Ok(cpu.into_iter().collect());
    };
    let Some(chosen) = allowed.get(..count).filter(|chosen| !chosen.is_empty()) else {
        return Err(OpenError::Unavailable(format!(
            "{count} CPUs are asked for, and {} may be used here",
            allowed.len()
        )));
    };
    Ok(chosen.to_vec())
}

/// Sets the options of a stream between two hosts on one of its ends.
pub(super) fn prepare(spec: &StreamsSpec, fd: BorrowedFd<'_>) -> Result<(), OpenError> {
    let fd = fd.try_clone_to_owned().attempt("duplicate a socket")?;
    // Buffers are set below, whatever the host allows others.
    set_options(&SocketOptions { buffer: None, ..spec.options.clone() }, &fd)?;
    spec.options.buffer.map_or(Ok(()), |bytes| set_buffers(&fd, bytes))
}

/// Every stream's near end, and its far end to hand over.
fn connections(
    launch: &LaunchSpec,
    spec: &StreamsSpec,
    site: &Site,
    facts: &mut BTreeMap<String, String>,
) -> Result<(Vec<TcpStream>, Vec<OwnedFd>), OpenError> {
    // Nobody waits while they are made.
    let (nobody, _) = socket::pair(Kind::Stream).attempt("make a socket")?;
    let watch = Watch::new(Arc::new(nobody), u32::MAX, None);
    // Buffers are set below, whatever the host allows others.
    let options = SocketOptions { buffer: None, ..spec.options.clone() };
    let channel = ChannelSpec { mechanism: Mechanism::Tcp4, wake: Wake::Block, options };
    let setup = Setup { channel: &channel, watch: &watch, ground: &site.ground, seed: launch.seed };
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..spec.streams {
        let (here, mut handover) = connected_pair(&setup, false)?;
        let [there] = handover.take()?;
        if let Some(bytes) = spec.options.buffer {
            set_buffers(&here, bytes)?;
            set_buffers(&there, bytes)?;
        }
        facts.extend(handover.facts.iter().map(|(name, fact)| ((*name).to_owned(), fact.clone())));
        let bytes = socket::option(there.as_fd(), IntOption::SendBuffer);
        facts.insert("sndbuf".to_owned(), bytes.attempt("read a socket's buffer")?.to_string());
        near.push(TcpStream::from(here));
        far.push(there);
    }
    Ok((near, far))
}

/// Gives a socket both buffers of this size, which Linux doubles for its own records.
fn set_buffers(fd: &OwnedFd, bytes: u64) -> Result<(), OpenError> {
    let wanted = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
    for (force, ask, limit) in [
        (IntOption::SendBufferForce, IntOption::SendBuffer, "wmem_max"),
        (IntOption::ReceiveBufferForce, IntOption::ReceiveBuffer, "rmem_max"),
    ] {
        if socket::set_option(fd.as_fd(), force, wanted).is_err() {
            socket::set_option(fd.as_fd(), ask, wanted).attempt("set a socket buffer")?;
        }
        let got = socket::option(fd.as_fd(), ask).attempt("read a socket's buffer")?;
        if got < wanted.saturating_mul(2) {
            return Err(OpenError::Unavailable(format!(
                "this host allows socket buffers of {} bytes, not {bytes}: run as root, or raise \
                 net.core.{limit}",
                got / 2
            )));
        }
    }
    Ok(())
}
