//! The race of the links: what plumb's emulated link really does, against what it promises, with Linux's
//! token bucket and mininet on the same task beside it.
//!
//! Each launch is a fresh process (the example `emulate` of `plumb_netdev`), which makes its own namespaces;
//! Linux's sockets at both ends are the witness.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use plumb_base::stats::{bootstrap, quantile};
use serde_json::Value;

use super::BenchOptions;
use super::score::{BenchRow, BenchTable, CONFIDENCE, RatioTarget, SEED};

const RESAMPLES: usize = 2_000;

/// One task over one wire.
#[derive(Clone, Debug)]
struct LinkBenchCase {
    name: String,
    wire: &'static str,
    arguments: String,
    /// The figure of the example's answer, and its unit.
    figure: LinkMetric,
    target: Option<RatioTarget>,
}

/// The figure that is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LinkMetric {
    /// 99 % of delays are wrong by less than this, in microseconds.
    DelayErrorP99,
    /// The same of datagrams in whose way the machine left the driver its CPU: none was sent or due while it
    /// was seen to be taken (`examples/emulate/witness.rs`).
    GivenDelayErrorP99,
    /// How much of the time the machine took from a thread that only spins, 50 us and more at a time.
    TakenShare,
    /// By how much the rate is wrong, in percent.
    RateError,
    /// Gigabits a second.
    Gigabits,
    /// Share of the link that a stream uses, headers counted.
    Utilisation,
    /// What a stream carries over what its window allows.
    WindowShare,
    /// The share of the link that Reno uses, over what its sawtooth promises with so many products
    /// of bandwidth and delay of buffer.
    Sawtooth {
        /// The buffer, in products of bandwidth and delay.
        buffer: f64,
    },
}

/// The share of a link that Reno uses: its window climbs from half of what link and buffer hold to
/// all of it, by as much a round trip, and the link is idle while it is less than the product of
/// bandwidth and delay (Appenzeller, Keslassy & McKeown 2004). For windows of many segments.
fn sawtooth(buffer: f64) -> f64 {
    let top = 1.0 + buffer;
    (3.0 * top * top / (4.0 * (1.0 + buffer + buffer * buffer))).min(1.0)
}

impl LinkMetric {
    const fn unit(self) -> &'static str {
        match self {
            Self::DelayErrorP99 | Self::GivenDelayErrorP99 => "us",
            Self::RateError | Self::TakenShare => "%",
            Self::Gigabits => "Gb/s",
            Self::Utilisation | Self::WindowShare | Self::Sawtooth { .. } => "",
        }
    }

    /// How near to 1: too much would be as wrong as too little.
    fn nearness(share: f64) -> f64 {
        1.0 - (share - 1.0).abs()
    }

    fn of(self, answer: &Value) -> anyhow::Result<f64> {
        let of = |name: &str| answer[name].as_f64().with_context(|| format!("no {name}: {answer}"));
        Ok(match self {
            Self::DelayErrorP99 => of("p99_us")?,
            Self::GivenDelayErrorP99 => of("given_p99_us")?,
            Self::TakenShare => of("taken_share")? * 100.0,
            Self::RateError => of("error")?.abs() * 100.0,
            Self::Gigabits => of("bits_per_s")? / 1e9,
            Self::Utilisation => of("utilisation")?,
            Self::WindowShare => Self::nearness(of("window_share")?),
            Self::Sawtooth { buffer } => Self::nearness(of("utilisation")? / sawtooth(buffer)),
        })
    }
}

/// The wires of plumb's link.
const PLUMB_WIRES: [&str; 3] = ["tap", "packet", "xdp"];

fn case(
    name: impl Into<String>,
    wire: &'static str,
    arguments: &str,
    figure: LinkMetric,
    target: Option<RatioTarget>,
) -> LinkBenchCase {
    let (name, arguments) = (name.into(), arguments.to_owned());
    LinkBenchCase { name, wire, arguments, figure, target }
}

fn cases() -> Vec<LinkBenchCase> {
    let mut cases = Vec::new();
    add_delays_and_rates(&mut cases);
    add_streams(&mut cases);
    cases
}

