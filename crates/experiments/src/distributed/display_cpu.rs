//! `display.cpu`: processors of client and display slowed independently, in virtual time.
//!
//! After Lantz, Nowicki & Theimer (1985, §4, Tables 4-1 to 4-4): workstations of 8 and 10 MHz, and hosts that differ by two and by four. Full
//! speed here is 10,000 times slower than this processor.

use plumb_analysis::claim::ClaimOutcome;
use plumb_analysis::summary::rounded;
use plumb_harness::spec::DisplayPath;
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, gain_interval, gains_in_order, order_cases, pairs_within, stack_ratio};
use crate::factor::display::{
    RATE, RESPONSES, SLOW_PERCENT, cell, cell_at, link, rate_at, table_entry,
};
use crate::pages::against;
use crate::prelude::*;

/// Two processors, a place and a mode a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "display.cpu",
    study: "distributed",
    question: "How much does a display gain from a faster workstation, and how much from a faster host?",
    hypothesis: "About as much as the workstation is faster, where that is the bottleneck, and little from the host. A client with a processor of \
                 its own is faster than one that shares the display's.",
    factors: &[
        Factor::of_words(
            "place",
            "the client on the workstation, or on a host over Ethernet or the ARPANET",
            &["local", "lan", "arpanet"],
        )
        .labelled(&[("lan", "10 Mb/s, 2 ms"), ("arpanet", "56 kb/s, 200 ms")]),
        Factor::of_words("workstation", "speed of the display's processor", &SPEEDS),
        Factor {
            applies: |first| first.text("place") != Some("local"),
            ..Factor::of_words("host", "speed of the client's", &SPEEDS)
        },
        Factor::of_words(
            "mode",
            "630 vectors added in batches; the same, then drawn; or each drawn as it is added, without waiting; the same with some ten times as much \
             computing by the client for each; or so a page of text",
            &["construction", "batch", "pipelined-incremental", COMPUTING, "text"],
        ),
    ],
    responses: &[RATE],
    plan_cell,
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Processors of client and display",
        figures: Some(|data| by_level::figures(&data.cells, &PLOT)),
        sentences: |data| against(&data.cells, &PLOT, "1x", "rate", "rate"),
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const SPEEDS: [&str; 4] = ["1x", "0.8x", "0.5x", "0.25x"];

const PLOT: LevelPlot = LevelPlot {
    factor: "workstation",
    order: &SPEEDS,
    panel_factors: &["place", "mode"],
    pictures: &[("Vectors a second", &["rate"], true)],
};

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    let slower = |name| match point.text(name) {
        Some("0.8x") => SLOW_PERCENT / 4 * 5,
        Some("0.5x") => SLOW_PERCENT * 2,
        Some("0.25x") => SLOW_PERCENT * 4,
        _ => SLOW_PERCENT,
    };
    let (workstation, host) = (slower("workstation"), slower("host"));
    let (link, slower_percent, is_shared) = match point.text("place") {
        Some("local") => (link("400gbit", "0"), [workstation; 2], true),
        Some("arpanet") => (link("56kbit", "100ms"), [host, workstation], false),
        _ => (link("10mbit", "1ms"), [host, workstation], false),
    };
    let item_ns = if point.text("mode") == Some(COMPUTING) { COMPUTING_NS } else { 0 };
    let path = DisplayPath::Virtual { link, slower_percent, is_shared, item_ns };
    match point.text("mode") {
        Some(COMPUTING) => cell("polygon", "pipelined-incremental", Some(path)),
        Some("text") => cell("text", "pipelined-incremental", Some(path)),
        mode => cell("polygon", mode.unwrap_or("batch"), Some(path)),
    }
}

/// A client that computes for each vector, ten times as long as a display of the same speed draws it.
const COMPUTING: &str = "computing";
const COMPUTING_NS: u32 = 10_000;

const RESPONSE: (&str, &str) = ("display.cpu", "rate");
const COMMAND: &str = "plumb run display.cpu";

/// A workstation that is a quarter faster, and a host that is twice as fast.
const WORKSTATION: [&[(&str, &str)]; 2] = [&[("workstation", "1x")], &[("workstation", "0.8x")]];
const HOST: [&[(&str, &str)]; 2] = [&[("host", "1x")], &[("host", "0.5x")]];

