//! Scenarios as TOML: every fault of one that is read names its line.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use plumb_base::time::Span;
use plumb_base::units::quantity::{parse_rate, parse_span};
use plumb_base::units::{Rate, parse_bytes};
use plumb_link::spec::{HopSpec, LinkSpec};
use plumb_link::text::LinkTextFiles;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

mod network;
mod sweep;
mod traffic;

pub use sweep::{SweepPoint, sweep_points};

use super::{Scenario, ScenarioError};

const TOP: [&str; 12] = [
    "title",
    "duration",
    "warmup",
    "seed",
    "mtu",
    "ring",
    "sample_every",
    "topology",
    "link",
    "flow",
    "source",
    "processor",
];

/// What is wrong with the text of a scenario: where, what, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}, line {line}: {message}")]
pub struct ScenarioTextError {
    /// What was read.
    pub origin: String,
    /// Its line, from 1.
    pub line: usize,
    /// What is wrong; what to do about it, behind a semicolon.
    pub message: String,
}

type TomlValue<'i> = Spanned<DeValue<'i>>;
type ReadResult<T> = Result<T, ScenarioTextError>;

impl Scenario {
    /// Reads a scenario at one point of its sweep, if it has any. `origin` names the text in messages, `files` reads what links name.
    ///
    /// # Errors
    /// [`ScenarioTextError`] with the line.
    pub fn from_toml(
        text: &str,
        origin: &str,
        point: &SweepPoint,
        files: &dyn LinkTextFiles,
    ) -> ReadResult<Self> {
        let reader = ScenarioReader { text, origin, variables: &point.values, files };
        let table = reader.parse()?;
        let scenario = reader.scenario(table.get_ref(), point)?;
        scenario.check().map_err(|error| reader.locate(table.get_ref(), &error))?;
        Ok(scenario)
    }
}

struct ScenarioReader<'a> {
    text: &'a str,
    origin: &'a str,
    /// What `$name` stands for.
    variables: &'a BTreeMap<String, String>,
    files: &'a dyn LinkTextFiles,
}

