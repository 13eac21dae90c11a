//! Claims of study `scaling`: results that give *holds*, and results that give *does not hold*.

use plumb_analysis::fixture::SyntheticRun;

use super::claims::{expected, judged, verdict};
use super::gigabit_claims::make_late;
use super::stack_claims::{factors, results};
use super::verdict_pairs::VerdictPair;

pub(super) const PAIRS: &[VerdictPair] = &[
    (&["scaling.lan.networks-are-filled"], |holds| machine(if holds { 0.94 } else { 0.5 })),
    (&["scaling.trend.network-is-not-the-bottleneck"], |holds| {
        let carried = if holds { 0.4 } else { 0.94 } * 1.25e9;
        results("scaling.lan", "throughput", &[("link=lan-10g placement=same-cpu", carried)])
    }),
    (&["scaling.http.pipelining-beats-connections"], |holds| {
        pages(if holds { 26.0 } else { 14.0 }, 0.3, 0.5)
    }),
    (&["scaling.http.small-files-cost-their-connections"], |holds| {
        let fixed = if holds { 1e5 } else { 1e3 };
        let cell = |size: u64| (format!("size={size}"), fixed + 3.0 * size as f64);
        let cells = [3 << 10, 8 << 10, 64 << 10].map(cell);
        results("scaling.files", "file", &cells.each_ref().map(|(at, ns)| (at.as_str(), *ns)))
    }),
    (&["scaling.loopback.large-writes-amortise"], |holds| {
        let at = |size: u64| format!("mechanism=tcp4 placement=same-cpu size={size}");
        let longer = if holds { 5.5e9 } else { 9e9 };
        let cells = [(at(64 << 10), 5e9), (at(256 << 10), longer)];
        results(
            "throughput.local",
            "throughput",
            &cells.each_ref().map(|(at, rate)| (at.as_str(), *rate)),
        )
    }),
    (&["scaling.cause.small-are-os-bound"], |holds| {
        messages([(16, 4e3), (1_024, if holds { 4.2e3 } else { 4e4 })])
    }),
    (&["scaling.cause.entry-bounds-short-protocol-long"], |holds| {
        let mut run = messages([(16, 1e3), (64 << 10, if holds { 2e4 } else { 1.1e3 })]);
        run.measure("call.kernel", "call", factors("call=getpid via=syscall"), 100.0);
        run
    }),
    (&["scaling.http.loss-stalls-http2"], |holds| pages(26.0, 0.3, if holds { 0.5 } else { 1.0 })),
    (&["scaling.http.round-trips"], |holds| pages(26.0, if holds { 0.3 } else { 3.0 }, 1.0)),
];

/// Slopes over machines.
pub(super) const NEVER_DECIDED: &[VerdictPair] = &[
    (
        &[
            "scaling.entry.lags-processors",
            "scaling.loopback.lags-processors",
            "scaling.lan.100m-follows-processors",
            "scaling.lan.10m-lags-processors",
            "scaling.wan.lags-processors",
            "scaling.smp.scales-as-one",
        ],
        |holds| machine(if holds { 0.94 } else { 0.5 }),
    ),
    (&["scaling.http.lags-processors"], |holds| pages(26.0, if holds { 0.3 } else { 3.0 }, 1.0)),
];

/// Latencies over TCP on one CPU, by size.
fn messages(sizes: [(u64, f64); 2]) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for (size, ns) in sizes {
        let levels = factors(&format!("mechanism=tcp4 placement=same-cpu wake=block size={size}"));
        run.measure("latency.local", "latency", levels, ns);
    }
    run
}

/// What one machine measures, which carries this share of a network's rate.
fn machine(share: f64) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    run.measure("scaling.entry", "call", factors("call=getppid"), 60.0);
    let loopback = factors("link=loopback placement=same-cpu");
    run.measure("scaling.loopback", "throughput", loopback, 2e9);
    for (link, rate) in [("ethernet-10m", 1.25e6), ("lan-100m", 1.25e7)] {
        for experiment in ["scaling.lan", "scaling.wan"] {
            let at = factors(&format!("link={link} placement=same-cpu"));
            run.measure(experiment, "sender-cpu", at.clone(), 5e8);
            run.measure(experiment, "throughput", at, share * rate);
        }
    }
    for cpus in [1, 2] {
        let at = factors(&format!("link=loopback cpus={cpus} streams=4"));
        run.measure("scaling.smp", "throughput", at, 1e9 * f64::from(cpus));
    }
    run
}

#[test]
fn one_machine_gives_its_figures_and_no_slope() {
    let run = machine(0.94);
    let of_links =
        ["scaling.lan.networks-are-filled", "scaling.trend.network-is-not-the-bottleneck"];
    for (id, told) in judged(&run).iter().filter(|(id, _)| !of_links.contains(&id.as_str())) {
        assert!(told.needs.contains("fewer than 4 machines"), "{id}: {}", told.needs);
        assert!(told.effect.starts_with("one machine: ") && told.estimate.is_some(), "{told:?}");
    }
    let smp = &expected(&run)["scaling.smp.scales-as-one"];
    assert!(smp.effect.contains("2 CPUs carry"), "{}", smp.effect);
    assert!((smp.estimate.unwrap() / 2.0 - 1.0).abs() < 0.02, "{smp:?}");
}

#[test]
fn a_link_that_was_late_says_nothing_about_who_could_not_fill_it() {
    let mut late = machine(0.94);
    make_late(&mut late);
    assert_eq!(verdict(&late, "scaling.lan.networks-are-filled"), "not decided");
}

/// A page over links of known round trips and rates: the round trips of a connection for each object, so much more for
/// the rest of a visit as a share of it, and HTTP/3's round trips over those of RFC 9114.
fn pages(one_each: f64, rest: f64, http3: f64) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for (link, round_trip, text) in [
        ("loopback", 0.0, ""),
        ("far", 2e7, "rate=1gbit,delay=10ms"),
        ("lossy", 5e7, "rate=10mbit,delay=25ms,loss=2%"),
    ] {
        for (way, trips) in [
            ("one-each", one_each),
            ("keep-alive", 14.0),
            ("pipelined", if one_each > 14.0 { 3.0 } else { one_each }),
            ("http2", 3.0),
            ("http3", 4.0 * http3),
        ] {
            let at = factors(&format!("way={way} link={link} placement=same-cpu"));
            run.measure("scaling.http", "page", at, 20e6 * trips * (1.0 + rest));
            if link != "loopback" {
                let notes = &mut run.data.run.notes;
                let key = |fact: &str| format!("channel.{way} over {link}.{fact}");
                notes.insert(key("round_trip_ns"), round_trip.to_string());
                notes.insert(key("link"), text.to_owned());
            }
        }
    }
    run
}

#[test]
fn a_visit_below_its_round_trips_refutes_what_bounds_it() {
    assert_eq!(verdict(&pages(26.0, -0.3, 1.0), "scaling.http.round-trips"), "does not hold");
}

#[test]
fn frames_that_were_late_do_not_refute_what_bounds_a_visit() {
    let mut slow = pages(26.0, 3.0, 1.0);
    make_late(&mut slow);
    assert_eq!(verdict(&slow, "scaling.http.round-trips"), "not decided");
}
