//! A scene of primitives written as small SVG.
//!
//! Neighbouring strokes of one paint become one path, with all words after them, circles become
//! round-capped dots, numbers have one decimal: about a tenth of what one element a primitive costs. Left out: primitives
//! that plumb's figures never produce (gradients, rich text, heat maps).

use kuva::render::color::Color;
use kuva::render::render::{Primitive, Scene, TextAnchor};

use crate::figure::Figure;
use crate::html::escape;

/// The scene as one `<svg>` element, with the figure's title and description.
pub(super) fn write(scene: &Scene, figure: &Figure) -> String {
    let mut writer = SvgWriter::default();
    for primitive in &scene.elements {
        writer.primitive(primitive);
    }
    writer.close_path();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" \
         aria-label=\"{}\" font-family=\"system-ui,sans-serif\" font-size=\"{FONT_SIZE}\" fill=\"var(--ink)\">\
         <title>{}</title>{}{}</svg>",
        // The crate lets the last label of the horizontal axis hang over its edge.
        number(scene.width + OVERHANG),
        number(scene.height),
        escape(&figure.alt),
        escape(&figure.title),
        writer.svg,
        writer.labels,
    )
}

/// The size of most words, in pixels.
const FONT_SIZE: u32 = 13;

/// Half the width of a tick label, in pixels.
const OVERHANG: f64 = 16.0;

/// A small picture for keys.
fn key_svg(width: u32, content: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {width} 14\" width=\"{width}\" height=\"14\" aria-hidden=\"true\"{content}</svg>"
    )
}

/// The mark of a palette slot.
pub(super) fn swatch(slot: u8, line: bool) -> String {
    let d = match slot % 8 {
        0 => "M11 7m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
        1 => "M11 2.5l4.5 4.5-4.5 4.5-4.5-4.5z",
        2 => "M7.5 3.5h7v7h-7z",
        3 => "M11 2.5l4.3 7.8h-8.6z",
        4 => "M11 11.5l4.3-7.8h-8.6z",
        5 => "M10 3h2v3h3v2h-3v3h-2v-3h-3v-2h3z",
        6 => "M7 4.8l4-2.3 4 2.3v4.6l-4 2.3-4-2.3z",
        _ => "M7.6 4.6l1-1 2.4 2.4 2.4-2.4 1 1-2.4 2.4 2.4 2.4-1 1-2.4-2.4-2.4 2.4-1-1 2.4-2.4z",
    };
    let line = if line { "<path d=\"M0 6.3h22v1.4h-22z\"/>" } else { "" };
    key_svg(22, &format!(" fill=\"var(--c{})\">{line}<path d=\"{d}\"/>", slot % 8))
}

/// The line of a palette slot, for staircases, which have no marks.
pub(super) fn dashed_swatch(slot: u8) -> String {
    let dash = super::layout::dash(slot).dasharray();
    let dash =
        dash.map_or_else(String::new, |dash| format!(" stroke-dasharray=\"{}\"", escape(&dash)));
    let stroke = format!("stroke=\"var(--c{})\" stroke-width=\"2.4\"{dash}", slot % 8);
    key_svg(30, &format!("><path {stroke} d=\"M0 7h30\"/>"))
}

/// A piece of a bar.
pub(super) fn bar_swatch(slot: u8, hatched: bool) -> String {
    let paint = if hatched {
        "var(--edge)\" stroke-dasharray=\"2 2".to_owned()
    } else {
        format!("var(--c{})", slot % 8)
    };
    key_svg(22, &format!("><path stroke=\"{paint}\" stroke-width=\"11\" d=\"M2 7h18\"/>"))
}

/// Paint of a path: neighbours with the same are one element.
#[derive(Clone, PartialEq)]
struct SvgPaint {
    fill: String,
    stroke: String,
    width: f64,
    opacity: Option<f64>,
    dash: Option<String>,
    round: bool,
}

#[derive(Default)]
struct SvgWriter {
    svg: String,
    /// All labels. They stand above whatever is drawn, and do not come between two strokes of one paint.
    labels: String,
    open: Option<(SvgPaint, String)>,
}

