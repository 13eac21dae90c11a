//! Claims about time in a stack, judged on runs whose truth is known.

use super::claims::verdict;
use plumb_analysis::fixture::SyntheticRun;
use plumb_store::record::Factors;

/// Levels of factors, as `name=level`, and what was measured there.
type Cell<'a> = (&'a str, f64);

/// A run of one response.
fn run(experiment: &str, response: &str, cells: &[Cell<'_>]) -> SyntheticRun {
    let mut synthetic = SyntheticRun::new(1);
    for (levels, median) in cells {
        let factors = levels.split(' ').fold(Factors::default(), |factors, word| {
            let (name, level) = word.split_once('=').unwrap();
            match level.parse::<u64>() {
                Ok(number) => factors.with(name, number),
                Err(_) => factors.with(name, level),
            }
        });
        synthetic.measure(experiment, response, factors, *median);
    }
    synthetic
}

/// A claim, its experiment and response, and cells with one value at which it holds and one at which it does not.
type JudgedClaim<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, [f64; 2])]);

const LINUX: &str = "stack=linux device=veth";
const PLUMB: &str = "stack=plumb device=tap";

#[test]
fn every_claim_about_a_stack_can_hold_and_can_fail() {
    let at = |stack: &str, rest: &str| format!("{stack} {rest}");
    let [linux_60, plumb_60] = [LINUX, PLUMB].map(|stack| at(stack, "frame=60"));
    let [linux_1514, plumb_1514] = [LINUX, PLUMB].map(|stack| at(stack, "frame=1514"));
    let [linux_sum, plumb_sum] = [LINUX, PLUMB].map(|stack| at(stack, "frame=1514 checksum=on"));
    let [linux_off, plumb_off] = [LINUX, PLUMB].map(|stack| at(stack, "frame=1514 checksum=off"));
    let claims: &[JudgedClaim<'_>] = &[
        (
            "stack.mirror.short-20-percent-longer",
            "mirror.rtt",
            "rtt",
            &[(&linux_60, [1e4, 1e4]), (&plumb_60, [1.2e4, 0.9e4])],
        ),
        (
            "stack.mirror.long-double",
            "mirror.rtt",
            "rtt",
            &[(&linux_1514, [1e4, 1e4]), (&plumb_1514, [1.95e4, 1.2e4])],
        ),
        (
            "stack.time.equal-without-checksum",
            "stack.time",
            "stack",
            &[(&linux_off, [2e3, 2e3]), (&plumb_off, [2e3, 4e3])],
        ),
        (
            "stack.time.long-with-checksum-slower",
            "stack.time",
            "stack",
            &[(&linux_sum, [2e3, 2e3]), (&plumb_sum, [3e3, 1e3])],
        ),
        (
            "stack.checksum.removing-it-shortens-long-frames",
            "stack.time",
            "stack",
            &[(&plumb_sum, [3e3, 3e3]), (&plumb_off, [2e3, 3e3])],
        ),
        (
            "stack.checksum.one-pass-beats-two",
            "stack.checksum",
            "time",
            &[
                ("operation=fused kernel=avx2 size=1514", [60.0, 90.0]),
                ("operation=separate kernel=avx2 size=1514", [90.0, 90.0]),
                // A tie of a few bytes says nothing about a long packet.
                ("operation=fused kernel=avx2 size=20", [9.0, 9.0]),
                ("operation=separate kernel=avx2 size=20", [9.0, 18.0]),
            ],
        ),
        (
            "stack.replay.one-pass-beats-two",
            "stack.replay",
            "packet",
            &[
                ("stack=plumb turn=fused frame=1514", [300.0, 300.0]),
                ("stack=plumb turn=separate frame=1514", [400.0, 290.0]),
            ],
        ),
        (
            "stack.contention.two-stacks-fight",
            "stack.contention",
            "rtt",
            &[
                ("kernel=drops stack=plumb frame=60", [1e4, 1e4]),
                ("kernel=decodes stack=plumb frame=60", [1.3e4, 1e4]),
            ],
        ),
    ];
    assert_both_verdicts(claims);
}

/// Each claim holds by its first values and does not hold by its second ones.
fn assert_both_verdicts(claims: &[JudgedClaim<'_>]) {
    for (id, experiment, response, cells) in claims {
        for (index, expected) in ["holds", "does not hold"].into_iter().enumerate() {
            let cells: Vec<Cell<'_>> =
                cells.iter().map(|(levels, medians)| (*levels, medians[index])).collect();
            assert_eq!(verdict(&run(experiment, response, &cells), id), expected, "{id}");
        }
    }
}

#[test]
fn checksums_of_short_frames_are_not_judged() {
    let cells = ["on", "off"].map(|sum| format!("{PLUMB} frame=60 checksum={sum}"));
    let run = run("stack.time", "stack", &cells.each_ref().map(|cell| (cell.as_str(), 900.0)));
    assert_eq!(verdict(&run, "stack.checksum.removing-it-shortens-long-frames"), "not decided");
}