fn add_delays_and_rates(cases: &mut Vec<LinkBenchCase>) {
    let task = "delay --rate 1000000000 --delay 1000 --load 0.5";
    for wire in PLUMB_WIRES {
        let name = "delay error p99, 1 Gb/s, core given";
        cases.push(case(
            name,
            wire,
            task,
            LinkMetric::GivenDelayErrorP99,
            Some(RatioTarget::AtMost(50.0)),
        ));
    }
    // With the time that the machine takes from the driver, and beside it the least that a spinning process on this
    // machine can reach.
    for wire in PLUMB_WIRES.into_iter().chain(["bare"]) {
        let name = "delay error p99, 1 Gb/s, busy";
        cases.push(case(name, wire, task, LinkMetric::DelayErrorP99, None));
    }
    cases.push(case("share of the CPU taken", "bare", task, LinkMetric::TakenShare, None));
    for precision in ["hybrid", "timer"] {
        let task =
            format!("delay --rate 1000000000 --delay 1000 --load 0.01 --precision {precision}");
        let name = format!("delay error p99, 1 Gb/s, {precision}");
        cases.push(case(name, "tap", &task, LinkMetric::DelayErrorP99, None));
    }
    for (bits, said) in [(10_000_000_u64, "10 Mb/s"), (1_000_000_000, "1 Gb/s")] {
        for wire in PLUMB_WIRES.into_iter().chain(["tbf", "mininet"]) {
            let promised = PLUMB_WIRES.contains(&wire);
            let target = promised.then_some(RatioTarget::AtMost(0.1));
            let task = format!("rate --rate {bits}");
            cases.push(case(
                format!("rate error, {said}"),
                wire,
                &task,
                LinkMetric::RateError,
                target,
            ));
        }
    }
    for wire in ["tap-plain", "packet", "xdp"] {
        let name = "frames of 1514 bytes";
        cases.push(case(
            name,
            wire,
            "datagrams",
            LinkMetric::Gigabits,
            Some(RatioTarget::AtLeast(2.0)),
        ));
    }
    let name = "stream, offloaded";
    cases.push(case(name, "tap", "stream", LinkMetric::Gigabits, Some(RatioTarget::AtLeast(5.0))));
}

fn add_streams(cases: &mut Vec<LinkBenchCase>) {
    for congestion in ["reno", "cubic", "bbr"] {
        for (bits, said) in [(10_000_000_u64, "10 Mb/s"), (100_000_000, "100 Mb/s")] {
            for milliseconds in [1_u64, 20, 100] {
                // 1 BDP of buffer promises a full link to those two; bbr does not fill it.
                let target = (congestion != "bbr").then_some(RatioTarget::AtLeast(0.97));
                let task = format!(
                    "stream --rate {bits} --delay {} --limit 1bdp --congestion {congestion}",
                    milliseconds * 500
                );
                let name = format!("{congestion}, {said}, {milliseconds} ms");
                cases.push(case(name, "tap", &task, LinkMetric::Utilisation, target));
            }
        }
    }
    // The buffer is eight segments there, and Linux hands over as many at once: what Reno does when it
    // hands over one by one.
    let task = "stream --rate 100000000 --delay 500 --limit 1bdp --congestion reno --burst 1";
    cases.push(case("reno, one by one, 1 ms", "tap", task, LinkMetric::Utilisation, None));
    for (limit, buffer) in [("0.25bdp", 0.25), ("0.5bdp", 0.5)] {
        // The formula is for products of more than a hundred segments: here 165, and a tooth takes 4 s.
        let task = format!(
            "stream --rate 100000000 --delay 10000 --limit {limit} --congestion reno --seconds 16"
        );
        let name = format!("reno, {limit}, over its sawtooth");
        cases.push(case(
            name,
            "tap",
            &task,
            LinkMetric::Sawtooth { buffer },
            Some(RatioTarget::AtLeast(0.95)),
        ));
    }
    // Where the window and not the rate is the limit.
    for (bits, milliseconds) in [(100_000_000_u64, 20_u64), (100_000_000, 100), (10_000_000, 100)] {
        let task = format!(
            "stream --rate {bits} --delay {} --window 65536 --congestion reno",
            milliseconds * 500
        );
        let name = format!("64 KiB over W/RTT, {}, {milliseconds} ms", bits / 1_000_000);
        cases.push(case(
            name,
            "tap",
            &task,
            LinkMetric::WindowShare,
            Some(RatioTarget::AtLeast(0.98)),
        ));
    }
    // A delayed acknowledgement waits for a second segment, which takes 1.2 ms there: the same without.
    let task =
        "stream --rate 10000000 --delay 50000 --window 65536 --congestion reno --acknowledge each";
    let name = "64 KiB, each acknowledged, 100 ms";
    cases.push(case(name, "tap", task, LinkMetric::WindowShare, None));
}

/// Runs every event and prints its row; whether no target was missed.
///
/// # Errors
/// When the example cannot be run, or what it says is not understood.
pub fn run(options: &BenchOptions, out: &mut dyn Write) -> anyhow::Result<bool> {
    let example = options.plumb.with_file_name("examples").join("emulate");
    if !example.is_file() {
        bail!("{} is missing: make race-link builds it", example.display());
    }
    let events = options.choose(cases(), |event| &event.name)?;
    writeln!(
        out,
        "{} launches of each; the driver on the last CPU, the application on the first.\n",
        options.launches
    )?;
    writeln!(out, "{:<36} {:<10} {:>10}  {:<22} target", "task", "wire", "median", "[95 %]")?;
    let mut table = BenchTable::new(out);
    let absent = |name: &str, wire: &str, why: &str| {
        BenchRow::new(&format!("{name:<36} {wire:<10} {why}"), None)
    };
    for event in &events {
        table.print([match measure(&example, event, options)? {
            Ok(values) => row(event, &values)?,
            Err(why) => absent(&event.name, event.wire, &why),
        }])?;
    }
    table.print([absent("any of these", "mahimahi", "not here: Debian has no package of it")])?;
    table.finish()
}