impl SvgWriter {
    fn primitive(&mut self, primitive: &Primitive) {
        match primitive {
            Primitive::Line { x1, y1, x2, y2, stroke, stroke_width, stroke_dasharray } => {
                let paint = SvgPaint::stroked(stroke, *stroke_width, stroke_dasharray.as_ref());
                self.path(paint, &polyline(&[(*x1, *y1), (*x2, *y2)]));
            }
            Primitive::PolyLine { points, stroke, stroke_width, stroke_dasharray } => {
                let paint = SvgPaint::stroked(stroke, *stroke_width, stroke_dasharray.as_ref());
                self.path(paint, &polyline(points));
            }
            Primitive::Path(path) => {
                let dash = path.stroke_dasharray.as_ref();
                let stroked = SvgPaint::stroked(&path.stroke, path.stroke_width, dash);
                let fill = path.fill.as_ref();
                let fill = fill.map_or_else(|| "none".to_owned(), Color::to_svg_string);
                let paint = SvgPaint { fill, opacity: path.opacity, ..stroked };
                let d = shortened(&path.d);
                self.path(paint, &relative(&d).unwrap_or(d));
            }
            Primitive::Circle { cx, cy, r, fill, .. } => self.dots(&[*cx], &[*cy], *r, fill),
            Primitive::CircleBatch { cx, cy, r, fill, .. } => self.dots(cx, cy, *r, fill),
            Primitive::Rect { x, y, width, height, fill, .. } => {
                let (width, height) = (number(*width), number(*height));
                let d = format!("M{}h{width}v{height}h-{width}z", point(*x, *y));
                if !matches!(fill, Color::None) {
                    self.path(SvgPaint::filled(fill), &d);
                }
            }
            Primitive::Text { .. } => self.text(primitive),
            // Marks never leave the axes, which end beyond them, so nothing needs clipping;
            // groups only carry tooltips here.
            _ => {}
        }
    }

    fn dots(&mut self, cx: &[f64], cy: &[f64], r: f64, fill: &Color) {
        let paint = SvgPaint { round: true, ..SvgPaint::stroked(fill, r * 2.0, None) };
        let d: String = cx.iter().zip(cy).map(|(x, y)| format!("M{}h0", point(*x, *y))).collect();
        self.path(paint, &d);
    }

    fn path(&mut self, paint: SvgPaint, d: &str) {
        match &mut self.open {
            Some((open, path)) if *open == paint => path.push_str(d),
            _ => {
                self.close_path();
                self.open = Some((paint, d.to_owned()));
            }
        }
    }

    fn close_path(&mut self) {
        let Some((paint, d)) = self.open.take() else { return };
        let out = &mut self.svg;
        *out += &format!("<path fill=\"{}\"", escape(&paint.fill));
        if paint.stroke != "none" {
            let (stroke, width) = (escape(&paint.stroke), number(paint.width));
            *out += &format!(" stroke=\"{stroke}\" stroke-width=\"{width}\"");
        }
        if paint.round {
            out.push_str(" stroke-linecap=\"round\"");
        }
        if let Some(dash) = &paint.dash {
            *out += &format!(" stroke-dasharray=\"{}\"", escape(dash));
        }
        if let Some(opacity) = paint.opacity.filter(|opacity| *opacity < 1.0) {
            *out += &format!(" opacity=\"{opacity}\"");
        }
        *out += &format!(" d=\"{d}\"/>");
    }

    fn text(&mut self, label: &Primitive) {
        let Primitive::Text { x, y, content, size, anchor, rotate, bold, color } = label else {
            return;
        };
        if content.is_empty() {
            return;
        }
        let out = &mut self.labels;
        *out += &format!("<text x=\"{}\" y=\"{}\"", number(*x), number(*y));
        if *size != FONT_SIZE {
            *out += &format!(" font-size=\"{size}\"");
        }
        match anchor {
            TextAnchor::Start => {}
            TextAnchor::Middle => out.push_str(" text-anchor=\"middle\""),
            TextAnchor::End => out.push_str(" text-anchor=\"end\""),
        }
        if let Some(angle) = rotate {
            *out += &format!(" transform=\"rotate({} {})\"", number(*angle), point(*x, *y));
        }
        if *bold {
            out.push_str(" font-weight=\"600\"");
        }
        if let Some(color) = color {
            *out += &format!(" fill=\"{}\"", escape(&color.to_svg_string()));
        }
        *out += &format!(">{}</text>", escape(content));
    }
}

impl SvgPaint {
    fn stroked(stroke: &Color, width: f64, dash: Option<&String>) -> Self {
        let dash = dash.cloned();
        let stroke = if width > 0.0 { stroke.to_svg_string() } else { "none".to_owned() };
        Self { fill: "none".to_owned(), stroke, width, opacity: None, dash, round: false }
    }

    fn filled(fill: &Color) -> Self {
        Self { fill: fill.to_svg_string(), ..Self::stroked(&Color::None, 0.0, None) }
    }
}

