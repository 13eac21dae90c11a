//! Tokens of a script: the longest that matches, as in packetdrill's own scanner.

use std::net::Ipv6Addr;

use crate::outcome::{ScriptError, ScriptPosition};

/// A token and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptToken {
    /// Where it begins.
    pub at: ScriptPosition,
    /// What it is.
    pub kind: TokenKind,
}

/// The kinds of token.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenKind {
    /// Letters, digits and underscores.
    Word(String),
    /// A decimal number.
    Integer(i64),
    /// A hexadecimal number.
    Hex(i64),
    /// A number with a decimal point.
    Decimal(String),
    /// What is between quotation marks.
    Text(String),
    /// A command.
    Backquoted(String),
    /// What is between `%{` and `}%`.
    Code(String),
    /// A word behind two dashes.
    Option(String),
    /// An address.
    Address(String),
    /// `...`.
    Ellipsis,
    /// Any other character.
    Sign(char),
}

/// The tokens of a script.
///
/// # Errors
/// A string, command, comment or code block that does not end.
pub fn tokens(text: &str) -> Result<Vec<ScriptToken>, ScriptError> {
    let mut scanner = ScriptScanner { rest: text, at: ScriptPosition { line: 1, column: 1 } };
    let mut tokens = Vec::new();
    loop {
        scanner.skip_blanks()?;
        if scanner.rest.is_empty() {
            return Ok(tokens);
        }
        let at = scanner.at;
        let kind = scanner.token()?;
        tokens.push(ScriptToken { at, kind });
    }
}

struct ScriptScanner<'a> {
    rest: &'a str,
    at: ScriptPosition,
}

impl<'a> ScriptScanner<'a> {
    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        for c in taken.chars() {
            if c == '\n' {
                self.at = ScriptPosition { line: self.at.line + 1, column: 1 };
            } else {
                self.at.column += 1;
            }
        }
        self.rest = rest;
        taken
    }

    fn error<T>(&self, reason: impl Into<String>) -> Result<T, ScriptError> {
        Err(ScriptError::Syntax { at: self.at, reason: reason.into() })
    }

    /// Passes over white space and comments.
    fn skip_blanks(&mut self) -> Result<(), ScriptError> {
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.take(blank);
            if self.rest.starts_with("//") {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.take(end);
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                match comment.find("*/") {
                    Some(end) => self.take(end + 4),
                    None => return self.error("this comment does not end"),
                };
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Result<TokenKind, ScriptError> {
        let rest = self.rest;
        let mut chars = rest.chars();
        let first = chars.next().expect("there is a character");
        if let Some(code) = rest.strip_prefix("%{") {
            let Some(end) = code.find("}%") else { return self.error("no }% ends this code") };
            self.take(end + 4);
            return Ok(TokenKind::Code(code[..end].to_owned()));
        }
        if rest.starts_with("...") {
            self.take(3);
            return Ok(TokenKind::Ellipsis);
        }
        if let Some(option) = rest.strip_prefix("--") {
            let len = word_len(option);
            if len > 0 {
                return Ok(TokenKind::Option(self.take(len + 2)[2..].to_owned()));
            }
        }
        if first == '"' || first == '`' {
            return self.quoted(first);
        }
        if let Some(len) = address_len(rest) {
            return Ok(TokenKind::Address(self.take(len).to_owned()));
        }
        if let Some(number) = self.number() {
            return Ok(number);
        }
        match word_len(rest) {
            0 => {
                self.take(first.len_utf8());
                Ok(TokenKind::Sign(first))
            }
            len => Ok(TokenKind::Word(self.take(len).to_owned())),
        }
    }

    /// What is between two quotation marks of one kind; a backslash keeps the next character.
    fn quoted(&mut self, mark: char) -> Result<TokenKind, ScriptError> {
        let mut escaped = false;
        let end = self.rest.char_indices().skip(1).find(|&(_, c)| {
            let ends = c == mark && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some((end, _)) = end else { return self.error(format!("no {mark} ends this")) };
        let text = self.take(end + 1)[1..end].to_owned();
        Ok(if mark == '"' { TokenKind::Text(text) } else { TokenKind::Backquoted(text) })
    }

    /// A number; one that is too large is a word, as a cookie of digits is.
    fn number(&mut self) -> Option<TokenKind> {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        if let Some(hex) = self.rest.strip_prefix("0x") {
            let len = hex.bytes().take_while(u8::is_ascii_hexdigit).count();
            if len > 0 && len == word_len(hex) {
                let value = i64::from_str_radix(&hex[..len], 16).ok()?;
                self.take(len + 2);
                return Some(TokenKind::Hex(value));
            }
        }
        let sign = usize::from(self.rest.starts_with('-'));
        let whole = sign + digits(&self.rest[sign..]);
        let fraction = self.rest[whole..].strip_prefix('.').map_or(0, digits);
        if fraction > 0 {
            return Some(TokenKind::Decimal(self.take(whole + 1 + fraction).to_owned()));
        }
        // "12ab" is a word.
        if whole == sign || (sign == 0 && word_len(self.rest) > whole) {
            return None;
        }
        let value = self.rest[..whole].parse().ok()?;
        self.take(whole);
        Some(TokenKind::Integer(value))
    }
}

fn word_len(text: &str) -> usize {
    text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
}

/// Length of an IPv4 or IPv6 address at the front of `text`. `1:1` is none: an IPv6 address has two colons side by
/// side, or seven.
fn address_len(text: &str) -> Option<usize> {
    let run = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let parts: Vec<&str> = text[..run].split('.').collect();
    let is_part = |part: &&str| !part.is_empty();
    if parts.len() == 4 && parts.iter().all(is_part) {
        return Some(run);
    }
    let part_of_v6 = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let run = text.bytes().take_while(part_of_v6).count();
    text[..run].parse::<Ipv6Addr>().ok().map(|_| run)
}
