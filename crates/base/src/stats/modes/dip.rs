//! Hartigan's dip: how far a sample is from every unimodal distribution.
//!
//! Hartigan & Hartigan 1985; the algorithm is AS 217 (Hartigan, Applied Statistics 34, 1985) with
//! the corrections published with R's `diptest` (Maechler 2003). Left out: p-values; only the
//! levels below are tabulated.

/// The dip of an ascending sample: between 1/(2n) and 1/4.
///
/// The largest distance between the empirical distribution function and the nearest unimodal one.
pub fn dip(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    if n < 2 || sorted[n - 1] <= sorted[0] {
        return 0.5 / n.max(1) as f64;
    }
    let minorant = minorant_links(sorted);
    let majorant = majorant_links(sorted);
    let (mut low, mut high) = (0, n - 1);
    let mut dip = 1.0_f64;
    loop {
        let gcm = chain(high, |i| (i > low).then(|| minorant[i]));
        let lcm = chain(low, |i| (i < high).then(|| majorant[i]));
        let Some(gap) = widest_gap(sorted, &gcm, &lcm) else { break };
        if gap.distance < dip {
            break;
        }
        let below = gcm[gap.gcm..]
            .windows(2)
            .map(|pair| deviation(sorted, pair[1], pair[0], 1.0))
            .fold(0.0, f64::max);
        let above = lcm[gap.lcm..]
            .windows(2)
            .map(|pair| deviation(sorted, pair[0], pair[1], -1.0))
            .fold(0.0, f64::max);
        dip = dip.max(below).max(above);
        if low == gcm[gap.gcm] && high == lcm[gap.lcm] {
            break;
        }
        (low, high) = (gcm[gap.gcm], lcm[gap.lcm]);
    }
    dip / (2.0 * n as f64)
}

/// Whether an ascending sample is unlikely to come from any unimodal distribution.
///
/// Against the uniform distribution, the unimodal one with the largest dips.
pub(super) fn rejects_unimodality(sorted: &[f64]) -> bool {
    sorted.len() >= 10 && dip(sorted) * (sorted.len() as f64).sqrt() > critical(sorted.len())
}

/// The 97 % point of √n · dip for `n` uniform samples, interpolated in ln n.
fn critical(n: usize) -> f64 {
    let n = (n as f64).ln();
    let above = CRITICAL.partition_point(|(size, _)| size.ln() < n).clamp(1, CRITICAL.len() - 1);
    let ((size_lo, value_lo), (size_hi, value_hi)) = (CRITICAL[above - 1], CRITICAL[above]);
    let fraction = (n - size_lo.ln()) / (size_hi.ln() - size_lo.ln());
    value_lo + fraction.clamp(0.0, 1.0) * (value_hi - value_lo)
}

/// Size and 97 % point, each from 100,000 uniform samples.
const CRITICAL: [(f64, f64); 9] = [
    (10.0, 0.460),
    (20.0, 0.494),
    (50.0, 0.524),
    (100.0, 0.537),
    (200.0, 0.549),
    (500.0, 0.560),
    (1000.0, 0.564),
    (2000.0, 0.567),
    (4000.0, 0.571),
];

/// For each point, the one before it on the greatest convex minorant that ends there.
fn minorant_links(x: &[f64]) -> Vec<usize> {
    let mut links = vec![0; x.len()];
    for j in 1..x.len() {
        links[j] = j - 1;
        loop {
            let near = links[j];
            let far = links[near];
            if near == 0
                || (x[j] - x[near]) * ((near - far) as f64)
                    < (x[near] - x[far]) * ((j - near) as f64)
            {
                break;
            }
            links[j] = far;
        }
    }
    links
}

/// For each point, the one after it on the least concave majorant that begins there.
fn majorant_links(x: &[f64]) -> Vec<usize> {
    let last = x.len() - 1;
    let mut links = vec![last; x.len()];
    for k in (0..last).rev() {
        links[k] = k + 1;
        loop {
            let near = links[k];
            let far = links[near];
            if near == last
                || (x[near] - x[k]) * ((far - near) as f64)
                    < (x[far] - x[near]) * ((near - k) as f64)
            {
                break;
            }
            links[k] = far;
        }
    }
    links
}

/// `start` and what follows it link by link.
fn chain(start: usize, next: impl Fn(usize) -> Option<usize>) -> Vec<usize> {
    std::iter::successors(Some(start), |&i| next(i)).collect()
}

/// Where the minorant and the majorant are farthest apart: positions in the two chains.
struct EnvelopeGap {
    distance: f64,
    gcm: usize,
    lcm: usize,
}

/// `None` when both chains are single segments.
fn widest_gap(x: &[f64], gcm: &[usize], lcm: &[usize]) -> Option<EnvelopeGap> {
    if gcm.len() == 2 && lcm.len() == 2 {
        return None;
    }
    let mut best = EnvelopeGap { distance: 0.0, gcm: gcm.len() - 1, lcm: lcm.len() - 1 };
    // The minorant is walked from its low end upwards, that is backwards in its chain.
    let (mut ix, mut iv) = (gcm.len().saturating_sub(2), 1_usize.min(lcm.len() - 1));
    loop {
        let (g, l) = (gcm[ix], lcm[iv]);
        if g > l {
            let before = gcm[ix + 1];
            let slope = (g - before) as f64 / (x[g] - x[before]);
            let distance = (l as f64 - before as f64 + 1.0) - (x[l] - x[before]) * slope;
            iv += 1;
            if distance >= best.distance {
                best = EnvelopeGap { distance, gcm: ix + 1, lcm: iv - 1 };
            }
        } else {
            let before = lcm[iv - 1];
            let slope = (l - before) as f64 / (x[l] - x[before]);
            let distance = (x[g] - x[before]) * slope - (g as f64 - before as f64 - 1.0);
            let at = ix;
            ix = ix.saturating_sub(1);
            if distance >= best.distance {
                best = EnvelopeGap { distance, gcm: at, lcm: iv };
            }
        }
        iv = iv.min(lcm.len() - 1);
        if gcm[ix] == lcm[iv] {
            return Some(best);
        }
    }
}

/// The largest distance of the steps of the distribution function from one straight segment:
/// above it for `side` 1, below it for −1; at least one step.
fn deviation(x: &[f64], begin: usize, end: usize, side: f64) -> f64 {
    if end - begin <= 1 || x[end] <= x[begin] {
        return 1.0;
    }
    let slope = (end - begin) as f64 / (x[end] - x[begin]);
    (begin..=end)
        .map(|i| {
            let steps = (i - begin) as f64;
            side * (steps - (x[i] - x[begin]) * slope) + 1.0
        })
        .fold(1.0, f64::max)
}
