//! A measurement between two hosts as a run of the store: cells, launches and blocks.
//!
//! A round is a launch; each phase of it gives one block to each of its cells. Left out: writing it.

use std::collections::BTreeMap;

use plumb_analysis::document::host_notes;
use plumb_analysis::document::net::{
    NetBulkFlow, NetCpu, NetDatagrams, NetDocument, NetOneWayDelay, NetPathMtu, NetPhase,
};
use plumb_base::time::Span;
use plumb_base::units::Unit;
use plumb_store::record::{
    Better, BlockUsage, Cell, CellStatus, Factors, LaunchRecord, RunData, RunRecord, RunStatus,
    SampleBlock, SideCpu,
};

use super::exchange::{self, StoredValue};
use super::phase_summary::probes_report;
use super::test_run::{MeasuredPhase, NetMeasurement};

/// What identifies a run that is stored.
#[derive(Clone, Debug)]
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

/// The title of such runs.
pub const TITLE: &str = "net";

impl NetRunHeader {
    /// The run itself, with what else is to be said of it.
    pub fn into_run(self, notes: BTreeMap<String, String>, seed: u64) -> RunRecord {
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

/// All of a measurement as a run; None when nothing was measured.
pub fn run(
    mut header: NetRunHeader,
    document: &NetDocument,
    measured: &NetMeasurement,
) -> Option<RunData> {
    let mut builder = NetRunBuilder::default();
    if let (Some(mtu), Some(search)) = (&document.mtu, &measured.search) {
        builder.add_search(mtu, search.duration);
    }
    for (said, phase) in document.phases.iter().zip(&measured.phases) {
        builder.add(said, phase);
    }
    if builder.cells.is_empty() {
        return None;
    }
    let rounds = document.phases.iter().map(|phase| phase.round).max().unwrap_or(0);
    let launches = (0..=rounds).map(|round| LaunchRecord {
        id: i64::from(round) + 1,
        round,
        group: format!("host={}", document.asked),
        started_ns: 0,
    });
    let provenance = &mut header.provenance;
    provenance.insert("net.there.kernel".to_owned(), document.there.kernel.clone());
    provenance.insert("net.there.processor".to_owned(), document.there.processor.clone());
    provenance.insert("net.there.program".to_owned(), document.there.program.clone());
    let mut notes = BTreeMap::from([
        ("net.host".to_owned(), document.asked.clone()),
        ("net.address".to_owned(), document.address.clone()),
        (host_notes::COMMAND.to_owned(), header.command.clone()),
        ("net.ended".to_owned(), document.ended.clone()),
    ]);
    if !document.problems.is_empty() {
        notes.insert("net.problems".to_owned(), document.problems.join(" | "));
    }
    let is_whole = document.ended == "complete";
    Some(RunData {
        run: header.into_run(notes, 0),
        cells: builder
            .cells
            .into_iter()
            .map(|mut cell| {
                if !is_whole {
                    cell.status = CellStatus::Done("partial".to_owned());
                }
                cell
            })
            .collect(),
        launches: launches.collect(),
        blocks: builder.blocks,
    })
}

/// Cells and blocks as they are found.
#[derive(Default)]
struct NetRunBuilder {
    cells: Vec<Cell>,
    blocks: Vec<SampleBlock>,
}

/// One response of a phase.
struct CellDescription<'a> {
    experiment: &'a str,
    name: &'a str,
    unit: Unit,
    better: Better,
    factors: Factors,
}

impl NetRunBuilder {
    fn add(&mut self, said: &NetPhase, measured: &MeasuredPhase) {
        for flow in &said.flows {
            self.add_flow(said, flow);
        }
        self.add_exchange(said, measured);
        for stream in &said.datagrams {
            self.add_datagrams(said, stream);
        }
        let factors = Factors::default().with("load", said.name.as_str());
        let latency = |name, factors: &Factors| CellDescription {
            experiment: "net.latency",
            name,
            unit: Unit::Nanoseconds,
            better: Better::Lower,
            factors: factors.clone(),
        };
        if let (Some(asked), Some(probes)) = (probes_report(&measured.outcome.here), &said.probes) {
            let counters = BTreeMap::from([
                ("lost".to_owned(), probes.lost),
                ("duplicated".to_owned(), probes.duplicated),
                ("reordered".to_owned(), probes.reordered),
            ]);
            for (name, histogram) in
                [("round_trip", &asked.path), ("round_trip.application", &asked.application)]
            {
                if asked.answered > 0 {
                    let mut block = block(said, Vec::new());
                    block.n = asked.answered;
                    block.histogram.clone_from(histogram);
                    block.counters.clone_from(&counters);
                    self.put(latency(name, &factors), block);
                }
            }
            for (name, delays) in
                [("one_way.up", &probes.one_way_up), ("one_way.down", &probes.one_way_down)]
            {
                if let Some(delays) = delays {
                    self.put(latency(name, &factors), block(said, vec![median(delays)]));
                }
            }
            if probes.sent > 0 {
                let response = CellDescription {
                    experiment: "net.loss",
                    name: "loss",
                    unit: Unit::Share,
                    better: Better::Lower,
                    factors: factors.clone(),
                };
                let mut block = block(said, vec![probes.lost as f64 / probes.sent as f64]);
                block.counters = counters;
                self.put(response, block);
            }
        }
    }

