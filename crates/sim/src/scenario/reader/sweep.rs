//! Sweeps: variables with several values, each combination of which is a scenario, and replications with seeds of their own.

use std::collections::BTreeMap;

use plumb_link::text::NoFiles;
use toml::de::{DeTable, DeValue};

use super::{ReadResult, ScenarioReader, ScenarioTextError, whole};

/// Keys of a scenario that belong to its sweep.
pub(super) const KEYS: [&str; 2] = ["sweep", "replications"];
/// Points of a sweep at most: more would take years.
const POINTS_MAX: u64 = 1_000_000;

/// One scenario of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SweepPoint {
    /// What each variable is.
    pub values: BTreeMap<String, String>,
    /// Which replication, from 0.
    pub replication: u64,
    /// Seed instead of the file's; replications have seeds that are derived from it.
    pub seed: Option<u64>,
}

/// Every point of the sweep of a text: one without values for one that has no sweep. The last variable changes fastest, then
/// replications.
///
/// # Errors
/// [`ScenarioTextError`] with the line.
pub fn sweep_points(text: &str, origin: &str) -> Result<Vec<SweepPoint>, ScenarioTextError> {
    let none = BTreeMap::new();
    let reader = ScenarioReader { text, origin, variables: &none, files: &NoFiles };
    let table = reader.parse()?;
    reader.points(table.get_ref())
}

fn is_in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// `text` with values in the place of `$name`.
pub(super) fn substitute(text: &str, values: &BTreeMap<String, String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out += &rest[..at];
        let name = &rest[at + 1..];
        let end = name.find(|c| !is_in_name(c)).unwrap_or(name.len());
        let name = &name[..end];
        let value = values.get(name).ok_or_else(|| {
            let known: Vec<&str> = values.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            format!("there is no variable '${name}'; [sweep] has: {known}")
        })?;
        out += value;
        rest = &rest[at + 1 + end..];
    }
    Ok(out + rest)
}

impl ScenarioReader<'_> {
    fn points(&self, table: &DeTable<'_>) -> ReadResult<Vec<SweepPoint>> {
        let replications = match table.get("replications") {
            None => 1,
            Some(value) => match self.read(value, "replications", whole::<u64>)? {
                0 => {
                    return Err(self.fault(value, "replications: give 1 or more"));
                }
                some => some,
            },
        };
        let mut grid = vec![BTreeMap::new()];
        let mut count = replications;
        if let Some(sweep) = table.get("sweep") {
            let DeValue::Table(variables) = sweep.get_ref() else {
                return Err(self.fault(sweep, "'sweep' is not a table; write it as [sweep]"));
            };
            for (name, value) in variables {
                let name = name.get_ref().to_string();
                let values = self.values(&name, value)?;
                count = count.saturating_mul(values.len() as u64);
                if count > POINTS_MAX {
                    return Err(self.fault(
                        value,
                        format!("the sweep has more than {POINTS_MAX} points; give fewer values or replications"),
                    ));
                }
                let with = |point: &BTreeMap<String, String>, value: &String| {
                    let mut point = point.clone();
                    point.insert(name.clone(), value.clone());
                    point
                };
                grid = grid
                    .iter()
                    .flat_map(|point| values.iter().map(move |value| with(point, value)))
                    .collect();
            }
            for (name, value) in variables {
                self.check_use(name.get_ref(), value)?;
            }
        } else if count > POINTS_MAX {
            return Err(
                self.fault_at(&(0..0), format!("more than {POINTS_MAX} replications; give fewer"))
            );
        }
        let numbered = |values: BTreeMap<String, String>| {
            (0..replications).map(move |replication| SweepPoint {
                values: values.clone(),
                replication,
                seed: None,
            })
        };
        Ok(grid.into_iter().flat_map(numbered).collect())
    }

    /// An unused variable would only repeat the same simulation.
    fn check_use(&self, name: &str, value: &super::TomlValue<'_>) -> ReadResult<()> {
        let is_used = self.text.match_indices('$').any(|(at, _)| {
            let rest = self.text[at + 1..].strip_prefix(name);
            rest.is_some_and(|rest| !rest.starts_with(is_in_name))
        });
        if is_used {
            return Ok(());
        }
        let fix = if KEYS.contains(&name) {
            "write it above all tables".to_owned()
        } else {
            format!("write ${name} where its values belong, or leave it out")
        };
        Err(self.fault(value, format!("variable '{name}' is not used; {fix}")))
    }

    fn values(&self, name: &str, value: &super::TomlValue<'_>) -> ReadResult<Vec<String>> {
        let values = match value.get_ref() {
            DeValue::Array(values) => values
                .iter()
                .map(|value| self.text_of(value, name))
                .collect::<Result<Vec<_>, _>>()?,
            _ => vec![self.text_of(value, name)?],
        };
        if values.is_empty() {
            return Err(self.fault(value, format!("variable '{name}' has no values; give it one")));
        }
        Ok(values)
    }
}
