//! `host.peak`: the most that TCP carries, against how much CPU both hosts have.
//!
//! A faster or slower processor is imitated by taking a part of every two milliseconds away. Left out: memory
//! and caches, which stay as fast as they are, and so what a real slower machine would lose besides.

use plumb_base::units::Unit;
use plumb_store::record::Better;

use crate::definition::{CellDecision, Experiment, ResponseVariable};
use crate::factor::{Factor, FactorDomain, LevelParser, always, keep_levels, numbers, words};
use crate::factors::channel::PLACEMENT;
use crate::factors::streams::{
    self, CONGESTION_CONTROL, PLAIN_LINK, RECEIVER_CPU, SENDER_CPU, STREAMED,
};
use crate::preset::RunPreset;
use plumb_analysis::registry::ExperimentAnalysis;

/// Throughput against CPU.
pub static EXPERIMENT: Experiment = Experiment {
    id: "host.peak",
    study: "gigabit",
    question: "How much more does TCP carry on a faster processor?",
    hypothesis: "Where nothing but the processor bounds it, TCP carries as much more as the processor \
                 is faster; over loopback somewhat more than between hosts, and almost all of the CPU \
                 time is the kernel's.",
    factors: &[
        PLAIN_LINK,
        CPU_SHARE,
        Factor {
            levels: |context| match context.preset {
                RunPreset::Quick => words(&["other-cpu"]),
                _ => words(&["same-cpu", "other-cpu"]),
            },
            ..PLACEMENT
        },
        CONGESTION_CONTROL,
    ],
    responses: &[
        STREAMED,
        SENDER_CPU,
        RECEIVER_CPU,
        ResponseVariable {
            name: "kernel",
            unit: Unit::Share,
            better: Better::Lower,
            meaning: "the kernel's share of the CPU time of both processes",
        },
    ],
    plan_cell: |setting| {
        let percent = streams::level_number(setting.factors, CPU_SHARE.name);
        // The kernel divides a process' time by what its ticks see, and who takes CPU time away does so in step
        // with them.
        if setting.response == "kernel" && percent < 100 {
            return CellDecision::NotApplicable;
        }
        streams::over_link(setting, |spec| spec.cpu_percent = percent)
    },
    analysis: ExperimentAnalysis { claims: claims::CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: page::PAGE,
};

/// Less would leave a process less than one interrupt takes.
const SHARE_MIN: u64 = 10;

const CPU_SHARE: Factor = Factor {
    name: "cpu-share",
    meaning: "percent of their CPUs that both processes have",
    domain: FactorDomain::Parsed(&LevelParser {
        parse: |text| streams::parse_whole_number(text, SHARE_MIN, 100).map(Into::into),
        describe: || format!("a whole percentage from {SHARE_MIN} to 100"),
    }),
    levels: |context| match context.preset {
        RunPreset::Quick => numbers(&[25, 50, 75, 100]),
        RunPreset::Default => numbers(&[25, 40, 55, 75, 100]),
        RunPreset::Paper => numbers(&[25, 30, 40, 50, 55, 60, 75, 85, 100]),
    },
    applies: always,
    fit: keep_levels,
    labels: &[],
};

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::gigabit::*;
    use plumb_analysis::claim::{
        CaseOutcome, ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, PublishedClaim,
        PublishedFigure, judge_all,
    };
    use plumb_analysis::cost_ratio::{self};
    use plumb_analysis::summary::{CONFIDENCE, MeasuredCell};
    use plumb_base::stats::regression::theil_sen;
    use plumb_base::units::{Unit, significant};

    use std::collections::BTreeMap;

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "gigabit.peak.cpu-gives-little",
            claim: "A processor that is 83 % faster raises TCP's peak by only 25 %: less than half as much.",
            source: WEIGLE,
            historical: Some(
                "400 → 733 MHz: 335 → 420 Mb/s between hosts, 485 → 590 over loopback",
            ),
            figures: &[PublishedFigure::comparable(
                "gain from 83 % more CPU",
                0.25,
                Unit::Share,
                "420 against 335 Mb/s",
            )],
            judge: cpu_gives_little,
        },
        PublishedClaim {
            id: "gigabit.peak.loopback-little-faster",
            claim: "Over loopback, without any network, TCP carries more than between hosts, but at most half \
                as much again.",
            source: WEIGLE,
            historical: Some(
                "485 against 335 Mb/s (×1.45) at 400 MHz; 590 against 420 (×1.40) at 733 MHz",
            ),
            figures: &[PublishedFigure::comparable(
                "loopback to network",
                1.45,
                Unit::Count,
                "485 against 335 Mb/s",
            )],
            judge: loopback_little_faster,
        },
        PublishedClaim {
            id: "gigabit.peak.time-is-in-the-stack",
            claim: "A machine spends the majority of the time in the protocol stack.",
            source: WEIGLE,
            historical: Some("a majority, over loopback; no figure"),
            figures: &[],
            judge: time_is_in_the_kernel,
        },
    ];

    const PEAK: &str = "host.peak";

    /// More than half; an interval's edge may be beyond the whole.
    const MAJORITY: (f64, f64) = (0.5, f64::INFINITY);

    /// Of a processor's improvement, what a peak that gains "little" takes at most: half.
    const FASTER: f64 = 733.0 / 400.0;

    /// The elasticity of throughput to CPU at each link and placement, as what 83 % more CPU would give.
    fn cpu_gives_little(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut lines: BTreeMap<String, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
        for cell in evidence.cells(PEAK, THROUGHPUT) {
            let Some(percent) = cell.cell.factors.int("cpu-share") else { continue };
            let (x, y) = lines.entry(place_label(cell)).or_default();
            x.push((percent as f64).ln());
            y.push(cell.median().ln());
        }
        let mut pairs = ClaimCases::default();
        for (place, (x, y)) in lines {
            let Some(line) = theil_sen(&x, &y, CONFIDENCE) else {
                pairs.missing.push(format!("three shares of CPU, {place}"));
                continue;
            };
            let gain = |elasticity: f64| FASTER.powf(elasticity) - 1.0;
            let [value, lo, hi] =
                [line.slope, line.slope_interval.lo, line.slope_interval.hi].map(gain);
            let most = (FASTER - 1.0) / 2.0;
            let standing = if hi < most {
                CaseOutcome::Supports
            } else if lo > most {
                CaseOutcome::Contradicts(0.0)
            } else {
                CaseOutcome::Undecided(None)
            };
            let percent = |share: f64| format!("{:+.0}%", share * 100.0);
            pairs.cases.push(ClaimCase {
                placement: place,
                label: "83% more CPU gives".to_owned(),
                value: Some(value),
                ci95: Some([lo, hi]),
                text: format!(
                    "{} ({} to {}; elasticity {})",
                    percent(value),
                    percent(lo),
                    percent(hi),
                    significant(line.slope, 2)
                ),
                outcome: standing,
                strength: most - value,
            });
        }
        judge_all(pairs, "plumb run host.peak --set cpu-share=25,50,75,100")
    }

    /// Over loopback against over a virtual Ethernet, with all of the CPU.
    fn loopback_little_faster(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        let all = || {
            let whole = |cell: &&MeasuredCell<'_>| cell.cell.factors.int("cpu-share") == Some(100);
            evidence.cells(PEAK, THROUGHPUT).filter(whole)
        };
        let link =
            |cell: &MeasuredCell<'_>, name: &str| cell.cell.factors.text("link") == Some(name);
        let rest = |cell: &MeasuredCell<'_>| cell.cell.factors.clone().without("link");
        for loopback in all().filter(|cell| link(cell, "loopback")) {
            let placement = loopback.cell.factors.text("placement").unwrap_or("unknown");
            match all().find(|cell| link(cell, "veth") && rest(cell) == rest(loopback)) {
                Some(veth) => {
                    let contrast = cost_ratio::within_run(loopback, veth);
                    let label = "loopback/veth".to_owned();
                    pairs.cases.push(ClaimCase::ratio_within(
                        placement,
                        label,
                        contrast,
                        (1.0, 1.5),
                    ));
                }
                None => pairs.missing.push(format!("veth, {placement}")),
            }
        }
        judge_all(pairs, "plumb run host.peak --set link=loopback,veth --set cpu-share=100")
    }

    /// The kernel's share of the CPU time, with all of the CPU.
    fn time_is_in_the_kernel(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        let cells = evidence.cells(PEAK, "kernel");
        for cell in cells.filter(|cell| cell.cell.factors.int("cpu-share") == Some(100)) {
            let ends = cell.interval().map(|interval| [interval.lo, interval.hi]);
            let label = "kernel".to_owned();
            let case = ClaimCase::quantity(
                &place_label(cell),
                label,
                cell.median(),
                ends,
                MAJORITY,
                Unit::Share,
            );
            pairs.cases.push(case);
        }
        judge_all(pairs, "plumb run host.peak --set cpu-share=100")
    }
}

