//! Figures of a simulation: samples while it runs, and the report at its end.

use plumb_base::stats::sparse_histogram::SparseHistogram;
use plumb_base::time::Span;
use plumb_link::report::DirectionReport;
use plumb_stack::tcp::{ReceiverCounts, SenderCounts, TcpId, TcpInfo};

use super::logical_process::{LogicalProcess, Place};
use super::{START, Simulation};
use crate::directed_link::DirectedLink;
use crate::flow::{FlowCounts, FlowSample, SimulatedFlow};
use crate::processor::{Processor, ProcessorSpec};
use crate::report::{FlowReport, LinkReport, ProcessorReport, SimulationReport, SourceReport};
use crate::scenario::Scenario;
use crate::source::{SourceCounts, TrafficSource};

/// Connections of which samples over time are kept: what a figure can show.
const SERIES_MAX: usize = 32;

/// What is sampled, and what was counted when the warm-up ended.
#[derive(Debug)]
pub(super) struct SampledSeries {
    links_before: Vec<Option<DirectionReport>>,
    sources_before: Vec<SourceCounts>,
    queues: Vec<Vec<(Span, u64)>>,
}

impl SampledSeries {
    pub fn new(links: usize) -> Self {
        Self {
            links_before: vec![None; links],
            sources_before: Vec::new(),
            queues: vec![Vec::new(); links],
        }
    }
}

impl Simulation {
    /// A connection, with what its receiving end knows where another process has it.
    fn flow(&mut self, index: usize) -> &mut SimulatedFlow {
        let [from, to] = self.flows[index];
        let (from_process, to_process) = (from.process as usize, to.process as usize);
        if let Ok([sender, receiver]) = self.processes.get_disjoint_mut([from_process, to_process])
        {
            let received = &receiver.flows[to.number as usize];
            sender.flows[from.number as usize].add_receiver(received);
        }
        &mut self.processes[from_process].flows[from.number as usize]
    }

    /// One end of a connection.
    fn info(&self, place: Place, node: u32, id: Option<TcpId>) -> Option<TcpInfo> {
        let host = self.world.host_at(node).number as usize;
        self.processes[place.process as usize].hosts[host].ip().tcp_info(id?)
    }

    /// Of the sender of a connection that has not ended.
    fn sender_info(&self, index: usize) -> Option<TcpInfo> {
        let ends = self.flows[index];
        let [flow, other] =
            ends.map(|end| &self.processes[end.process as usize].flows[end.number as usize]);
        if flow.ended.or(other.ended).is_some() {
            return None;
        }
        self.info(ends[0], flow.spec.from, flow.client)
    }

    /// Takes figures of a connection that has not ended; those of its sender.
    pub(super) fn observe_flow(&mut self, index: usize) -> Option<TcpInfo> {
        let client = self.sender_info(index);
        let flow = self.flow(index);
        if flow.ended.is_some() {
            return None;
        }
        let (server, to) = (flow.server, flow.spec.to);
        let server = self.info(self.flows[index][1], to, server);
        self.flow(index).observe(client.as_ref(), server.as_ref());
        client
    }

    /// A link, advanced to now.
    fn advanced_link(&mut self, link: usize) -> &mut DirectedLink {
        let Place { process, number } = self.world.links[link];
        let process = &mut self.processes[process as usize];
        let directed = &mut process.links[number as usize];
        directed.advance(process.now, &mut process.pool);
        directed
    }

    /// The warm-up has ended: figures begin.
    pub(super) fn end_warmup(&mut self) {
        self.settle();
        let now = self.now();
        for index in 0..self.flows.len() {
            self.observe_flow(index);
            self.flow(index).end_warmup();
        }
        for index in 0..self.sampled.links_before.len() {
            let link = &mut self.advanced_link(index).link;
            let before = link.report(now, String::new());
            self.sampled.links_before[index] = Some(link.restart_histograms(now, before));
        }
        for process in &mut self.processes {
            process.delays.fill(SparseHistogram::new());
            let counts = process.sources.iter().map(TrafficSource::counts);
            self.sampled.sources_before.extend(counts);
        }
    }

