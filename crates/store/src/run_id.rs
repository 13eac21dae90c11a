//! Names of runs: `ladder-20261121-7f3a`.
//!
//! Short enough to type, sortable by eye, unique in its store. Left out: clock and entropy, which
//! are arguments.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Longest title kept in an id.
const SLUG_MAX: usize = 24;

/// The first free id of the form `<title>-<yyyymmdd>-<4 hex digits>`.
///
/// The date is UTC. `random` supplies the digits and, where one is taken, those that follow it;
/// `taken` says whether an id is in use. All 65,536 taken on one day: six digits are used.
///
/// # Errors
/// Those of `taken`.
pub fn new<E>(
    title: &str,
    now_unix_ms: i64,
    random: u64,
    taken: impl Fn(&str) -> Result<bool, E>,
) -> Result<String, E> {
    let stem = format!("{}-{}", slug(title), day(now_unix_ms));
    let (bits, wide) = (random & 0xffff, (random >> 16) & 0xff);
    for step in 0..=0xffff_u64 {
        let id = format!("{stem}-{:04x}", (bits + step) & 0xffff);
        if !taken(&id)? {
            return Ok(id);
        }
    }
    Ok(format!("{stem}-{wide:02x}{bits:04x}"))
}

/// Lower-case letters and digits of a title, everything else as single dashes.
fn slug(title: &str) -> String {
    let mut slug = String::new();
    for c in title.chars().map(|c| c.to_ascii_lowercase()) {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        if slug.len() >= SLUG_MAX {
            break;
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "run".to_owned() } else { slug.to_owned() }
}

/// The UTC date of an instant as eight digits; an instant beyond the calendar gives 00000000.
fn day(unix_ms: i64) -> String {
    match Timestamp::from_millisecond(unix_ms) {
        Ok(instant) => {
            let date = instant.to_zoned(TimeZone::UTC).date();
            format!("{:04}{:02}{:02}", date.year(), date.month(), date.day())
        }
        Err(_) => "00000000".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_title_day_and_digits_that_are_free() {
        let id = |title, now_unix_ms, random, taken: &[&str]| {
            new(title, now_unix_ms, random, |id| Ok::<_, ()>(taken.contains(&id))).unwrap()
        };
        assert_eq!(id("ladder", 1_795_230_985_000, 0x7f3a, &[]), "ladder-20261121-7f3a");
        assert_eq!(id("Latency.local  (quick)", 0, 1, &[]), "latency-local-quick-19700101-0001");
        assert_eq!(id("…", i64::MAX, 0, &[]), "run-00000000-0000");
        let taken = ["a-19700101-ffff", "a-19700101-0000"];
        assert_eq!(id("a", 0, 0xffff, &taken), "a-19700101-0001");
    }
}
