//! System calls in a script.

use super::{ParseResult, ScriptParser};
use crate::lexer::TokenKind;
use crate::script::{CallValue, SystemCall};

/// Parentheses, brackets and braces within each other, at most.
const DEPTH_MAX: u32 = 32;

impl ScriptParser {
    pub(super) fn call(&mut self) -> ParseResult<SystemCall> {
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
            // What strerror() says, or names of flags.
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
