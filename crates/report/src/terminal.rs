//! Text for people at a terminal: pure functions that return strings.
//!
//! Nothing here asks what the terminal can do: [`TerminalStyle`] says so.

use plumb_base::units::Unit;

use crate::printable;

pub mod chatty;
pub mod checks;
pub mod compare;
pub mod explain;
pub mod http;
pub mod ladder;
pub mod link;
pub mod model;
pub mod net;
pub mod net_summary;
pub mod page_markdown;
pub mod sim;
pub mod stack;
pub mod stamp;
pub mod summary;

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalStyle {
    /// Whether ANSI colours may be used.
    pub color: bool,
    /// Whether characters beyond ASCII may be used.
    pub unicode: bool,
    /// Columns.
    pub width: u16,
}

/// What a piece of text is, from which its colour follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextRole {
    /// As it is.
    Plain,
    /// Less important.
    Dim,
    /// More important.
    Bold,
    /// A good verdict.
    Good,
    /// A bad verdict.
    Bad,
    /// Needs attention.
    Warn,
    /// A palette slot, the same as in figures.
    Slot(u8),
}

impl TextRole {
    /// Its colour among a terminal's 256, where it has one.
    pub const fn color(self) -> Option<u8> {
        match self {
            Self::Plain | Self::Dim | Self::Bold => None,
            Self::Good => Some(SLOTS[2]),
            Self::Bad => Some(SLOTS[1]),
            Self::Warn => Some(SLOTS[4]),
            Self::Slot(slot) => Some(SLOTS[slot as usize % SLOTS.len()]),
        }
    }
}

impl TerminalStyle {
    /// Unicode without colour: what a pipe gets.
    pub const fn plain(width: u16) -> Self {
        Self { color: false, unicode: true, width }
    }

    /// `text` in its ink, where colour is allowed.
    pub fn paint(self, ink: TextRole, text: &str) -> String {
        if !self.color || text.trim().is_empty() {
            return text.to_owned();
        }
        match (ink, ink.color()) {
            (_, Some(code)) => format!("\u{1b}[38;5;{code}m{text}\u{1b}[0m"),
            (TextRole::Dim, None) => format!("\u{1b}[2m{text}\u{1b}[0m"),
            (TextRole::Bold, None) => format!("\u{1b}[1m{text}\u{1b}[0m"),
            _ => text.to_owned(),
        }
    }

    /// A page as it may be written to a terminal: of all control characters it keeps line feeds, tabs and, where there
    /// is colour, what [`Self::paint`] writes.
    pub fn printable(self, page: &str) -> String {
        let replacement = if self.unicode { printable::REPLACEMENT } else { '?' };
        let mut out = String::with_capacity(page.len());
        let mut rest = page;
        while let Some(at) = rest.find(char::is_control) {
            let (before, control) = rest.split_at(at);
            out += before;
            let painted = if self.color { paint_sequence(control) } else { "" };
            let len = match control.chars().next() {
                _ if !painted.is_empty() => painted.len(),
                Some('\n' | '\t') => 1,
                other => {
                    out.push(replacement);
                    rest = &control[other.map_or(0, char::len_utf8)..];
                    continue;
                }
            };
            out += &control[..len];
            rest = &control[len..];
        }
        out + rest
    }

    /// `text` in the characters there are: `µ` becomes `u` in ASCII.
    pub fn to_charset(self, text: &str) -> String {
        if self.unicode {
            return text.to_owned();
        }
        text.chars().fold(String::new(), |mut ascii, c| {
            match c {
                'µ' => ascii.push('u'),
                '±' => ascii.push_str("+-"),
                '×' => ascii.push('x'),
                '–' | '—' | '−' => ascii.push('-'),
                '…' => ascii.push_str("..."),
                '·' => ascii.push('|'),
                '§' => ascii.push_str("section "),
                '¶' => ascii.push_str("paragraph "),
                '÷' => ascii.push('/'),
                '²' => ascii.push_str("^2"),
                '⁶' => ascii.push_str("^6"),
                '≤' => ascii.push_str("<="),
                '≥' => ascii.push_str(">="),
                '→' => ascii.push_str("->"),
                '“' | '”' => ascii.push('"'),
                '‘' | '’' => ascii.push('\''),
                '\u{a0}' | '\u{202f}' => ascii.push(' '),
                c if c.is_ascii() => ascii.push(c),
                _ => ascii.push('?'),
            }
            ascii
        })
    }

