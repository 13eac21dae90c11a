//! The traffic of a scenario: every `[[flow]]` of TCP and every open-loop `[[source]]`.

use std::ops::Range;
use std::sync::Arc;

use plumb_base::seed::RandomStream;
use plumb_base::time::Span;
use plumb_stack::tcp::config::{BufferLimits, DelayedAck, EcnPolicy, Personality, TcpConfig};
use rand::Rng as _;
use toml::de::DeTable;

use super::{
    ReadResult, ScenarioReader, TomlValue, buffer, positive_bytes, rate, span, truth, whole,
};
use crate::processor::ProcessorSpec;
use crate::scenario::{
    FlowGroup, FlowSpec, PACKET_MIN, Scenario, SendPattern, SourceSpec, TimedWrites,
};

const FLOW: [&str; 26] = [
    "name",
    "from",
    "to",
    "count",
    "start",
    "stagger",
    "stop",
    "bytes",
    "rate",
    "write",
    "relays",
    "congestion",
    "hystart",
    "pacing",
    "sack",
    "timestamps",
    "ecn",
    "delayed_ack",
    "initial_window",
    "mss",
    "send_buffer",
    "receive_buffer",
    "personality",
    "rto_min",
    "nagle",
    "syn_cookies",
];
const SOURCE: [&str; 17] = [
    "name", "from", "to", "count", "pattern", "rate", "on", "off", "shape", "page", "think",
    "size", "sizes", "dscp", "floods", "start", "stop",
];
/// Patterns that have keys of their own.
const ON_OFF: &[&str] = &["on-off", "pareto"];
const WEB: &[&str] = &["web"];
const SHAPED: &[&str] = &["pareto", "web"];
const PROCESSOR: [&str; 6] =
    ["hosts", "per_interrupt", "per_packet", "per_byte", "coalesce", "ring"];
/// Bytes of a SYN without options.
const SYN_LEN: u64 = PACKET_MIN as u64;
/// Connections of one group, and sources of one entry, at most.
const COUNT_MAX: u64 = 1_000_000;

