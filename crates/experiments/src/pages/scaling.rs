//! What pages of study `scaling` share.

pub(crate) use super::streams::*;

use plumb_analysis::document::CellResult;
use plumb_report::figure::by_level::{self, LevelPlot};
use plumb_report::name;

pub(crate) const LINKS: LevelPlot = LevelPlot {
    factor: "link",
    order: &["loopback", "veth", "lan-10g", "lan-1g", "lan-100m", "ethernet-10m"],
    panel_factors: &["placement"],
    pictures: &[
        ("Throughput", &["throughput"], true),
        ("Bytes for each second of CPU", &SIDES, false),
    ],
};

/// What a second of CPU carries over each link, a sentence a side.
pub(crate) fn bytes_per_cpu_sentences(cells: &[&CellResult]) -> Vec<String> {
    let sentence = |response: &str| {
        let mut cells = of(cells, response);
        let varies = name::varying(cells.iter().copied()).contains("placement");
        cells.sort_by_cached_key(|cell| {
            (name::placement_order(cell), by_level::order(cell, "link", LINKS.order))
        });
        let words = |cell: &&CellResult| {
            let wanted: &[&str] = if varies { &["link", "placement"] } else { &["link"] };
            // Bytes for a second of CPU are no rate.
            format!("{} {}", levels(cell, wanted), median_text(cell).replace("B/s", "B"))
        };
        let told: Vec<String> = cells.iter().map(words).collect();
        (!told.is_empty()).then(|| {
            format!("A second of the {}'s CPU carries: {}.", name::side(response), told.join("; "))
        })
    };
    SIDES.iter().filter_map(|response| sentence(response)).collect()
}
