//! What a test is asked to be: its length and its parts, which run at the same time.
//!
//! Plain numbers with their units in their names, because they cross the wire. Left out: the result of it.

use plumb_result::net::{Direction, RequestTransport};
use serde::{Deserialize, Serialize};

use super::request_response::{RequestError, RequestPacing, RequestSpec, udp};
use super::thread::ThreadPlacementPolicy;

/// How much longer senders go on at most than what counts: the other side's beginning is later by the way of a message.
pub(super) const OVERRUN_NS: u64 = 250_000_000;
const OVERRUN_MIN_NS: u64 = 100_000_000;
/// What is planned lasts more than this many round trips, unless it was said to be shorter.
const OVERRUN_PARTS: u64 = 8;

/// One test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestSpec {
    /// Time at the beginning that is measured but not counted.
    pub warm_up_ns: u64,
    /// Time that counts, after the warm-up.
    pub duration_ns: u64,
    /// Time between two readings of everything.
    pub interval_ns: u64,
    /// Longest time after the end for what is still under way.
    pub drain_ns: u64,
    /// What is measured, all at once.
    pub parts: Vec<PartSpec>,
}

impl TestSpec {
    /// Time from the start to the end of what counts.
    pub const fn planned_ns(&self) -> u64 {
        self.warm_up_ns.saturating_add(self.duration_ns)
    }

    /// From the start to when senders of bulk TCP stop.
    pub(super) fn sending_ns(&self) -> u64 {
        let overrun = (self.planned_ns() / OVERRUN_PARTS).clamp(OVERRUN_MIN_NS, OVERRUN_NS);
        self.planned_ns().saturating_add(overrun)
    }

    /// The longest that either side may need, from the start to its report.
    pub const fn longest_ns(&self) -> u64 {
        self.planned_ns().saturating_add(self.drain_ns).saturating_add(2_000_000_000)
    }
}

/// One part of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartSpec {
    /// Bulk TCP.
    Streams(BulkTcpSpec),
    /// Round trips of small datagrams at a fixed rate.
    Probes(ProbesSpec),
    /// Requests and responses.
    Exchange(RequestResponsePart),
    /// Datagrams at a paced rate, one way.
    Datagrams(DatagramsSpec),
    /// The longest packet that arrives from the client at the agent.
    Mtu(MtuSearchSpec),
}

impl PartSpec {
    /// TCP connections that it makes.
    pub fn connections(&self) -> usize {
        match self {
            Self::Streams(streams) => streams.connections(),
            Self::Probes(_) | Self::Exchange(_) | Self::Datagrams(_) | Self::Mtu(_) => 0,
        }
    }
}

/// Which way bulk data goes, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransferDirection {
    /// From the client to the agent.
    Up,
    /// From the agent to the client.
    Down,
    /// Both, at the same time, with as many streams each way.
    Both,
}

impl TransferDirection {
    /// Each direction by itself.
    pub const fn each(self) -> &'static [Direction] {
        match self {
            Self::Up => &[Direction::Up],
            Self::Down => &[Direction::Down],
            Self::Both => &[Direction::Up, Direction::Down],
        }
    }
}

/// Bulk TCP: as much as goes, or as much as is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkTcpSpec {
    /// Which way.
    pub direction: TransferDirection,
    /// Connections a direction, a thread each as far as there are CPUs.
    pub streams: u16,
    /// Congestion control of the senders; none leaves the host's.
    pub congestion: Option<String>,
    /// Socket buffers in bytes at both ends; none leaves them to the kernel.
    pub window_bytes: Option<u32>,
    /// Bytes of one write and of one read.
    pub block_bytes: u32,
    /// The most that all senders of a direction together send, in bytes a second; none is no limit.
    pub rate_bytes_per_second: Option<u64>,
    /// Who chooses the CPUs of the threads, at both ends.
    pub seating: ThreadPlacementPolicy,
}

