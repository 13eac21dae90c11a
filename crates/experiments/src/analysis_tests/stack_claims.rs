//! Claims of study `stack`: results that give *holds*, and results that give *does not hold*.

use plumb_analysis::fixture::SyntheticRun;
use plumb_store::record::Factors;

use super::claims::verdict;
use super::verdict_pairs::VerdictPair;

/// Levels of factors, as `name=level`, and what was measured there.
type Cell<'a> = (&'a str, f64);

pub(super) const PAIRS: &[VerdictPair] = &[
    (&["stack.mirror.short-20-percent-longer"], |holds| {
        against_linux("mirror.rtt", "rtt", "frame=60", if holds { 1.2 } else { 0.9 })
    }),
    (&["stack.mirror.long-double"], |holds| {
        against_linux("mirror.rtt", "rtt", "frame=1514", if holds { 1.95 } else { 1.2 })
    }),
    (&["stack.time.equal-without-checksum"], |holds| {
        let levels = "frame=1514 checksum=off";
        against_linux("stack.time", "stack", levels, if holds { 1.0 } else { 2.0 })
    }),
    (&["stack.time.long-with-checksum-slower"], |holds| {
        let levels = "frame=1514 checksum=on";
        against_linux("stack.time", "stack", levels, if holds { 1.5 } else { 0.5 })
    }),
    (&["stack.checksum.removing-it-shortens-long-frames"], |holds| {
        let unsummed = if holds { 2e3 } else { 3e3 };
        results("stack.time", "stack", &[(SUMMED, 3e3), (UNSUMMED, unsummed)])
    }),
    (&["stack.checksum.one-pass-beats-two"], |holds| {
        let cells = [
            ("operation=fused kernel=avx2 size=1514", if holds { 60.0 } else { 90.0 }),
            ("operation=separate kernel=avx2 size=1514", 90.0),
            // A tie of a few bytes says nothing about a long packet.
            ("operation=fused kernel=avx2 size=20", 9.0),
            ("operation=separate kernel=avx2 size=20", if holds { 9.0 } else { 18.0 }),
        ];
        results("stack.checksum", "time", &cells)
    }),
    (&["stack.replay.one-pass-beats-two"], |holds| {
        let cells = [
            ("stack=plumb turn=fused frame=1514", 300.0),
            ("stack=plumb turn=separate frame=1514", if holds { 400.0 } else { 290.0 }),
        ];
        results("stack.replay", "packet", &cells)
    }),
    (&["stack.contention.two-stacks-fight"], |holds| {
        let cells = [
            ("kernel=drops stack=plumb frame=60", 1e4),
            ("kernel=decodes stack=plumb frame=60", if holds { 1.3e4 } else { 1e4 }),
        ];
        results("stack.contention", "rtt", &cells)
    }),
];

const SUMMED: &str = "stack=plumb device=tap frame=1514 checksum=on";
const UNSUMMED: &str = "stack=plumb device=tap frame=1514 checksum=off";

/// plumb's stack takes so many times as long as Linux's.
fn against_linux(experiment: &str, response: &str, levels: &str, times: f64) -> SyntheticRun {
    let [linux, plumb] =
        ["stack=linux device=veth", "stack=plumb device=tap"].map(|at| format!("{at} {levels}"));
    results(experiment, response, &[(&linux, 1e4), (&plumb, 1e4 * times)])
}

/// A run of one response.
pub(super) fn results(experiment: &str, response: &str, cells: &[Cell<'_>]) -> SyntheticRun {
    let mut synthetic = SyntheticRun::new(1);
    for (levels, median) in cells {
        synthetic.measure(experiment, response, factors(levels), *median);
    }
    synthetic
}

/// Factors from words such as `stack=plumb frame=60`.
pub(super) fn factors(levels: &str) -> Factors {
    levels.split_whitespace().fold(Factors::default(), |factors, word| {
        let (name, level) = word.split_once('=').unwrap();
        match level.parse::<u64>() {
            Ok(number) => factors.with(name, number),
            Err(_) => factors.with(name, level),
        }
    })
}

#[test]
fn checksums_of_short_frames_are_not_judged() {
    let cells = ["on", "off"].map(|sum| format!("stack=plumb device=tap frame=60 checksum={sum}"));
    let run = results("stack.time", "stack", &cells.each_ref().map(|cell| (cell.as_str(), 900.0)));
    assert_eq!(verdict(&run, "stack.checksum.removing-it-shortens-long-frames"), "not decided");
}
