//! Progress bars on standard error, drawn between blocks and never during one: the executor calls the observer only
//! between blocks, and no thread draws by itself.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plumb_base::time::Span;

use super::output::CliOutput;
use plumb_experiments::definition::CellPlan;
use plumb_experiments::run::RunObserver;

/// The observer of a run: a bar on a terminal, notes only elsewhere.
pub fn watcher(output: &CliOutput) -> Box<dyn RunObserver> {
    let notes = NoteWatcher { output: output.clone() };
    if output.progress {
        Box::new(ProgressBarWatcher { bar: None, notes })
    } else {
        Box::new(notes)
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

/// A bar of `length` steps with this template, if standard error is a terminal.
pub fn bar(output: &CliOutput, length: u64, template: &str) -> Option<ProgressBar> {
    if !output.progress {
        return None;
    }
    // Redrawn at most ten times a second, however short the blocks.
    let target = ProgressDrawTarget::stderr_with_hz(10);
    let bar = ProgressBar::with_draw_target(Some(length), target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        let ticks = if output.style_stderr.unicode { "█▉▊▋▌▍▎▏ " } else { "#>-" };
        bar.set_style(style.progress_chars(ticks));
    }
    Some(bar)
}

/// A progress bar and notes above it.
struct ProgressBarWatcher {
    bar: Option<ProgressBar>,
    notes: NoteWatcher,
}

impl RunObserver for ProgressBarWatcher {
    fn started(&mut self, _id: &str, estimate: Span, blocks_planned: u64) {
        let template = "{bar:24} {percent:>3} %  {prefix} left  {wide_msg}";
        self.bar = bar(&self.notes.output, blocks_planned, template);
        if let Some(bar) = &self.bar {
            bar.set_prefix(rough_duration(estimate));
        }
    }

    fn block(&mut self, done: u64, planned: u64, what: &CellPlan, left: Span) {
        let Some(bar) = &self.bar else { return };
        bar.set_length(planned);
        bar.set_prefix(rough_duration(left));
        bar.set_message(format!("{} {}", what.experiment, what.factors));
        bar.set_position(done);
    }

    fn note(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.notes.note(text)),
            None => self.notes.note(text),
        }
    }
}

impl Drop for ProgressBarWatcher {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
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
