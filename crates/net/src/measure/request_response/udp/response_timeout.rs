//! How long a response in a datagram is waited for, and which of those that were given up may still come.
//!
//! Left out: sending and receiving.

use std::collections::VecDeque;
use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use plumb_clock::monotonic_ns;

/// How long a response is waited for as long as nothing is known of the path.
pub(super) const UNKNOWN_NS: u64 = 1_000_000_000;
/// At least, once something is known.
const MIN_NS: u64 = 50_000_000;
/// And at most.
pub(super) const MAX_NS: u64 = 5_000_000_000;
/// The shortest wait that the kernel is asked for: none at all would mean for ever.
const WAIT_MIN_NS: u64 = 1_000;
/// Requests that were given up and may still be answered.
const OVERDUE_MAX: usize = 64;

/// How many times as long as the longest so far a response may take.
const TIMES: u64 = 4;

/// How long what is under way may still take, where the longest so far took this long.
pub(super) fn timeout_for(longest_ns: u64, min_ns: u64) -> u64 {
    longest_ns.saturating_mul(TIMES).clamp(min_ns, MAX_NS)
}

/// The patience of who asks one after another, and what its socket was told of that.
#[derive(Debug)]
pub(super) struct ResponseTimeout<'a> {
    socket: &'a UdpSocket,
    ns: u64,
    configured_ns: u64,
    longest_ns: u64,
}

impl<'a> ResponseTimeout<'a> {
    /// Of who knows nothing of the path.
    pub(super) fn begin(socket: &'a UdpSocket) -> io::Result<Self> {
        let mut patience = Self { socket, ns: UNKNOWN_NS, configured_ns: 0, longest_ns: 0 };
        patience.restore()?;
        Ok(patience)
    }

    /// A response took so long.
    #[inline]
    pub(super) fn on_response(&mut self, took_ns: u64) {
        self.longest_ns = self.longest_ns.max(took_ns);
    }

    /// A response that was given up took so long.
    pub(super) fn on_late_response(&mut self, took_ns: u64) {
        self.on_response(took_ns);
        self.ns = timeout_for(self.longest_ns, MIN_NS);
    }

    /// A request was given up.
    pub(super) fn on_lost(&mut self) {
        if self.longest_ns > 0 {
            self.ns = timeout_for(self.longest_ns, MIN_NS);
        }
    }

    /// Has the socket wait for what is left for a request that began at `began_ns`; whether anything is.
    pub(super) fn wait_remaining(&mut self, began_ns: u64) -> io::Result<bool> {
        let left_ns = began_ns.saturating_add(self.ns).saturating_sub(monotonic_ns());
        if left_ns > 0 {
            self.configure(left_ns)?;
        }
        Ok(left_ns > 0)
    }

    /// Has the socket wait for a whole patience again.
    #[inline]
    pub(super) fn restore(&mut self) -> io::Result<()> {
        if self.configured_ns == self.ns { Ok(()) } else { self.configure(self.ns) }
    }

    fn configure(&mut self, ns: u64) -> io::Result<()> {
        self.socket.set_read_timeout(Some(Duration::from_nanos(ns.max(WAIT_MIN_NS))))?;
        self.configured_ns = ns;
        Ok(())
    }
}

/// Requests that were given up, the last so many, each until its response comes.
#[derive(Debug, Default)]
pub(super) struct OverdueRequests {
    requests: VecDeque<(u32, u64)>,
}

impl OverdueRequests {
    /// Request `number`, which began at `began_ns`, is waited for no longer.
    pub(super) fn note(&mut self, number: u32, began_ns: u64) {
        if self.requests.len() == OVERDUE_MAX {
            self.requests.pop_front();
        }
        self.requests.push_back((number, began_ns));
    }

    /// When the request of this number began, where it was given up; once.
    pub(super) fn take(&mut self, number: u32) -> Option<u64> {
        let at = self.requests.iter().position(|request| request.0 == number)?;
        self.requests.remove(at).map(|request| request.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_those_that_were_given_up_the_last_are_known_each_once() {
        let mut overdue = OverdueRequests::default();
        (0..100).for_each(|number| overdue.note(number, u64::from(number) + 7));
        assert_eq!((overdue.take(35), overdue.take(36)), (None, Some(43)));
        assert_eq!((overdue.take(36), overdue.take(99)), (None, Some(106)));
        assert_eq!(overdue.requests.len(), OVERDUE_MAX - 2);
    }

    #[test]
    fn patience_follows_what_came_also_late_between_its_bounds() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut patience = ResponseTimeout::begin(&socket).unwrap();
        patience.on_lost();
        assert_eq!(patience.ns, UNKNOWN_NS, "nothing is known yet");
        patience.on_response(1_000);
        patience.on_lost();
        assert_eq!(patience.ns, MIN_NS);
        patience.on_late_response(1_200_000_000);
        assert_eq!(patience.ns, 4_800_000_000);
        patience.on_late_response(60_000_000_000);
        assert_eq!(patience.ns, MAX_NS);
        patience.restore().unwrap();
        assert_eq!(socket.read_timeout().unwrap(), Some(Duration::from_nanos(MAX_NS)));
        assert!(!patience.wait_remaining(0).unwrap(), "its time was over long ago");
        assert!(patience.wait_remaining(monotonic_ns()).unwrap());
    }
}
