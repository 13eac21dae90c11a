//! `cc.utilisation`: how much of a link congestion control fills, by the room of its queue.
//!
//! Over a link that drops from the tail: one flow of the kernel's TCP in real time, and one or many of plumb's in simulations. A sawtooth
//! needs a queue as large as the path to keep a link full, and less leaves it idle after every loss; so the queue goes from none to twice
//! the product of rate and round trip. Simulations also say how bursty the traffic is that comes to the queue, and whether a flow that
//! begins a millisecond later changes everything after it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use plumb_analysis::claim::ClaimOutcome;
use plumb_analysis::ratio::matched_pairs;
use plumb_base::stats::burstiness;
use plumb_base::time::{Instant, Span};
use plumb_base::units::quantity::{format_span, parse_span};
use plumb_harness::report::LaunchFault;
use plumb_report::figure::by_level::{self, LevelPlot};

use plumb_sim::report::SimulationReport;
use plumb_sim::simulation::{PacketObserver, START};
use plumb_wire::packet::ChecksumState;

use super::window_bdp::{ROUND_TRIP, WindowedLink};
use crate::claims::{WEIGLE, is_link_on_time, medians_within, stack_order};
use crate::factor::channel::{CONGESTION, THROUGHPUT};
use crate::factor::link::{self, MTU};
use crate::factor::remote::{self, INTERVAL_MIN, MESSAGE, SAME_CPU};
use crate::pages::{best_tile, levels, of, range, sentence};
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell};

