//! Reading and writing the values that several keys share.
//!
//! Left out: which key takes which.

use std::fmt::Write;

use plumb_base::time::Span;
use plumb_base::units::quantity::{parse_rate, parse_share, parse_span};
use plumb_base::units::rate::Rate;
use plumb_base::units::{format_bytes, parse_bytes};

use super::TextError;

pub fn rate(key: &'static str, text: &str) -> Result<Rate, TextError> {
    parse_rate(text).map_err(|error| TextError::Quantity { key, error })
}

pub fn span(key: &'static str, text: &str) -> Result<Span, TextError> {
    parse_span(text).map_err(|error| TextError::Quantity { key, error })
}

pub fn share(key: &'static str, text: &str) -> Result<f64, TextError> {
    parse_share(text).map_err(|error| TextError::Quantity { key, error })
}

pub fn bytes(key: &'static str, text: &str) -> Result<u64, TextError> {
    parse_bytes(text).map_err(|_| unusable(key, text, "bytes: 1514, 64KiB or 1MB"))
}

/// Bytes as [`bytes`] reads them.
pub fn written_bytes(bytes: u64) -> String {
    format!("{}B", format_bytes(bytes))
}

pub fn whole<T: std::str::FromStr>(key: &'static str, text: &str) -> Result<T, TextError> {
    text.parse().map_err(|_| unusable(key, text, "a whole number"))
}

pub fn yes(key: &'static str, text: &str) -> Result<bool, TextError> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(unusable(key, text, "yes or no")),
    }
}

pub fn written_yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// `A/B`.
pub fn pair<'a>(
    key: &'static str,
    text: &'a str,
    forms: &'static str,
) -> Result<(&'a str, &'a str), TextError> {
    text.split_once('/').ok_or_else(|| unusable(key, text, forms))
}

/// A number in thousandths, as `0.5` or `2`.
pub fn thousandths(key: &'static str, text: &str, forms: &'static str) -> Result<u64, TextError> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{part:0<3}");
    let sound =
        !whole.is_empty() && part.len() <= 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| sound).ok_or_else(|| unusable(key, text, forms))
}

pub fn written_thousandths(thousandths: u64) -> String {
    let (whole, part) = (thousandths / 1_000, thousandths % 1_000);
    if part == 0 {
        return whole.to_string();
    }
    format!("{whole}.{part:03}").trim_end_matches('0').to_owned()
}

/// A file's name with what has a meaning in a link's text written as `%XX`.
pub fn written_file(name: &str) -> String {
    let mut written = String::new();
    for c in name.chars() {
        if matches!(c, ',' | ';' | '|' | '%' | '=') || c.is_control() || c.is_whitespace() {
            for byte in c.to_string().bytes() {
                let _ = write!(written, "%{byte:02x}");
            }
        } else {
            written.push(c);
        }
    }
    written
}

/// A file's name from its written form.
pub fn file(key: &'static str, text: &str) -> Result<String, TextError> {
    let fail = || unusable(key, text, "a file's name, with ',' as %2c and '%' as %25");
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = behind;
        if *byte == b'%' {
            let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
            let coded = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(coded.ok_or_else(fail)?);
            rest = &rest[2..];
        } else {
            bytes.push(*byte);
        }
    }
    String::from_utf8(bytes).ok().filter(|name| !name.is_empty()).ok_or_else(fail)
}

pub fn unusable(key: &'static str, value: &str, forms: &'static str) -> TextError {
    TextError::Value { key, value: value.to_owned(), forms }
}
