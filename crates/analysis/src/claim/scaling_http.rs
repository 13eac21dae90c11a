//! Claims about a web page over every version of HTTP.
//!
//! A visit takes its round trips and the time of its bytes at the least; both are known of the link. Left out:
//! what faster processors would give, of which one run knows nothing.

use plumb_base::units::Unit;

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, every};
use super::published::{HTTP, HTTP_3, MARKATOS, NIELSEN};
use super::scaling::{keeps_time, one_machine};
use crate::contrast;
use crate::ladder::METROPOLITAN;
use crate::summary::Measured;

const EXPERIMENT: &str = "scaling.http";

/// Time for the whole page.
const PAGE: &str = "page";

/// The claims of `scaling.http`.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "scaling.http.lags-processors",
        experiment: EXPERIMENT,
        claim: "Fetching a page of 10 Kbytes and its 12 images within one computer improves by about 30 % of \
                what processors do.",
        source: MARKATOS,
        historical: Some("about 30 %, much less than TCP (Figure 5)"),
        judge: |evidence| {
            one_machine(evidence, (EXPERIMENT, PAGE), |cell| {
                way(cell) == "one-each" && link(cell) == "loopback"
            })
        },
    },
    Claim {
        id: "scaling.http.small-files-cost-their-connections",
        experiment: EXPERIMENT,
        claim: "Transfers of small files suffer large initialization overheads.",
        source: MARKATOS,
        historical: Some("the reason that is given for 30 %"),
        judge: |evidence| {
            let pairs = against(
                evidence,
                "keep-alive",
                "one-each",
                |_| true,
                |place, label, ratio| Case::ratio_within(place, label, ratio, LARGE),
            );
            every(pairs, "plumb run scaling.http --set way=one-each,keep-alive")
        },
    },
    Claim {
        id: "scaling.http.pipelining-beats-connections",
        experiment: EXPERIMENT,
        claim: "HTTP/1.1 with pipelining is faster than a connection per object, over every network.",
        source: NIELSEN,
        historical: Some("packets at least halved; the time depended on the network"),
        judge: |evidence| {
            let pairs = against(evidence, "pipelined", "one-each", |_| true, Case::order);
            every(pairs, "plumb run scaling.http --set way=one-each,pipelined")
        },
    },
    Claim {
        id: "scaling.http.round-trips",
        experiment: EXPERIMENT,
        claim: "Over a long network a visit is mostly its round trips and its bytes, and never less: two round \
                trips an object with a connection each, one an object and one to connect when kept alive, \
                three where all images are asked for at once, and a fourth over HTTP/3 to prove the \
                client's address.",
        source: HTTP,
        historical: None,
        judge: round_trips,
    },
    Claim {
        id: "scaling.http.loss-stalls-http2",
        experiment: EXPERIMENT,
        claim: "Where packets are lost HTTP/3 is faster than HTTP/2, all of whose transactions stall with each.",
        source: HTTP_3,
        historical: None,
        judge: |evidence| {
            let is_lossy = |cell: &Measured<'_>| loses(evidence, cell);
            let pairs = against(evidence, "http3", "http2", is_lossy, Case::order);
            every(pairs, "plumb run scaling.http --set way=http2,http3 --set link=lossy")
        },
    },
];

/// From where on an overhead is large: a tenth of the time without it.
const LARGE: (f64, f64) = (1.1, f64::INFINITY);

/// Round trips from which on a network is long, in nanoseconds.
const LONG_NS: f64 = 1e6;

/// The share of a visit that its round trips and its bytes are where they decide. Never more than all; the
/// round trip itself is known to a hundredth.
const MOST: (f64, f64) = (0.5, 1.01);

/// Bits of all bodies.
const BITS: f64 = 8.0 * 40_000.0;

/// The page and its images.
const OBJECTS: f64 = 13.0;

fn way<'a>(cell: &'a Measured<'_>) -> &'a str {
    cell.cell.factors.text("way").unwrap_or("unknown")
}

fn link<'a>(cell: &'a Measured<'_>) -> &'a str {
    cell.cell.factors.text("link").unwrap_or("unknown")
}

fn placement<'a>(cell: &'a Measured<'_>) -> &'a str {
    cell.cell.factors.text("placement").unwrap_or("unknown")
}

/// A link by a name that fits into a sentence.
fn over<'a>(cell: &'a Measured<'_>) -> &'a str {
    let link = link(cell);
    if link == METROPOLITAN { "metropolitan" } else { link }
}

/// The name of what a launch found out about the path of a cell.
fn fact(cell: &Measured<'_>, name: &str) -> String {
    let path = link(cell);
    let path = if path.starts_with("outer") { "outer" } else { path };
    let path = if path.starts_with("host:") { "host" } else { path };
    format!("channel.{} over {path}.{name}", way(cell))
}

/// Whether packets are lost on a cell's link by themselves.
fn loses(evidence: &Evidence<'_>, cell: &Measured<'_>) -> bool {
    let text = evidence.words(&fact(cell, "link")).unwrap_or("");
    ["loss=", "gilbert-elliott=", "bit-errors="].iter().any(|fault| text.contains(fault))
}

/// Two ways over each link that both were measured over: the first is claimed to be the faster.
fn against(
    evidence: &Evidence<'_>,
    better: &str,
    worse: &str,
    wanted: impl Fn(&Measured<'_>) -> bool,
    judge: impl Fn(&str, String, Option<contrast::Contrast>) -> Case,
) -> Pairs {
    let mut pairs = Pairs::default();
    let cells: Vec<&Measured<'_>> = evidence.cells(EXPERIMENT, PAGE).collect();
    for first in cells.iter().filter(|cell| way(cell) == better && wanted(cell)) {
        let second = cells.iter().find(|cell| {
            way(cell) == worse && link(cell) == link(first) && placement(cell) == placement(first)
        });
        if let Some(second) = second {
            let label = format!("{worse}/{better} {}", over(first));
            let ratio = contrast::within_run(first, second);
            pairs.cases.push(judge(placement(first), label, ratio));
        } else {
            pairs.missing.push(format!("{worse} over {}", over(first)));
        }
    }
    pairs
}

/// What round trips and bytes take at the least, as a share of what a visit takes, over long networks that lose
/// nothing.
fn round_trips(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    for cell in evidence.cells(EXPERIMENT, PAGE) {
        let Some(round_trip_ns) = evidence.note(&fact(cell, "round_trip_ns")) else { continue };
        if round_trip_ns < LONG_NS || loses(evidence, cell) {
            continue;
        }
        let round_trips = match way(cell) {
            "one-each" => 2.0 * OBJECTS,
            "keep-alive" => 1.0 + OBJECTS,
            // RFC 9000 §8.1.2: the server asks every address for a token before it says more.
            "http3" => 4.0,
            _ => 3.0,
        };
        let bytes_ns = evidence.note(&fact(cell, "rate")).map_or(0.0, |rate| BITS / rate * 1e9);
        let least = round_trips * round_trip_ns + bytes_ns;
        let ends = cell.interval().map(|interval| [least / interval.hi, least / interval.lo]);
        let label = format!("{} {}", way(cell), over(cell));
        let share = least / cell.median();
        if share < MOST.0 && !keeps_time(cell) {
            // Frames that were late make a visit longer, never shorter.
            pairs.missing.push(format!("{label} from a link that keeps its time"));
            continue;
        }
        pairs.cases.push(Case::quantity(placement(cell), label, share, ends, MOST, Unit::Share));
    }
    every(pairs, "plumb run scaling.http --set link=transatlantic")
}
