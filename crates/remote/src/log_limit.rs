//! How many lines a minute are written about what others can make happen.

use plumb_base::time::{Instant, Span};

/// Counts lines; pure.
#[derive(Clone, Copy, Debug)]
pub struct LogLimit {
    per_minute: u32,
    /// When the present minute ends.
    until: Instant,
    lines: u32,
    left_out: u32,
}

impl LogLimit {
    /// So many lines a minute.
    pub const fn new(per_minute: u32) -> Self {
        Self { per_minute, until: Instant::ORIGIN, lines: 0, left_out: 0 }
    }

    /// Whether a line may be written, and how many were left out before it.
    pub fn admit(&mut self, now: Instant) -> Option<u32> {
        if now >= self.until {
            (self.until, self.lines) = (now + Span::from_secs(60), 0);
        }
        if self.lines >= self.per_minute {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_counted_and_told_later() {
        let mut log = LogLimit::new(20);
        let at = |secs| Instant::after_origin(Span::from_secs(secs));
        let admitted = (0..1_000).filter(|_| log.admit(at(100)) == Some(0)).count();
        assert_eq!(admitted, 20);
        assert_eq!(log.admit(at(160)), Some(980));
        assert_eq!(log.admit(at(161)), Some(0));
    }
}
