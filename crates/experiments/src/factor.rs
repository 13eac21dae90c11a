//! Factors: what an experiment varies, the levels each may take, and how they are read.

use plumb_base::units::{format_bytes, parse_bytes};
use plumb_harness::spec::{MESSAGE_SIZE_MAX, Mechanism};
use plumb_report::registry::LevelWords;
use plumb_store::record::{FactorLevel, Factors};

use crate::error::ExperimentError;
use crate::preset::RunPreset;
use crate::surroundings::Surroundings;

pub mod channel;
pub mod display;
pub mod link;
pub mod mirror;
pub mod remote;
pub mod streams;
pub mod transfer;

/// What the levels of a factor may depend on.
#[derive(Clone, Copy, Debug)]
pub struct LevelContext<'a> {
    /// How thorough the run is to be.
    pub preset: RunPreset,
    /// The link that plumb runs behind, and the other host.
    pub surroundings: &'a Surroundings,
}

/// Something an experiment varies.
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    /// Its name in plans and results.
    pub name: &'static str,
    /// What it is, in a few words.
    pub meaning: &'static str,
    /// The levels it may take.
    pub domain: FactorDomain,
    /// The levels that each preset gives it: quick, default and paper.
    pub levels: [PresetLevels; 3],
    /// Whether it has a meaning at a level of the experiment's first factor.
    pub applies: fn(&Factors) -> bool,
    /// Makes preset levels suit a level of the first factor; never called on levels a user chose.
    pub fit: fn(&Factors, Vec<FactorLevel>) -> Vec<FactorLevel>,
    /// Words for levels, where pages do not print them as they are.
    pub labels: LevelWords,
}

