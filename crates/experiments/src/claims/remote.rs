//! What the claims of study `ipc` about local and remote communication share.

use plumb_analysis::claim::{
    ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, PlacementWake, judge_all,
};
use plumb_analysis::summary::MeasuredCell;

use super::{LARGE, TABLE_1, bytes, needs, remote_label, size};
use crate::factor::link::{VETH, is_host_level};

/// Whether nothing between the two sides has a rate or a delay that plumb was told: those of an
/// emulated link would decide by themselves.
pub(crate) fn is_plain_remote(cell: &MeasuredCell<'_>) -> bool {
    cell.level("link") == VETH || is_host_level(cell.level("link"))
}

/// The same response of a local and of a remote experiment of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalAndRemote {
    pub(crate) local: &'static str,
    pub(crate) remote: &'static str,
    pub(crate) response: &'static str,
}

pub(crate) const LATENCIES: LocalAndRemote =
    LocalAndRemote { local: "latency.local", remote: "latency.remote", response: "latency" };

/// Throughput as the paper has it: a message and its acknowledgement.
pub(crate) const THROUGHPUTS: LocalAndRemote = LocalAndRemote {
    local: "throughput.local",
    remote: "throughput.remote",
    response: "throughput.acked",
};

/// A column of Table 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RankedColumn {
    Local(&'static str),
    Remote(&'static str),
}

use RankedColumn::{Local, Remote};

impl RankedColumn {
    fn name(self) -> String {
        match self {
            Local(mechanism) => mechanism.to_owned(),
            Remote(mechanism) => format!("remote {mechanism}"),
        }
    }
}

impl LocalAndRemote {
    /// A row of Table 1, all five columns of it.
    pub(crate) fn table_row(self, evidence: &ClaimEvidence<'_>, size: i64) -> ClaimJudgment {
        let row = TABLE_1.iter().find(|row| row.response == self.response && row.size == size);
        let local = row.map_or(&[][..], |row| &row.mechanisms).iter().copied().map(Local);
        // Remote TCP is ahead in the row of large messages' throughput alone.
        let is_tcp_first = self.response == THROUGHPUTS.response && size == LARGE;
        let remote = if is_tcp_first { ["tcp4", "udp4"] } else { ["udp4", "tcp4"] }.map(Remote);
        let order: Vec<RankedColumn> = local.chain(remote).collect();
        let pairs: Vec<_> = (1..)
            .zip(&order)
            .flat_map(|(next, better)| order[next..].iter().map(|worse| (*better, *worse)))
            .collect();
        self.judge(evidence, &[size], &pairs)
    }

    /// The pipe before remote UDP and TCP, at every size at which all three were measured.
    pub(crate) fn pipe_before_remote(self, evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut sizes = evidence.sizes(self.local, self.response, &["pipe"]);
        let remote = evidence.sizes(self.remote, self.response, &["udp4", "tcp4"]);
        sizes.retain(|size| remote.contains(size));
        let pairs = [Remote("udp4"), Remote("tcp4")].map(|worse| (Local("pipe"), worse));
        self.judge(evidence, &sizes, &pairs)
    }

    /// Each pair claims that its first column is the better one.
    fn judge(
        self,
        evidence: &ClaimEvidence<'_>,
        sizes: &[i64],
        pairs: &[(RankedColumn, RankedColumn)],
    ) -> ClaimJudgment {
        let mut found = ClaimCases::default();
        for setting in evidence.settings(self.local, self.response) {
            for link in self.links(evidence, &setting) {
                for size in sizes {
                    let at = |column| self.cell(evidence, column, &setting, link, *size);
                    for (better, worse) in pairs {
                        let label = format!("{}/{} {}", worse.name(), better.name(), bytes(*size));
                        let place = format!("{}, {link}", setting.placement);
                        match at(*better).zip(at(*worse)) {
                            Some((first, second)) => {
                                found.cases.push(ClaimCase::order(&place, label, first, second));
                            }
                            None => found.missing.push(format!("{label}, {place}")),
                        }
                    }
                }
            }
        }
        judge_all(found, &format!("plumb run ipc: {} and {} in one run", self.local, self.remote))
    }

    /// The links over which anything was measured that stands beside a local setting.
    fn links<'a>(self, evidence: &ClaimEvidence<'a>, setting: &PlacementWake) -> Vec<&'a str> {
        let cells = evidence.cells(self.remote, self.response);
        let near = cells.filter(|cell| is_plain_remote(cell) && is_beside(cell, setting));
        let mut links: Vec<&str> = near.map(|cell| cell.level("link")).collect();
        links.sort_unstable();
        links.dedup();
        links
    }

    fn cell<'a>(
        self,
        evidence: &ClaimEvidence<'a>,
        column: RankedColumn,
        setting: &PlacementWake,
        link: &str,
        size: i64,
    ) -> Option<&'a MeasuredCell<'a>> {
        let mechanism = match column {
            Local(mechanism) => {
                return evidence.cell_at(self.local, self.response, mechanism, setting, size);
            }
            Remote(mechanism) => mechanism,
        };
        evidence.cells(self.remote, self.response).find(|cell| {
            cell.level("link") == link
                && cell.is("mechanism", mechanism)
                && cell.int("size") == Some(size)
                && is_beside(cell, setting)
        })
    }
}

