//! What claims share: every testable statement of the five documents, from `docs/claims.toml`, and cells set side by side.

use std::sync::LazyLock;

use plumb_analysis::claim::{
    ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, ClaimOutcome, judge_all,
};
use plumb_analysis::ratio::matched_pairs;
use plumb_analysis::registry::{
    MechanismOrder, RatioLevels, RatioPair, StatementFigure, TestableStatement,
};
use plumb_analysis::summary::{MeasuredCell, rounded};
use plumb_base::units::{Unit, format_bytes};
use plumb_store::record::{FactorLevel, Factors};

pub(crate) mod remote;

/// The paper that the study `ipc` re-tests.
pub const ZHAO: &str = "Zhao, TCP, UDP, and Pipes Communication Benchmarking, CS 736, 2014";

/// The assignment that Zhao answers, which makes claims of its own.
pub const MILLER: &str = "Miller, Benchmarking Interprocess Communications, CS 736, 2014";

/// The paper that the study `gigabit` re-tests.
pub const WEIGLE: &str = "Weigle, Feng & Gardner, Why TCP Will Not Scale for the Next-Generation \
                          Internet, LA-UR-01-1039, 2001";

/// The paper that the study `scaling` re-tests.
pub const MARKATOS: &str = "Markatos, Speeding up TCP/IP: Faster Processors are not Enough, 2001";

/// The measurements that HTTP/1.1 was justified by.
pub const NIELSEN: &str =
    "Nielsen et al., Network Performance Effects of HTTP/1.1, CSS1, and PNG, SIGCOMM 1997";

/// The report that the study `distributed` re-tests.
pub const LANTZ: &str = "Lantz, Nowicki & Theimer, An Empirical Study of Distributed Application Performance, \
                         STAN-CS-86-1117, 1985";

/// The document that the claims of study `stack` come from.
pub const KJELLERSTEDT: &str = "Kjellerstedt, Implementing a High Performance TCP/IP Stack, 1997";

const fn order(response: &'static str, size: i64, mechanisms: [&'static str; 3]) -> MechanismOrder {
    MechanismOrder { response, size, mechanisms }
}

/// Table 1 of Zhao 2014, local rows.
pub const TABLE_1: [MechanismOrder; 6] = [
    order("latency", 16, ["udp4", "tcp4", "pipe"]),
    order("latency", 1 << 10, ["udp4", "tcp4", "pipe"]),
    order("latency", 64 << 10, ["tcp4", "udp4", "pipe"]),
    order("throughput.acked", 16, ["udp4", "tcp4", "pipe"]),
    order("throughput.acked", 1 << 10, ["udp4", "tcp4", "pipe"]),
    order("throughput.acked", 64 << 10, ["tcp4", "pipe", "udp4"]),
];

/// "Large" in the sense of Table 1.
pub(crate) const LARGE: i64 = 64 << 10;

/// Every pair of the published order, for one response: size, better, worse.
pub(crate) fn published_pairs(response: &str) -> Vec<(i64, &'static str, &'static str)> {
    TABLE_1
        .iter()
        .filter(|order| order.response == response)
        .flat_map(|order| {
            let [first, second, third] = order.mechanisms;
            [(first, second), (first, third), (second, third)]
                .map(|(better, worse)| (order.size, better, worse))
        })
        .collect()
}

/// UDP before TCP at every size below the large one.
pub(crate) fn udp_before_tcp(
    evidence: &ClaimEvidence<'_>,
    experiment: &'static str,
    response: &'static str,
) -> ClaimCases {
    let sizes = evidence.sizes(experiment, response, &["udp4", "tcp4"]).into_iter();
    let pairs: Vec<_> =
        sizes.filter(|size| *size < LARGE).map(|size| (size, "udp4", "tcp4")).collect();
    evidence.order_cases(experiment, response, &pairs)
}

/// The medians of a mechanism at every blocking placement and size, against published bounds.
pub(crate) fn quantities(
    evidence: &ClaimEvidence<'_>,
    experiment: &'static str,
    response: &'static str,
    mechanism: &str,
    bounds: (f64, f64),
) -> ClaimCases {
    let mut found = ClaimCases::default();
    for setting in evidence.settings(experiment, response) {
        for size in evidence.sizes(experiment, response, &[mechanism]) {
            let cell = evidence.cell_at(experiment, response, mechanism, &setting, size);
            let case =
                |cell| ClaimCase::median_within(&setting.placement, bytes(size), cell, bounds);
            found.cases.extend(cell.map(case));
        }
    }
    found
}

