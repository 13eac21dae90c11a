//! What a simulation is: a network, the traffic on it, and for how long.

use std::sync::Arc;

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_base::units::Rate;
use plumb_link::spec::FaultSpec;
use plumb_stack::tcp::config::TcpConfig;

use crate::network::NetworkPlan;
use crate::processor::ProcessorSpec;

pub(crate) mod check;
mod reader;

pub use check::{MemoryNeed, ScenarioError};
pub use reader::{ScenarioTextError, SweepPoint, sweep_points};

/// Connections that come from one host at most, by their ports.
pub const FLOWS_OF_HOST_MAX: usize = 55_000;
/// Groups at most, by their ports.
pub const GROUPS_MAX: usize = 4_096;
/// The shortest packet of a source, in bytes: its headers and what its sink wants to know.
pub const PACKET_MIN: u32 = 40;

/// A simulation before it runs.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it shows, in a few words.
    pub title: String,
    /// How long it runs at most.
    pub duration: Span,
    /// After how long figures begin.
    pub warmup: Span,
    /// What every random draw comes from.
    pub seed: Seed,
    /// Largest IP packet of the hosts, in bytes.
    pub mtu: u32,
    /// Frames that wait at a host's interface before its TCP is asked for no more.
    pub ring: u32,
    /// The network.
    pub network: NetworkPlan,
    /// TCP connections, by group.
    pub groups: Vec<FlowGroup>,
    /// Open-loop sources.
    pub sources: Vec<SourceSpec>,
    /// Processors of hosts; a host without one receives and sends in no time.
    pub processors: Vec<ProcessorSpec>,
    /// Time between two samples of every connection and queue; `None`: 200 of them in all.
    pub sample_every: Option<Span>,
}

/// Connections of one kind.
#[derive(Clone, Debug)]
pub struct FlowGroup {
    /// What they are called.
    pub name: String,
    /// Configuration of the sending end.
    pub client: Arc<TcpConfig>,
    /// Configuration of the receiving end.
    pub server: Arc<TcpConfig>,
    /// The connections.
    pub flows: Vec<FlowSpec>,
}

/// One connection, which sends in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSpec {
    /// The sending host: its node.
    pub from: u32,
    /// The receiving one.
    pub to: u32,
    /// When it is opened.
    pub start: Span,
    /// When it is aborted, if it has not ended.
    pub stop: Option<Span>,
    /// Bytes to send; `None`: as many as it can.
    pub bytes: Option<u64>,
    /// When its application writes; `None`: whenever there is room.
    pub writes: Option<TimedWrites>,
    /// The number of the connection whose bytes its host passes on by it, counted over all groups: one before it.
    pub relays: Option<u32>,
}

/// Writes at times, the first when the connection is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedWrites {
    /// Bytes of each.
    pub bytes: u32,
    /// From one to the next.
    pub interval: Span,
}

/// A source that sends datagrams whatever becomes of them.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceSpec {
    /// What it is called.
    pub name: String,
    /// The sending host: its node.
    pub from: u32,
    /// The receiving one.
    pub to: u32,
    /// When it sends.
    pub pattern: SendPattern,
    /// Bytes of an IP packet, or their mean where sizes vary.
    pub size: u32,
    /// Whether sizes are exponentially distributed, as M/M/1 has them.
    pub is_size_exponential: bool,
    /// Differentiated services code point of its packets, of six bits (RFC 2474).
    pub dscp: u8,
    /// The group of connections whose listener it floods: its packets are SYNs then, each from a forged address.
    pub floods: Option<u32>,
    /// When it begins.
    pub start: Span,
    /// When it ends.
    pub stop: Option<Span>,
}

/// When a source sends. Rates count IP packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SendPattern {
    /// A packet after the other at a constant rate.
    Constant {
        /// The rate.
        rate: Rate,
    },
    /// With gaps that are exponentially distributed.
    Poisson {
        /// The rate in the long run.
        rate: Rate,
    },
    /// At a constant rate in periods, silent between them.
    OnOff {
        /// The rate while it sends.
        peak: Rate,
        /// Mean duration of sending.
        on: Span,
        /// Mean duration of silence.
        off: Span,
        /// Shape of Pareto's distribution of both durations; `None`: exponential.
        shape: Option<f64>,
    },
    /// Pages at a constant rate, of sizes that Pareto distributes, and exponential times between them (Crovella & Bestavros 1997).
    Web {
        /// The rate while it sends.
        peak: Rate,
        /// Mean bytes of a page.
        page: u64,
        /// Shape of their distribution, above 1.
        shape: f64,
        /// Mean time from the end of a page to the next.
        think: Span,
    },
}

impl Scenario {
    /// One with a network and no traffic: 10 s, seed 1, an MTU of 1,500 bytes.
    pub fn new(network: NetworkPlan) -> Self {
        Self {
            title: String::new(),
            duration: Span::from_secs(10),
            warmup: Span::ZERO,
            seed: Seed(1),
            mtu: 1_500,
            ring: 64,
            network,
            groups: Vec::new(),
            sources: Vec::new(),
            processors: Vec::new(),
            sample_every: None,
        }
    }

    /// Whether links change bytes of packets.
    pub(crate) fn can_damage(&self) -> bool {
        let edges = self.network.edges.iter();
        edges
            .flat_map(|edge| [&edge.spec.up, &edge.spec.down])
            .flat_map(|direction| &direction.faults)
            .any(|fault| matches!(fault, FaultSpec::Corrupt(_) | FaultSpec::Truncate(_)))
    }

    /// Connections in all.
    pub fn flow_count(&self) -> usize {
        self.groups.iter().map(|group| group.flows.len()).sum()
    }
}
