//! A figure: what it shows, apart from how it is drawn.
//!
//! A small description with two renderers, [`svg`] and [`text`]. Every figure carries
//! the table of its data and a sentence for those who cannot see it. Left out: colours and pixels;
//! a series has a palette slot, and the renderer decides what that looks like.

use plumb_analysis::document::CellResult;

use crate::table::TextTable;

pub mod against_factor;
pub mod against_size;
pub mod breakdown;
pub mod by_level;
pub mod connection;
pub mod ladder;
pub mod net;
mod scale;
pub mod simulation;
pub mod spread;
pub mod svg;
pub mod text;

/// One picture with its words and its data.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Unique on its page; safe in an HTML id.
    pub id: String,
    /// What is shown, as a heading.
    pub title: String,
    /// What the marks mean: which interval, which whiskers.
    pub note: String,
    /// The finding, or at least the extent, for those who cannot see it.
    pub alt: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// What is drawn, in drawing order.
    pub series: Vec<Series>,
    /// The numbers behind the marks.
    pub table: TextTable,
}

/// One axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it measures.
    pub label: String,
    /// Unit of its values, by its stored name (`ns`, `B/s`, `bit/s`, `B`, `count`, `share`).
    pub unit: String,
    /// How values become positions.
    pub scale: AxisScale,
    /// Values that must be on the axis even if no mark is there: figures to be compared share them.
    pub include: Option<[f64; 2]>,
}

/// How values become positions.
#[derive(Clone, Debug, PartialEq)]
pub enum AxisScale {
    /// Evenly.
    Linear,
    /// By their decimal logarithm.
    Log10,
    /// By their binary logarithm: sizes in bytes.
    Log2,
    /// A probability p by −log10(1 − p), so that tails have room: 0, 0.9, 0.99, 0.999 …
    Tail,
    /// Names; a value is the index of its name, the first on top or at the left.
    Names(Vec<String>),
}

/// Marks that belong together: one entry of the key.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the key; an empty one is not listed.
    pub name: String,
    /// Palette slot; the marker's shape follows it, so colour is never the only difference.
    pub slot: u8,
    /// What is drawn.
    pub marks: SeriesMarks,
}

/// What is drawn of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum SeriesMarks {
    /// Points with optional intervals.
    Points {
        /// The points, in the order in which a line would join them.
        at: Vec<FigurePoint>,
        /// Whether a line joins them: only where something between them would mean something.
        joined: bool,
    },
    /// The region between two curves: x, low, high.
    Band(Vec<[f64; 3]>),
    /// Horizontal boxes, one for each name of the vertical axis.
    Boxes(Vec<BoxPlot>),
    /// A staircase, such as an empirical distribution: x, y.
    Steps(Vec<[f64; 2]>),
    /// A dashed line through these points: what is expected or fitted, beside what was measured.
    Line(Vec<[f64; 2]>),
    /// Horizontal bars laid end to end, on rows named by the vertical axis.
    Stack {
        /// Row, where it begins, where it ends.
        segments: Vec<[f64; 3]>,
        /// Hatched instead of full: what is of another kind than its neighbours.
        hatched: bool,
    },
}

/// One point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FigurePoint {
    /// Horizontal value.
    pub x: f64,
    /// Vertical value.
    pub y: f64,
    /// Interval of the horizontal value.
    pub x_interval: Option<[f64; 2]>,
    /// Interval of the vertical value.
    pub y_interval: Option<[f64; 2]>,
}

/// One box: where it stands and its five numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoxPlot {
    /// Index of its name.
    pub at: f64,
    /// Where the whiskers end.
    pub whiskers: [f64; 2],
    /// First and third quartile.
    pub quartiles: [f64; 2],
    /// Median.
    pub median: f64,
}

impl Axis {
    /// An axis of measured values: logarithmic for times and rates, linear for shares and counts.
    pub fn measured(label: &str, unit: &str) -> Self {
        let scale = if matches!(unit, "ns" | "B/s" | "bit/s" | "B") {
            AxisScale::Log10
        } else {
            AxisScale::Linear
        };
        Self { label: label.to_owned(), unit: unit.to_owned(), scale, include: None }
    }

    /// An axis with a scale of one's choice.
    pub fn with_scale(label: &str, unit: &str, scale: AxisScale) -> Self {
        Self { label: label.to_owned(), unit: unit.to_owned(), scale, include: None }
    }

    /// An axis of evenly spaced values from zero to at least this.
    pub fn from_zero(label: &str, unit: &str, highest: f64) -> Self {
        let axis = Self::with_scale(label, unit, AxisScale::Linear);
        Self { include: Some([0.0, highest]), ..axis }
    }

    /// An axis of names.
    pub fn names(label: &str, names: Vec<String>) -> Self {
        Self::with_scale(label, "count", AxisScale::Names(names))
    }
}

impl Series {
    /// Points with their intervals.
    pub fn points(
        name: String,
        slot: u8,
        joined: bool,
        at: impl IntoIterator<Item = FigurePoint>,
    ) -> Self {
        let at = at.into_iter().collect();
        Self { name, slot, marks: SeriesMarks::Points { at, joined } }
    }

    /// A dashed line, which the key does not list.
    pub fn line(slot: u8, at: Vec<[f64; 2]>) -> Self {
        Self { name: String::new(), slot, marks: SeriesMarks::Line(at) }
    }

    /// Horizontal bars laid end to end.
    pub fn stack(name: String, slot: u8, segments: Vec<[f64; 3]>, hatched: bool) -> Self {
        Self { name, slot, marks: SeriesMarks::Stack { segments, hatched } }
    }
}

impl FigurePoint {
    /// The median of a cell with its interval; none where it has none.
    pub fn of_median(x: f64, cell: &CellResult) -> Option<Self> {
        let y = cell.summary.median?;
        Some(Self { x, y, x_interval: None, y_interval: cell.summary.ci95 })
    }

    /// A point without intervals.
    pub fn at(x: f64, y: f64) -> Self {
        Self { x, y, x_interval: None, y_interval: None }
    }
}

impl Figure {
    /// Whether nothing would be drawn.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|series| match &series.marks {
            SeriesMarks::Points { at, .. } => at.is_empty(),
            SeriesMarks::Band(at) => at.is_empty(),
            SeriesMarks::Steps(at) | SeriesMarks::Line(at) => at.is_empty(),
            SeriesMarks::Boxes(at) => at.is_empty(),
            SeriesMarks::Stack { segments, .. } => segments.is_empty(),
        })
    }
}

/// Series that fit in one figure: as many as there are colours that stay apart.
pub const SERIES_MAX: usize = 8;

/// The highest of the medians, or zero.
pub fn highest_median(cells: &[&CellResult]) -> f64 {
    cells.iter().filter_map(|cell| cell.summary.median).fold(0.0, f64::max)
}

/// A figure id made of words: lower-case letters, digits and hyphens.
pub fn slug(words: &[&str]) -> String {
    let mut slug = String::new();
    for c in words.join("-").chars() {
        match c {
            c if c.is_ascii_alphanumeric() => slug.push(c.to_ascii_lowercase()),
            _ if slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    slug.trim_matches('-').to_owned()
}