impl ScenarioReader<'_> {
    pub(super) fn traffic(&self, table: &DeTable<'_>, scenario: &mut Scenario) -> ReadResult<()> {
        for (number, (flow, at)) in (1..).zip(self.list(table, "flow")?) {
            self.check_keys(flow, "a flow", &FLOW)?;
            let group = self.group(flow, &at, number, scenario)?;
            scenario.groups.push(group);
        }
        for (number, (source, at)) in (1..).zip(self.list(table, "source")?) {
            self.check_keys(source, "a source", &SOURCE)?;
            let sources = self.source(source, &at, number, scenario)?;
            scenario.sources.extend(sources);
        }
        for (processor, at) in self.list(table, "processor")? {
            self.check_keys(processor, "a processor", &PROCESSOR)?;
            let hosts = self.required(processor, "hosts", &at, "\"right*\"")?;
            let mut spec = ProcessorSpec {
                node: 0,
                per_interrupt: Span::ZERO,
                per_packet: Span::ZERO,
                per_byte: Span::ZERO,
                coalesce: Span::ZERO,
                ring: 256,
            };
            self.set(processor, "per_interrupt", &mut spec.per_interrupt, span)?;
            self.set(processor, "per_packet", &mut spec.per_packet, span)?;
            self.set(processor, "per_byte", &mut spec.per_byte, span)?;
            self.set(processor, "coalesce", &mut spec.coalesce, span)?;
            self.set(processor, "ring", &mut spec.ring, whole::<u32>)?;
            let of = |node| ProcessorSpec { node, ..spec };
            scenario.processors.extend(self.hosts(hosts, "hosts", scenario)?.into_iter().map(of));
        }
        if scenario.groups.is_empty() && scenario.sources.is_empty() {
            return Err(self.fault_at(&(0..0), "nothing sends; add a [[flow]] or a [[source]]"));
        }
        Ok(())
    }

    fn group(
        &self,
        table: &DeTable<'_>,
        at: &Range<usize>,
        number: usize,
        scenario: &Scenario,
    ) -> ReadResult<FlowGroup> {
        let mut name = format!("flow {number}");
        self.set(table, "name", &mut name, |text| Ok::<_, String>(text.to_owned()))?;
        let ends = self.ends(table, at, scenario)?;
        let count = self.count(table, at, ends.len())?;
        let mut start = (Span::ZERO, Span::ZERO);
        self.set(table, "start", &mut start, start_range)?;
        let (mut stagger, mut stop, mut bytes) = (Span::ZERO, None, None);
        self.set(table, "stagger", &mut stagger, span)?;
        self.set_some(table, "stop", &mut stop, span)?;
        self.set_some(table, "bytes", &mut bytes, positive_bytes)?;
        let writes = self.writes(table)?;
        let mut random = scenario.seed.stream(&format!("starts {number}"));
        let mut flows = Vec::new();
        for (from, to) in ends.iter().flat_map(|ends| (0..count).map(|_| *ends)) {
            let start = draw_start(start, &mut random) + stagger * flows.len() as u64;
            flows.push(FlowSpec { from, to, start, stop, bytes, writes, relays: None });
        }
        self.relay(table, &mut flows, scenario)?;
        if let (Some(stop), Some(flow)) =
            (stop, flows.iter().find(|flow| stop.is_some_and(|stop| stop <= flow.start)))
        {
            let value = self.required(table, "stop", at, "\"20s\"")?;
            let text = format!(
                "stop: a connection that starts at {} cannot stop at {stop}; stop it later",
                flow.start
            );
            return Err(self.fault(value, text));
        }
        let (client, server) = self.configs(table, scenario, &flows)?;
        Ok(FlowGroup { name, client: Arc::new(client), server: Arc::new(server), flows })
    }

    /// Writes of so many bytes that come to a rate.
    fn writes(&self, table: &DeTable<'_>) -> ReadResult<Option<TimedWrites>> {
        let Some(value) = table.get("rate") else {
            return match table.get("write") {
                Some(write) => Err(self.fault(write, "write: bytes of a write need a 'rate'")),
                None => Ok(None),
            };
        };
        let rate = self.read(value, "rate", rate)?;
        let mut bytes = 1_000_u32;
        self.set(table, "write", &mut bytes, whole::<u32>)?;
        let picoseconds = u64::from(bytes) * 8_000_000_000_000 / rate.bits_per_second();
        let interval = Span::from_ps(picoseconds);
        if interval == Span::ZERO {
            return Err(self.fault(
                value,
                "rate: its writes have no time between them; lower it, or make 'write' larger",
            ));
        }
        Ok(Some(TimedWrites { bytes, interval }))
    }

    /// Each connection relays the one of the same place in the group that `relays` names.
    fn relay(
        &self,
        table: &DeTable<'_>,
        flows: &mut [FlowSpec],
        scenario: &Scenario,
    ) -> ReadResult<()> {
        let Some(value) = table.get("relays") else { return Ok(()) };
        let named = self.text_of(value, "relays")?;
        let mut first = 0;
        for group in &scenario.groups {
            if group.name == named {
                if group.flows.len() != flows.len() {
                    let (relays, relayed) = (flows.len(), group.flows.len());
                    let text = format!(
                        "relays: {relays} connections cannot relay {relayed}; make them as many"
                    );
                    return Err(self.fault(value, text));
                }
                for (number, flow) in (first..).zip(flows) {
                    flow.relays = Some(number);
                }
                return Ok(());
            }
            first += u32::try_from(group.flows.len()).unwrap_or(u32::MAX);
        }
        let text = format!(
            "relays: no flow before this one has the name '{named}'; give one 'name = \"{named}\"'"
        );
        Err(self.fault(value, text))
    }

    fn configs(
        &self,
        table: &DeTable<'_>,
        scenario: &Scenario,
        flows: &[FlowSpec],
    ) -> ReadResult<(TcpConfig, TcpConfig)> {
        let mut config = TcpConfig::default();
        self.set(table, "personality", &mut config.personality, personality)?;
        self.set(table, "congestion", &mut config.congestion, str::parse)?;
        self.set(table, "hystart", &mut config.hystart, truth)?;
        self.set(table, "pacing", &mut config.pacing, truth)?;
        self.set(table, "sack", &mut config.sack, truth)?;
        self.set(table, "timestamps", &mut config.timestamps, truth)?;
        self.set(table, "nagle", &mut config.nagle, truth)?;
        self.set(table, "syn_cookies", &mut config.syn_cookies, truth)?;
        self.set_some(table, "mss", &mut config.mss_max, whole::<u16>)?;
        self.set(table, "initial_window", &mut config.personality.initial_window, whole::<u16>)?;
        self.set(table, "rto_min", &mut config.personality.rto_min, span)?;
        let (mut ecn, mut delays_acks) = (false, true);
        self.set(table, "ecn", &mut ecn, truth)?;
        if ecn {
            config.ecn = EcnPolicy::Offer;
        }
        self.set(table, "delayed_ack", &mut delays_acks, truth)?;
        if !delays_acks {
            let delayed_ack = config.personality.delayed_ack;
            config.personality.delayed_ack =
                DelayedAck { max: Span::ZERO, min: Span::ZERO, ..delayed_ack };
        }
        let enough = scenario.buffer_for(flows);
        config.send_buffer.max = config.send_buffer.max.max(enough);
        config.receive_buffer.max = config.receive_buffer.max.max(enough);
        if let Some(value) = table.get("send_buffer") {
            config.send_buffer = BufferLimits::fixed(self.read(value, "send_buffer", buffer)?);
        }
        if let Some(value) = table.get("receive_buffer") {
            config.receive_buffer =
                BufferLimits::fixed(self.read(value, "receive_buffer", buffer)?);
        }
        Ok((config.clone(), config))
    }

    fn source(
        &self,
        table: &DeTable<'_>,
        at: &Range<usize>,
        number: usize,
        scenario: &Scenario,
    ) -> ReadResult<Vec<SourceSpec>> {
        let mut name = format!("source {number}");
        self.set(table, "name", &mut name, |text| Ok::<_, String>(text.to_owned()))?;
        let pattern = self.pattern(table, at)?;
        let is_flood = table.contains_key("floods");
        let (mut size, mut sizes) = (if is_flood { SYN_LEN } else { 1_000 }, String::new());
        self.set(table, "size", &mut size, positive_bytes)?;
        self.set(table, "sizes", &mut sizes, |text| Ok::<_, String>(text.to_owned()))?;
        let size = u32::try_from(size).ok().filter(|size| (PACKET_MIN..=1 << 24).contains(size));
        let size = size.ok_or_else(|| {
            let span = table.get("size").map_or(at.clone(), TomlValue::span);
            self.fault_at(
                &span,
                format!("size: a packet of a source has {PACKET_MIN} bytes to 16 MiB"),
            )
        })?;
        if is_flood && (u64::from(size), sizes.as_str()) != (SYN_LEN, "") {
            let span = table.get("size").or(table.get("sizes")).map_or(at.clone(), TomlValue::span);
            return Err(
                self.fault_at(&span, format!("a SYN has {SYN_LEN} bytes; remove this line"))
            );
        }
        let is_size_exponential = match sizes.as_str() {
            "" | "fixed" => false,
            "exponential" => true,
            other => {
                let span = table.get("sizes").map_or(at.clone(), TomlValue::span);
                return Err(self.fault_at(
                    &span,
                    format!("sizes: '{other}' is neither fixed nor exponential"),
                ));
            }
        };
        let (mut start, mut stop) = ((Span::ZERO, Span::ZERO), None);
        self.set(table, "start", &mut start, start_range)?;
        self.set_some(table, "stop", &mut stop, span)?;
        let mut dscp = 0;
        self.set(table, "dscp", &mut dscp, code_point)?;
        let ends = self.ends(table, at, scenario)?;
        let floods = self.flooded(table, &ends, scenario)?;
        let count = self.count(table, at, ends.len())?;
        let mut random = scenario.seed.stream(&format!("source starts {number}"));
        let mut source = |(from, to)| SourceSpec {
            name: name.clone(),
            from,
            to,
            pattern,
            size,
            is_size_exponential,
            dscp,
            floods,
            start: draw_start(start, &mut random),
            stop,
        };
        let each = ends.iter().flat_map(|ends| (0..count).map(|_| *ends));
        Ok(each.map(&mut source).collect())
    }

    /// The group whose listener a source floods, on the host that it sends to.
    fn flooded(
        &self,
        table: &DeTable<'_>,
        ends: &[(u32, u32)],
        scenario: &Scenario,
    ) -> ReadResult<Option<u32>> {
        let Some(value) = table.get("floods") else { return Ok(None) };
        let named = self.text_of(value, "floods")?;
        let listens = |group: &FlowGroup| {
            ends.iter().all(|(_, to)| group.flows.iter().any(|flow| flow.to == *to))
        };
        let found = (0..).zip(&scenario.groups).find(|(_, group)| group.name == named);
        let found = found.filter(|(_, group)| listens(group)).map(|(number, _)| number);
        found.map(Some).ok_or_else(|| {
            let text = format!(
                "floods: there is no flow '{named}' to the same host, whose listener it could flood; give a [[flow]] this name"
            );
            self.fault(value, text)
        })
    }

    /// How many there are of each of so many pairs of hosts.
    fn count(&self, table: &DeTable<'_>, at: &Range<usize>, pairs: usize) -> ReadResult<u64> {
        let mut count = 1_u64;
        self.set(table, "count", &mut count, whole::<u64>)?;
        if count == 0 || count.saturating_mul(pairs as u64) > COUNT_MAX {
            let value = self.required(table, "count", at, "1")?;
            return Err(self.fault(value, format!("count: there are 1 to {COUNT_MAX} in all")));
        }
        Ok(count)
    }

    fn pattern(&self, table: &DeTable<'_>, at: &Range<usize>) -> ReadResult<SendPattern> {
        let value = self.required(table, "pattern", at, "\"poisson\"")?;
        let rate_value = self.required(table, "rate", at, "\"10mbit\"")?;
        let rate = self.read(rate_value, "rate", rate)?;
        let kind = self.text_of(value, "pattern")?;
        let owners =
            [("on", ON_OFF), ("off", ON_OFF), ("page", WEB), ("think", WEB), ("shape", SHAPED)];
        for (key, owners) in owners {
            if let Some(value) = table.get(key)
                && !owners.contains(&kind.as_str())
            {
                let owners = owners.join(", ");
                let text = format!("'{key}' is of the patterns {owners}, not of {kind}; remove it");
                return Err(self.fault(value, text));
            }
        }
        let period = |key: &str| {
            let value = self.required(table, key, at, "\"500ms\"")?;
            let period = self.read(value, key, span)?;
            if period > Span::ZERO {
                Ok(period)
            } else {
                Err(self.fault(value, format!("{key}: a period is longer than 0 s")))
            }
        };
        Ok(match kind.as_str() {
            "constant" => SendPattern::Constant { rate },
            "poisson" => SendPattern::Poisson { rate },
            "on-off" | "pareto" => {
                let mut shape = (kind == "pareto").then_some(1.5);
                self.set_some(table, "shape", &mut shape, above_one)?;
                SendPattern::OnOff { peak: rate, on: period("on")?, off: period("off")?, shape }
            }
            "web" => {
                let (mut page, mut shape) = (12_000, 1.2);
                self.set(table, "page", &mut page, positive_bytes)?;
                self.set(table, "shape", &mut shape, above_one)?;
                SendPattern::Web { peak: rate, page, shape, think: period("think")? }
            }
            other => {
                let text = format!(
                    "there is no pattern '{other}'; there are: constant, poisson, on-off, pareto, web"
                );
                return Err(self.fault(value, text));
            }
        })
    }

    /// Pairs of hosts: those of `from` and of `to` one to one, or all of one with the only one of the other.
    fn ends(
        &self,
        table: &DeTable<'_>,
        at: &Range<usize>,
        scenario: &Scenario,
    ) -> ReadResult<Vec<(u32, u32)>> {
        let from_value = self.required(table, "from", at, "\"left1\"")?;
        let to_value = self.required(table, "to", at, "\"right1\"")?;
        let from = self.hosts(from_value, "from", scenario)?;
        let to = self.hosts(to_value, "to", scenario)?;
        let pairs: Vec<(u32, u32)> = match (from.as_slice(), to.as_slice()) {
            ([from], [to]) if from == to => {
                let name = &scenario.network.nodes[*from as usize];
                return Err(
                    self.fault(to_value, format!("{name} sends to itself; choose two hosts"))
                );
            }
            ([from], [to]) => return Ok(vec![(*from, *to)]),
            (_, [to]) => from.iter().map(|from| (*from, *to)).collect(),
            ([from], _) => to.iter().map(|to| (*from, *to)).collect(),
            _ if from.len() == to.len() => from.into_iter().zip(to).collect(),
            _ => {
                let (from, to) = (from.len(), to.len());
                let text = format!(
                    "{from} hosts send and {to} receive; name as many of both, or one of either"
                );
                return Err(self.fault(to_value, text));
            }
        };
        // Of several, none is meant that would send to itself.
        Ok(pairs.into_iter().filter(|(from, to)| from != to).collect())
    }

    /// The hosts of a name, or of a beginning of names before `*`, in the order of the network.
    fn hosts(&self, value: &TomlValue<'_>, key: &str, scenario: &Scenario) -> ReadResult<Vec<u32>> {
        let text = self.text_of(value, key)?;
        let network = &scenario.network;
        let degrees = network.degrees();
        let named: Vec<u32> = if let Some(beginning) = text.strip_suffix('*') {
            let is_meant = |(node, name): &(u32, &String)| {
                degrees[*node as usize] == 1 && name.starts_with(beginning)
            };
            (0..).zip(&network.nodes).filter(is_meant).map(|(node, _)| node).collect()
        } else {
            let node = network.nodes.iter().position(|name| *name == text);
            let degree = node.map_or(1, |node| degrees[node]);
            if degree != 1 {
                let what = format!("{text} has {degree} links and is a router");
                return Err(self.fault(value, format!("{key}: {what}; hosts have one link")));
            }
            node.and_then(|node| u32::try_from(node).ok()).into_iter().collect()
        };
        if !named.is_empty() {
            return Ok(named);
        }
        let hosts: Vec<&str> = network.hosts().into_keys().take(8).collect();
        Err(self.fault(
            value,
            format!("{key}: there is no host '{text}'; there are: {} …", hosts.join(", ")),
        ))
    }
}