/// The least median of these cells.
pub(crate) fn least<'a>(cells: impl Iterator<Item = &'a MeasuredCell<'a>>) -> Option<f64> {
    cells.map(MeasuredCell::median).reduce(f64::min)
}

/// The greatest median of these cells.
pub(crate) fn most<'a>(cells: impl Iterator<Item = &'a MeasuredCell<'a>>) -> Option<f64> {
    cells.map(MeasuredCell::median).reduce(f64::max)
}

/// The pipe's cells whose receiver blocks, as the paper's does.
pub(crate) fn blocking_pipes<'a>(
    evidence: &ClaimEvidence<'a>,
    experiment: &'static str,
    response: &'static str,
) -> impl Iterator<Item = &'a MeasuredCell<'a>> {
    let is_blocking =
        |cell: &MeasuredCell<'_>| cell.text("wake").is_none_or(|wake| wake == "block");
    let cells = evidence.cells(experiment, response);
    cells.filter(move |cell| cell.is("mechanism", "pipe") && is_blocking(cell))
}

pub(crate) fn bytes(size: i64) -> String {
    format_bytes(u64::try_from(size).unwrap_or(0))
}

pub(crate) fn size(cell: &MeasuredCell<'_>) -> i64 {
    cell.int("size").unwrap_or(0)
}

pub(crate) fn is_local(cell: &MeasuredCell<'_>) -> bool {
    cell.level("link") == "loopback"
}

/// The label of a case between hosts: its link and its placement.
pub(crate) fn remote_label(cell: &MeasuredCell<'_>) -> String {
    // Which link or host that was is told once, and its text is long.
    let link = match cell.level("link") {
        outer if outer.starts_with("outer:") => "the outer link",
        host if host.starts_with("host:") => "the other host",
        link => link,
    };
    format!("{link}, {}", cell.level("placement"))
}

/// The label of a case: its link, where it has one, and its placement.
pub(crate) fn place_label(cell: &MeasuredCell<'_>) -> String {
    let words = ["link", "placement"].into_iter().filter_map(|name| cell.text(name));
    words.collect::<Vec<_>>().join(", ")
}

pub(crate) fn needs(experiment: &str, levels: &str) -> String {
    format!("plumb run {experiment} --set {levels}")
}

/// Every remote cell, over what adds nothing of its own, against its twin over loopback.
pub(crate) fn slower_than_local(
    evidence: &ClaimEvidence<'_>,
    experiment: &'static str,
    response: &'static str,
) -> ClaimJudgment {
    let twins = evidence.twins(experiment, response, "link", remote::is_plain_remote, is_local);
    let label = |remote: &MeasuredCell<'_>| {
        format!("remote/local {} {}", remote.level("mechanism"), bytes(size(remote)))
    };
    let found = ClaimCases::of_twins(
        twins,
        |remote, local| ClaimCase::order(&remote_label(remote), label(remote), local, remote),
        |remote| format!("{} over loopback", label(remote)),
    );
    judge_all(found, &needs(experiment, "link=loopback,veth"))
}

/// One of UDP and TCP against the other at every link, placement and size.
pub(crate) fn versus(
    evidence: &ClaimEvidence<'_>,
    experiment: &'static str,
    response: &'static str,
    (better, worse): (&str, &str),
    wanted: fn(i64) -> bool,
) -> ClaimJudgment {
    let remote = |mechanism: &'static str| {
        let cells = evidence.cells(experiment, response);
        cells.filter(move |cell| !is_local(cell) && cell.is("mechanism", mechanism))
    };
    let twin = |udp: &MeasuredCell<'_>| {
        remote("tcp4").find(|tcp| {
            remote_label(tcp) == remote_label(udp)
                && size(tcp) == size(udp)
                && tcp.text("wake") == udp.text("wake")
        })
    };
    let label = |udp: &MeasuredCell<'_>| format!("{worse}/{better} {}", bytes(size(udp)));
    let found = ClaimCases::of_twins(
        remote("udp4").filter(|udp| wanted(size(udp))).map(|udp| (udp, twin(udp))),
        |udp, tcp| {
            let (first, second) = if better == "udp4" { (udp, tcp) } else { (tcp, udp) };
            ClaimCase::order(&remote_label(udp), label(udp), first, second)
        },
        |udp| format!("{}, {}", label(udp), remote_label(udp)),
    );
    judge_all(found, &needs(experiment, "mechanism=tcp4,udp4"))
}

/// "About 5 %": half as much and twice as much are about it.
pub(crate) const FIVE: (f64, f64) = (1.025, 1.10);

