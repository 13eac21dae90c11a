//! The line that says, while a command runs behind a link, what the link is doing.
//!
//! Left out: where it is written, and the page at the end.

use plumb_base::time::Span;

use super::course::State;

/// Makes lines out of one state after the other.
#[derive(Clone, Debug, Default)]
pub struct Live {
    before: Option<(u64, [u64; 2])>,
}

impl Live {
    /// The line for a state that was reached so many nanoseconds after the beginning, in less than
    /// `width` columns: what matters least is left out first.
    pub fn line(&mut self, elapsed_ns: u64, state: &State, width: u16) -> String {
        let directions = &state.network.directions;
        let bytes = ["up", "down"].map(|way| {
            // What left the last hop of a way is the least of what left each.
            let of_way = directions.iter().filter(|direction| direction.name.ends_with(way));
            of_way.map(|direction| direction.left.bytes).min().unwrap_or(0)
        });
        let rates = match self.before.replace((elapsed_ns, bytes)) {
            Some((then_ns, before)) if elapsed_ns > then_ns => {
                let seconds = (elapsed_ns - then_ns) as f64 / 1e9;
                [0, 1].map(|way| bytes[way].saturating_sub(before[way]) as f64 * 8.0 / seconds)
            }
            _ => [0.0; 2],
        };
        let waiting: u64 = directions.iter().map(|direction| direction.waiting.frames).sum();
        let punctuality = &state.driver.punctuality;
        let late = punctuality.missed.count + punctuality.entered_late;
        let mut parts = vec![
            (LEAST, format!("up {}", rate(rates[0]))),
            (LEAST, format!("down {}", rate(rates[1]))),
            (3, format!("{waiting} waiting")),
            (2, format!("{} lost", state.network.discarded().frames)),
            (1, format!("{late} late")),
        ];
        let stopped = punctuality.absences.total + punctuality.suspended;
        if stopped > Span::ZERO {
            parts.push((1, format!("stopped for {:.0} ms", stopped.as_secs_f64() * 1e3)));
        }
        fit(parts, width.saturating_sub(1).into())
    }
}

/// The rank of what is never left out.
const LEAST: u8 = 0;
/// What the line begins with, where there is room.
const TITLE: &str = "link: ";

/// As many parts as there are columns for; those of the greatest rank go first, and the title before them.
fn fit(mut parts: Vec<(u8, String)>, room: usize) -> String {
    let mut title = TITLE;
    loop {
        let words: Vec<&str> = parts.iter().map(|(_, words)| words.as_str()).collect();
        let line = [title, &words.join(", ")].concat();
        if line.chars().count() <= room {
            return line;
        }
        let rank = parts.iter().map(|(rank, _)| *rank).max().unwrap_or(LEAST);
        match parts.iter().rposition(|(own, _)| *own == rank && rank > LEAST) {
            _ if !title.is_empty() => title = "",
            Some(index) => drop(parts.remove(index)),
            None => return line,
        }
    }
}

/// Bits in a second, in the unit that suits.
fn rate(bits: f64) -> String {
    let units = [("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)];
    match units.into_iter().find(|(_, unit)| bits >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bits / unit),
        None => format!("{bits:.0} b/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_few_columns_the_line_says_what_matters_most() {
        let parts = || {
            let words = ["up 10.0 Mb/s", "down 1.3 Mb/s", "12 waiting", "3 lost", "40 late"];
            [0, 0, 3, 2, 1].into_iter().zip(words.map(str::to_owned)).collect::<Vec<_>>()
        };
        let whole = "link: up 10.0 Mb/s, down 1.3 Mb/s, 12 waiting, 3 lost, 40 late";
        assert_eq!(fit(parts(), 79), whole);
        assert_eq!(fit(parts(), whole.len() - 1), whole[TITLE.len()..]);
        assert_eq!(fit(parts(), 50), "up 10.0 Mb/s, down 1.3 Mb/s, 3 lost, 40 late");
        assert_eq!(fit(parts(), 39), "up 10.0 Mb/s, down 1.3 Mb/s, 40 late");
        assert_eq!(fit(parts(), 10), "up 10.0 Mb/s, down 1.3 Mb/s");
    }
}
