//! The machine of a run: plumb's own, or imported from another tool.

use std::collections::BTreeMap;

use plumb_analysis::index::{self, KernelReference};
use plumb_analysis::scale::{KnownMachine, MachineValue, SpeedKind, architecture_class};
use plumb_analysis::summary::{CONFIDENCE, MeasuredCell, measured_cells};
use plumb_base::stats::distribution::normal_quantile;
use plumb_store::record::{Cell, Factors, RunData, RunStatus};

use crate::scaling::index_cpu;

/// A metric of a cell: its name, and how far the cell is from the metric's usual setting.
struct CellMetric {
    name: &'static str,
    distance: i64,
}

/// The machine that a run was measured on, with every quantity of it that is compared over machines.
///
/// `None` where the run has none of them.
pub fn machine(data: &RunData, references: &[KernelReference]) -> Option<KnownMachine> {
    let measured = measured_cells(data);
    let mut nearest: BTreeMap<&'static str, (i64, MachineValue)> = BTreeMap::new();
    let mut add = |cell: &Cell, value: MachineValue| {
        let Some(metric) = metric(cell) else { return };
        let known = nearest.get(metric.name);
        if value.value > 0.0 && known.is_none_or(|(distance, _)| metric.distance < *distance) {
            nearest.insert(metric.name, (metric.distance, value));
        }
    };
    for cell in &measured {
        add(cell.cell, value_of(cell));
    }
    for cell in &data.cells {
        if let Some(summary) = &cell.imported {
            add(cell, MachineValue::exact(summary.value));
        }
    }
    let values: BTreeMap<_, _> =
        nearest.into_iter().map(|(name, (_, value))| (name, value)).collect();
    let fact = |name: &str| data.run.provenance.get(name).map(String::as_str);
    let mut speed = BTreeMap::new();
    if let Some(mhz) = fact("cpu.mhz").and_then(|text| text.trim().parse::<f64>().ok()) {
        speed.extend((mhz > 0.0).then_some((SpeedKind::Clock, mhz * 1e6)));
    }
    if let Some(found) = index::summarize(&measured, index_cpu::EXPERIMENT.id, references) {
        speed.insert(SpeedKind::Index, found.index);
    }
    if values.is_empty() && !speed.contains_key(&SpeedKind::Index) {
        return None;
    }
    let title = ["host.name", "cpu.model", "cpu.architecture"].into_iter().find_map(fact);
    let kernel = fact("kernel.release").unwrap_or("");
    let is_imported = data.run.status == RunStatus::Imported;
    let tool = data.run.notes.get("import.tool").map_or("another tool", String::as_str);
    Some(KnownMachine {
        name: [title.unwrap_or("unnamed"), kernel].join(", ").trim_end_matches(", ").to_owned(),
        class: fact("cpu.arch")
            .or_else(|| fact("cpu.architecture"))
            .map_or("", architecture_class)
            .to_owned(),
        basis: if is_imported { tool.to_owned() } else { format!("run {}", data.run.id) },
        // The time of an import says nothing about the machine.
        year: (!is_imported).then(|| year(data.run.created_unix_ms)),
        speed,
        values,
    })
}

fn year(unix_ms: i64) -> f64 {
    const MS_OF_YEAR: f64 = 365.2425 * 86_400_000.0;
    1970.0 + unix_ms as f64 / MS_OF_YEAR
}

/// The median of a cell, and the standard error of its logarithm by its interval.
fn value_of(cell: &MeasuredCell<'_>) -> MachineValue {
    let value = cell.median();
    let log_error = cell.ends().filter(|[lo, _]| *lo > 0.0).map_or(0.0, |[lo, hi]| {
        (hi / lo).ln() / (2.0 * normal_quantile(f64::midpoint(1.0, CONFIDENCE)))
    });
    MachineValue { value, log_error }
}