/// Whether a remote cell has the placement of a local one; two hosts have one of their own.
fn is_beside(cell: &MeasuredCell<'_>, setting: &PlacementWake) -> bool {
    is_host_level(cell.level("link")) || cell.level("placement") == setting.placement
}

/// The preset nearest to what Zhao's hosts had between them: a switched gigabit network.
const LABORATORY: &str = "lan-1g";

/// The cells of a mechanism between hosts as the paper's: real ones, or over a network of that rate.
///
/// Up to 64 KiB: the captions name no sizes, and longer messages take more than the published
/// longest time at that rate alone.
pub(crate) fn laboratory<'a>(
    evidence: &ClaimEvidence<'a>,
    (experiment, response): (&'static str, &'static str),
    mechanism: &'static str,
) -> impl Iterator<Item = &'a MeasuredCell<'a>> {
    evidence.cells(experiment, response).filter(move |cell| {
        (cell.is("link", LABORATORY) || is_host_level(cell.level("link")))
            && cell.is("mechanism", mechanism)
            && size(cell) <= LARGE
    })
}

/// Whether the medians of these cells lie in a published range.
pub(crate) fn in_laboratory(
    evidence: &ClaimEvidence<'_>,
    measured: (&'static str, &'static str),
    mechanism: &'static str,
    range: (f64, f64),
) -> ClaimJudgment {
    let cases = laboratory(evidence, measured, mechanism)
        .map(|cell| ClaimCase::median_within(&remote_label(cell), bytes(size(cell)), cell, range));
    judge_all(cases.collect(), &needs(measured.0, "link=lan-1g"))
}

/// The pipe against TCP and UDP at every setting and size: within a factor of ten either way.
pub(crate) fn same_magnitude(
    evidence: &ClaimEvidence<'_>,
    experiment: &'static str,
    response: &'static str,
    needs: &str,
) -> ClaimJudgment {
    let mut found = ClaimCases::default();
    for setting in evidence.settings(experiment, response) {
        for size in evidence.sizes(experiment, response, &["pipe"]) {
            let at = |name| evidence.cell_at(experiment, response, name, &setting, size);
            for name in ["tcp4", "udp4"] {
                let Some(cells) = at(name).zip(at("pipe")) else { continue };
                let label = format!("pipe/{name} {}", bytes(size));
                let case = ClaimCase::ratio_within(&setting.placement, label, cells, (0.1, 10.0));
                // Told by the case that comes nearest to a factor of ten.
                found.cases.push(ClaimCase { strength: -case.strength.abs(), ..case });
            }
        }
    }
    judge_all(found, needs)
}
