//! `scaling.http`: how long a web page takes over every version of HTTP.
//!
//! One page of about 10 kB and its 12 images, 40 kB in all, fetched with every connection made anew. Left out:
//! the processors that it is to be compared over, which are other machines' results.

use plumb_analysis::ladder::METROPOLITAN;
use plumb_base::time::Span;
use plumb_base::units::Unit;
use plumb_host::harness::spec::{Subject, Task, VisitsSpec};
use plumb_host::local::mechanism::Wake;
use plumb_net::http::client::Way;
use plumb_store::record::Better;

use super::factor::{Domain, Factor, Reader, always, keep, words};
use super::path::{self, LINK, LOOPBACK, OUTER, VETH};
use super::remote::NEAR_PLACEMENT;
use super::{Exclusion, Experiment, Form, LaunchGroup, Response, Setting, local};
use crate::link::outer::outer_link;
use crate::plan::Preset;

/// A page over every version of HTTP.
pub static SCALING_HTTP: Experiment = Experiment {
    id: "scaling.http",
    study: "scaling",
    question: "How long does a page with its images take over each version of HTTP?",
    hypothesis: "Without a network the fewest connections and the least encryption are the fastest; over a \
                 long one round trips decide, and requests that do not wait for each other win.",
    factors: &[
        WAY,
        Factor {
            levels: |preset| match (outer_link(), preset) {
                (Some(_), _) => words(&[OUTER]),
                (None, Preset::Quick) => words(&[LOOPBACK, "lan-1g", METROPOLITAN]),
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
        Factor { levels: |_| words(&["same-cpu"]), ..NEAR_PLACEMENT },
    ],
    responses: &[PAGE],
    form,
};

/// A path that loses one frame in fifty: most visits lose one.
pub(crate) const LOSSY: &str = "rate=10mbit,queue=drop-tail,limit=1bdp,loss=0.02,delay=25ms";

/// The whole page.
const PAGE: Response = Response {
    name: "page",
    unit: Unit::Nanoseconds,
    better: Better::Lower,
    meaning: "from the first connection attempt to the last byte of the last image",
};

/// How the page is fetched.
const WAY: Factor = Factor {
    name: "way",
    meaning: "how the page and its images are fetched",
    domain: Domain::Read(&Reader {
        parse: |text| {
            let way = Way::from_name(text).ok_or_else(describe)?;
            Ok(way.name().into())
        },
        describe,
    }),
    levels: |_| words(&Way::ALL.map(Way::name)),
    applies: always,
    fit: keep,
};

fn describe() -> String {
    format!("one of {}", Way::ALL.map(Way::name).join(", "))
}

fn form(setting: &Setting<'_>) -> Form {
    let group = local::place(setting, Wake::Block).and_then(|placement| {
        let way = setting.factors.text(WAY.name).unwrap_or_default().to_owned();
        let spec = VisitsSpec { path: path::of(setting.factors)?, way };
        if let Some(why) = too_long(&spec) {
            return Err(Exclusion::Impossible(why));
        }
        Ok(LaunchGroup { subject: Subject::Visits(Box::new(spec)), placement, cpu: None })
    });
    Form::of(group, Task::Visits)
}

/// Why a page is not fetched over a network that needs too long for it.
fn too_long(spec: &VisitsSpec) -> Option<String> {
    let visit = visit_time(spec);
    (visit > VISIT_LONG).then(|| {
        let over = spec.path.as_ref().map_or(LOOPBACK, |path| path.name.as_str());
        format!(
            "a page by {} over {over} takes about {:.0} s, and no visit may take more than {:.0}: choose a \
             faster link or a way with fewer round trips",
            spec.way,
            visit.as_secs_f64(),
            VISIT_LONG.as_secs_f64()
        )
    })
}

/// How long a block must be: for a dozen visits, or for a few where one takes long.
pub(crate) fn block_time(spec: &VisitsSpec, usual: Span) -> Span {
    let visit = visit_time(spec).max(VISIT);
    let visits = (BLOCK_LONG.as_ns() / visit.as_ns().max(1)).clamp(VISITS_MIN, VISITS);
    usual.max(visit * visits)
}

/// About how long a visit takes over a network: its round trips, and the time of its bytes.
fn visit_time(spec: &VisitsSpec) -> Span {
    let Some(path) = &spec.path else { return Span::ZERO };
    let round_trips = match Way::from_name(&spec.way) {
        Some(Way::OneEach) => 2 * OBJECTS,
        Some(Way::KeepAlive) => 1 + OBJECTS,
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
const BYTES: u64 = 50_000;
/// The page and its images.
const OBJECTS: u64 = 13;
/// Round trips to connect, for the page and for all images at once, whose window has to grow.
const AT_ONCE: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn visits(link: &str, way: Way) -> VisitsSpec {
        let path = (link != LOOPBACK).then(|| path::link(link, link, 1_500).unwrap());
        VisitsSpec { path, way: way.name().to_owned() }
    }

    #[test]
    fn a_block_holds_a_dozen_visits_or_a_few_that_are_long() {
        let usual = Span::from_ms(40);
        let visits_of = |link: &str, way: Way| {
            let spec = visits(link, way);
            block_time(&spec, usual).as_ns() / visit_time(&spec).max(VISIT).as_ns()
        };
        assert_eq!(visits_of(LOOPBACK, Way::OneEach), VISITS);
        assert_eq!(visits_of("lan-100m", Way::KeepAlive), VISITS);
        assert_eq!(visits_of("transatlantic", Way::OneEach), VISITS_MIN);
        assert!(visits_of("transatlantic", Way::Http3) > VISITS_MIN);
    }

    #[test]
    fn a_page_that_would_take_minutes_is_refused_with_what_would_do() {
        let told = too_long(&visits("1200-baud", Way::Http2)).unwrap();
        assert!(told.contains("340 s") && told.contains("faster link"), "{told}");
        for way in Way::ALL {
            assert_eq!(too_long(&visits("ethernet-10m", way)), None, "{way:?}");
        }
    }
}
