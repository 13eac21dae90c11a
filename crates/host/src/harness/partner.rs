//! The peer process as the worker knows it: started here, or by a steward on another host.
//!
//! Left out: the peer itself (`super::peer`), and the steward (`super::steward`).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;

use plumb_sys::fd;
use plumb_sys::socket::{self, Kind};

use super::bench::Trouble;
use super::control::{Attach, Control, PeerReport, PeerTask, PeerToWorker, WorkerToPeer};
use super::page::Page;
use super::steward::reach::Shared;
use super::steward::word::{Ask, Steer, Tell};
use super::worker::{SELF, start_peer};
use crate::local::{Handover, OpenError, Watch};

/// The peer process; killed when forgotten.
#[derive(Debug)]
pub(crate) struct Peer {
    bond: Bond,
    pub(super) facts: BTreeMap<String, String>,
}

/// What it is held by.
#[derive(Debug)]
enum Bond {
    /// A process of this one's own.
    Here { control: Control, page: Page, child: Child },
    /// A process of a steward's.
    There(Shared),
}

impl Peer {
    /// A process that was started here.
    pub(super) fn new(control: Control, page: Page, child: Child) -> Self {
        Self { bond: Bond::Here { control, page, child }, facts: BTreeMap::new() }
    }

    /// A process that a steward has started.
    pub(super) fn there(steward: Shared) -> Self {
        Self { bond: Bond::There(steward), facts: BTreeMap::new() }
    }

    /// Whether it is on another host, whose clock is another.
    pub(super) fn is_apart(&self) -> bool {
        matches!(self.bond, Bond::There(_))
    }

    /// The page that it reads, where this process shares it.
    pub(super) fn page(&self) -> Option<&Page> {
        match &self.bond {
            Bond::Here { page, .. } => Some(page),
            Bond::There(_) => None,
        }
    }

    /// Says something to it.
    pub(super) fn say(&mut self, message: WorkerToPeer) -> io::Result<()> {
        match &mut self.bond {
            Bond::Here { control, .. } => control.say(&message),
            Bond::There(steward) => steward.lock().say(&Ask::ToPeer(Box::new(message))),
        }
    }

    /// Hears something from it; an error when it is gone.
    pub(super) fn hear(&mut self) -> io::Result<PeerToWorker> {
        match &mut self.bond {
            Bond::Here { control, .. } => control.hear(),
            Bond::There(steward) => match steward.lock().hear()? {
                Tell::FromPeer(message) => Ok(message),
                Tell::Failed(reason) => Ok(PeerToWorker::Failed(reason)),
                other => Err(io::Error::other(format!("the other host said {other:?}"))),
            },
        }
    }

    /// Decides which operation is the last, before it is begun.
    pub(super) fn set_last(&mut self, last: u64) -> io::Result<()> {
        self.steer(Steer::Last(last))
    }

    /// Sets the messages of the next transfers, before the first is begun. On another host it takes a round trip, so
    /// it must not stand between two clock reads.
    pub(super) fn set_count(&mut self, count: u64) -> io::Result<()> {
        self.steer(Steer::Count(count))
    }

    /// Asks the peer of a lossy channel to leave its task at the next mark or tick; or not.
    pub(super) fn set_stop(&mut self, stop: bool) -> io::Result<()> {
        self.steer(Steer::Stop(stop))
    }

    /// Sets its spin after each message.
    pub(super) fn set_delay_ns(&mut self, ns: u64) -> io::Result<()> {
        self.steer(Steer::DelayNs(ns))
    }

    fn steer(&mut self, steer: Steer) -> io::Result<()> {
        match &mut self.bond {
            Bond::Here { page, .. } => {
                page.steer(steer);
                Ok(())
            }
            Bond::There(steward) => steward.lock().steer(steer),
        }
    }

    /// Starts it on its part of a task.
    pub(super) fn begin(&mut self, task: PeerTask) -> Result<(), Trouble> {
        self.say(WorkerToPeer::Begin(task))?;
        match self.hear()? {
            PeerToWorker::Armed => Ok(()),
            other => Err(out_of_turn(&other)),
        }
    }

    /// Its report, once its part is done.
    pub(super) fn done(&mut self) -> Result<PeerReport, Trouble> {
        match self.hear()? {
            PeerToWorker::Done(report) => Ok(*report),
            other => Err(out_of_turn(&other)),
        }
    }

    /// Its process, where it is one of this host.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.bond {
            Bond::Here { child, .. } => Some(child.id()),
            Bond::There(_) => None,
        }
    }

    /// Its control socket once more, for who listens while another speaks.
    pub(super) fn ear(&self) -> io::Result<Control> {
        match &self.bond {
            Bond::Here { control, .. } => control.try_clone(),
            Bond::There(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Waits until it is gone.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        match &mut self.bond {
            Bond::Here { child, .. } => child.wait().map(drop),
            // Who forgets the steward waits for it.
            Bond::There(_) => Ok(()),
        }
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
        if let Bond::Here { child, .. } = &mut self.bond {
            // It may have ended by itself; either way it is reaped here.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// What ties a process to its peer beside the channel: a page and a control socket.
pub(super) struct Ties {
    page: Page,
    page_fd: OwnedFd,
    own: OwnedFd,
    theirs: OwnedFd,
}

impl Ties {
    pub(super) fn new() -> Result<Self, OpenError> {
        let (page, page_fd) = Page::create().map_err(broken("share a page with the peer"))?;
        let (own, theirs) =
            socket::pair(Kind::Stream).map_err(broken("make a socket to the peer"))?;
        Ok(Self { page, page_fd, own, theirs })
    }

    pub(super) fn watch(&self, patience: u32) -> Result<Watch, OpenError> {
        let fd = self.own.try_clone().map_err(broken("duplicate a socket"))?;
        Ok(Watch::new(Arc::new(fd), patience, None))
    }

    /// Starts the peer with everything that it inherits.
    pub(super) fn start_peer(&self, handover: &Handover) -> Result<Child, OpenError> {
        for fd in handover.fds.iter().chain([&self.page_fd, &self.theirs]) {
            fd::set_inheritable(fd.as_fd(), true).map_err(broken("hand a descriptor over"))?;
        }
        start_peer(Path::new(SELF), "__peer", &self.theirs)
            .map_err(broken("start the peer process"))
    }

    /// Has the peer take over its end of the channel; `attach` but for the descriptors, which are filled in here.
    pub(super) fn hand_over(
        self,
        handover: Handover,
        child: Child,
        attach: Attach,
    ) -> Result<Peer, OpenError> {
        let attach = WorkerToPeer::Attach(Attach {
            fds: handover.fds.iter().map(AsRawFd::as_raw_fd).collect(),
            numbers: handover.numbers,
            page_fd: self.page_fd.as_raw_fd(),
            ..attach
        });
        let Self { page, page_fd, own, theirs } = self;
        drop((handover.fds, page_fd, theirs));
        let mut peer = Peer::new(Control::new(own), page, child);
        peer.facts = handover.facts.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        let answer = peer.say(attach).and_then(|()| peer.hear());
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
