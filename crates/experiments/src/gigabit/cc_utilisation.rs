//! `cc.utilisation`: how much of a link congestion control fills, by the room of its queue.
//!
//! One flow of the kernel's TCP over an emulated link that drops from the tail. A sawtooth needs a queue as large as
//! the path to keep a link full, and less leaves it idle after every loss; so the queue goes from none to twice the
//! product of rate and round trip. Left out so far: several flows, loss, burstiness, pacing.

use plumb_base::time::Span;
use plumb_base::units::quantity::{format_span, parse_span};
use plumb_report::figure::by_level::{self, LevelPlot};

use super::window_bdp::{ROUND_TRIP, WindowedLink};
use crate::claims::{WEIGLE, is_link_on_time};
use crate::factor::channel::{CONGESTION, THROUGHPUT};
use crate::factor::link::{self, MTU};
use crate::factor::remote::{self, INTERVAL_MIN, MESSAGE, SAME_CPU};
use crate::pages::{best_tile, levels, of, sentence};
use crate::prelude::*;

/// Throughput against the queue.
pub static EXPERIMENT: Experiment = Experiment {
    id: "cc.utilisation",
    study: "gigabit",
    question: "How much of a link does one flow fill, by its congestion control and the link's queue?",
    hypothesis: "Reno fills three quarters of a link that has no queue, and all of one whose queue \
                 holds the product of rate and round trip.",
    factors: &[
        Factor::of_words(
            "queue",
            "room of the link's queue, in products of its rate and its round trip; 0bdp is one packet",
            &QUEUES,
        )
        .at_quick(Words(&["0bdp", "0.5bdp", "1bdp", "2bdp"])),
        Factor { applies: always, ..CONGESTION }
            .at(Words(&["reno", "cubic", "bbr"]))
            .at_quick(Words(&["reno"])),
        ROUND_TRIP.at(Words(&["2ms"])),
        link::RATE,
        SAME_CPU,
    ],
    responses: &[THROUGHPUT],
    plan_cell,
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Congestion control and the link's queue",
        figures: Some(|data| by_level::figures(&data.cells, &QUEUE)),
        sentences,
        tiles: |data| best_tile(data, "throughput", "highest throughput", false),
        tile_rank: 10,
        ..ExperimentPage::PLAIN
    },
};

const QUEUES: [&str; 5] = ["0bdp", "0.25bdp", "0.5bdp", "1bdp", "2bdp"];

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    let rtt = point.text("rtt").and_then(|text| parse_span(text).ok());
    let (Some(rtt), Some(rate), Some(queue)) = (rtt, point.text("rate"), point.text("queue"))
    else {
        return Err(Exclusion::impossible("no round trip, no rate or no queue is given"));
    };
    // A queue has room for one packet at least.
    let limit = if queue == "0bdp" { "1packet" } else { queue };
    let text = format!("rate={rate},delay={},queue=drop-tail,limit={limit}", format_span(rtt / 2));
    let path = link::path_over_link(&format!("{rate} {} {queue}", format_span(rtt)), &text, MTU)?;
    let cycle = WindowedLink::parse(rate, &format_span(rtt), None).map_or(Span::ZERO, |link| {
        sawtooth(link.bdp, queue.trim_end_matches("bdp").parse().unwrap_or(1.0), rtt)
    });
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

const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
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
}];

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
    panel_factors: &["congestion"],
    pictures: &[("Throughput", &["throughput"], false)],
};

/// What each congestion control fills of the link.
fn sentences(data: &PageData<'_>) -> Vec<String> {
    let cells = of(&data.cells, "throughput");
    let mut controls: Vec<&str> = cells.iter().map(|cell| cell.level("congestion")).collect();
    controls.dedup();
    let told = |control: &&str| {
        let share = |cell: &&&CellResult| {
            let link = WindowedLink::parse(cell.text("rate")?, cell.text("rtt")?, None)?;
            let share = cell.summary.median? / link.capacity;
            let share = value::estimate(Unit::Share, share, None);
            Some(format!("{share} ({})", levels(cell, &["queue", "rtt", "rate"])))
        };
        let mut cells: Vec<&&CellResult> =
            cells.iter().filter(|cell| cell.level("congestion") == *control).collect();
        cells.sort_by_cached_key(|cell| by_level::order(cell, "queue", &QUEUES));
        let shares: Vec<String> = cells.iter().filter_map(share).collect();
        sentence(&shares, "; ", |told| {
            format!("{} fills, of what the link can carry: {told}.", name::capitalize(control))
        })
    };
    controls.iter().flat_map(told).collect()
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