/// Throughput against the queue.
pub static EXPERIMENT: Experiment = Experiment {
    id: "cc.utilisation",
    study: "gigabit",
    question: "How much of a link does one flow fill, by its congestion control and the link's queue?",
    hypothesis: "Reno fills three quarters of a link that has no queue, and all of one whose queue \
                 holds the product of rate and round trip.",
    factors: &[
        simulation::HOSTS,
        Factor {
            fit: |first, levels| {
                if simulation::are_simulated(first) { words(&QUEUES) } else { levels }
            },
            ..Factor::of_words(
                "queue",
                "room of the link's queue, in products of its rate and its round trip; 0bdp is one packet, and in simulations \
                 the three that one acknowledgement may send",
                &QUEUES,
            )
        }
        .at_quick(Words(&["0bdp", "1bdp"])),
        Factor {
            fit: |first, levels| {
                if simulation::are_simulated(first) {
                    words(&["reno", "vegas", "cubic", "bbr"])
                } else {
                    levels
                }
            },
            ..simulation::of_all(CONGESTION)
        }
        .at(Words(&["reno", "cubic", "bbr"]))
        .at_quick(Words(&["reno"])),
        simulation::of_simulated(Factor::new(
            "flows",
            "connections at once",
            FactorDomain::Between(1, 1_000, "a number"),
            Numbers(&[1, 10, 100]),
        ))
        .at_quick(Numbers(&[1, 10]))
        .at_paper(Numbers(&[1, 10, 100, 1_000])),
        simulation::of_simulated(Factor::of_words(
            "tcp",
            "TCP as Linux has it, without selective acknowledgements, or with pacing",
            &TCPS,
        ))
        .at_quick(Words(&["plain"])),
        Factor { fit: |first, levels| simulated_or(first, "60ms", levels), ..ROUND_TRIP }
            .at(Words(&["2ms"])),
        Factor { fit: |first, levels| simulated_or(first, "20mbit", levels), ..link::RATE },
        simulation::of_real(SAME_CPU),
    ],
    responses: &[
        THROUGHPUT,
        ResponseVariable::time("wait", "mean time of a packet in the queue"),
        ResponseVariable::share("loss", Better::Lower, "share of packets that the queue drops"),
        ResponseVariable::new(
            "dispersion",
            Unit::Count,
            Better::Lower,
            "variance ÷ mean of the packets that come to the queue in a round trip: 1 of Poisson arrivals",
        ),
        ResponseVariable::new(
            "hurst",
            Unit::Count,
            Better::Lower,
            "Hurst exponent of these counts, by the variance–time plot: ½ where they are independent",
        ),
        ResponseVariable::new(
            "sensitivity",
            Unit::Count,
            Better::Lower,
            "how far the windows of two simulations are apart of which one has a flow that begins 1 ms later, in that distance of \
             simulations that have nothing to do with each other",
        ),
    ],
    plan_cell,
    analysis: ExperimentAnalysis {
        claims: CLAIMS,
        expectations: EXPECTATIONS,
        ..ExperimentAnalysis::PLAIN
    },
    page: ExperimentPage {
        title: "Congestion control and the link's queue",
        figures: Some(|data| by_level::figures(&data.cells, &QUEUE)),
        sentences,
        tiles: |data| best_tile(data, "throughput", "highest throughput", false),
        tile_rank: 10,
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

/// The names of these responses on pages.
const RESPONSES: &[(&str, &str)] = &[
    ("wait", "time in the queue"),
    ("loss", "loss in the queue"),
    ("dispersion", "variance ÷ mean of packets a round trip"),
    ("hurst", "Hurst exponent"),
    ("sensitivity", "sensitivity to 1 ms"),
];

/// What is different of TCP, and the keys of that in a scenario.
const TCPS: [&str; 3] = ["plain", "no-sack", "paced"];

/// A level of simulated hosts, whose sawtooth has a hundred packets in flight.
fn simulated_or(first: &Factors, level: &str, levels: Vec<FactorLevel>) -> Vec<FactorLevel> {
    if simulation::are_simulated(first) { words(&[level]) } else { levels }
}

const QUEUES: [&str; 5] = ["0bdp", "0.25bdp", "0.5bdp", "1bdp", "2bdp"];

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    if simulation::are_simulated(point.factors) {
        let is_alone = point.factors.level("flows").is_some_and(|flows| flows.to_string() == "1");
        if point.response == "sensitivity" && is_alone {
            return Err(Exclusion::NotApplicable);
        }
        return Ok(simulation::cell(EXPERIMENT.id, point));
    }
    if point.response != THROUGHPUT.name {
        return Err(Exclusion::NotApplicable);
    }
    let rtt = point.text("rtt").and_then(|text| parse_span(text).ok());
    let (Some(rtt), Some(rate), Some(queue)) = (rtt, point.text("rate"), point.text("queue"))
    else {
        return Err(Exclusion::impossible("no round trip, no rate or no queue is given"));
    };
    let Some(link) = WindowedLink::parse(rate, &format_span(rtt), None) else {
        return Err(Exclusion::impossible("the rate or the round trip is not understood"));
    };
    let limit = queue_packets(queue, link.bdp).max(1.0);
    let delay = format_span(rtt / 2);
    let text = format!("rate={rate},delay={delay},queue=drop-tail,limit={limit:.0}packets");
    let path = link::path_over_link(&format!("{rate} {} {queue}", format_span(rtt)), &text, MTU)?;
    let cycle = sawtooth(link.bdp, products(queue), rtt);
    if cycle > CYCLE_MAX {
        return Err(Exclusion::impossible(format!(
            "one cycle of Reno's window takes up to {cycle} there, and more than {CYCLE_MAX} is left out: choose a \
             lower rate, a shorter round trip or a smaller queue"
        )));
    }
    let interval_ns = cycle.max(INTERVAL_MIN).as_ns();
    let group = remote::launch_group_over(point, Mechanism::Tcp4, path, |_| {})?;
    Ok((group, BlockTask::SteadyRate { size: MESSAGE, interval_ns }))
}

/// Simulates one setting. The bottleneck's limit, rate and delay are as over the emulated link.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let (rtt, rate) = (cell.span("rtt")?, cell.rate("rate")?);
    let flows: u32 = cell.number("flows")?;
    let limit = queue_packets(cell.level("queue"), rate * rtt.as_secs_f64() / 8.0).max(3.0);
    let us = |share: u64| rtt.as_ns() / 1_000 / share;
    let options = match cell.level("tcp") {
        "no-sack" => "sack = false",
        "paced" => "pacing = true",
        _ => "",
    };
    // Delays on the way to the queue vary by a packet's time, or packets that come just behind a departure always find room (Floyd and
    // Jacobson 1992).
    let vary = if flows > 1 { FRAME * 8e6 / rate } else { 0.0 }.ceil();
    let access = rate * 10.0;
    let links = simulation::chain(
        &format!(
            "rate={access:.0}bit,delay={}us..{:.0}us|rate={access:.0}bit,delay={}us",
            us(8),
            us(8) as f64 + vary,
            us(8)
        ),
        &format!("rate={rate:.0}bit,overhead=14,delay={}us,limit={limit:.0}packets", us(8) * 3),
    );
    // Many flows make up for shorter times.
    let seconds = if flows > 1 { MEASURED_S / 3 * 2 } else { MEASURED_S };
    let text = format!(
        "duration = \"{seconds}s\"\nwarmup = \"{WARMUP_S}s\"\nsample_every = \"{}us\"\n\
         {links}\
         [[flow]]\nfrom = \"left\"\nto = \"right\"\ncount = {flows}\nstart = \"0s..1s\"\ncongestion = \"{}\"\n{options}\n",
        us(1),
        cell.level("congestion"),
    );
    let scenario = cell.scenario(&text, "")?;
    let mut simulation = simulation::start(scenario.clone())?;
    let arrivals = Rc::new(RefCell::new(ArrivalCounts { bin: rtt, counts: Vec::new() }));
    simulation.observe(Box::new(SharedCounts(Rc::clone(&arrivals))));
    let report = simulation::finish(simulation)?;
    let bottleneck = report.link("router > right").expect("a link of the scenario");
    let seconds = report.elapsed.saturating_sub(report.warmup).as_secs_f64();
    let mut values = vec![
        ("throughput", report.goodput() / 8.0),
        ("wait", bottleneck.queue_mean * seconds / bottleneck.left.max(1) as f64 * 1e9),
        ("loss", bottleneck.loss()),
    ];
    let skipped = usize::try_from(WARMUP_S * 1_000_000_000 / rtt.as_ns().max(1)).unwrap_or(0);
    let counts = &arrivals.borrow().counts;
    let counts = counts.get(skipped..counts.len().saturating_sub(1)).unwrap_or_default();
    values.extend(burstiness::dispersion(counts).map(|value| ("dispersion", value)));
    values.extend(burstiness::hurst(counts).map(|value| ("hurst", value)));
    if (2..=SENSITIVE_MAX).contains(&flows) {
        let mut twin = scenario;
        twin.groups[0].flows[0].start += LATER;
        let twin = simulation::finish(simulation::start(twin)?)?;
        let other = cell.scenario(&text, "unrelated")?;
        let other = simulation::finish(simulation::start(other)?)?;
        let unrelated = window_distance(&report, &other).max(1.0);
        values.push(("sensitivity", window_distance(&report, &twin) / unrelated));
    }
    Ok(values)
}