/// The levels that a preset gives a factor.
#[derive(Clone, Copy, Debug)]
pub enum PresetLevels {
    /// Words.
    Words(&'static [&'static str]),
    /// Numbers.
    Numbers(&'static [u64]),
    /// The levels that a function finds.
    Found(fn(&LevelContext<'_>) -> Vec<FactorLevel>),
}

impl Factor {
    /// A factor whose every level suits every level of the others.
    pub const fn new(
        name: &'static str,
        meaning: &'static str,
        domain: FactorDomain,
        levels: PresetLevels,
    ) -> Self {
        let fit = keep_levels;
        Self { name, meaning, domain, levels: [levels; 3], applies: always, fit, labels: &[] }
    }

    /// A factor of a few words, all of which every preset takes.
    pub const fn of_words(
        name: &'static str,
        meaning: &'static str,
        words: &'static [&'static str],
    ) -> Self {
        Self::new(name, meaning, FactorDomain::Words(words), PresetLevels::Words(words))
    }

    /// The same with these levels under every preset.
    #[must_use]
    pub const fn at(self, levels: PresetLevels) -> Self {
        Self { levels: [levels; 3], ..self }
    }

    /// The same with these levels under the quick preset.
    #[must_use]
    pub const fn at_quick(self, levels: PresetLevels) -> Self {
        let [_, default, paper] = self.levels;
        Self { levels: [levels, default, paper], ..self }
    }

    /// The same with these levels under the paper preset.
    #[must_use]
    pub const fn at_paper(self, levels: PresetLevels) -> Self {
        let [quick, default, _] = self.levels;
        Self { levels: [quick, default, levels], ..self }
    }

    /// The same with words for its levels.
    #[must_use]
    pub const fn labelled(self, labels: LevelWords) -> Self {
        Self { labels, ..self }
    }

    /// The levels that a preset gives it.
    pub fn preset_levels(&self, context: &LevelContext<'_>) -> Vec<FactorLevel> {
        match self.levels[context.preset as usize] {
            PresetLevels::Words(levels) => words(levels),
            PresetLevels::Numbers(levels) => numbers(levels),
            PresetLevels::Found(find) => find(context),
        }
    }
}

/// The levels a factor may take.
#[derive(Clone, Copy, Debug)]
pub enum FactorDomain {
    /// One of a few words.
    Words(&'static [&'static str]),
    /// One of the mechanisms that pass the test.
    Mechanisms(fn(Mechanism) -> bool),
    /// A message size in bytes.
    Sizes,
    /// `default` or a size in bytes.
    Buffers,
    /// A whole percentage.
    Percent,
    /// A whole number from the first to the second, and what it is called: `a number`.
    Between(u64, u64, &'static str),
    /// `first`, `each` or the number of a CPU.
    Cpus,
    /// The name of a congestion control algorithm, known to the kernel only.
    Congestion,
    /// Levels that a parser of its own accepts.
    Parsed(&'static LevelParser),
}

/// Reads the levels of a factor whose domain is no other's.
#[derive(Clone, Copy, Debug)]
pub struct LevelParser {
    /// The level of a text in its one form, or what is wrong with it.
    pub parse: fn(&str) -> Result<FactorLevel, String>,
    /// What it takes, in words.
    pub describe: fn() -> String,
}

impl FactorDomain {
    /// Reads a level.
    ///
    /// # Errors
    /// What is wrong with the text, and the nearest level or what would do.
    pub fn parse(self, factor: &str, text: &str) -> Result<FactorLevel, ExperimentError> {
        let text = text.trim();
        let fault = |why: String| {
            ExperimentError::usage(format!("'{text}' is not a level of factor '{factor}'"))
                .because(why)
        };
        match self {
            Self::Words(words) if words.contains(&text) => Ok(text.into()),
            Self::Mechanisms(test) if Mechanism::from_name(text).is_some_and(test) => {
                Ok(text.into())
            }
            Self::Words(_) | Self::Mechanisms(_) => {
                let names = self.names();
                Err(fault(format!("it takes {}", self.describe()))
                    .suggest(text, names.iter().copied()))
            }
            Self::Sizes => size(text).map_err(fault),
            Self::Buffers if text == "default" => Ok(text.into()),
            Self::Buffers => size(text).map_err(|why| fault(why + ", or 'default'")),
            Self::Percent => match text.trim_end_matches('%').parse::<u64>() {
                Ok(percent) if percent <= 100 => Ok(percent.into()),
                _ => Err(fault("it takes a whole percentage from 0 to 100".to_owned())),
            },
            Self::Between(least, most, _) => match text.trim_end_matches('%').parse::<u64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(number.into()),
                _ => Err(fault(format!("it takes a whole number from {least} to {most}"))),
            },
            Self::Cpus if matches!(text, "first" | "each") => Ok(text.into()),
            Self::Cpus => match text.parse::<u32>() {
                Ok(cpu) => Ok(u64::from(cpu).into()),
                Err(_) => Err(fault("it takes first, each, or the number of a CPU".to_owned())),
            },
            Self::Parsed(reader) => (reader.parse)(text).map_err(fault),
            Self::Congestion => {
                let sound = !text.is_empty()
                    && text.len() < 16
                    && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
                if sound {
                    Ok(text.into())
                } else {
                    Err(fault(
                        "it takes a name of the kernel's, such as cubic, reno or bbr".to_owned(),
                    ))
                }
            }
        }
    }

    /// The levels by name, where they can be listed.
    pub fn names(self) -> Vec<&'static str> {
        match self {
            Self::Words(words) => words.to_vec(),
            Self::Mechanisms(test) => {
                Mechanism::ALL.into_iter().filter(|m| test(*m)).map(Mechanism::name).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What it takes, in words.
    pub fn describe(self) -> String {
        match self {
            Self::Words(words) => words.join(", "),
            Self::Mechanisms(_) => {
                let names = self.names();
                if names.len() > 8 {
                    format!("one of {} mechanisms (plumb list mechanisms)", names.len())
                } else {
                    names.join(", ")
                }
            }
            Self::Sizes => format!("a size from 1 byte to {}", format_bytes(MESSAGE_SIZE_MAX)),
            Self::Buffers => "default, or a size in bytes".to_owned(),
            Self::Percent => "a whole percentage".to_owned(),
            Self::Between(least, most, what) => format!("{what} from {least} to {most}"),
            Self::Cpus => "first, each (up to 8, evenly spread), or a CPU number".to_owned(),
            Self::Congestion => "a congestion control of the kernel's".to_owned(),
            Self::Parsed(reader) => (reader.describe)(),
        }
    }

    /// A level as people write it: sizes with their prefixes.
    pub fn spell(self, level: &FactorLevel) -> String {
        match (self, level) {
            (Self::Sizes | Self::Buffers, FactorLevel::Int(n)) => {
                u64::try_from(*n).map_or_else(|_| n.to_string(), format_bytes)
            }
            _ => level.to_string(),
        }
    }
}

/// A message size within what plumb sends at all.
fn size(text: &str) -> Result<FactorLevel, String> {
    match parse_bytes(text) {
        Ok(0) => Err("a size is at least 1 byte".to_owned()),
        Ok(n) if n > MESSAGE_SIZE_MAX => {
            Err(format!("a size is at most {}: plumb's buffers", format_bytes(MESSAGE_SIZE_MAX)))
        }
        Ok(n) => Ok(n.into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Words as levels.
pub(crate) fn words(words: &[&str]) -> Vec<FactorLevel> {
    words.iter().map(|word| FactorLevel::from(*word)).collect()
}

/// Numbers as levels.
pub(crate) fn numbers(numbers: &[u64]) -> Vec<FactorLevel> {
    numbers.iter().map(|n| FactorLevel::from(*n)).collect()
}

/// For [`Factor::applies`]: at every level of the first factor.
pub(crate) fn always(_: &Factors) -> bool {
    true
}

/// For [`Factor::fit`]: preset levels suit as they are.
pub(crate) fn keep_levels(_: &Factors, levels: Vec<FactorLevel>) -> Vec<FactorLevel> {
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_nothing_and_of_too_much_are_refused() {
        assert_eq!(FactorDomain::Sizes.parse("size", "4Ki"), Ok(FactorLevel::Int(4096)));
        for text in ["0", "1Gi", "-4", "4 parsecs", "", "99999999999999999999"] {
            assert!(FactorDomain::Sizes.parse("size", text).is_err(), "{text}");
        }
    }

    #[test]
    fn levels_are_spelt_as_they_are_read() {
        for text in ["64", "4Ki", "512Ki"] {
            let level = FactorDomain::Sizes.parse("size", text).unwrap();
            assert_eq!(FactorDomain::Sizes.spell(&level), text);
        }
    }
}
