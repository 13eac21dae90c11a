//! The progress bar, on standard error, drawn between blocks and never during one.
//!
//! The executor calls the watcher only while no block is being measured, and nothing here starts
//! a thread that draws by itself. Left out: what is worth saying at the end.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plumb_base::time::Span;

use super::output::Output;
use super::run::coarse;
use crate::experiment::CellPlan;
use crate::run::Watcher;

/// The watcher that suits the output: a bar on a terminal, notes only elsewhere.
pub fn watcher(output: &Output) -> Box<dyn Watcher> {
    let notes = Notes { output: output.clone() };
    if output.progress { Box::new(Bar { bar: None, notes }) } else { Box::new(notes) }
}

/// Says what deserves a line of its own; draws nothing.
struct Notes {
    output: Output,
}

impl Watcher for Notes {
    fn started(&mut self, _id: &str, _estimate: Span, _blocks_planned: u64) {}

    fn block(&mut self, _done: u64, _planned: u64, _what: &CellPlan, _left: Span) {}

    fn note(&mut self, text: &str) {
        self.output.remark(text);
    }
}

/// A bar on a terminal.
struct Bar {
    bar: Option<ProgressBar>,
    notes: Notes,
}

impl Watcher for Bar {
    fn started(&mut self, _id: &str, estimate: Span, blocks_planned: u64) {
        // Redrawn at most ten times a second, however short the blocks.
        let target = ProgressDrawTarget::stderr_with_hz(10);
        let bar = ProgressBar::with_draw_target(Some(blocks_planned), target);
        let template = "{bar:24} {percent:>3} %  {prefix} left  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            let ticks = if self.notes.output.style_stderr.unicode {
                "█▉▊▋▌▍▎▏ "
            } else {
                "#>-"
            };
            bar.set_style(style.progress_chars(ticks));
        }
        bar.set_prefix(coarse(estimate));
        self.bar = Some(bar);
    }

    fn block(&mut self, done: u64, planned: u64, what: &CellPlan, left: Span) {
        let Some(bar) = &self.bar else { return };
        bar.set_length(planned);
        bar.set_prefix(coarse(left));
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

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
