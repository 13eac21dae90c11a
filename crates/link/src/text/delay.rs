//! A delay as text: `delay=25ms`, `delay=25ms,jitter=5ms`, `delay=20ms..30ms`, `delay=replay:FILE`.
//!
//! Jitter is uniform, ± so much around the delay, unless `distribution=normal` makes it a standard deviation;
//! `distribution=pareto` takes the delay as the least, and `shape=`. Left out: a replayed file's content.

use plumb_base::time::Span;
use plumb_base::units::quantity::format_span;

use super::direction::Given;
use super::{Files, TextError, value};
use crate::spec::{DelayDistribution, DelaySpec};

/// What stands before the name of a file of delays.
pub const REPLAY: &str = "replay:";
const FORMS: &str = "uniform, normal or pareto";
const SHAPE: &str = "a number above 1 with up to three decimals: 2.5";
/// The shape of a Pareto distribution when none is given.
const SHAPE_THOUSANDTHS: u64 = 2_500;

/// `old` with what is given.
pub fn apply(
    old: &DelaySpec,
    given: &Given<'_>,
    files: &dyn Files,
) -> Result<DelaySpec, TextError> {
    let may_overtake = given.read_with("overtake", value::yes)?.unwrap_or(old.may_overtake);
    let base = match given.of("delay") {
        Some(text) => read(text, files)?,
        None => old.distribution.clone(),
    };
    let jitter = given.read_with("jitter", value::span)?;
    let shape = given.read_with("shape", |key, text| value::thousandths(key, text, SHAPE))?;
    let kind = match (given.of("distribution"), &base) {
        (Some(kind), _) => Some(kind),
        (None, DelayDistribution::Normal { .. }) => Some("normal"),
        (None, DelayDistribution::Pareto { .. }) => Some("pareto"),
        (None, _) if shape.is_some() => Some("pareto"),
        (None, _) => jitter.map(|_| "uniform"),
    };
    let distribution = match kind {
        None => base,
        Some(kind) => shaped(kind, &base, jitter, shape)?,
    };
    Ok(DelaySpec { distribution, may_overtake })
}

fn read(text: &str, files: &dyn Files) -> Result<DelayDistribution, TextError> {
    if let Some(name) = text.strip_prefix(REPLAY) {
        let file = value::file("delay", name)?;
        let delays = files.delays(&file)?;
        return Ok(DelayDistribution::Replayed { file, delays });
    }
    if let Some((min, max)) = text.split_once("..") {
        let (min, max) = (value::span("delay", min)?, value::span("delay", max)?);
        if max < min {
            return Err(value::unusable("delay", text, "the shorter one first: 20ms..30ms"));
        }
        return Ok(DelayDistribution::Uniform { min, max });
    }
    value::span("delay", text).map(DelayDistribution::Constant)
}

/// A distribution of this kind around what `base` has.
fn shaped(
    kind: &str,
    base: &DelayDistribution,
    jitter: Option<Span>,
    shape: Option<u64>,
) -> Result<DelayDistribution, TextError> {
    let beside = |key, why: &str| Err(TextError::Beside { key, why: why.to_owned() });
    let (centre, spread) = match base {
        DelayDistribution::Constant(delay) => (*delay, None),
        DelayDistribution::Uniform { min, max } => {
            let half = max.saturating_sub(*min) / 2;
            (*min + half, Some(half))
        }
        DelayDistribution::Normal { mean, deviation } => (*mean, Some(*deviation)),
        DelayDistribution::Pareto { scale, .. } => (*scale, None),
        DelayDistribution::Replayed { .. } => {
            return beside(
                "jitter",
                "has no place beside delays that are replayed: they are what they are",
            );
        }
    };
    if kind != "pareto" && shape.is_some() {
        return beside("shape", "belongs to distribution=pareto");
    }
    let spread = jitter.or(spread);
    match (kind, spread) {
        ("uniform" | "normal", None) => {
            beside("distribution", "needs jitter= beside it: delay=25ms,jitter=5ms")
        }
        ("uniform", Some(jitter)) if jitter > centre => beside(
            "jitter",
            "is longer than the delay, which would be negative; make it at most the delay",
        ),
        ("uniform", Some(jitter)) => {
            Ok(DelayDistribution::Uniform { min: centre - jitter, max: centre + jitter })
        }
        ("normal", Some(deviation)) => Ok(DelayDistribution::Normal { mean: centre, deviation }),
        ("pareto", _) if jitter.is_some() => beside(
            "jitter",
            "does not go with distribution=pareto, which takes delay= as the least, and shape=",
        ),
        ("pareto", _) => {
            let old = match base {
                DelayDistribution::Pareto { shape_thousandths, .. } => *shape_thousandths,
                _ => SHAPE_THOUSANDTHS,
            };
            let shape_thousandths = shape.unwrap_or(old);
            Ok(DelayDistribution::Pareto { scale: centre, shape_thousandths })
        }
        _ => Err(value::unusable("distribution", kind, FORMS)),
    }
}

/// Appends what [`apply`] makes the same delay of.
pub fn write(delay: &DelaySpec, parts: &mut Vec<String>) {
    match &delay.distribution {
        DelayDistribution::Constant(Span::ZERO) => {}
        DelayDistribution::Constant(delay) => parts.push(format!("delay={}", format_span(*delay))),
        DelayDistribution::Uniform { min, max } => {
            parts.push(format!("delay={}..{}", format_span(*min), format_span(*max)));
        }
        DelayDistribution::Normal { mean, deviation } => {
            parts.push(format!("delay={}", format_span(*mean)));
            parts.push(format!("jitter={}", format_span(*deviation)));
            parts.push("distribution=normal".to_owned());
        }
        DelayDistribution::Pareto { scale, shape_thousandths } => {
            parts.push(format!("delay={}", format_span(*scale)));
            parts.push(format!("shape={}", value::written_thousandths(*shape_thousandths)));
            parts.push("distribution=pareto".to_owned());
        }
        DelayDistribution::Replayed { file, .. } => {
            parts.push(format!("delay=replay:{}", value::written_file(file)));
        }
    }
    if delay.may_overtake {
        parts.push("overtake=yes".to_owned());
    }
}
