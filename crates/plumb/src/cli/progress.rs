//! Progress bars on standard error, drawn between blocks and never during one: the executor calls the observer only
//! between blocks, and no thread draws by itself.

use plumb_base::time::Span;
use plumb_base::units::whole;
use plumb_clock::monotonic_ns;

use super::output::CliOutput;
use plumb_experiments::definition::CellPlan;
use plumb_experiments::run::RunObserver;

/// The observer of a run: a bar on a terminal, notes only elsewhere.
pub fn watcher(output: &CliOutput) -> Box<dyn RunObserver> {
    let notes = NoteWatcher { output: output.clone() };
    match ProgressBar::new(output) {
        Some(bar) => Box::new(ProgressBarWatcher { bar, notes }),
        None => Box::new(notes),
    }
}

/// Prints notes; draws nothing.
struct NoteWatcher {
    output: CliOutput,
}

impl RunObserver for NoteWatcher {
    fn started(&mut self, _id: &str, _estimate: Span, _blocks_planned: u64) {}

    fn block(&mut self, _done: u64, _planned: u64, _what: &CellPlan, _left: Span) {}

    fn note(&mut self, text: &str) {
        self.output.note(text);
    }
}

/// Cells of a bar.
const CELLS: usize = 24;
/// Shortest time between two drawings, however short the blocks.
const REDRAW_INTERVAL_NS: u64 = 100_000_000;

/// A bar on the status line of standard error, erased when dropped.
#[derive(Debug)]
pub struct ProgressBar {
    output: CliOutput,
    drawn_ns: Option<u64>,
}

impl ProgressBar {
    /// None where no progress may be drawn.
    pub fn new(output: &CliOutput) -> Option<Self> {
        output.progress.then(|| Self { output: output.clone(), drawn_ns: None })
    }

    /// Shows the share that is done and a text, unless it was drawn just now.
    pub fn draw(&mut self, share: f64, text: &str) {
        let now_ns = monotonic_ns();
        if self.drawn_ns.is_some_and(|drawn_ns| now_ns - drawn_ns < REDRAW_INTERVAL_NS) {
            return;
        }
        self.drawn_ns = Some(now_ns);
        let bar = cells(share, self.output.style_stderr.unicode);
        self.output.draw_line(&format!("{bar} {:>3.0} %  {text}", share * 100.0));
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        self.output.erase_line();
    }
}

/// The cells of a bar that is full by a share, in eighths of a cell where there are characters for it.
fn cells(share: f64, unicode: bool) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = usize::try_from(whole(share.clamp(0.0, 1.0) * 8.0 * CELLS as f64)).unwrap_or(0);
    let (full, part) = (eighths / 8, EIGHTHS[eighths % 8]);
    if unicode {
        return format!("{:<CELLS$}", "█".repeat(full) + part);
    }
    format!("{:-<CELLS$}", "#".repeat(full))
}

/// A progress bar and notes above it.
struct ProgressBarWatcher {
    bar: ProgressBar,
    notes: NoteWatcher,
}

impl RunObserver for ProgressBarWatcher {
    fn started(&mut self, _id: &str, estimate: Span, _blocks_planned: u64) {
        self.bar.draw(0.0, &format!("{} left", rough_duration(estimate)));
    }

    fn block(&mut self, done: u64, planned: u64, what: &CellPlan, left: Span) {
        let left = rough_duration(left);
        let text = format!("{left} left  {} {}", what.experiment, what.factors);
        self.bar.draw(done as f64 / planned.max(1) as f64, &text);
    }

    fn note(&mut self, text: &str) {
        self.bar.output.erase_line();
        self.notes.note(text);
    }
}

/// A rounded duration: whole seconds, whole minutes, or hours.
pub fn rough_duration(span: Span) -> String {
    let seconds = span.as_secs_f64().ceil();
    if seconds < 100.0 {
        format!("{seconds:.0} s")
    } else if seconds < 6_000.0 {
        format!("{:.0} min", (seconds / 60.0).round())
    } else {
        format!("{:.1} h", seconds / 3_600.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_its_cells_and_no_more() {
        for unicode in [false, true] {
            for share in [-1.0, 0.0, 0.3, 0.996, 1.0, 7.0] {
                assert_eq!(cells(share, unicode).chars().count(), CELLS, "{share}");
            }
        }
        assert_eq!(cells(0.5, false), "#".repeat(12) + &"-".repeat(12));
        assert_eq!(cells(1.5 / 24.0, true).trim_end(), "█▌");
    }
}
