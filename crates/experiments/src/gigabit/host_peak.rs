//! `host.peak`: the most that TCP carries, against how much CPU both hosts have.
//!
//! A faster or slower processor is imitated by taking a part of every two milliseconds away. Memory and caches
//! stay as fast as they are: what a real slower machine would lose besides is not seen.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plumb_analysis::summary::CONFIDENCE;
use plumb_base::stats::regression::theil_sen;
use plumb_report::figure::against_factor::{self, factor_series};

use crate::claims::{WEIGLE, is_local, medians_within, place_label};
use crate::factor::channel::{ONE_OR_TWO_CPUS, level_number};
use crate::factor::link::{LOOPBACK, VETH};
use crate::factor::streams::{
    self, CONGESTION_CONTROL, PLAIN_LINK, RECEIVER_CPU, SENDER_CPU, STREAMED,
};
use crate::pages::{RESPONSES, SHARE, SIDES, best_tile, levels, of, sentence};
use crate::prelude::*;

/// Throughput against CPU.
pub static EXPERIMENT: Experiment = Experiment {
    id: "host.peak",
    study: "gigabit",
    question: "How much more does TCP carry on a faster processor?",
    hypothesis: "Where nothing but the processor bounds it, TCP carries as much more as the processor \
                 is faster; over loopback somewhat more than between hosts, and most of the CPU time \
                 is the protocol stack's.",
    factors: &[
        PLAIN_LINK.at(Words(&[LOOPBACK, VETH, GIGABIT])),
        Factor::new(
            "cpu-share",
            "percent of their CPUs that both processes have",
            // Less would leave a process less than one interrupt takes.
            FactorDomain::Between(10, 100, "a whole percentage"),
            Numbers(&[25, 40, 55, 75, 100]),
        )
        .at_quick(Numbers(&[25, 50, 75, 100]))
        .at_paper(Numbers(&[25, 30, 40, 50, 55, 60, 75, 85, 100])),
        ONE_OR_TWO_CPUS,
        CONGESTION_CONTROL,
    ],
    responses: &[
        STREAMED,
        SENDER_CPU,
        RECEIVER_CPU,
        ResponseVariable::share(
            "in-stack",
            Better::Lower,
            "the protocol stack's share of the CPU time of both processes, copies included; not user space, \
             devices, wake-ups and switches",
        ),
        ResponseVariable::share(
            "unexplained",
            Better::Lower,
            "the share of that time that no tracepoint explains",
        ),
    ],
    plan_cell: |point| {
        let percent = level_number(point.factors, "cpu-share");
        let is_traced = matches!(point.response, "in-stack" | "unexplained");
        // There the question is whether it is filled; the emulator needs the CPUs as well.
        if point.text("link") == Some(GIGABIT) && (percent < 100 || point.response != STREAMED.name)
        {
            return Err(Exclusion::NotApplicable);
        }
        // The process that takes CPU time away would be traced as well.
        if is_traced && percent < 100 {
            return Err(Exclusion::NotApplicable);
        }
        let (group, task) = streams::over_link(point, |spec| spec.cpu_percent = percent)?;
        let trace = BlockTask::StreamsTrace { size: streams::MESSAGE };
        Ok((group, if is_traced { trace } else { task }))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "What more CPU carries",
        figures: Some(|data| against_factor::figures(&data.cells, &SHARE)),
        sentences,
        tiles: |data| best_tile(data, "throughput", "TCP's peak", false),
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

/// Emulated gigabit Ethernet.
const GIGABIT: &str = "lan-1g";

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "gigabit.peak.tcp-below-the-link",
        claim: "A PC no longer fills its link, gigabit Ethernet (judged by an emulated one: TCP by default carries less than nine tenths of \
                its rate).",
        historical: Some("335 Mb/s at 400 MHz, 420 Mb/s at 733 MHz, over a 32-bit, 33-MHz PCI bus"),
        figures: &[PublishedFigure::comparable(
            "gigabit Ethernet at 733 MHz",
            420e6 / 8.0,
            Unit::BytesPerSecond,
            "420 Mb/s",
        )],
        judge: |evidence| {
            let below = (0.0, 0.9 * 1e9 / 8.0);
            let cases = medians_within(evidence, (EXPERIMENT.id, "throughput"), below, |cell| {
                has_all(cell) && cell.is("link", GIGABIT)
            });
            judge_all(cases, "plumb run host.peak --set link=lan-1g --set cpu-share=100")
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.peak.cpu-gives-little",
        claim: "A processor that is 83 % faster raises TCP's peak between hosts by only 25 %.",
        historical: Some("400 → 733 MHz: 335 → 420 Mb/s between hosts, 485 → 590 over loopback"),
        figures: &[PublishedFigure::alone(
            "gain from 83 % more CPU",
            0.25,
            Unit::Share,
            "420 against 335 Mb/s",
        )],
        judge: |evidence| cpu_gives_little(evidence, |_| true),
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.peak.loopback-gains-less-than-cpu",
        claim: "Over loopback, too, TCP gains much less than the processor.",
        historical: Some("400 → 733 MHz: 485 → 590 Mb/s"),
        figures: &[PublishedFigure::alone(
            "gain from 83 % more CPU",
            590.0 / 485.0 - 1.0,
            Unit::Share,
            "590 against 485 Mb/s",
        )],
        judge: |evidence| cpu_gives_little(evidence, is_local),
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.peak.loopback-below-a-gigabit",
        claim: "Even over loopback, tuned and without bus or network, TCP stays below a gigabit.",
        historical: Some("485 Mb/s at 400 MHz, 590 Mb/s at 733 MHz"),
        figures: &[PublishedFigure::comparable(
            "loopback at 733 MHz",
            590e6 / 8.0,
            Unit::BytesPerSecond,
            "590 Mb/s",
        )],
        judge: |evidence| {
            let gigabit = (0.0, 1e9 / 8.0);
            let cases = medians_within(evidence, (EXPERIMENT.id, "throughput"), gigabit, |cell| {
                has_all(cell) && is_local(cell)
            });
            judge_all(cases, "plumb run host.peak --set link=loopback --set cpu-share=100")
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.peak.loopback-little-faster",
        claim: "Over loopback, without any network, TCP carries more than between hosts, but at most half \
                as much again.",
        historical: Some(
            "485 against 335 Mb/s (×1.45) at 400 MHz; 590 against 420 (×1.40) at 733 MHz",
        ),
        figures: &[PublishedFigure::ratio("loopback to network", 1.45, "485 against 335 Mb/s")],
        judge: loopback_little_faster,
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.peak.time-is-in-the-stack",
        claim: "Over loopback a machine spends the majority of the time in the protocol stack.",
        historical: Some("a majority, over loopback; no figure"),
        judge: |evidence| {
            let cells = evidence.cells(EXPERIMENT.id, "in-stack").filter(|cell| is_local(cell));
            let cases = cells.map(|cell| {
                let label = "share of CPU time".to_owned();
                ClaimCase::median_within(&place_label(cell), label, cell, MAJORITY)
            });
            judge_all(
                cases.collect(),
                "plumb run host.peak --set link=loopback --set cpu-share=100",
            )
        },
        ..PublishedClaim::of(WEIGLE)
    },
];

/// More than half; an interval's edge may be beyond the whole.
const MAJORITY: (f64, f64) = (0.5, f64::INFINITY);

/// The published improvement of the processor.
const FASTER: f64 = 733.0 / 400.0;

/// Whether both processes have all of their CPUs.
fn has_all(cell: &MeasuredCell<'_>) -> bool {
    cell.is("cpu-share", 100_u64)
}

/// What 83 % more of its CPUs' time gives at each link and placement: told, and no verdict. Memory and caches keep
/// their speed, so that throughput follows the time almost whatever a faster processor would give.
fn cpu_gives_little(
    evidence: &ClaimEvidence<'_>,
    chosen: impl Fn(&MeasuredCell<'_>) -> bool,
) -> ClaimJudgment {
    let mut lines: BTreeMap<String, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for cell in evidence.cells(EXPERIMENT.id, "throughput").filter(|cell| chosen(cell)) {
        let Some(percent) = cell.int("cpu-share") else { continue };
        let (x, y) = lines.entry(place_label(cell)).or_default();
        x.push((percent as f64).ln());
        y.push(cell.median().ln());
    }
    let told: Vec<String> = lines
        .into_iter()
        .filter_map(|(place, (x, y))| {
            let line = theil_sen(&x, &y, CONFIDENCE)?;
            let ends = [line.slope, line.slope_interval.lo, line.slope_interval.hi];
            let [gain, lo, hi] =
                ends.map(|slope| format!("{:+.0}%", (FASTER.powf(slope) - 1.0) * 100.0));
            Some(format!("{place}: {gain} ({lo} to {hi})"))
        })
        .collect();
    let clocks = "the clock rate of the processor as a factor of host.peak, or host.peak on machines of several rates";
    let judgment = ClaimJudgment::not_measured(clocks);
    if told.is_empty() {
        return judgment;
    }
    let effect = format!(
        "83% more of the CPU's time gives, as an upper bound for a faster CPU: {}",
        told.join("; ")
    );
    ClaimJudgment { effect, ..judgment }
}

/// Over loopback against over a virtual Ethernet, with all of the CPU.
fn loopback_little_faster(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let over = |link| move |cell: &MeasuredCell<'_>| has_all(cell) && cell.is("link", link);
    let found = ClaimCases::of_twins(
        evidence.twins(EXPERIMENT.id, "throughput", "link", over("loopback"), over("veth")),
        |loopback, veth| {
            let label = "loopback/veth".to_owned();
            let placement = loopback.level("placement");
            ClaimCase::ratio_within(placement, label, (loopback, veth), (1.0, 1.5))
        },
        |loopback| format!("veth, {}", loopback.level("placement")),
    );
    judge_all(found, "plumb run host.peak --set link=loopback,veth --set cpu-share=100")
}

/// The elasticity, the peak at all of the CPU, and what a byte costs there.
fn sentences(data: &PageData<'_>) -> Vec<String> {
    let rates = of(&data.cells, "throughput");
    let slope = |line: plumb_base::stats::regression::FittedLine| {
        [line.slope, line.slope_interval.lo, line.slope_interval.hi]
            .map(|number| significant(number, 2))
    };
    let slopes: Vec<String> = factor_series(&rates, "cpu-share", &["link", "placement"])
        .into_iter()
        .filter_map(|run| {
            let [slope, low, high] = slope(run.power_law_fit()?);
            Some(format!("{slope} [{low}, {high}] ({})", run.label))
        })
        .collect();
    let mut sentences =
        sentence(&slopes, "; ", |told| format!("Elasticity of throughput to CPU: {told}."));
    let whole = rates.into_iter().filter(|cell| cell.number("cpu-share") == Some(100));
    sentences.extend(whole.map(|cell| peak_sentence(&data.cells, cell)));
    sentences
}

fn peak_sentence(cells: &[&CellResult], cell: &CellResult) -> String {
    let twin =
        |response: &str| of(cells, response).into_iter().find(|twin| twin.factors == cell.factors);
    let side = |response: &&str| {
        let each = significant(1e9 / twin(response)?.summary.median?, 3);
        Some(format!("{each} ns of the {}'s", name::side(response)))
    };
    let sides: Vec<String> = SIDES.iter().filter_map(side).collect();
    let place = levels(cell, &["link", "placement"]);
    let mut sentence = format!("Peak over {place}: {}", value::median(cell));
    if !sides.is_empty() {
        let _ = write!(sentence, "; a byte costs {} CPU", sides.join(" and "));
    }
    if let Some(share) = twin("in-stack").and_then(|stack| stack.summary.median) {
        let share = value::estimate(Unit::Share, share, None);
        let _ = write!(sentence, "; {share} of the CPU time is the protocol stack's");
    }
    sentence + "."
}
