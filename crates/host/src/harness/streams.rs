//! Streams: TCP connections from another process to the worker, a thread for each at both ends.
//!
//! The worker receives, and so counts what arrived; it reads the CPU clocks of both processes beside the
//! time. Left out: one message after another, which is a channel's (`super::bench`).

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;

use plumb_sys::socket::{self, IntOption, Kind};
use plumb_sys::{affinity, fd};
use serde::{Deserialize, Serialize};

use super::control::Control;
use super::effort::KernelTimes;
use super::remote::Site;
use super::spec::{ChannelSpec, LaunchFacts, LaunchSpec, PathSpec, SocketOptions, WorkerSays};
use super::worker::{SELF, Talk, others, start_peer, told};
use crate::clock::Stopwatch;
use crate::local::mechanism::{Mechanism, Wake};
use crate::local::{Attempt as _, OpenError, Setup, Watch, connected_pair};

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
struct Source {
    control: Control,
    child: Child,
}

impl Source {
    /// Has it end, and waits until it is gone.
    fn end(&mut self) -> io::Result<()> {
        // One that is gone already has ended.
        drop(self.control.say(&WorkerToSource::Quit));
        self.child.wait().map(drop)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is reaped here.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Makes the network, connects every stream, and starts the process that sends.
fn open(launch: &LaunchSpec, spec: &StreamsSpec, allowed: &[u32]) -> Result<Receiver, OpenError> {
    let (own_cpus, source_cpus) = seats(launch, spec, allowed)?;
    let site = match &spec.path {
        Some(path) => Site::over(path, launch, &others(launch, allowed))?,
        None => Site::loopback(),
    };
    let (own, theirs) = socket::pair(Kind::Stream).attempt("make a socket to the sender")?;
    let mut facts = site.facts.clone();
    let (sockets, far) = connections(launch, spec, &site, &own, &mut facts)?;
    for fd in far.iter().chain([&theirs]) {
        fd::set_inheritable(fd.as_fd(), true).attempt("hand a descriptor over")?;
    }
    let child =
        start_peer(Path::new(SELF), source::WORD, &theirs).attempt("start the sender's process")?;
    let mut source = Source { control: Control::new(own), child };
    let attach = WorkerToSource::Attach(Attach {
        fds: far.iter().map(AsRawFd::as_raw_fd).collect(),
        cpus: source_cpus.clone(),
        tweaks: spec.tweaks,
        seed: launch.seed,
    });
    drop((far, theirs));
    let broken = |source| OpenError::Io { what: "hand the streams to the sender", source };
    match source.control.say(&attach).and_then(|()| source.control.hear()).map_err(broken)? {
        SourceToWorker::Attached => {}
        SourceToWorker::Refused(reason) => return Err(OpenError::Unavailable(reason)),
        _ => return Err(broken(io::ErrorKind::InvalidData.into())),
    }
    let mut cpus: Vec<u32> = own_cpus.into_iter().chain(source_cpus).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let slowed = match spec.cpu_percent {
        100.. => Vec::new(),
        _ if cpus.is_empty() => allowed.to_vec(),
        _ => cpus.clone(),
    };
    if !slowed.is_empty() {
        // Whether it may be done at all is to be known before a block is begun.
        drop(Share::leave(&slowed, spec.cpu_percent)?);
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

/// The CPUs of both processes; none where the scheduler may choose. This one takes its own.
fn seats(
    launch: &LaunchSpec,
    spec: &StreamsSpec,
    allowed: &[u32],
) -> Result<(Vec<u32>, Vec<u32>), OpenError> {
    let Some(count) = spec.cpus.map(usize::from) else {
        let one = |cpu: Option<u32>| cpu.into_iter().collect();
        return Ok((one(launch.cpu_local), one(launch.cpu_peer)));
    };
    let Some(chosen) = allowed.get(..count).filter(|chosen| !chosen.is_empty()) else {
        return Err(OpenError::Unavailable(format!(
            "{count} CPUs are asked for, and {} may be used here",
            allowed.len()
        )));
    };
    affinity::bind(chosen).attempt("run on some CPUs alone")?;
    Ok((chosen.to_vec(), chosen.to_vec()))
}

/// Every stream's near end, and its far end to hand over.
fn connections(
    launch: &LaunchSpec,
    spec: &StreamsSpec,
    site: &Site,
    control: &OwnedFd,
    facts: &mut BTreeMap<String, String>,
) -> Result<(Vec<TcpStream>, Vec<OwnedFd>), OpenError> {
    let watch_fd = control.try_clone().attempt("duplicate a socket")?;
    let watch = Watch::new(Arc::new(watch_fd), u32::MAX, None);
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
        for (name, fd, option) in
            [("sndbuf", &there, IntOption::SendBuffer), ("rcvbuf", &here, IntOption::ReceiveBuffer)]
        {
            let bytes = socket::option(fd.as_fd(), option).attempt("read a socket's buffer")?;
            facts.insert(name.to_owned(), bytes.to_string());
        }
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
