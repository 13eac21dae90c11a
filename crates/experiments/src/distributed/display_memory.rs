//! `display.memory`: what drawings take as display files and as bitmaps.
//!
//! After Lantz, Nowicki & Theimer (1985, §5.3 and Table 5-2). Counted, not timed: items and their text, without what surrounds them, and a bit for
//! each pixel of the frame.

use plumb_harness::spec::DisplayPath;
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, medians_within};
use crate::factor::display::{BYTES, cell, cell_at};
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
        ResponseVariable::new(
            PIXELS,
            Unit::Count,
            Better::Lower,
            "pixels of all vectors, those that cross counted each time",
        ),
    ],
    plan_cell: |point| {
        if point.response == PIXELS && point.text("drawing") != Some("polygon") {
            return Err(Exclusion::NotApplicable);
        }
        cell(point.text("drawing").unwrap_or("array"), "batch", Some(DisplayPath::Memory))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Memory of display files and bitmaps",
        figures: Some(|data| by_level::figures(&data.cells, &PLOT)),
        responses: &[("display-file", "display file"), ("bitmap", "bitmap"), (PIXELS, "pixels")],
        ..ExperimentPage::PLAIN
    },
};

const PIXELS: &str = "pixels";

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
        id: "distributed.vector.polygon-pixels",
        claim: "A fully connected 36-agon of radius 350 pixels has 288,364 pixels (judged by 5 %; as many are its vectors long, of which a \
                rasteriser draws one in each column or row).",
        figures: &[PublishedFigure::comparable("pixels", 288_364.0, Unit::Count, "§3.1.1")],
        judge: |evidence| {
            let cases = medians_within(
                evidence,
                ("display.memory", PIXELS),
                (273_946.0, 302_782.0),
                |cell| cell.is("drawing", "polygon"),
            );
            judge_all(cases, COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
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
    PublishedClaim {
        id: "distributed.rect.structure-needs-few-items",
        claim: "Structure reduces 780 rectangles (30 inverters of 26) to 23 primitive items and 30 calls (judged by the bytes of all items).",
        figures: &[PublishedFigure::ratio("list to structure", 780.0 / 53.0, "§3.2")],
        judge: |evidence| {
            let of = |drawing| {
                cell_at(evidence, ("display.memory", "display-file"), &[("drawing", drawing)])
            };
            let case = of("structured-array").zip(of("array")).map(|pair| {
                ClaimCase::ratio_within("", "list/structure".to_owned(), pair, (7.4, 29.4))
            });
            judge_all(case.into_iter().collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.memory.break-even",
        claim: "A display file is smaller than a bitmap while each item has more than 20 bytes of bitmap.",
        figures: &[PublishedFigure::alone("bitmap an item", 20.0, Unit::Bytes, "§5.3")],
        judge: |evidence| {
            let cases = ITEMS.into_iter().filter_map(|(drawing, items)| {
                let of =
                    |form| cell_at(evidence, ("display.memory", form), &[("drawing", drawing)]);
                let (file, bitmap) = (of("display-file")?, of("bitmap")?);
                let an_item = bitmap.median() / items;
                let label = format!("{drawing}, {} B an item", significant(an_item, 3));
                // The smaller and the larger, as it says.
                let pair = if an_item > 20.0 { (file, bitmap) } else { (bitmap, file) };
                Some(ClaimCase::ratio_within("", label, pair, (1.0, f64::INFINITY)))
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.memory.transmitted-as-stored",
        claim: "The data sent is directly proportional to the memory that stores it at the workstation (judged by half to twice the polygon's \
                bytes sent for a byte stored).",
        judge: |evidence| {
            let sent = |(experiment, mode, drawing)| {
                let levels = [("path", "direct"), ("mode", mode)];
                let sent = cell_at(evidence, (experiment, BYTES.name), &levels)?;
                Some(sent.median() / bytes_of(evidence, drawing, "display-file")?)
            };
            let usual = sent(("display.vector", "construction", "polygon"));
            let others = [
                ("display.rect", "batch", "array"),
                ("display.rect", "structured", "structured-array"),
                ("display.text", "batch", "text"),
            ];
            let cases = others.into_iter().filter_map(|other| {
                let (ratio, label) = (sent(other)? / usual?, format!("{}/polygon", other.2));
                // Bytes are counted.
                let ends = Some([ratio; 2]);
                Some(ClaimCase::quantity("", label, ratio, ends, (0.5, 2.0), Unit::Count))
            });
            judge_all(cases.collect(), "plumb study distributed")
        },
        ..PublishedClaim::of(LANTZ)
    },
];

/// Items of the drawings that are lists of them.
const ITEMS: [(&str, f64); 3] = [("polygon", 630.0), ("array", 780.0), ("chip", 1e6)];

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