/// The metric that a cell is a measurement of.
fn metric(cell: &Cell) -> Option<CellMetric> {
    let factors = &cell.factors;
    let text = |name: &str| factors.text(name).unwrap_or("");
    let is_loopback = matches!(text("link"), "" | "loopback");
    let name = match (cell.experiment.as_str(), cell.response.as_str()) {
        ("call.kernel" | "scaling.entry", "call") => match text("call") {
            "getppid" => "entry",
            "write-dev-null" | "read-zero" => "entry-io",
            _ => return None,
        },
        ("lmbench.context-switch", "time")
            if factors.int("processes") == Some(2) && factors.int("size") == Some(0) =>
        {
            "switch"
        }
        ("latency.local", "latency") => match text("mechanism") {
            "pipe" => "pipe",
            "socketpair-stream" => "unix",
            "udp4" => "udp",
            "tcp4" => "tcp",
            _ => return None,
        },
        ("lmbench.connect", "time") => "connect",
        ("throughput.local", "throughput") => match text("mechanism") {
            "pipe" => "pipe-bandwidth",
            "socketpair-stream" => "unix-bandwidth",
            "tcp4" => "tcp-bandwidth",
            _ => return None,
        },
        ("scaling.loopback", "throughput") => "tcp-bandwidth",
        ("scaling.lan", "sender-cpu") if text("link") == "lan-100m" => "lan-100m",
        ("scaling.lan", "sender-cpu") if text("link") == "ethernet-10m" => "lan-10m",
        ("scaling.wan", "sender-cpu") if text("link") != "ethernet-10m" => "wan",
        ("scaling.http", "page") if is_loopback && text("way") == "one-each" => "http",
        ("index.memory", "load") => "memory-load",
        ("index.memory", "copy") => "memory-copy",
        ("lmbench.memory", "bandwidth") if text("operation") == "bcopy-libc" => "memory-copy",
        ("lmbench.memory", "time") if text("operation") == "main-mem" => "memory-load",
        _ => return None,
    };
    Some(CellMetric { name, distance: distance(name, factors) })
}

/// How far a setting is from the one that lmbench has: one CPU, short messages for latencies and long ones for rates.
fn distance(name: &str, factors: &Factors) -> i64 {
    let placement = match factors.text("placement") {
        None | Some("same-cpu") => 0,
        Some(_) => 1 << 40,
    };
    let wake = i64::from(factors.text("wake").is_some_and(|wake| wake != "block")) << 41;
    let size = factors.int("size").unwrap_or(0);
    let usual = match name {
        "pipe-bandwidth" | "unix-bandwidth" | "tcp-bandwidth" => 64 << 10,
        "memory-load" | "memory-copy" => 1 << 30,
        _ => 0,
    };
    placement + wake + (size - usual).abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumb_analysis::fixture::{SyntheticRun, local};

    #[test]
    fn a_run_gives_the_machine_its_usual_settings() {
        let mut run = SyntheticRun::new(1);
        for (size, median) in [(64, 2_000.0), (4_096, 9_000.0)] {
            run.measure("latency.local", "latency", local("pipe", "same-cpu", size), median);
            run.measure("latency.local", "latency", local("pipe", "other-cpu", size), 9.0 * median);
        }
        run.data.run.provenance.insert("cpu.mhz".to_owned(), "2500".to_owned());
        let found = machine(&run.data, &[]).unwrap();
        let pipe = found.values["pipe"];
        assert!((pipe.value / 2_000.0 - 1.0).abs() < 0.05 && pipe.log_error > 0.0, "{pipe:?}");
        assert!((found.speed[&SpeedKind::Clock] - 2.5e9).abs() < 1.0);
    }

    #[test]
    fn a_run_without_such_quantities_is_no_machine() {
        let mut run = SyntheticRun::new(1);
        run.measure("reliability", "lost", local("pipe", "same-cpu", 64), 0.1);
        assert_eq!(machine(&run.data, &[]), None);
    }
}