    /// The longest packet that arrives, or the longest that was seen to before the search was cut.
    fn add_search(&mut self, mtu: &NetPathMtu, took: Span) {
        let Some(bytes) = mtu.path_bytes.or(mtu.arrived_bytes) else { return };
        let response = CellDescription {
            experiment: "net.mtu",
            name: "longest_packet",
            unit: Unit::Bytes,
            better: Better::Higher,
            factors: Factors::default().with("direction", "up"),
        };
        let ended = if mtu.path_bytes.is_some() { "complete" } else { "partial" };
        let said = NetPhase {
            seconds: took.as_secs_f64(),
            ended: ended.to_owned(),
            ..NetPhase::default()
        };
        let mut block = block(&said, vec![bytes as f64]);
        block.counters =
            BTreeMap::from([("probes".to_owned(), mtu.probes), ("silent".to_owned(), mtu.silent)]);
        self.put(response, block);
        if mtu.path_bytes.is_none()
            && let Some(cell) = self.cells.last_mut()
        {
            cell.status = CellStatus::Done("partial".to_owned());
        }
    }

    fn add_exchange(&mut self, said: &NetPhase, measured: &MeasuredPhase) {
        let Some(exchange) = &said.exchange else { return };
        for kept in exchange::stored_responses(said, &measured.outcome.here) {
            let mut block = match kept.value {
                StoredValue::Number(number) => block(said, vec![number]),
                StoredValue::Histogram(histogram, n) => {
                    SampleBlock { n, histogram, ..block(said, Vec::new()) }
                }
            };
            block.effort.operations = exchange.answered;
            block.counters = BTreeMap::from([("lost".to_owned(), exchange.lost)]);
            let response = CellDescription {
                experiment: "net.exchange",
                name: kept.name,
                unit: kept.unit,
                better: kept.better,
                factors: exchange::factors(exchange),
            };
            self.put(response, block);
        }
    }

    fn add_datagrams(&mut self, said: &NetPhase, stream: &NetDatagrams) {
        let asked = plumb_base::units::significant(stream.asked_bytes_per_second * 8.0, 6);
        let factors = Factors::default()
            .with("direction", stream.direction.as_str())
            .with("load", said.name.as_str())
            .with("rate", asked.as_str())
            .with("size", u64::from(stream.datagram_bytes));
        let counted = stream.intervals.iter().filter(|interval| interval.counts);
        let rates = counted.map(|interval| interval.bytes_per_second).collect();
        let counters = BTreeMap::from([
            ("sent".to_owned(), stream.sent.unwrap_or(0)),
            ("received".to_owned(), stream.received.unwrap_or(0)),
            ("reordered".to_owned(), stream.reordered),
            ("duplicated".to_owned(), stream.duplicated),
        ]);
        let mut put = |name, unit, better, samples: Vec<f64>| {
            if samples.is_empty() {
                return;
            }
            let factors = factors.clone();
            let response = CellDescription { experiment: "net.udp", name, unit, better, factors };
            let mut block = block(said, samples);
            block.counters.clone_from(&counters);
            self.put(response, block);
        };
        put("received", Unit::BytesPerSecond, Better::Higher, rates);
        put("loss", Unit::Share, Better::Lower, stream.loss.into_iter().collect());
        if stream.received.is_some() {
            put("jitter", Unit::Nanoseconds, Better::Lower, vec![stream.jitter_ns]);
        }
        let delay = stream.one_way.as_ref().map(median);
        put("one_way", Unit::Nanoseconds, Better::Lower, delay.into_iter().collect());
        let costs = [
            ("cpu.sender", stream.sender_cpu_ns_per_byte),
            ("cpu.receiver", stream.receiver_cpu_ns_per_byte),
            ("cpu.sender.datagram", stream.sender_cpu_ns_per_datagram),
            ("cpu.receiver.datagram", stream.receiver_cpu_ns_per_datagram),
            ("softirq.sender", stream.sender_softirq_ns_per_byte),
            ("softirq.receiver", stream.receiver_softirq_ns_per_byte),
        ];
        self.add_costs(said, &factors, costs);
    }

