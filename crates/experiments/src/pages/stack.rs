//! What pages of study `stack` share.

pub(crate) use super::bars;
pub(crate) use super::dots;
use plumb_analysis::document::RunDocument;
use plumb_analysis::ratio::MeasuredRatio;
use plumb_base::units::significant;
use plumb_report::headline::HeadlineTile;
use plumb_report::registry::PageData;
use plumb_report::{name, value};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a headline says of its circumstances.
pub(crate) const WHERE: [&str; 6] = ["stack", "device", "frame", "size", "placement", "wake"];

/// plumb over a TAP against Linux, a sentence a placement and wake mode.
pub(crate) fn against_linux(document: &RunDocument, experiment: &str, what: &str) -> Vec<String> {
    let mut places: BTreeMap<(usize, String), Vec<String>> = BTreeMap::new();
    let chosen = document.ratios.iter().filter(|ratio| {
        ratio.experiment == experiment
            && is_main(ratio)
            && matches!(bytes(&ratio.of), Some(60 | 1514))
    });
    for ratio in chosen {
        let wanted = ["placement", "wake"].map(str::to_owned).into();
        let place = name::cell(&ratio.of, &wanted);
        let near = ratio.of.get("placement").and_then(Value::as_str).unwrap_or("");
        let frame = bytes(&ratio.of).unwrap_or(0);
        let text = format!("{} for {frame} B", times(ratio));
        places.entry((name::placement_rank(near), place)).or_default().push(text);
    }
    let mut sentences: Vec<String> = places
        .into_iter()
        .map(|((_, place), parts)| {
            format!(
                "{}: through plumb over a TAP {what} is, as a multiple of Linux's over veth, {}.",
                name::capitalize(&place),
                parts.join(" and ")
            )
        })
        .collect();
    let published = published(document, experiment);
    if !sentences.is_empty() && !published.is_empty() {
        sentences.push(format!("Then: {published}."));
    }
    sentences
}

/// plumb over a TAP against Linux, with checksums, over IPv4.
pub(crate) fn is_main(ratio: &MeasuredRatio) -> bool {
    let sums = |level: &str| ratio.of.get("checksum").is_none_or(|found| found == level);
    is(&ratio.of, "stack", "plumb")
        && is(&ratio.of, "device", "tap")
        && is(&ratio.to, "stack", "linux")
        && (sums("computed") || sums("on"))
        && ratio.of.get("family").is_none_or(|family| family == "ipv4")
}

/// The historical figures of an experiment's claims, in one line.
pub(crate) fn published(document: &RunDocument, experiment: &str) -> String {
    let claims = document.claims.iter().filter(|claim| claim.experiment == experiment);
    let told: Vec<String> = claims.filter_map(|claim| claim.historical.clone()).collect();
    told.join("; ")
}

/// `0.72× [0.70, 0.74]`.
pub(crate) fn times(ratio: &MeasuredRatio) -> String {
    format!("{} {}", value::times(ratio.ratio), bounds(ratio))
}

pub(crate) fn bounds(ratio: &MeasuredRatio) -> String {
    let [low, high] = ratio.ci95.map(|bound| significant(bound, 3));
    format!("[{low}, {high}]")
}

pub(crate) fn is(factors: &BTreeMap<String, Value>, name: &str, level: &str) -> bool {
    factors.get(name).is_some_and(|found| found == level)
}

pub(crate) fn bytes(factors: &BTreeMap<String, Value>) -> Option<u64> {
    factors.get("frame").or_else(|| factors.get("size")).and_then(Value::as_u64)
}

/// The main ratio of a short frame, plumb to Linux, as a large figure.
pub(crate) fn linux_tile(data: &PageData<'_>, what: &str) -> Vec<HeadlineTile> {
    let found = data.document.ratios.iter().find(|ratio| {
        ratio.experiment == data.id && is_main(ratio) && bytes(&ratio.of) == Some(60)
    });
    let tile = |ratio: &MeasuredRatio| HeadlineTile {
        label: what.to_owned(),
        value: value::times(ratio.ratio),
        interval: bounds(ratio),
        conditions: name::cell(&ratio.of, &WHERE.map(str::to_owned).into()),
    };
    found.map(tile).into_iter().collect()
}