/// Virtual seconds before figures begin, and in all: tens of a lone Reno's sawteeth.
const WARMUP_S: u64 = 15;
const MEASURED_S: u64 = 60;

/// What one flow of a twin begins later.
const LATER: Span = Span::from_ms(1);

/// Flows of which a simulation keeps the windows over time.
const SENSITIVE_MAX: u32 = 32;

/// Packets that came to the queue in each interval.
#[derive(Debug)]
struct ArrivalCounts {
    bin: Span,
    counts: Vec<f64>,
}

#[derive(Debug)]
struct SharedCounts(Rc<RefCell<ArrivalCounts>>);

impl PacketObserver for SharedCounts {
    fn on_arrival(&mut self, at: Instant, link: u32, _: &[u8], _: ChecksumState) {
        // The first link of the scenario, in its first direction.
        if link > 0 {
            return;
        }
        let mut arrivals = self.0.borrow_mut();
        let bin = at.saturating_since(START).as_ps() / arrivals.bin.as_ps();
        let bin = usize::try_from(bin).unwrap_or(0);
        if arrivals.counts.len() <= bin {
            arrivals.counts.resize(bin + 1, 0.0);
        }
        arrivals.counts[bin] += 1.0;
    }
}

/// How far the windows of two simulations are apart in their second half, on average.
fn window_distance(a: &SimulationReport, b: &SimulationReport) -> f64 {
    let apart = a.flows.iter().zip(&b.flows).map(|(a, b)| {
        let half = a.series.len().min(b.series.len()) / 2;
        let pairs = a.series.iter().zip(&b.series).skip(half);
        pairs.map(|(a, b)| a.cwnd.abs_diff(b.cwnd) as f64).sum::<f64>()
    });
    apart.sum()
}

/// The room of a queue in products of the path's rate and round trip.
fn products(queue: &str) -> f64 {
    queue.trim_end_matches("bdp").parse().unwrap_or(1.0)
}

/// The same in packets: a limit that the link is given in products is ten packets at least.
fn queue_packets(queue: &str, bdp: f64) -> f64 {
    (products(queue) * bdp / FRAME).round()
}

