//! Synthetic documents: a ladder, and a full table of any number of cells.
//!
//! The numbers follow a made-up cost model, so that pictures look like pictures; they are not
//! measurements and appear nowhere else.

use std::collections::BTreeMap;

use plumb_analysis::document::{
    CellResult, ClaimVerdict, CpuCost, DocumentStatements, PublishedNumber, RunDocument, RunHeader,
    RunTrust, SampleSummary, UnavailableCell,
};
use plumb_analysis::document::{PublishedOrder, RankRelation, RankRow, RankTable};
use plumb_analysis::ladder;
use plumb_experiments::list::{install_pages, registry};
use serde_json::Value;

pub const MECHANISMS: [(&str, f64, f64); 24] = [
    ("pipe", 2_600.0, 0.21),
    ("fifo", 2_650.0, 0.21),
    ("splice", 3_900.0, 0.12),
    ("vmsplice", 3_700.0, 0.11),
    ("sendfile", 4_100.0, 0.14),
    ("socketpair-stream", 3_100.0, 0.26),
    ("socketpair-dgram", 3_050.0, 0.24),
    ("socketpair-seqpacket", 3_150.0, 0.25),
    ("unix-stream", 3_120.0, 0.26),
    ("unix-stream-abstract", 3_130.0, 0.26),
    ("unix-dgram", 3_200.0, 0.25),
    ("unix-dgram-abstract", 3_220.0, 0.25),
    ("tcp4", 7_900.0, 0.19),
    ("tcp6", 8_100.0, 0.19),
    ("udp4", 6_200.0, 0.28),
    ("udp6", 6_400.0, 0.28),
    ("tcp-zerocopy", 11_800.0, 0.16),
    ("uring", 9_100.0, 0.2),
    ("mq-posix", 2_900.0, 0.33),
    ("mq-sysv", 2_850.0, 0.35),
    ("shm-spin", 160.0, 0.08),
    ("shm-futex", 2_300.0, 0.08),
    ("shm-eventfd", 2_700.0, 0.08),
    ("vm-writev", 2_950.0, 0.1),
];

pub const SIZES: [u64; 10] = [4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 524_288];

/// A cell around `median`, with quantiles of a skewed distribution.
pub fn cell(experiment: &str, response: &str, levels: &[(&str, Value)], median: f64) -> CellResult {
    let unit = if response.starts_with("throughput") { "B/s" } else { "ns" };
    let wobble = |launch: u32| 1.0 + 0.02 * f64::from(launch * 7 % 5) - 0.04;
    let quantile = |p: f64| median * (0.93 + 0.14 * p + 0.002 / (1.0 - p));
    let grid = (0..32u32).map(|i| f64::from(i) / 32.0).chain([0.98, 0.99, 0.995]);
    CellResult {
        experiment: experiment.to_owned(),
        factors: levels.iter().map(|(name, level)| ((*name).to_owned(), level.clone())).collect(),
        response: response.to_owned(),
        unit: unit.to_owned(),
        better: if unit == "ns" { "lower" } else { "higher" }.to_owned(),
        summary: SampleSummary {
            launches: 5,
            n: 12_345,
            n_eff: 2_210.0,
            min: Some(quantile(0.0)),
            q1: Some(quantile(0.25)),
            median: Some(median),
            q3: Some(quantile(0.75)),
            p90: Some(quantile(0.9)),
            p99: Some(quantile(0.99)),
            p999: None,
            p90_ci95: Some([quantile(0.89), quantile(0.91)]),
            p99_ci95: Some([quantile(0.985), quantile(0.993)]),
            p999_ci95: None,
            max: Some(median * 9.0),
            mean: Some(median * 1.02),
            printed: None,
            ci95: Some([median * 0.985, median * 1.018]),
            modes: Vec::new(),
            quantiles: grid.map(|p| [p, quantile(p)]).collect(),
            launch_medians: (0..5).map(|launch| median * wobble(launch)).collect(),
        },
        cpu: CpuCost {
            local: Some(median * 0.97),
            local_kernel_share: Some(0.91),
            peer: Some(median * 0.93),
            peer_kernel_share: Some(0.93),
            softirq: Some(0.0),
            wall: Some(median * 2.0),
            switches: Some(2.0),
        },
        counters: BTreeMap::new(),
        flags: vec![
            "p99.9 refused: needs 3688 effective samples, has 2210".to_owned(),
            "stopped: precise".to_owned(),
        ],
    }
}

fn local(mechanism: &str, size: u64, placement: &str, wake: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("mechanism", Value::from(mechanism)),
        ("size", Value::from(size)),
        ("placement", Value::from(placement)),
        ("wake", Value::from(wake)),
    ]
}