/// Whether the host is as fast as the workstation, or there is none.
fn has_plain_host(cell: &MeasuredCell<'_>) -> bool {
    cell.text("host").is_none_or(|host| host == "1x")
}

fn rate_of(evidence: &ClaimEvidence<'_>, levels: &[(&str, &str)]) -> Option<f64> {
    rate_at(evidence, "display.cpu", levels)
}

/// "A remote client is faster than a local one", at full speed, in these modes.
fn beats_local(evidence: &ClaimEvidence<'_>, modes: &[&str]) -> ClaimJudgment {
    let cases = modes.iter().filter_map(|mode| {
        let find = |place: &str| {
            evidence.cells("display.cpu", "rate").find(|cell| {
                cell.is("place", place)
                    && cell.is("workstation", "1x")
                    && has_plain_host(cell)
                    && cell.is("mode", *mode)
            })
        };
        let (lan, local) = find("lan").zip(find("local"))?;
        Some(ClaimCase::order("", format!("local/lan {mode}"), lan, local))
    });
    judge_all(cases.collect(), COMMAND)
}

/// The rate at a place, with both processors' speeds, in a mode.
fn at<'a>(
    evidence: &ClaimEvidence<'a>,
    (place, workstation, host): (&str, &str, &str),
    mode: &str,
) -> Option<&'a MeasuredCell<'a>> {
    let levels = [("place", place), ("workstation", workstation), ("host", host), ("mode", mode)];
    cell_at(evidence, RESPONSE, &levels)
}

/// "A host four times as fast over the ARPANET is faster than the other over Ethernet", in these modes.
fn far_beats_near(evidence: &ClaimEvidence<'_>, modes: &[&str]) -> ClaimJudgment {
    let cases = modes.iter().filter_map(|mode| {
        let far = at(evidence, ("arpanet", "1x", "1x"), mode)?;
        let near = at(evidence, ("lan", "1x", "0.25x"), mode)?;
        Some(ClaimCase::order("", format!("lan/arpanet {mode}"), far, near))
    });
    judge_all(cases.collect(), COMMAND)
}

/// "The faster host is faster over every link", in a mode.
fn faster_hosts(evidence: &ClaimEvidence<'_>, mode: &'static str) -> ClaimJudgment {
    let [fast, slow] = HOST;
    let cases = order_cases(evidence, RESPONSE, (fast, slow), |cell| {
        cell.is("workstation", "1x") && cell.is("mode", mode)
    });
    judge_all(cases, COMMAND)
}

/// By how much a rate grows with a factor: its logarithm over that of the change, with an interval.
fn sensitivity(
    (better, worse): (&MeasuredCell<'_>, &MeasuredCell<'_>),
    change: f64,
) -> Option<[f64; 3]> {
    Some(gain_interval([better, worse])?.map(|gain| gain.ln() / change.ln()))
}

/// The exponent of the rate of a host that is twice as fast, in a mode.
fn host_exponent(evidence: &ClaimEvidence<'_>, mode: &str) -> Option<[f64; 3]> {
    let of = |host| at(evidence, ("lan", "1x", host), mode);
    sensitivity((of("1x")?, of("0.5x")?), 2.0)
}

/// The same of a workstation that is a quarter faster.
fn workstation_exponent(evidence: &ClaimEvidence<'_>, mode: &str) -> Option<[f64; 3]> {
    let of = |workstation| at(evidence, ("lan", workstation, "1x"), mode);
    sensitivity((of("1x")?, of("0.8x")?), 1.25)
}

/// The same of a link of 3 Mb/s instead of 56 kb/s, between slow processors.
fn link_exponent(evidence: &ClaimEvidence<'_>) -> Option<[f64; 3]> {
    let of = |link| {
        let levels = [("processors", "slow"), ("link", link), ("mode", "batch")];
        cell_at(evidence, ("display.link", "rate"), &levels)
    };
    sensitivity((of("3mbit")?, of("56kbit")?), 3e6 / 56e3)
}

/// "The rate follows the first factor more closely than the second", by their exponents' difference.
fn outranks(label: &str, first: Option<[f64; 3]>, second: Option<[f64; 3]>) -> Option<ClaimCase> {
    let ([low, middle, high], [other_low, other, other_high]) = (first?, second?);
    let (ends, bounds) = ([low - other_high, high - other_low], (0.0, f64::INFINITY));
    Some(ClaimCase::quantity("", label.to_owned(), middle - other, Some(ends), bounds, Unit::Count))
}

