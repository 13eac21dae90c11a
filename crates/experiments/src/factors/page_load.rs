//! How long fetching a page over a path takes.

use plumb_base::time::Span;
use plumb_harness::spec::PageLoadSpec;
use plumb_interop::http::client::HttpFetchMode;

use super::link::LOOPBACK;

/// A path that loses one frame in fifty: most visits lose one.
pub(crate) const LOSSY: &str = "rate=10mbit,queue=drop-tail,limit=1bdp,loss=0.02,delay=25ms";

/// Why a page is not fetched over a network that needs too long for it.
pub(crate) fn too_long(spec: &PageLoadSpec) -> Option<String> {
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
const BYTES: u64 = 50_000;
/// The page and its images.
const OBJECTS: u64 = 13;
/// Round trips to connect, for the page and for all images at once, whose window has to grow.
const AT_ONCE: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn visits(link: &str, way: HttpFetchMode) -> PageLoadSpec {
        let path = (link != LOOPBACK)
            .then(|| crate::factors::link::path_over_link(link, link, 1_500).unwrap());
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
        assert!(told.contains("340 s") && told.contains("faster link"), "{told}");
        for way in HttpFetchMode::ALL {
            assert_eq!(too_long(&visits("ethernet-10m", way)), None, "{way:?}");
        }
    }
}
