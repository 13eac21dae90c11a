//! What a simulation found: of each connection, source and link, and whether the laws held.

use plumb_base::stats::sparse_histogram::SparseHistogram;
use plumb_base::time::Span;
use plumb_link::report::DirectionReport;

use crate::flow::{FlowCounts, FlowSample};
use crate::processor::ProcessorCounts;
use crate::source::SourceCounts;

/// A finished simulation. Figures are of the time after the warm-up.
#[derive(Clone, Debug)]
pub struct SimulationReport {
    /// How long it ran, warm-up included.
    pub elapsed: Span,
    /// Of it, the warm-up.
    pub warmup: Span,
    /// Events in all.
    pub events: u64,
    /// Packets that crossed a link, in all.
    pub packet_hops: u64,
    /// Connections, group by group.
    pub flows: Vec<FlowReport>,
    /// Sources.
    pub sources: Vec<SourceReport>,
    /// Processors of hosts.
    pub processors: Vec<ProcessorReport>,
    /// Both directions of each link.
    pub links: Vec<LinkReport>,
    /// Packets for which a router had no route, or a host nobody who wants them.
    pub misdirected: u64,
    /// Laws that do not hold: none, or there is a fault in plumb.
    pub violations: Vec<String>,
}

/// One connection.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// The name of its group.
    pub group: String,
    /// The sending host.
    pub from: String,
    /// The receiving one.
    pub to: String,
    /// Its congestion control.
    pub congestion: String,
    /// When it was opened.
    pub start: Span,
    /// When everything had arrived, or it was aborted.
    pub ended: Option<Span>,
    /// Why it failed.
    pub error: Option<String>,
    /// How long it could send after the warm-up.
    pub active: Span,
    /// What was counted then.
    pub counts: FlowCounts,
    /// Mean of the smoothed round trip at each sample.
    pub rtt_mean: Option<Span>,
    /// Least round trip, warm-up included.
    pub rtt_min: Option<Span>,
    /// Nanoseconds from when a write was due until it had been read, where the bytes of timed writes end.
    pub delays: Option<SparseHistogram>,
    /// Whether another connection passes on its bytes.
    pub is_passed_on: bool,
    /// Over time, where it was kept.
    pub series: Vec<FlowSample>,
}

impl FlowReport {
    /// Bits a second that the receiver got in sequence.
    pub fn goodput(&self) -> f64 {
        self.counts.received.bytes as f64 * 8.0 / self.active.as_secs_f64().max(1e-12)
    }

    /// The share of segments that were retransmissions.
    pub fn retransmission_share(&self) -> f64 {
        self.counts.sent.retransmits as f64 / self.counts.sent.segments.max(1) as f64
    }
}

/// One source and its sink, or all of a name where there are more than a thousand.
#[derive(Clone, Debug)]
pub struct SourceReport {
    /// Its name.
    pub name: String,
    /// The sending host.
    pub from: String,
    /// The receiving one.
    pub to: String,
    /// How many sources it is of; hosts are those of the first.
    pub count: u64,
    /// How long it could send after the warm-up; of several the longest.
    pub active: Span,
    /// What was counted then, of all of them.
    pub counts: SourceCounts,
    /// One-way delays, in nanoseconds.
    pub delays: SparseHistogram,
}

impl SourceReport {
    /// Another source of the same name.
    pub(crate) fn add(&mut self, active: Span, counts: SourceCounts) {
        self.count += 1;
        self.active = self.active.max(active);
        self.counts.sent += counts.sent;
        self.counts.sent_bytes += counts.sent_bytes;
        self.counts.received += counts.received;
        self.counts.received_bytes += counts.received_bytes;
    }
}

/// The processor of a host, over the whole simulation.
#[derive(Clone, Debug)]
pub struct ProcessorReport {
    /// Its host.
    pub host: String,
    /// What it did.
    pub counts: ProcessorCounts,
    /// The share of time that it was busy.
    pub busy_share: f64,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// As it is at the end; its distributions are those after the warm-up.
    pub whole: DirectionReport,
    /// Frames that entered after the warm-up, left, were discarded, and were marked.
    pub entered: u64,
    /// See `entered`.
    pub left: u64,
    /// Bytes that left after the warm-up, overhead included.
    pub left_bytes: u64,
    /// See `entered`.
    pub discarded: u64,
    /// See `entered`.
    pub marked: u64,
    /// The share of its rate that was used after the warm-up; `None` where it has none.
    pub utilization: Option<f64>,
    /// Frames that waited on average after the warm-up.
    pub queue_mean: f64,
    /// Bytes of memory that its queue takes at the end to tell flows apart, beside what waits.
    pub flow_state: usize,
    /// Frames that waited at each sample, where they are kept.
    pub queue_series: Vec<(Span, u64)>,
}

impl LinkReport {
    /// What happened between two reports of a link.
    pub fn between(before: &DirectionReport, whole: DirectionReport) -> Self {
        let offered = whole.offered_bits - before.offered_bits;
        let length = |report: &DirectionReport| report.mean_queue() * report.elapsed.as_secs_f64();
        let span = whole.elapsed.saturating_sub(before.elapsed).as_secs_f64();
        Self {
            entered: whole.entered.frames - before.entered.frames,
            left: whole.left.frames - before.left.frames,
            left_bytes: whole.left.bytes - before.left.bytes,
            discarded: whole.discards.total().0 - before.discards.total().0,
            marked: whole.marked - before.marked,
            utilization: (offered > 0.0)
                .then(|| ((whole.used_bits - before.used_bits) / offered).min(1.0)),
            queue_mean: (length(&whole) - length(before)) / span.max(1e-12),
            flow_state: 0,
            queue_series: Vec::new(),
            whole,
        }
    }

    /// The share of frames that were discarded.
    pub fn loss(&self) -> f64 {
        self.discarded as f64 / self.entered.max(1) as f64
    }
}

impl SimulationReport {
    /// Jain's index of the goodputs of all connections: 1 when they are equal (Jain, Chiu and Hawe 1984); `None` of fewer than two.
    /// Of those that pass on each other's bytes the last counts, here and in [`SimulationReport::goodput`].
    pub fn fairness(&self) -> Option<f64> {
        (self.goodputs().count() > 1).then(|| jain(self.goodputs()))
    }

    /// Goodput of all connections together, in bits a second.
    pub fn goodput(&self) -> f64 {
        self.goodputs().sum()
    }

    fn goodputs(&self) -> impl Iterator<Item = f64> + Clone {
        self.flows.iter().filter(|flow| !flow.is_passed_on).map(FlowReport::goodput)
    }

    /// The direction of a link of this name: `router1 > router2`.
    pub fn link(&self, name: &str) -> Option<&LinkReport> {
        self.links.iter().find(|link| link.whole.name == name)
    }
}

/// Jain's index of fairness.
pub fn jain(shares: impl Iterator<Item = f64>) -> f64 {
    let (count, sum, squares) = shares.fold((0.0, 0.0, 0.0), |(count, sum, squares), share| {
        (count + 1.0, sum + share, squares + share * share)
    });
    if squares > 0.0 { sum * sum / (count * squares) } else { 1.0 }
}
