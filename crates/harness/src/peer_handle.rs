//! The peer process as the worker knows it: started here, or by a supervisor on another host.
//!
//! Left out: the peer itself (`super::peer`), and the supervisor (`super::supervisor`).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;

use plumb_sys::fd;
use plumb_sys::socket::{self, UnixSocketKind};

use crate::channel::{OpenError, PeerHandover, PeerWatchdog};
use crate::child_process::{SELF_EXE, start_peer};
use crate::control_page::{ControlPage, ControlPageWrite};
use crate::control_socket::ControlSocket;
use crate::peer_protocol::{AttachChannel, PeerReport, PeerTask, PeerToWorker, WorkerToPeer};
use crate::report::BlockError;
use crate::supervisor::client::SharedSupervisor;
use crate::supervisor::protocol::{SupervisorReply, SupervisorRequest};

/// The peer process; killed when forgotten.
#[derive(Debug)]
pub(crate) struct PeerHandle {
    process: PeerProcess,
    pub(super) facts: BTreeMap<String, String>,
}

/// What it is held by.
#[derive(Debug)]
enum PeerProcess {
    /// A process of this one's own.
    Local { control: ControlSocket, page: ControlPage, child: Child },
    /// A process of a supervisor's.
    Remote(SharedSupervisor),
}

impl PeerHandle {
    /// A process that was started here.
    pub(super) fn new(control: ControlSocket, page: ControlPage, child: Child) -> Self {
        Self { process: PeerProcess::Local { control, page, child }, facts: BTreeMap::new() }
    }

    /// A process that a supervisor has started.
    pub(super) fn remote(supervisor: SharedSupervisor) -> Self {
        Self { process: PeerProcess::Remote(supervisor), facts: BTreeMap::new() }
    }

    /// Whether it is on another host, whose clock is another.
    pub(super) fn is_remote(&self) -> bool {
        matches!(self.process, PeerProcess::Remote(_))
    }

    /// The page that it reads, where this process shares it.
    pub(super) fn page(&self) -> Option<&ControlPage> {
        match &self.process {
            PeerProcess::Local { page, .. } => Some(page),
            PeerProcess::Remote(_) => None,
        }
    }

    /// Says something to it.
    pub(super) fn send(&mut self, message: WorkerToPeer) -> io::Result<()> {
        match &mut self.process {
            PeerProcess::Local { control, .. } => control.send(&message),
            PeerProcess::Remote(supervisor) => {
                supervisor.lock().send(&SupervisorRequest::ToPeer(Box::new(message)))
            }
        }
    }

    /// Hears something from it; an error when it is gone.
    pub(super) fn receive(&mut self) -> io::Result<PeerToWorker> {
        match &mut self.process {
            PeerProcess::Local { control, .. } => control.receive(),
            PeerProcess::Remote(supervisor) => match supervisor.lock().receive()? {
                SupervisorReply::FromPeer(message) => Ok(message),
                SupervisorReply::Failed(reason) => Ok(PeerToWorker::Failed(reason)),
                other => Err(io::Error::other(format!("the other host said {other:?}"))),
            },
        }
    }

    /// Decides which operation is the last, before it is begun.
    pub(super) fn set_last(&mut self, last: u64) -> io::Result<()> {
        self.write_page(ControlPageWrite::Last(last))
    }

    /// Sets the messages of the next transfers, before the first is begun. On another host it takes a round trip, so
    /// it must not stand between two clock reads.
    pub(super) fn set_count(&mut self, count: u64) -> io::Result<()> {
        self.write_page(ControlPageWrite::Count(count))
    }

    /// Asks the peer of a lossy channel to leave its task at the next mark or tick; or not.
    pub(super) fn set_stop(&mut self, stop: bool) -> io::Result<()> {
        self.write_page(ControlPageWrite::Stop(stop))
    }

    /// Sets its spin after each message.
    pub(super) fn set_delay_ns(&mut self, ns: u64) -> io::Result<()> {
        self.write_page(ControlPageWrite::DelayNs(ns))
    }

    fn write_page(&mut self, steer: ControlPageWrite) -> io::Result<()> {
        match &mut self.process {
            PeerProcess::Local { page, .. } => {
                page.write(steer);
                Ok(())
            }
            PeerProcess::Remote(supervisor) => supervisor.lock().write_page(steer),
        }
    }

