//! Whether a scenario can be simulated, and in how much memory.

use std::collections::BTreeSet;

use plumb_base::time::Span;
use plumb_link::spec::{DelayDistribution, DirectionSpec, LinkSpec, QueueLimit, RateSpec};
use plumb_wire::packet::HEADROOM;

use crate::network::NetworkEdge;
use crate::route::RouteTable;
use crate::scenario::{
    FLOWS_OF_HOST_MAX, FlowGroup, FlowSpec, GROUPS_MAX, PACKET_MIN, Scenario, SourceSpec,
};

/// Longest simulation: what picoseconds leave room for.
const DURATION_MAX: Span = Span::from_secs(180 * 86_400);
/// The least and the largest MTU of hosts.
const MTU_RANGE: std::ops::RangeInclusive<u32> = 576..=65_535;
/// Bytes of a segment's headers at most: 20 of IP and 60 of TCP.
const SEGMENT_HEADERS: u32 = 80;

/// Bytes that a processor caches together.
const CACHE_LINE: u32 = 64;

/// Bytes of a connection, both ends and its report, without buffers; of a source.
const FLOW_BYTES: u64 = 8_192;
const SOURCE_BYTES: u64 = 1_024;

/// Why a scenario cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// What is wrong, and what would not be.
    #[error("{0}")]
    Impossible(String),
    /// More memory than there may be.
    #[error(
        "packets, connections and sources may need {needed} MiB of memory and {allowed} MiB is allowed; lower a rate, a delay, \
         a queue's limit, the buffers or the number of connections or sources, or allow more"
    )]
    Memory {
        /// MiB.
        needed: u64,
        /// MiB.
        allowed: u64,
    },
}

impl ScenarioError {
    fn new(text: impl Into<String>) -> Self {
        Self::Impossible(text.into())
    }
}

/// What is known about the paths of a scenario's traffic.
#[derive(Clone, Debug)]
pub(crate) struct PathSurvey {
    /// Of each one-way link: the longest round trip, without queues, of what crosses it.
    pub round_trips: Vec<Span>,
    /// Of each one-way link: the links that packets come to it from; none of one out of a host.
    pub inputs: Vec<BTreeSet<u32>>,
}

/// Memory for a scenario, from above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Packets at once at most.
    pub packets: u64,
    /// Bytes of memory for each.
    pub frame_size: u32,
    /// Bytes of connections, their buffers, and sources.
    pub state: u64,
}

impl MemoryNeed {
    /// Bytes in all.
    pub fn bytes(self) -> u64 {
        self.packets.saturating_mul(self.frame_size.into()).saturating_add(self.state)
    }

    /// Whether packets, connections and sources fit.
    ///
    /// # Errors
    /// [`ScenarioError::Memory`] if they may need more bytes than `allowed`.
    pub fn check(self, allowed: u64) -> Result<(), ScenarioError> {
        if self.bytes() <= allowed && self.packets < u64::from(u32::MAX) {
            return Ok(());
        }
        let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
        Err(ScenarioError::Memory { needed: mebibytes(self.bytes()), allowed: allowed >> 20 })
    }

    pub(crate) fn frames(self) -> u32 {
        u32::try_from(self.packets).unwrap_or(u32::MAX)
    }
}

impl Scenario {
    /// Whether it can be simulated, whatever memory that takes.
    ///
    /// # Errors
    /// [`ScenarioError`].
    pub fn check(&self) -> Result<(), ScenarioError> {
        check(self, &RouteTable::new(&self.network)).map(|_| ())
    }

    /// Memory for its packets.
    ///
    /// # Errors
    /// [`ScenarioError`] when it cannot be simulated at all.
    pub fn memory_need(&self) -> Result<MemoryNeed, ScenarioError> {
        let paths = check(self, &RouteTable::new(&self.network))?;
        Ok(memory_need(self, &paths, |_| true))
    }

    /// Directions of links whose queues have more room than was asked for: a limit in products of rate and delay is
    /// ten packets at least.
    ///
    /// # Errors
    /// [`ScenarioError`] when it cannot be simulated at all.
    pub fn raised_limits(&self) -> Result<Vec<String>, ScenarioError> {
        let paths = check(self, &RouteTable::new(&self.network))?;
        let is_raised = |(index, round_trip): &(usize, Span)| {
            let spec = &self.network.edges[index / 2].spec;
            let direction = if index % 2 == 0 { &spec.up } else { &spec.down };
            direction.is_limit_raised(*round_trip)
        };
        let raised = paths.round_trips.into_iter().enumerate().filter(is_raised);
        Ok(raised
            .map(|(index, _)| self.network.direction_name(index / 2, index % 2 == 0))
            .collect())
    }