/// A moment, or a range of which each connection draws one.
fn start_range(text: &str) -> Result<(Span, Span), String> {
    let Some((from, to)) = text.split_once("..") else {
        let at = span(text)?;
        return Ok((at, at));
    };
    let (from, to) = (span(from)?, span(to)?);
    if from <= to { Ok((from, to)) } else { Err(format!("'{text}' ends before it begins")) }
}

/// A moment of a range, each equally likely.
fn draw_start((first, last): (Span, Span), random: &mut RandomStream) -> Span {
    let width = (last - first).as_ps();
    let late = (u128::from(random.next_u64()) * u128::from(width)) >> 64;
    first + Span::from_ps(u64::try_from(late).expect("below the width"))
}

fn above_one(text: &str) -> Result<f64, String> {
    let shape = text.parse::<f64>().ok().filter(|shape| shape.is_finite() && *shape > 1.0);
    shape.ok_or_else(|| format!("'{text}' is not a number above 1, below which there is no mean"))
}

fn personality(text: &str) -> Result<Personality, String> {
    match text {
        "linux" => Ok(Personality::linux()),
        "freebsd" => Ok(Personality::freebsd()),
        "plain" => Ok(Personality::plain()),
        other => {
            Err(format!("there is no personality '{other}'; there are: linux, freebsd, plain"))
        }
    }
}

/// A differentiated services code point.
fn code_point(text: &str) -> Result<u8, String> {
    whole::<u8>(text)
        .ok()
        .filter(|dscp| *dscp < 64)
        .ok_or_else(|| format!("'{text}' is not a code point: 0 to 63"))
}
