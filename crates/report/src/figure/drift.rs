//! Run-order drift: launch medians against the order of launches, relative to each cell's median.
//!
//! One figure for a whole run, however many cells: the middle of all cells and where half and
//! nine tenths of them lie. Left out: naming the cells that drift.

use plumb_analysis::document::CellResult;

use super::{Axis, AxisScale, Figure, FigurePoint, Series, SeriesMarks};
use crate::table::TextTable;

/// The drift of a run; none when no cell has two launches.
pub fn figure(results: &[CellResult]) -> Option<Figure> {
    let rows = rows(results);
    if rows.len() < 2 {
        return None;
    }
    let place = |launch: usize| launch as f64 + 1.0;
    let band = |low: usize, high: usize| {
        let quantiles = rows.iter().map(|(_, quantiles)| (quantiles[low], quantiles[high]));
        let at = quantiles.enumerate().map(|(launch, (low, high))| [place(launch), low, high]);
        Series { name: String::new(), slot: 0, marks: SeriesMarks::Band(at.collect()) }
    };
    let middle = || rows.iter().map(|(_, quantiles)| quantiles[2]);
    let medians =
        middle().enumerate().map(|(launch, median)| FigurePoint::at(place(launch), median));
    let widest = middle().map(|median| (median - 1.0).abs()).fold(0.0, f64::max);
    Some(Figure {
        id: "drift".to_owned(),
        title: "Drift over the run".to_owned(),
        note: "Median of each launch over the median of its cell: the line is the middle of all \
               cells, the dark band holds half of them, the light one nine tenths. A line that \
               climbs or falls means that the machine changed while it was measured."
            .to_owned(),
        alt: format!(
            "Launch medians relative to their cells: the middle of all cells departs from 1 by at \
             most {:.1} %.",
            widest * 100.0
        ),
        x: Axis::with_scale(
            "launch, in the order in which they were made",
            "count",
            AxisScale::Linear,
        ),
        y: Axis::with_scale("launch median / cell median", "count", AxisScale::Linear),
        series: vec![band(0, 4), band(1, 3), Series::points(String::new(), 0, true, medians)],
        table: table(&rows),
    })
}

/// The ratios of all cells at one launch: their number and these quantiles.
type DriftRow = (usize, [f64; 5]);

const SHARES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];

fn rows(results: &[CellResult]) -> Vec<DriftRow> {
    let launches = results.iter().map(|result| result.summary.launch_medians.len()).max();
    (0..launches.unwrap_or(0))
        .filter_map(|launch| {
            let mut ratios: Vec<f64> = results
                .iter()
                .filter(|result| result.summary.launch_medians.len() > 1)
                .filter_map(|result| {
                    let ratio =
                        result.summary.launch_medians.get(launch)? / result.summary.median?;
                    ratio.is_finite().then_some(ratio)
                })
                .collect();
            ratios.sort_by(f64::total_cmp);
            let quantiles = SHARES.map(|p| nearest(&ratios, p).unwrap_or(1.0));
            (!ratios.is_empty()).then_some((ratios.len(), quantiles))
        })
        .collect()
}

/// The nearest-rank quantile: enough for a band.
fn nearest(sorted: &[f64], p: f64) -> Option<f64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the product is between 0 and the length"
    )]
    let rank = (p * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied()
}

fn table(rows: &[DriftRow]) -> TextTable {
    let mut table =
        TextTable::with_heads(&["#launch", "#cells", "#5 %", "#25 %", "#median", "#75 %", "#95 %"]);
    for (launch, (cells, quantiles)) in rows.iter().enumerate() {
        let ratios = quantiles.map(|ratio| format!("{ratio:.3}"));
        table.push([(launch + 1).to_string(), cells.to_string()].into_iter().chain(ratios));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_sample() {
        assert_eq!(nearest(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.0));
        assert_eq!(nearest(&[1.0], 0.05), Some(1.0));
        assert_eq!(nearest(&[], 0.5), None);
    }
}
