//! What a message costs as a sum of terms: fixed, per byte, per byte beyond the caches, and per packet.
//!
//! Fitted by least squares of relative errors to the medians of a cell over sizes. Which terms a model has is decided by
//! its error on sizes that are left out, and a term that takes away time is not admitted.

use std::collections::BTreeMap;

use plumb_base::stats::linear::{self, LinearFit};
use plumb_base::stats::quantile;
use plumb_base::units::Unit;
use plumb_store::record::{Cell, Factors};

use crate::document::model::{FittedModel, ModelResidual, ModelTerm, PredictionScore};
use crate::summary::{self, CONFIDENCE, MeasuredCell, rounded};

/// Sizes below which there is no model.
pub const SIZES_MIN: usize = 4;

/// Bytes of a message, received and sent, that a core's own cache of a common processor holds.
const CACHE_BYTES: u64 = 256 << 10;

/// Headers of IPv4 and TCP with time stamps, and of IPv4 and UDP.
const TCP_HEADERS: u64 = 52;
const UDP_HEADERS: u64 = 28;

/// MTU of loopback and of Ethernet.
const LOOPBACK_MTU: u64 = 65_536;
const ETHERNET_MTU: u64 = 1_500;

/// A term of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostTerm {
    /// Calls, the message itself, the wake-up of the receiver.
    Fixed,
    /// Each byte.
    Byte,
    /// Each byte more than so many.
    ByteBeyond(u64),
    /// Each packet of so many bytes of data.
    Packet(u64),
}

impl CostTerm {
    const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Byte => "byte",
            Self::ByteBeyond(_) => "byte-beyond-caches",
            Self::Packet(_) => "packet",
        }
    }

    /// How often a message of a size pays it.
    fn count(self, size: u64) -> f64 {
        match self {
            Self::Fixed => 1.0,
            Self::Byte => size as f64,
            Self::ByteBeyond(cache) => size.saturating_sub(cache) as f64,
            Self::Packet(mss) => size.div_ceil(mss).max(1) as f64,
        }
    }
}

/// The change to predict for; 1 and `None` where nothing changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostChange {
    /// How much faster the processor is.
    pub cpu: f64,
    /// How much faster memory is.
    pub memory: f64,
    /// Round-trip time that is added, in ns.
    pub rtt_ns: f64,
    /// Rate of a link that a message goes through, in bytes a second.
    pub rate: Option<f64>,
    /// Bytes of a packet.
    pub mtu: Option<u64>,
    /// Messages that share what is fixed.
    pub batch: f64,
}

impl CostChange {
    /// Nothing.
    pub const NONE: Self =
        Self { cpu: 1.0, memory: 1.0, rtt_ns: 0.0, rate: None, mtu: None, batch: 1.0 };

    /// What kind of change it is, `machine,link`: predictions of one kind err alike. Empty where nothing is changed.
    pub fn kind(&self) -> String {
        let unlike = |a: f64, b: f64| (a - b).abs() > f64::EPSILON;
        let kinds = [
            ("machine", unlike(self.cpu, 1.0) || unlike(self.memory, 1.0)),
            ("link", self.rtt_ns > 0.0 || self.rate.is_some()),
            ("packets", self.mtu.is_some()),
            ("batch", unlike(self.batch, 1.0)),
        ];
        let changed = kinds.into_iter().filter_map(|(kind, is_changed)| is_changed.then_some(kind));
        changed.collect::<Vec<_>>().join(",")
    }
}

/// A model of one mechanism at one setting.
#[derive(Clone, Debug)]
pub struct CostModel {
    /// The experiment.
    pub experiment: String,
    /// The response.
    pub response: String,
    /// Every factor but the size.
    pub factors: Factors,
    /// Its terms.
    pub terms: Vec<CostTerm>,
    /// Sizes and the nanoseconds of a message of each, ascending.
    pub points: Vec<(u64, f64)>,
    fit: LinearFit,
}

/// A prediction with its interval, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedCost {
    /// The prediction.
    pub ns: f64,
    /// Its 95 % prediction interval.
    pub interval: [f64; 2],
}

impl PredictedCost {
    /// How far a measurement was off: the logarithm of its ratio to the prediction.
    pub fn log_error(&self, measured_ns: f64) -> f64 {
        (measured_ns / self.ns).ln()
    }

