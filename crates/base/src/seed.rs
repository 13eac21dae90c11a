//! Seeds, and the labelled random streams drawn from them.
//!
//! Every random choice of a run comes from its one seed through a label, so that adding a new
//! consumer of randomness changes nobody else's draws. Left out: any source of entropy.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The generator behind every stream: xoshiro256++, whose output is fixed by its definition.
pub type RandomStream = Xoshiro256PlusPlus;

/// The seed of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seed(pub u64);

impl Seed {
    /// The stream of random numbers belonging to `label`.
    pub fn stream(self, label: &str) -> RandomStream {
        RandomStream::seed_from_u64(self.derive(label).0)
    }

    /// The seed belonging to `label`: for a component that labels streams of its own.
    ///
    /// FNV-1a over the label, then one SplitMix64 round (Steele, Lea & Flood 2014) over both.
    #[must_use]
    pub fn derive(self, label: &str) -> Self {
        let hash = label.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut z = (self.0 ^ hash).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(z ^ (z >> 31))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn a_label_names_one_stream_and_always_the_same() {
        let draw = |label| Seed(7).stream(label).next_u64();
        assert_eq!(draw("order"), draw("order"));
        assert_ne!(draw("order"), draw("bootstrap"));
        assert_ne!(draw("order"), Seed(8).stream("order").next_u64());
    }
}
