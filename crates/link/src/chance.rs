//! Things that happen with a probability: one draw each, without rounding that a test could see.

use plumb_base::seed::RandomStream;
use rand::Rng;

/// A probability as a threshold for 64 random bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chance {
    threshold: u64,
    is_certain: bool,
}

impl Chance {
    /// A probability; what lies outside 0 to 1 is never or always.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates: below 0 is never, and 1 has its own flag"
    )]
    pub fn new(probability: f64) -> Self {
        let threshold = (probability * 2.0_f64.powi(64)) as u64;
        Self { threshold, is_certain: probability >= 1.0 }
    }

    /// Draws once: also where the outcome is certain, so that a stream's later draws do not depend on it.
    #[inline]
    pub fn draw(self, stream: &mut RandomStream) -> bool {
        let bits = stream.next_u64();
        self.is_certain || bits < self.threshold
    }
}

/// A number of 0 to `bound` − 1, each equally likely to 2⁻⁶⁴ (Lemire 2019, without the rejection).
#[inline]
pub(crate) fn below(stream: &mut RandomStream, bound: u64) -> u64 {
    let product = u128::from(stream.next_u64()) * u128::from(bound);
    u64::try_from(product >> 64).expect("a product of 128 bits has 64 above the lowest 64")
}

/// A number between 0 and 1, neither included.
#[inline]
pub(crate) fn open_unit(stream: &mut RandomStream) -> f64 {
    ((stream.next_u64() >> 11) as f64 + 0.5) / 9_007_199_254_740_992.0
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use plumb_base::stats::distribution::binomial_cdf;

    use super::*;

    #[test]
    fn a_chance_strikes_as_often_as_a_binomial_lets_it() {
        for (n, p) in [(200_000_u64, 0.001), (100_000, 0.1), (100_000, 0.5), (100_000, 0.999)] {
            let mut stream = Seed(n).stream("chance");
            let chance = Chance::new(p);
            let struck = (0..n).filter(|_| chance.draw(&mut stream)).count();
            let tail = binomial_cdf(u64::try_from(struck).unwrap(), n, p);
            assert!((0.000_5..0.999_5).contains(&tail), "{struck} of {n} at {p}");
        }
    }

    #[test]
    fn never_is_never_and_always_is_always() {
        let mut stream = Seed(1).stream("chance");
        assert!((0..10_000).all(|_| !Chance::new(0.0).draw(&mut stream)));
        assert!((0..10_000).all(|_| Chance::new(1.0).draw(&mut stream)));
        assert!((0..10_000).all(|_| below(&mut stream, 3) < 3));
        assert!((0..10_000).all(|_| (0.0..1.0).contains(&open_unit(&mut stream))));
    }
}