impl<'a> ScenarioReader<'a> {
    fn parse(&self) -> ReadResult<Spanned<DeTable<'a>>> {
        DeTable::parse(self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let why = error.message().replace('\n', " ");
            self.fault_at(
                &span,
                format!("this is not TOML: {why}; see 'plumb sim --help' for a file that is"),
            )
        })
    }

    fn scenario(&self, table: &DeTable<'_>, point: &SweepPoint) -> ReadResult<Scenario> {
        self.check_keys(table, "a scenario", &[&TOP[..], &sweep::KEYS[..]].concat())?;
        let mut scenario = Scenario::new(self.network(table)?);
        self.set(table, "title", &mut scenario.title, |text| Ok::<_, String>(text.to_owned()))?;
        self.set(table, "duration", &mut scenario.duration, parse_span)?;
        self.set(table, "warmup", &mut scenario.warmup, parse_span)?;
        self.set(table, "seed", &mut scenario.seed.0, whole::<u64>)?;
        if let Some(seed) = point.seed {
            scenario.seed.0 = seed;
        }
        self.set(table, "mtu", &mut scenario.mtu, whole::<u32>)?;
        self.set(table, "ring", &mut scenario.ring, whole::<u32>)?;
        self.set_some(table, "sample_every", &mut scenario.sample_every, parse_span)?;
        if point.replication > 0 {
            scenario.seed = scenario.seed.derive(&format!("replication {}", point.replication));
        }
        self.traffic(table, &mut scenario)?;
        Ok(scenario)
    }

    /// Sets what a key gives, read by `read`.
    fn set<T, E: fmt::Display>(
        &self,
        table: &DeTable<'_>,
        key: &str,
        to: &mut T,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> ReadResult<()> {
        if let Some(value) = table.get(key) {
            *to = self.read(value, key, read)?;
        }
        Ok(())
    }

    fn set_some<T, E: fmt::Display>(
        &self,
        table: &DeTable<'_>,
        key: &str,
        to: &mut Option<T>,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> ReadResult<()> {
        if let Some(value) = table.get(key) {
            *to = Some(self.read(value, key, read)?);
        }
        Ok(())
    }

    fn read<T, E: fmt::Display>(
        &self,
        value: &TomlValue<'_>,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> ReadResult<T> {
        let text = self.text_of(value, key)?;
        read(&text).map_err(|error| self.fault(value, format!("{key}: {error}")))
    }

    /// A value that must be there.
    fn required<'t, 'i>(
        &self,
        table: &'t DeTable<'i>,
        key: &str,
        at: &Range<usize>,
        example: &str,
    ) -> ReadResult<&'t TomlValue<'i>> {
        table.get(key).ok_or_else(|| {
            self.fault_at(at, format!("'{key}' is missing; write, for example, {key} = {example}"))
        })
    }

    /// A word, a number or a truth value as text, in which `$name` stands for the value of a swept variable.
    fn text_of(&self, value: &TomlValue<'_>, key: &str) -> ReadResult<String> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Boolean(on) => on.to_string(),
            _ => {
                return Err(self
                    .fault(value, format!("{key}: a word in quotes or a number is wanted here")));
            }
        };
        sweep::substitute(&text, self.variables).map_err(|error| self.fault(value, error))
    }

    fn hop(&self, value: &TomlValue<'_>, key: &str) -> ReadResult<HopSpec> {
        let text = self.text_of(value, key)?;
        let link = LinkSpec::parse(&text, self.files)
            .map_err(|error| self.fault(value, format!("{key}: {error}")))?;
        match <[HopSpec; 1]>::try_from(link.hops) {
            Ok([hop]) => Ok(hop),
            Err(hops) => Err(self.fault(
                value,
                format!("{key}: a link between two nodes is one hop, not {}; put routers between links instead", hops.len()),
            )),
        }
    }

    fn list<'t, 'i>(
        &self,
        table: &'t DeTable<'i>,
        key: &str,
    ) -> ReadResult<Vec<(&'t DeTable<'i>, Range<usize>)>> {
        let Some(value) = table.get(key) else { return Ok(Vec::new()) };
        let wrong = || {
            self.fault(
                value,
                format!("'{key}' is not a list; write it as [[{key}]], with two brackets"),
            )
        };
        let DeValue::Array(entries) = value.get_ref() else { return Err(wrong()) };
        entries
            .iter()
            .map(|entry| match entry.get_ref() {
                DeValue::Table(inner) => Ok((inner, entry.span())),
                _ => Err(wrong()),
            })
            .collect()
    }

    fn check_keys(&self, table: &DeTable<'_>, what: &str, known: &[&str]) -> ReadResult<()> {
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let message = format!("{what} has no '{name}'; it has: {}", known.join(", "));
                return Err(self.fault_at(&key.span(), message));
            }
        }
        Ok(())
    }

    /// A fault of the whole, at the place that has most to do with it.
    fn locate(&self, table: &DeTable<'_>, error: &ScenarioError) -> ScenarioTextError {
        let text = error.to_string();
        let keys = ["warmup", "mtu", "ring", "duration", "topology", "link"];
        let about = |key: &&str| match *key {
            "warmup" => text.contains("warm-up"),
            "mtu" => text.contains("MTU"),
            "ring" => text.contains("ring"),
            "duration" => text.contains("lasts"),
            _ => true,
        };
        let place = keys.into_iter().filter(about).find_map(|key| table.get(key));
        place.map_or_else(
            || self.fault_at(&(0..0), text.clone()),
            |value| self.fault(value, text.clone()),
        )
    }

    fn fault(&self, value: &TomlValue<'_>, message: impl Into<String>) -> ScenarioTextError {
        self.fault_at(&value.span(), message)
    }

    fn fault_at(&self, span: &Range<usize>, message: impl Into<String>) -> ScenarioTextError {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        ScenarioTextError {
            origin: self.origin.to_owned(),
            line: before.matches('\n').count() + 1,
            message: message.into(),
        }
    }
}

/// A whole number.
fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is not a valid whole number here"))
}

/// A rate above zero.
fn rate(text: &str) -> Result<Rate, String> {
    parse_rate(text).map_err(|error| error.to_string())
}

/// Bytes above zero.
fn positive_bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text) {
        Ok(0) => Err("give 1 byte or more".to_owned()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

/// The same for what is at most 1 GiB, as TCP's largest window is (RFC 7323).
fn buffer(text: &str) -> Result<u32, String> {
    let bytes = positive_bytes(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= 1 << 30)
        .ok_or_else(|| format!("{text} is more than 1 GiB, the largest window of TCP (RFC 7323)"))
}

fn truth(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("'{text}' is neither true nor false"))
}

fn span(text: &str) -> Result<Span, String> {
    parse_span(text).map_err(|error| error.to_string())
}
