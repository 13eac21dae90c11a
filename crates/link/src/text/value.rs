//! Reading and writing the values that several keys share.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use plumb_base::time::Span;
use plumb_base::units::quantity::{parse_probability, parse_rate, parse_span};
use plumb_base::units::{Rate, format_bytes, parse_bytes};

use crate::spec::RateTrace;
use crate::text::{LinkTextFiles, NamedFile, TextError, files_of};

pub fn rate(key: &'static str, text: &str) -> Result<Rate, TextError> {
    parse_rate(text).map_err(|error| TextError::Message(format!("{key}: {error}")))
}

pub fn span(key: &'static str, text: &str) -> Result<Span, TextError> {
    parse_span(text).map_err(|error| TextError::Message(format!("{key}: {error}")))
}

pub fn share(key: &'static str, text: &str) -> Result<f64, TextError> {
    parse_probability(text).map_err(|error| TextError::Message(format!("{key}: {error}")))
}

pub fn bytes(key: &'static str, text: &str) -> Result<u64, TextError> {
    parse_bytes(text).map_err(|_| invalid_value(key, text, "bytes: 1514, 64KiB or 1MB"))
}

/// Bytes as [`bytes`] reads them.
pub fn format_bytes_value(bytes: u64) -> String {
    format!("{}B", format_bytes(bytes))
}

pub fn whole_number<T: std::str::FromStr>(key: &'static str, text: &str) -> Result<T, TextError> {
    text.parse().map_err(|_| invalid_value(key, text, "a whole number"))
}

pub fn yes_or_no(key: &'static str, text: &str) -> Result<bool, TextError> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(invalid_value(key, text, "yes or no")),
    }
}

pub fn format_yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// `A/B`.
pub fn pair<'a>(
    key: &'static str,
    text: &'a str,
    forms: &'static str,
) -> Result<(&'a str, &'a str), TextError> {
    text.split_once('/').ok_or_else(|| invalid_value(key, text, forms))
}

/// A number in thousandths, as `0.5` or `2`.
pub fn thousandths(key: &'static str, text: &str, forms: &'static str) -> Result<u64, TextError> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{part:0<3}");
    let sound =
        !whole.is_empty() && part.len() <= 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| sound).ok_or_else(|| invalid_value(key, text, forms))
}

pub fn format_thousandths(thousandths: u64) -> String {
    let (whole, part) = (thousandths / 1_000, thousandths % 1_000);
    if part == 0 {
        return whole.to_string();
    }
    format!("{whole}.{part:03}").trim_end_matches('0').to_owned()
}

/// A file's name with what has a meaning in a link's text written as `%XX`.
pub fn escape_file_name(name: &str) -> String {
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
pub fn unescape_file_name(key: &'static str, text: &str) -> Result<String, TextError> {
    let fail = || invalid_value(key, text, "a file's name, with ',' as %2c and '%' as %25");
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

pub fn invalid_value(key: &str, value: &str, forms: &str) -> TextError {
    TextError::Message(format!("{key}: '{value}' cannot be used; write {forms}"))
}

/// Traces and delays by the names of their files, ready for use: nothing is parsed when one is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileContents {
    traces: BTreeMap<String, RateTrace>,
    delays: BTreeMap<String, Arc<[Span]>>,
}

impl FileContents {
    /// What the files contain that changes name.
    ///
    /// # Errors
    /// A change or a file that cannot be read.
    pub fn of<'a>(
        changes: impl IntoIterator<Item = &'a str>,
        files: &dyn LinkTextFiles,
    ) -> Result<Self, TextError> {
        let mut contents = Self::default();
        for change in changes {
            contents.add(change, files)?;
        }
        Ok(contents)
    }

    /// And those that this change names.
    ///
    /// # Errors
    /// As [`FileContents::of`].
    pub fn add(&mut self, change: &str, files: &dyn LinkTextFiles) -> Result<(), TextError> {
        for named in files_of(change)? {
            match named {
                NamedFile::Trace(name) => {
                    let trace = files.trace(&name)?;
                    self.traces.insert(name, trace);
                }
                NamedFile::Delays(name) => {
                    let delays = files.delays(&name)?;
                    self.delays.insert(name, delays);
                }
            }
        }
        Ok(())
    }
}

/// Of a file that no change named.
const UNKNOWN: &str = "it was not read before";

impl LinkTextFiles for FileContents {
    fn read(&self, _: &str) -> Result<String, String> {
        Err(UNKNOWN.to_owned())
    }

    fn trace(&self, name: &str) -> Result<RateTrace, TextError> {
        let known = self.traces.get(name).cloned();
        known.ok_or_else(|| TextError::unread("rate", name, UNKNOWN))
    }

    fn delays(&self, name: &str) -> Result<Arc<[Span]>, TextError> {
        let known = self.delays.get(name).cloned();
        known.ok_or_else(|| TextError::unread("delay", name, UNKNOWN))
    }
}
