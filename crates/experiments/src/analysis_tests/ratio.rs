//! Ratios of runs whose truth is known.

use crate::list::registry;
use plumb_analysis::ratio::ratios;
use plumb_store::record::Factors;

use plumb_analysis::fixture::SyntheticRun;
use plumb_analysis::summary::measured_cells;

fn mirror(stack: &str, device: &str, frame: u64) -> Factors {
    let factors = Factors::default().with("stack", stack).with("device", device);
    factors.with("placement", "same-cpu").with("wake", "block").with("frame", frame)
}

#[test]
fn stacks_are_set_against_each_other_at_equal_settings_only() {
    let mut synthetic = SyntheticRun::new(3);
    for frame in [60, 1514] {
        let ns = frame as f64 + 4_000.0;
        synthetic.measure("mirror.rtt", "rtt", mirror("linux", "veth", frame), ns);
        synthetic.measure("mirror.rtt", "rtt", mirror("plumb", "tap", frame), ns * 0.8);
    }
    let found = ratios(&registry(), &measured_cells(&synthetic.data));
    assert_eq!(found.len(), 2, "{found:?}");
    for ratio in &found {
        assert_eq!(ratio.of["frame"], ratio.to["frame"]);
        assert!(ratio.ci95[0] < 0.8 && 0.8 < ratio.ci95[1], "{ratio:?}");
    }
}

#[test]
fn nothing_is_set_against_what_was_not_measured() {
    let mut synthetic = SyntheticRun::new(4);
    synthetic.measure("mirror.rtt", "rtt", mirror("plumb", "tap", 60), 3_000.0);
    assert!(ratios(&registry(), &measured_cells(&synthetic.data)).is_empty());
}
