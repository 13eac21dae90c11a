//! `scaling.http`: how long a web page takes over every version of HTTP.
//!
//! One page of about 10 kB and its 12 images, 40 kB in all, fetched with every connection made anew. Left out:
//! the processors that it is to be compared over, which are other machines' results.

use plumb_analysis::ladder::METROPOLITAN;
use plumb_base::units::Unit;
use plumb_harness::spec::WakeMode;
use plumb_harness::spec::{BlockTask, LaunchSubject, PageLoadSpec};
use plumb_interop::http::client::HttpFetchMode;
use plumb_store::record::Better;

use crate::definition::{
    CellDecision, DesignPoint, Exclusion, Experiment, LaunchGroup, ResponseVariable,
};
use crate::factor::{Factor, FactorDomain, LevelParser, always, keep_levels, words};
use crate::factors::channel;
use crate::factors::link::{self, LINK, LOOPBACK, OUTER, VETH};
use crate::factors::page_load::{self, LOSSY};
use crate::factors::remote::ONE_HOST_PLACEMENT;
use crate::preset::RunPreset;
use plumb_analysis::registry::ExperimentAnalysis;

/// A page over every version of HTTP.
pub static EXPERIMENT: Experiment = Experiment {
    id: "scaling.http",
    study: "scaling",
    question: "How long does a page with its images take over each version of HTTP?",
    hypothesis: "Without a network the fewest connections and the least encryption are the fastest; over a \
                 long one round trips decide, and requests that do not wait for each other win.",
    factors: &[
        FETCH_MODE,
        Factor {
            levels: |context| match (&context.surroundings.outer_link, context.preset) {
                (Some(_), _) => words(&[OUTER]),
                (None, RunPreset::Quick) => words(&[LOOPBACK, "lan-1g", METROPOLITAN]),
                (None, _) => words(&[
                    LOOPBACK,
                    VETH,
                    "lan-10g",
                    "lan-1g",
                    "lan-100m",
                    "ethernet-10m",
                    METROPOLITAN,
                    "transatlantic",
                    LOSSY,
                ]),
            },
            ..LINK
        },
        Factor { levels: |_| words(&["same-cpu"]), ..ONE_HOST_PLACEMENT },
    ],
    responses: &[PAGE],
    plan_cell: form,
    analysis: ExperimentAnalysis {
        claims: claims::CLAIMS,
        expectations: claims::EXPECTATIONS,
        ..ExperimentAnalysis::PLAIN
    },
    page: page::PAGE,
};

/// The whole page.
const PAGE: ResponseVariable = ResponseVariable {
    name: "page",
    unit: Unit::Nanoseconds,
    better: Better::Lower,
    meaning: "from the first connection attempt to the last byte of the last image",
};

/// How the page is fetched.
const FETCH_MODE: Factor = Factor {
    name: "way",
    meaning: "how the page and its images are fetched",
    domain: FactorDomain::Parsed(&LevelParser {
        parse: |text| {
            let way = HttpFetchMode::from_name(text).ok_or_else(describe)?;
            Ok(way.name().into())
        },
        describe,
    }),
    levels: |_| words(&HttpFetchMode::ALL.map(HttpFetchMode::name)),
    applies: always,
    fit: keep_levels,
    labels: &[
        ("one-each", "a connection each"),
        ("keep-alive", "kept alive"),
        ("http2", "HTTP/2"),
        ("http3", "HTTP/3"),
    ],
};

fn describe() -> String {
    format!("one of {}", HttpFetchMode::ALL.map(HttpFetchMode::name).join(", "))
}

