//! The time of a phase that counts, and rates within it.

use plumb_net::measure::report::{HostSample, TestReport};
use plumb_net::measure::test_spec::TestSpec;
use plumb_result::net::{HostReading, NetInterval};

pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A number for each of so many; none where there are none.
pub(super) fn each(ns: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| ns as f64 / count as f64)
}

/// The readings of a side between which everything counts: the first after the warm-up, and the first after the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedTime<'a> {
    moments: &'a [HostSample],
    pub(super) from: usize,
    pub(super) to: usize,
}

impl<'a> CountedTime<'a> {
    /// Of a report; `None` where it ended before.
    pub(super) fn of(report: &'a TestReport, spec: &TestSpec) -> Option<Self> {
        let moments = &report.moments;
        let at = |ns: u64| moments.iter().position(|moment| moment.at_ns >= ns);
        let from = at(spec.warm_up_ns)?;
        let to = at(spec.planned_ns()).unwrap_or(moments.len() - 1);
        (from < to).then_some(Self { moments, from, to })
    }

    pub(super) const fn ns(&self) -> u64 {
        self.moments[self.to].at_ns.saturating_sub(self.moments[self.from].at_ns)
    }

    /// What the host used.
    pub(super) const fn used(&self) -> HostReading {
        self.moments[self.to].host.since(&self.moments[self.from].host)
    }
}

/// Rates between every two readings, by the bytes at each. Those of the time that counts are told by the reading that
/// ends them.
pub(super) fn intervals(
    report: &TestReport,
    counted: Option<CountedTime<'_>>,
    bytes: impl Fn(usize) -> Option<u64>,
) -> Vec<NetInterval> {
    let interval = |(index, pair): (usize, &[HostSample])| {
        let (from, to, end) = (pair[0].at_ns, pair[1].at_ns, index + 1);
        let moved = bytes(end)?.saturating_sub(bytes(index)?);
        (to > from).then(|| NetInterval {
            from_seconds: seconds(from),
            to_seconds: seconds(to),
            bytes_per_second: moved as f64 / seconds(to - from),
            counts: counted.is_some_and(|time| time.from < end && end <= time.to),
        })
    };
    report.moments.windows(2).enumerate().filter_map(interval).collect()
}
