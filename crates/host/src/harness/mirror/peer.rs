//! The mirror's process: takes over its side of the test bed, mirrors until it is told to stop, and says
//! what that cost.
//!
//! Public, because stacks that plumb does not contain are measured through it too, from programs of
//! their own. Left out: every stack but the kernel's.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use plumb_wire::mac::MacAddr;

use super::linux::KernelMirror;
use crate::clock::Stopwatch;
use crate::harness::control::{
    AttachMirror, Checked, Control, PeerReport, PeerTask, PeerToWorker, Role, WorkerToPeer,
};
use crate::harness::effort::CpuReading;
use crate::harness::page::Page;
use crate::harness::spec::{MirrorSpec, MirrorStack};
use crate::harness::subordinate;
use crate::lab::adopt;

/// Where a mirror stands: its side of the test bed, and how it should behave.
#[derive(Debug)]
pub struct Site {
    /// What it is.
    pub spec: MirrorSpec,
    /// The TAP for [`super::super::spec::MirrorDevice::Tap`]; the namespace that holds `interface` for packet and
    /// AF_XDP sockets; a bound socket for the kernel's own stack; nothing for memory.
    pub fds: Vec<OwnedFd>,
    /// The interface in that namespace, where there is one.
    pub interface: String,
    /// The mirror's link address.
    pub mac: MacAddr,
    /// The client's link address.
    pub client_mac: MacAddr,
    /// Where it answers.
    pub local: SocketAddr,
    /// Who asks.
    pub client: SocketAddr,
    /// Reads the clock that the worker reads.
    pub watch: Stopwatch,
    /// Seed of the launch.
    pub seed: u64,
}

/// Why a mirror cannot be made or goes on no longer.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// This host cannot do it: a result.
    #[error("{0}")]
    Unavailable(String),
    /// Something broke.
    #[error("{0}")]
    Broken(String),
}

impl From<io::Error> for MirrorError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// How the worker steers a mirror while it runs; looking costs one load.
#[derive(Clone, Debug)]
pub struct Reins {
    page: Page,
}

impl Reins {
    /// Whether to leave the task. Worth asking for every packet, and whenever a call was interrupted.
    #[inline]
    pub fn stop(&self) -> bool {
        self.page.stop()
    }

    /// Whether packets are to be timed at the edges just now.
    #[inline]
    pub fn probing(&self) -> bool {
        self.page.probing()
    }
}

/// Named samples, in nanoseconds.
pub type Times = Vec<(String, Vec<f64>)>;

/// A replay: what to mirror from memory, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct ReplayTask {
    /// Frame size in bytes, link header included.
    pub frame: usize,
    /// Whether the payload must have left the caches before its packet comes.
    pub cold: bool,
    /// Wall time to aim at, in ticks of the site's watch.
    pub duration_ticks: u64,
    /// Most samples.
    pub samples_max: usize,
}

/// A stack that mirrors datagrams.
pub trait Mirror {
    /// Mirrors until the reins say stop.
    ///
    /// # Errors
    /// When its device is gone or the kernel refuses.
    fn mirror(&mut self, reins: &Reins) -> Result<(), MirrorError>;

    /// Gets the memory ready that a replay needs, before anything is counted.
    ///
    /// # Errors
    /// When it has no memory to replay from.
    fn prepare(&mut self, task: &ReplayTask) -> Result<(), MirrorError> {
        let _ = task;
        Ok(())
    }

    /// Mirrors frames from memory; nanoseconds a packet.
    ///
    /// # Errors
    /// When it has no memory to replay from.
    fn replay(&mut self, task: &ReplayTask) -> Result<Vec<f64>, MirrorError>;

    /// Times taken at the edges while probing, since the last call.
    fn times(&mut self) -> Times {
        Vec::new()
    }

