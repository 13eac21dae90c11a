//! Claims about communication and processors (Markatos 2001).
//!
//! Most of them are about the slope of one improvement against another, over machines. One run is one
//! machine: it says what that one has, and decides nothing. Left out: several machines' results together.

use plumb_base::units::Unit;

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, Verdict, every};
use super::published::MARKATOS;
use crate::contrast;
use crate::summary::{Measured, rounded};

const ENTRY: &str = "scaling.entry";
const LOOPBACK: &str = "scaling.loopback";
const LAN: &str = "scaling.lan";
const WAN: &str = "scaling.wan";
const SMP: &str = "scaling.smp";

/// Bytes that arrive for each second of the sender's CPU.
const SENDER_CPU: &str = "sender-cpu";

/// Machines below which no slope is claimed.
const MACHINES_MIN: usize = 4;

/// The claims of study `scaling` about what a byte and a call cost.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "scaling.entry.lags-processors",
        experiment: ENTRY,
        claim: "Entering and leaving the kernel improves only by 12 to 28 % of what processors do.",
        source: MARKATOS,
        historical: Some(
            "Pentium ×50 and the call ×15 at best; SPARC ×25 and less than ×3 (Figure 1)",
        ),
        judge: |evidence| one_machine(evidence, (ENTRY, "call"), |_| true),
    },
    Claim {
        id: "scaling.loopback.lags-processors",
        experiment: LOOPBACK,
        claim: "TCP between processes of one computer improves far less than processors, in messages of \
                64 Kbytes.",
        source: MARKATOS,
        historical: Some(
            "processors ×35, TCP ×5 (Alpha) and ×12 (Pentium); SPARC almost linear (Figure 2)",
        ),
        judge: |evidence| one_machine(evidence, (LOOPBACK, "throughput"), |_| true),
    },
    Claim {
        id: "scaling.lan.100m-follows-processors",
        experiment: LAN,
        claim: "Over a LAN of 100 Mb/s, megabytes for each second of the sender's CPU follow processor \
                speed with a slope of 0.8.",
        source: MARKATOS,
        historical: Some("slope 0.8 (Figure 3)"),
        judge: |evidence| one_machine(evidence, (LAN, SENDER_CPU), |cell| link(cell) == "lan-100m"),
    },
    Claim {
        id: "scaling.lan.10m-lags-processors",
        experiment: LAN,
        claim: "Over a LAN of 10 Mb/s, megabytes for each second of the sender's CPU follow processor \
                speed with a slope of 0.62.",
        source: MARKATOS,
        historical: Some("slope 0.62; processors ×25, TCP ×17 (Figure 4)"),
        judge: |evidence| {
            one_machine(evidence, (LAN, SENDER_CPU), |cell| link(cell) == "ethernet-10m")
        },
    },
    Claim {
        id: "scaling.lan.networks-are-filled",
        experiment: LAN,
        claim: "Computers easily saturate networks of 10 and 100 Mb/s.",
        source: MARKATOS,
        historical: Some("the reason for bytes a CPU-second instead of bytes a second"),
        judge: networks_are_filled,
    },
    Claim {
        id: "scaling.wan.lags-processors",
        experiment: WAN,
        claim: "Over metropolitan and wide-area networks TCP follows processors as over a LAN of 10 Mb/s, \
                with about 60 %.",
        source: MARKATOS,
        historical: Some("about 60 %, without a figure"),
        judge: |evidence| {
            one_machine(evidence, (WAN, SENDER_CPU), |cell| !link(cell).starts_with("lan-"))
        },
    },
    Claim {
        id: "scaling.smp.scales-as-one",
        experiment: SMP,
        claim: "Between processes of a multiprocessor TCP improves with processors as it does on one \
                processor.",
        source: MARKATOS,
        historical: Some("two panels of Figure 2: SPARC uniprocessors and multiprocessors"),
        judge: multiprocessor,
    },
];

fn link<'a>(cell: &'a Measured<'_>) -> &'a str {
    cell.cell.factors.text("link").unwrap_or("unknown")
}

