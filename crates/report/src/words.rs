//! Words of experiments: titles, responses and levels, as the registry installs them.

use std::sync::OnceLock;

/// Words for the levels of a factor.
pub type LevelWords = &'static [(&'static str, &'static str)];

/// Words by experiment or factor.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pub(crate) titles: Vec<(&'static str, &'static str)>,
    pub(crate) responses: Vec<(&'static str, LevelWords)>,
    pub(crate) levels: Vec<(&'static str, LevelWords)>,
}

static WORDS: OnceLock<Words> = OnceLock::new();

pub(crate) fn install(words: impl FnOnce() -> Words) {
    WORDS.get_or_init(words);
}

/// The heading of an experiment or a study.
pub(crate) fn title(id: &str) -> Option<&'static str> {
    let titles = &WORDS.get()?.titles;
    titles.iter().find(|(known, _)| *known == id).map(|(_, title)| *title)
}

/// A response of an experiment in words of its own.
pub(crate) fn response(experiment: &str, name: &str) -> Option<&'static str> {
    let (_, words) = WORDS.get()?.responses.iter().find(|(known, _)| *known == experiment)?;
    words.iter().find(|(known, _)| *known == name).map(|(_, words)| *words)
}

/// A level in words.
pub(crate) fn level(factor: &str, level: &str) -> Option<&'static str> {
    let tables = WORDS.get()?.levels.iter().filter(|(name, _)| *name == factor);
    let mut words = tables.flat_map(|(_, words)| words.iter());
    words.find(|(known, _)| *known == level).map(|(_, words)| *words)
}
