//! Faults as text: `loss=0.1%`, `gilbert-elliott=1%/25%`, `reorder=1%/5ms`, `blackout=10s/1s`, …
//!
//! They strike in the order in which they stand.

use plumb_base::time::Span;
use plumb_base::units::quantity::format_span;

use super::direction::KeyValues;
use super::{TextError, value};
use crate::spec::FaultSpec;

/// Keys that may be given more than once, a fault each time.
pub const KEYS: [&str; 12] = [
    "loss",
    "gilbert-elliott",
    "lose-every",
    "lose",
    "bit-errors",
    "reorder",
    "duplicate",
    "corrupt",
    "truncate",
    "clog",
    "blackout",
    "partition",
];

const WINDOW: &str = "EVERY/LASTING, as 10s/500ms: every ten seconds, for half a second";

/// `old` with what is given.
pub fn apply(old: &[FaultSpec], given: &KeyValues<'_>) -> Result<Vec<FaultSpec>, TextError> {
    let cleared = match given.value_of("faults") {
        None => false,
        Some("none") => true,
        Some(other) => return Err(value::invalid_value("faults", other, "none, to remove all")),
    };
    let replaced = |fault: &FaultSpec| given.value_of(key(fault)).is_some();
    let mut faults: Vec<_> =
        old.iter().filter(|fault| !cleared && !replaced(fault)).cloned().collect();
    for (key, text) in given.iter().filter(|(key, _)| KEYS.contains(key)) {
        faults.extend(read(key, text)?);
    }
    Ok(faults)
}

/// The fault that a key's value describes; `None` for one that never strikes.
fn read(key: &'static str, text: &str) -> Result<Option<FaultSpec>, TextError> {
    if text == "none" {
        return Ok(None);
    }
    let probability = |make: fn(f64) -> FaultSpec| {
        let share = value::share(key, text)?;
        Ok((share > 0.0).then(|| make(share)))
    };
    Ok(Some(match key {
        "loss" => return probability(FaultSpec::Loss),
        "bit-errors" => return probability(FaultSpec::BitErrors),
        "duplicate" => return probability(FaultSpec::Duplicate),
        "corrupt" => return probability(FaultSpec::Corrupt),
        "truncate" => return probability(FaultSpec::Truncate),
        "gilbert-elliott" => gilbert_elliott(key, text)?,
        "lose-every" => FaultSpec::Periodic(value::whole_number(key, text)?),
        "lose" => {
            let numbers = text.split('/').map(|number| value::whole_number(key, number));
            FaultSpec::Listed(numbers.collect::<Result<Vec<_>, _>>()?.into())
        }
        "reorder" => {
            let (share, by) =
                value::pair(key, text, "SHARE/SPAN, as 1%/5ms: one in a hundred goes 5 ms later")?;
            FaultSpec::Reorder { share: value::share(key, share)?, by: value::span(key, by)? }
        }
        "clog" => {
            let (every, lasting) = window(key, text)?;
            FaultSpec::Clog { every, lasting }
        }
        "blackout" => {
            let (every, lasting) = window(key, text)?;
            FaultSpec::Blackout { every, lasting }
        }
        _ => return Ok(value::yes_or_no(key, text)?.then_some(FaultSpec::Partition)),
    }))
}

fn window(key: &'static str, text: &str) -> Result<(Span, Span), TextError> {
    let (every, lasting) = value::pair(key, text, WINDOW)?;
    Ok((value::span(key, every)?, value::span(key, lasting)?))
}

fn gilbert_elliott(key: &'static str, text: &str) -> Result<FaultSpec, TextError> {
    let shares =
        text.split('/').map(|share| value::share(key, share)).collect::<Result<Vec<_>, _>>()?;
    let (p, r, loss_good, loss_bad) = match shares[..] {
        [p, r] => (p, r, 0.0, 1.0),
        [p, r, loss_good, loss_bad] => (p, r, loss_good, loss_bad),
        _ => {
            let forms = "P/R, as 1%/25%: to the bad state and back; or P/R/LOSS-GOOD/LOSS-BAD";
            return Err(value::invalid_value(key, text, forms));
        }
    };
    Ok(FaultSpec::GilbertElliott { p, r, loss_good, loss_bad })
}

fn key(fault: &FaultSpec) -> &'static str {
    match fault {
        FaultSpec::Loss(_) => "loss",
        FaultSpec::GilbertElliott { .. } => "gilbert-elliott",
        FaultSpec::Periodic(_) => "lose-every",
        FaultSpec::Listed(_) => "lose",
        FaultSpec::BitErrors(_) => "bit-errors",
        FaultSpec::Reorder { .. } => "reorder",
        FaultSpec::Duplicate(_) => "duplicate",
        FaultSpec::Corrupt(_) => "corrupt",
        FaultSpec::Truncate(_) => "truncate",
        FaultSpec::Clog { .. } => "clog",
        FaultSpec::Blackout { .. } => "blackout",
        FaultSpec::Partition => "partition",
    }
}

/// Appends what [`apply`] makes the same faults of.
pub fn write(faults: &[FaultSpec], parts: &mut Vec<String>) {
    for fault in faults {
        let value = match fault {
            FaultSpec::Loss(share)
            | FaultSpec::BitErrors(share)
            | FaultSpec::Duplicate(share)
            | FaultSpec::Corrupt(share)
            | FaultSpec::Truncate(share) => share.to_string(),
            FaultSpec::GilbertElliott { p, r, loss_good, loss_bad } => {
                format!("{p}/{r}/{loss_good}/{loss_bad}")
            }
            FaultSpec::Periodic(every) => every.to_string(),
            FaultSpec::Listed(numbers) => {
                numbers.iter().map(u64::to_string).collect::<Vec<_>>().join("/")
            }
            FaultSpec::Reorder { share, by } => format!("{share}/{}", format_span(*by)),
            FaultSpec::Clog { every, lasting } | FaultSpec::Blackout { every, lasting } => {
                format!("{}/{}", format_span(*every), format_span(*lasting))
            }
            FaultSpec::Partition => "yes".to_owned(),
        };
        parts.push(format!("{}={value}", key(fault)));
    }
}
