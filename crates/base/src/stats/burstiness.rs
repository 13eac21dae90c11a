//! How bursty a series of counts is: dispersion beside Poisson's, and the Hurst exponent by the variance–time plot.
//!
//! After Leland, Taqqu, Willinger & Wilson (1994, §4.2): the variance of means over blocks of m falls as m^(2H−2). H is ½ of what is
//! independent beyond some lag, and more of what is not at any scale.

use super::means;
use super::regression::theil_sen;

/// Variance ÷ mean: 1 of Poisson arrivals; `None` of fewer than two counts, or none but zeros.
pub fn dispersion(counts: &[f64]) -> Option<f64> {
    let mean = mean_of(counts);
    (counts.len() > 1 && mean > 0.0).then(|| variance(counts) / mean)
}

/// Blocks that a variance is taken of, at least.
const BLOCKS_MIN: usize = 16;

/// The Hurst exponent, from the slope of the logarithm of the variance over that of the block's length; `None` where there are fewer than
/// three lengths, or no variance.
pub fn hurst(counts: &[f64]) -> Option<f64> {
    let lengths = std::iter::successors(Some(1), |length| Some(length * 2));
    let (x, y): (Vec<f64>, Vec<f64>) = lengths
        .take_while(|length| counts.len() / length >= BLOCKS_MIN)
        .map(|length| {
            let means: Vec<f64> = counts.chunks_exact(length).map(mean_of).collect();
            ((length as f64).ln(), variance(&means).ln())
        })
        .filter(|(_, variance)| variance.is_finite())
        .unzip();
    theil_sen(&x, &y, 0.95).map(|line| 1.0 + line.slope / 2.0)
}

fn mean_of(values: &[f64]) -> f64 {
    means::arithmetic(values).unwrap_or(0.0)
}

fn variance(values: &[f64]) -> f64 {
    let mean = mean_of(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use rand::Rng as _;

    /// Standard normal numbers (Box & Muller 1958).
    fn normals(seed: u64) -> impl FnMut() -> f64 {
        let mut stream = Seed(seed).stream("normals");
        move || {
            let mut unit = || ((stream.next_u64() >> 11) as f64 + 0.5) / 9_007_199_254_740_992.0;
            (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos()
        }
    }

    /// Fractional Gaussian noise of this exponent, exactly (Hosking 1984).
    fn fractional_noise(hurst: f64, length: usize, seed: u64) -> Vec<f64> {
        let mut normal = normals(seed);
        let covariance = |lag: usize| {
            let power = |lag: f64| lag.abs().powf(2.0 * hurst);
            let lag = lag as f64;
            0.5 * (power(lag + 1.0) - 2.0 * power(lag) + power(lag - 1.0))
        };
        let mut noise = vec![normal()];
        let (mut weights, mut left): (Vec<f64>, f64) = (Vec::new(), 1.0);
        for index in 1..length {
            let known: f64 =
                weights.iter().enumerate().map(|(lag, w)| w * covariance(index - 1 - lag)).sum();
            let partial = (covariance(index) - known) / left;
            let turned: Vec<f64> = weights.iter().rev().copied().collect();
            weights.iter_mut().zip(&turned).for_each(|(weight, other)| *weight -= partial * other);
            weights.push(partial);
            left *= 1.0 - partial * partial;
            let mean: f64 = weights.iter().zip(noise.iter().rev()).map(|(w, x)| w * x).sum();
            noise.push(mean + left.sqrt() * normal());
        }
        noise
    }

    #[test]
    fn hurst_of_fractional_noise_is_what_it_was_made_with() {
        for exponent in [0.5, 0.6, 0.7, 0.8] {
            let mean: f64 = (0..8)
                .map(|seed| hurst(&fractional_noise(exponent, 2_048, seed)).unwrap())
                .sum::<f64>()
                / 8.0;
            // Means of few long blocks vary less than they should, the more so the larger H is.
            assert!((mean - exponent).abs() < 0.05, "{exponent}: {mean}");
        }
    }

    #[test]
    fn counts_of_a_clock_do_not_vary_and_have_no_exponent() {
        assert_eq!(hurst(&[5.0; 1_000]), None);
        assert_eq!(dispersion(&[5.0; 10]), Some(0.0));
        assert_eq!(dispersion(&[0.0; 10]), None);
    }

    #[test]
    fn dispersion_of_poisson_is_one_and_of_bursts_their_length() {
        let mut stream = Seed(3).stream("arrivals");
        let mut counts = vec![0.0; 4_000];
        for _ in 0..40_000 {
            counts[usize::try_from(stream.next_u64() % 4_000).unwrap()] += 1.0;
        }
        assert!((dispersion(&counts).unwrap() - 1.0).abs() < 0.1, "{:?}", dispersion(&counts));
        let bursts: Vec<f64> = counts.iter().map(|count| count * 5.0).collect();
        assert!((dispersion(&bursts).unwrap() / dispersion(&counts).unwrap() - 5.0).abs() < 1e-9);
    }
}
