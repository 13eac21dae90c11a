//! The parser: from text to a script, by packetdrill's grammar; packets are parsed in `packet`.

use std::collections::BTreeMap;

use plumb_base::time::Span;

use crate::code;
use crate::lexer::{self, ScriptToken, TokenKind};
use crate::outcome::{ScriptError, ScriptPosition};
use crate::script::{
    CallValue, EventTime, ParsedScript, ScriptAction, ScriptEvent, ScriptOption, SystemCall,
};

mod packet;

/// Reads a script.
///
/// # Errors
/// [`ScriptError`]: the first fault, with its place.
pub fn parse(text: &str) -> Result<ParsedScript, ScriptError> {
    let mut parser = ScriptParser { tokens: lexer::tokens(text)?, next: 0 };
    let options = parser.options()?;
    parser.substitute(&options)?;
    let mut script = ParsedScript { options, setup: Vec::new(), events: Vec::new() };
    while parser.next < parser.tokens.len() {
        let at = parser.at();
        if let Some(command) = parser.backquoted() {
            script.setup.push((at, command));
        } else {
            let event = parser.event()?;
            script.events.push(event);
        }
    }
    if script.events.is_empty() {
        return parser.error("a script has at least one event");
    }
    Ok(script)
}

struct ScriptParser {
    tokens: Vec<ScriptToken>,
    next: usize,
}

type ParseResult<T> = Result<T, ScriptError>;

impl ScriptParser {
    fn peek(&self) -> Option<&TokenKind> {
        self.tokens.get(self.next).map(|token| &token.kind)
    }

    fn peek_at(&self, ahead: usize) -> Option<&TokenKind> {
        self.tokens.get(self.next + ahead).map(|token| &token.kind)
    }

    /// Where the next token is; at the end, where the last one is.
    fn at(&self) -> ScriptPosition {
        let token = self.tokens.get(self.next).or(self.tokens.last());
        token.map_or(ScriptPosition { line: 1, column: 1 }, |token| token.at)
    }

    fn error<T>(&self, expected: &str) -> ParseResult<T> {
        let found = match self.peek() {
            None => "the script ends".to_owned(),
            Some(TokenKind::Word(text) | TokenKind::Decimal(text) | TokenKind::Address(text)) => {
                format!("there is '{text}'")
            }
            Some(TokenKind::Integer(value) | TokenKind::Hex(value)) => format!("there is {value}"),
            Some(TokenKind::Sign(c)) => format!("there is '{c}'"),
            Some(TokenKind::Ellipsis) => "there is '...'".to_owned(),
            Some(TokenKind::Text(_)) => "there is a string".to_owned(),
            Some(TokenKind::Backquoted(_)) => "there is a command".to_owned(),
            Some(TokenKind::Code(_)) => "there is a code block".to_owned(),
            Some(TokenKind::Option(name)) => format!("there is the option --{name}"),
        };
        Err(ScriptError::Syntax { at: self.at(), reason: format!("{expected}, but {found}") })
    }

    fn unsupported<T>(&self, what: impl Into<String>) -> ParseResult<T> {
        Err(ScriptError::Unsupported { at: self.at(), what: what.into() })
    }

    fn has_sign(&self, sign: char) -> bool {
        self.peek() == Some(&TokenKind::Sign(sign))
    }

    fn take_sign(&mut self, sign: char) -> bool {
        let found = self.has_sign(sign);
        self.next += usize::from(found);
        found
    }

    fn expect_sign(&mut self, sign: char) -> ParseResult<()> {
        if self.take_sign(sign) { Ok(()) } else { self.error(&format!("'{sign}' is expected")) }
    }