/// The longest that Reno's window takes from one loss to the next: half of its packets at a packet a round trip, each
/// as long as the full queue makes it. `products` is the queue's room.
fn sawtooth(bdp: f64, products: f64, rtt: Span) -> Span {
    let round_trips = (1.0 + products) * bdp / FRAME / 2.0;
    Span::from_secs_f64(round_trips * (1.0 + products) * rtt.as_secs_f64())
}

/// A full Ethernet frame.
const FRAME: f64 = 1_514.0;

/// A block holds several cycles.
const CYCLE_MAX: Span = Span::from_secs(2);

const CLAIMS: &[PublishedClaim] = &[THREE_QUARTERS, BURSTY, OTHERS];

const EXPECTATIONS: &[Expectation] = &[Expectation {
    id: "gigabit.cc.linux-and-plumb-fill-alike",
    statement: "Linux's TCP over an emulated link and plumb's in a simulation of it carry as much, within a tenth, in three of four settings.",
    basis: "both implement RFC 5681, RFC 9438 and BBR over a link of the same model",
    judge: linux_and_plumb_fill_alike,
}];

/// Settings that are compared at least, and the share of them that shall agree.
const SETTINGS: usize = 12;
const AGREE: f64 = 0.75;

/// One flow of Linux's against one of plumb's at the same queue, congestion control, round trip and rate.
fn linux_and_plumb_fill_alike(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let needs = "plumb run cc.utilisation --set congestion=reno,cubic,bbr --set queue=0.25bdp,0.5bdp,1bdp,2bdp --set rtt=10ms \
                 --set rate=50mbit --set flows=1 --launches 6";
    let cells: Vec<_> = evidence.cells(EXPERIMENT.id, "throughput").collect();
    let simulated = [("hosts", simulation::SIMULATED), ("tcp", "plain")];
    let mut ratios: Vec<(f64, String)> =
        matched_pairs(&cells, &[("hosts", "real")], &simulated, &[])
            .into_iter()
            .filter(|(real, plumb)| plumb.is("flows", 1_u64) && is_link_on_time(real))
            .map(|(real, plumb)| {
                let setting =
                    ["congestion", "queue", "rtt", "rate"].map(|factor| real.level(factor));
                (plumb.median() / real.median(), setting.join(" "))
            })
            .collect();
    if ratios.len() < SETTINGS {
        return ClaimJudgment::not_measured(needs);
    }
    let apart = |ratio: f64| ratio.ln().abs();
    ratios.sort_by(|(a, _), (b, _)| apart(*b).total_cmp(&apart(*a)));
    let agreeing = ratios.iter().filter(|(ratio, _)| (ratio - 1.0).abs() <= 0.1).count();
    let share = agreeing as f64 / ratios.len() as f64;
    let (furthest, setting) = &ratios[0];
    ClaimJudgment {
        outcome: if share >= AGREE { ClaimOutcome::Holds } else { ClaimOutcome::DoesNotHold },
        effect: format!(
            "{agreeing} of {} settings agree; furthest apart, plumb's over Linux's: {} at {setting}",
            ratios.len(),
            significant(*furthest, 3)
        ),
        estimate: Some(share),
        ci95: None,
        needs: String::new(),
    }
}

const BURSTY: PublishedClaim = PublishedClaim {
    id: "gigabit.reno.bursty",
    claim: "TCP Reno makes network traffic bursty and chaotic (judged by many flows: packets that come to the queue in a round trip vary \
            more than Poisson arrivals, and a flow that begins 1 ms later leaves the windows half as far apart as chance would, or \
            more).",
    judge: reno_is_bursty,
    ..PublishedClaim::of(WEIGLE)
};

const OTHERS: PublishedClaim = PublishedClaim {
    id: "gigabit.cc.others-do-better",
    claim: "Other versions of TCP, such as Vegas, partly remedy Reno's poor utilisation (judged by simulated single flows where Reno \
            leaves the link idle).",
    judge: |evidence| {
        let (vegas, reno) = (&[("congestion", "vegas")][..], &[("congestion", "reno")][..]);
        stack_order(evidence, (EXPERIMENT.id, "throughput"), (vegas, reno), |cell| {
            is_simulated(cell) && cell.is("flows", 1_u64) && cell.is("queue", "0bdp")
        })
    },
    ..PublishedClaim::of(WEIGLE)
};

fn is_simulated(cell: &MeasuredCell<'_>) -> bool {
    simulation::are_simulated(&cell.cell.factors)
}

