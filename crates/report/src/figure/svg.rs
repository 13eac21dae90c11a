//! A figure as SVG: small, and colored only through CSS variables, so that one picture serves light, dark and print.

mod plot;
mod writer;

use super::{Figure, SeriesMarks};
use plot::FigurePlot;
use writer::{SvgWriter, line_paint};

/// The figure for an HTML page whose style sheet defines the palette (see [`PALETTE_CSS`]).
///
/// The key is not part of it: [`key`] is text of the page, which wraps.
pub fn inline(figure: &Figure) -> String {
    let plot = FigurePlot::new(figure);
    let mut writer = SvgWriter::default();
    plot.draw_axes(&mut writer);
    figure.series.iter().for_each(|series| plot.draw_series(series, &mut writer));
    writer.finish_figure(plot.size(), &figure.title, &figure.alt)
}

/// One entry for each named series: its name and a small picture of its mark.
pub fn key(figure: &Figure) -> Vec<(String, String)> {
    let named = figure.series.iter().filter(|series| !series.name.is_empty());
    named.map(|series| (series.name.clone(), swatch(series.slot, &series.marks))).collect()
}

/// A small picture of what a palette slot's marks look like.
fn swatch(slot: u8, marks: &SeriesMarks) -> String {
    const MIDDLE: f64 = 7.0;
    let color = format!("var(--c{})", slot % 8);
    let mut writer = SvgWriter::default();
    let mut width = 22.0;
    match marks {
        SeriesMarks::Stack { hatched, .. } => {
            let paint = plot::stack_paint(slot, 11.0, *hatched);
            writer.line(&paint, &[[2.0, MIDDLE], [20.0, MIDDLE]]);
        }
        SeriesMarks::Steps(_) | SeriesMarks::Line(_) => {
            width = 30.0;
            let paint = line_paint(&color, 2.4, plot::dash(slot));
            writer.line(&paint, &[[0.0, MIDDLE], [width, MIDDLE]]);
        }
        SeriesMarks::Points { joined: false, .. } | SeriesMarks::Boxes(_) => {
            writer.marker(slot, &color, [11.0, MIDDLE], 3.8);
        }
        SeriesMarks::Points { .. } | SeriesMarks::Band(_) => {
            writer.line(&line_paint(&color, 1.4, ""), &[[0.0, MIDDLE], [width, MIDDLE]]);
            writer.marker(slot, &color, [11.0, MIDDLE], 3.8);
        }
    }
    format!(
        "<svg viewBox=\"0 0 {width} 14\" width=\"{width}\" height=\"14\" aria-hidden=\"true\">{}</svg>",
        writer.finish()
    )
}

/// Palette of both schemes, after Okabe & Ito (2008), adjusted until every colour has a contrast
/// of 3:1 or more against its background (WCAG 2.2 §1.4.11).
pub const PALETTE_CSS: &str = "\
:root{--c0:#0069a8;--c1:#c24a00;--c2:#007a58;--c3:#a8478a;--c4:#a06a00;--c5:#2f86bd;--c6:#5b6570;\
--c7:#7b7a1d;--ink:#1c2430;--grid:#e3e7ec;--edge:#7d8894;--page:#fff}\
@media screen and (prefers-color-scheme:dark){:root{--c0:#6cb2ff;--c1:#ff9457;--c2:#3fcfa3;--c3:#ec9bd0;\
--c4:#f2bd4b;--c5:#9fdcff;--c6:#aab4bf;--c7:#d3d36b;--ink:#e6ebf1;--grid:#2b333d;--edge:#8592a0;\
--page:#12161b}}";

#[cfg(test)]
mod tests {
    use super::super::{Axis, AxisScale, Figure, FigurePoint, Series};
    use super::*;
    use crate::table::TextTable;

    fn figure() -> Figure {
        let at = [(4.0, 5_000.0), (1_024.0, 6_000.0), (524_288.0, 90_000.0)].map(|(x, y)| {
            FigurePoint { x, y, x_interval: None, y_interval: Some([y * 0.9, y * 1.2]) }
        });
        Figure {
            id: "f".to_owned(),
            title: "Latency <against> size".to_owned(),
            note: String::new(),
            alt: "pipe & tcp4".to_owned(),
            x: Axis::with_scale("size", "B", AxisScale::Log2),
            y: Axis::measured("latency", "ns"),
            series: vec![
                Series {
                    name: "pipe".to_owned(),
                    slot: 0,
                    marks: SeriesMarks::Points { at: at.to_vec(), joined: true },
                },
                Series {
                    name: "tcp4".to_owned(),
                    slot: 1,
                    marks: SeriesMarks::Points { at: at.to_vec(), joined: false },
                },
            ],
            table: TextTable::default(),
        }
    }

    #[test]
    fn a_small_figure_is_drawn_the_same_every_time() {
        insta::assert_snapshot!(inline(&figure()));
    }

    #[test]
    fn words_of_a_figure_cannot_become_markup() {
        let svg = inline(&figure());
        assert!(!svg.contains("<against>"));
        assert!(svg.contains("pipe &amp; tcp4"));
    }

    #[test]
    fn colours_come_only_from_css_variables() {
        let svg = inline(&figure());
        for attribute in ["fill=\"", "stroke=\""] {
            for part in svg.split(attribute).skip(1) {
                let paint = part.split('"').next().unwrap();
                assert!(paint == "none" || paint.starts_with("var(--"), "{paint}");
            }
        }
    }

    #[test]
    fn a_hundred_points_with_intervals_cost_less_than_ten_kilobytes() {
        let mut figure = figure();
        let at: Vec<FigurePoint> = (0..100u32)
            .map(|i| FigurePoint {
                x: f64::from(1 + i),
                y: f64::from(100 + i),
                x_interval: None,
                y_interval: Some([f64::from(90 + i), f64::from(120 + i)]),
            })
            .collect();
        figure.series.truncate(1);
        figure.series[0].marks = SeriesMarks::Points { at, joined: true };
        let svg = inline(&figure);
        assert!(svg.len() < 10_000, "{} bytes", svg.len());
    }

    #[test]
    fn a_figure_without_a_single_drawable_value_is_still_a_picture() {
        let mut figure = figure();
        for series in &mut figure.series {
            series.marks =
                SeriesMarks::Points { at: vec![FigurePoint::at(0.0, f64::NAN)], joined: true };
        }
        assert!(inline(&figure).ends_with("</svg>"));
    }
}