    /// With an interval that holds as many further measurements as it would have held of these errors; as it is if they are too few.
    #[must_use]
    pub fn calibrated(self, log_errors: &[f64]) -> Self {
        let sizes: Vec<f64> = log_errors.iter().map(|error| error.abs()).collect();
        conformal_bound(&sizes).map_or(self, |reach| {
            let reach = reach.exp();
            Self { ns: self.ns, interval: [self.ns / reach, self.ns * reach] }
        })
    }

    /// With an interval so many times as wide.
    #[must_use]
    pub fn stretched(self, factor: f64) -> Self {
        let [lo, hi] = self.interval.map(|end| self.ns + factor * (end - self.ns));
        Self { ns: self.ns, interval: [lo.max(0.0), hi] }
    }
}

/// What 95 % of further errors stay below that are like these (split conformal prediction: Lei et al., JASA 113, 2018, section 2.2); none
/// of fewer than 19, which bound no 95 %.
fn conformal_bound(sizes: &[f64]) -> Option<f64> {
    let rank = ((sizes.len() + 1) * 95).div_ceil(100);
    quantile::sorted(sizes).get(rank - 1).copied()
}

/// How many times as wide as the fits' own the intervals of these models have to be: as wide as hold 95 % of the sizes that were left out.
pub fn stretch(models: &[CostModel]) -> f64 {
    let share = |(measured, it): (f64, PredictedCost)| {
        (measured - it.ns).abs() / (it.interval[1] - it.ns).max(f64::MIN_POSITIVE)
    };
    let shares: Vec<f64> = left_out_pairs(models).into_iter().map(share).collect();
    conformal_bound(&shares).unwrap_or(1.0)
}

/// The time of a size, and its prediction by the other sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeftOutSize {
    /// Nanoseconds as measured.
    pub measured_ns: f64,
    /// The prediction.
    pub predicted: PredictedCost,
}