    /// Bytes of buffer that no connection between these ends needs more than: twice what its path and the longest queue on it hold.
    pub fn buffer_for(&self, flows: &[FlowSpec]) -> u32 {
        /// The largest window of TCP (RFC 7323).
        const WINDOW_MAX: u64 = 1 << 30;
        let routes = RouteTable::new(&self.network);
        let mut seen = BTreeSet::new();
        let mut most = 0;
        for flow in flows.iter().filter(|flow| seen.insert((flow.from, flow.to))) {
            let Some(path) = routes.path(flow.from, flow.to) else { continue };
            let delay =
                |edge: &NetworkEdge| edge.spec.up.delay.mean() + edge.spec.down.delay.mean();
            let edges = path.iter().map(|link| &self.network.edges[*link as usize / 2]);
            let round_trip = edges.fold(Span::ZERO, |sum, edge| sum + delay(edge));
            let directions = path.iter().map(|link| {
                let spec = &self.network.edges[*link as usize / 2].spec;
                if link % 2 == 0 { &spec.up } else { &spec.down }
            });
            let slowest = directions
                .filter_map(|spec| Some((spec.rate.mean()?, spec)))
                .min_by_key(|(rate, _)| *rate);
            let Some((rate, spec)) = slowest else { continue };
            let product = u128::from(rate.bits_per_second()) * u128::from(round_trip.as_ps())
                / 8_000_000_000_000;
            let queue = match spec.limit(round_trip) {
                QueueLimit::Bytes(bytes) => u128::from(bytes),
                QueueLimit::Frames(frames) => u128::from(frames) * u128::from(self.mtu),
            };
            most = most.max((product + queue) * 2);
        }
        u32::try_from(most.min(WINDOW_MAX.into())).expect("at most 1 GiB")
    }
}

/// Finds what is wrong with a scenario, and what crosses each link.
pub(crate) fn check(scenario: &Scenario, routes: &RouteTable) -> Result<PathSurvey, ScenarioError> {
    let Scenario { duration, warmup, mtu, ring, .. } = *scenario;
    if duration == Span::ZERO || duration > DURATION_MAX {
        return Err(ScenarioError::new("a simulation lasts more than 0 and at most 180 days"));
    }
    if warmup >= duration {
        return Err(ScenarioError::new(
            "the warm-up is as long as the simulation; no time would be left to measure: make it shorter",
        ));
    }
    if !MTU_RANGE.contains(&mtu) {
        return Err(ScenarioError::new(format!(
            "an MTU of {mtu} is not between 576 and 65,535 bytes"
        )));
    }
    if ring == 0 {
        return Err(ScenarioError::new(
            "a host whose ring holds 0 packets sends nothing; give it 1 or more",
        ));
    }
    if scenario.groups.len() > GROUPS_MAX {
        return Err(ScenarioError::new(format!(
            "there are at most {GROUPS_MAX} groups of connections"
        )));
    }
    check_processors(scenario)?;
    check_links(scenario)?;
    check_ports(scenario)?;
    check_applications(scenario)?;
    survey(scenario, routes)
}

fn check_processors(scenario: &Scenario) -> Result<(), ScenarioError> {
    let degrees = scenario.network.degrees();
    let mut seen = BTreeSet::new();
    for processor in &scenario.processors {
        let name = &scenario.network.nodes[processor.node as usize];
        if degrees[processor.node as usize] != 1 {
            return Err(ScenarioError::new(format!(
                "{name} is a router, which has no processor; name a host"
            )));
        }
        if !seen.insert(processor.node) {
            return Err(ScenarioError::new(format!("{name} has two processors; give it one")));
        }
        if processor.ring == 0 {
            return Err(ScenarioError::new(format!(
                "a ring of 0 packets at {name} receives nothing; give it 1 or more"
            )));
        }
    }
    Ok(())
}

fn check_links(scenario: &Scenario) -> Result<(), ScenarioError> {
    if scenario.network.edges.is_empty() {
        return Err(ScenarioError::new("a network without links; add one"));
    }
    for (index, edge) in scenario.network.edges.iter().enumerate() {
        let name = |is_up| scenario.network.direction_name(index, is_up);
        let link = LinkSpec { hops: vec![edge.spec.clone()], seed: scenario.seed };
        link.check().map_err(|error| ScenarioError::new(format!("{}: {error}", name(true))))?;
        for (direction, is_up) in [(&edge.spec.up, true), (&edge.spec.down, false)] {
            let takes_time =
                direction.rate != RateSpec::Unlimited || direction.delay.least() > Span::ZERO;
            if !takes_time {
                return Err(ScenarioError::new(format!(
                    "{}: a link without rate and delay takes no time; give it rate= or delay=",
                    name(is_up)
                )));
            }
            if direction.mtu.is_some() {
                return Err(ScenarioError::new(format!(
                    "{}: mtu= is not simulated at routers; set the mtu of the scenario, which is that of its hosts",
                    name(is_up)
                )));
            }
        }
    }
    Ok(())
}

