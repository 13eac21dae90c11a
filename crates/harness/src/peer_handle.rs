//! The peer process as the worker knows it: started here, or by a supervisor on another host.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use plumb_remote::message::{decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::channel::{IoResultExt as _, PeerHandover, PeerWatchdog};
use crate::child_process::{ControlledProcess, HiddenCommand, SELF_EXE, control_sockets};
use crate::launch_protocol::{
    AttachPeer, ControlPage, ControlPageWrite, ControlSocket, PeerEnd, PeerReport, PeerTask,
    PeerToWorker, SupervisorReply, SupervisorRequest, WorkerToPeer,
};
use crate::report::{BlockError, LaunchFault};
use crate::spec::{ChannelSpec, PeerContext};
use crate::supervisor::client::SharedSupervisor;

/// The far process of a launch: a child of this process, or of a supervisor on another host.
#[derive(Debug)]
pub(crate) enum FarProcess {
    /// A child of this process.
    Local(ControlledProcess),
    /// A child of a supervisor.
    Remote(SharedSupervisor),
}

impl FarProcess {
    /// Whether it is on another host, whose clock is another.
    pub(super) fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }

    /// Sends it a message.
    pub(super) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        match self {
            Self::Local(process) => process.control.send(message),
            Self::Remote(supervisor) => {
                supervisor.lock().send(&SupervisorRequest::ToProcess(encode(message)))
            }
        }
    }

    /// Its next message, or `failed` if it fails at once; an error when it is gone.
    pub(super) fn receive<M: DeserializeOwned>(
        &mut self,
        failed: fn(String) -> M,
    ) -> io::Result<M> {
        match self {
            Self::Local(process) => process.control.receive(),
            Self::Remote(supervisor) => match supervisor.lock().receive()? {
                SupervisorReply::FromProcess(message) => {
                    decode(&message).ok_or_else(|| io::ErrorKind::InvalidData.into())
                }
                SupervisorReply::Refused(LaunchFault::Failed(reason)) => Ok(failed(reason)),
                other => Err(io::Error::other(format!("the other host said {other:?}"))),
            },
        }
    }

    /// Its control socket once more, for a thread that listens while another sends.
    pub(super) fn clone_control(&self) -> io::Result<ControlSocket> {
        match self {
            Self::Local(process) => process.control.try_clone(),
            Self::Remote(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The descriptor that becomes readable when it writes something, where it is a child of this process.
    pub(super) fn control(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Local(process) => Some(process.control.as_fd()),
            Self::Remote(_) => None,
        }
    }

    /// Its process id, where it is one of this host.
    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            Self::Local(process) => Some(process.process.child.id()),
            Self::Remote(_) => None,
        }
    }

    /// Asks it to end, and waits until it has.
    pub(super) fn quit(&mut self, message: &impl Serialize) -> io::Result<()> {
        // One that is gone already has quit.
        drop(self.send(message));
        match self {
            Self::Local(process) => process.process.child.wait().map(drop),
            // Dropping the supervisor waits for it.
            Self::Remote(_) => Ok(()),
        }
    }
}

/// The peer process.
#[derive(Debug)]
pub(crate) struct PeerHandle {
    pub(super) process: FarProcess,
    /// The page that it reads, where this process shares it.
    pub(super) page: Option<ControlPage>,
    pub(super) facts: BTreeMap<String, String>,
}

impl PeerHandle {
    /// Writes to the page that it reads. On another host it takes a round trip, so it must not stand between two clock
    /// reads.
    pub(super) fn write(&mut self, word: ControlPageWrite) -> io::Result<()> {
        if let Some(page) = &self.page {
            page.write(word);
        } else if let FarProcess::Remote(supervisor) = &self.process {
            supervisor.lock().write_page(word)?;
        }
        Ok(())
    }

    /// Its next message; an error when it is gone.
    pub(super) fn receive(&mut self) -> io::Result<PeerToWorker> {
        self.process.receive(PeerToWorker::Failed)
    }

    /// Starts it on its part of a task.
    pub(super) fn begin(&mut self, task: PeerTask) -> Result<(), BlockError> {
        self.process.send(&WorkerToPeer::Begin(task))?;
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

    /// Has it end, and waits until it is gone.
    pub(super) fn quit(&mut self) -> io::Result<()> {
        self.process.quit(&WorkerToPeer::Quit)
    }
}

fn unexpected_message(message: &PeerToWorker) -> BlockError {
    BlockError::Failed(match message {
        PeerToWorker::Failed(reason) => format!("the peer failed: {reason}"),
        other => format!("the peer sent an unexpected {other:?}"),
    })
}

/// What ties a worker to a peer that is yet to be started: a shared page and a control socket.
pub(super) struct PeerStartup {
    page: ControlPage,
    page_fd: OwnedFd,
    sockets: (OwnedFd, OwnedFd),
}

impl PeerStartup {
    pub(super) fn new() -> Result<Self, LaunchFault> {
        let (page, page_fd) = ControlPage::create().attempt("share a page with the peer")?;
        Ok(Self { page, page_fd, sockets: control_sockets()? })
    }

    /// How the worker's end notices that the peer is gone.
    pub(super) fn watchdog(&self, timeout_ticks: u32) -> Result<PeerWatchdog, LaunchFault> {
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
    ) -> Result<PeerHandle, LaunchFault> {
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
    ) -> Result<PeerHandle, LaunchFault> {
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
        match answer {
            PeerToWorker::Attached(Ok(())) => {
                let (process, page) = (FarProcess::Local(peer), Some(self.page));
                Ok(PeerHandle { process, page, facts: BTreeMap::new() })
            }
            PeerToWorker::Attached(Err(error)) => Err(error),
            other => Err(LaunchFault::failed("attach the peer", format!("it said {other:?}"))),
        }
    }
}