/// The models of a run, and the settings that have too few sizes.
pub fn models(measured: &[MeasuredCell<'_>]) -> (Vec<CostModel>, Vec<String>) {
    let mut groups: BTreeMap<(String, String, Factors), Vec<(u64, f64)>> = BTreeMap::new();
    for cell in measured {
        if let Some((size, ns)) = message_time(cell) {
            let Cell { experiment, response, factors, .. } = cell.cell;
            let key = (experiment.clone(), response.clone(), factors.clone().without("size"));
            groups.entry(key).or_default().push((size, ns));
        }
    }
    let (mut models, mut without) = (Vec::new(), Vec::new());
    for ((experiment, response, factors), mut points) in groups {
        points.sort_unstable_by_key(|(size, _)| *size);
        let label = format!("{experiment} {factors} [{response}]: {} sizes", points.len());
        match CostModel::fit(experiment, response, factors, points) {
            Some(model) => models.push(model),
            None => without.push(label),
        }
    }
    (models, without)
}

/// Size and time of a message of a cell: its latency, or the inverse of its throughput.
fn message_time(cell: &MeasuredCell<'_>) -> Option<(u64, f64)> {
    let size = u64::try_from(cell.int("size")?).ok()?;
    let median = cell.median();
    let is_rate = cell.cell.unit_type() == Unit::BytesPerSecond;
    let ns = match cell.cell.response.as_str() {
        "latency" | "round-trip" => median,
        response if response.starts_with("throughput") && is_rate => size as f64 / median * 1e9,
        _ => return None,
    };
    (ns.is_finite() && ns > 0.0 && size > 0).then_some((size, ns))
}

impl CostModel {
    /// The model of these points whose terms predict sizes that were left out best.
    pub fn fit(
        experiment: String,
        response: String,
        factors: Factors,
        points: Vec<(u64, f64)>,
    ) -> Option<Self> {
        if points.len() < SIZES_MIN {
            return None;
        }
        let largest = points.last().map_or(0, |(size, _)| *size);
        let mut layouts = vec![vec![CostTerm::Fixed, CostTerm::Byte]];
        let mss = mss_of(&factors).filter(|mss| largest > *mss);
        let cache = (largest >= 2 * CACHE_BYTES).then_some(CACHE_BYTES);
        let extra = [mss.map(CostTerm::Packet), cache.map(CostTerm::ByteBeyond)];
        for term in extra.into_iter().flatten() {
            layouts.push(vec![CostTerm::Fixed, CostTerm::Byte, term]);
        }
        if let (Some(packet), Some(beyond)) = (extra[0], extra[1]) {
            layouts.push(vec![CostTerm::Fixed, CostTerm::Byte, beyond, packet]);
        }
        let fitted = layouts.into_iter().filter_map(|terms| {
            let fit = fit_terms(&terms, &points)?;
            let is_cost = fit.coefficients.iter().all(|ns| *ns >= 0.0);
            let errors = left_out(&terms, &points).into_iter().flatten();
            let error = |it: LeftOutSize| (it.predicted.ns / it.measured_ns - 1.0).abs();
            let errors: Vec<f64> = errors.map(error).collect();
            let error = quantile::of_sorted(&quantile::sorted(&errors), 0.5);
            Some((!is_cost, if error.is_finite() { error } else { f64::MAX }, terms, fit))
        });
        let best = fitted.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))?;
        let (_, _, terms, fit) = best;
        Some(Self { experiment, response, factors, terms, points, fit })
    }

    /// What a message of a size costs with these changes.
    ///
    /// `None` where the model says nothing of them: another MTU without a term of packets.
    pub fn predict(&self, size: u64, change: &CostChange) -> Option<PredictedCost> {
        let mut row = Vec::new();
        for term in &self.terms {
            let count = match (term, change.mtu) {
                (CostTerm::Packet(_), Some(mtu)) => {
                    CostTerm::Packet(mtu.saturating_sub(headers(&self.factors)?).max(1)).count(size)
                }
                _ => term.count(size),
            };
            row.push(match term {
                CostTerm::Fixed => count / change.cpu / change.batch,
                CostTerm::Byte | CostTerm::Packet(_) => count / change.cpu,
                CostTerm::ByteBeyond(_) => count / change.memory,
            });
        }
        let has_packets = self.terms.iter().any(|term| matches!(term, CostTerm::Packet(_)));
        if change.mtu.is_some() && !has_packets {
            return None;
        }
        let ns = self.fit.at(&row);
        let interval = self.fit.prediction(&row, 1.0 / ns.powi(2), CONFIDENCE);
        let wire = change.rate.map_or(0.0, |rate| self.wire_bytes(size, change) / rate * 1e9);
        let added = change.rtt_ns / 2.0 + wire;
        Some(PredictedCost {
            ns: ns + added,
            interval: [interval.lo.max(0.0) + added, interval.hi + added],
        })
    }

    /// Bytes of a message on a link: with the headers of its packets, where its mechanism has any.
    fn wire_bytes(&self, size: u64, change: &CostChange) -> f64 {
        let bytes = size as f64;
        headers(&self.factors).map_or(bytes, |headers| {
            let payload = change.mtu.unwrap_or(ETHERNET_MTU).saturating_sub(headers).max(1);
            let packets = size.div_ceil(payload).max(1);
            bytes + packets as f64 * (headers + ETHERNET_HEADER) as f64
        })
    }

    /// Whether a size lies outside of what was measured.
    pub fn is_beyond(&self, size: u64) -> bool {
        let [least, most] = self.sizes();
        !(least..=most).contains(&size)
    }

    fn sizes(&self) -> [u64; 2] {
        [self.points[0].0, self.points[self.points.len() - 1].0]
    }

    /// Each size that lies between others with its prediction by these.
    pub fn left_out(&self) -> Vec<Option<LeftOutSize>> {
        left_out(&self.terms, &self.points)
    }

    /// As it is published; `one_cpu` is the fixed term with both processes on one CPU.
    pub fn entry(&self, one_cpu: Option<f64>) -> FittedModel {
        let left_out = self.left_out();
        let residual = |((size, ns), left): (&(u64, f64), &Option<LeftOutSize>)| ModelResidual {
            size: *size,
            measured_ns: rounded(*ns),
            fitted_ns: rounded(self.fit.at(&terms_of(&self.terms, *size))),
            left_out_ns: left.map(|left| rounded(left.predicted.ns)),
            left_out_interval: left.map(|left| left.predicted.interval.map(rounded)),
        };
        let term = |(index, term): (usize, &CostTerm)| {
            let interval = self.fit.interval(index, CONFIDENCE);
            ModelTerm {
                name: term.name().to_owned(),
                ns: rounded(self.fit.coefficients[index]),
                ci95: [rounded(interval.lo), rounded(interval.hi)],
            }
        };
        let packet = |term: &CostTerm| match term {
            CostTerm::Packet(mss) => Some(*mss),
            _ => None,
        };
        let cache = |term: &CostTerm| match term {
            CostTerm::ByteBeyond(cache) => Some(*cache),
            _ => None,
        };
        FittedModel {
            experiment: self.experiment.clone(),
            response: self.response.clone(),
            factors: summary::factor_values(&self.factors),
            terms: self.terms.iter().enumerate().map(term).collect(),
            wake_up_ns: one_cpu.map(|one| rounded(self.fixed_ns() - one)),
            cache_bytes: self.terms.iter().find_map(cache),
            mss: self.terms.iter().find_map(packet),
            sizes: self.sizes(),
            residuals: self.points.iter().zip(&left_out).map(residual).collect(),
        }
    }

    /// The fixed term.
    pub fn fixed_ns(&self) -> f64 {
        self.fit.coefficients[0]
    }
}