fn check_ports(scenario: &Scenario) -> Result<(), ScenarioError> {
    let mut from = vec![0_usize; scenario.network.nodes.len()];
    for flow in scenario.groups.iter().flat_map(|group| &group.flows) {
        let count = &mut from[flow.from as usize];
        *count += 1;
        if *count > FLOWS_OF_HOST_MAX {
            return Err(ScenarioError::new(format!(
                "more than {FLOWS_OF_HOST_MAX} connections come from {}; it has no more ports: use more hosts",
                scenario.network.nodes[flow.from as usize]
            )));
        }
    }
    Ok(())
}

/// A connection passes on one that was named before it, which ends where it begins and is passed on once.
fn check_applications(scenario: &Scenario) -> Result<(), ScenarioError> {
    let flows: Vec<&FlowSpec> = scenario.groups.iter().flat_map(|group| &group.flows).collect();
    let mut relayed = BTreeSet::new();
    for (index, flow) in flows.iter().enumerate() {
        let name = |node: u32| &scenario.network.nodes[node as usize];
        if flow.writes.is_some_and(|writes| writes.bytes == 0 || writes.interval == Span::ZERO) {
            let text = format!(
                "{} writes nothing, or all at once: give its writes bytes and an interval",
                name(flow.from)
            );
            return Err(ScenarioError::new(text));
        }
        let Some(upstream) = flow.relays.map(|upstream| upstream as usize) else { continue };
        let Some(before) = flows.get(upstream).filter(|_| upstream < index) else {
            return Err(ScenarioError::new(
                "a connection relays one that does not come before it; put it after the other",
            ));
        };
        if before.to != flow.from {
            let (to, from) = (name(before.to), name(flow.from));
            let text = format!(
                "a connection from {from} cannot relay one that ends at {to}; begin it there"
            );
            return Err(ScenarioError::new(text));
        }
        if flow.writes.is_some() || flow.bytes.is_some() {
            return Err(ScenarioError::new(
                "a connection that relays another has its bytes and their times from it; give the other 'bytes' and 'rate'",
            ));
        }
        if !relayed.insert(upstream) {
            return Err(ScenarioError::new("a connection is relayed by two others; name one"));
        }
    }
    Ok(())
}

/// Walks the path of everything that sends.
fn survey(scenario: &Scenario, routes: &RouteTable) -> Result<PathSurvey, ScenarioError> {
    let network = &scenario.network;
    let own = |edge: usize| {
        let spec = &network.edges[edge].spec;
        spec.up.delay.mean() + spec.down.delay.mean()
    };
    let mut round_trips: Vec<Span> =
        (0..network.edges.len() * 2).map(|link| own(link / 2)).collect();
    let flows =
        scenario.groups.iter().flat_map(|group| &group.flows).map(|flow| (flow.from, flow.to));
    let sources = scenario.sources.iter().map(|source| (source.from, source.to));
    let mut inputs = vec![BTreeSet::new(); round_trips.len()];
    let degrees = network.degrees();
    let mut seen = BTreeSet::new();
    for (from, to) in flows.chain(sources).filter(|ends| seen.insert(*ends)) {
        let name = |node: u32| &network.nodes[node as usize];
        for node in [from, to] {
            if degrees[node as usize] != 1 {
                return Err(ScenarioError::new(format!(
                    "{} has {} links and is a router; traffic begins and ends at hosts, which have one",
                    name(node),
                    degrees[node as usize]
                )));
            }
        }
        if from == to {
            return Err(ScenarioError::new(format!(
                "{} sends to itself; choose two hosts",
                name(from)
            )));
        }
        let path = routes.path(from, to).ok_or_else(|| {
            ScenarioError::new(format!(
                "there is no way from {} to {}; connect them",
                name(from),
                name(to)
            ))
        })?;
        let round_trip = path.iter().fold(Span::ZERO, |sum, link| sum + own(*link as usize / 2));
        for pair in path.windows(2) {
            inputs[pair[1] as usize].insert(pair[0]);
            inputs[(pair[0] ^ 1) as usize].insert(pair[1] ^ 1);
        }
        for link in path {
            for way in [link, link ^ 1] {
                let known = &mut round_trips[way as usize];
                *known = (*known).max(round_trip);
            }
        }
    }
    Ok(PathSurvey { round_trips, inputs })
}

