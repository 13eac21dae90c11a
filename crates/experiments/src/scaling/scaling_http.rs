//! `scaling.http`: how long a web page takes over every version of HTTP.
//!
//! One page of about 10 kB and its 12 images of 40 kB, fetched with every connection made anew.

use plumb_analysis::ladder::METROPOLITAN;
use plumb_base::time::Span;
use plumb_harness::spec::PageLoadSpec;
use plumb_report::figure::by_level::{self, LevelPlot};
use plumb_result::http::HttpFetchMode;

use crate::claims::{MARKATOS, NIELSEN, is_link_on_time, single_machine_judgment};
use crate::factor::channel;
use crate::factor::link::{self, LINK, LOOPBACK, VETH};
use crate::factor::remote::SAME_CPU;
use crate::pages::{against, best_tile};
use crate::prelude::*;

/// A page over every version of HTTP.
pub static EXPERIMENT: Experiment = Experiment {
    id: "scaling.http",
    study: "scaling",
    question: "How long does a page with its images take over each version of HTTP?",
    hypothesis: "Without a network the fewest connections and the least encryption are the fastest; over a \
                 long one round trips decide, and requests that do not wait for each other win.",
    factors: &[
        Factor::new(
            "way",
            "how the page and its images are fetched",
            FactorDomain::Parsed(&LevelParser {
                parse: |text| {
                    let way = HttpFetchMode::from_name(text).ok_or_else(describe)?;
                    Ok(way.name().into())
                },
                describe,
            }),
            Found(|_| words(&HttpFetchMode::ALL.map(HttpFetchMode::name))),
        )
        .labelled(&[
            ("one-each", "a connection each"),
            ("keep-alive", "kept alive"),
            ("http2", "HTTP/2"),
            ("http3", "HTTP/3"),
        ]),
        LINK.at(Found(|context| {
            link::outer_or(context, || {
                &[
                    LOOPBACK,
                    VETH,
                    "lan-10g",
                    "lan-1g",
                    "lan-100m",
                    "ethernet-10m",
                    METROPOLITAN,
                    "transatlantic",
                    LOSSY,
                ]
            })
        }))
        .at_quick(Found(|context| link::outer_or(context, || &[LOOPBACK, "lan-1g", METROPOLITAN]))),
        SAME_CPU,
    ],
    responses: &[ResponseVariable::time(
        "page",
        "from the first connection attempt to the last byte of the last image",
    )],
    plan_cell: |point| {
        let placement = channel::placement_of(point, WakeMode::Block)?;
        let fetch_mode = point.text("way").unwrap_or_default().to_owned();
        let spec = PageLoadSpec { path: link::path_of(point)?, fetch_mode };
        if let Some(why) = too_long(&spec) {
            return Err(Exclusion::impossible(why));
        }
        let group = LaunchGroup::new(LaunchSubject::PageLoads(Box::new(spec)), placement);
        Ok((group, BlockTask::PageLoad))
    },
    analysis: ExperimentAnalysis {
        claims: CLAIMS,
        expectations: EXPECTATIONS,
        ..ExperimentAnalysis::PLAIN
    },
    page: ExperimentPage {
        title: "A web page over every version of HTTP",
        figures: Some(|data| by_level::figures(&data.cells, &WAY)),
        sentences: |data| {
            against(&data.cells, &WAY, "keep-alive", "page", "time for the whole page")
        },
        tiles: |data| best_tile(data, "page", "the whole page at the fastest", true),
        tile_rank: 6,
        ..ExperimentPage::PLAIN
    },
};

const WAY: LevelPlot = LevelPlot {
    factor: "way",
    order: &["one-each", "keep-alive", "pipelined", "http2", "http3"],
    panel_factors: &["link", "placement"],
    pictures: &[("Time for the whole page", &["page"], false)],
};

fn describe() -> String {
    format!("one of {}", HttpFetchMode::ALL.map(HttpFetchMode::name).join(", "))
}

/// A path that loses one frame in fifty: most visits lose one.
pub(crate) const LOSSY: &str = "rate=10mbit,queue=drop-tail,limit=1bdp,loss=0.02,delay=25ms";

/// Why a page is not fetched over a network that needs too long for it.
fn too_long(spec: &PageLoadSpec) -> Option<String> {
    let visit = visit_time(spec);
    (visit > VISIT_LONG).then(|| {
        let over = spec.path.as_ref().map_or(LOOPBACK, |path| path.name.as_str());
        format!(
            "a page by {} over {over} takes about {:.0} s, and no visit may take more than {:.0}: choose a \
             faster link or a way with fewer round trips",
            spec.fetch_mode,
            visit.as_secs_f64(),
            VISIT_LONG.as_secs_f64()
        )
    })
}

