//! The estimators.
//!
//! All of them are pure functions of `f64` samples and, where they resample, of a [`Seed`]: the
//! same input gives the same bits. None assumes normality of single samples; the ones that lean
//! on approximate normality of *launch medians* say so.
//!
//! | question | module |
//! |---|---|
//! | where is the p-th part of the samples, how sure, and are there enough of them | [`quantile`] |
//! | how to keep every sample in little room | [`histogram`]; of thousands of queues [`sparse_histogram`] |
//! | how many samples is a correlated series worth | [`autocorrelation`] |
//! | how bursty is a series of counts | [`burstiness`] |
//! | interval of any statistic of one sample | [`bootstrap`] |
//! | what does a cell measured over launches say | [`hierarchy`] |
//! | by how much does one set of launches lie above another | [`shift`] |
//! | are launches independent of the one before | [`drift`] |
//! | do launches fall into two groups | [`groups`] |
//! | does one sample tend to exceed another | [`rank`] |
//! | has the sample more than one mode | [`modes`] |
//! | from where on is a series steady | [`change_point`] |
//! | between what values does a high percentile lie | [`tail`] |
//! | how does cost grow with size | [`regression`] |
//! | how does cost depend on several things at once | [`linear`] |
//! | how to average ratios and costs | [`means`] |
//! | may the measuring stop | [`stopping`] |
//! | samples whose truth is known | [`simulation`] |
//!
//! [`Seed`]: crate::seed::Seed

pub mod autocorrelation;
pub mod bootstrap;
pub mod burstiness;
pub mod change_point;
pub mod distribution;
pub mod drift;
pub mod groups;
pub mod hierarchy;
pub mod histogram;
pub mod linear;
pub mod means;
pub mod modes;
pub mod quantile;
pub mod rank;
pub mod regression;
pub mod shift;
pub mod simulation;
pub mod sparse_histogram;
pub mod stopping;
pub mod tail;

/// A range that holds the truth with the stated confidence, in the unit of the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfidenceInterval {
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
    /// Nominal coverage, such as 0.95.
    pub confidence: f64,
}

impl ConfidenceInterval {
    /// Whether `value` lies inside, ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.lo <= value && value <= self.hi
    }

    /// Half of its length.
    pub fn half_width(&self) -> f64 {
        (self.hi - self.lo) / 2.0
    }

    /// The larger distance from `estimate` to an end, as a share of the estimate's magnitude.
    ///
    /// Infinite when the estimate is zero and the interval is not a point.
    pub fn relative_half_width(&self, estimate: f64) -> f64 {
        let reach = (self.hi - estimate).abs().max((estimate - self.lo).abs());
        if reach == 0.0 { 0.0 } else { reach / estimate.abs() }
    }
}

/// The whole part of a non-negative position, as an index; not-a-number gives 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and positions are never negative"
)]
pub(crate) fn floor_index(position: f64) -> usize {
    position as usize
}

/// The finite values in ascending order.
pub(crate) fn sorted_finite(values: &[f64]) -> Vec<f64> {
    let mut kept: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    kept.sort_unstable_by(f64::total_cmp);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relative_half_width_takes_the_farther_end() {
        let interval = ConfidenceInterval { lo: 9.0, hi: 13.0, confidence: 0.95 };
        assert!((interval.relative_half_width(10.0) - 0.3).abs() < 1e-12);
        assert!(interval.relative_half_width(0.0).is_infinite());
        let point = ConfidenceInterval { lo: 0.0, hi: 0.0, confidence: 0.95 };
        assert!(point.relative_half_width(0.0).abs() < 1e-12);
    }
}