/// Memory for the packets on the links that are used, and for connections and sources; from above. There are no more packets of
/// connections than these links hold and windows let out, and none of sources that they do not hold.
pub(crate) fn memory_need(
    scenario: &Scenario,
    paths: &PathSurvey,
    is_used: impl Fn(u32) -> bool,
) -> MemoryNeed {
    let headroom = u32::try_from(HEADROOM).expect("a small number");
    let longest = if scenario.groups.is_empty() { PACKET_MIN } else { scenario.mtu };
    // An odd number of cache lines: so headers of successive frames share no set of the cache.
    let frame_size = (headroom + longest).next_multiple_of(CACHE_LINE) | CACHE_LINE;
    let edges = &scenario.network.edges;
    let directions: Vec<&DirectionSpec> =
        edges.iter().flat_map(|edge| [&edge.spec.up, &edge.spec.down]).collect();
    // Bits a second that come out of a link at most; without bounds where they may come in bursts.
    let rate = |link: usize| match &directions[link].rate {
        RateSpec::Constant(rate)
            if directions[link].faults.is_empty()
                && matches!(
                    directions[link].delay.distribution,
                    DelayDistribution::Constant(_)
                ) =>
        {
            rate.bits_per_second()
        }
        _ => u64::MAX,
    };
    let held = |len: u32| {
        let used = (0..directions.len()).zip(0..).filter(|(_, number)| is_used(*number));
        used.fold(0_u64, |sum, (link, _)| {
            let (travelling, waiting) = directions[link].packets_max(len, paths.round_trips[link]);
            let inputs = &paths.inputs[link];
            let offered =
                inputs.iter().fold(0_u64, |sum, one| sum.saturating_add(rate(*one as usize)));
            // Traffic that arrives no faster than it leaves does not queue, and hosts do not send into a full ring.
            let waiting = match inputs.len() {
                0 if scenario.sources.is_empty() => waiting.min(scenario.ring.into()),
                1.. if offered < u64::MAX && offered <= rate(link) => {
                    waiting.min(inputs.len() as u64)
                }
                _ => waiting,
            };
            sum.saturating_add(travelling).saturating_add(waiting)
        })
    };
    let segment = u64::from(scenario.mtu.saturating_sub(SEGMENT_HEADERS)).max(1);
    let windows = scenario.groups.iter().map(|group| {
        let mss = group.client.mss_max.map_or(segment, u64::from).max(1);
        let window = u64::from(group.client.send_buffer.max.min(group.server.receive_buffer.max));
        // As many acknowledgements as segments, twice what is in flight as parts may be sent again.
        (window / mss + 16).saturating_mul(4 * group.flows.len() as u64)
    });
    // Acknowledgements are short; there are no more of them than segments.
    let of_links = held(scenario.mtu).saturating_mul(2);
    let of_flows = of_links.min(windows.fold(0_u64, u64::saturating_add));
    let least = |source: &SourceSpec| {
        if source.is_size_exponential { (source.size / 4).max(PACKET_MIN) } else { source.size }
    };
    let of_sources = scenario.sources.iter().map(least).min().map_or(0, held);
    let rings: u64 = scenario.processors.iter().map(|processor| u64::from(processor.ring)).sum();
    let others = u64::from(scenario.ring) + rings + 1_024;
    MemoryNeed {
        packets: of_flows.saturating_add(of_sources).saturating_add(others),
        frame_size,
        state: state_need(scenario, of_flows.saturating_mul(segment)),
    }
}

/// Bytes of connections and sources, of which so many bytes are in flight.
fn state_need(scenario: &Scenario, in_flight: u64) -> u64 {
    // A send buffer is a ring, of a power of two. What is received is not kept, and what is sent only where packets are observed.
    let ring = |bytes: u32| u64::from(bytes).next_power_of_two();
    let sum = |of: &dyn Fn(&FlowGroup) -> u64| {
        let groups = scenario.groups.iter();
        groups
            .map(|group| of(group).saturating_mul(group.flows.len() as u64))
            .fold(0, u64::saturating_add)
    };
    let full = sum(&|group| ring(group.client.send_buffer.max));
    // One that grows holds twice what is in flight.
    let grown = sum(&|group| ring(group.client.send_buffer.initial))
        .saturating_add(in_flight.saturating_mul(2));
    let sources = scenario.sources.len() as u64 * SOURCE_BYTES;
    sum(&|_| FLOW_BYTES).saturating_add(full.min(grown)).saturating_add(sources)
}
