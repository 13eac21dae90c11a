//! Code blocks: the part of Python that assertions about `tcp_info` use.
//!
//! Assignments and assertions of integer expressions. `print` is passed over; whatever else Python has is unsupported.

use std::collections::BTreeMap;

use crate::outcome::{ScriptError, ScriptPosition};

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeStatement {
    /// `name = value`; names last until the script ends.
    Assign(String, CodeExpression),
    /// `assert condition`, and the text of the condition.
    Assert(CodeExpression, String),
}

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeExpression {
    /// A number.
    Number(i64),
    /// A field of `tcp_info`, a constant or a name that was assigned.
    Name(String),
    /// `not x`.
    Not(Box<Self>),
    /// `-x`.
    Minus(Box<Self>),
    /// Two operands.
    Binary(CodeOperator, Box<Self>, Box<Self>),
    /// `a <= b <= c`.
    Chain(Box<Self>, Vec<(CodeComparison, Self)>),
}

/// An operator between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeOperator {
    /// `or`
    Or,
    /// `and`
    And,
    /// `|`
    BitOr,
    /// `&`
    BitAnd,
    /// `+`
    Plus,
    /// `-`
    Difference,
    /// `*`
    Times,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeComparison {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

/// Reads a code block that begins at `at`.
///
/// # Errors
/// [`ScriptError::Unsupported`] for what is not of the part of Python above.
pub fn parse(text: &str, at: ScriptPosition) -> Result<Vec<CodeStatement>, ScriptError> {
    let mut statements = Vec::new();
    let joined = text.replace("\\\n", " ");
    for (line, source) in (0_u32..).zip(joined.lines()) {
        let at = if line == 0 { at } else { ScriptPosition { line: at.line + line, column: 1 } };
        let source = source.split('#').next().unwrap_or_default();
        for part in source.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            // Output of a script is ignored.
            if part.starts_with("print") {
                continue;
            }
            let statement = statement(part).ok_or_else(|| ScriptError::Unsupported {
                at,
                what: format!("the code '{part}'"),
            })?;
            statements.push(statement);
        }
    }
    Ok(statements)
}

/// The statement in `text`; `None` if it is none that is known.
fn statement(text: &str) -> Option<CodeStatement> {
    let mut tokens = CodeTokens::of(text)?;
    if tokens.take("assert") {
        let condition = tokens.or(0)?;
        // After a comma comes the message.
        if !tokens.at_end() && !tokens.take(",") {
            return None;
        }
        return Some(CodeStatement::Assert(condition, text.to_owned()));
    }
    let name = tokens.name()?;
    let sum = match tokens.next()? {
        "=" => None,
        "+=" => Some(CodeOperator::Plus),
        "-=" => Some(CodeOperator::Difference),
        _ => return None,
    };
    let value = tokens.or(0)?;
    let value = match sum {
        None => value,
        Some(operator) => {
            let old = Box::new(CodeExpression::Name(name.clone()));
            CodeExpression::Binary(operator, old, Box::new(value))
        }
    };
    tokens.at_end().then_some(CodeStatement::Assign(name, value))
}

/// Parentheses within each other, at most.
const DEPTH_MAX: u32 = 32;

struct CodeTokens<'a> {
    items: Vec<&'a str>,
    next: usize,
}

