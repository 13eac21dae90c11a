//! Lines, areas, markers and words written as small SVG.
//!
//! Neighboring shapes of one paint become one path, whose points are told from one another with one decimal.

use crate::html::escape;

/// The size of all words, in pixels.
const FONT_SIZE: u32 = 13;

/// Where a text stands by its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextAnchor {
    Start,
    Middle,
    End,
    /// Centered, reading upwards.
    Upright,
}

/// A picture under way.
#[derive(Default)]
pub(super) struct SvgWriter {
    shapes: String,
    /// All words: they stand above whatever is drawn, and do not come between two shapes of one paint.
    words: String,
    /// Paint and points of the path that the next shape may continue.
    open: Option<(String, String)>,
}

/// Attributes of a line of a color and width, which may be dashed.
pub(super) fn line_paint(color: &str, width: f64, dash: &str) -> String {
    let dash =
        if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
    format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"{dash}")
}

impl SvgWriter {
    /// A line through these points.
    pub(super) fn line(&mut self, paint: &str, points: &[[f64; 2]]) {
        self.path(paint, &path(points));
    }

    /// The area within these points.
    pub(super) fn area(&mut self, paint: &str, points: &[[f64; 2]]) {
        self.path(paint, &(path(points) + "z"));
    }

    /// The marker of a palette slot, so many pixels large on each side of its center.
    pub(super) fn marker(&mut self, slot: u8, color: &str, [x, y]: [f64; 2], size: f64) {
        let corners = MARKERS[usize::from(slot) % MARKERS.len()];
        if corners.is_empty() {
            let dot = line_paint(color, size * 2.0, "") + " stroke-linecap=\"round\"";
            return self.path(&dot, &(path(&[[x, y]]) + "h0"));
        }
        let (corners, _) = corners.as_chunks::<2>();
        let corner = |[dx, dy]: &[f64; 2]| [dx.mul_add(size, x), dy.mul_add(size, y)];
        let corners: Vec<[f64; 2]> = corners.iter().map(corner).collect();
        self.area(&format!("fill=\"{color}\""), &corners);
    }

    /// A label.
    pub(super) fn text(&mut self, [x, y]: [f64; 2], anchor: TextAnchor, text: &str) {
        if text.is_empty() {
            return;
        }
        let (x, y) = (tenths_text(tenths(x)), tenths_text(tenths(y)));
        let (anchor, turn) = match anchor {
            TextAnchor::Start => ("start", String::new()),
            TextAnchor::Middle => ("middle", String::new()),
            TextAnchor::End => ("end", String::new()),
            TextAnchor::Upright => ("middle", format!(" transform=\"rotate(-90 {x} {y})\"")),
        };
        let text = escape(text);
        self.words +=
            &format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\"{turn}>{text}</text>");
    }

    fn path(&mut self, paint: &str, d: &str) {
        match &mut self.open {
            Some((open, path)) if open == paint => path.push_str(d),
            _ => {
                self.close_path();
                self.open = Some((paint.to_owned(), d.to_owned()));
            }
        }
    }

    /// Lets the next shape begin a path of its own.
    pub(super) fn close_path(&mut self) {
        if let Some((paint, d)) = self.open.take() {
            self.shapes += &format!("<path {paint} d=\"{d}\"/>");
        }
    }

    /// Everything drawn, as one picture of a width and height in pixels, with its title and description.
    pub(super) fn finish_figure(
        self,
        (width, height): (f64, f64),
        title: &str,
        alt: &str,
    ) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{}\" font-family=\"system-ui,sans-serif\" font-size=\"{FONT_SIZE}\" fill=\"var(--ink)\">\
             <title>{}</title>{}</svg>",
            escape(alt),
            escape(title),
            self.finish(),
        )
    }

    /// Everything drawn, as SVG elements.
    pub(super) fn finish(mut self) -> String {
        self.close_path();
        self.shapes + &self.words
    }
}

/// Corners of the markers by palette slot, in the order of the terminal's, for a size of 1: x and y in turn.
/// The first marker is round.
const MARKERS: [&[f64]; 8] = [
    &[],
    &[0.0, -1.3, 1.3, 0.0, 0.0, 1.3, -1.3, 0.0],
    &[-1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0],
    &[0.0, -1.1, 1.1, 0.8, -1.1, 0.8],
    &[0.0, 1.1, 1.1, -0.8, -1.1, -0.8],
    &PLUS,
    &[0.0, -1.15, 1.0, -0.6, 1.0, 0.6, 0.0, 1.15, -1.0, 0.6, -1.0, -0.6],
    &CROSS,
];
const PLUS: [f64; 24] = [
    -0.3, -1.1, 0.3, -1.1, 0.3, -0.3, 1.1, -0.3, 1.1, 0.3, 0.3, 0.3, 0.3, 1.1, -0.3, 1.1, -0.3,
    0.3, -1.1, 0.3, -1.1, -0.3, -0.3, -0.3,
];
const CROSS: [f64; 24] = [
    -0.9, -0.5, -0.5, -0.9, 0.0, -0.4, 0.5, -0.9, 0.9, -0.5, 0.4, 0.0, 0.9, 0.5, 0.5, 0.9, 0.0,
    0.4, -0.5, 0.9, -0.9, 0.5, -0.4, 0.0,
];

/// A path of straight lines, each point told from the one before, level and upright lines by one number.
fn path(points: &[[f64; 2]]) -> String {
    let mut d = String::new();
    // In tenths, so that rounding does not add up.
    let mut last = None;
    for [x, y] in points {
        let (x, y) = (tenths(*x), tenths(*y));
        d += &match last.replace((x, y)) {
            None => format!("M{}{}", tenths_text(x), coordinate(y)),
            Some((from_x, from_y)) => match (x - from_x, y - from_y) {
                (dx, 0) => format!("h{}", tenths_text(dx)),
                (0, dy) => format!("v{}", tenths_text(dy)),
                (dx, dy) => format!("l{}{}", tenths_text(dx), coordinate(dy)),
            },
        };
    }
    d
}

/// A number behind another: its sign is separator enough.
fn coordinate(tenths: i64) -> String {
    let gap = if tenths < 0 { "" } else { " " };
    format!("{gap}{}", tenths_text(tenths))
}

#[expect(clippy::cast_possible_truncation, reason = "coordinates are a few thousand at most")]
fn tenths(value: f64) -> i64 {
    (value * 10.0).round() as i64
}

/// Tenths as SVG reads them, without the zero that it does not need.
fn tenths_text(tenths: i64) -> String {
    let sign = if tenths < 0 { "-" } else { "" };
    match (tenths.unsigned_abs() / 10, tenths.unsigned_abs() % 10) {
        (whole, 0) => format!("{sign}{whole}"),
        (0, tenth) => format!("{sign}.{tenth}"),
        (whole, tenth) => format!("{sign}{whole}.{tenth}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_told_from_one_another_and_end_where_they_did() {
        let points = [[10.0, 20.0], [30.04, 20.0], [30.0, 5.5], [40.1, 1.0], [39.9, 1.5]];
        assert_eq!(path(&points), "M10 20h20v-14.5l10.1-4.5l-.2 .5");
        assert_eq!(path(&[[-0.01, -3.0]]), "M0-3");
    }
}