    /// Starts it on its part of a task.
    pub(super) fn begin(&mut self, task: PeerTask) -> Result<(), BlockError> {
        self.send(WorkerToPeer::Begin(task))?;
        match self.receive()? {
            PeerToWorker::Armed => Ok(()),
            other => Err(unexpected_message(&other)),
        }
    }

    /// Its report, once its part is done.
    pub(super) fn done(&mut self) -> Result<PeerReport, BlockError> {
        match self.receive()? {
            PeerToWorker::Done(report) => Ok(*report),
            other => Err(unexpected_message(&other)),
        }
    }

    /// Its process, where it is one of this host.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.process {
            PeerProcess::Local { child, .. } => Some(child.id()),
            PeerProcess::Remote(_) => None,
        }
    }

    /// Its control socket once more, for who listens while another speaks.
    pub(super) fn clone_control(&self) -> io::Result<ControlSocket> {
        match &self.process {
            PeerProcess::Local { control, .. } => control.try_clone(),
            PeerProcess::Remote(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Waits until it is gone.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        match &mut self.process {
            PeerProcess::Local { child, .. } => child.wait().map(drop),
            // Who forgets the supervisor waits for it.
            PeerProcess::Remote(_) => Ok(()),
        }
    }
}

fn unexpected_message(message: &PeerToWorker) -> BlockError {
    BlockError::Failed(match message {
        PeerToWorker::Failed(reason) => format!("the peer failed: {reason}"),
        other => format!("the peer said {other:?} out of turn"),
    })
}

impl Drop for PeerHandle {
    fn drop(&mut self) {
        if let PeerProcess::Local { child, .. } = &mut self.process {
            // It may have ended by itself; either way it is reaped here.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// What ties a process to its peer beside the channel: a page and a control socket.
pub(super) struct PeerStartup {
    page: ControlPage,
    page_fd: OwnedFd,
    own_end: OwnedFd,
    peer_end: OwnedFd,
}

impl PeerStartup {
    pub(super) fn new() -> Result<Self, OpenError> {
        let (page, page_fd) =
            ControlPage::create().map_err(broken("share a page with the peer"))?;
        let (own, theirs) =
            socket::pair(UnixSocketKind::Stream).map_err(broken("make a socket to the peer"))?;
        Ok(Self { page, page_fd, own_end: own, peer_end: theirs })
    }

    pub(super) fn watch(&self, patience: u32) -> Result<PeerWatchdog, OpenError> {
        let fd = self.own_end.try_clone().map_err(broken("duplicate a socket"))?;
        Ok(PeerWatchdog::new(Arc::new(fd), patience, None))
    }

    /// Starts the peer with everything that it inherits.
    pub(super) fn start_peer(&self, handover: &PeerHandover) -> Result<Child, OpenError> {
        for fd in handover.fds.iter().chain([&self.page_fd, &self.peer_end]) {
            fd::set_inheritable(fd.as_fd(), true).map_err(broken("hand a descriptor over"))?;
        }
        start_peer(Path::new(SELF_EXE), "__peer", &self.peer_end)
            .map_err(broken("start the peer process"))
    }

    /// Has the peer take over its end of the channel; `attach` but for the descriptors, which are filled in here.
    pub(super) fn hand_over(
        self,
        handover: PeerHandover,
        child: Child,
        attach: AttachChannel,
    ) -> Result<PeerHandle, OpenError> {
        let attach = WorkerToPeer::Attach(AttachChannel {
            fds: handover.fds.iter().map(AsRawFd::as_raw_fd).collect(),
            numbers: handover.numbers,
            page_fd: self.page_fd.as_raw_fd(),
            ..attach
        });
        let Self { page, page_fd, own_end: own, peer_end: theirs } = self;
        drop((handover.fds, page_fd, theirs));
        let mut peer = PeerHandle::new(ControlSocket::new(own), page, child);
        peer.facts = handover.facts.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        let answer = peer.send(attach).and_then(|()| peer.receive());
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
}

fn broken(what: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    move |source| OpenError::Io { what, source }
}