mod page {
    //! Figures and sentences.

    use std::fmt::Write as _;

    use crate::pages::gigabit::*;
    use plumb_analysis::document::CellResult;

    use plumb_base::units::{Unit, significant};
    use plumb_report::figure::against_factor::{self, factor_series};

    use plumb_report::registry::ExperimentPage;

    use plumb_report::{name, value};

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "What more CPU carries",
        figures: Some(|data| against_factor::figures(&data.cells, &SHARE)),
        sentences: |data| peak(&data.cells),
        tiles: |data| best_tile(data, "throughput", "TCP's peak", false),
        responses: RESPONSES,

        ..ExperimentPage::PLAIN
    };

    /// The peak at all of the CPU, what a byte costs there, and the elasticity.
    fn peak(cells: &[&CellResult]) -> Vec<String> {
        let mut sentences = Vec::new();
        let mut whole: Vec<&CellResult> = of(cells, "throughput");
        whole.retain(|cell| number(cell, "cpu-share") == Some(100));
        for cell in whole {
            let side = |response: &str| -> Option<String> {
                let twin =
                    of(cells, response).into_iter().find(|twin| twin.factors == cell.factors)?;
                let each = 1e9 / twin.summary.median?;
                Some(format!("{} ns of the {}'s", significant(each, 3), name::side(response)))
            };
            let sides: Vec<String> = SIDES.iter().filter_map(|response| side(response)).collect();
            let mut sentence = format!(
                "Peak over {}: {}",
                levels(cell, &["link", "placement"]),
                median_text(cell)
            );
            if !sides.is_empty() {
                let _ = write!(sentence, "; a byte costs {} CPU", sides.join(" and "));
            }
            let kernel = of(cells, "kernel").into_iter().find(|twin| twin.factors == cell.factors);
            if let Some(share) = kernel.and_then(|kernel| kernel.summary.median) {
                let share = value::estimate(Unit::Share, share, None);
                let _ = write!(sentence, "; {share} of the CPU time is the kernel's");
            }
            sentences.push(sentence + ".");
        }
        let mut slopes = Vec::new();
        for run in factor_series(&of(cells, "throughput"), "cpu-share", &["link", "placement"]) {
            let Some(line) = run.power_law_fit() else { continue };
            let [slope, low, high] = [line.slope, line.slope_interval.lo, line.slope_interval.hi]
                .map(|number| significant(number, 2));
            slopes.push(format!("{slope} [{low}, {high}] ({})", run.label));
        }
        if !slopes.is_empty() {
            let text = format!("Elasticity of throughput to CPU: {}.", slopes.join("; "));
            sentences.insert(0, text);
        }
        sentences
    }
}