/// Of a workstation that is a quarter faster, beside that of a network with 56 kb/s and 100 ms and one with 3 Mb/s.
fn processor_and_network(evidence: &ClaimEvidence<'_>) -> Option<[[f64; 3]; 2]> {
    let pair = |experiment, factor, [better, worse]: [&str; 2], chosen: &[(&str, &str)]| {
        let find = |level: &str| {
            evidence.cells(experiment, "rate").find(|cell| {
                cell.is(factor, level) && chosen.iter().all(|(name, level)| cell.is(name, *level))
            })
        };
        find(better).zip(find(worse))
    };
    let place = [("place", "lan"), ("host", "1x"), ("mode", "batch")];
    let processor = pair("display.cpu", "workstation", ["1x", "0.8x"], &place)?;
    let slow = [("processors", "slow"), ("mode", "batch")];
    let network = pair("display.link", "link", ["3mbit", "arpanet"], &slow)?;
    Some([sensitivity(processor, 1.25)?, sensitivity(network, 3e6 / 56e3)?])
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.sensitivity.processor-most-network-least",
        claim: "Performance is most sensitive to processor speed and least to network speed, as relative improvement over relative change.",
        judge: |evidence| {
            let Some([processor, network]) = processor_and_network(evidence) else {
                return ClaimJudgment::not_measured("plumb study distributed");
            };
            let outcome = if processor[0] > network[2] {
                ClaimOutcome::Holds
            } else if processor[2] < network[0] {
                ClaimOutcome::DoesNotHold
            } else {
                ClaimOutcome::NotDecided
            };
            let [of_processor, of_network] =
                [processor[1], network[1]].map(|it| significant(it, 2));
            ClaimJudgment {
                outcome,
                effect: format!(
                    "exponent of the rate: workstation {of_processor}, network {of_network}"
                ),
                estimate: Some(rounded(processor[1])),
                ci95: Some([processor[0], processor[2]].map(rounded)),
                needs: "plumb study distributed".to_owned(),
            }
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.sensitivity.rank",
        claim: "Performance depends, in approximate order, on the speed of the workstation, of the remote host, and the network's bandwidth \
                (judged by the exponents of the rate of batches over Ethernet, workstation less host and host less bandwidth; the level \
                of communication and the transport have none).",
        judge: |evidence| {
            let host = host_exponent(evidence, "batch");
            let first = outranks("workstation/host", workstation_exponent(evidence, "batch"), host);
            let second = outranks("host/bandwidth", host, link_exponent(evidence));
            judge_all(first.into_iter().chain(second).collect(), "plumb study distributed")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.sensitivity.beyond-graphics",
        claim: "The ranking of factors found with graphics holds for text (judged by the workstation's speed before the host's, as with vectors).",
        judge: |evidence| {
            let cases = ["batch", "text"].into_iter().filter_map(|mode| {
                let workstation = workstation_exponent(evidence, mode);
                outranks(
                    &format!("workstation/host {mode}"),
                    workstation,
                    host_exponent(evidence, mode),
                )
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.sensitivity.only-processors-scale",
        claim: "Faster processors buy speed almost without end; no other factor improves linearly (judged by a workstation of twice the speed \
                giving at least 1.6 times as much at each step, and an Ethernet of 3.3 times the rate at most 1.8 times).",
        judge: |evidence| {
            let is_drawn = |cell: &MeasuredCell<'_>| {
                cell.is("place", "lan") && cell.is("host", "1x") && cell.is("mode", "batch")
            };
            let steps = [("1x", "0.5x"), ("0.5x", "0.25x")].into_iter().flat_map(|(fast, slow)| {
                let levels = (&[("workstation", fast)][..], &[("workstation", slow)][..]);
                pairs_within(evidence, RESPONSE, levels, (1.6, 2.2), is_drawn)
            });
            let links = (&[("link", "10mbit")][..], &[("link", "3mbit")][..]);
            let links =
                pairs_within(evidence, ("display.link", "rate"), links, (0.9, 1.8), |cell| {
                    cell.is("processors", "slow") && cell.is("mode", "batch")
                });
            judge_all(steps.chain(links).collect(), "plumb study distributed")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.remote-bound-ignores-workstation",
        claim: "A CPU-bound application on a remote host gains little from a faster workstation (judged by a quarter more speed giving at \
                most a twentieth more, where the client computes ten times as long as the display draws).",
        judge: |evidence| {
            let [fast, slow] = WORKSTATION;
            stack_ratio(evidence, RESPONSE, (fast, slow), (0.95, 1.05), |cell| {
                cell.is("host", "1x") && cell.is("mode", COMPUTING) && cell.is("place", "lan")
            })
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.heavy-computation-gains-more",
        claim: "Applications with much computation gain more from distribution than the benchmarks do (judged by a host four times as fast \
                as the workstation).",
        judge: |evidence| {
            let gain = |mode| {
                let local = [("place", "local"), ("workstation", "0.25x"), ("mode", mode)];
                Some([
                    at(evidence, ("lan", "0.25x", "1x"), mode)?,
                    cell_at(evidence, RESPONSE, &local)?,
                ])
            };
            let cases = ["batch", "pipelined-incremental"].into_iter();
            let cases = cases.filter_map(|mode| {
                gains_in_order(&format!("computing/{mode}"), gain(COMPUTING), gain(mode))
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.workstation-gain",
        claim: "A 10-MHz workstation in place of one of 8 MHz gives up to 22 %.",
        figures: &[PublishedFigure::ratio("10 MHz to 8 MHz, most", 1.22, "§4")],
        judge: |evidence| {
            let [fast, slow] = WORKSTATION;
            stack_ratio(evidence, RESPONSE, (fast, slow), (0.95, 1.25), has_plain_host)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.table-4-1-batch",
        claim: "Batch graphics is faster on a 10-MHz workstation than on one of 8 MHz, in every configuration.",
        figures: &[
            table_entry("10 MHz, local", 210.0, "Table 4-1", |it| {
                rate_of(it, &[("place", "local"), ("workstation", "1x"), ("mode", "batch")])
            }),
            table_entry("8 MHz, local", 180.0, "Table 4-1", |it| {
                rate_of(it, &[("place", "local"), ("workstation", "0.8x"), ("mode", "batch")])
            }),
        ],
        judge: |evidence| {
            let [fast, slow] = WORKSTATION;
            let cases = order_cases(evidence, RESPONSE, (fast, slow), |cell| {
                has_plain_host(cell) && cell.is("mode", "batch")
            });
            judge_all(cases, COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.host-gain",
        claim: "A VAX-780 in place of a VAX-750 gives up to 50 %.",
        figures: &[PublishedFigure::ratio("VAX-780 to VAX-750, most", 1.5, "§4")],
        judge: |evidence| {
            let [fast, slow] = HOST;
            stack_ratio(evidence, RESPONSE, (fast, slow), (0.95, 1.5), |cell| {
                cell.is("workstation", "1x") && !cell.is("mode", "text")
            })
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.table-4-3",
        claim: "Batch and incremental display run faster between a host and a workstation over Ethernet than on the workstation alone.",
        figures: &[
            table_entry("batch, local", 220.0, "Table 4-3", |it| {
                rate_of(it, &[("place", "local"), ("workstation", "1x"), ("mode", "batch")])
            }),
            table_entry("incremental, local", 62.0, "Table 4-3", |it| {
                let mode = ("mode", "pipelined-incremental");
                rate_of(it, &[("place", "local"), ("workstation", "1x"), mode])
            }),
        ],
        judge: |evidence| beats_local(evidence, &["batch", "pipelined-incremental"]),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.workstation-matters-more",
        claim: "25 % more of the workstation's speed is almost linear, 100 % more of the host's gives at most 50 %.",
        judge: |evidence| {
            let ([fast, slow], [fast_host, slow_host]) = (WORKSTATION, HOST);
            // At least half of what the clock gives, where something is drawn.
            let linear = pairs_within(evidence, RESPONSE, (fast, slow), (1.125, 1.375), |cell| {
                has_plain_host(cell)
                    && !cell.is("mode", "construction")
                    && !cell.is("mode", "text")
                    && !cell.is("place", "arpanet")
            });
            let host =
                pairs_within(evidence, RESPONSE, (fast_host, slow_host), (0.95, 1.5), |cell| {
                    cell.is("workstation", "1x") && !cell.is("mode", "text")
                });
            judge_all(linear.into_iter().chain(host).collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.can-beat-local",
        claim: "On common hardware a distributed application can run faster than the same one run locally.",
        judge: |evidence| beats_local(evidence, &["batch"]),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.concurrency-is-the-cause",
        claim: "Although construction is slower when distributed, the concurrency of two processors makes batch and incremental display faster.",
        judge: |evidence| {
            let cases = ["construction", "batch", "pipelined-incremental"].into_iter();
            let cases = cases.filter_map(|mode| {
                let local = [("place", "local"), ("workstation", "1x"), ("mode", mode)];
                let local = cell_at(evidence, RESPONSE, &local)?;
                let remote = at(evidence, ("lan", "1x", "1x"), mode)?;
                Some(match mode {
                    "construction" => {
                        ClaimCase::order("", format!("lan/local {mode}"), local, remote)
                    }
                    _ => ClaimCase::order("", format!("local/lan {mode}"), remote, local),
                })
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.table-4-1-text",
        claim: "Text is faster on a 10-MHz workstation than on one of 8 MHz, in every configuration.",
        figures: &[
            table_entry("10 MHz, local", 7_700.0, "Table 4-1", |it| {
                rate_of(it, &[("place", "local"), ("workstation", "1x"), ("mode", "text")])
            }),
            table_entry("8 MHz, local", 6_700.0, "Table 4-1", |it| {
                rate_of(it, &[("place", "local"), ("workstation", "0.8x"), ("mode", "text")])
            }),
        ],
        judge: |evidence| {
            let [fast, slow] = WORKSTATION;
            let cases = order_cases(evidence, RESPONSE, (fast, slow), |cell| {
                has_plain_host(cell) && cell.is("mode", "text")
            });
            judge_all(cases, COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.table-4-2-construction",
        claim: "Construction is faster from a VAX-780 than from a VAX-750 over every transport.",
        figures: &[PublishedFigure::ratio("VAX-780 to VAX-750, E-IP", 1.55, "Table 4-2")],
        judge: |evidence| faster_hosts(evidence, "construction"),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.table-4-2-text",
        claim: "Text is faster from a VAX-780 than from a VAX-750 over every transport, by far the most over IP (judged over IP).",
        figures: &[PublishedFigure::ratio("VAX-780 to VAX-750, E-IP", 1.87, "Table 4-2")],
        judge: |evidence| faster_hosts(evidence, "text"),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.table-4-4",
        claim: "An application on a VAX-785 over the ARPANET runs faster than one on a VAX-750 over the local network (judged with hosts that \
                differ by four).",
        historical: Some("160 to 130 and 140 to 125 vectors a second, Table 4-4"),
        judge: |evidence| far_beats_near(evidence, &["construction", "batch"]),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.level.remote-host-outweighs-network",
        claim: "A powerful host over a long-haul network can be better than a weaker one on the local network (judged in batches, with hosts \
                that differ by four).",
        judge: |evidence| far_beats_near(evidence, &["batch"]),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.much-faster-host",
        claim: "A far faster host would give a marked gain, roughly linear with its speed (judged over Ethernet, by a host four times as \
                fast giving twice as much or more in construction).",
        judge: |evidence| {
            let levels = (&[("host", "1x")][..], &[("host", "0.25x")][..]);
            stack_ratio(evidence, RESPONSE, levels, (2.0, 4.4), |cell| {
                let is_near = cell.is("place", "lan") && cell.is("workstation", "1x");
                is_near && cell.is("mode", "construction")
            })
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.speed-follows-processor",
        claim: "The speed of an application is directly related to that of the processor it runs on (judged by an application on the \
                workstation alone).",
        judge: |evidence| {
            let levels = (&[("workstation", "1x")][..], &[("workstation", "0.5x")][..]);
            stack_ratio(evidence, RESPONSE, levels, (1.6, 2.4), |cell| cell.is("place", "local"))
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.offloading-needs-faster-hosts",
        claim: "More powerful workstations demand faster, not slower, hosts to keep up (judged by a host of half the speed costing a fast \
                workstation more than one of a quarter of its speed).",
        judge: |evidence| {
            let cases = ["construction", "batch"].into_iter().filter_map(|mode| {
                let gain = |workstation| {
                    let of = |host| at(evidence, ("lan", workstation, host), mode);
                    Some([of("1x")?, of("0.5x")?])
                };
                let label = format!("gain at 1x/0.25x {mode}");
                gains_in_order(&label, gain("1x"), gain("0.25x"))
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
];
