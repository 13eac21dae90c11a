//! Claims about clocks (Zhao 2014, Figure 2 and §V).
//!
//! Left out: which clock the paper read, which it does not say; CLOCK_MONOTONIC stands for it.

use plumb_base::units::Unit;

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, every, some};
use super::published::ZHAO;

const EXPERIMENT: &str = "clock.resolution";
const RESPONSE: &str = "resolution";
const NEEDS: &str = "plumb run clock.resolution";

/// "About 25 ns", taken as within a fifth.
const ABOUT_25: (f64, f64) = (20.0, 30.0);

/// "Closer to 1 ns" than to 25 ns, on the scale of ratios: below √25.
const NEARER_1: (f64, f64) = (0.0, 5.0);

/// The claims of `clock.resolution`.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "ipc.clock.resolution-25ns",
        experiment: EXPERIMENT,
        claim: "The clock's resolution is about 25 ns.",
        source: ZHAO,
        historical: Some("a median of 25 ns (§IV), i5-4570 at 3.2 GHz"),
        judge: |evidence| every(on_each_cpu(evidence, "monotonic", ABOUT_25), NEEDS),
    },
    Claim {
        id: "ipc.clock.eighty-cycles",
        experiment: EXPERIMENT,
        claim: "About 80 cycles pass between starting and stopping the clock.",
        source: ZHAO,
        historical: Some("25 ns at 3.2 GHz (§V)"),
        judge: eighty_cycles,
    },
    Claim {
        id: "ipc.clock.finer-clock-reaches-1ns",
        experiment: EXPERIMENT,
        claim: "A more precise clock could give a precision closer to 1 ns.",
        source: ZHAO,
        historical: Some("a conjecture (§V); nearer to 1 ns than to 25 ns is below 5 ns"),
        judge: finer_clock,
    },
];

/// The resolution of one clock on every CPU, against bounds in nanoseconds.
fn on_each_cpu(evidence: &Evidence<'_>, clock: &str, bounds: (f64, f64)) -> Pairs {
    let mut pairs = Pairs::default();
    for found in evidence.cells(EXPERIMENT, RESPONSE) {
        let factors = &found.cell.factors;
        if factors.text("clock") != Some(clock) {
            continue;
        }
        let cpu = factors.level("cpu").map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
        let ends = found.interval().map(|interval| [interval.lo, interval.hi]);
        pairs.cases.push(Case::quantity(
            "",
            format!("{clock}{cpu}"),
            found.median(),
            ends,
            bounds,
            Unit::Nanoseconds,
        ));
    }
    pairs
}

/// Cycles of the time-stamp counter between two readings of the monotonic clock.
fn eighty_cycles(evidence: &Evidence<'_>) -> Finding {
    let Some(ticks) = evidence.note("clock.ticks_per_ns").filter(|ticks| *ticks > 0.0) else {
        return Finding::missing(
            "a time-stamp counter whose rate is known; plumb doctor says why not",
        );
    };
    let mut pairs = on_each_cpu(evidence, "monotonic", (64.0 / ticks, 96.0 / ticks));
    for case in &mut pairs.cases {
        case.value = case.value.map(|ns| ns * ticks);
        case.ends = case.ends.map(|ends| ends.map(|ns| ns * ticks));
        if let Some(cycles) = case.value {
            case.text = format!("{cycles:.0} cycles");
        }
    }
    every(pairs, NEEDS)
}

fn finer_clock(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    for clock in ["tsc", "monotonic-raw", "monotonic"] {
        pairs.cases.extend(on_each_cpu(evidence, clock, NEARER_1).cases);
    }
    some(pairs, NEEDS)
}
