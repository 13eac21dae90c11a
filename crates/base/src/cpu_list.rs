//! The kernel's notation for sets of CPUs: `0-3,8,10-11`.
//!
//! Left out: masks in hexadecimal; every file that has one has a list beside it.

use std::fmt::Write;

/// No kernel is built for more CPUs than this, so a longer range is garbage.
const CPU_MAX: u32 = 1 << 16;

/// The CPUs of a list, ascending and each once; parts that are not numbers or ranges are skipped.
///
/// Linux's Documentation/admin-guide/cputopology.rst; strides (`0-31:2/4`, kernel command line
/// only) are skipped as well.
pub fn parse(text: &str) -> Vec<u32> {
    let mut cpus: Vec<u32> = text
        .split([',', ' ', '\n'])
        .filter_map(|part| {
            let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
            let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
            (first <= last && last < CPU_MAX).then_some(first..=last)
        })
        .flatten()
        .collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// A set of ascending CPUs in the kernel's notation; `none` when empty.
pub fn format(cpus: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = cpus;
    while let Some(first) = rest.first().copied() {
        let run = rest.iter().zip(first..).take_while(|(cpu, expected)| **cpu == *expected).count();
        let gap = if text.is_empty() { "" } else { "," };
        let last = rest[run - 1];
        // Writing to a string cannot fail.
        let _ = if run == 1 {
            write!(text, "{gap}{first}")
        } else {
            write!(text, "{gap}{first}-{last}")
        };
        rest = &rest[run..];
    }
    if text.is_empty() { "none".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn garbage_in_a_list_is_skipped() {
        assert_eq!(parse("0-3,8,x,5-4,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse("0-4294967295"), Vec::<u32>::new());
        assert_eq!(parse("(null)"), Vec::<u32>::new());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(cpus in prop::collection::btree_set(0u32..300, 0..40)) {
            let cpus: Vec<u32> = cpus.into_iter().collect();
            prop_assert_eq!(parse(&format(&cpus)), cpus);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,80}") {
            let cpus = parse(&text);
            prop_assert!(cpus.is_sorted());
        }
    }
}
