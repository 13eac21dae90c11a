//! Text of others, such as names in imported files and what a peer says, without characters that act on a terminal.
//!
//! Control characters are those of Unicode's category Cc: C0, DEL and C1. Left out: the escape sequences that plumb
//! itself paints with, which [`crate::terminal::TerminalStyle::printable`] knows.

use std::borrow::Cow;

/// What stands in the place of a control character.
pub const REPLACEMENT: char = '\u{fffd}';

/// A text of one line, without any control character.
pub fn line(text: &str) -> Cow<'_, str> {
    replaced(text, char::is_control)
}

/// A text of several lines, without any control character but line feeds and tabs.
pub fn lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| c.is_control() && !matches!(c, '\n' | '\t'))
}

fn replaced(text: &str, is_unwanted: impl Fn(char) -> bool + Copy) -> Cow<'_, str> {
    if text.contains(is_unwanted) {
        text.replace(is_unwanted, REPLACEMENT.encode_utf8(&mut [0; 4])).into()
    } else {
        text.into()
    }
}

/// A JSON text in which DEL and C1 are escaped: a serializer escapes C0 alone. They occur in strings only.
pub fn json(text: &str) -> Cow<'_, str> {
    let is_unescaped = |c: char| matches!(c, '\u{7f}'..='\u{9f}');
    if !text.contains(is_unescaped) {
        return text.into();
    }
    text.chars()
        .fold(String::with_capacity(text.len()), |mut escaped, c| {
            if is_unescaped(c) {
                escaped += &format!("\\u{:04x}", u32::from(c));
            } else {
                escaped.push(c);
            }
            escaped
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_is_left_in_a_line() {
        let controls: String =
            (0..=0x9f).filter_map(char::from_u32).filter(|c| c.is_control()).collect();
        assert_eq!(controls.chars().count(), 65);
        let text = format!("µ{controls}ß");
        assert_eq!(line(&text), format!("µ{}ß", "\u{fffd}".repeat(65)));
        assert_eq!(lines("a\tb\n\r\u{1b}[2J"), "a\tb\n\u{fffd}\u{fffd}[2J");
        assert!(matches!(lines("as it is\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_without_del_and_c1_means_the_same() {
        let text = serde_json::to_string("a\u{7f}\u{9b}31m\u{1b}µ").unwrap();
        let escaped = json(&text);
        assert!(!escaped.contains(char::is_control), "{escaped:?}");
        let meant: String = serde_json::from_str(&escaped).unwrap();
        assert_eq!(meant, "a\u{7f}\u{9b}31m\u{1b}µ");
    }
}