/// Throughput at one level of a factor beside its twin at another: how much more the first carries.
pub(crate) fn gain<L: Into<FactorLevel> + Copy>(
    evidence: &ClaimEvidence<'_>,
    (experiment, factor): (&'static str, &str),
    (more, less): (L, L),
    bounds: (f64, f64),
) -> ClaimJudgment {
    let is = |level: L| move |cell: &MeasuredCell<'_>| cell.is(factor, level);
    let found = ClaimCases::of_twins(
        evidence.twins(experiment, "throughput", factor, is(more), is(less)),
        // More throughput is less cost: the ratio of costs is that of throughputs upside down.
        |more, less| {
            ClaimCase::ratio_within(&place_label(more), "gain".to_owned(), (more, less), bounds)
        },
        |more| format!("{factor} to compare with, {}", place_label(more)),
    );
    judge_all(found, &format!("plumb run {experiment}"))
}

/// Machines below which no slope is claimed.
const MACHINES_MIN: usize = 4;

/// The judgment of a claim over machines where there is one: undecided, with its own figures.
pub(crate) fn single_machine_judgment(
    evidence: &ClaimEvidence<'_>,
    (experiment, response): (&'static str, &'static str),
    wanted: impl Fn(&MeasuredCell<'_>) -> bool,
) -> ClaimJudgment {
    let cells: Vec<_> = evidence.cells(experiment, response).filter(|cell| wanted(cell)).collect();
    let Some(first) = cells.first() else {
        return ClaimJudgment::not_measured(&machines(experiment));
    };
    let told: Vec<String> = cells.iter().take(CELLS_SHOWN).map(|cell| cell_text(cell)).collect();
    undecided(&told.join(", "), first.median(), first.ends(), experiment)
}

/// Figures of one machine that are told.
const CELLS_SHOWN: usize = 4;

fn cell_text(cell: &MeasuredCell<'_>) -> String {
    let unit = cell.cell.unit_type();
    let names = ["way", "link", "placement", "call"].into_iter().filter_map(|name| cell.text(name));
    let value = unit.format(cell.median(), 3);
    let ends = cell.ends().map_or_else(String::new, |[lo, hi]| {
        format!(" ({}–{})", unit.format(lo, 3), unit.format(hi, 3))
    });
    format!("{value}{ends} at {}", names.collect::<Vec<_>>().join(", "))
}

/// A claim over machines that one of them leaves open.
pub(crate) fn undecided(
    told: &str,
    estimate: f64,
    ends: Option<[f64; 2]>,
    experiment: &str,
) -> ClaimJudgment {
    ClaimJudgment {
        outcome: ClaimOutcome::NotDecided,
        effect: format!("one machine: {told}"),
        estimate: Some(rounded(estimate)),
        ci95: ends.map(|ends| ends.map(rounded)),
        needs: machines(experiment),
    }
}

pub(crate) fn machines(experiment: &str) -> String {
    format!(
        "no slope is claimed over fewer than {MACHINES_MIN} machines: plumb run {experiment} on each, then plumb scale"
    )
}

/// Whether most of a cell's blocks had a link that was not late: otherwise it is the link that was not filled.
pub(crate) fn is_link_on_time(cell: &MeasuredCell<'_>) -> bool {
    let is_late = |flags: &[String]| flags.iter().any(|flag| flag == "link-late");
    let late = cell.blocks().filter(|block| is_late(&block.flags)).count();
    2 * late <= cell.blocks().count()
}

/// Levels that pick a cell.
type LevelFilter<'a> = [(&'a str, &'a str)];

/// "The first costs less than the second", at every setting of an experiment's response at which both were
/// measured.
pub(crate) fn stack_order(
    evidence: &ClaimEvidence<'_>,
    (experiment, response): (&'static str, &'static str),
    (first, second): (&LevelFilter<'_>, &LevelFilter<'_>),
    chosen: impl Fn(&MeasuredCell<'_>) -> bool,
) -> ClaimJudgment {
    let cases = order_cases(evidence, (experiment, response), (first, second), chosen);
    judge_all(cases, &format!("plumb run {experiment}"))
}

/// The same as cases.
pub(crate) fn order_cases(
    evidence: &ClaimEvidence<'_>,
    (experiment, response): (&'static str, &'static str),
    (first, second): (&LevelFilter<'_>, &LevelFilter<'_>),
    chosen: impl Fn(&MeasuredCell<'_>) -> bool,
) -> ClaimCases {
    let cells: Vec<_> = evidence.cells(experiment, response).collect();
    let pairs = matched_pairs(&cells, first, second, &[]);
    let cases = pairs.into_iter().filter(|(a, _)| chosen(a)).map(|(a, b)| {
        let (place, label) = pair_label(&a.cell.factors, first, second);
        ClaimCase::order(place, label, a, b)
    });
    cases.collect()
}

/// The cost of the second over that of the first within bounds, at every such setting.
pub(crate) fn stack_ratio(
    evidence: &ClaimEvidence<'_>,
    response: (&'static str, &'static str),
    levels: (&LevelFilter<'_>, &LevelFilter<'_>),
    bounds: (f64, f64),
    chosen: impl Fn(&MeasuredCell<'_>) -> bool,
) -> ClaimJudgment {
    let cases = pairs_within(evidence, response, levels, bounds, chosen);
    judge_all(cases.into_iter().collect(), &format!("plumb run {}", response.0))
}

/// The same as cases.
pub(crate) fn pairs_within(
    evidence: &ClaimEvidence<'_>,
    (experiment, response): (&'static str, &'static str),
    (first, second): (&LevelFilter<'_>, &LevelFilter<'_>),
    bounds: (f64, f64),
    chosen: impl Fn(&MeasuredCell<'_>) -> bool,
) -> Vec<ClaimCase> {
    let cells: Vec<_> = evidence.cells(experiment, response).collect();
    let pairs = matched_pairs(&cells, first, second, &[]);
    let cases = pairs.into_iter().filter(|(_, b)| chosen(b)).map(|(a, b)| {
        let (place, label) = pair_label(&a.cell.factors, first, second);
        ClaimCase::ratio_within(place, label, (a, b), bounds)
    });
    cases.collect()
}

/// How many times greater a rate is than another, between the ends that both intervals allow: least, middle, most.
pub(crate) fn gain_interval([better, worse]: [&MeasuredCell<'_>; 2]) -> Option<[f64; 3]> {
    let ([low, high], [worse_low, worse_high]) = (better.ends()?, worse.ends()?);
    Some([low / worse_high, better.median() / worse.median(), high / worse_low])
}

/// "The first change of a rate gains more than the second": by how many times.
pub(crate) fn gains_in_order(
    label: &str,
    first: Option<[&MeasuredCell<'_>; 2]>,
    second: Option<[&MeasuredCell<'_>; 2]>,
) -> Option<ClaimCase> {
    let ([low, middle, high], [other_low, other, other_high]) =
        (gain_interval(first?)?, gain_interval(second?)?);
    let (ends, bounds) = ([low / other_high, high / other_low], (1.0, f64::INFINITY));
    let (label, value) = (label.to_owned(), middle / other);
    Some(ClaimCase::quantity("", label, value, Some(ends), bounds, Unit::Count))
}

/// Where a pair stands, and what it is: the placement, then every other level they share.
fn pair_label<'a>(
    factors: &'a Factors,
    first: &LevelFilter<'_>,
    second: &LevelFilter<'_>,
) -> (&'a str, String) {
    let word = |levels: &LevelFilter<'_>| levels.first().map_or("", |(_, level)| level).to_owned();
    let named = |name: &str| first.iter().chain(second).any(|(known, _)| *known == name);
    let shared = factors.0.iter().filter(|(name, _)| *name != "placement" && !named(name));
    let shared: Vec<String> = shared.map(|(_, level)| level.to_string()).collect();
    let place = factors.text("placement").unwrap_or_default();
    let ratio = [word(second), word(first)].join("/");
    (place, format!("{} {}", ratio.trim_matches('/'), shared.join(" ")))
}

/// The medians of the chosen cells of a response, within bounds.
pub(crate) fn medians_within(
    evidence: &ClaimEvidence<'_>,
    (experiment, response): (&'static str, &'static str),
    bounds: (f64, f64),
    chosen: impl Fn(&MeasuredCell<'_>) -> bool,
) -> ClaimCases {
    let cells = evidence.cells(experiment, response).filter(|cell| chosen(cell));
    let case = |cell: &MeasuredCell<'_>| {
        let (place, levels) = pair_label(&cell.cell.factors, &[], &[]);
        ClaimCase::median_within(place, format!("{response}{levels}"), cell, bounds)
    };
    cells.map(case).collect()
}

/// Whether a frame is as long as Ethernet's longest.
pub(crate) fn is_long(cell: &MeasuredCell<'_>) -> bool {
    cell.int("frame").is_some_and(|bytes| bytes >= 1514)
}

pub(crate) const LINUX: RatioLevels = &[("stack", "linux")];
pub(crate) const PLUMB: RatioLevels = &[("stack", "plumb")];
pub(crate) const SMOLTCP: RatioLevels = &[("stack", "smoltcp")];

/// A ratio of two stacks, whose devices may differ.
pub(crate) const fn stacks(response: &'static str, of: RatioLevels, to: RatioLevels) -> RatioPair {
    RatioPair { response, of, to, free: &["device"] }
}

/// A ratio of two levels at settings that agree otherwise.
pub(crate) const fn levels(response: &'static str, of: RatioLevels, to: RatioLevels) -> RatioPair {
    RatioPair { response, of, to, free: &[] }
}

const TEXT: &str = include_str!("../../../docs/claims.toml");

/// The statements in the order of the file.
pub(crate) static STATEMENTS: LazyLock<Vec<TestableStatement>> = LazyLock::new(|| read(TEXT));

fn read(text: &str) -> Vec<TestableStatement> {
    let table: toml::Table = text.parse().unwrap_or_default();
    let entries = table.get("claim").and_then(toml::Value::as_array);
    entries.into_iter().flatten().filter_map(statement).collect()
}

fn statement(entry: &toml::Value) -> Option<TestableStatement> {
    let text = |key: &str| text(entry, key);
    let figures = entry.get("figures").and_then(toml::Value::as_array);
    Some(TestableStatement {
        id: text("id")?,
        document: text("document")?,
        author: text("author")?,
        place: text("place")?,
        statement: text("statement")?,
        figures: figures.into_iter().flatten().filter_map(figure).collect(),
        experiment: text("experiment")?,
        is_encoded: entry.get("encoded")?.as_bool()?,
        needs: text("needs").unwrap_or_default(),
        flaw: text("flaw").unwrap_or_default(),
    })
}

fn figure(entry: &toml::Value) -> Option<StatementFigure> {
    let value = entry.get("value")?.as_float()?;
    Some(StatementFigure { name: text(entry, "name")?, value, unit: text(entry, "unit")? })
}

fn text(entry: &toml::Value, key: &str) -> Option<String> {
    entry.get(key).and_then(toml::Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::definition::Experiment;
    use crate::{list, machines};

    /// The document that a claim's source is; none of a source that is not one of the five.
    fn document_of(source: &str) -> Option<&'static str> {
        match source.split([',', ' ']).next()? {
            "Markatos" => Some("scaling"),
            "Weigle" => Some("gigabit"),
            "Lantz" => Some("distributed"),
            "Miller" | "Zhao" => Some("ipc"),
            "Kjellerstedt" => Some("stack"),
            _ => None,
        }
    }

    #[test]
    fn the_file_and_the_experiments_agree_on_what_is_encoded() {
        let encoded = STATEMENTS.iter().filter(|statement| statement.is_encoded);
        let in_file: BTreeSet<(&str, &str)> =
            encoded.map(|found| (found.id.as_str(), found.document.as_str())).collect();
        let claims = |experiment: &'static Experiment| {
            let claims = experiment.analysis.claims.iter();
            claims.filter_map(|claim| Some((claim.id, document_of(claim.source)?)))
        };
        let mut in_code: BTreeSet<(&str, &str)> = list::all().flat_map(claims).collect();
        let of_machines = machines::claims::CLAIMS.iter();
        in_code.extend(of_machines.filter_map(|it| Some((it.id, document_of(it.source())?))));
        let only_in_file: Vec<_> = in_file.difference(&in_code).collect();
        let only_in_code: Vec<_> = in_code.difference(&in_file).collect();
        assert!(
            only_in_file.is_empty() && only_in_code.is_empty(),
            "only in docs/claims.toml: {only_in_file:?}; only in the experiments: {only_in_code:?}"
        );
    }

    #[test]
    fn every_entry_of_the_file_is_read_and_has_its_own_id() {
        let ids: BTreeSet<&str> = STATEMENTS.iter().map(|found| found.id.as_str()).collect();
        assert_eq!(ids.len(), TEXT.matches("[[claim]]").count());
        assert_eq!(ids.len(), STATEMENTS.len());
        let figures: usize = STATEMENTS.iter().map(|found| found.figures.len()).sum();
        assert_eq!(figures, TEXT.matches("{ name = ").count());
    }

    #[test]
    fn no_statement_of_a_document_is_an_expectation_of_ours() {
        let expectations = list::all().flat_map(|experiment| experiment.analysis.expectations);
        let found: Vec<&str> = expectations
            .map(|expectation| expectation.id)
            .filter(|id| STATEMENTS.iter().any(|statement| statement.id == *id))
            .collect();
        assert_eq!(found, Vec::<&str>::new());
    }
}