    fn has_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(TokenKind::Word(found)) if found == word)
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.has_word(word);
        self.next += usize::from(found);
        found
    }

    fn expect_word(&mut self, word: &str) -> ParseResult<()> {
        if self.take_word(word) { Ok(()) } else { self.error(&format!("'{word}' is expected")) }
    }

    fn word(&mut self, what: &str) -> ParseResult<String> {
        let Some(TokenKind::Word(word)) = self.peek() else {
            return self.error(&format!("{what} is expected"));
        };
        let word = word.clone();
        self.next += 1;
        Ok(word)
    }

    /// A decimal number that `T` can hold.
    fn integer<T: TryFrom<i64>>(&mut self, what: &str) -> ParseResult<T> {
        let Some(&TokenKind::Integer(value)) = self.peek() else {
            return self.error(&format!("{what} is expected"));
        };
        let Ok(value) = T::try_from(value) else {
            return self.error(&format!("{what} must fit into its field"));
        };
        self.next += 1;
        Ok(value)
    }

    fn backquoted(&mut self) -> Option<String> {
        let Some(TokenKind::Backquoted(text)) = self.peek() else { return None };
        let text = text.clone();
        self.next += 1;
        Some(text)
    }

    fn options(&mut self) -> ParseResult<Vec<ScriptOption>> {
        let mut options = Vec::new();
        while let Some(TokenKind::Option(name)) = self.peek() {
            let (at, name) = (self.at(), name.clone());
            self.next += 1;
            let mut value = String::new();
            if self.take_sign('=') {
                value = self.option_value()?;
                if self.take_sign('=') {
                    value = format!("{value}={}", self.option_value()?);
                }
            }
            options.push(ScriptOption { at, name, value });
        }
        Ok(options)
    }

    fn option_value(&mut self) -> ParseResult<String> {
        let value = match self.peek() {
            Some(TokenKind::Word(text) | TokenKind::Decimal(text) | TokenKind::Address(text)) => {
                text.clone()
            }
            Some(TokenKind::Integer(value)) => value.to_string(),
            Some(TokenKind::Hex(value)) => format!("{value:#x}"),
            Some(TokenKind::Text(text)) => format!("\"{text}\""),
            Some(TokenKind::Backquoted(text)) => format!("`{text}`"),
            _ => return self.error("a value of the option is expected"),
        };
        self.next += 1;
        Ok(value)
    }

    /// Replaces words that `--define=WORD=VALUE` defines.
    fn substitute(&mut self, options: &[ScriptOption]) -> ParseResult<()> {
        let mut defined = BTreeMap::new();
        for option in options.iter().filter(|option| matches!(&*option.name, "define" | "D")) {
            let Some((name, value)) = option.value.split_once('=') else {
                let reason = "a definition is NAME=VALUE".to_owned();
                return Err(ScriptError::Syntax { at: option.at, reason });
            };
            let tokens = lexer::tokens(value)?;
            let [token] = &tokens[..] else {
                let reason = "a definition is one word, number, string or command".to_owned();
                return Err(ScriptError::Syntax { at: option.at, reason });
            };
            defined.insert(name.to_owned(), token.kind.clone());
        }
        for token in &mut self.tokens[self.next..] {
            if let TokenKind::Word(word) = &token.kind
                && let Some(value) = defined.get(word)
            {
                token.kind = value.clone();
            }
        }
        Ok(())
    }

    fn event(&mut self) -> ParseResult<ScriptEvent> {
        let at = self.at();
        let time = self.event_time()?;
        let action = match self.peek() {
            Some(TokenKind::Sign('<')) => ScriptAction::Inbound(self.packet()?),
            Some(TokenKind::Sign('>')) => ScriptAction::Outbound(self.packet()?),
            Some(TokenKind::Backquoted(text)) => {
                let text = text.clone();
                self.next += 1;
                ScriptAction::Command(text)
            }
            Some(TokenKind::Code(text)) => {
                let statements = code::parse(text, self.at())?;
                self.next += 1;
                ScriptAction::Code(statements)
            }
            Some(TokenKind::Word(_) | TokenKind::Ellipsis) => ScriptAction::Call(self.call()?),
            _ => return self.error("a packet, a system call, a command or code is expected"),
        };
        let waits = matches!(
            time,
            EventTime::Any | EventTime::AbsoluteRange(..) | EventTime::RelativeRange(..)
        );
        if waits && !matches!(action, ScriptAction::Outbound(_)) {
            let reason = "only an outbound packet may have a range of times, or '*'".to_owned();
            return Err(ScriptError::Syntax { at, reason });
        }
        Ok(ScriptEvent { at, time, action })
    }

    fn event_time(&mut self) -> ParseResult<EventTime> {
        if self.take_sign('*') {
            return Ok(EventTime::Any);
        }
        let relative = self.take_sign('+');
        let start = self.seconds()?;
        if !self.take_sign('~') {
            return Ok(if relative {
                EventTime::Relative(start)
            } else {
                EventTime::Absolute(start)
            });
        }
        if relative {
            self.expect_sign('+')?;
        }
        let end = self.seconds()?;
        if end < start {
            return self.error("a range of times must not end before it begins");
        }
        Ok(if relative {
            EventTime::RelativeRange(start, end)
        } else {
            EventTime::AbsoluteRange(start, end)
        })
    }

    fn seconds(&mut self) -> ParseResult<Span> {
        let span = match self.peek() {
            Some(&TokenKind::Integer(value)) => u64::try_from(value).ok().map(Span::from_secs),
            // packetdrill counts whole microseconds.
            Some(TokenKind::Decimal(text)) => {
                text.parse().ok().filter(|seconds: &f64| *seconds >= 0.0).map(|seconds| {
                    Span::from_us((Span::from_secs_f64(seconds).as_ns() + 500) / 1_000)
                })
            }
            _ => return self.error("a time is expected"),
        };
        let Some(span) = span else { return self.error("a time must not be negative") };
        self.next += 1;
        Ok(span)
    }
}