/// The value of every launch, or why there is none.
fn measure(
    example: &Path,
    event: &LinkBenchCase,
    options: &BenchOptions,
) -> anyhow::Result<Result<Vec<f64>, String>> {
    if event.wire == "mininet" {
        return (0..options.launches).map(|_| mininet(event, options.seconds)).collect();
    }
    let mut values = Vec::with_capacity(options.launches);
    for _ in 0..options.launches {
        let mut command = Command::new(example);
        let mut words = event.arguments.split(' ');
        command.args(words.next()).args(["--wire", event.wire]);
        // A task that needs longer says so itself, and what comes last holds.
        command.arg("--seconds").arg(options.seconds.to_string()).args(words);
        let output = command.output().context("the example cannot be run")?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let first = said.lines().next().context("the example said nothing")?;
        let answer = serde_json::from_str(first).context("the example's answer is no JSON")?;
        values.push(event.figure.of(&answer)?);
    }
    Ok(Ok(values))
}

/// Two hosts of mininet and its own link between them, which it makes of Linux's queueing disciplines,
/// with iperf3 across: what TCP got, its headers added.
const MININET: &str = r"
import json, sys, time
from mininet.net import Mininet
from mininet.link import TCLink
net = Mininet(controller=None)
a, b = net.addHost('a', ip='10.0.0.1/24'), net.addHost('b', ip='10.0.0.2/24')
net.addLink(a, b, cls=TCLink, bw=int(sys.argv[1]) / 1e6, use_tbf=True)
net.start()
try:
    b.cmd('iperf3 -s -1 -D -p 5301')
    time.sleep(0.3)
    said = a.cmd('iperf3 -J -c 10.0.0.2 -p 5301 -C reno -O 1 -t ' + sys.argv[2])
finally:
    net.stop()
print(json.loads(said)['end']['sum_received']['bits_per_second'] * 1514 / 1448)
";

/// Its rate error in percent, or why there is none.
fn mininet(event: &LinkBenchCase, seconds: u32) -> anyhow::Result<Result<f64, String>> {
    let bits = event.arguments.rsplit(' ').next().context("a rate")?;
    let asked: f64 = bits.parse().context("a rate")?;
    let seconds = seconds.to_string();
    // Debian's module is seen by Debian's interpreter.
    let output = Command::new("/usr/bin/python3").args(["-c", MININET, bits, &seconds]).output();
    let Ok(output) = output else { return Ok(Err("not here: no /usr/bin/python3".to_owned())) };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.trim().lines().last().unwrap_or("no word").to_owned();
        return Ok(Err(format!("not here: {last}")));
    }
    let got: f64 =
        String::from_utf8_lossy(&output.stdout).trim().parse().context("mininet's answer")?;
    Ok(Ok((got / asked - 1.0).abs() * 100.0))
}

fn row(event: &LinkBenchCase, values: &[f64]) -> anyhow::Result<BenchRow> {
    let median = |values: &[f64]| quantile::of_sorted(&quantile::sorted(values), 0.5);
    let interval = bootstrap::percentile(values, median, RESAMPLES, CONFIDENCE, SEED)
        .context("too few launches for an interval")?;
    let median = median(values);
    let LinkBenchCase { name, wire, figure, .. } = event;
    let shown = format!("[{:.4}, {:.4}] {}", interval.lo, interval.hi, figure.unit());
    let columns = format!("{name:<36} {wire:<10} {median:>10.4}  {shown:<22}");
    let target = event.target.map(|target| (target, target.judge(median, interval)));
    Ok(BenchRow::new(&columns, target))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rate_that_is_too_low_is_as_wrong_as_one_that_is_too_high() {
        let of = |error: f64| LinkMetric::RateError.of(&json!({ "error": error })).unwrap();
        assert!((of(-0.002) - of(0.002)).abs() < 1e-12);
        let of =
            |share: f64| LinkMetric::WindowShare.of(&json!({ "window_share": share })).unwrap();
        assert!((of(0.9) - of(1.1)).abs() < 1e-12);
        assert!(LinkMetric::Gigabits.of(&json!({})).is_err());
    }

    #[test]
    fn renos_sawtooth_fills_three_quarters_without_a_buffer_and_all_with_one_product() {
        let near = |buffer, share: f64| (sawtooth(buffer) - share).abs() < 5e-4;
        assert!(near(0.0, 0.75) && near(0.25, 0.893) && near(0.5, 0.964) && near(1.0, 1.0));
    }

    #[test]
    fn a_target_in_a_row_is_judged_by_the_median_of_its_launches() {
        let event = cases().into_iter().find(|event| event.name.starts_with("delay")).unwrap();
        let row = |values: &[f64]| row(&event, values).unwrap().line;
        assert!(row(&[20.0, 21.0, 400.0]).ends_with("<=50.00 PASS"));
        assert!(row(&[200.0, 210.0, 400.0]).ends_with("MISS"));
    }
}
