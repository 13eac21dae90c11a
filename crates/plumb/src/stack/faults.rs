//! Faults of a link as people write them: `loss=1%,duplicate=0.5%`.
//!
//! Left out: what they do (`plumb_host::device::fault`).

use plumb_host::device::fault::{FaultCounters, Faults};

use crate::problem::nearest;

/// Names of faults.
const NAMES: [&str; 6] = ["loss", "burst", "truncate", "corrupt", "duplicate", "reorder"];

/// Packets in a burst of losses, on average.
const BURST_PACKETS: f64 = 10.0;

/// Packets that pass one that is held back.
const REORDER_DISTANCE: u32 = 3;

/// Reads `loss=1%,corrupt=0.001`: shares of packets, both ways.
///
/// # Errors
/// What is wrong, and what may be written.
pub fn parse(text: &str) -> Result<Faults, String> {
    let mut faults =
        Faults { burst_end: 1.0 / BURST_PACKETS, distance: REORDER_DISTANCE, ..Faults::default() };
    for part in text.split(',') {
        let (name, share) =
            part.split_once('=').ok_or_else(|| format!("'{part}' has no share: write loss=1%"))?;
        let share = parse_share(share).ok_or_else(|| {
            format!("'{share}' is no share of packets: write 1% or 0.01, at most 100%")
        })?;
        let place = match name.trim() {
            "loss" => &mut faults.lose,
            "burst" => &mut faults.burst_begin,
            "truncate" => &mut faults.truncate,
            "corrupt" => &mut faults.corrupt,
            "duplicate" => &mut faults.duplicate,
            "reorder" => &mut faults.reorder,
            other => {
                let hint = nearest(other, NAMES).map(|name| format!("did you mean '{name}'? "));
                let hint = hint.unwrap_or_default();
                return Err(format!(
                    "there is no fault '{other}'; {hint}choose from: {}",
                    NAMES.join(", ")
                ));
            }
        };
        *place = share;
    }
    Ok(faults)
}

fn parse_share(text: &str) -> Option<f64> {
    let text = text.trim();
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

/// What happened, under one name a direction and kind.
pub fn counters(rx: FaultCounters, tx: FaultCounters) -> impl Iterator<Item = (String, u64)> {
    [("rx", rx), ("tx", tx)].into_iter().flat_map(|(way, counters)| {
        [
            ("lost", counters.lost),
            ("lost_in_bursts", counters.lost_in_bursts),
            ("truncated", counters.truncated),
            ("corrupted", counters.corrupted),
            ("duplicated", counters.duplicated),
            ("reordered", counters.reordered),
        ]
        .map(|(name, count)| (format!("{way}_{name}"), count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_as_percent_or_as_numbers_and_nonsense_is_refused() {
        let faults = parse("loss=1%,corrupt=0.25,reorder=100%").unwrap();
        let expected =
            Faults { lose: 0.01, corrupt: 0.25, reorder: 1.0, ..parse("loss=0").unwrap() };
        assert_eq!(faults, expected);
        for (text, told) in [
            ("loss", "no share"),
            ("loss=2", "no share of packets"),
            ("loss=-1%", "no share of packets"),
            ("los=1%", "did you mean 'loss'?"),
            ("zebra=1%", "choose from: loss"),
            ("", "no share"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(told), "{text}: {said}");
        }
    }
}