impl<'a> CodeTokens<'a> {
    /// Splits `text`; from a comma on it is a message, which is one token.
    fn of(text: &'a str) -> Option<Self> {
        let mut items = Vec::new();
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            let word = rest.bytes().take_while(|byte| is_word(*byte)).count();
            let len = match rest.get(..2) {
                _ if word > 0 => word,
                Some("==" | "!=" | "<=" | ">=" | "+=" | "-=") => 2,
                _ if "<>=|&+-*(),".contains(first) => 1,
                _ => return None,
            };
            items.push(&rest[..len]);
            if first == ',' {
                break;
            }
            rest = rest[len..].trim_start();
        }
        Some(Self { items, next: 0 })
    }

    fn at_end(&self) -> bool {
        self.next == self.items.len()
    }

    fn next(&mut self) -> Option<&'a str> {
        let item = self.items.get(self.next).copied();
        self.next += 1;
        item
    }

    fn take(&mut self, item: &str) -> bool {
        let found = self.items.get(self.next) == Some(&item);
        self.next += usize::from(found);
        found
    }

    fn name(&mut self) -> Option<String> {
        let item = self.next()?;
        let is_name = item.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        is_name.then(|| item.to_owned())
    }

    fn or(&mut self, depth: u32) -> Option<CodeExpression> {
        let operators = [("or", CodeOperator::Or)];
        self.binary(&operators, depth, |tokens, depth| {
            tokens.binary(&[("and", CodeOperator::And)], depth, Self::not)
        })
    }

    fn binary(
        &mut self,
        operators: &[(&str, CodeOperator)],
        depth: u32,
        operand: impl Fn(&mut Self, u32) -> Option<CodeExpression>,
    ) -> Option<CodeExpression> {
        let mut left = operand(self, depth)?;
        while let Some((_, operator)) = operators.iter().find(|(text, _)| self.take(text)) {
            let right = operand(self, depth)?;
            left = CodeExpression::Binary(*operator, Box::new(left), Box::new(right));
        }
        Some(left)
    }

    fn not(&mut self, depth: u32) -> Option<CodeExpression> {
        if self.take("not") {
            let depth = Some(depth + 1).filter(|depth| *depth < DEPTH_MAX)?;
            return Some(CodeExpression::Not(Box::new(self.not(depth)?)));
        }
        let first = self.bits(depth)?;
        let mut others = Vec::new();
        loop {
            let comparison = match self.items.get(self.next).copied() {
                Some("==") => CodeComparison::Equal,
                Some("!=") => CodeComparison::NotEqual,
                Some("<") => CodeComparison::Less,
                Some("<=") => CodeComparison::AtMost,
                Some(">") => CodeComparison::Greater,
                Some(">=") => CodeComparison::AtLeast,
                _ if others.is_empty() => return Some(first),
                _ => return Some(CodeExpression::Chain(Box::new(first), others)),
            };
            self.next += 1;
            others.push((comparison, self.bits(depth)?));
        }
    }

    fn bits(&mut self, depth: u32) -> Option<CodeExpression> {
        let sums = [("+", CodeOperator::Plus), ("-", CodeOperator::Difference)];
        self.binary(&[("|", CodeOperator::BitOr)], depth, |tokens, depth| {
            tokens.binary(&[("&", CodeOperator::BitAnd)], depth, |tokens, depth| {
                tokens.binary(&sums, depth, |tokens, depth| {
                    tokens.binary(&[("*", CodeOperator::Times)], depth, Self::unary)
                })
            })
        })
    }

    fn unary(&mut self, depth: u32) -> Option<CodeExpression> {
        let deeper = Some(depth + 1).filter(|depth| *depth < DEPTH_MAX)?;
        if self.take("-") {
            return Some(CodeExpression::Minus(Box::new(self.unary(deeper)?)));
        }
        if self.take("(") {
            let inner = self.or(deeper)?;
            return self.take(")").then_some(inner);
        }
        let item = self.next()?;
        if let Some(hex) = item.strip_prefix("0x") {
            return i64::from_str_radix(hex, 16).ok().map(CodeExpression::Number);
        }
        if item.starts_with(|c: char| c.is_ascii_digit()) {
            return item.parse().ok().map(CodeExpression::Number);
        }
        self.next -= 1;
        self.name().map(CodeExpression::Name)
    }
}

/// The values of names: of `tcp_info` and of the script's own.
#[derive(Debug, Default)]
pub struct CodeNames {
    /// Names that the script assigned.
    pub assigned: BTreeMap<String, i64>,
}

/// Why a statement cannot be evaluated: a name that has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownNameError(pub String);

impl CodeNames {
    /// Evaluates an expression; `known` has the values of what the script did not assign.
    ///
    /// # Errors
    /// [`UnknownNameError`].
    pub fn evaluate(
        &self,
        expression: &CodeExpression,
        known: &dyn Fn(&str) -> Option<i64>,
    ) -> Result<i64, UnknownNameError> {
        match expression {
            CodeExpression::Number(value) => Ok(*value),
            CodeExpression::Name(name) => {
                let assigned = self.assigned.get(name).copied();
                assigned.or_else(|| known(name)).ok_or_else(|| UnknownNameError(name.clone()))
            }
            CodeExpression::Not(inner) => Ok(i64::from(self.evaluate(inner, known)? == 0)),
            CodeExpression::Minus(inner) => Ok(self.evaluate(inner, known)?.wrapping_neg()),
            CodeExpression::Binary(operator, left, right) => {
                let (left, right) = (self.evaluate(left, known)?, self.evaluate(right, known)?);
                Ok(match operator {
                    CodeOperator::Or if left != 0 => left,
                    CodeOperator::And if left == 0 => left,
                    CodeOperator::Or | CodeOperator::And => right,
                    CodeOperator::BitOr => left | right,
                    CodeOperator::BitAnd => left & right,
                    CodeOperator::Plus => left.wrapping_add(right),
                    CodeOperator::Difference => left.wrapping_sub(right),
                    CodeOperator::Times => left.wrapping_mul(right),
                })
            }
            CodeExpression::Chain(first, others) => {
                let mut left = self.evaluate(first, known)?;
                for (comparison, right) in others {
                    let right = self.evaluate(right, known)?;
                    let holds = match comparison {
                        CodeComparison::Equal => left == right,
                        CodeComparison::NotEqual => left != right,
                        CodeComparison::Less => left < right,
                        CodeComparison::AtMost => left <= right,
                        CodeComparison::Greater => left > right,
                        CodeComparison::AtLeast => left >= right,
                    };
                    if !holds {
                        return Ok(0);
                    }
                    left = right;
                }
                Ok(1)
            }
        }
    }
}