/// How often a message of a size pays each term.
fn terms_of(terms: &[CostTerm], size: u64) -> Vec<f64> {
    terms.iter().map(|term| term.count(size)).collect()
}

/// The fit with weights that make errors relative.
fn fit_terms(terms: &[CostTerm], points: &[(u64, f64)]) -> Option<LinearFit> {
    let rows: Vec<Vec<f64>> = points.iter().map(|(size, _)| terms_of(terms, *size)).collect();
    let times: Vec<f64> = points.iter().map(|(_, ns)| *ns).collect();
    let weights: Vec<f64> = times.iter().map(|ns| ns.powi(-2)).collect();
    linear::fit(&rows, &times, &weights)
}

/// Each size with its prediction by the others; none at the ends, where it would be an extrapolation.
fn left_out(terms: &[CostTerm], points: &[(u64, f64)]) -> Vec<Option<LeftOutSize>> {
    let one = |out: usize| {
        if out == 0 || out + 1 == points.len() {
            return None;
        }
        let mut others = points.to_vec();
        let (size, measured) = others.remove(out);
        let fit = fit_terms(terms, &others)?;
        let row = terms_of(terms, size);
        let ns = fit.at(&row);
        let interval = fit.prediction(&row, ns.powi(-2), CONFIDENCE);
        let predicted = PredictedCost { ns, interval: [interval.lo, interval.hi] };
        Some(LeftOutSize { measured_ns: measured, predicted })
    };
    (0..points.len()).map(one).collect()
}

/// Bytes of data in a packet of a channel; none where there are no packets.
fn mss_of(factors: &Factors) -> Option<u64> {
    let mtu = match (factors.int("mtu"), factors.text("link")) {
        (Some(mtu), _) => u64::try_from(mtu).ok()?,
        (None, None | Some("loopback")) => LOOPBACK_MTU,
        _ => ETHERNET_MTU,
    };
    mtu.checked_sub(headers(factors)?)
}

/// Of a frame of Ethernet.
const ETHERNET_HEADER: u64 = 14;

fn headers(factors: &Factors) -> Option<u64> {
    match factors.text("mechanism")? {
        "tcp4" => Some(TCP_HEADERS),
        "udp4" => Some(UDP_HEADERS),
        _ => None,
    }
}

/// The score of predictions: each a measurement and its prediction.
pub fn score(compared: &[(f64, PredictedCost)]) -> PredictionScore {
    let errors: Vec<f64> =
        compared.iter().map(|(measured, it)| (it.ns / measured - 1.0).abs()).collect();
    let sorted = quantile::sorted(&errors);
    let at = |p: f64| (!sorted.is_empty()).then(|| rounded(quantile::of_sorted(&sorted, p)));
    let inside = compared
        .iter()
        .filter(|(measured, it)| it.interval[0] <= *measured && *measured <= it.interval[1]);
    let coverage = inside.count() as f64 / compared.len().max(1) as f64;
    PredictionScore {
        predictions: compared.len() as u64,
        error_median: at(0.5),
        error_p90: at(0.9),
        coverage: (!compared.is_empty()).then(|| rounded(coverage)),
    }
}

/// Every size of these models that was left out, with its prediction.
pub fn left_out_pairs(models: &[CostModel]) -> Vec<(f64, PredictedCost)> {
    let pairs = models.iter().flat_map(CostModel::left_out).flatten();
    pairs.map(|it| (it.measured_ns, it.predicted)).collect()
}

/// What another run measured, with the predictions of these models of it; with a change, it was measured where that is so, over whatever
/// link.
pub fn later_pairs(
    models: &[CostModel],
    later: &[MeasuredCell<'_>],
    change: &CostChange,
) -> Vec<(f64, PredictedCost)> {
    let is_changed = *change != CostChange::NONE;
    let compared = |factors: &Factors| {
        if is_changed { factors.clone().without("link") } else { factors.clone() }
    };
    let pair = |cell: &MeasuredCell<'_>| {
        let (size, ns) = message_time(cell)?;
        let factors = compared(&cell.cell.factors).without("size");
        let model = models.iter().find(|model| {
            model.experiment == cell.cell.experiment
                && model.response == cell.cell.response
                && compared(&model.factors) == factors
        })?;
        (!model.is_beyond(size)).then_some(())?;
        Some((ns, model.predict(size, change)?))
    };
    later.iter().filter_map(pair).collect()
}

