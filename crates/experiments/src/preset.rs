//! How often and how long to measure, and the presets of that.

use plumb_base::time::Span;

/// How often and how long to measure each cell.
#[derive(Clone, Debug, PartialEq)]
pub struct RunLimits {
    /// Wall time after which no block begins, and no round that would not end within it; none for no such limit.
    pub budget: Option<Span>,
    /// Launches that every cell gets, however precise it is already.
    pub launches_min: u32,
    /// Launches after which a cell is done, however imprecise it is still.
    pub launches_max: u32,
    /// Blocks of each cell in one launch.
    pub passes: u32,
    /// Wall time of the timed region of one block.
    pub block: Span,
    /// Most samples in one block.
    pub samples_max: u32,
    /// Half width of the 95 % interval of the median, as a share of it, at which a cell is done.
    pub precision: f64,
}

/// Blocks in place of one, where two levels are compared in turns.
const TURNS: u32 = 4;

impl RunLimits {
    /// The same time in shorter blocks, each beside one of the other level: what disturbs the machine for
    /// some milliseconds then falls on both. A fixed number of launches, so that no interval of the ratio is
    /// one that a rule has chosen to stop at.
    #[must_use]
    pub fn interleaved(self) -> Self {
        Self {
            passes: self.passes * TURNS,
            block: self.block / u64::from(TURNS),
            launches_min: self.launches_max,
            ..self
        }
    }
}

/// How thorough a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunPreset {
    /// A first look: few launches, short blocks.
    Quick,
    /// Enough for everyday decisions.
    #[default]
    Default,
    /// Enough to publish: at least ten launches of everything.
    Paper,
}

impl RunPreset {
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
    pub const fn limits(self) -> RunLimits {
        match self {
            Self::Quick => RunLimits {
                budget: Some(Span::from_secs(570)),
                launches_min: 6,
                launches_max: 8,
                passes: 1,
                block: Span::from_ms(20),
                samples_max: 10_000,
                precision: 0.05,
            },
            Self::Default => RunLimits {
                budget: Some(Span::from_secs(1_800)),
                launches_min: 6,
                launches_max: 15,
                passes: 2,
                block: Span::from_ms(60),
                samples_max: 50_000,
                precision: 0.02,
            },
            Self::Paper => RunLimits {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_take_the_time_of_the_blocks_they_stand_for() {
        for preset in RunPreset::ALL {
            let limits = preset.limits();
            let turns = limits.clone().interleaved();
            assert!(turns.passes > limits.passes && turns.block < limits.block);
            assert_eq!(
                turns.block * u64::from(turns.passes),
                limits.block * u64::from(limits.passes)
            );
        }
    }
}