    /// Samples connections and, of few, keeps the samples; of many only what a mean needs, which is at their senders.
    pub(super) fn sample(&mut self) {
        let at = self.elapsed();
        let keeps = self.flows.len() <= SERIES_MAX;
        for index in 0..self.flows.len() {
            let info = if keeps { self.observe_flow(index) } else { self.sender_info(index) };
            let Some(info) = info else { continue };
            let [Place { process, number }, _] = self.flows[index];
            let flow = &mut self.processes[process as usize].flows[number as usize];
            flow.sample_rtt(info.srtt);
            if keeps {
                flow.series.push(FlowSample {
                    at,
                    cwnd: info.cwnd,
                    flight: info.flight,
                    srtt: info.srtt,
                    received: flow.last.received.bytes,
                });
            }
        }
        let links = self.sampled.queues.len();
        if links > 4 * SERIES_MAX {
            return;
        }
        self.settle();
        for index in 0..links {
            let waiting = self.advanced_link(index).link.backlog().frames;
            self.sampled.queues[index].push((at, waiting));
        }
    }

    /// What it found; the simulation ends here, or at the next sample if it is not at its end.
    pub fn finish(mut self) -> SimulationReport {
        self.run_to_schedule();
        self.settle();
        let elapsed = self.elapsed();
        for index in 0..self.flows.len() {
            self.observe_flow(index);
        }
        let links = self.link_reports();
        let mut violations = self.violations(&links);
        for process in &self.processes {
            violations.extend(process.memory_violations());
        }
        let sum = |of: fn(&LogicalProcess) -> u64| self.processes.iter().map(|one| of(one)).sum();
        SimulationReport {
            elapsed,
            warmup: self.world.scenario.warmup,
            events: self.events(),
            packet_hops: sum(|process| process.packet_hops),
            misdirected: sum(|process| process.misdirected),
            violations,
            links,
            processors: self.processor_reports(),
            flows: (0..self.flows.len()).map(|index| self.flow_report(index)).collect(),
            sources: self.source_reports(),
        }
    }

    fn link_reports(&mut self) -> Vec<LinkReport> {
        let now = self.now();
        let mut reports = Vec::with_capacity(self.sampled.queues.len());
        for index in 0..self.sampled.queues.len() {
            let name = self.world.scenario.network.direction_name(index / 2, index % 2 == 0);
            let link = &mut self.advanced_link(index).link;
            let whole = link.report(now, name);
            let flow_state = link.flow_state();
            let before = self.sampled.links_before[index].take();
            let before = before.unwrap_or_else(|| whole.clone());
            let mut report = LinkReport::between(&before, whole);
            report.flow_state = flow_state;
            report.queue_series = std::mem::take(&mut self.sampled.queues[index]);
            reports.push(report);
        }
        reports
    }

    /// The laws that do not hold.
    fn violations(&mut self, links: &[LinkReport]) -> Vec<String> {
        let mut violations: Vec<String> = Vec::new();
        for (index, report) in links.iter().enumerate() {
            violations.extend(report.whole.violations().map(|violation| violation.to_string()));
            let early = self.advanced_link(index).link.early();
            if early > 0 {
                violations.push(format!(
                    "{}: {early} packets arrived before transmission and propagation allow",
                    report.whole.name
                ));
            }
        }
        violations
    }

    fn flow_report(&mut self, index: usize) -> FlowReport {
        let [place, _] = self.flows[index];
        let elapsed = self.elapsed();
        let flow = &mut self.processes[place.process as usize].flows[place.number as usize];
        let Scenario { groups, network, warmup, .. } = &self.world.scenario;
        let name = |node: u32| network.nodes[node as usize].clone();
        let group = &groups[flow.group as usize];
        let end = flow.ended.map_or(elapsed, |ended| ended - START);
        let begin = flow.spec.start.max(*warmup);
        let counts = FlowCounts {
            sent: difference_sent(&flow.last.sent, &flow.at_warmup.sent),
            received: difference_received(&flow.last.received, &flow.at_warmup.received),
        };
        FlowReport {
            group: group.name.clone(),
            from: name(flow.spec.from),
            to: name(flow.spec.to),
            congestion: group.client.congestion.to_string(),
            start: flow.spec.start,
            ended: flow.ended.map(|ended| ended - START),
            error: flow.error.clone(),
            active: end.saturating_sub(begin),
            counts,
            rtt_mean: flow.rtt_mean(),
            rtt_min: flow.rtt_min,
            delays: flow
                .application
                .as_ref()
                .filter(|application| !application.delays.is_empty())
                .map(|application| application.delays.clone()),
            is_passed_on: flow
                .application
                .as_ref()
                .is_some_and(|application| application.downstream.is_some()),
            series: std::mem::take(&mut flow.series),
        }
    }

