//! How late a link's driver was while a part of a check was measured, as it counted itself.
//!
//! The driver counts for all ways together, and not which datagram it was: so the most is assumed that this may explain of
//! what is off. Left out: what no driver knows, such as how long a frame waited that found it asleep.

use std::collections::BTreeMap;

use plumb_base::time::Span;
use plumb_base::units::Unit;

use crate::emulate::Punctuality;

/// The lateness of one part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Nanoseconds by which frames were handed over late, and how many, the latest first.
    pub handed_over: Vec<(u64, u64)>,
    /// Frames that entered later than they came.
    pub entered: u64,
    /// By how many nanoseconds at the most, of all so far.
    pub entered_worst_ns: u64,
    /// For how many nanoseconds the driver was away, or ready to run without a CPU.
    pub away_ns: u64,
}

impl Lateness {
    /// What a driver counted between two of its accounts.
    pub fn between(before: &Punctuality, after: &Punctuality) -> Self {
        let earlier: BTreeMap<u64, u64> = before.lateness.iter_recorded().collect();
        let grown = after.lateness.iter_recorded().map(|(late_ns, count)| {
            let earlier = earlier.get(&late_ns).copied().unwrap_or(0);
            (late_ns, count.saturating_sub(earlier))
        });
        let mut handed_over: Vec<_> = grown.filter(|&(_, count)| count > 0).collect();
        handed_over.reverse();
        let entered = after.entered_late.saturating_sub(before.entered_late);
        let waited = |account: &Punctuality| account.waited_for_cpu.unwrap_or_default();
        let away = after.absences.total.saturating_sub(before.absences.total)
            + waited(after).saturating_sub(waited(before));
        let entered_worst = if entered > 0 { after.entered_late_worst } else { Span::ZERO };
        Self {
            handed_over,
            entered,
            entered_worst_ns: entered_worst.as_ns(),
            away_ns: away.as_ns(),
        }
    }

    /// The most by which each frame may have been late in all, the latest first.
    pub fn latest(&self) -> impl Iterator<Item = u64> + '_ {
        (0_u64..).zip(self.each_handed_over()).map(|(rank, late_ns)| {
            late_ns + if rank < self.entered { self.entered_worst_ns } else { 0 }
        })
    }

    /// By how much each frame was handed over late.
    fn each_handed_over(&self) -> impl Iterator<Item = u64> + '_ {
        let repeated = |&(late_ns, count): &(u64, u64)| (0..count).map(move |_| late_ns);
        self.handed_over.iter().flat_map(repeated)
    }

    /// Frames that were handed over later than that, or entered late.
    pub fn frames_beyond(&self, ns: u64) -> u64 {
        let beyond = self.handed_over.iter().filter(|&&(late_ns, _)| late_ns > ns);
        beyond.map(|&(_, count)| count).sum::<u64>() + self.entered
    }

    /// What is left of delays that are too long when all of it is taken away, each from the one that it explains
    /// best; `sorted` and the result ascend.
    pub fn relieve(&self, sorted: &[f64]) -> Vec<f64> {
        let late = self.latest().map(|ns| ns as f64).chain(std::iter::repeat(0.0));
        let mut relieved: Vec<f64> =
            sorted.iter().rev().zip(late).map(|(delay, late)| delay - late).collect();
        relieved.sort_by(f64::total_cmp);
        relieved
    }

    /// The longest time that `stretches` of frames one after the other may have lasted longer or shorter for it,
    /// because their ends were told late.
    pub fn vagueness_ns(&self, stretches: u64) -> u64 {
        let stretches = usize::try_from(stretches).unwrap_or(usize::MAX);
        self.each_handed_over().take(stretches).fold(0, u64::saturating_add)
    }

    /// For how long at the most frames that came were not in the link yet.
    pub fn idle_ns(&self) -> u64 {
        self.away_ns.min(self.entered.saturating_mul(self.entered_worst_ns))
    }

    /// The figure of it, with how many frames were handed over later than `ns`.
    pub fn figure(&self, ns: u64) -> String {
        let time = |ns: u64| Unit::Nanoseconds.format(ns as f64, 3);
        let handed_over = self.frames_beyond(ns) - self.entered;
        let worst = self.handed_over.first().map_or(0, |&(late_ns, _)| late_ns);
        let mut parts = Vec::new();
        if handed_over > 0 || (worst > 0 && self.entered == 0) {
            let (limit, worst) = (time(ns), time(worst));
            parts.push(format!(
                "handed {handed_over} frames over more than {limit} late, the latest by {worst}"
            ));
        }
        if self.entered > 0 {
            let worst = time(self.entered_worst_ns);
            parts.push(format!("took {} in late, by {worst} at most", self.entered));
        }
        parts.join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::time::Instant;

    use super::*;
    use crate::emulate::punctuality::Account;

    fn at(us: u64) -> Instant {
        Instant::ORIGIN + Span::from_us(us)
    }

    #[test]
    fn the_lateness_of_a_part_is_what_was_counted_since_the_part_before() {
        let mut account = Account::new(at(0), Span::from_us(100));
        for late_us in [500, 3, 900] {
            account.on_sent(at(10_000 + late_us), at(10_000));
        }
        let before = account.punctuality();
        for late_us in [2, 700, 3, 700] {
            account.on_sent(at(20_000 + late_us), at(20_000));
        }
        account.on_look(at(20_000));
        account.on_look(at(50_000));
        account.on_entered(2);
        let lateness = Lateness::between(&before, &account.punctuality());
        let shown: Vec<u64> = lateness.handed_over.iter().map(|(ns, _)| ns / 1_000).collect();
        assert_eq!(shown, [700, 3, 2], "{lateness:?}");
        assert_eq!(lateness.frames_beyond(50_000), 4, "two handed over, two taken in");
        assert_eq!((lateness.entered, lateness.entered_worst_ns), (2, 30_000_000));
        let latest: Vec<u64> = lateness.latest().map(|ns| ns / 1_000).collect();
        assert_eq!(latest, [30_700, 30_700, 3, 2]);
        let figure = lateness.figure(50_000);
        assert!(figure.contains("handed 2 frames over more than 50.0 µs late"), "{figure}");
        assert!(figure.contains("took 2 in late, by 30.0 ms at most"), "{figure}");
        assert_eq!(Lateness::between(&before, &before), Lateness::default());
    }

    #[test]
    fn the_most_that_lateness_explains_is_taken_from_the_longest_delays() {
        let handed_over = vec![(300, 2), (50, 1)];
        let lateness = Lateness { handed_over, ..Lateness::default() };
        assert_eq!(lateness.relieve(&[10.0, 20.0, 400.0, 500.0]), [-30.0, 10.0, 100.0, 200.0]);
        assert_eq!(lateness.vagueness_ns(2), 600);
        assert_eq!(lateness.idle_ns(), 0, "none came before it was in the link");
    }
}
