//! The processor index in a terminal.

use plumb_analysis::document::index::{IndexDocument, IndexedKernel, MemoryFigure};
use plumb_base::units::{Unit, format_bytes};

use super::{TerminalPage, TerminalStyle, TextRole};
use crate::table::TextTable;
use crate::value;

/// The index, its kernels, and memory.
pub fn render(document: &IndexDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let index = value::with_interval(Unit::Count, document.index, document.ci95);
    page.put(0, TextRole::Bold, &format!("{}: {index}", document.version));
    let spread = format!(
        "Geometric standard deviation over kernels ×÷{}. The index of {} is 1.",
        value::plain(Unit::Count, document.geometric_sd),
        document.reference,
    );
    page.put(2, TextRole::Plain, &spread);
    let kernels = TextTable::of_rows(
        &document.kernels,
        &[
            ("kernel", &|kernel: &IndexedKernel| kernel.kernel.clone()),
            ("#one pass", &|kernel| {
                value::with_interval(Unit::Nanoseconds, kernel.time_ns, kernel.ci95)
            }),
            ("#against the reference", &|kernel| value::times(kernel.ratio)),
        ],
    );
    page.out += &kernels.render(style);
    if !document.memory.is_empty() {
        let memory = TextTable::of_rows(
            &document.memory,
            &[
                ("memory", &|figure: &MemoryFigure| figure.response.clone()),
                ("#over", &|figure| format!("{}B", format_bytes(figure.size))),
                ("#median", &|figure| {
                    value::with_interval(value::unit(&figure.unit), figure.value, figure.ci95)
                }),
            ],
        );
        page.out += &memory.render(style);
    }
    page.out
}