fn polyline(points: &[(f64, f64)]) -> String {
    let mut d = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        d.push(if index == 0 { 'M' } else { 'L' });
        d.push_str(&point(*x, *y));
    }
    relative(&d).unwrap_or(d)
}

/// A path of straight lines with its points told from one another instead of from the corner, and
/// level and upright lines by one number: a third shorter. None for any other path.
fn relative(d: &str) -> Option<String> {
    let mut short = String::with_capacity(d.len());
    // In tenths, so that rounding does not add up.
    let (mut x, mut y) = (0_i64, 0_i64);
    let mut start = (0, 0);
    let mut rest = d;
    while let Some(command) = rest.chars().next() {
        let end = rest[1..].find(|c: char| c.is_ascii_alphabetic()).map_or(rest.len(), |at| at + 1);
        let numbers = rest[1..end].split(' ').filter(|token| !token.is_empty());
        let numbers: Option<Vec<i64>> = numbers.map(tenths).collect();
        match (command, numbers?.as_slice()) {
            ('M', [to_x, to_y]) => {
                short.push_str(&rest[..end]);
                (x, y) = (*to_x, *to_y);
                start = (x, y);
            }
            ('L', [to_x, to_y]) => {
                short.push_str(&step(to_x - x, to_y - y));
                (x, y) = (*to_x, *to_y);
            }
            ('Z' | 'z', []) => {
                short.push('z');
                (x, y) = start;
            }
            _ => return None,
        }
        rest = &rest[end..];
    }
    Some(short)
}

/// A line to a point so many tenths away.
fn step(dx: i64, dy: i64) -> String {
    match (dx, dy) {
        (_, 0) => format!("h{}", tenths_text(dx)),
        (0, _) => format!("v{}", tenths_text(dy)),
        _ => format!("l{}{}{}", tenths_text(dx), if dy < 0 { "" } else { " " }, tenths_text(dy)),
    }
}

/// A number with at most one decimal, in tenths.
fn tenths(text: &str) -> Option<i64> {
    let value: f64 = text.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "coordinates are a few thousand at most")]
    Some((value * 10.0).round() as i64)
}

/// Tenths as SVG reads them, without the zero that it does not need.
fn tenths_text(tenths: i64) -> String {
    let text = number(tenths as f64 / 10.0);
    match text.strip_prefix("-0.") {
        Some(digit) => format!("-.{digit}"),
        None => text.strip_prefix("0.").map_or(text.clone(), |digit| format!(".{digit}")),
    }
}

/// A path with its numbers rounded to one decimal and its spaces halved.
fn shortened(d: &str) -> String {
    let mut short = String::with_capacity(d.len());
    for token in d.split([' ', ',']).filter(|token| !token.is_empty()) {
        let (command, digits) = match token.find(|c: char| c.is_ascii_digit() || "-.".contains(c)) {
            Some(at) => token.split_at(at),
            None => (token, ""),
        };
        if command.is_empty() && !short.ends_with(|c: char| c.is_ascii_alphabetic()) {
            short.push(' ');
        }
        short.push_str(command);
        let (digits, tail) = digits.split_at(
            digits.find(|c: char| c.is_ascii_alphabetic() && c != 'e').unwrap_or(digits.len()),
        );
        match digits.parse::<f64>() {
            Ok(value) => short.push_str(&number(value)),
            Err(_) => short.push_str(digits),
        }
        short.push_str(tail);
    }
    short
}

fn point(x: f64, y: f64) -> String {
    format!("{} {}", number(x), number(y))
}

/// A coordinate with at most one decimal.
fn number(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    if rounded.is_finite() { (rounded + 0.0).to_string() } else { "0".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn straight_paths_are_told_from_point_to_point_and_end_where_they_did() {
        let told = relative("M10 20L30 20L30 5.5L40.1 1L39.9 1.5Z");
        assert_eq!(told.as_deref(), Some("M10 20h20v-14.5l10.1-4.5l-.2 .5z"));
        assert_eq!(relative("M1 2C3 4 5 6 7 8"), None);
    }

    #[test]
    fn paths_lose_their_digits_and_keep_their_shape() {
        assert_eq!(shortened("M 1.234 5.678 L 9 10.05Z"), "M1.2 5.7L9 10.1Z");
        assert_eq!(shortened("M1.26,2 L3,4 Z"), "M1.3 2L3 4Z");
        assert_eq!(number(-0.01), "0");
    }
}
