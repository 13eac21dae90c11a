//! A rate as text: `rate=10mbit`, with `burst=64KiB` or `on=1s,off=2s`; `rate=trace:FILE`.
//!
//! Left out: the trace's content.

use plumb_base::units::quantity::format_span;

use super::direction::Given;
use super::{Files, TextError, value};
use crate::spec::{BucketSpec, RateSpec};

/// What stands before the name of a trace.
pub const TRACE: &str = "trace:";

/// `old` with what is given.
pub fn apply(old: &RateSpec, given: &Given<'_>, files: &dyn Files) -> Result<RateSpec, TextError> {
    let burst = given.read_with("burst", value::bytes)?;
    let on = given.read_with("on", value::span)?;
    let off = given.read_with("off", value::span)?;
    let base = match given.of("rate") {
        Some(text) => read(text, files)?,
        None => old.clone(),
    };
    if burst.is_none() && on.is_none() && off.is_none() {
        return Ok(base);
    }
    let rate = match &base {
        RateSpec::Constant(rate) | RateSpec::OnOff { rate, .. } => *rate,
        RateSpec::Bucket(bucket) => bucket.rate,
        RateSpec::Unlimited | RateSpec::Trace(_) => {
            let key = if burst.is_some() { "burst" } else { "on" };
            return Err(TextError::Beside {
                key,
                why: "needs a rate beside it: rate=10mbit".to_owned(),
            });
        }
    };
    let (old_on, old_off) = match base {
        RateSpec::OnOff { on, off, .. } => (Some(on), Some(off)),
        _ => (None, None),
    };
    match (burst, on.or(old_on), off.or(old_off)) {
        (Some(burst), ..) if on.is_none() && off.is_none() => {
            Ok(RateSpec::Bucket(BucketSpec { rate, burst }))
        }
        (None, Some(on), Some(off)) => Ok(RateSpec::OnOff { rate, on, off }),
        (Some(_), ..) => Err(TextError::Beside {
            key: "burst",
            why: "does not go with on= and off=; give one of them".to_owned(),
        }),
        (None, ..) => {
            let key = if on.is_some() { "on" } else { "off" };
            Err(TextError::Beside { key, why: "is one half: give on= and off=".to_owned() })
        }
    }
}

fn read(text: &str, files: &dyn Files) -> Result<RateSpec, TextError> {
    if matches!(text, "unlimited" | "none") {
        return Ok(RateSpec::Unlimited);
    }
    let Some(name) = text.strip_prefix(TRACE) else {
        return value::rate("rate", text).map(RateSpec::Constant);
    };
    Ok(RateSpec::Trace(files.trace(&value::file("rate", name)?)?))
}

/// Appends what [`apply`] makes the same rate of.
pub fn write(rate: &RateSpec, parts: &mut Vec<String>) {
    match rate {
        RateSpec::Unlimited => {}
        RateSpec::Constant(rate) => parts.push(format!("rate={rate}")),
        RateSpec::Bucket(BucketSpec { rate, burst }) => {
            parts.push(format!("rate={rate}"));
            parts.push(format!("burst={}", value::written_bytes(*burst)));
        }
        RateSpec::OnOff { rate, on, off } => {
            parts.push(format!("rate={rate}"));
            parts.push(format!("on={}", format_span(*on)));
            parts.push(format!("off={}", format_span(*off)));
        }
        RateSpec::Trace(trace) => {
            parts.push(format!("rate=trace:{}", value::written_file(&trace.file)));
        }
    }
}
