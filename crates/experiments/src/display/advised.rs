//! Measured drawings as work that `plumb advise` predicts, and how long they took.
//!
//! What the processors cost is taken from drawings by calls alone, `path=direct`, and what a socket costs from one cell of each: vectors
//! drawn one by one. All other cells are predicted.

use std::collections::BTreeMap;

use plumb_analysis::advice::{AdvisedWork, SendingMode};
use plumb_analysis::summary::MeasuredCell;
use plumb_base::units::Rate;
use plumb_harness::spec::DisplayPath;
use plumb_link::spec::{LinkSpec, RateSpec};
use plumb_link::text::NoFiles;

use super::DRAWINGS;
use crate::distributed::display_link;
use crate::factor::display::path;

/// Headers of a frame with TCP's time stamps, of Ethernet included.
const HEADER_BYTES: f64 = 66.0;

/// A drawing that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdvisedDrawing {
    /// As work.
    pub work: AdvisedWork,
    /// How it was sent.
    pub mode: SendingMode,
    /// Nanoseconds until its frame was proved.
    pub measured_ns: f64,
}

/// What is known about a cell but its costs.
struct MeasuredDrawing<'a> {
    path: DisplayPath,
    /// Its drawing and mode: what it costs is the same on every path.
    kind: (&'static str, &'a str),
    measured_ns: f64,
    bytes: f64,
    round_trips: f64,
}

/// The cells of a run that are predicted: all but those that costs are taken from.
pub fn advised_drawings(measured: &[MeasuredCell<'_>]) -> Vec<AdvisedDrawing> {
    let drawings: Vec<MeasuredDrawing<'_>> =
        measured.iter().filter_map(|it| drawing(it, measured)).collect();
    let is_local = |drawing: &&MeasuredDrawing<'_>, name: &str| matches!(&drawing.path, DisplayPath::Local(local) if local == name);
    let costs: BTreeMap<(&str, &str), f64> = drawings
        .iter()
        .filter(|drawing| is_local(drawing, "direct"))
        .map(|drawing| (drawing.kind, drawing.measured_ns))
        .collect();
    // An exchange is two messages, and each costs both ends.
    let of_socket = ("polygon", "incremental");
    let socket = |name: &str| {
        let drawing = drawings.iter().find(|it| is_local(it, name) && it.kind == of_socket)?;
        let waited = drawing.measured_ns - costs.get(&of_socket)?;
        Some(waited / drawing.round_trips / 4.0)
    };
    let advised = |drawing: &MeasuredDrawing<'_>| {
        let cost = *costs.get(&drawing.kind)?;
        let mode = match drawing.kind.1 {
            "incremental" => SendingMode::StopAndWait,
            "pipelined-incremental" => SendingMode::Pipelined { window: f64::INFINITY },
            _ => SendingMode::Batched { batch: f64::INFINITY },
        };
        let items = match mode {
            SendingMode::StopAndWait => drawing.round_trips,
            _ => f64::from(DRAWINGS.iter().find(|(name, _)| *name == drawing.kind.0)?.1.items()),
        };
        let (rtt_ns, rate, slower, message_ns) = match &drawing.path {
            DisplayPath::Local(name) if *name != "direct" && drawing.kind != of_socket => {
                (0.0, f64::INFINITY, 1.0, socket(name)?)
            }
            DisplayPath::Virtual { link, slower_percent: [percent, _], .. } => {
                let (rtt_ns, rate) = link_of(link)?;
                (rtt_ns, rate, *percent as f64 / 100.0, 0.0)
            }
            _ => return None,
        };
        let work = AdvisedWork {
            items,
            item_bytes: drawing.bytes / items,
            dependent: 0.0,
            rtt_ns,
            rate,
            loss: 0.0,
            sender_item_ns: 0.0,
            receiver_item_ns: cost * slower / items,
            message_ns,
            message_bytes: HEADER_BYTES,
        };
        Some(AdvisedDrawing { work, mode, measured_ns: drawing.measured_ns })
    };
    drawings.iter().filter_map(advised).collect()
}

fn drawing<'a>(
    cell: &MeasuredCell<'a>,
    measured: &[MeasuredCell<'a>],
) -> Option<MeasuredDrawing<'a>> {
    (cell.cell.response == "rate").then_some(())?;
    let (drawing, path) = match cell.cell.experiment.as_str() {
        "display.rect" => ("array", path(cell.level("path"))),
        "display.vector" => ("polygon", path(cell.level("path"))),
        "display.text" => ("text", path(cell.level("path"))),
        "display.link" => {
            ("array", Some(display_link::path(cell.level("link"), cell.level("processors"))))
        }
        _ => return None,
    };
    let counted = |response: &str| {
        let is_twin = |other: &&MeasuredCell<'_>| {
            other.cell.response == response
                && other.cell.experiment == cell.cell.experiment
                && other.cell.factors == cell.cell.factors
        };
        measured.iter().find(is_twin).map(MeasuredCell::median)
    };
    let (_, of) = DRAWINGS.iter().find(|(name, _)| *name == drawing)?;
    Some(MeasuredDrawing {
        path: path?,
        kind: (drawing, cell.level("mode")),
        measured_ns: f64::from(of.units()) / cell.median() * 1e9,
        bytes: counted("bytes")?,
        round_trips: counted("round-trips")?,
    })
}

/// Round-trip time in nanoseconds and bytes a second of a link's text.
fn link_of(text: &str) -> Option<(f64, f64)> {
    let link = LinkSpec::parse(text, &NoFiles).ok()?;
    let hop = link.hops.first()?;
    let RateSpec::Constant(rate) = &hop.up.rate else { return None };
    let rtt = hop.up.delay.mean().as_ns_f64() + hop.down.delay.mean().as_ns_f64();
    Some((rtt, Rate::bits_per_second(*rate) as f64 / 8.0))
}
