//! The race of the stacks: plumb's beside Linux's and smoltcp's; copies and sums beside each other.
//!
//! All sides are measured by plumb itself, in one run for each heat, whose launches are interleaved:
//! what differs is the stack at the far end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::Command;

use anyhow::{Context, bail};
use plumb_base::stats::hierarchy::SampleHierarchy;
use plumb_base::units::Unit;
use serde_json::Value;

use super::BenchOptions;
use super::score::{self, BenchRow, BenchTable, RatioTarget, format_ratio};

/// What is raced in one run of plumb.
struct StackBenchRun {
    experiment: &'static str,
    response: &'static str,
    /// Factors of the run, besides its preset's.
    factors: &'static [&'static str],
    contests: &'static [StackComparison],
}

/// One side against another, at each level of the factor that the heat varies.
struct StackComparison {
    name: &'static str,
    /// Levels that pick plumb's result: `factor=level`, separated by blanks.
    ours: &'static str,
    /// Levels that pick the other.
    theirs: &'static str,
    /// Levels of both.
    both: &'static str,
    /// What the ratio of plumb's time to the other may be at most.
    target: Option<f64>,
}

const fn contest(
    name: &'static str,
    ours: &'static str,
    theirs: &'static str,
    both: &'static str,
    target: Option<f64>,
) -> StackComparison {
    StackComparison { name, ours, theirs, both, target }
}

/// Levels that pick one side.
const TAP: &str = "stack=plumb device=tap checksum=computed";
const TAP_OFFLOAD: &str = "stack=plumb device=tap checksum=offloaded";
const PACKET: &str = "stack=plumb device=packet checksum=computed";
const XDP: &str = "stack=plumb device=xdp checksum=computed";
const SUMMED: &str = "stack=plumb device=tap checksum=on";
const UNSUMMED: &str = "stack=plumb device=tap checksum=off";
const TURN: &str = "stack=plumb turn=udp cache=warm";
const TURN_COLD: &str = "stack=plumb turn=udp cache=cold";
const UNSUMMED_TURN: &str = "stack=plumb turn=udp-unsummed cache=warm";
const UNSUMMED_TURN_COLD: &str = "stack=plumb turn=udp-unsummed cache=cold";
const LINUX: &str = "stack=linux checksum=computed";
const LINUX_OFFLOAD: &str = "stack=linux checksum=offloaded";
const LINUX_SUMMED: &str = "stack=linux checksum=on";
const LINUX_UNSUMMED: &str = "stack=linux checksum=off";
const SMOLTCP_SUMMED: &str = "stack=smoltcp checksum=on";
const SMOLTCP: &str = "stack=smoltcp";
const FUSED: &str = "operation=fused kernel=best";
const BARE: &str = "operation=bare kernel=best";
const SEPARATE: &str = "operation=separate kernel=best";
const COPY: &str = "operation=copy";
/// Levels of both sides.
const ONE_CPU: &str = "placement=same-cpu wake=block";
const TWO_CPUS: &str = "placement=other wake=block";
const TWO_CPUS_SPIN: &str = "placement=other wake=spin";

