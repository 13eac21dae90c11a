//! The peer process as the worker knows it: started here, or by a supervisor on another host.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use crate::channel::{IoResultExt as _, OpenError, PeerHandover, PeerWatchdog};
use crate::child_process::{ControlledProcess, HiddenCommand, SELF_EXE, control_sockets};
use crate::control_page::{ControlPage, ControlPageWrite};
use crate::control_socket::ControlSocket;
use crate::peer_protocol::{AttachPeer, PeerEnd, PeerReport, PeerTask, PeerToWorker, WorkerToPeer};
use crate::report::BlockError;
use crate::spec::{ChannelSpec, PeerContext};
use crate::supervisor::client::SharedSupervisor;
use crate::supervisor::protocol::{SupervisorReply, SupervisorRequest};

/// The peer process.
#[derive(Debug)]
pub(crate) struct PeerHandle {
    process: PeerProcess,
    pub(super) facts: BTreeMap<String, String>,
}

/// Who started it.
#[derive(Debug)]
enum PeerProcess {
    /// This process.
    Local { peer: ControlledProcess, page: ControlPage },
    /// A supervisor on another host.
    Remote(SharedSupervisor),
}

impl PeerHandle {
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

    /// Sends it a message.
    pub(super) fn send(&mut self, message: WorkerToPeer) -> io::Result<()> {
        match &mut self.process {
            PeerProcess::Local { peer, .. } => peer.control.send(&message),
            PeerProcess::Remote(supervisor) => {
                supervisor.lock().send(&SupervisorRequest::ToPeer(Box::new(message)))
            }
        }
    }

    /// Its next message; an error when it is gone.
    pub(super) fn receive(&mut self) -> io::Result<PeerToWorker> {
        match &mut self.process {
            PeerProcess::Local { peer, .. } => peer.control.receive(),
            PeerProcess::Remote(supervisor) => match supervisor.lock().receive()? {
                SupervisorReply::FromPeer(message) => Ok(message),
                SupervisorReply::Failed(reason) => Ok(PeerToWorker::Failed(reason)),
                other => Err(io::Error::other(format!("the other host said {other:?}"))),
            },
        }
    }

    /// Writes to the page that it reads. On another host it takes a round trip, so it must not stand between two clock
    /// reads.
    pub(super) fn write(&mut self, word: ControlPageWrite) -> io::Result<()> {
        match &mut self.process {
            PeerProcess::Local { page, .. } => {
                page.write(word);
                Ok(())
            }
            PeerProcess::Remote(supervisor) => supervisor.lock().write_page(word),
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
            PeerProcess::Local { peer, .. } => Some(peer.process.child.id()),
            PeerProcess::Remote(_) => None,
        }
    }

    /// Its control socket once more, for who listens while another speaks.
    pub(super) fn clone_control(&self) -> io::Result<ControlSocket> {
        match &self.process {
            PeerProcess::Local { peer, .. } => peer.control.try_clone(),
            PeerProcess::Remote(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Has it end, and waits until it is gone.
    pub(super) fn quit(&mut self) -> io::Result<()> {
        // One that is gone already has quit.
        drop(self.send(WorkerToPeer::Quit));
        match &mut self.process {
            PeerProcess::Local { peer, .. } => peer.process.child.wait().map(drop),
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

/// What ties a worker to a peer that is yet to be started: a shared page and a control socket.
pub(super) struct PeerStartup {
    page: ControlPage,
    page_fd: OwnedFd,
    sockets: (OwnedFd, OwnedFd),
}

impl PeerStartup {
    pub(super) fn new() -> Result<Self, OpenError> {
        let (page, page_fd) = ControlPage::create().attempt("share a page with the peer")?;
        Ok(Self { page, page_fd, sockets: control_sockets()? })
    }

    /// How the worker's end notices that the peer is gone.
    pub(super) fn watchdog(&self, timeout_ticks: u32) -> Result<PeerWatchdog, OpenError> {
        let fd = self.sockets.0.try_clone().attempt("duplicate a socket")?;
        Ok(PeerWatchdog::new(Arc::new(fd), timeout_ticks, None))
    }

    /// Starts the peer of a channel.
    pub(super) fn start_channel(
        self,
        handover: PeerHandover,
        channel: ChannelSpec,
        is_remote: bool,
        context: PeerContext,
    ) -> Result<PeerHandle, OpenError> {
        let PeerHandover { fds, numbers, facts } = handover;
        let end = PeerEnd::Channel { channel, numbers, is_remote };
        let mut peer = self.start(Path::new(SELF_EXE), fds, end, context)?;
        peer.facts = facts.into_iter().map(|(name, fact)| (name.to_owned(), fact)).collect();
        Ok(peer)
    }

    /// Starts a peer with everything that it inherits, and has it take over its end.
    pub(super) fn start(
        self,
        program: &Path,
        mut fds: Vec<OwnedFd>,
        end: PeerEnd,
        context: PeerContext,
    ) -> Result<PeerHandle, OpenError> {
        let command = match end {
            PeerEnd::Channel { .. } => HiddenCommand::Peer,
            PeerEnd::Mirror { .. } => HiddenCommand::Mirror,
        };
        let numbers = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let page_fd = self.page_fd.as_raw_fd();
        let attach =
            WorkerToPeer::Attach(Box::new(AttachPeer { end, fds: numbers, page_fd, context }));
        fds.push(self.page_fd);
        let (peer, answer) =
            ControlledProcess::start(program, command, self.sockets, fds, &attach)?;
        let broken = |source| OpenError::Io { what: "attach the peer", source };
        match answer {
            PeerToWorker::Attached => {
                let process = PeerProcess::Local { peer, page: self.page };
                Ok(PeerHandle { process, facts: BTreeMap::new() })
            }
            PeerToWorker::Unavailable(reason) => Err(OpenError::Unavailable(reason)),
            PeerToWorker::Failed(reason) => Err(broken(io::Error::other(reason))),
            PeerToWorker::Armed | PeerToWorker::Done(_) => {
                Err(broken(io::ErrorKind::InvalidData.into()))
            }
        }
    }
}