/// Many flows of Reno: their dispersion beside Poisson's, and their sensitivity beside that of chance.
fn reno_is_bursty(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let mut found = ClaimCases::default();
    for (response, least) in [("dispersion", 1.0), ("sensitivity", 0.5)] {
        let cases =
            medians_within(evidence, (EXPERIMENT.id, response), (least, f64::INFINITY), |cell| {
                is_simulated(cell) && cell.is("congestion", "reno") && !cell.is("flows", 1_u64)
            });
        found.cases.extend(cases.cases);
    }
    judge_all(
        found,
        "plumb run cc.utilisation --set hosts=simulated --set congestion=reno --set flows=10",
    )
}

const THREE_QUARTERS: PublishedClaim = PublishedClaim {
    id: "gigabit.reno.three-quarters",
    claim: "TCP Reno never uses more than 75 % of the available bandwidth on average.",
    historical: Some("75 %: under 750 Mb/s on gigabit Ethernet"),
    figures: &[PublishedFigure::comparable(
        "share of the link",
        0.75,
        Unit::Share,
        "under 750 Mb/s of a gigabit",
    )],
    judge: reno_three_quarters,
    ..PublishedClaim::of(WEIGLE)
};

/// The share of the link that Reno uses at every queue.
fn reno_three_quarters(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let mut found = ClaimCases::default();
    let cells = evidence.cells(EXPERIMENT.id, "throughput");
    for cell in cells.filter(|cell| cell.is("congestion", "reno")) {
        let [queue, rtt, rate] = ["queue", "rtt", "rate"].map(|factor| cell.level(factor));
        let label = format!("queue of {queue}, {rtt}, {rate}");
        let Some(link) = WindowedLink::parse(rate, rtt, None) else { continue };
        if !is_link_on_time(cell) {
            // It is the link that is not filled.
            found.missing.push(format!("{label} from a link that keeps its time"));
            continue;
        }
        let ends = cell.ends().map(|ends| ends.map(|end| end / link.capacity));
        let share = cell.median() / link.capacity;
        let place = cell.level("congestion");
        found.cases.push(ClaimCase::quantity(place, label, share, ends, (0.0, 0.75), Unit::Share));
    }
    judge_all(found, "plumb run cc.utilisation --set congestion=reno")
}

const QUEUE: LevelPlot = LevelPlot {
    factor: "queue",
    order: &QUEUES,
    panel_factors: &["hosts", "congestion"],
    pictures: &[
        ("Throughput", &["throughput"], false),
        ("Time in the queue", &["wait"], false),
        ("Loss", &["loss"], false),
        ("Burstiness", &["dispersion"], true),
        ("Sensitivity to a start 1 ms later", &["sensitivity"], false),
    ],
};

/// What each congestion control fills of the link, by the room of the queue.
fn sentences(data: &PageData<'_>) -> Vec<String> {
    let mut filled: BTreeMap<String, BTreeMap<_, (String, Vec<f64>)>> = BTreeMap::new();
    for cell in of(&data.cells, "throughput") {
        let link = cell.text("rate").zip(cell.text("rtt"));
        let link = link.and_then(|(rate, rtt)| WindowedLink::parse(rate, rtt, None));
        let (Some(link), Some(median)) = (link, cell.summary.median) else { continue };
        let queues = filled.entry(levels(cell, &["congestion", "hosts"])).or_default();
        let queue = queues.entry(by_level::order(cell, "queue", &QUEUES)).or_default();
        queue.0 = levels(cell, &["queue"]);
        queue.1.push(median / link.capacity);
    }
    let told = |(control, queues): (String, BTreeMap<_, (String, Vec<f64>)>)| {
        let shares: Vec<String> = queues
            .into_values()
            .filter_map(|(queue, shares)| Some(format!("{} with a {queue}", range(&shares)?)))
            .collect();
        sentence(&shares, "; ", |told| {
            format!("{}: of what the link can carry, {told}.", name::capitalize(&control))
        })
    };
    filled.into_iter().flat_map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_a_cycle_of_renos_window() {
        // 100 Mb/s × 2 ms are 16.5 frames; with a queue of as many, 33 at the top: 16.5 round trips of up to 4 ms.
        let cycle = sawtooth(25_000.0, 1.0, Span::from_ms(2));
        assert_eq!(cycle.as_ns() / 1_000_000, 66);
    }
}
