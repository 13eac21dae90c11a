//! Path MTUs: how large a packet may be towards an address (RFC 1191, RFC 8201).
//!
//! Learnt from ICMP errors that were validated, forgotten after ten minutes when next looked at, bounded by
//! forgetting the oldest. Left out: validating, and probing (RFC 8899).

use std::collections::BTreeMap;
use std::net::IpAddr;

use plumb_base::time::{Instant, Span};

/// How long a learnt value holds (RFC 1191 §6.3, RFC 8201 §5.3: ten minutes).
pub const LIFETIME: Span = Span::from_secs(600);
/// Least value believed for IPv4; a smaller one means fragments of this size (Linux's `min_pmtu`).
pub const FLOOR_V4: u32 = 552;
/// Least value that IPv6 has (RFC 8201 §4: a smaller one must not be believed).
pub const FLOOR_V6: u32 = 1_280;

/// What is known of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// The path is smaller than the floor: packets must be allowed to be cut on their way.
    pub cut: bool,
    /// When it is forgotten.
    pub until: Instant,
}

/// The table.
#[derive(Debug)]
pub struct PathMtus {
    limit: usize,
    paths: BTreeMap<IpAddr, (PathMtu, u64)>,
    order: BTreeMap<u64, IpAddr>,
    stamps: u64,
}

impl PathMtus {
    /// A table of at most `limit` paths.
    pub fn new(limit: usize) -> Self {
        Self { limit, paths: BTreeMap::new(), order: BTreeMap::new(), stamps: 0 }
    }

    /// Changes whenever something was learnt.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.stamps
    }

    /// How many paths are known.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// What is known of the path to an address now.
    pub fn lookup(&mut self, now: Instant, remote: IpAddr) -> Option<PathMtu> {
        let &(path, stamp) = self.paths.get(&remote)?;
        if now >= path.until {
            self.paths.remove(&remote);
            self.order.remove(&stamp);
            return None;
        }
        Some(path)
    }

    /// A router said that packets to `remote` may have `mtu` bytes; they could have `current`.
    ///
    /// Returns what holds now; `None`, and nothing changed, when it would not be a reduction or, for
    /// IPv6, is below the floor.
    pub fn on_too_big(
        &mut self,
        now: Instant,
        remote: IpAddr,
        mtu: u32,
        current: u32,
    ) -> Option<PathMtu> {
        if mtu >= current || (remote.is_ipv6() && mtu < FLOOR_V6) {
            return None;
        }
        let floor = if remote.is_ipv4() { FLOOR_V4.min(current) } else { FLOOR_V6 };
        let path = PathMtu { mtu: mtu.max(floor), cut: mtu < floor, until: now + LIFETIME };
        self.stamps += 1;
        if let Some((_, old)) = self.paths.insert(remote, (path, self.stamps)) {
            self.order.remove(&old);
        } else if self.paths.len() > self.limit
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.paths.remove(&oldest);
        }
        self.order.insert(self.stamps, remote);
        Some(path)
    }
}

/// The size to try next where a router did not name one (RFC 1191 §7.1, table of plateaus).
pub fn plateau_below(len: u32) -> u32 {
    const PLATEAUS: [u32; 9] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296];
    PLATEAUS.into_iter().find(|&plateau| plateau < len).unwrap_or(68)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_smaller_path_is_learnt_and_forgotten_after_ten_minutes() {
        let mut paths = PathMtus::new(4);
        let now = Instant::ORIGIN;
        for remote in [ip("192.0.2.1"), ip("2001:db8::1")] {
            assert!(paths.on_too_big(now, remote, 1_400, 1_500).is_some());
            assert!(paths.on_too_big(now, remote, 1_450, 1_400).is_none(), "no increase");
            let late = now + LIFETIME;
            assert_eq!(paths.lookup(now, remote).map(|path| path.mtu), Some(1_400));
            assert_eq!(paths.lookup(late, remote), None);
        }
        assert!(paths.is_empty() && paths.order.is_empty());
    }

    #[test]
    fn absurd_sizes_are_raised_to_the_floor_or_not_believed() {
        let mut paths = PathMtus::new(4);
        let v4 = paths.on_too_big(Instant::ORIGIN, ip("192.0.2.1"), 68, 1_500).unwrap();
        assert_eq!((v4.mtu, v4.cut), (FLOOR_V4, true));
        assert_eq!(paths.on_too_big(Instant::ORIGIN, ip("2001:db8::1"), 1_279, 1_500), None);
    }

    #[test]
    fn a_flood_of_paths_forgets_the_oldest_and_stays_bounded() {
        let mut paths = PathMtus::new(4);
        for n in 0..100 {
            paths.on_too_big(Instant::ORIGIN, IpAddr::from([192, 0, 2, n]), 1_000, 1_500);
            assert!(paths.len() <= 4 && paths.order.len() == paths.len());
        }
        assert!(paths.lookup(Instant::ORIGIN, ip("192.0.2.99")).is_some());
        assert!(paths.lookup(Instant::ORIGIN, ip("192.0.2.95")).is_none());
    }

    #[test]
    fn an_unnamed_size_steps_down_the_plateaus() {
        assert_eq!(plateau_below(1_500), 1_492);
        assert_eq!(plateau_below(1_492), 1_006);
        assert_eq!(plateau_below(100), 68);
    }
}