/// A document without results.
pub fn empty(title: &str) -> RunDocument {
    install_pages();
    let pairs = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
    };
    RunDocument {
        schema: "plumb.run/1".to_owned(),
        run: RunHeader {
            id: format!("{title}-20260102-7f3a"),
            title: title.to_owned(),
            created: "2026-01-02T03:04:05Z".to_owned(),
            status: "complete".to_owned(),
            seed: 42,
            code: "0.1.0 (fixture)".to_owned(),
            plan: "title = \"fixture\"\n[limits]\nbudget = \"20s\"\n".to_owned(),
        },
        machine: pairs(&[
            ("cpu.model", "Fixture CPU @ 3.00GHz"),
            ("kernel.release", "6.1.0-fixture"),
            (
                "kernel.cmdline",
                "BOOT_IMAGE=/vmlinuz root=/dev/vda ro console=ttyS0 quiet splash x=y",
            ),
            ("tcp.congestion.default", "cubic"),
        ]),
        notes: pairs(&[("clock", "TSC, 1 tick = 0.333 ns"), ("stopped", "every cell precise")]),
        trust: RunTrust {
            blocks: 1_200,
            flagged: 60,
            trusted: true,
            flags: BTreeMap::from([("steal".to_owned(), 41), ("migration".to_owned(), 19)]),
        },
        results: Vec::new(),
        unavailable: Vec::new(),
        claims: Vec::new(),
        statements: Vec::new(),
        expectations: Vec::new(),
        ranks: Vec::new(),
        ladder: Vec::new(),
        breakdowns: Vec::new(),
        ratios: Vec::new(),
    }
}

/// A ladder: clocks, calls, and each mechanism at 64 bytes at two placements.
pub fn ladder() -> RunDocument {
    let mut document = empty("ladder");
    let alone = |mut cell: CellResult| {
        cell.cpu.peer = None;
        cell.cpu.wall = cell.summary.median;
        cell
    };
    let clock = |clock: &str, ns| {
        alone(cell("clock.resolution", "read-cost", &[("clock", Value::from(clock))], ns))
    };
    let call = |call: &str, via: &str, ns| {
        let levels = [("call", Value::from(call)), ("via", Value::from(via))];
        alone(cell("call.kernel", "call", &levels, ns))
    };
    document.results.extend([
        clock("tsc", 8.1),
        call("clock-gettime", "vdso", 21.4),
        call("getpid", "syscall", 61.2),
    ]);
    for (mechanism, base, per_byte) in MECHANISMS {
        let ns = base + per_byte * 64.0;
        if mechanism == "shm-spin" {
            let levels = local(mechanism, 64, "same-cache", "spin");
            document.results.push(cell("latency.local", "latency", &levels, ns));
            continue;
        }
        for (placement, factor) in [("same-cpu", 1.0), ("same-cache", 6.3)] {
            let levels = local(mechanism, 64, placement, "block");
            let mut cell = cell("latency.local", "latency", &levels, ns * factor);
            if factor > 1.0 {
                cell.cpu.local = Some(ns * 1.2);
                cell.cpu.peer = Some(ns * 1.1);
                cell.summary.q3 = Some(ns * factor * 1.4);
                cell.summary.ci95 = Some([ns * factor * 0.9, ns * factor * 1.12]);
            }
            document.results.push(cell);
        }
    }
    document.ladder = ladder::rungs(&registry(), &document);
    document.unavailable.push(UnavailableCell {
        experiment: "latency.local".to_owned(),
        factors: BTreeMap::from([("mechanism".to_owned(), Value::from("uring"))]),
        response: "latency".to_owned(),
        state: "unavailable".to_owned(),
        reason: "io_uring is switched off here: kernel.io_uring_disabled=2".to_owned(),
    });
    document
}

