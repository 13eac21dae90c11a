//! What writes at a rate, and what passes on what another connection brings.

use plumb_base::time::Span;
use plumb_link::text::NoFiles;
use plumb_sim::report::SimulationReport;
use plumb_sim::scenario::{Scenario, SweepPoint};

use crate::network;

/// A star of three hosts of 10 Mb/s and 1 ms to the hub, for a minute.
fn star(flows: &str) -> Result<Scenario, String> {
    let text = format!(
        "duration = \"60s\"\n[topology]\nkind = \"star\"\nhosts = 3\nlink = \"rate=10mbit,delay=1ms,limit=100packets\"\n{flows}"
    );
    Scenario::from_toml(&text, "a test", &SweepPoint::default(), &NoFiles)
        .map_err(|error| error.to_string())
}

fn run(flows: &str) -> SimulationReport {
    network::run(star(flows).expect("a scenario"))
}

const LINES: &str = "[[flow]]\nname = \"in\"\nfrom = \"host1\"\nto = \"host2\"\nnagle = false\nrate = \"64kbit\"\nwrite = 80\n";
const RELAY: &str =
    "[[flow]]\nname = \"out\"\nfrom = \"host2\"\nto = \"host3\"\nnagle = false\nrelays = \"in\"\n";

fn median(report: &SimulationReport, flow: usize) -> Span {
    let delays = report.flows[flow].delays.as_ref().expect("lines were read");
    Span::from_ns(delays.quantile(0.5))
}

#[test]
fn lines_at_a_rate_take_the_delay_of_their_path() {
    let report = run(LINES);
    let rate = report.flows[0].goodput();
    assert!((63_500.0..=64_100.0).contains(&rate), "{rate}");
    // Two links of 1 ms and 0.1 ms of transmission each.
    let delay = median(&report, 0);
    assert!((Span::from_us(2_180)..Span::from_us(2_250)).contains(&delay), "{delay}");
}

#[test]
fn a_relay_passes_everything_on_and_adds_its_path() {
    let report = run(&format!("{LINES}{RELAY}"));
    let [first, second] = [0, 1].map(|flow| report.flows[flow].counts.received.bytes);
    assert!(first.abs_diff(second) < 1_000 && second > 450_000, "{first} and {second} bytes");
    assert!(report.flows[0].delays.is_none(), "they do not end there");
    // Both halves are one for whoever reads.
    assert_eq!((report.goodput(), report.fairness()), (report.flows[1].goodput(), None));
    let delay = median(&report, 1);
    assert!((Span::from_us(4_360)..Span::from_us(4_500)).contains(&delay), "{delay}");
}

#[test]
fn a_file_that_is_relayed_ends_with_its_last_byte() {
    let file = LINES.replace("rate = \"64kbit\"\nwrite = 80\n", "bytes = 1000000\n");
    let report = run(&format!("{file}{RELAY}"));
    assert_eq!(report.flows[1].counts.received.bytes, 1_000_000);
    let [first, second] = [0, 1].map(|flow| report.flows[flow].ended.expect("it has ended"));
    assert!(first < second && second < Span::from_secs(2), "{first} and {second}");
}

#[test]
fn a_slow_second_connection_holds_the_first_back() {
    let file = LINES.replace("rate = \"64kbit\"\nwrite = 80\n", "");
    let slow = "[[processor]]\nhosts = \"host3\"\nper_packet = \"10ms\"\n";
    let report = run(&format!("{file}{RELAY}{slow}"));
    let [first, second] = [0, 1].map(|flow| report.flows[flow].goodput());
    assert!((0.5e6..1.2e6).contains(&second), "{second}");
    // The difference that both connections' buffers can hold, over a minute.
    assert!(first - second < 8.0 * 6.5e6 / 60.0, "{first} and {second}");
}

#[test]
fn a_relay_of_nothing_is_refused_with_what_would_be_right() {
    for (flows, reason) in [
        (RELAY.to_owned(), "no flow before this one has the name 'in'"),
        (format!("{LINES}{}", RELAY.replace("host2", "host1")), "begin it there"),
        (format!("{LINES}{RELAY}{RELAY}"), "relayed by two"),
        (format!("{LINES}{RELAY}bytes = 5\n"), "give the other"),
        (LINES.replace("rate = \"64kbit\"\n", ""), "need a 'rate'"),
        (LINES.replace("write = 80", "write = 0"), "no time between"),
    ] {
        let scenario = star(&flows);
        let found = scenario.and_then(|it| it.check().map_err(|error| error.to_string()));
        let error = found.expect_err(reason);
        assert!(error.contains(reason), "{error}");
    }
}
