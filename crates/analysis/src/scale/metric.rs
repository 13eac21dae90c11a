//! The quantities that are compared over machines.

use plumb_base::units::Unit;

/// One quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleMetric {
    /// Its name in results.
    pub name: &'static str,
    /// What it is, for people.
    pub label: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// The quantity of memory that may explain it beside the processor.
    pub memory: Option<&'static str>,
}

impl ScaleMetric {
    /// A number that grows where the quantity gets better.
    pub fn goodness(&self, value: f64) -> f64 {
        if self.unit == Unit::Nanoseconds { 1.0 / value } else { value }
    }
}

const fn time(name: &'static str, label: &'static str) -> ScaleMetric {
    ScaleMetric { name, label, unit: Unit::Nanoseconds, memory: Some("memory-load") }
}

const fn rate(name: &'static str, label: &'static str) -> ScaleMetric {
    ScaleMetric { name, label, unit: Unit::BytesPerSecond, memory: Some("memory-copy") }
}

const fn alone(metric: ScaleMetric) -> ScaleMetric {
    ScaleMetric { memory: None, ..metric }
}

/// Every quantity, in the order of pages.
pub const METRICS: [ScaleMetric; 17] = [
    time("entry", "empty kernel call"),
    time("entry-io", "smallest read or write"),
    time("switch", "context switch"),
    time("pipe", "pipe latency"),
    time("unix", "Unix socket latency"),
    time("udp", "UDP latency, loopback"),
    time("tcp", "TCP latency, loopback"),
    time("connect", "TCP connect, loopback"),
    rate("pipe-bandwidth", "pipe throughput"),
    rate("unix-bandwidth", "Unix socket throughput"),
    rate("tcp-bandwidth", "TCP throughput, loopback"),
    rate("lan-100m", "TCP per sender CPU-second, 100 Mb/s"),
    rate("lan-10m", "TCP per sender CPU-second, 10 Mb/s"),
    rate("wan", "TCP per sender CPU-second, wide area"),
    time("http", "page of HTTP, loopback"),
    alone(time("memory-load", "memory latency")),
    alone(rate("memory-copy", "memory copy")),
];

/// The quantity of a name.
pub fn find(name: &str) -> Option<&'static ScaleMetric> {
    METRICS.iter().find(|metric| metric.name == name)
}