    /// `text` in which [`TerminalStyle::wrap`] parts no number from its unit.
    pub fn keep_units_together(text: &str) -> String {
        const UNITS: [&str; 14] = [
            "ns", "µs", "ms", "s", "%", "b/s", "kb/s", "Mb/s", "Gb/s", "B", "kB", "MB", "GB", "ppm",
        ];
        let mut out = String::with_capacity(text.len());
        let mut is_number = false;
        for word in text.split(' ') {
            if !out.is_empty() {
                let unit = word.trim_end_matches([',', ';', ')', '.', ':']);
                out.push(if is_number && UNITS.contains(&unit) { '\u{a0}' } else { ' ' });
            }
            out.push_str(word);
            is_number = word.ends_with(|c: char| c.is_ascii_digit());
        }
        out
    }

    /// `text` broken into lines of at most the width, each beginning with `indent` spaces. A word wider
    /// than that, such as the text of a link, is broken behind its commas.
    pub fn wrap(self, text: &str, indent: usize) -> Vec<String> {
        let width = usize::from(self.width).saturating_sub(indent).max(16);
        let mut lines: Vec<String> = Vec::new();
        let mut line = String::new();
        let is_gap = |c: char| c.is_whitespace() && c != '\u{a0}';
        for word in text.split(is_gap).filter(|word| !word.is_empty()) {
            let spelled = self.to_charset(word).replace('\u{a0}', " ");
            let word = spelled.as_str();
            let pieces: Vec<&str> = if word.chars().count() > width {
                word.split_inclusive([',', ';']).collect()
            } else {
                vec![word]
            };
            for (index, piece) in pieces.into_iter().enumerate() {
                let gap = if index == 0 && !line.is_empty() { " " } else { "" };
                if line.chars().count() + gap.len() + piece.chars().count() > width
                    && !line.is_empty()
                {
                    lines.push(std::mem::take(&mut line));
                } else {
                    line.push_str(gap);
                }
                line.push_str(piece);
            }
        }
        if !line.is_empty() {
            lines.push(line);
        }
        lines.iter().map(|line| format!("{}{line}", " ".repeat(indent))).collect()
    }
}

/// The sequence of [`TerminalStyle::paint`] that a text begins with; empty where it begins with none.
fn paint_sequence(text: &str) -> &str {
    let Some(parameters) = text.strip_prefix("\u{1b}[") else { return "" };
    let Some(len) = parameters.find('m') else { return "" };
    let is_ours = match &parameters[..len] {
        "0" | "1" | "2" => true,
        other => other
            .strip_prefix("38;5;")
            .is_some_and(|color| SLOTS.iter().any(|slot| slot.to_string() == color)),
    };
    if is_ours { &text[..len + "\u{1b}[m".len()] } else { "" }
}

/// A page as far as it is written.
#[derive(Debug)]
pub(crate) struct TerminalPage {
    pub(crate) out: String,
    pub(crate) style: TerminalStyle,
}

impl TerminalPage {
    pub(crate) const fn new(style: TerminalStyle) -> Self {
        Self { out: String::new(), style }
    }

    /// Wrapped text in one role.
    pub(crate) fn put(&mut self, indent: usize, role: TextRole, text: &str) {
        for line in self.style.wrap(text, indent) {
            self.out += &self.style.paint(role, &line);
            self.out.push('\n');
        }
    }

    /// Wrapped text that begins behind a head, and hangs at a column.
    pub(crate) fn put_behind(&mut self, head: &str, column: usize, role: TextRole, text: &str) {
        let lines = self.style.wrap(text, column);
        let first = lines.first().map_or("", |line| line.trim_start());
        self.out += head;
        self.out += &self.style.paint(role, first);
        self.out.push('\n');
        for line in lines.iter().skip(1) {
            self.out += &self.style.paint(role, line);
            self.out.push('\n');
        }
    }
}

