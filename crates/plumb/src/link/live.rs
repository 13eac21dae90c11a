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
    /// The line for a state that was reached so many nanoseconds after the beginning.
    pub fn line(&mut self, elapsed_ns: u64, state: &State) -> String {
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
        let mut line = format!(
            "link: up {}, down {}, {waiting} waiting, {} lost, {} late",
            rate(rates[0]),
            rate(rates[1]),
            state.network.discarded().frames,
            punctuality.missed.count + punctuality.entered_late,
        );
        let stopped = punctuality.absences.total + punctuality.suspended;
        if stopped > Span::ZERO {
            let ms = stopped.as_secs_f64() * 1e3;
            line.push_str(&[", stopped for ", &format!("{ms:.0}"), " ms"].concat());
        }
        line
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
