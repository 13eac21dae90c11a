//! `display.memory`: what drawings take as display files and as bitmaps.
//!
//! After Lantz, Nowicki & Theimer (1985, §5.3 and Table 5-2). Counted, not timed: items and their text, without what surrounds them, and a bit for
//! each pixel of the frame.

use plumb_harness::spec::DisplayPath;
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::LANTZ;
use crate::factor::display::cell;
use crate::prelude::*;

/// A drawing a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "display.memory",
    study: "distributed",
    question: "How much less memory than a bitmap does a display file take?",
    hypothesis: "As long as an item has more than 20 bytes of bitmap, the display file is smaller; with structure by far.",
    factors: &[Factor::of_words(
        "drawing",
        "630 vectors; 780 rectangles in a list, or structured; a page of text; or a million rectangles in a list, or structured",
        &DRAWINGS,
    )],
    responses: &[
        ResponseVariable::new(
            "display-file",
            Unit::Bytes,
            Better::Lower,
            "bytes of all items and their text",
        ),
        ResponseVariable::new(
            "bitmap",
            Unit::Bytes,
            Better::Lower,
            "bytes of the frame with a bit a pixel",
        ),
    ],
    plan_cell: |point| {
        cell(point.text("drawing").unwrap_or("array"), "batch", Some(DisplayPath::Memory))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Memory of display files and bitmaps",
        figures: Some(|data| by_level::figures(&data.cells, &PLOT)),
        responses: &[("display-file", "display file"), ("bitmap", "bitmap")],
        ..ExperimentPage::PLAIN
    },
};

const DRAWINGS: [&str; 6] =
    ["polygon", "array", "structured-array", "text", "chip", "structured-chip"];

const PLOT: LevelPlot = LevelPlot {
    factor: "drawing",
    order: &DRAWINGS,
    panel_factors: &[],
    pictures: &[("Bytes of a drawing", &["display-file", "bitmap"], true)],
};

const COMMAND: &str = "plumb run display.memory";

/// Bytes of a drawing in one form.
fn bytes_of(evidence: &ClaimEvidence<'_>, drawing: &str, form: &'static str) -> Option<f64> {
    let mut cells = evidence.cells("display.memory", form);
    cells.find(|cell| cell.is("drawing", drawing)).map(MeasuredCell::median)
}

/// How many times smaller than the bitmap a display file is, within bounds.
fn saving(
    evidence: &ClaimEvidence<'_>,
    drawing: &'static str,
    bounds: (f64, f64),
) -> ClaimJudgment {
    let of = |form| {
        let mut cells = evidence.cells("display.memory", form);
        cells.find(|cell| cell.is("drawing", drawing))
    };
    let case = of("display-file").zip(of("bitmap")).map(|(file, bitmap)| {
        ClaimCase::ratio_within("", format!("bitmap/file {drawing}"), (file, bitmap), bounds)
    });
    judge_all(case.into_iter().collect(), COMMAND)
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.memory.vector",
        claim: "The 36-agon takes 12,600 bytes as a display file, 20 an item, against 80,000 as a bitmap of 800 × 800.",
        figures: &[
            entry("display file", 12_600.0, |it| bytes_of(it, "polygon", "display-file")),
            entry("bitmap", 80_000.0, |it| bytes_of(it, "polygon", "bitmap")),
        ],
        judge: |evidence| saving(evidence, "polygon", (6.2, 6.5)),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.memory.rect-unstructured",
        claim: "Even without structure the display file of the rectangles saves a factor of about two against the bitmap.",
        figures: &[
            entry("display file", 15_600.0, |it| bytes_of(it, "array", "display-file")),
            entry("bitmap", 34_000.0, |it| bytes_of(it, "array", "bitmap")),
        ],
        // Half as much and twice as much are about it.
        judge: |evidence| saving(evidence, "array", (1.0, 4.0)),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.memory.rect-structured",
        claim: "With structure the display file of the rectangles is 37 times smaller than the bitmap.",
        figures: &[
            entry("display file", 900.0, |it| bytes_of(it, "structured-array", "display-file")),
            entry("bitmap", 34_000.0, |it| bytes_of(it, "structured-array", "bitmap")),
        ],
        judge: |evidence| saving(evidence, "structured-array", (18.5, 74.0)),
        ..PublishedClaim::of(LANTZ)
    },
];

/// A number of Table 5-2, and where today's is found.
const fn entry(
    label: &'static str,
    value: f64,
    find: plumb_analysis::claim::FigureFinder,
) -> PublishedFigure {
    PublishedFigure {
        today: plumb_analysis::claim::FigureToday::Found(find),
        ..PublishedFigure::alone(label, value, Unit::Bytes, "Table 5-2")
    }
}