fn form(setting: &DesignPoint<'_>) -> CellDecision {
    let group = channel::placement_of(setting, WakeMode::Block).and_then(|placement| {
        let way = setting.factors.text(FETCH_MODE.name).unwrap_or_default().to_owned();
        let spec = PageLoadSpec { path: link::path_of(setting)?, fetch_mode: way };
        if let Some(why) = page_load::too_long(&spec) {
            return Err(Exclusion::Impossible(why));
        }
        Ok(LaunchGroup { subject: LaunchSubject::PageLoads(Box::new(spec)), placement, cpu: None })
    });
    CellDecision::measure(group, BlockTask::PageLoad)
}

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::scaling::*;
    use plumb_analysis::claim::{
        ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, Expectation, PublishedClaim,
        PublishedFigure, judge_all,
    };
    use plumb_analysis::cost_ratio::{self, CostRatio};
    use plumb_analysis::ladder::METROPOLITAN;
    use plumb_analysis::summary::MeasuredCell;
    use plumb_base::units::Unit;

    pub(super) const EXPECTATIONS: &[Expectation] = &[
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
                let pairs = against(evidence, "http3", "http2", is_lossy, ClaimCase::order);
                judge_all(pairs, "plumb run scaling.http --set way=http2,http3 --set link=lossy")
            },
        },
    ];

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "scaling.http.lags-processors",
            claim: "Fetching a page of 10 Kbytes and its 12 images within one computer improves by about 30 % of \
                what processors do.",
            source: MARKATOS,
            historical: Some("about 30 %, much less than TCP (Figure 5)"),
            figures: &[PublishedFigure::alone("slope", 0.3, Unit::Count, "Figure 5")],
            judge: |evidence| {
                single_machine_judgment(evidence, (EXPERIMENT, PAGE), |cell| {
                    way(cell) == "one-each" && link(cell) == "loopback"
                })
            },
        },
        PublishedClaim {
            id: "scaling.http.small-files-cost-their-connections",
            claim: "Transfers of small files suffer large initialization overheads.",
            source: MARKATOS,
            historical: Some("the reason that is given for 30 %"),
            figures: &[],
            judge: |evidence| {
                let pairs = against(
                    evidence,
                    "keep-alive",
                    "one-each",
                    |_| true,
                    |place, label, ratio| ClaimCase::ratio_within(place, label, ratio, LARGE),
                );
                judge_all(pairs, "plumb run scaling.http --set way=one-each,keep-alive")
            },
        },
        PublishedClaim {
            id: "scaling.http.pipelining-beats-connections",
            claim: "HTTP/1.1 with pipelining is faster than a connection per object, over every network.",
            source: NIELSEN,
            historical: Some("packets at least halved; the time depended on the network"),
            figures: &[],
            judge: |evidence| {
                let pairs = against(evidence, "pipelined", "one-each", |_| true, ClaimCase::order);
                judge_all(pairs, "plumb run scaling.http --set way=one-each,pipelined")
            },
        },
    ];

    const EXPERIMENT: &str = "scaling.http";

    /// Time for the whole page.
    const PAGE: &str = "page";

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

    fn way<'a>(cell: &'a MeasuredCell<'_>) -> &'a str {
        cell.cell.factors.text("way").unwrap_or("unknown")
    }

    fn placement<'a>(cell: &'a MeasuredCell<'_>) -> &'a str {
        cell.cell.factors.text("placement").unwrap_or("unknown")
    }

    /// A link by a name that fits into a sentence.
    fn link_label<'a>(cell: &'a MeasuredCell<'_>) -> &'a str {
        let link = link(cell);
        if link == METROPOLITAN { "metropolitan" } else { link }
    }

    /// The name of what a launch found out about the path of a cell.
    fn path_note_name(cell: &MeasuredCell<'_>, name: &str) -> String {
        let path = link(cell);
        let path = if path.starts_with("outer") { "outer" } else { path };
        let path = if path.starts_with("host:") { "host" } else { path };
        format!("channel.{} over {path}.{name}", way(cell))
    }

    /// Whether packets are lost on a cell's link by themselves.
    fn is_lossy(evidence: &ClaimEvidence<'_>, cell: &MeasuredCell<'_>) -> bool {
        let text = evidence.note_text(&path_note_name(cell, "link")).unwrap_or("");
        ["loss=", "gilbert-elliott=", "bit-errors="].iter().any(|fault| text.contains(fault))
    }

    /// Two ways over each link that both were measured over: the first is claimed to be the faster.
    fn against(
        evidence: &ClaimEvidence<'_>,
        better: &str,
        worse: &str,
        wanted: impl Fn(&MeasuredCell<'_>) -> bool,
        judge: impl Fn(&str, String, Option<CostRatio>) -> ClaimCase,
    ) -> ClaimCases {
        let mut pairs = ClaimCases::default();
        let cells: Vec<&MeasuredCell<'_>> = evidence.cells(EXPERIMENT, PAGE).collect();
        for first in cells.iter().filter(|cell| way(cell) == better && wanted(cell)) {
            let second = cells.iter().find(|cell| {
                way(cell) == worse
                    && link(cell) == link(first)
                    && placement(cell) == placement(first)
            });
            if let Some(second) = second {
                let label = format!("{worse}/{better} {}", link_label(first));
                let ratio = cost_ratio::within_run(first, second);
                pairs.cases.push(judge(placement(first), label, ratio));
            } else {
                pairs.missing.push(format!("{worse} over {}", link_label(first)));
            }
        }
        pairs
    }

    /// What round trips and bytes take at the least, as a share of what a visit takes, over long networks that lose
    /// nothing.
    fn round_trips(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        for cell in evidence.cells(EXPERIMENT, PAGE) {
            let Some(round_trip_ns) = evidence.note_number(&path_note_name(cell, "round_trip_ns"))
            else {
                continue;
            };
            if round_trip_ns < LONG_NS || is_lossy(evidence, cell) {
                continue;
            }
            let round_trips = match way(cell) {
                "one-each" => 2.0 * OBJECTS,
                "keep-alive" => 1.0 + OBJECTS,
                // RFC 9000 §8.1.2: the server asks every address for a token before it says more.
                "http3" => 4.0,
                _ => 3.0,
            };
            let bytes_ns = evidence
                .note_number(&path_note_name(cell, "rate"))
                .map_or(0.0, |rate| BITS / rate * 1e9);
            let least = round_trips * round_trip_ns + bytes_ns;
            let ends = cell.interval().map(|interval| [least / interval.hi, least / interval.lo]);
            let label = format!("{} {}", way(cell), link_label(cell));
            let share = least / cell.median();
            if share < MOST.0 && !is_link_on_time(cell) {
                // Frames that were late make a visit longer, never shorter.
                pairs.missing.push(format!("{label} from a link that keeps its time"));
                continue;
            }
            pairs.cases.push(ClaimCase::quantity(
                placement(cell),
                label,
                share,
                ends,
                MOST,
                Unit::Share,
            ));
        }
        judge_all(pairs, "plumb run scaling.http --set link=transatlantic")
    }
}

mod page {
    //! Figures and sentences.

    use crate::pages::scaling::*;

    use plumb_report::figure::by_level::{self, LevelPlot};

    use plumb_report::registry::ExperimentPage;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "A web page over every version of HTTP",
        figures: Some(|data| by_level::figures(&data.cells, &WAY)),
        sentences: |data| {
            against(&data.cells, &WAY, "keep-alive", "page", "time for the whole page")
        },
        tiles: |data| best_tile(data, "page", "the whole page at the fastest", true),
        tile_rank: 6,
        ..ExperimentPage::PLAIN
    };

    const WAY: LevelPlot = LevelPlot {
        factor: "way",
        order: &["one-each", "keep-alive", "pipelined", "http2", "http3"],
        panel_factors: &["link", "placement"],
        pictures: &[("Time for the whole page", &["page"], false)],
    };
}
