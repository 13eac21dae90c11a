//! The document of a simulation; and simulations as a run of the store: a cell for each group of connections, source and
//! busy link at each point of the sweep, every replication a launch.

use std::collections::BTreeMap;

use plumb_analysis::document::sim::{
    SCHEMA, SimDocument, SimFlow, SimFlowSample, SimLink, SimProcessor, SimRun, SimSource,
};
use plumb_base::time::Span;
use plumb_base::units::Unit;
use plumb_harness::environment;
use plumb_harness::program_task::SIMULATED;
use plumb_link::frame::DiscardReason;
use plumb_sim::report::{FlowReport, LinkReport, ProcessorReport, SimulationReport, SourceReport};
use plumb_store::record::{
    Better, BlockUsage, Cell, CellStatus, Factors, LaunchRecord, RunData, RunRecord, RunStatus,
    SampleBlock,
};
use plumb_store::sqlite::StoreMode;

use crate::VERSION;
use crate::cli::output::CliOutput;
use crate::cli::{GlobalOptions, store};
use crate::problem::Problem;

/// A link is stored where so much of its rate was used, or a packet was discarded on it.
const BUSY_MIN: f64 = 0.5;

/// Stores simulations as a run, with the whole document as its evidence; the run's id.
///
/// # Errors
/// The store's.
pub fn store(
    global: &GlobalOptions,
    output: &CliOutput,
    document: &SimDocument,
) -> Result<(), Problem> {
    let mut store = store::open(global, StoreMode::Write)?;
    let random = plumb_clock::entropy().map_err(|error| {
        Problem::failure("cannot read random bits from /dev/urandom").because(error)
    })?;
    let created_unix_ms = plumb_clock::unix_ms();
    let mut data = run_data(document);
    data.run.created_unix_ms = created_unix_ms;
    data.run.id = store.new_run_id(&data.run.title, created_unix_ms, random)?;
    data.run.provenance = environment::capture();
    store.insert(&data)?;
    let json = serde_json::to_string(document)
        .map_err(|error| Problem::failure("cannot write the evidence as JSON").because(error))?;
    store.put_attachment(&data.run.id, SCHEMA, &json)?;
    output.note(&format!("stored as {}", data.run.id));
    Ok(())
}

fn run_data(document: &SimDocument) -> RunData {
    let notes = [("sim.file", &document.file), ("sim.file_sha256", &document.file_sha256)];
    let mut data = RunData {
        run: RunRecord {
            id: String::new(),
            title: "sim".to_owned(),
            created_unix_ms: 0,
            status: RunStatus::Complete,
            plan_toml: String::new(),
            seed: document.runs.first().map_or(0, |run| run.seed),
            code_version: VERSION.to_owned(),
            provenance: BTreeMap::new(),
            notes: notes.map(|(name, fact)| (name.to_owned(), fact.clone())).into(),
        },
        cells: Vec::new(),
        launches: Vec::new(),
        blocks: Vec::new(),
    };
    let mut ids = BTreeMap::new();
    for (launch, run) in (1..).zip(&document.runs) {
        let point = point(run);
        data.launches.push(LaunchRecord {
            id: launch,
            round: u32::try_from(run.replication + 1).unwrap_or(u32::MAX),
            group: point.to_string(),
            started_ns: 0,
        });
        for figure in figures(run, &point) {
            let next = i64::try_from(ids.len()).expect("few cells") + 1;
            let cell = *ids.entry(figure.cell.key()).or_insert(next);
            if cell == next {
                data.cells.push(Cell { id: cell, ..figure.cell });
            }
            data.blocks.push(block(cell, launch, figure.value));
        }
    }
    data
}

/// The swept variables of a simulation.
fn point(run: &SimRun) -> Factors {
    let set = |factors: Factors, (name, value): (&String, &String)| match value.parse::<u64>() {
        Ok(number) => factors.with(name, number),
        Err(_) => factors.with(name, value.as_str()),
    };
    run.variables.iter().fold(Factors::default(), set)
}

/// One value of one simulation.
struct SimFigure {
    cell: Cell,
    value: f64,
}

impl SimFigure {
    fn new(experiment: &str, factors: Factors, response: &str, unit: Unit, value: f64) -> Self {
        let is_cost = unit == Unit::Nanoseconds || matches!(response, "loss" | "retransmits");
        let cell = Cell {
            id: 0,
            experiment: experiment.to_owned(),
            factors,
            response: response.to_owned(),
            unit: unit.name().to_owned(),
            better: if is_cost { Better::Lower } else { Better::Higher },
            status: CellStatus::Done("simulated".to_owned()),
            imported: None,
        };
        Self { cell, value }
    }
}

