//! What a worker and the supervisor of its launch say to each other, as one task of an agent's session.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use plumb_base::time::Span;
use plumb_remote::session::TaskTimes;
use serde::{Deserialize, Serialize};

use crate::control_page::ControlPageWrite;
use crate::report::LaunchFault;
use crate::spec::{ChannelSpec, TcpStreamsSpec};

/// How long the worker's connections or datagrams are waited for.
pub(super) const ADMISSION_TIMEOUT: Span = Span::from_secs(15);
/// The longest launch.
const DURATION_MAX: Span = Span::from_secs(7 * 86_400);
/// What a worker has time for beside two blocks before it is thought to be gone.
const SILENCE_MARGIN: Span = Span::from_secs(30);

/// The task that a worker asks for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchRequest {
    /// What is opened.
    pub(crate) work: LaunchWork,
    /// The CPU of the process that is started; of a sender, where its streams name no number of CPUs.
    pub(crate) cpu: Option<u32>,
    /// Seed of the launch.
    pub(crate) seed: u64,
    /// Deadline of a block.
    pub(crate) deadline_ns: u64,
}

/// What is opened on the other host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LaunchWork {
    /// One connection, to see that the way is free and how long it is.
    Probe,
    /// The far end of a channel, for the peer.
    Channel(ChannelSpec),
    /// The far ends of streams, for the process that sends.
    Streams(Box<TcpStreamsSpec>),
    /// A page, served to the address that has shown the token.
    Page,
}

impl LaunchRequest {
    /// A request that starts nothing.
    pub(super) const fn probe() -> Self {
        Self { work: LaunchWork::Probe, cpu: None, seed: 0, deadline_ns: 0 }
    }

    /// How long it may take, and how long either side may be silent: nothing may be said during a block.
    pub(super) fn times(&self) -> TaskTimes {
        let quiet = Span::from_ns(self.deadline_ns) * 2 + SILENCE_MARGIN;
        TaskTimes { longest: DURATION_MAX, quiet }
    }

    /// Whether its socket is one of datagrams.
    pub(super) const fn is_datagram(&self) -> bool {
        matches!(&self.work, LaunchWork::Channel(channel) if channel.mechanism.is_lossy())
    }

    /// The congestion control that its connections begin with: the host's default where there is none.
    pub(super) fn congestion(&self) -> Option<&str> {
        let options = match &self.work {
            LaunchWork::Channel(channel) => &channel.options,
            LaunchWork::Streams(streams) => &streams.options,
            LaunchWork::Probe | LaunchWork::Page => return None,
        };
        options.congestion.as_deref()
    }

    /// The connections that show the token.
    pub(super) const fn connections(&self) -> u16 {
        match &self.work {
            LaunchWork::Streams(spec) => spec.streams,
            LaunchWork::Probe | LaunchWork::Channel(_) | LaunchWork::Page => 1,
        }
    }
}

/// What a supervisor is asked while its launch lasts.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SupervisorRequest {
    /// A message to the process that was started.
    ToProcess(Vec<u8>),
    /// Write to the page that the peer reads.
    WritePage(ControlPageWrite),
    /// Take CPU time away from the process that sends; or no longer.
    SetCpuLoad(bool),
    /// What the process that serves has used.
    ServerCpuTime,
}

/// What a supervisor says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SupervisorReply {
    /// The way is free to this host.
    Admitted(RemoteHostInfo),
    /// What was to be started runs; what is known of its sockets.
    Ready(BTreeMap<String, String>),
    /// That host cannot do it, or something broke.
    Refused(LaunchFault),
    /// A message from the process that was started.
    FromProcess(Vec<u8>),
    /// It is on the page.
    PageWritten,
    /// CPU time is taken away, or no longer; or why it may not be.
    CpuLoadSet(Result<(), LaunchFault>),
    /// Where the page is served.
    Serving(SocketAddr),
    /// CPU time that the process that serves has used.
    ServerCpuTime(u64),
}

/// The host that a supervisor is on, as it says itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteHostInfo {
    /// What a result must be read beside: kernel, processor, congestion control.
    pub facts: BTreeMap<String, String>,
    /// The CPUs that its processes may use.
    pub cpus: Vec<u32>,
}