/// What a claim over machines is told with where there is one machine: its own figures.
pub(super) fn one_machine(
    evidence: &Evidence<'_>,
    (experiment, response): (&'static str, &'static str),
    wanted: impl Fn(&Measured<'_>) -> bool,
) -> Finding {
    let cells: Vec<_> = evidence.cells(experiment, response).filter(|cell| wanted(cell)).collect();
    let Some(first) = cells.first() else { return Finding::missing(&machines(experiment)) };
    let told: Vec<String> = cells.iter().take(TOLD).map(|cell| told(cell)).collect();
    let ends = first.interval().map(|interval| [interval.lo, interval.hi]);
    undecided(&told.join(", "), Some(first.median()), ends, experiment)
}

/// Figures of one machine that are told.
const TOLD: usize = 4;

fn told(cell: &Measured<'_>) -> String {
    let unit = cell.cell.unit_type();
    let factors = &cell.cell.factors;
    let names =
        ["way", "link", "placement", "call"].into_iter().filter_map(|name| factors.text(name));
    let value = unit.format(cell.median(), 3).to_string();
    let value = match cell.interval() {
        Some(interval) => {
            format!("{value} ({}–{})", unit.format(interval.lo, 3), unit.format(interval.hi, 3))
        }
        None => value,
    };
    format!("{value} at {}", names.collect::<Vec<_>>().join(", "))
}

fn undecided(
    told: &str,
    estimate: Option<f64>,
    ends: Option<[f64; 2]>,
    experiment: &str,
) -> Finding {
    Finding {
        verdict: Verdict::NotDecided,
        effect: format!("one machine: {told}"),
        estimate: estimate.map(rounded),
        ci95: ends.map(|ends| ends.map(rounded)),
        needs: machines(experiment),
    }
}

fn machines(experiment: &str) -> String {
    format!(
        "no slope is claimed over fewer than {MACHINES_MIN} machines: plumb run {experiment} on each"
    )
}

/// What the slower networks carry, as a share of what their rate leaves for payload.
fn networks_are_filled(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    for (name, rate) in [("ethernet-10m", 1.25e6), ("lan-100m", 1.25e7)] {
        let capacity = rate * PAYLOAD_SHARE;
        let found =
            evidence.cells(LAN, "throughput").filter(|cell| link(cell) == name && keeps_time(cell));
        let before = pairs.cases.len();
        pairs.cases.extend(found.map(|cell| {
            let ends = cell.interval();
            let ends = ends.map(|interval| [interval.lo / capacity, interval.hi / capacity]);
            let placement = cell.cell.factors.text("placement").unwrap_or("unknown");
            let share = cell.median() / capacity;
            Case::quantity(placement, name.to_owned(), share, ends, FILLED, Unit::Share)
        }));
        if pairs.cases.len() == before {
            pairs.missing.push(format!("{name} from a link that keeps its time"));
        }
    }
    every(pairs, "plumb run scaling.lan --set link=ethernet-10m,lan-100m")
}

/// Whether most of a cell's blocks had a link that was not late: otherwise it is the link that was not filled.
pub(super) fn keeps_time(cell: &Measured<'_>) -> bool {
    let is_late = |flags: &[String]| flags.iter().any(|flag| flag == "link-late");
    let late = cell.blocks().filter(|block| is_late(&block.flags)).count();
    2 * late <= cell.blocks().count()
}

/// Of 1,538 bytes that a full frame takes of such a network (IEEE 802.3: preamble, sum and gap), what is
/// payload: 1,500 − 20 (RFC 791) − 20 (RFC 9293) − 12 (RFC 7323).
const PAYLOAD_SHARE: f64 = 1_448.0 / 1_538.0;

/// A network that carries less is not filled; one cannot carry more, but an interval's edge may.
const FILLED: (f64, f64) = (0.95, 1.05);

/// The most CPUs against one, at the most streams over loopback.
fn multiprocessor(evidence: &Evidence<'_>) -> Finding {
    let number = |cell: &Measured<'_>, name: &str| cell.cell.factors.int(name).unwrap_or(0);
    let cells: Vec<_> =
        evidence.cells(SMP, "throughput").filter(|cell| link(cell) == "loopback").collect();
    let streams = cells.iter().map(|cell| number(cell, "streams")).max();
    let at = |cpus: i64| {
        let chosen = |cell: &&&Measured<'_>| {
            number(cell, "cpus") == cpus && Some(number(cell, "streams")) == streams
        };
        cells.iter().find(chosen)
    };
    let most = cells.iter().map(|cell| number(cell, "cpus")).max().unwrap_or(0);
    let (Some(one), Some(all)) = (at(1), at(most).filter(|_| most > 1)) else {
        return Finding::missing(&machines(SMP));
    };
    let Some(ratio) = contrast::within_run(all, one) else {
        return Finding::missing(&machines(SMP));
    };
    let [lo, hi] = ratio.ends();
    let told = format!(
        "{most} CPUs carry {:.2}× ({lo:.2}–{hi:.2}) as much as one in {} streams",
        ratio.ratio,
        streams.unwrap_or(0)
    );
    undecided(&told, Some(ratio.ratio), Some([lo, hi]), SMP)
}