fn figures(run: &SimRun, point: &Factors) -> Vec<SimFigure> {
    let mut found = Vec::new();
    let mut groups: BTreeMap<&str, Vec<&SimFlow>> = BTreeMap::new();
    for flow in &run.flows {
        groups.entry(&flow.name).or_default().push(flow);
    }
    for (name, flows) in groups {
        found.extend(flow_figures(&flows, &point.clone().with("flows", name)));
    }
    let mut by_name: BTreeMap<&str, Vec<&SimSource>> = BTreeMap::new();
    for source in &run.sources {
        by_name.entry(&source.name).or_default().push(source);
    }
    for (name, sources) in by_name {
        found.extend(source_figures(&sources, &point.clone().with("source", name)));
    }
    let mut parallel: BTreeMap<&str, u32> = BTreeMap::new();
    for link in &run.links {
        let number = parallel.entry(&link.name).or_default();
        *number += 1;
        let name = match *number {
            1 => link.name.clone(),
            number => format!("{} #{number}", link.name),
        };
        if link.discarded > 0 || link.utilisation.is_some_and(|used| used >= BUSY_MIN) {
            found.extend(link_figures(link, &point.clone().with("link", name.as_str())));
        }
    }
    if let Some(fairness) = run.fairness {
        found.push(SimFigure::new("sim.run", point.clone(), "fairness", Unit::Share, fairness));
    }
    found
}

/// Goodput of a group of connections together, the share of segments that were retransmissions, and the mean of
/// their round trips.
fn flow_figures(flows: &[&SimFlow], factors: &Factors) -> Vec<SimFigure> {
    let figure =
        |response, unit, value| SimFigure::new("sim.flows", factors.clone(), response, unit, value);
    let goodput: f64 = flows.iter().map(|flow| flow.goodput / 8.0).sum();
    let mut found = vec![figure("goodput", Unit::BytesPerSecond, goodput)];
    let segments: u64 = flows.iter().map(|flow| flow.segments).sum();
    if segments > 0 {
        let retransmits: u64 = flows.iter().map(|flow| flow.retransmits).sum();
        let share = retransmits as f64 / segments as f64;
        found.push(figure("retransmits", Unit::Share, share));
    }
    let rtts: Vec<f64> = flows.iter().filter_map(|flow| flow.rtt_ms).collect();
    if !rtts.is_empty() {
        let mean_ms = rtts.iter().sum::<f64>() / rtts.len() as f64;
        found.push(figure("rtt", Unit::Nanoseconds, mean_ms * 1e6));
    }
    found
}

/// Goodput of the sources of a name together, and the median delay of one that is alone: medians have no mean.
fn source_figures(sources: &[&SimSource], factors: &Factors) -> Vec<SimFigure> {
    let figure = |response, unit, value| {
        SimFigure::new("sim.sources", factors.clone(), response, unit, value)
    };
    let goodput: f64 = sources.iter().map(|source| source.received / 8.0).sum();
    let mut found = vec![figure("goodput", Unit::BytesPerSecond, goodput)];
    if let [source] = sources
        && source.packets_received > 0
    {
        found.push(figure("delay", Unit::Nanoseconds, source.delay_ms_p50 * 1e6));
    }
    found
}

fn link_figures(link: &SimLink, factors: &Factors) -> Vec<SimFigure> {
    let figure =
        |response, unit, value| SimFigure::new("sim.links", factors.clone(), response, unit, value);
    let mut found = vec![
        figure("loss", Unit::Share, link.loss),
        figure("wait", Unit::Nanoseconds, link.wait_ms_p50 * 1e6),
    ];
    found.extend(link.utilisation.map(|used| figure("utilisation", Unit::Share, used)));
    found
}

fn block(cell: i64, launch: i64, value: f64) -> SampleBlock {
    SampleBlock {
        cell,
        launch,
        pass: 0,
        batch: 1,
        n: 1,
        warmup: 0,
        samples: vec![value],
        histogram: Vec::new(),
        histogram_scale: 1.0,
        n_eff: None,
        effort: BlockUsage::default(),
        counters: BTreeMap::new(),
        flags: vec![SIMULATED.to_owned()],
    }
}

