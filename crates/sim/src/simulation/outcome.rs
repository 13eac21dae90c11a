//! Figures of a simulation: samples while it runs, and the report at its end.

use plumb_base::stats::sparse_histogram::SparseHistogram;
use plumb_base::time::Span;
use plumb_link::report::DirectionReport;
use plumb_stack::tcp::{ReceiverCounts, SenderCounts, TcpInfo};

use super::{NodeKind, START, Simulation};
use crate::flow::{FlowCounts, FlowSample};
use crate::processor::Processor;
use crate::report::{FlowReport, LinkReport, ProcessorReport, SimulationReport, SourceReport};
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
    pub(super) fn host_at(&self, node: u32) -> usize {
        match self.nodes[node as usize] {
            NodeKind::Host(host) => host as usize,
            NodeKind::Router => unreachable!("ends of flows were checked to be hosts"),
        }
    }

    /// Of the sender of a connection that has not ended.
    fn sender_info(&self, index: usize) -> Option<TcpInfo> {
        let flow = &self.flows[index];
        let (Some(id), None) = (flow.client, flow.ended) else { return None };
        self.hosts[self.host_at(flow.spec.from)].ip().tcp_info(id)
    }

    /// Takes figures of a connection that has not ended; those of its sender.
    pub(super) fn observe_flow(&mut self, index: usize) -> Option<TcpInfo> {
        let client = self.sender_info(index);
        let to = self.host_at(self.flows[index].spec.to);
        let flow = &mut self.flows[index];
        if flow.ended.is_some() {
            return None;
        }
        let server = flow.server.and_then(|id| self.hosts[to].ip().tcp_info(id));
        flow.observe(client.as_ref(), server.as_ref());
        client
    }

    /// The warm-up has ended: figures begin.
    pub(super) fn end_warmup(&mut self) {
        for index in 0..self.flows.len() {
            self.observe_flow(index);
            self.flows[index].end_warmup();
        }
        for (index, directed) in self.directed_links.iter_mut().enumerate() {
            directed.advance(self.now, &mut self.pool);
            let before = directed.link.report(self.now, String::new());
            self.sampled.links_before[index] =
                Some(directed.link.restart_histograms(self.now, before));
        }
        self.delays.fill(SparseHistogram::new());
        self.sampled.sources_before = self.sources.iter().map(TrafficSource::counts).collect();
    }

    /// Samples connections and, of few, keeps the samples; of many only what a mean needs, which is at their senders.
    pub(super) fn sample(&mut self) {
        let at = self.elapsed();
        let keeps = self.flows.len() <= SERIES_MAX;
        for index in 0..self.flows.len() {
            let info = if keeps { self.observe_flow(index) } else { self.sender_info(index) };
            let Some(info) = info else { continue };
            let flow = &mut self.flows[index];
            flow.sample_rtt(&info);
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
        if self.directed_links.len() <= 4 * SERIES_MAX {
            for (directed, series) in self.directed_links.iter_mut().zip(&mut self.sampled.queues) {
                directed.advance(self.now, &mut self.pool);
                series.push((at, directed.link.backlog().frames));
            }
        }
    }

    /// What it found; the simulation ends here.
    pub fn finish(mut self) -> SimulationReport {
        let elapsed = self.elapsed();
        for index in 0..self.flows.len() {
            self.observe_flow(index);
        }
        let links = self.link_reports();
        let mut violations = self.violations(&links);
        violations.extend(self.memory_violation());
        if self.without_memory > 0 {
            let count = self.without_memory;
            let text =
                format!("no memory was left for packets {count} times: it was estimated too low");
            violations.push(text);
        }
        SimulationReport {
            elapsed,
            warmup: self.scenario.warmup,
            events: self.events,
            packet_hops: self.packet_hops,
            flows: (0..self.flows.len()).map(|index| self.flow_report(index)).collect(),
            sources: self.source_reports(),
            processors: self.processor_reports(),
            links,
            misdirected: self.misdirected,
            violations,
        }
    }

    fn link_reports(&mut self) -> Vec<LinkReport> {
        let mut reports = Vec::with_capacity(self.directed_links.len());
        for (index, directed) in self.directed_links.iter_mut().enumerate() {
            directed.advance(self.now, &mut self.pool);
            let name = self.scenario.network.direction_name(index / 2, index % 2 == 0);
            let whole = directed.link.report(self.now, name);
            let before = self.sampled.links_before[index].take();
            let before = before.unwrap_or_else(|| whole.clone());
            let mut report = LinkReport::between(&before, whole);
            report.flow_state = directed.link.flow_state();
            report.queue_series = std::mem::take(&mut self.sampled.queues[index]);
            reports.push(report);
        }
        reports
    }

    /// The laws that do not hold.
    fn violations(&self, links: &[LinkReport]) -> Vec<String> {
        let mut violations: Vec<String> = Vec::new();
        for (report, directed) in links.iter().zip(&self.directed_links) {
            violations.extend(report.whole.violations().map(|violation| violation.to_string()));
            if directed.link.early() > 0 {
                let (name, early) = (&report.whole.name, directed.link.early());
                violations.push(format!(
                    "{name}: {early} packets arrived before transmission and propagation allow"
                ));
            }
        }
        violations
    }

    /// Every frame of the pool is free, in a link, or in a host.
    fn memory_violation(&self) -> Option<String> {
        let frames = self.pool.frames().count as usize;
        let free = self.pool.available().0;
        let in_links: u64 =
            self.directed_links.iter().map(|directed| directed.link.frames_inside()).sum();
        let waiting: usize =
            self.directed_links.iter().map(|directed| directed.arrived().len()).sum::<usize>()
                + self.processors.iter().map(Processor::waiting).sum::<usize>();
        let in_hosts: usize = self.hosts.iter().map(|host| host.ip().queued()).sum();
        let known = free + usize::try_from(in_links).unwrap_or(usize::MAX) + waiting + in_hosts;
        (known != frames)
            .then(|| format!("of {frames} packets in memory {known} are accounted for"))
    }

    fn flow_report(&mut self, index: usize) -> FlowReport {
        let name = |node: u32| self.scenario.network.nodes[node as usize].clone();
        let flow = &self.flows[index];
        let group = &self.scenario.groups[flow.group as usize];
        let end = flow.ended.map_or(self.elapsed(), |ended| ended - START);
        let begin = flow.spec.start.max(self.scenario.warmup);
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
            series: std::mem::take(&mut self.flows[index].series),
        }
    }

    fn processor_reports(&self) -> Vec<ProcessorReport> {
        let report = |processor: &Processor| ProcessorReport {
            host: self.scenario.network.nodes[processor.spec().node as usize].clone(),
            counts: processor.counts(),
            busy_share: processor.counts().busy.as_secs_f64()
                / self.elapsed().as_secs_f64().max(1e-12),
        };
        self.processors.iter().map(report).collect()
    }

    /// Sources by the histogram of their delays.
    fn source_reports(&mut self) -> Vec<SourceReport> {
        let none = SourceCounts::default();
        let mut reports: Vec<Option<SourceReport>> = vec![None; self.delays.len()];
        for (index, source) in self.sources.iter().enumerate() {
            let (spec, after) = (&self.scenario.sources[index], source.counts());
            let before = self.sampled.sources_before.get(index).unwrap_or(&none);
            let end = spec.stop.unwrap_or(Span::from_ps(u64::MAX)).min(self.elapsed());
            let active = end.saturating_sub(spec.start.max(self.scenario.warmup));
            let counts = SourceCounts {
                sent: after.sent - before.sent,
                sent_bytes: after.sent_bytes - before.sent_bytes,
                received: after.received - before.received,
                received_bytes: after.received_bytes - before.received_bytes,
            };
            match &mut reports[source.delays as usize] {
                Some(report) => report.add(active, counts),
                slot => {
                    let name = |node: u32| self.scenario.network.nodes[node as usize].clone();
                    *slot = Some(SourceReport {
                        name: spec.name.clone(),
                        from: name(spec.from),
                        to: name(spec.to),
                        count: 1,
                        active,
                        counts,
                        delays: std::mem::take(&mut self.delays[source.delays as usize]),
                    });
                }
            }
        }
        reports.into_iter().flatten().collect()
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