impl BulkTcpSpec {
    /// One stream as fast as it goes, with whatever the hosts choose.
    pub const fn one(direction: TransferDirection) -> Self {
        Self {
            direction,
            streams: 1,
            congestion: None,
            window_bytes: None,
            block_bytes: 1 << 17,
            rate_bytes_per_second: None,
            seating: ThreadPlacementPolicy::Queue,
        }
    }

    /// Connections of all directions.
    pub fn connections(&self) -> usize {
        usize::from(self.streams) * if self.direction == TransferDirection::Both { 2 } else { 1 }
    }

    /// Whether the client sends on connection `index`: of both directions, the lower half does.
    pub fn client_sends(&self, index: usize) -> bool {
        match self.direction {
            TransferDirection::Up => true,
            TransferDirection::Down => false,
            TransferDirection::Both => index < usize::from(self.streams),
        }
    }
}

/// Small datagrams to the agent and back, at a fixed rate whatever comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbesSpec {
    /// How many a second.
    pub per_second: u32,
    /// Bytes of each, both ways: what is below the smallest that holds the stamps is raised to it.
    pub datagram_bytes: u16,
}

/// Requests and responses over a transport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestResponsePart {
    /// Over what.
    pub transport: RequestTransport,
    /// Bytes of a request.
    pub request_bytes: u32,
    /// Bytes of a response.
    pub response_bytes: u32,
    /// When requests are sent.
    pub pacing: RequestPacing,
}

impl RequestResponsePart {
    /// With the times of the test that it is a part of.
    pub const fn with_times_of(&self, test: &TestSpec) -> RequestSpec {
        RequestSpec {
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            pacing: self.pacing,
            warm_up_ns: test.warm_up_ns,
            duration_ns: test.duration_ns,
        }
    }

    /// Whether it can be done.
    ///
    /// # Errors
    /// [`RequestError::Spec`], with what cannot.
    pub const fn check(&self, test: &TestSpec) -> Result<(), RequestError> {
        if matches!(self.transport, RequestTransport::Udp) {
            if matches!(self.pacing, RequestPacing::Connect) {
                return Err(RequestError::Spec("UDP has no connections to make"));
            }
            let (least, most) = (udp::BYTES_MIN, udp::BYTES_MAX);
            if self.request_bytes < least || self.request_bytes > most {
                return Err(RequestError::Spec("requests in datagrams have 40 B to 65,507 B"));
            }
            if self.response_bytes < least || self.response_bytes > self.request_bytes {
                return Err(RequestError::Spec(
                    "responses in datagrams have 40 B or more and are no longer than requests",
                ));
            }
        }
        self.with_times_of(test).check()
    }
}

/// Datagrams at a paced rate, one way, for all of the test; all of them count, with those of the warm-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramsSpec {
    /// Whether the client sends.
    pub is_up: bool,
    /// Bits of payload a second.
    pub rate_bits_per_second: u64,
    /// Bytes of payload of each.
    pub datagram_bytes: u16,
}

impl DatagramsSpec {
    /// Slowest rate of a test.
    pub const RATE_MIN: u64 = 1_000;
    /// Fastest rate of a test.
    pub const RATE_MAX: u64 = 400_000_000_000;

    /// Bytes of payload a second, rounded up.
    pub const fn bytes_per_second(&self) -> u64 {
        self.rate_bits_per_second.div_ceil(8)
    }

    /// Time from one datagram to the next.
    pub fn period_ns(&self) -> u64 {
        let bits = u128::from(self.datagram_bytes) * 8 * 1_000_000_000;
        u64::try_from(bits / u128::from(self.rate_bits_per_second.max(1))).unwrap_or(u64::MAX)
    }
}

/// The longest packet that arrives, found out by ones that are not fragmented; the test ends when it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MtuSearchSpec {
    /// How long it may take.
    pub patience_ns: u64,
}

impl MtuSearchSpec {
    /// Most packets a second, however soon each is answered: as many as other probes are by usual.
    pub const PER_SECOND_MAX: u32 = 200;
}