/// What a simulation found; not what it took.
pub fn run_document(report: &SimulationReport, title: String, seed: u64) -> SimRun {
    SimRun {
        title,
        seed,
        seconds: report.elapsed.as_secs_f64(),
        warmup_seconds: report.warmup.as_secs_f64(),
        events: report.events,
        packet_hops: report.packet_hops,
        goodput: report.goodput(),
        fairness: report.fairness(),
        flows: report.flows.iter().map(flow_document).collect(),
        sources: report.sources.iter().map(source_document).collect(),
        processors: report.processors.iter().map(processor_document).collect(),
        links: report.links.iter().map(link_document).collect(),
        misdirected: report.misdirected,
        violations: report.violations.clone(),
        ..SimRun::default()
    }
}

fn flow_document(report: &FlowReport) -> SimFlow {
    let ms = |span: Option<Span>| span.map(milliseconds);
    let sample = |sample: &plumb_sim::flow::FlowSample| SimFlowSample {
        at: sample.at.as_secs_f64(),
        cwnd: sample.cwnd,
        flight: sample.flight,
        rtt_ms: ms(sample.srtt),
        received_bytes: sample.received,
    };
    let (sent, received) = (&report.counts.sent, &report.counts.received);
    let delay = |share| report.delays.as_ref().map(|all| all.quantile(share) as f64 / 1e6);
    SimFlow {
        name: report.group.clone(),
        from: report.from.clone(),
        to: report.to.clone(),
        congestion: report.congestion.clone(),
        start_seconds: report.start.as_secs_f64(),
        end_seconds: report.ended.map(Span::as_secs_f64),
        error: report.error.clone(),
        goodput: report.goodput(),
        received_bytes: received.bytes,
        segments: sent.segments,
        retransmits: sent.retransmits,
        timeouts: sent.timeouts,
        recoveries: sent.recoveries,
        marks: sent.marks,
        rtt_ms: ms(report.rtt_mean),
        rtt_ms_min: ms(report.rtt_min),
        delay_ms_p50: delay(0.5),
        delay_ms_p99: delay(0.99),
        series: report.series.iter().map(sample).collect(),
    }
}

fn source_document(report: &SourceReport) -> SimSource {
    let seconds = report.active.as_secs_f64().max(1e-12);
    let delay = |share: f64| report.delays.quantile(share) as f64 / 1e6;
    SimSource {
        name: report.name.clone(),
        from: report.from.clone(),
        to: report.to.clone(),
        count: report.count,
        sent: report.counts.sent_bytes as f64 * 8.0 / seconds,
        received: report.counts.received_bytes as f64 * 8.0 / seconds,
        packets_sent: report.counts.sent,
        packets_received: report.counts.received,
        delay_ms_p50: delay(0.5),
        delay_ms_p99: delay(0.99),
        delay_ms_max: report.delays.max() as f64 / 1e6,
    }
}

fn processor_document(report: &ProcessorReport) -> SimProcessor {
    let counts = report.counts;
    SimProcessor {
        host: report.host.clone(),
        busy: report.busy_share,
        interrupts: counts.interrupts,
        received: counts.received,
        sent: counts.sent,
        dropped: counts.dropped,
    }
}

fn link_document(report: &LinkReport) -> SimLink {
    let whole = &report.whole;
    let discards = DiscardReason::ALL.into_iter().filter_map(|reason| {
        let (frames, _) = whole.discards.of(reason);
        (frames > 0).then(|| (reason.name().to_owned(), frames))
    });
    let waited = |share: f64| whole.sojourns.quantile(share) as f64 / 1e6;
    SimLink {
        name: whole.name.clone(),
        asked: whole.text.clone(),
        utilisation: report.utilization,
        packets_in: report.entered,
        packets_out: report.left,
        bytes_out: report.left_bytes,
        discarded: report.discarded,
        discards: discards.collect(),
        loss: report.loss(),
        marked: report.marked,
        queue_mean: report.queue_mean,
        queue_max: whole.queue_lengths.max(),
        wait_ms_p50: waited(0.5),
        wait_ms_p99: waited(0.99),
        queue: report.queue_series.iter().map(|(at, frames)| (at.as_secs_f64(), *frames)).collect(),
    }
}

fn milliseconds(span: Span) -> f64 {
    span.as_ps() as f64 / 1e9
}