    /// What a byte, or a datagram, cost each side.
    fn add_costs<const N: usize>(
        &mut self,
        said: &NetPhase,
        factors: &Factors,
        costs: [(&str, Option<f64>); N],
    ) {
        for (name, cost) in costs {
            let Some(cost) = cost else { continue };
            let response = CellDescription {
                experiment: "net.cpu",
                name,
                unit: Unit::Nanoseconds,
                better: Better::Lower,
                factors: factors.clone(),
            };
            self.put(response, block(said, vec![cost]));
        }
    }

    fn add_flow(&mut self, said: &NetPhase, flow: &NetBulkFlow) {
        let factors = Factors::default()
            .with("direction", flow.direction.as_str())
            .with("load", said.name.as_str())
            .with("streams", u64::from(flow.streams));
        let rates: Vec<f64> = flow
            .intervals
            .iter()
            .filter(|interval| interval.counts)
            .map(|interval| interval.bytes_per_second)
            .collect();
        if rates.is_empty() {
            return;
        }
        let response = CellDescription {
            experiment: "net.tcp",
            name: "received",
            unit: Unit::BytesPerSecond,
            better: Better::Higher,
            factors: factors.clone(),
        };
        let mut measured = block(said, rates);
        measured.counters = BTreeMap::from([
            ("retransmitted_segments".to_owned(), flow.retransmitted_segments),
            ("bytes".to_owned(), flow.bytes),
        ]);
        // Without operations, because the whole process's time is not what these bytes cost: that has cells of its own.
        self.put(response, measured);
        let costs = [
            ("cpu.sender", flow.sender_cpu_ns_per_byte),
            ("cpu.receiver", flow.receiver_cpu_ns_per_byte),
            ("softirq.sender", flow.sender_softirq_ns_per_byte),
            ("softirq.receiver", flow.receiver_softirq_ns_per_byte),
        ];
        self.add_costs(said, &factors, costs);
    }

    fn put(&mut self, response: CellDescription<'_>, mut block: SampleBlock) {
        let CellDescription { experiment, name, unit, better, factors } = response;
        let known = self.cells.iter().find(|cell| {
            cell.experiment == experiment && cell.response == name && cell.factors == factors
        });
        block.cell = if let Some(cell) = known {
            cell.id
        } else {
            let id = i64::try_from(self.cells.len()).unwrap_or(i64::MAX - 1) + 1;
            self.cells.push(Cell {
                id,
                experiment: experiment.to_owned(),
                factors,
                response: name.to_owned(),
                unit: unit.name().to_owned(),
                better,
                status: CellStatus::Done("launches".to_owned()),
                imported: None,
            });
            id
        };
        self.blocks.push(block);
    }
}

fn median(delays: &NetOneWayDelay) -> f64 {
    delays.least_ns + delays.above_p50_ns
}

fn block(said: &NetPhase, samples: Vec<f64>) -> SampleBlock {
    let ns = |seconds: f64| Span::from_secs_f64(seconds).as_ns();
    let side = |cpu: Option<&NetCpu>| {
        cpu.map_or_else(SideCpu::default, |cpu| SideCpu {
            process_ns: ns(cpu.process_seconds),
            user_ns: ns(cpu.user_seconds),
            system_ns: ns(cpu.system_seconds),
            ..SideCpu::default()
        })
    };
    let host = said.cpu_here.clone().unwrap_or_default();
    SampleBlock {
        cell: 0,
        launch: i64::from(said.round) + 1,
        pass: 0,
        batch: 1,
        n: samples.len() as u64,
        warmup: 0,
        samples,
        histogram: Vec::new(),
        histogram_scale: 1.0,
        effort: BlockUsage {
            local: side(said.cpu_here.as_ref()),
            peer: side(said.cpu_there.as_ref()),
            softirq_ns: ns(host.host_softirq_seconds),
            steal_ns: ns(host.host_steal_seconds),
            canary_ns: 0.0,
            wall_ns: ns(said.seconds),
            operations: 0,
        },
        counters: BTreeMap::new(),
        flags: if said.ended == "complete" { Vec::new() } else { vec!["partial".to_owned()] },
    }
}

#[cfg(test)]
mod tests {
    use plumb_analysis::document::net::NetInterval;