/// How long a block must be: for a dozen visits, or for a few where one takes long.
pub(crate) fn block_time(spec: &PageLoadSpec, usual: Span) -> Span {
    let visit = visit_time(spec).max(VISIT);
    let visits = (BLOCK_LONG.as_ns() / visit.as_ns().max(1)).clamp(VISITS_MIN, VISITS);
    usual.max(visit * visits)
}

/// About how long a visit takes over a network: its round trips, and the time of its bytes.
fn visit_time(spec: &PageLoadSpec) -> Span {
    let Some(path) = &spec.path else { return Span::ZERO };
    let round_trips = match HttpFetchMode::from_name(&spec.fetch_mode) {
        Some(HttpFetchMode::OneEach) => 2 * OBJECTS,
        Some(HttpFetchMode::KeepAlive) => 1 + OBJECTS,
        _ => AT_ONCE,
    };
    let sending = path.exchange_ns(BYTES, 0).saturating_sub(path.round_trip_ns);
    Span::from_ns(path.round_trip_ns) * round_trips + Span::from_ns(sending)
}

/// Visits of a block: so many where they are short, and so many at least.
const VISITS: u64 = 12;
const VISITS_MIN: u64 = 3;
/// One without a network, about.
const VISIT: Span = Span::from_ms(4);
/// A block of fewer visits than a dozen.
const BLOCK_LONG: Span = Span::from_secs(2);
/// The longest visit that is tried: far below what client and server give each other time for.
const VISIT_LONG: Span = Span::from_secs(8);
/// Bytes of a visit with all headers.
const BYTES: u64 = 60_000;
/// The page and its images.
const OBJECTS: u64 = 13;
/// Round trips to connect, for the page and for all images at once, whose window has to grow.
const AT_ONCE: u64 = 4;

const EXPECTATIONS: &[Expectation] = &[
    Expectation {
        id: "scaling.http.round-trips",
        statement: "Over a long network a visit is mostly its round trips and its bytes, and never less: two round \
            trips an object with a connection each, one an object and one to connect when kept alive, \
            three where all images are asked for at once, and a fourth over HTTP/3 to prove the \
            client's address.",
        basis: "RFC 9112, 9113 and 9114, over RFC 9293 and RFC 9000",
        judge: round_trips,
    },
    Expectation {
        id: "scaling.http.loss-stalls-http2",
        statement: "Where packets are lost HTTP/3 is faster than HTTP/2, all of whose transactions stall with each.",
        basis: "RFC 9114 §1.1",
        judge: |evidence| {
            let is_lossy = |cell: &MeasuredCell<'_>| is_lossy(evidence, cell);
            let pairs = faster(evidence, "http3", "http2", is_lossy, ClaimCase::order);
            judge_all(pairs, "plumb run scaling.http --set way=http2,http3 --set link=lossy")
        },
    },
];

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "scaling.http.lags-processors",
        claim: "Fetching a page of 10 Kbytes and its 12 images within one computer improves by about 30 % of \
            what processors do.",
        historical: Some("about 30 %, much less than TCP (Figure 5)"),
        figures: &[PublishedFigure::alone("slope", 0.3, Unit::Count, "Figure 5")],
        judge: |evidence| {
            single_machine_judgment(evidence, (EXPERIMENT.id, "page"), |cell| {
                cell.is("way", "one-each") && cell.is("link", LOOPBACK)
            })
        },
        ..PublishedClaim::of(MARKATOS)
    },
    PublishedClaim {
        id: "scaling.http.pipelining-beats-connections",
        claim: "HTTP/1.1 with pipelining is faster than a connection per object, over every network.",
        historical: Some("packets at least halved; the time depended on the network"),
        judge: |evidence| {
            let pairs = faster(evidence, "pipelined", "one-each", |_| true, ClaimCase::order);
            judge_all(pairs, "plumb run scaling.http --set way=one-each,pipelined")
        },
        ..PublishedClaim::of(NIELSEN)
    },
];

/// Round trips from which on a network is long, in nanoseconds.
const LONG_NS: f64 = 1e6;

/// The share of a visit that its round trips and its bytes are where they decide. Never more than all; the
/// round trip itself is known to a hundredth.
const MOST: (f64, f64) = (0.5, 1.01);

/// Bits of all bodies.
const BITS: f64 = 8.0 * 50_000.0;

/// The page and its images, as a factor.
const ALL_OBJECTS: f64 = OBJECTS as f64;

/// A link by a name that fits into a sentence.
fn link_label<'a>(cell: &MeasuredCell<'a>) -> &'a str {
    if cell.is("link", METROPOLITAN) { "metropolitan" } else { cell.level("link") }
}