const BENCH_RUNS: &[StackBenchRun] = &[
    StackBenchRun {
        experiment: "mirror.rtt",
        response: "rtt",
        factors: &["frame=60,1514", "family=ipv4", "transport=udp"],
        contests: &[
            contest("block, one CPU", TAP, LINUX, ONE_CPU, Some(0.85)),
            contest("block, one CPU, offloaded", TAP_OFFLOAD, LINUX_OFFLOAD, ONE_CPU, Some(0.85)),
            contest("block, one CPU, smoltcp", TAP, SMOLTCP, ONE_CPU, Some(1.0)),
            contest("block, two CPUs", TAP, LINUX, TWO_CPUS, Some(1.0)),
            contest("block, two CPUs, smoltcp", TAP, SMOLTCP, TWO_CPUS, Some(1.0)),
            contest("spin, two CPUs", TAP, LINUX, TWO_CPUS_SPIN, Some(0.7)),
            contest(
                "spin, two CPUs, offloaded",
                TAP_OFFLOAD,
                LINUX_OFFLOAD,
                TWO_CPUS_SPIN,
                Some(0.7),
            ),
            contest("spin, two CPUs, smoltcp", TAP, SMOLTCP, TWO_CPUS_SPIN, Some(1.0)),
            contest("packet socket, block, one CPU", PACKET, LINUX, ONE_CPU, None),
            contest("packet socket, spin, two CPUs", PACKET, LINUX, TWO_CPUS_SPIN, None),
            contest("AF_XDP, block, one CPU", XDP, LINUX, ONE_CPU, None),
            contest("AF_XDP, spin, two CPUs", XDP, LINUX, TWO_CPUS_SPIN, None),
        ],
    },
    StackBenchRun {
        experiment: "stack.time",
        response: "stack",
        factors: &["frame=60,1514", "placement=same-cpu", "wake=block", "transport=udp"],
        contests: &[
            contest("time in the stack", SUMMED, LINUX_SUMMED, "", Some(0.5)),
            contest("time in the stack, unsummed", UNSUMMED, LINUX_UNSUMMED, "", Some(0.5)),
            contest("time in the stack, smoltcp", SUMMED, SMOLTCP_SUMMED, "", Some(1.0)),
        ],
    },
    StackBenchRun {
        experiment: "stack.replay",
        response: "packet",
        factors: &["frame=60,1514"],
        contests: &[
            contest("replay from memory, smoltcp", TURN, SMOLTCP, "", Some(0.5)),
            contest("checksum's share, warm", TURN, UNSUMMED_TURN, "", None),
            contest("checksum's share, cold", TURN_COLD, UNSUMMED_TURN_COLD, "", None),
        ],
    },
    StackBenchRun {
        experiment: "stack.checksum",
        response: "time",
        factors: &["size=1514,4Ki,16Ki,32Ki,256Ki", "cache=warm"],
        contests: &[
            // At least 0.95 of memcpy's rate is at most 1/0.95 of its time.
            contest("fused, in cache, copy", FUSED, COPY, "", Some(1.0 / 0.95)),
            // The sum's share of that: the same loads and stores without it.
            contest("vector copy without sum, copy", BARE, COPY, "", None),
            contest("fused, vector copy without sum", FUSED, BARE, "", None),
            contest("fused, in cache, two passes", FUSED, SEPARATE, "", None),
        ],
    },
    StackBenchRun {
        experiment: "stack.checksum",
        response: "time",
        factors: &["size=1514,64Ki,1Mi,32Mi", "cache=cold"],
        contests: &[
            // At least 1.6 times the rate.
            contest("fused, cold, two passes", FUSED, SEPARATE, "", Some(1.0 / 1.6)),
            // The copy's share of that: as long as a buffer fits a cache, the second pass finds there what
            // the first has brought, and one pass saves no more than is left of these.
            contest("bare copy, cold, two passes", BARE, SEPARATE, "", None),
            contest("copy, cold, two passes", COPY, SEPARATE, "", None),
            contest("fused, cold, copy", FUSED, COPY, "", None),
        ],
    },
];

/// Runs every heat and prints its rows; whether no target was missed.
///
/// # Errors
/// When plumb cannot be run, or what it says is not understood.
pub fn run(options: &BenchOptions, out: &mut dyn Write) -> anyhow::Result<bool> {
    let beside = options.plumb.with_file_name("plumb-mirror-smoltcp");
    for program in [&options.plumb, &beside] {
        if !program.is_file() {
            bail!("{} is missing: cargo build --release --workspace", program.display());
        }
    }
    let launches = options.launches;
    writeln!(
        out,
        "{launches} launches of each side, in turn; ratios are times, plumb over peer.\n"
    )?;
    writeln!(
        out,
        "{:<34} {:>8} {:>10} {:>10}  {:<24} target",
        "contest", "at", "plumb", "peer", "ratio [95 % interval]"
    )?;
    let mut table = BenchTable::new(out);
    for heat in BENCH_RUNS {
        let chosen: Vec<&StackComparison> =
            heat.contests.iter().filter(|c| c.name.contains(&options.only)).collect();
        if chosen.is_empty() {
            continue;
        }
        let document = measure(options, heat, &chosen)
            .with_context(|| format!("the heat of {} failed", heat.experiment))?;
        for contest in chosen {
            table.print(rows(heat, contest, &document)?)?;
        }
    }
    table.finish()
}

/// Runs a heat as far as these contests need it; plumb's run document.
fn measure(
    options: &BenchOptions,
    heat: &StackBenchRun,
    contests: &[&StackComparison],
) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir().context("no temporary folder for the store")?;
    let mut command = Command::new(&options.plumb);
    command.args(["run", heat.experiment, "--json", "--no-progress", "--quiet", "--store"]);
    command.arg(folder.path().join("race.plumb"));
    command.arg(format!("--launches={}", options.launches));
    for factor in
        heat.factors.iter().map(|&factor| factor.to_owned()).chain(common_levels(contests))
    {
        command.arg(format!("--set={factor}"));
    }
    let output = command.output().context("plumb cannot be run")?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("plumb's output is not JSON")
}

