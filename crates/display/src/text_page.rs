//! A page of text for an application that knows no display: bytes in, as to a terminal; steps out.

use crate::client::ClientStep;
use crate::geometry::{COORDINATE_MAX, SCALE_ONE, ViewPort};
use crate::item::{DisplayItem, GLYPH_HEIGHT, GLYPH_WIDTH, TailRange};
use crate::workload::{ROOT, VIEW};

/// Characters of a line, and lines of a page.
const COLUMNS: u16 = 80;
const ROWS: u16 = 48;
/// Distance of tabulator stops.
const TAB: usize = 8;
/// Lines before it begins anew at the top: coordinates have an end.
const LINES_MAX: i32 = COORDINATE_MAX / GLYPH_HEIGHT - 1;

/// Where in an escape sequence it is (ECMA-48): these are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EscapeState {
    Outside,
    Begun,
    Parameters,
}

/// A page of 48 lines of 80 characters, the last of all that was written. It knows line feed, carriage return, backspace and tabulator;
/// what is no printable ASCII becomes a question mark.
#[derive(Debug)]
pub struct TextPage {
    /// The line that is written to, and where in it the next character goes.
    line: i32,
    column: usize,
    text: Vec<u8>,
    /// Lines that the display has items for.
    items: i32,
    escape: EscapeState,
}

impl Default for TextPage {
    fn default() -> Self {
        let (line, column, text, items) = (0, 0, Vec::new(), 0);
        Self { line, column, text, items, escape: EscapeState::Outside }
    }
}

impl TextPage {
    /// What makes an empty page.
    pub fn begin(&self) -> Vec<ClientStep> {
        vec![ClientStep::Define { symbol: ROOT }, self.view()]
    }

    /// What shows these bytes too.
    pub fn write(&mut self, bytes: &[u8]) -> Vec<ClientStep> {
        let mut steps = Vec::new();
        let first = self.line;
        for byte in bytes {
            match self.printable(*byte) {
                Some(b'\n') => self.end_line(&mut steps),
                Some(b'\r') => self.column = 0,
                Some(0x08) => self.column = self.column.saturating_sub(1),
                Some(b'\t') => {
                    let stop = (self.column / TAB + 1) * TAB;
                    self.column = stop.min(usize::from(COLUMNS) - 1);
                }
                Some(character) => {
                    if self.column == usize::from(COLUMNS) {
                        self.end_line(&mut steps);
                    }
                    if self.text.len() <= self.column {
                        self.text.resize(self.column + 1, b' ');
                    }
                    self.text[self.column] = character;
                    self.column += 1;
                }
                None => {}
            }
        }
        self.put_line(&mut steps);
        if self.line != first {
            steps.push(self.view());
        }
        steps.push(ClientStep::Display { view: VIEW, is_whole: false, is_proved: true });
        steps
    }

    /// How a byte is shown, or its effect; `None` of one that is skipped.
    fn printable(&mut self, byte: u8) -> Option<u8> {
        let is_final = (0x40..=0x7e).contains(&byte);
        match self.escape {
            EscapeState::Begun => {
                self.escape =
                    if byte == b'[' { EscapeState::Parameters } else { EscapeState::Outside };
                return None;
            }
            EscapeState::Parameters => {
                if is_final {
                    self.escape = EscapeState::Outside;
                }
                return None;
            }
            EscapeState::Outside => {}
        }
        match byte {
            b'\n' | b'\r' | b'\t' | 0x08 | b' '..=b'~' => Some(byte),
            0x1b => {
                self.escape = EscapeState::Begun;
                None
            }
            // The first byte of a character of several (UTF-8).
            0xc0..=0xff => Some(b'?'),
            _ => None,
        }
    }

    fn end_line(&mut self, steps: &mut Vec<ClientStep>) {
        self.put_line(steps);
        (self.line, self.column) = (self.line + 1, 0);
        self.text.clear();
        if self.line == LINES_MAX {
            (self.line, self.items) = (0, 0);
            steps.push(ClientStep::Define { symbol: ROOT });
        }
    }

    /// The line as it is, in the item of the one that it takes the place of.
    fn put_line(&mut self, steps: &mut Vec<ClientStep>) {
        let len = i32::try_from(self.text.len()).expect("a short line");
        let at = (0, self.line * GLYPH_HEIGHT);
        let item = DisplayItem::text(1, at, TailRange { offset: 0, len });
        let tail = self.text.clone();
        let rows = i32::from(ROWS);
        if self.line == self.items && self.items < rows {
            self.items += 1;
            steps.push(ClientStep::Add { symbol: ROOT, item, tail });
        } else {
            let index = u32::try_from(self.line % rows).expect("not negative");
            steps.push(ClientStep::Edit { symbol: ROOT, index, item, tail });
        }
    }

    /// The last lines.
    fn view(&self) -> ClientStep {
        let y = (self.line + 1 - i32::from(ROWS)).max(0) * GLYPH_HEIGHT;
        let pixels = |characters: u16, size: i32| characters * u16::try_from(size).unwrap_or(0);
        let size = (pixels(COLUMNS, GLYPH_WIDTH), pixels(ROWS, GLYPH_HEIGHT));
        ClientStep::View {
            view: VIEW,
            symbol: ROOT,
            size,
            port: ViewPort { x: 0, y, scale: SCALE_ONE },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{ClientMode, DisplayClient};
    use crate::server::{DisplayLimits, DisplayServer};

    /// The checksum of a page to which these pieces were written.
    fn shown(pieces: &[&[u8]]) -> u64 {
        let mut client = DisplayClient::new(ClientMode::BATCHED);
        let mut server = DisplayServer::new(DisplayLimits::default());
        let mut page = TextPage::default();
        let begin = page.begin();
        for steps in std::iter::once(begin).chain(pieces.iter().map(|piece| page.write(piece))) {
            for step in steps {
                client.perform(&step);
            }
            client.finish();
            server.handle(client.output());
            client.clear_output();
            client.handle(server.output()).expect("nothing is refused");
            server.clear_output();
        }
        client.checksum().expect("it was drawn")
    }

    #[test]
    fn a_page_shows_the_last_lines_however_they_were_written() {
        let lines: Vec<String> = (0..130).map(|line| format!("line {line}\n")).collect();
        let all = lines.concat();
        let one_by_one: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
        let last = lines[83..].concat();
        let whole = shown(&[all.as_bytes()]);
        assert_eq!(shown(&one_by_one), whole);
        assert_eq!(shown(&[last.as_bytes()]), whole, "47 lines and an empty one");
    }

    #[test]
    fn it_does_what_a_terminal_does_and_skips_what_it_cannot() {
        let plain = shown(&[b"a       b?d\nx"]);
        let played: [&[u8]; 4] =
            [b"\x1b[31;1mz\ra\x1b[0m\t", "b\u{e9}c\u{8}d\r".as_bytes(), b"\nx", b"\x1bM\x07"];
        assert_eq!(shown(&played), plain);
        let long = [b'w'; 81];
        let wrapped = [&long[..80], b"\nw"].concat();
        assert_eq!(shown(&[&long]), shown(&[&wrapped]));
    }
}