    use super::*;

    fn cells(flow: NetBulkFlow) -> (Vec<Cell>, Vec<SampleBlock>) {
        let mut builder = NetRunBuilder::default();
        let cpu = Some(NetCpu { process_seconds: 3.0, ..NetCpu::default() });
        let said = NetPhase { name: "both".to_owned(), cpu_here: cpu, ..NetPhase::default() };
        let rate = NetInterval { counts: true, bytes_per_second: 1e6, ..NetInterval::default() };
        builder.add_flow(&said, &NetBulkFlow { intervals: vec![rate], bytes: 1_000_000, ..flow });
        (builder.cells, builder.blocks)
    }

    #[test]
    fn a_search_that_was_cut_is_a_partial_cell_of_what_arrived_and_one_without_any_is_none() {
        let stored = |mtu: NetPathMtu| {
            let mut builder = NetRunBuilder::default();
            builder.add_search(&mtu, Span::from_ms(1_500));
            let block = builder.blocks.first().cloned();
            builder.cells.first().map(|cell| {
                let block = block.expect("a cell has its block");
                (cell.status.clone(), block.samples, block.flags, block.effort.wall_ns)
            })
        };
        let cut = NetPathMtu { arrived_bytes: Some(1_280), ..NetPathMtu::default() };
        let partial = "partial".to_owned();
        let wanted =
            (CellStatus::Done(partial.clone()), vec![1_280.0], vec![partial], 1_500_000_000);
        assert_eq!(stored(cut.clone()), Some(wanted));
        let whole = stored(NetPathMtu { path_bytes: Some(1_500), ..cut }).expect("a cell");
        assert_eq!((whole.1, whole.2), (vec![1_500.0], Vec::new()));
        assert_eq!(stored(NetPathMtu::default()), None);
    }

    #[test]
    fn datagrams_are_stored_by_what_counts_of_them_and_with_what_they_cost() {
        let interval = |counts, bytes_per_second| NetInterval {
            counts,
            bytes_per_second,
            ..NetInterval::default()
        };
        let stream = NetDatagrams {
            direction: "up".to_owned(),
            datagram_bytes: 1_000,
            received: Some(100),
            intervals: vec![
                interval(true, 1e6),
                interval(true, 2e6),
                interval(false, 0.0),
                interval(false, 0.0),
                interval(false, 0.0),
            ],
            sender_cpu_ns_per_byte: Some(2.5),
            sender_cpu_ns_per_datagram: Some(2_500.0),
            receiver_softirq_ns_per_byte: Some(0.5),
            ..NetDatagrams::default()
        };
        let mut builder = NetRunBuilder::default();
        builder.add_datagrams(&NetPhase::default(), &stream);
        let stored = |experiment: &str, response: &str| {
            let mut found = builder.cells.iter().zip(&builder.blocks);
            let is = |cell: &Cell| cell.experiment == experiment && cell.response == response;
            found.find(|(cell, _)| is(cell)).map(|(_, block)| block.samples.clone())
        };
        assert_eq!(stored("net.udp", "received"), Some(vec![1e6, 2e6]));
        assert_eq!(stored("net.cpu", "cpu.sender"), Some(vec![2.5]));
        assert_eq!(stored("net.cpu", "cpu.sender.datagram"), Some(vec![2_500.0]));
        assert_eq!(stored("net.cpu", "cpu.receiver"), None);
        assert_eq!(stored("net.cpu", "softirq.receiver"), Some(vec![0.5]));
    }

    #[test]
    fn a_byte_costs_in_the_store_what_its_own_threads_used_and_softirqs_stand_beside() {
        let costs = NetBulkFlow {
            sender_cpu_ns_per_byte: Some(0.5),
            receiver_cpu_ns_per_byte: Some(0.75),
            receiver_softirq_ns_per_byte: Some(0.125),
            ..NetBulkFlow::default()
        };
        let (cells, blocks) = cells(costs);
        let found: Vec<_> = cells
            .iter()
            .zip(&blocks)
            .filter(|(cell, _)| cell.experiment == "net.cpu")
            .map(|(cell, block)| (cell.response.as_str(), block.samples[0]))
            .collect();
        let wanted = [("cpu.sender", 0.5), ("cpu.receiver", 0.75), ("softirq.receiver", 0.125)];
        assert_eq!(found, wanted);
        // The process's three seconds are no price of a byte.
        assert!(blocks.iter().all(|block| block.effort.operations == 0), "{blocks:?}");
    }
}