/// Bits a second, as networks are sold by.
pub fn format_bit_rate(bytes_per_second: f64) -> String {
    Unit::NetworkRate.format(bytes_per_second, 3).to_string()
}

/// The counts that are not zero: `3 lost`, `1 duplicated`.
pub(crate) fn occurred(counts: &[(u64, &str)]) -> Vec<String> {
    let occurred = counts.iter().filter(|(count, _)| *count > 0);
    occurred.map(|(count, what)| format!("{count} {what}")).collect()
}

/// Okabe & Ito's palette (2008), which the colour-blind can tell apart, in the nearest of the 256
/// terminal colours that read on black and on white: blue, vermilion, green, purple, orange, sky,
/// grey, olive.
const SLOTS: [u8; 8] = [32, 202, 36, 169, 172, 74, 244, 142];

/// Marker of each palette slot.
pub(crate) const MARKS: [char; 8] = ['●', '◆', '■', '▲', '▼', '✚', '○', '◇'];

/// Marker of each palette slot where there is only ASCII.
pub(crate) const MARKS_ASCII: [char; 8] = ['o', '#', '*', '^', 'v', '+', '%', '@'];

impl TerminalStyle {
    /// The marker of a palette slot.
    pub(crate) fn mark(self, slot: u8) -> char {
        let marks = if self.unicode { &MARKS } else { &MARKS_ASCII };
        marks[usize::from(slot) % marks.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_control_characters_a_page_keeps_its_own_paint_alone() {
        let style = TerminalStyle { color: true, unicode: true, width: 80 };
        let roles = [TextRole::Dim, TextRole::Bold, TextRole::Good, TextRole::Slot(3)];
        let own: String = roles.map(|role| style.paint(role, "a\tb\n")).concat();
        assert_eq!(style.printable(&own), own);
        let foreign = "\u{1b}[2J\u{1b}[38;5;1mx\u{1b}]0;t\u{7}\u{1b}[8my\u{9b}0m\u{1b}";
        let seen = style.printable(foreign);
        assert!(!seen.contains(char::is_control), "{seen:?}");
        let plain = TerminalStyle { color: false, unicode: false, width: 80 };
        assert_eq!(plain.printable("\u{1b}[1mz\r\n"), "?[1mz?\n");
    }

    #[test]
    fn without_colour_there_is_no_escape_and_in_ascii_nothing_else() {
        let style = TerminalStyle { color: false, unicode: false, width: 20 };
        assert_eq!(style.paint(TextRole::Bad, "x"), "x");
        assert_eq!(style.to_charset("21.4 µs ±1% – 3×"), "21.4 us +-1% - 3x");
        assert!(MARKS_ASCII.iter().all(char::is_ascii));
    }

    #[test]
    fn lines_wrap_at_words_within_the_width() {
        let lines = TerminalStyle::plain(24).wrap("one two three four five six seven", 2);
        assert!(lines.iter().all(|line| line.len() <= 24 && line.starts_with("  ")), "{lines:?}");
        assert_eq!(lines.join(" ").split_whitespace().count(), 7);
    }

    #[test]
    fn a_number_and_its_unit_stay_on_one_line() {
        let text = TerminalStyle::keep_units_together(
            "round trips: 369 µs to 2.02 ms, mean 1.13 ms, 5 % of 3 streams",
        );
        for width in 24..60 {
            for line in TerminalStyle::plain(width).wrap(&text, 0) {
                assert!(line.chars().count() <= usize::from(width));
                let first = line.split(' ').next().unwrap();
                assert!(!first.starts_with(['µ', 'm', '%']) || first == "mean", "{line}");
                assert!(!line.contains('\u{a0}'), "{line}");
            }
        }
    }

    #[test]
    fn a_long_link_is_broken_behind_its_commas_and_nothing_is_added() {
        let link = "rate=50kbit,queue=drop-tail,limit=8packets,delay=5ms;mtu=1006";
        let lines = TerminalStyle::plain(30).wrap(&format!("Link {link} after 2 s"), 0);
        assert!(lines.iter().all(|line| line.len() <= 30), "{lines:?}");
        assert!(lines.concat().contains(link), "{lines:?}");
        assert_eq!(TerminalStyle::plain(90).wrap(link, 0), [link]);
    }
}