    fn processor_reports(&self) -> Vec<ProcessorReport> {
        let Scenario { network, processors, .. } = &self.world.scenario;
        let report = |spec: &ProcessorSpec| {
            let Place { process, number } = self.world.host_at(spec.node);
            let process = &self.processes[process as usize];
            let index = process.processor_of[number as usize].expect("it was added");
            let counts = process.processors[index as usize].counts();
            let busy_share = counts.busy.as_secs_f64() / self.elapsed().as_secs_f64().max(1e-12);
            ProcessorReport { host: network.nodes[spec.node as usize].clone(), counts, busy_share }
        };
        processors.iter().map(report).collect()
    }

    /// Sources by the histogram of their delays.
    fn source_reports(&mut self) -> Vec<SourceReport> {
        let none = SourceCounts::default();
        let elapsed = self.elapsed();
        // Only a network in one process has any.
        let LogicalProcess { sources, delays, .. } = &mut *self.processes[0];
        let Scenario { network, warmup, sources: specs, .. } = &self.world.scenario;
        let mut reports: Vec<Option<SourceReport>> = vec![None; delays.len()];
        for (index, source) in sources.iter().enumerate() {
            let (spec, after) = (&specs[index], source.counts());
            let before = self.sampled.sources_before.get(index).unwrap_or(&none);
            let end = spec.stop.unwrap_or(Span::from_ps(u64::MAX)).min(elapsed);
            let active = end.saturating_sub(spec.start.max(*warmup));
            let counts = SourceCounts {
                sent: after.sent - before.sent,
                sent_bytes: after.sent_bytes - before.sent_bytes,
                received: after.received - before.received,
                received_bytes: after.received_bytes - before.received_bytes,
            };
            match &mut reports[source.delays as usize] {
                Some(report) => report.add(active, counts),
                slot => {
                    let name = |node: u32| network.nodes[node as usize].clone();
                    *slot = Some(SourceReport {
                        name: spec.name.clone(),
                        from: name(spec.from),
                        to: name(spec.to),
                        count: 1,
                        active,
                        counts,
                        delays: std::mem::take(&mut delays[source.delays as usize]),
                    });
                }
            }
        }
        reports.into_iter().flatten().collect()
    }
}

impl LogicalProcess {
    /// Every frame of its pool is free, in a link, or in a host, and there was always one.
    fn memory_violations(&self) -> Vec<String> {
        let frames = u64::from(self.pool.frames().count);
        let in_links: u64 = self.links.iter().map(|directed| directed.link.frames_inside()).sum();
        let waiting: usize =
            self.links.iter().map(|directed| directed.arrived().len()).sum::<usize>()
                + self.processors.iter().map(Processor::waiting).sum::<usize>();
        let in_hosts: usize = self.hosts.iter().map(|host| host.ip().queued()).sum();
        let known = in_links + (self.pool.available().0 + waiting + in_hosts) as u64;
        let mut violations = Vec::new();
        if known != frames {
            violations.push(format!("of {frames} packets in memory {known} are accounted for"));
        }
        if self.without_memory > 0 {
            let count = self.without_memory;
            let text =
                format!("no memory was left for packets {count} times: it was estimated too low");
            violations.push(text);
        }
        violations
    }
}

fn difference_sent(after: &SenderCounts, before: &SenderCounts) -> SenderCounts {
    SenderCounts {
        segments: after.segments - before.segments,
        retransmits: after.retransmits - before.retransmits,
        retransmitted_bytes: after.retransmitted_bytes - before.retransmitted_bytes,
        timeouts: after.timeouts - before.timeouts,
        tail_probes: after.tail_probes - before.tail_probes,
        window_probes: after.window_probes - before.window_probes,
        recoveries: after.recoveries - before.recoveries,
        undone: after.undone - before.undone,
        dsacks: after.dsacks - before.dsacks,
        marks: after.marks - before.marks,
        size_probes: after.size_probes - before.size_probes,
        size_probes_lost: after.size_probes_lost - before.size_probes_lost,
    }
}

fn difference_received(after: &ReceiverCounts, before: &ReceiverCounts) -> ReceiverCounts {
    ReceiverCounts {
        segments: after.segments - before.segments,
        bytes: after.bytes - before.bytes,
        duplicate_bytes: after.duplicate_bytes - before.duplicate_bytes,
        out_of_order: after.out_of_order - before.out_of_order,
        overflow: after.overflow - before.overflow,
        marks: after.marks - before.marks,
    }
}