/// Parentheses, brackets and braces within each other, at most.
const DEPTH_MAX: u32 = 32;

impl ScriptParser {
    fn call(&mut self) -> ParseResult<SystemCall> {
        let mut end = None;
        if self.peek() == Some(&TokenKind::Ellipsis) {
            self.next += 1;
            end = Some(self.seconds()?);
        }
        let at = self.at();
        let name = self.word("the name of a system call")?;
        self.expect_sign('(')?;
        let arguments = self.values(')', 0)?;
        self.expect_sign('=')?;
        let result = self.value(0)?;
        let errno = match self.peek() {
            Some(TokenKind::Word(_)) => Some(self.word("an error's name")?),
            _ => None,
        };
        if errno.is_some() || self.has_sign('(') {
            // The text of strerror(), or names of flags.
            self.expect_sign('(')?;
            while !self.take_sign(')') {
                if self.peek().is_none() {
                    return self.error("')' is expected");
                }
                self.next += 1;
            }
        }
        Ok(SystemCall { at, name, end, arguments, result, errno })
    }

    /// Values separated by commas, up to `end`.
    fn values(&mut self, end: char, depth: u32) -> ParseResult<Vec<CallValue>> {
        let mut values = Vec::new();
        if self.take_sign(end) {
            return Ok(values);
        }
        loop {
            values.push(self.value(depth + 1)?);
            if !self.take_sign(',') {
                self.expect_sign(end)?;
                return Ok(values);
            }
        }
    }

    /// One value, or several joined by `|`.
    fn value(&mut self, depth: u32) -> ParseResult<CallValue> {
        if depth > DEPTH_MAX {
            return self.error("less nesting is expected");
        }
        let first = self.single(depth)?;
        if !self.has_sign('|') {
            return Ok(first);
        }
        let mut values = vec![first];
        while self.take_sign('|') {
            values.push(self.single(depth)?);
        }
        Ok(CallValue::Or(values))
    }

    fn single(&mut self, depth: u32) -> ParseResult<CallValue> {
        let value = match self.peek() {
            Some(TokenKind::Ellipsis) => CallValue::Any,
            Some(TokenKind::Integer(value) | TokenKind::Hex(value)) => CallValue::Integer(*value),
            Some(TokenKind::Word(word)) => {
                let word = word.clone();
                self.next += 1;
                return self.named(word, depth);
            }
            Some(TokenKind::Text(_)) => return Ok(self.text()),
            Some(TokenKind::Sign('[')) => {
                self.next += 1;
                return Ok(CallValue::List(self.values(']', depth)?));
            }
            Some(TokenKind::Sign('{')) => {
                self.next += 1;
                return Ok(CallValue::Fields(self.values('}', depth)?));
            }
            _ => return self.error("a value is expected"),
        };
        self.next += 1;
        Ok(value)
    }

    /// What follows a word: an equals sign, parentheses, both or nothing.
    fn named(&mut self, word: String, depth: u32) -> ParseResult<CallValue> {
        let is_function = self.take_sign('(');
        let arguments = if is_function { self.values(')', depth)? } else { Vec::new() };
        // The result of a call is not an argument: `f(x) = 0` has no value on the left.
        if depth > 0 && self.take_sign('=') {
            return Ok(CallValue::Named(word, Box::new(self.value(depth + 1)?)));
        }
        Ok(if is_function { CallValue::Function(word, arguments) } else { CallValue::Word(word) })
    }

    /// Strings side by side are one; `"abc"...` is the string.
    fn text(&mut self) -> CallValue {
        let mut joined = String::new();
        while let Some(TokenKind::Text(text)) = self.peek() {
            joined.push_str(text);
            self.next += 1;
        }
        if self.peek() == Some(&TokenKind::Ellipsis)
            && matches!(self.peek_at(1), Some(TokenKind::Sign(',' | ')' | ']' | '}')))
        {
            self.next += 1;
        }
        CallValue::Text(joined)
    }
}

#[cfg(test)]
mod tests;