/// The full local tables, cut to `cells` results: latency first, then both throughputs.
pub fn tables(cells: usize) -> RunDocument {
    let mut document = empty("ipc");
    for response in ["latency", "throughput", "throughput.acked"] {
        let experiment = if response == "latency" { "latency.local" } else { "throughput.local" };
        for (placement, factor) in [("same-cpu", 1.0), ("same-cache", 5.7)] {
            for (mechanism, base, per_byte) in MECHANISMS {
                for size in SIZES {
                    let ns = base * factor + per_byte * size as f64;
                    let value = if response == "latency" { ns } else { size as f64 / ns * 1e9 };
                    let levels = local(mechanism, size, placement, "block");
                    document.results.push(cell(experiment, response, &levels, value));
                }
            }
        }
    }
    document.results.truncate(cells);
    for (index, size) in SIZES.iter().enumerate() {
        document.unavailable.push(UnavailableCell {
            experiment: "latency.local".to_owned(),
            factors: local("eventfd", *size, "same-cpu", "block")
                .into_iter()
                .map(|(name, level)| (name.to_owned(), level))
                .collect(),
            response: "latency".to_owned(),
            state: if index == 0 { "failed" } else { "unavailable" }.to_owned(),
            reason: "eventfd carries 8 bytes, no more and no less".to_owned(),
        });
    }
    document.ranks = ["latency", "throughput", "throughput.acked"]
        .into_iter()
        .flat_map(|response| ["same-cpu", "same-cache"].map(|placement| (response, placement)))
        .flat_map(|(response, placement)| SIZES.map(|size| ranks(response, placement, size)))
        .collect();
    document.claims = claims();
    document.statements = vec![DocumentStatements {
        document: "ipc".to_owned(),
        testable: 9,
        encoded: 5,
        judged: 3,
        open: [("latency.local", vec!["d".to_owned(), "e".to_owned(), "f".to_owned()])]
            .into_iter()
            .chain([("none", vec!["g".to_owned()])])
            .map(|(name, ids)| (name.to_owned(), ids))
            .collect(),
    }];
    document
}

fn ranks(response: &str, placement: &str, size: u64) -> RankTable {
    let cost = |base: &f64, per_byte: &f64| base + per_byte * size as f64;
    let mut order: Vec<(&str, f64)> =
        MECHANISMS.iter().map(|(name, base, slope)| (*name, cost(base, slope))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let best = order[0].1;
    let published = ["udp4", "tcp4", "pipe"];
    let rows = order
        .iter()
        .enumerate()
        .map(|(index, (mechanism, median))| RankRow {
            rank: u32::try_from(index + 1).unwrap(),
            tied: index == 3 || index == 4,
            mechanism: (*mechanism).to_owned(),
            median: *median,
            ci95: Some([median * 0.98, median * 1.02]),
            ratio_to_best: median / best,
            published_rank: published
                .iter()
                .position(|name| name == mechanism)
                .map(|place| u32::try_from(place + 1).unwrap()),
            rank_among_published: None,
        })
        .collect();
    let relation = |faster: &str, slower: &str, verdict: &str, ratio: f64| RankRelation {
        faster: faster.to_owned(),
        slower: slower.to_owned(),
        verdict: verdict.to_owned(),
        ratio: Some(ratio),
        ci95: Some([ratio * 0.97, ratio * 1.03]),
    };
    RankTable {
        experiment: "latency.local".to_owned(),
        response: response.to_owned(),
        unit: "ns".to_owned(),
        size: i64::try_from(size).unwrap(),
        placement: placement.to_owned(),
        wake: "block".to_owned(),
        rows,
        published: [16, 1024, 65_536].contains(&size).then(|| PublishedOrder {
            source: "Zhao 2014, table 1".to_owned(),
            order: published.map(str::to_owned).to_vec(),
            relations: vec![
                relation("udp4", "tcp4", "holds", 1.27),
                relation("tcp4", "pipe", "does not hold", 0.33),
                relation("udp4", "pipe", "not decided", 0.99),
            ],
        }),
    }
}

fn claims() -> Vec<ClaimVerdict> {
    let claim = |id: &str, text: &str, verdict: &str, needs: &str| ClaimVerdict {
        id: id.to_owned(),
        experiment: "latency.local".to_owned(),
        claim: text.to_owned(),
        source: "Zhao 2014".to_owned(),
        historical: Some("8–300 µs on an i5-4570".to_owned()),
        published: vec![PublishedNumber {
            label: "least".to_owned(),
            value: 8_000.0,
            unit: "ns".to_owned(),
            place: "Figure 7".to_owned(),
            now: Some(2_000.0),
            ratio: Some(0.25),
        }],
        verdict: verdict.to_owned(),
        effect: "pipe over socket 0.84 [0.81, 0.87] on one CPU, 0.97 [0.90, 1.05] on two"
            .to_owned(),
        estimate: Some(0.84),
        ci95: Some([0.81, 0.87]),
        needs: needs.to_owned(),
    };
    vec![
        claim("a", "Pipes are slower than local sockets.", "does not hold", ""),
        claim("b", "UDP beats TCP below 64Ki bytes.", "holds", ""),
        claim("c", "TCP beats UDP at 64Ki bytes.", "not decided", "about 7 more launches."),
    ]
}