    /// Things counted since the last call: packets, drops by reason, kernel calls.
    fn tally(&mut self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// Runs a mirror whose control socket is the inherited descriptor that the second argument names; its
/// exit code. `open` makes the mirror of any stack but the kernel's.
pub fn main(open: impl FnOnce(Site) -> Result<Box<dyn Mirror>, MirrorError>) -> u8 {
    subordinate::main(|control_fd| serve(control_fd, open))
}

fn serve(
    control_fd: OwnedFd,
    open: impl FnOnce(Site) -> Result<Box<dyn Mirror>, MirrorError>,
) -> io::Result<()> {
    let mut control = Control::new(control_fd);
    let WorkerToPeer::AttachMirror(attach) = control.hear()? else {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    };
    let page = subordinate::settle(attach.cpu, attach.page_fd)?;
    let site = site(attach)?;
    let watch = site.watch;
    let opened = if site.spec.stack == MirrorStack::Linux {
        KernelMirror::new(site).map(|mirror| Box::new(mirror) as Box<dyn Mirror>)
    } else {
        open(site)
    };
    attend(control, page, watch, opened)
}

fn site(attach: AttachMirror) -> io::Result<Site> {
    let fds = attach.fds.into_iter().map(adopt).collect::<io::Result<Vec<_>>>()?;
    Ok(Site {
        spec: attach.mirror,
        fds,
        interface: attach.interface,
        mac: MacAddr(attach.mac),
        client_mac: MacAddr(attach.client_mac),
        local: attach.local,
        client: attach.client,
        watch: Stopwatch::new(attach.ticks_per_ns),
        seed: attach.seed,
    })
}

/// Answers the worker until it says quit.
fn attend(
    mut control: Control,
    page: Page,
    watch: Stopwatch,
    opened: Result<Box<dyn Mirror>, MirrorError>,
) -> io::Result<()> {
    let mut mirror = match opened {
        Ok(mirror) => mirror,
        Err(MirrorError::Unavailable(why)) => return control.say(&PeerToWorker::Unavailable(why)),
        Err(MirrorError::Broken(why)) => return control.say(&PeerToWorker::Failed(why)),
    };
    control.say(&PeerToWorker::Attached)?;
    let reins = Reins { page };
    loop {
        let WorkerToPeer::Begin(task) = control.hear()? else { return Ok(()) };
        drop((mirror.tally(), mirror.times()));
        let replay = replay_of(task, watch);
        if let Some(Err(error)) = replay.as_ref().map(|task| mirror.prepare(task)) {
            control.say(&PeerToWorker::Failed(error.to_string()))?;
            continue;
        }
        let before = CpuReading::now();
        control.say(&PeerToWorker::Armed)?;
        let outcome = perform(mirror.as_mut(), replay.as_ref(), &reins);
        let cpu = CpuReading::now().since(before);
        let answer = match outcome {
            Ok(replayed) => {
                let mut times = mirror.times();
                times.extend(replayed);
                let checked = Checked::default();
                let report = PeerReport { cpu, tally: mirror.tally(), checked, times };
                PeerToWorker::Done(Box::new(report))
            }
            Err(error) => PeerToWorker::Failed(error.to_string()),
        };
        control.say(&answer)?;
    }
}

/// The replay that a task asks for, if it asks for one.
fn replay_of(task: PeerTask, watch: Stopwatch) -> Option<ReplayTask> {
    let Role::Replay { cold, duration_ns, samples_max } = task.role else { return None };
    Some(ReplayTask {
        frame: usize::try_from(task.size).ok()?,
        cold,
        duration_ticks: watch.ticks(duration_ns as f64),
        samples_max: samples_max as usize,
    })
}

fn perform(
    mirror: &mut dyn Mirror,
    replay: Option<&ReplayTask>,
    reins: &Reins,
) -> Result<Option<(String, Vec<f64>)>, MirrorError> {
    match replay {
        Some(task) => Ok(Some(("packet".to_owned(), mirror.replay(task)?))),
        None => mirror.mirror(reins).map(|()| None),
    }
}