/// Mechanisms that are a layer over a carrier: the whole, its carrier, the same layer over another carrier, and that carrier.
const PARTS: [[&str; 4]; 3] = [
    ["tls-unix", "unix-stream", "tls-tcp4", "tcp4"],
    ["http1-unix", "unix-stream", "http1-tcp4", "tcp4"],
    ["http2-unix", "unix-stream", "http2-tcp4", "tcp4"],
];

/// What mechanisms took that are made of parts, and their carrier's time with what the same layer adds to the other carrier.
///
/// The interval adds the squares of those of the three.
pub fn pairs_from_parts(measured: &[MeasuredCell<'_>]) -> Vec<(f64, PredictedCost)> {
    let pair = |whole: &MeasuredCell<'_>| {
        let name = whole.cell.factors.text("mechanism")?;
        let [_, parts @ ..] = PARTS.iter().find(|[whole, ..]| *whole == name)?;
        let is_twin = |cell: &MeasuredCell<'_>, part: &str| {
            let level = |name| (cell.cell.factors.level(name), whole.cell.factors.level(name));
            cell.is("mechanism", part)
                && cell.cell.experiment == whole.cell.experiment
                && cell.cell.response == whole.cell.response
                && ["size", "placement", "wake"].map(level).iter().all(|(a, b)| a == b)
        };
        let time = |part: &str| {
            let cell = measured.iter().find(|cell| is_twin(cell, part))?;
            let (_, ns) = message_time(cell)?;
            let spread = cell.ends().map_or(0.0, |[low, high]| (high / low).ln() / 2.0 * ns);
            Some((ns, spread))
        };
        let [(carrier, a), (layered, b), (bare, c)] =
            [time(parts[0])?, time(parts[1])?, time(parts[2])?];
        let (ns, spread) = (carrier + layered - bare, (a * a + b * b + c * c).sqrt());
        Some((message_time(whole)?.1, PredictedCost { ns, interval: [ns - spread, ns + spread] }))
    };
    measured.iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::SyntheticRun;
    use crate::summary::measured_cells;
    use plumb_base::seed::Seed;
    use plumb_base::stats::simulation::normal;

    const SIZES: [u64; 10] =
        [1, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20];

    fn tcp() -> Factors {
        Factors::default().with("mechanism", "tcp4").with("link", "veth").with("mtu", 1_500_u64)
    }

    fn model(factors: Factors, cost: impl Fn(u64) -> f64) -> CostModel {
        let points = SIZES.iter().map(|size| (*size, cost(*size))).collect();
        CostModel::fit("latency.local".into(), "latency".into(), factors, points).unwrap()
    }

    fn packets(size: u64) -> f64 {
        size.div_ceil(1_448) as f64
    }

    #[test]
    fn known_terms_are_found_again() {
        let cost = |size: u64| 5_000.0 + 0.05 * size as f64 + 300.0 * packets(size);
        let found = model(tcp(), cost);
        assert_eq!(found.terms.last(), Some(&CostTerm::Packet(1_448)));
        let predicted = found.predict(10_000, &CostChange::NONE).unwrap().ns;
        assert!((predicted / cost(10_000) - 1.0).abs() < 1e-6, "{predicted}");
        let larger = CostChange { mtu: Some(9_000), ..CostChange::NONE };
        let expected = 5_000.0 + 500.0 + 300.0 * 2.0;
        assert!((found.predict(10_000, &larger).unwrap().ns / expected - 1.0).abs() < 1e-6);
    }

    #[test]
    fn what_ifs_change_the_terms_that_they_concern() {
        let beyond = |size: u64| size.saturating_sub(CACHE_BYTES) as f64;
        let cost = |size: u64| 2_000.0 + 0.1 * size as f64 + 0.4 * beyond(size);
        let found = model(Factors::default().with("mechanism", "pipe"), cost);
        let at = |change: CostChange| found.predict(1 << 20, &change).unwrap().ns;
        let twice = at(CostChange { cpu: 2.0, memory: 2.0, ..CostChange::NONE });
        assert!((twice / (cost(1 << 20) / 2.0) - 1.0).abs() < 1e-6);
        let far = at(CostChange { rtt_ns: 1e6, rate: Some(1e9), ..CostChange::NONE });
        let expected = cost(1 << 20) + 5e5 + 1_048_576.0;
        assert!((far / expected - 1.0).abs() < 1e-6);
        assert!(found.predict(64, &CostChange { mtu: Some(9_000), ..CostChange::NONE }).is_none());
        assert!(found.is_beyond(2 << 20) && !found.is_beyond(64));
    }

    #[test]
    fn prediction_intervals_cover_later_measurements() {
        let mut stream = Seed(11).stream("model");
        let mut compared = Vec::new();
        for _ in 0..200 {
            let mut noise = || (0.03 * normal(&mut stream)).exp();
            let cost = |size: u64| 3_000.0 + 0.1 * size as f64;
            let points = SIZES.iter().map(|size| (*size, cost(*size) * noise())).collect();
            let factors = Factors::default().with("mechanism", "pipe");
            let found = CostModel::fit(String::new(), String::new(), factors, points).unwrap();
            for size in [512, 32 << 10] {
                let later = cost(size) * noise();
                compared.push((later, found.predict(size, &CostChange::NONE).unwrap()));
            }
        }
        let score = score(&compared);
        assert_eq!(score.predictions, 400);
        assert!((0.90..=0.98).contains(&score.coverage.unwrap()), "{score:?}");
        assert!(score.error_median.unwrap() < 0.05, "{score:?}");
    }

    #[test]
    fn a_layer_over_another_carrier_costs_what_it_adds_to_the_first() {
        let mut run = SyntheticRun::new(5);
        let at = |name| Factors::default().with("mechanism", name).with("size", 64_u64);
        for (name, ns) in
            [("tcp4", 10e3), ("tls-tcp4", 14e3), ("unix-stream", 6e3), ("tls-unix", 10.2e3)]
        {
            run.measure("latency.local", "latency", at(name), ns);
        }
        let [(measured, predicted)] =
            pairs_from_parts(&measured_cells(&run.data)).try_into().unwrap();
        assert!((measured / 10.2e3 - 1.0).abs() < 0.02 && (predicted.ns / 10e3 - 1.0).abs() < 0.02);
        let [low, high] = predicted.interval;
        assert!(low < predicted.ns && predicted.ns < high && high - low < 1e3, "{predicted:?}");
    }

    #[test]
    fn intervals_are_as_wide_as_sizes_that_were_left_out_need() {
        // Costs that no model has: steps of a fifth that come with the size.
        let model = |first: usize| {
            let step = |size: u64| {
                if (size.ilog2() as usize + first).is_multiple_of(3) { 1.2 } else { 1.0 }
            };
            model(Factors::default().with("mechanism", "pipe"), |size| {
                (3_000.0 + 0.1 * size as f64) * step(size)
            })
        };
        let models: Vec<CostModel> = (0..6).map(model).collect();
        let factor = stretch(&models);
        let inside = |(measured, it): &(f64, PredictedCost)| {
            let [lo, hi] = it.stretched(factor).interval;
            (lo..=hi).contains(measured)
        };
        let pairs = left_out_pairs(&models);
        let share = pairs.iter().filter(|pair| inside(pair)).count() as f64 / pairs.len() as f64;
        assert!((0.94..=1.0).contains(&share), "{share} with {factor}");
        assert!((stretch(&models[..1]) - 1.0).abs() < 1e-12, "eight sizes bound nothing");
    }

    #[test]
    fn errors_that_were_kept_give_intervals_of_their_coverage() {
        let mut stream = Seed(12).stream("calibration");
        let mut error = || 0.05 + 0.1 * normal(&mut stream);
        let compared = (0..1_000).map(|_| {
            let kept: Vec<f64> = (0..40).map(|_| error()).collect();
            (
                100.0 * error().exp(),
                PredictedCost { ns: 100.0, interval: [99.0; 2] }.calibrated(&kept),
            )
        });
        let coverage = score(&compared.collect::<Vec<_>>()).coverage.unwrap();
        assert!((0.93..=0.97).contains(&coverage), "{coverage}");
        let few = PredictedCost { ns: 100.0, interval: [99.0, 101.0] };
        assert_eq!(few.calibrated(&[0.5; 18]), few);
    }

    #[test]
    fn three_sizes_give_no_model() {
        let points = vec![(1, 1.0), (2, 2.0), (3, 3.0)];
        assert!(CostModel::fit(String::new(), String::new(), tcp(), points).is_none());
    }
}
