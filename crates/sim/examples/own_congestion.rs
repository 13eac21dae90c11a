//! A congestion control of one's own, and the questions of RFC 9743 about it: `cargo run --release -p plumb-sim --example own_congestion`.
#![expect(clippy::print_stdout, reason = "an example prints what it found")]

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_sim::cc_report;
use plumb_stack::tcp::congestion::{
    AckEvent, CongestionChoice, CongestionControl, CongestionSignal, CongestionWindow,
    CustomCongestion,
};

/// Two segments more each round trip, three quarters after loss.
#[derive(Debug)]
struct Eager;

impl CongestionControl for Eager {
    fn name(&self) -> &'static str {
        "eager"
    }

    fn on_ack(&mut self, window: &mut CongestionWindow, ack: &AckEvent) {
        let mss = u64::from(window.mss);
        let growth = if window.in_slow_start() {
            ack.acked
        } else {
            2 * mss * ack.acked / window.cwnd.max(1)
        };
        if ack.is_cwnd_limited {
            window.cwnd += growth;
        }
    }

    fn on_congestion(
        &mut self,
        window: &mut CongestionWindow,
        _: Instant,
        flight: u64,
        _: CongestionSignal,
    ) {
        window.ssthresh = (flight * 3 / 4).max(window.floor());
    }

    fn on_timeout(&mut self, window: &mut CongestionWindow, _: Instant, flight: u64, _: bool) {
        window.ssthresh = (flight / 2).max(window.floor());
    }

    fn pacing_rate(&self, _: &CongestionWindow, _: Option<Span>) -> Option<u64> {
        None
    }
}

fn main() {
    let eager =
        CongestionChoice::Custom(CustomCongestion { name: "eager", build: |_| Box::new(Eager) });
    println!("{:<8}{:<60}{:>10}{:>10}{:>10}", "section", "measure", "eager", "newreno", "cubic");
    for number in 0..cc_report::question_count() {
        let Some(finding) = cc_report::answer(number, eager, Seed(1)) else { return };
        let [newreno, cubic] = finding.standards;
        let mark = if finding.is_worth_a_look() { "  look" } else { "" };
        let unit = finding.unit;
        println!(
            "{:<8}{:<60}{:>10.2}{newreno:>10.2}{cubic:>10.2} {unit}{mark}",
            finding.section, finding.measure, finding.value
        );
    }
}
