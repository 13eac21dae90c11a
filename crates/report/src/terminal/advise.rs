//! How to send items over a path, in a terminal.

use plumb_analysis::document::advise::{AdviceScore, AdviseDocument};
use plumb_base::units::Unit;

use super::{TerminalPage, TerminalStyle, TextRole};
use crate::advice;
use crate::table::TextTable;
use crate::value;

/// The ways, fastest first, what to choose, and what would help; or the scores of the model.
pub fn render(document: &AdviseDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    if !document.scores.is_empty() {
        page.out += &scores(&document.scores).render_folded(style);
        return page.out;
    }
    for (line, role) in advice::sentences(document)
        .iter()
        .zip([TextRole::Bold].iter().chain(std::iter::repeat(&TextRole::Plain)))
    {
        page.put(0, *role, line);
    }
    page.out += &advice::ways(document).render_folded(style);
    page.out.push('\n');
    page.out += &advice::curves(document).render_folded(style);
    page.put(0, TextRole::Dim, advice::scope(document));
    page.out
}

fn scores(scores: &[AdviceScore]) -> TextTable {
    let share = |it: Option<f64>| value::optional(Unit::Share, it);
    TextTable::of_rows(
        scores,
        &[
            ("predictions", &|it: &AdviceScore| it.of.clone()),
            ("#number", &|it| it.score.predictions.to_string()),
            ("#median error", &|it| share(it.score.error_median)),
            ("#90th percentile", &|it| share(it.score.error_p90)),
        ],
    )
}