/// The name of what a launch found out about the path of a cell.
fn path_note_name(cell: &MeasuredCell<'_>, name: &str) -> String {
    let path = cell.level("link");
    let path = if path.starts_with("outer") { "outer" } else { path };
    let path = if path.starts_with("host:") { "host" } else { path };
    format!("channel.{} over {path}.{name}", cell.level("way"))
}

/// Whether packets are lost on a cell's link by themselves.
fn is_lossy(evidence: &ClaimEvidence<'_>, cell: &MeasuredCell<'_>) -> bool {
    let text = evidence.note_text(&path_note_name(cell, "link")).unwrap_or("");
    ["loss=", "gilbert-elliott=", "bit-errors="].iter().any(|fault| text.contains(fault))
}

/// Two ways over each link that both were measured over: the first is claimed to be the faster.
fn faster(
    evidence: &ClaimEvidence<'_>,
    better: &'static str,
    worse: &'static str,
    wanted: impl Fn(&MeasuredCell<'_>) -> bool,
    case: impl Fn(&str, String, &MeasuredCell<'_>, &MeasuredCell<'_>) -> ClaimCase,
) -> ClaimCases {
    ClaimCases::of_twins(
        evidence.twins(
            EXPERIMENT.id,
            "page",
            "way",
            |cell| cell.is("way", better) && wanted(cell),
            |cell| cell.is("way", worse),
        ),
        |first, second| {
            let label = format!("{worse}/{better} {}", link_label(first));
            case(first.level("placement"), label, first, second)
        },
        |first| format!("{worse} over {}", link_label(first)),
    )
}

/// What round trips and bytes take at the least, as a share of what a visit takes, over long networks that lose
/// nothing.
fn round_trips(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let mut found = ClaimCases::default();
    for cell in evidence.cells(EXPERIMENT.id, "page") {
        let note = |name| evidence.note_number(&path_note_name(cell, name));
        let long = note("round_trip_ns").filter(|round_trip| *round_trip >= LONG_NS);
        let Some(round_trip_ns) = long.filter(|_| !is_lossy(evidence, cell)) else { continue };
        let way = cell.level("way");
        let round_trips = match way {
            "one-each" => 2.0 * ALL_OBJECTS,
            "keep-alive" => 1.0 + ALL_OBJECTS,
            // RFC 9000 §8.1.2: the server asks every address for a token before it says more.
            "http3" => 4.0,
            _ => 3.0,
        };
        let bytes_ns = note("rate").map_or(0.0, |rate| BITS / rate * 1e9);
        let least = round_trips * round_trip_ns + bytes_ns;
        let ends = cell.ends().map(|[lo, hi]| [least / hi, least / lo]);
        let label = format!("{way} {}", link_label(cell));
        let share = least / cell.median();
        if share < MOST.0 && !is_link_on_time(cell) {
            // Frames that were late make a visit longer, never shorter.
            found.missing.push(format!("{label} from a link that keeps its time"));
            continue;
        }
        let placement = cell.level("placement");
        found.cases.push(ClaimCase::quantity(placement, label, share, ends, MOST, Unit::Share));
    }
    judge_all(found, "plumb run scaling.http --set link=transatlantic")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visits(link: &str, way: HttpFetchMode) -> PageLoadSpec {
        let path = (link != LOOPBACK).then(|| link::path_over_link(link, link, 1_500).unwrap());
        PageLoadSpec { path, fetch_mode: way.name().to_owned() }
    }

    #[test]
    fn a_block_holds_a_dozen_visits_or_a_few_that_are_long() {
        let usual = Span::from_ms(40);
        let visits_of = |link: &str, way: HttpFetchMode| {
            let spec = visits(link, way);
            block_time(&spec, usual).as_ns() / visit_time(&spec).max(VISIT).as_ns()
        };
        assert_eq!(visits_of(LOOPBACK, HttpFetchMode::OneEach), VISITS);
        assert_eq!(visits_of("lan-100m", HttpFetchMode::KeepAlive), VISITS);
        assert_eq!(visits_of("transatlantic", HttpFetchMode::OneEach), VISITS_MIN);
        assert!(visits_of("transatlantic", HttpFetchMode::Http3) > VISITS_MIN);
    }

    #[test]
    fn a_page_that_would_take_minutes_is_refused_with_what_would_do() {
        let told = too_long(&visits("1200-baud", HttpFetchMode::Http2)).unwrap();
        assert!(told.contains("407 s") && told.contains("faster link"), "{told}");
        for way in HttpFetchMode::ALL {
            assert_eq!(too_long(&visits("ethernet-10m", way)), None, "{way:?}");
        }
    }
}