/// `factor=level,level` of every factor of which each side of these contests names a level; where one names
/// none, plumb takes all that suit it: Linux's stack has a device of its own.
fn common_levels(contests: &[&StackComparison]) -> Vec<String> {
    let mut levels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut naming: BTreeMap<&str, usize> = BTreeMap::new();
    for (side, both) in contests.iter().flat_map(|c| [(c.ours, c.both), (c.theirs, c.both)]) {
        let words = side.split_whitespace().chain(both.split_whitespace());
        for (factor, level) in words.filter_map(|word| word.split_once('=')) {
            let level = if (factor, level) == OTHER_CPU { "other-cpu" } else { level };
            levels.entry(factor).or_default().insert(level);
            *naming.entry(factor).or_default() += 1;
        }
    }
    levels.retain(|factor, _| naming[factor] == 2 * contests.len());
    // Which instruction set is the best is known when all have been measured.
    levels.retain(|_, levels| !levels.contains("best"));
    let word = |(factor, levels): (&str, BTreeSet<&str>)| {
        format!("{factor}={}", levels.into_iter().collect::<Vec<_>>().join(","))
    };
    levels.into_iter().map(word).collect()
}

/// Any placement that is not on one CPU.
const OTHER_CPU: (&str, &str) = ("placement", "other");

/// Every pair of results that a contest speaks of.
fn rows(
    heat: &StackBenchRun,
    contest: &StackComparison,
    document: &Value,
) -> anyhow::Result<Vec<BenchRow>> {
    let all = document["results"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    let picked = |levels: &str| -> Vec<&Value> {
        all.iter()
            .filter(|r| r["response"] == heat.response && matches_levels(r, levels, all))
            .collect()
    };
    let sides = [contest.ours, contest.theirs];
    let [ours, theirs] = sides.map(|side| picked(&format!("{side} {}", contest.both)));
    // A factor that the contest does not name would compare unlike things under one name.
    for side in [&ours, &theirs] {
        if let Some(pair) = first_pair_at_one_size(side) {
            let factors = pair.map(|result| &result["factors"]);
            bail!(
                "two results for one side of {}: {} and {}",
                contest.name,
                factors[0],
                factors[1]
            );
        }
    }
    let mut rows = Vec::new();
    for ours in ours {
        let at = varied(ours);
        let Some(peer) = theirs.iter().find(|peer| varied(peer) == at) else { continue };
        let (peer, ours) = (launches(peer)?, launches(ours)?);
        let ratio = score::paired_ratio(&ours, &peer)?;
        let [ours, peer] =
            [ours, peer].map(|side| Unit::Nanoseconds.format(side.median(), 3).to_string());
        let (name, shown) = (contest.name, format_ratio(&ratio));
        let columns = format!("{name:<34} {at:>8} {ours:>10} {peer:>10}  {shown:<24}");
        let target = contest.target.map(|most| RatioTarget::AtMost(most).of_ratio(&ratio));
        rows.push((at, BenchRow::new(&columns, target)));
    }
    if rows.is_empty() {
        bail!("nothing of {} was measured; unavailable: {}", contest.name, document["unavailable"]);
    }
    rows.sort_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// Whether a result has these levels. `placement=other` is every placement but one CPU; `kernel=best` the
/// best instruction set that was measured, which is the last of its names in plumb's order.
fn matches_levels(result: &Value, levels: &str, all: &[Value]) -> bool {
    levels.split_whitespace().all(|pair| {
        let (factor, level) = pair.split_once('=').unwrap_or((pair, ""));
        let actual = result["factors"][factor].as_str();
        match (factor, level) {
            OTHER_CPU => actual.is_some_and(|place| place != "same-cpu"),
            ("kernel", "best") => actual.is_some() && actual == best_kernel(all),
            _ => actual == Some(level),
        }
    })
}

/// The instruction sets, the better ones later.
const KERNELS: [&str; 6] = ["portable", "neon", "avx2", "avx-vnni", "avx512bw", "avx512-vnni"];

fn best_kernel(all: &[Value]) -> Option<&'static str> {
    let measured = |name: &&&str| all.iter().any(|result| result["factors"]["kernel"] == ***name);
    KERNELS.iter().rfind(measured).copied()
}

/// The level of what heats vary: a frame or a size.
fn varied(result: &Value) -> String {
    let of = |name: &str| result["factors"][name].as_u64();
    of("frame").or_else(|| of("size")).map_or_else(String::new, |bytes| format!("{bytes} B"))
}

fn first_pair_at_one_size<'a>(results: &[&'a Value]) -> Option<[&'a Value; 2]> {
    let mut seen = BTreeMap::new();
    results.iter().find_map(|&result| Some([seen.insert(varied(result), result)?, result]))
}

