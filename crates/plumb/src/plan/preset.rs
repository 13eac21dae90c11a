//! Presets: how much to measure when the user has not said.
//!
//! Left out: the levels that a preset gives a factor, which stand beside the factor.

use plumb_base::time::Span;

use super::Limits;

/// How thorough a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// A first look: few launches, short blocks.
    Quick,
    /// Enough for everyday decisions.
    #[default]
    Default,
    /// Enough to publish: at least ten launches of everything.
    Paper,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 3] = [Self::Quick, Self::Default, Self::Paper];

    /// The name used in plans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Paper => "paper",
        }
    }

    /// The preset of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// The limits it sets.
    ///
    /// The samples of a block are capped where the store would grow without the interval
    /// shrinking: spread between launches, not samples, is what limits it (Kalibera & Jones 2013).
    pub const fn limits(self) -> Limits {
        match self {
            Self::Quick => Limits {
                budget: Some(Span::from_secs(570)),
                launches_min: 3,
                launches_max: 5,
                passes: 1,
                block: Span::from_ms(40),
                samples_max: 20_000,
                precision: 0.05,
            },
            Self::Default => Limits {
                budget: Some(Span::from_secs(1_800)),
                launches_min: 5,
                launches_max: 15,
                passes: 2,
                block: Span::from_ms(60),
                samples_max: 50_000,
                precision: 0.02,
            },
            Self::Paper => Limits {
                budget: None,
                launches_min: 10,
                launches_max: 30,
                passes: 2,
                block: Span::from_ms(100),
                samples_max: 100_000,
                precision: 0.02,
            },
        }
    }
}
