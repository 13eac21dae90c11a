//! What `plumb net` measured as runs of the store: cells, launches and blocks, by tables of what is kept.
//!
//! Between hosts a round is a launch, and each phase of it gives one block to each of its cells. Of a page, all visits
//! of a mode are one block of one launch, since they are made in turn with those of the others.

use std::collections::BTreeMap;

use plumb_analysis::document::host_notes;
use plumb_base::time::Span;
use plumb_base::units::Unit;
use plumb_report::terminal::{self, TerminalStyle};
use plumb_result::CpuUsage;
use plumb_result::http::{self, HttpDocument, HttpEnding, HttpModeResult, PageLoad};
use plumb_result::net::{
    self, ByteCosts, MtuResult, NetBulkFlow, NetCpu, NetDatagrams, NetDistribution, NetDocument,
    NetEnding, NetInterval, NetPhase, NetProbes, NetRequestResponse, OneWayDelay,
};
use plumb_store::record::{
    Better, BlockUsage, Cell, CellStatus, Factors, LaunchRecord, RunData, RunRecord, RunStatus,
    SampleBlock,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The title of such runs.
pub const TITLE: &str = "net";

/// A document that is kept with its run.
pub trait StoredDocument: Serialize + DeserializeOwned {
    /// The name of its shape.
    const SCHEMA: &'static str;

    /// When what it says was begun, in milliseconds since 1970 UTC.
    fn created_unix_ms(&self) -> i64;

    /// Its field for the id of the run.
    fn run_id(&mut self) -> &mut Option<String>;

    /// It as a run; `None` when nothing was counted.
    fn run(&self, header: NetRunHeader) -> Option<RunData>;

    /// It as a page for people; with `details`, everything that is in it.
    fn page(&self, details: bool, style: TerminalStyle) -> String;
}

/// What identifies a run that is stored.
#[derive(Clone, Debug, Default)]
pub struct NetRunHeader {
    /// Its id.
    pub id: String,
    /// When it began.
    pub created_unix_ms: i64,
    /// The machine and its settings.
    pub provenance: BTreeMap<String, String>,
    /// The command that made it, for whoever wants to do it again.
    pub command: String,
    /// The version of this program.
    pub code_version: String,
}

impl NetRunHeader {
    /// The run itself, with what else is to be said about it.
    fn into_run(self, seed: u64, notes: [(&str, String); 3], problems: &[String]) -> RunRecord {
        let mut notes = BTreeMap::from(notes.map(|(name, note)| (name.to_owned(), note)));
        notes.insert(host_notes::COMMAND.to_owned(), self.command);
        if !problems.is_empty() {
            notes.insert("net.problems".to_owned(), problems.join(" | "));
        }
        RunRecord {
            id: self.id,
            title: TITLE.to_owned(),
            created_unix_ms: self.created_unix_ms,
            // A measurement that was cut short cannot be taken up again: its evidence is of one time.
            status: RunStatus::Complete,
            plan_toml: String::new(),
            seed,
            code_version: self.code_version,
            provenance: self.provenance,
            notes,
        }
    }
}

/// Of a run between hosts the cells that answer what it was measured for: with all of them, some for each of many
/// causes, so few rounds could call none faster or slower.
pub fn keep_answers(data: &mut RunData) {
    const ANSWERS: [(&str, &str); 7] = [
        ("net.tcp", "received"),
        ("net.udp", "received"),
        ("net.udp", "loss"),
        ("net.latency", "round_trip"),
        ("net.exchange", "latency"),
        ("net.exchange", "rate"),
        ("net.http", "page"),
    ];
    if data.run.title != TITLE {
        return;
    }
    let is_answer =
        |cell: &Cell| ANSWERS.contains(&(cell.experiment.as_str(), cell.response.as_str()));
    data.cells.retain(is_answer);
    let kept: Vec<i64> = data.cells.iter().map(|cell| cell.id).collect();
    data.blocks.retain(|block| kept.contains(&block.cell));
}

fn partial() -> CellStatus {
    CellStatus::Done("partial".to_owned())
}

impl StoredDocument for NetDocument {
    const SCHEMA: &'static str = net::SCHEMA;

    fn created_unix_ms(&self) -> i64 {
        self.created_unix_ms
    }

    fn run_id(&mut self) -> &mut Option<String> {
        &mut self.run
    }

    fn run(&self, mut header: NetRunHeader) -> Option<RunData> {
        let mut builder = NetRunBuilder::default();
        if let Some(mtu) = &self.mtu {
            builder.add_search(mtu);
        }
        for phase in &self.phases {
            builder.add_phase(phase);
        }
        if builder.cells.is_empty() {
            return None;
        }
        if self.ended != NetEnding::Complete {
            builder.cells.iter_mut().for_each(|cell| cell.status = partial());
        }
        let rounds = self.phases.iter().map(|phase| phase.round).max().unwrap_or(0);
        let launches = (0..=rounds).map(|round| LaunchRecord {
            id: i64::from(round) + 1,
            round,
            group: format!("host={}", self.asked),
            started_ns: 0,
        });
        let there = [
            ("net.there.kernel", &self.there.kernel),
            ("net.there.processor", &self.there.processor),
            ("net.there.program", &self.there.program),
        ];
        let there = there.map(|(name, value)| (name.to_owned(), value.clone()));
        header.provenance.extend(there);
        let notes = [
            ("net.host", self.asked.clone()),
            ("net.address", self.address.clone()),
            ("net.ended", self.ended.to_string()),
        ];
        Some(RunData {
            run: header.into_run(0, notes, &self.problems),
            cells: builder.cells,
            launches: launches.collect(),
            blocks: builder.blocks,
        })
    }

    fn page(&self, details: bool, style: TerminalStyle) -> String {
        terminal::net::render(self, details, style)
    }
}

/// What a block holds for a metric.
enum Samples {
    Each(Vec<f64>),
    Histogram { n: u64, encoded: Vec<u8> },
}

/// A number of a result that is kept: the cell that it goes to, and how it is come by.
struct Metric<T> {
    experiment: &'static str,
    response: &'static str,
    unit: Unit,
    better: Better,
    samples: fn(&T) -> Option<Samples>,
}

/// A time or a cost.
const fn time<T>(
    experiment: &'static str,
    response: &'static str,
    samples: fn(&T) -> Option<Samples>,
) -> Metric<T> {
    Metric { experiment, response, unit: Unit::Nanoseconds, better: Better::Lower, samples }
}

/// A share of what was sent that was lost.
const fn loss<T>(experiment: &'static str, samples: fn(&T) -> Option<Samples>) -> Metric<T> {
    Metric { experiment, response: "loss", unit: Unit::Share, better: Better::Lower, samples }
}

/// Bytes a second of a round: its mean, which is also what is printed of it.
const fn rate<T>(experiment: &'static str, samples: fn(&T) -> Option<Samples>) -> Metric<T> {
    let (unit, better) = (Unit::BytesPerSecond, Better::Higher);
    Metric { experiment, response: "received", unit, better, samples }
}

#[expect(clippy::unnecessary_wraps, reason = "one of the sources of a metric, which may be absent")]
fn one(value: f64) -> Option<Samples> {
    Some(Samples::Each(vec![value]))
}

/// The mean of a time in which there was an interval that counts.
fn mean(intervals: &[NetInterval], bytes_per_second: f64) -> Option<Samples> {
    intervals.iter().any(|interval| interval.counts).then(|| one(bytes_per_second))?
}

fn all(times: Option<&NetDistribution>) -> Option<Samples> {
    times.map(|times| Samples::Histogram { n: times.n, encoded: times.histogram.clone() })
}

fn median(delays: Option<&OneWayDelay>) -> Option<Samples> {
    delays.and_then(|delays| one(delays.least_ns + delays.above_p50_ns))
}

const MTU: &[Metric<MtuResult>] = &[Metric {
    experiment: "net.mtu",
    response: "longest_packet",
    unit: Unit::Bytes,
    better: Better::Higher,
    // The longest that was seen to arrive before a search was cut is something too.
    samples: |mtu| one(mtu.path_bytes.or(mtu.arrived_bytes)? as f64),
}];
const FLOW: &[Metric<NetBulkFlow>] =
    &[rate("net.tcp", |flow| mean(&flow.intervals, flow.bytes_per_second))];
const DATAGRAMS: &[Metric<NetDatagrams>] = &[
    rate("net.udp", |stream| mean(&stream.intervals, stream.bytes_per_second)),
    loss("net.udp", |stream| one(stream.loss?)),
    time("net.udp", "jitter", |stream| stream.received.and_then(|_| one(stream.jitter_ns))),
    time("net.udp", "one_way", |stream| median(stream.one_way.as_ref())),
];
const DATAGRAM_COSTS: &[Metric<NetDatagrams>] = &[
    time("net.cpu", "cpu.sender.datagram", |stream| one(stream.sender_cpu_ns_per_datagram?)),
    time("net.cpu", "cpu.receiver.datagram", |stream| one(stream.receiver_cpu_ns_per_datagram?)),
];
const CPU_COSTS: &[Metric<ByteCosts>] = &[
    time("net.cpu", "cpu.sender", |costs| one(costs.sender_cpu_ns_per_byte?)),
    time("net.cpu", "cpu.receiver", |costs| one(costs.receiver_cpu_ns_per_byte?)),
];
const SOFTIRQ_COSTS: &[Metric<ByteCosts>] = &[
    time("net.cpu", "softirq.sender", |costs| one(costs.sender_softirq_ns_per_byte?)),
    time("net.cpu", "softirq.receiver", |costs| one(costs.receiver_softirq_ns_per_byte?)),
];
const EXCHANGE: &[Metric<NetRequestResponse>] = &[
    time("net.exchange", "latency", |exchange| all(exchange.latency.as_ref())),
    time("net.exchange", "connect", |exchange| all(exchange.connect.as_ref())),
    Metric {
        experiment: "net.exchange",
        response: "rate",
        unit: Unit::Count,
        better: Better::Higher,
        samples: |exchange| (exchange.answered > 0).then(|| one(exchange.requests_per_second))?,
    },
    time("net.exchange", "cpu.asking", |exchange| one(exchange.asking_cpu_ns_per_request?)),
    time("net.exchange", "cpu.answering", |exchange| one(exchange.answering_cpu_ns_per_request?)),
];
const ROUND_TRIPS: &[Metric<NetProbes>] = &[
    time("net.latency", "round_trip", |probes| all(probes.path.as_ref())),
    time("net.latency", "round_trip.application", |probes| all(probes.application.as_ref())),
];
const ONE_WAY: &[Metric<NetProbes>] = &[
    time("net.latency", "one_way.up", |probes| median(probes.one_way_up.as_ref())),
    time("net.latency", "one_way.down", |probes| median(probes.one_way_down.as_ref())),
];
const PROBE_LOSS: &[Metric<NetProbes>] = &[loss("net.loss", |probes| {
    (probes.sent > 0).then(|| one(probes.lost as f64 / probes.sent as f64))?
})];

/// Cells and blocks as they are found.
#[derive(Default)]
struct NetRunBuilder {
    cells: Vec<Cell>,
    blocks: Vec<SampleBlock>,
}

impl NetRunBuilder {
    fn add_phase(&mut self, phase: &NetPhase) {
        let empty = block(phase);
        for flow in &phase.flows {
            self.add_flow(phase, flow);
        }
        if let Some(exchange) = &phase.exchange {
            let mut factors = Factors::default()
                .with("transport", exchange.transport.name())
                .with("pacing", exchange.pacing.name())
                .with("request", u64::from(exchange.request_bytes))
                .with("response", u64::from(exchange.response_bytes));
            if let Some(per_second) = exchange.per_second {
                factors = factors.with("per_second", u64::from(per_second));
            }
            let mut template = with_counters(&empty, [("lost", exchange.lost)]);
            template.effort.operations = exchange.answered;
            self.add(EXCHANGE, exchange, &factors, &template);
        }
        for stream in &phase.datagrams {
            self.add_datagrams(phase, stream);
        }
        if let Some(probes) = &phase.probes {
            let factors = Factors::default().with("load", phase.name.name());
            let counters = [
                ("lost", probes.lost),
                ("duplicated", probes.duplicated),
                ("reordered", probes.reordered),
            ];
            let counting = with_counters(&empty, counters);
            self.add(ROUND_TRIPS, probes, &factors, &counting);
            self.add(ONE_WAY, probes, &factors, &empty);
            self.add(PROBE_LOSS, probes, &factors, &counting);
        }
    }

    fn add_flow(&mut self, phase: &NetPhase, flow: &NetBulkFlow) {
        if mean(&flow.intervals, flow.bytes_per_second).is_none() {
            return;
        }
        let factors = Factors::default()
            .with("direction", flow.direction.name())
            .with("load", phase.name.name())
            .with("streams", u64::from(flow.streams));
        let counters =
            [("retransmitted_segments", flow.retransmitted_segments), ("bytes", flow.bytes)];
        // Without operations, because the whole process's time is not what these bytes cost: that has cells of its own.
        self.add(FLOW, flow, &factors, &with_counters(&block(phase), counters));
        self.add(CPU_COSTS, &flow.costs, &factors, &block(phase));
        self.add(SOFTIRQ_COSTS, &flow.costs, &factors, &block(phase));
    }

    fn add_datagrams(&mut self, phase: &NetPhase, stream: &NetDatagrams) {
        let asked = plumb_base::units::significant(stream.asked_bytes_per_second * 8.0, 6);
        let factors = Factors::default()
            .with("direction", stream.direction.name())
            .with("load", phase.name.name())
            .with("rate", asked.as_str())
            .with("size", u64::from(stream.datagram_bytes));
        let counters = [
            ("sent", stream.sent.unwrap_or(0)),
            ("received", stream.received.unwrap_or(0)),
            ("reordered", stream.reordered),
            ("duplicated", stream.duplicated),
        ];
        let empty = block(phase);
        self.add(DATAGRAMS, stream, &factors, &with_counters(&empty, counters));
        self.add(CPU_COSTS, &stream.costs, &factors, &empty);
        self.add(DATAGRAM_COSTS, stream, &factors, &empty);
        self.add(SOFTIRQ_COSTS, &stream.costs, &factors, &empty);
    }

    /// The longest packet that arrives, or the longest that was seen to before the search was cut.
    fn add_search(&mut self, mtu: &MtuResult) {
        let ended = if mtu.path_bytes.is_some() { NetEnding::Complete } else { NetEnding::Partial };
        let phase = NetPhase { seconds: mtu.seconds, ended, ..NetPhase::default() };
        let factors = Factors::default().with("direction", "up");
        let counters = [("probes", mtu.probes), ("silent", mtu.silent)];
        self.add(MTU, mtu, &factors, &with_counters(&block(&phase), counters));
        if ended == NetEnding::Partial {
            self.cells.iter_mut().for_each(|cell| cell.status = partial());
        }
    }

    /// Every metric of a table that a result has, as a block like `template`.
    fn add<T>(
        &mut self,
        metrics: &[Metric<T>],
        result: &T,
        factors: &Factors,
        template: &SampleBlock,
    ) {
        for metric in metrics {
            let Some(samples) = (metric.samples)(result) else { continue };
            let mut block = SampleBlock { cell: self.cell(metric, factors), ..template.clone() };
            match samples {
                Samples::Each(samples) => {
                    (block.n, block.samples) = (samples.len() as u64, samples);
                }
                Samples::Histogram { n, encoded } => (block.n, block.histogram) = (n, encoded),
            }
            self.blocks.push(block);
        }
    }

    /// The cell of a metric, which is made where there is none yet.
    fn cell<T>(&mut self, metric: &Metric<T>, factors: &Factors) -> i64 {
        let Metric { experiment, response, unit, better, .. } = *metric;
        let is_it = |cell: &&Cell| {
            cell.experiment == experiment && cell.response == response && cell.factors == *factors
        };
        if let Some(cell) = self.cells.iter().find(is_it) {
            return cell.id;
        }
        let id = next_id(&self.cells);
        self.cells.push(Cell {
            id,
            experiment: experiment.to_owned(),
            factors: factors.clone(),
            response: response.to_owned(),
            unit: unit.name().to_owned(),
            better,
            status: CellStatus::Done("launches".to_owned()),
            imported: None,
        });
        id
    }
}

fn next_id(cells: &[Cell]) -> i64 {
    i64::try_from(cells.len()).unwrap_or(i64::MAX - 1) + 1
}

fn with_counters<const N: usize>(block: &SampleBlock, counters: [(&str, u64); N]) -> SampleBlock {
    let counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
    SampleBlock { counters, ..block.clone() }
}

/// A block of a phase, which holds nothing yet.
fn block(phase: &NetPhase) -> SampleBlock {
    let ns = |seconds: f64| Span::from_secs_f64(seconds).as_ns();
    let side = |cpu: Option<&NetCpu>| {
        cpu.map_or_else(CpuUsage::default, |cpu| CpuUsage {
            process_ns: ns(cpu.process_seconds),
            user_ns: ns(cpu.user_seconds),
            system_ns: ns(cpu.system_seconds),
            ..CpuUsage::default()
        })
    };
    let host = phase.cpu_here.clone().unwrap_or_default();
    SampleBlock {
        cell: 0,
        launch: i64::from(phase.round) + 1,
        pass: 0,
        batch: 1,
        n: 0,
        warmup: 0,
        samples: Vec::new(),
        histogram: Vec::new(),
        histogram_scale: 1.0,
        n_eff: None,
        effort: BlockUsage {
            started_ns: None,
            local: side(phase.cpu_here.as_ref()),
            peer: side(phase.cpu_there.as_ref()),
            softirq_ns: ns(host.host_softirq_seconds),
            steal_ns: ns(host.host_steal_seconds),
            canary_ns: 0.0,
            wall_ns: ns(phase.seconds),
            operations: 0,
        },
        counters: BTreeMap::new(),
        flags: partial_flags(phase.ended != NetEnding::Complete),
    }
}

fn partial_flags(is_partial: bool) -> Vec<String> {
    if is_partial { vec!["partial".to_owned()] } else { Vec::new() }
}

type VisitTime = fn(&PageLoad) -> u64;

/// Times recorded for every visit of a page, in nanoseconds.
const VISIT: [(&str, VisitTime); 4] = [
    ("page", |visit| visit.total_ns),
    ("page-ready", |visit| visit.connected_ns),
    ("page-itself", |visit| visit.page_ns),
    ("client-cpu", |visit| visit.cpu_ns),
];

impl StoredDocument for HttpDocument {
    const SCHEMA: &'static str = http::SCHEMA;

    fn created_unix_ms(&self) -> i64 {
        self.created_unix_ms
    }

    fn run_id(&mut self) -> &mut Option<String> {
        &mut self.run
    }

    fn run(&self, header: NetRunHeader) -> Option<RunData> {
        if self.ways.iter().all(|way| way.visits.is_empty()) {
            return None;
        }
        let notes = [
            ("net.host", self.url.clone()),
            ("net.address", self.address.clone()),
            ("net.ended", self.ended.to_string()),
        ];
        let failed = |way: &HttpModeResult| Some(format!("{}: {}", way.way, way.error.as_ref()?));
        let problems: Vec<String> = self.ways.iter().filter_map(failed).collect();
        let (mut cells, mut blocks) = (Vec::new(), Vec::new());
        for way in &self.ways {
            let status = match &way.error {
                Some(error) if way.visits.is_empty() => CellStatus::Failed(error.clone()),
                None if self.ended == HttpEnding::Complete => CellStatus::Done("visits".to_owned()),
                _ => partial(),
            };
            for (response, of) in VISIT {
                let id = next_id(&cells);
                if !way.visits.is_empty() {
                    blocks.push(visits_block(id, way, of, status == partial()));
                }
                cells.push(Cell {
                    id,
                    experiment: "net.http".to_owned(),
                    factors: Factors::default()
                        .with("way", way.way.name())
                        .with("encryption", if way.is_encrypted { "tls" } else { "none" }),
                    response: response.to_owned(),
                    unit: Unit::Nanoseconds.name().to_owned(),
                    better: Better::Lower,
                    status: status.clone(),
                    imported: None,
                });
            }
        }
        let group = format!("page={}", self.url);
        Some(RunData {
            run: header.into_run(self.seed, notes, &problems),
            cells,
            launches: vec![LaunchRecord { id: 1, round: 0, group, started_ns: 0 }],
            blocks,
        })
    }

    fn page(&self, _details: bool, style: TerminalStyle) -> String {
        terminal::http::render(self, style)
    }
}

/// All visits of a mode as a block of something that is known about each.
fn visits_block(
    cell: i64,
    way: &HttpModeResult,
    of: fn(&PageLoad) -> u64,
    is_partial: bool,
) -> SampleBlock {
    let sum = |of: fn(&PageLoad) -> u64| way.visits.iter().map(of).fold(0, u64::saturating_add);
    let visits = way.visits.len() as u64;
    SampleBlock {
        cell,
        launch: 1,
        pass: 0,
        batch: 1,
        n: visits,
        // The visit that comes before those that count.
        warmup: 1,
        samples: way.visits.iter().map(|visit| of(visit) as f64).collect(),
        histogram: Vec::new(),
        histogram_scale: 1.0,
        n_eff: None,
        effort: BlockUsage {
            local: CpuUsage { process_ns: sum(|visit| visit.cpu_ns), ..CpuUsage::default() },
            wall_ns: sum(|visit| visit.total_ns),
            operations: visits,
            ..BlockUsage::default()
        },
        counters: BTreeMap::from([
            ("bytes".to_owned(), sum(|visit| visit.bytes)),
            ("connections".to_owned(), sum(|visit| u64::from(visit.connections))),
            ("objects".to_owned(), sum(|visit| u64::from(visit.objects))),
        ]),
        flags: partial_flags(is_partial),
    }
}

#[cfg(test)]
mod tests {
    use plumb_result::http::HttpFetchMode;
    use plumb_result::net::PhaseName;

    use super::*;

    /// The samples of every cell, by its experiment and response.
    fn stored(builder: &NetRunBuilder) -> Vec<(&str, &str, &[f64])> {
        let both = builder.cells.iter().zip(&builder.blocks);
        both.map(|(cell, block)| {
            (cell.experiment.as_str(), cell.response.as_str(), block.samples.as_slice())
        })
        .collect()
    }

    #[test]
    fn a_search_that_was_cut_is_a_partial_cell_of_what_arrived() {
        let stored = |mtu: MtuResult| {
            let mut builder = NetRunBuilder::default();
            builder.add_search(&mtu);
            let block = builder.blocks.pop()?;
            let status = builder.cells.pop()?.status;
            Some((status, block.samples, block.flags, block.effort.wall_ns))
        };
        let cut = MtuResult { arrived_bytes: Some(1_280), seconds: 1.5, ..MtuResult::default() };
        let flags = vec!["partial".to_owned()];
        let wanted = (partial(), vec![1_280.0], flags, 1_500_000_000);
        assert_eq!(stored(cut.clone()), Some(wanted));
        let whole = stored(MtuResult { path_bytes: Some(1_500), ..cut }).expect("a cell");
        assert_eq!((whole.1, whole.2), (vec![1_500.0], Vec::new()));
        assert_eq!(stored(MtuResult::default()), None);
    }

    #[test]
    fn the_mean_of_a_round_is_stored_with_the_costs() {
        let interval = |counts, bytes_per_second| NetInterval {
            counts,
            bytes_per_second,
            ..NetInterval::default()
        };
        let intervals = vec![interval(true, 1e6), interval(true, 2e6), interval(false, 0.0)];
        let costs = ByteCosts {
            sender_cpu_ns_per_byte: Some(2.5),
            receiver_softirq_ns_per_byte: Some(0.5),
            ..ByteCosts::default()
        };
        let cpu_here = Some(NetCpu { process_seconds: 3.0, ..NetCpu::default() });
        let phase = NetPhase { name: PhaseName::Both, cpu_here, ..NetPhase::default() };
        let mut builder = NetRunBuilder::default();
        let flow = NetBulkFlow {
            intervals: intervals.clone(),
            bytes_per_second: 1.5e6,
            costs,
            ..NetBulkFlow::default()
        };
        builder.add_flow(&phase, &flow);
        let wanted: [(_, _, &[f64]); 3] = [
            ("net.tcp", "received", &[1.5e6]),
            ("net.cpu", "cpu.sender", &[2.5]),
            ("net.cpu", "softirq.receiver", &[0.5]),
        ];
        assert_eq!(stored(&builder), wanted);
        // The process's three seconds are no price of a byte.
        assert!(builder.blocks.iter().all(|block| block.effort.operations == 0));
        let mut builder = NetRunBuilder::default();
        let stream = NetDatagrams {
            received: Some(100),
            bytes_per_second: 1.5e6,
            intervals,
            costs,
            sender_cpu_ns_per_datagram: Some(2_500.0),
            ..NetDatagrams::default()
        };
        builder.add_datagrams(&phase, &stream);
        let wanted: [(_, _, &[f64]); 5] = [
            ("net.udp", "received", &[1.5e6]),
            ("net.udp", "jitter", &[0.0]),
            ("net.cpu", "cpu.sender", &[2.5]),
            ("net.cpu", "cpu.sender.datagram", &[2_500.0]),
            ("net.cpu", "softirq.receiver", &[0.5]),
        ];
        assert_eq!(stored(&builder), wanted);
    }

    #[test]
    fn a_comparison_is_about_rates_and_round_trips() {
        let interval = NetInterval { counts: true, ..NetInterval::default() };
        let costs = ByteCosts { sender_cpu_ns_per_byte: Some(2.5), ..ByteCosts::default() };
        let flow = NetBulkFlow { intervals: vec![interval], costs, ..NetBulkFlow::default() };
        let phase = NetPhase { name: PhaseName::Down, flows: vec![flow], ..NetPhase::default() };
        let document = NetDocument { phases: vec![phase], ..NetDocument::default() };
        let mut data = document.run(NetRunHeader::default()).expect("a rate");
        assert_eq!(data.cells.len(), 2);
        keep_answers(&mut data);
        assert_eq!((data.cells.len(), data.blocks.len()), (1, 1));
        assert_eq!(data.cells[0].experiment, "net.tcp");
    }

    fn way(way: HttpFetchMode, totals: &[u64], error: Option<&str>) -> HttpModeResult {
        let visit = |&total_ns: &u64| PageLoad { total_ns, cpu_ns: 7, ..PageLoad::default() };
        HttpModeResult {
            way,
            visits: totals.iter().map(visit).collect(),
            error: error.map(str::to_owned),
            ..HttpModeResult::default()
        }
    }

    #[test]
    fn a_mode_that_broke_keeps_its_visits_or_its_reason() {
        let ways = vec![
            way(HttpFetchMode::KeepAlive, &[3, 5], None),
            way(HttpFetchMode::Http2, &[9], Some("the server hung up")),
            way(HttpFetchMode::Http3, &[], Some("no answer")),
        ];
        let document = HttpDocument { ways, ..HttpDocument::default() };
        let data = document.run(NetRunHeader::default()).expect("there are visits");
        assert_eq!((data.cells.len(), data.blocks.len()), (12, 8));
        let of = |way: &str| {
            let is_it =
                |cell: &&Cell| cell.factors.text("way") == Some(way) && cell.response == "page";
            let cell = data.cells.iter().find(is_it).expect("a cell each");
            (cell.status.clone(), data.blocks.iter().find(|block| block.cell == cell.id))
        };
        let (status, block) = of("keep-alive");
        assert_eq!(status, CellStatus::Done("visits".to_owned()));
        let block = block.expect("visits");
        assert_eq!((&block.samples, block.n), (&vec![3.0, 5.0], 2));
        assert_eq!((block.effort.wall_ns, block.effort.local.process_ns), (8, 14));
        let (status, block) = of("http2");
        assert_eq!((status, block.expect("a visit").flags.len()), (partial(), 1));
        assert_eq!(of("http3"), (CellStatus::Failed("no answer".to_owned()), None));
        assert!(data.run.notes["net.problems"].contains("http3: no answer"));
    }

    #[test]
    fn interrupted_page_loads_are_partial_and_none_are_no_run() {
        let ended = HttpEnding::Interrupted;
        let nothing = vec![way(HttpFetchMode::Http2, &[], Some("no"))];
        let mut document = HttpDocument { ended, ways: nothing, ..HttpDocument::default() };
        assert_eq!(document.run(NetRunHeader::default()), None);
        document.ways = vec![way(HttpFetchMode::Http2, &[4], None)];
        let data = document.run(NetRunHeader::default()).expect("a visit");
        assert!(data.blocks.iter().all(|block| block.flags == ["partial"]), "{data:?}");
    }
}
