//! The document of a simulation.

use plumb_analysis::document::sim::{
    SimFlow, SimFlowSample, SimLink, SimProcessor, SimRun, SimSource,
};
use plumb_base::time::Span;
use plumb_link::frame::DiscardReason;
use plumb_sim::report::{FlowReport, LinkReport, ProcessorReport, SimulationReport, SourceReport};

/// What a simulation found; not what it took.
pub fn run(report: &SimulationReport, title: String, seed: u64) -> SimRun {
    SimRun {
        title,
        seed,
        seconds: report.elapsed.as_secs_f64(),
        warmup_seconds: report.warmup.as_secs_f64(),
        events: report.events,
        packet_hops: report.packet_hops,
        goodput: report.goodput(),
        fairness: report.fairness(),
        flows: report.flows.iter().map(flow).collect(),
        sources: report.sources.iter().map(source).collect(),
        processors: report.processors.iter().map(processor).collect(),
        links: report.links.iter().map(link).collect(),
        misdirected: report.misdirected,
        violations: report.violations.clone(),
        ..SimRun::default()
    }
}

fn flow(report: &FlowReport) -> SimFlow {
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

fn source(report: &SourceReport) -> SimSource {
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

fn processor(report: &ProcessorReport) -> SimProcessor {
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

fn link(report: &LinkReport) -> SimLink {
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