/// A result's launches, each by its median.
fn launches(result: &Value) -> anyhow::Result<SampleHierarchy> {
    let medians = result["summary"]["launch_medians"].as_array().context("launch medians")?;
    Ok(score::launches(medians.iter().filter_map(Value::as_f64)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::peer_bench::score::TargetVerdict;

    fn result(stack: &str, placement: &str, frame: u64, medians: [f64; 3]) -> Value {
        json!({
            "response": "rtt",
            "factors": {"stack": stack, "placement": placement, "frame": frame},
            "summary": {"launch_medians": medians.repeat(2)},
        })
    }

    fn heat() -> StackBenchRun {
        StackBenchRun { experiment: "mirror.rtt", response: "rtt", factors: &[], contests: &[] }
    }

    fn raced(target: f64) -> Vec<BenchRow> {
        let heat = heat();
        let both = "placement=other";
        let contest = contest("spin", "stack=plumb", "stack=linux", both, Some(target));
        let document = json!({"results": [
            result("plumb", "same-cpu", 60, [1.0, 1.0, 1.0]),
            result("plumb", "same-cache", 60, [50.0, 51.0, 52.0]),
            result("linux", "same-cache", 60, [100.0, 101.0, 104.0]),
            result("linux", "same-cache", 1514, [100.0, 101.0, 104.0]),
        ]});
        rows(&heat, &contest, &document).unwrap()
    }

    #[test]
    fn results_meet_where_all_but_their_sides_are_equal() {
        let rows = raced(0.7);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].verdicts, [TargetVerdict::Pass]);
        // The ratios of six launches are 0.500 four times and 0.505 twice.
        let columns = &rows[0].line;
        assert!(columns.contains("60 B") && columns.contains("0.502"), "{columns}");
    }

    #[test]
    fn a_ratio_beyond_its_target_misses() {
        assert_eq!(raced(0.4)[0].verdicts, [TargetVerdict::Miss]);
    }

    #[test]
    fn a_heat_measures_only_what_its_chosen_contests_name() {
        let of = |text: &str| -> Vec<String> {
            let all = BENCH_RUNS.iter().flat_map(|heat| heat.contests);
            common_levels(&all.filter(|contest| contest.name == text).collect::<Vec<_>>())
        };
        let levels = ["placement=other-cpu", "stack=plumb,smoltcp", "wake=block"];
        assert_eq!(of("block, two CPUs, smoltcp"), levels);
        assert_eq!(of("fused, cold, copy"), ["operation=copy,fused"]);
        // Linux's mirror is at the end of a veth, and would not be measured over a TAP.
        assert!(!of("block, one CPU").iter().any(|levels| levels.starts_with("device=")));
    }

    #[test]
    fn a_factor_that_a_contest_does_not_name_is_an_error() {
        let contest = contest("spin", "stack=plumb", "stack=linux", "", None);
        let of = |transport: &str| {
            let mut result = result("plumb", "same-cpu", 60, [1.0, 1.0, 1.0]);
            result["factors"]["transport"] = transport.into();
            result
        };
        let linux = result("linux", "same-cpu", 60, [1.0, 1.0, 1.0]);
        let one = json!({"results": [of("udp"), linux]});
        assert_eq!(rows(&heat(), &contest, &one).unwrap().len(), 1);
        let two = json!({"results": [of("udp"), of("tcp"), linux]});
        let error = rows(&heat(), &contest, &two).unwrap_err().to_string();
        assert!(error.contains("\"udp\"") && error.contains("\"tcp\""), "{error}");
    }

    #[test]
    fn what_was_not_measured_is_an_error_that_says_why() {
        let heat = heat();
        let contest = contest("spin", "stack=plumb", "stack=linux", "", None);
        let document = json!({"results": [], "unavailable": [{"reason": "no TAP"}]});
        assert!(rows(&heat, &contest, &document).unwrap_err().to_string().contains("no TAP"));
    }
}
