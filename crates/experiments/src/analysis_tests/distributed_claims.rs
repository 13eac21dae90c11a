//! Claims of study `distributed`: results that give *holds*, and results that give *does not hold*.

use plumb_analysis::fixture::SyntheticRun;

use super::stack_claims::{factors, results};
use super::verdict_pairs::VerdictPair;

pub(super) const PAIRS: &[VerdictPair] = &[
    (&["distributed.pollution.network-becomes-useless"], |holds| {
        let at = |garbage: &str| format!("garbage={garbage} kind=unicast hosts=fast");
        let full = if holds { 4e4 } else { 6e5 };
        results("stack.pollution", "throughput", &[(&at("0%"), 1.2e6), (&at("100%"), full)])
    }),
    (&["distributed.pollution.broadcasts-halt-hosts"], |holds| {
        let busy = if holds { 0.99 } else { 0.2 };
        results("stack.pollution", "busy", &[("garbage=25% kind=broadcast hosts=slow", busy)])
    }),
    (&["distributed.nic.small-receive-buffer"], |holds| {
        let at = |window: u64| format!("window={window} card=4Ki receiver=8mhz");
        let large = if holds { 0.19 } else { 0.001 };
        results("stack.nic", "retransmitted", &[(&at(4_096), 0.001), (&at(8_192), large)])
    }),
    (&["distributed.tcp.errors-cost-tenfold"], |holds| {
        defects("load=file path=lan", "throughput", 1e6, if holds { 1e5 } else { 0.8e6 })
    }),
    (&["distributed.tcp.silly-windows"], |holds| {
        defects("load=slow-reader path=lan", "payload", 1_000.0, if holds { 40.0 } else { 1_000.0 })
    }),
    (&["distributed.timeouts.mismatch-halves-throughput"], |holds| {
        timeouts("path=slow-host errors=none", "throughput", 1e6, if holds { 1e5 } else { 0.9e6 })
    }),
    (&["distributed.timeouts.mismatch-delays-telnet"], |holds| {
        timeouts("path=slow-host errors=none", "delay", 1e6, if holds { 3e6 } else { 1e6 })
    }),
    (&["distributed.timeouts.four-seconds-lose-ten-percent"], |holds| {
        let mut run = SyntheticRun::new(1);
        for (timeout, rate) in [("250ms", 1e6), ("4s", if holds { 0.91e6 } else { 0.3e6 })] {
            let levels = format!("load=file path=lan errors=rare tcp=early timeout={timeout}");
            run.measure("stack.timeouts", "throughput", factors(&levels), rate);
        }
        run
    }),
    (&["distributed.timeouts.early-acks-lose-one-percent"], |holds| {
        let at =
            |acks: &str| format!("load=file path=memory tcp=today timeout=dynamic acks={acks}");
        let prompt = if holds { 0.99e9 } else { 0.8e9 };
        results("stack.timeouts", "throughput", &[(&at("delayed"), 1e9), (&at("prompt"), prompt)])
    }),
    (&["distributed.timeouts.internets-need-dynamic"], |holds| {
        timeouts("path=internet errors=none", "throughput", 1e5, if holds { 0.5e5 } else { 1e5 })
    }),
    (&["distributed.timeouts.lans-need-dynamic"], |holds| {
        timeouts("path=lan errors=rare", "throughput", 1e6, if holds { 0.5e6 } else { 1e6 })
    }),
    (&["distributed.timeouts.error-rate"], |holds| {
        timeouts("path=lan errors=varying", "throughput", 1e6, if holds { 0.5e6 } else { 1e6 })
    }),
    (&["distributed.buffers.small-packets-inundate"], |holds| {
        buffers(
            "slow-reader",
            "throughput",
            [("ring", 4e3), ("fixed", if holds { 2e2 } else { 4e3 })],
        )
    }),
    (&["distributed.buffers.traffic-hints"], |holds| {
        let mut run = SyntheticRun::new(1);
        let at = factors("path=slow-reader buffers=hinted tcp=early");
        run.measure("stack.buffers", "retransmitted", at, if holds { 0.001 } else { 0.5 });
        run
    }),
    (&["distributed.buffers.chunked-free-lists"], |holds| {
        buffers(
            "memory",
            "throughput",
            [("chunks", 1e9), ("malloc", if holds { 0.97e9 } else { 1.2e9 })],
        )
    }),
    (&["distributed.chunk.four-kilobytes-carry-more"], |holds| {
        let at = |write: u64| format!("path=memory packet=1024 entry=message write={write}");
        let more = if holds { 1.2e8 } else { 3e8 };
        results("stack.chunk", "throughput", &[(&at(1_024), 1e8), (&at(4_096), more)])
    }),
    (&["distributed.transport.larger-packets"], |holds| {
        let at = |packet: u64| format!("path=memory entry=call write=4096 packet={packet}");
        let small = if holds { 3e8 } else { 1e9 };
        let cells = [(at(128), small), (at(200), small), (at(1_024), 1e9)];
        results(
            "stack.chunk",
            "throughput",
            &cells.each_ref().map(|(at, rate)| (at.as_str(), *rate)),
        )
    }),
];

/// TCP without a defect and with each of them, all alike.
fn defects(at: &str, response: &str, none: f64, each: f64) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for defect in ["none", "timeout-1s", "silly-window", "timeouts-only"] {
        let value = if defect == "none" { none } else { each };
        run.measure("stack.errors", response, factors(&format!("{at} defect={defect}")), value);
    }
    run
}

/// Measured timeouts, and each fixed one, all alike, of an early TCP.
fn timeouts(at: &str, response: &str, dynamic: f64, fixed: f64) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for timeout in ["dynamic", "100ms", "250ms", "1s", "4s"] {
        let value = if timeout == "dynamic" { dynamic } else { fixed };
        let levels = factors(&format!("load=file {at} tcp=early timeout={timeout}"));
        run.measure("stack.timeouts", response, levels, value);
    }
    run
}

fn buffers(path: &str, response: &str, policies: [(&str, f64); 2]) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for (policy, value) in policies {
        let levels = factors(&format!("path={path} buffers={policy}"));
        run.measure("stack.buffers", response, levels, value);
    }
    run
}
