//! Which flow makes room for a new one where the gateway is full.
//!
//! A connection that carries bytes, or that may at any time, is never one. Left out: ending it, which
//! is done by whose it is (`super::stream`, `super::datagram`).

use std::collections::BTreeMap;

use plumb_base::time::Span;
use plumb_wire::flow::FiveTuple;

/// Shorter silence is no sign that a flow of UDP is not in use.
pub(super) const IDLE_MIN: Span = Span::from_ms(1_000);
/// Silence after which a connection that has ended in one direction counts as over: for as long, Linux
/// keeps one half of a connection whose program has gone (tcp_fin_timeout).
pub(super) const HALF_ENDED_MAX: Span = Span::from_ms(60_000);
/// How long a connection may take to stand on both sides before it may be given up for another: a
/// first segment has been sent five times by then.
pub(super) const ATTEMPT_MIN: Span = Span::from_ms(20_000);

/// Why a flow could be spared, the most dispensable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// All has been said: a question about a name that has its answer, a connection that has ended
    /// in both directions, or in one a minute ago.
    Over,
    /// A flow of UDP that said nothing for a second at least.
    Idle,
    /// A connection that neither stands nor was refused for twenty seconds.
    Unanswered,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Over, Self::Idle, Self::Unanswered];

    /// As documents name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Over => "over",
            Self::Idle => "idle",
            Self::Unanswered => "unanswered",
        }
    }
}

/// How often each reason was one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted([u64; Reason::ALL.len()]);

impl Evicted {
    pub(super) fn count(&mut self, reason: Reason) {
        self.0[reason as usize] += 1;
    }

    /// By the reasons' names; what is zero is left out.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let all = Reason::ALL.iter().zip(self.0).filter(|(_, count)| *count > 0);
        all.map(|(reason, count)| (reason.name().to_owned(), count)).collect()
    }
}

/// A flow that could be spared; the least is the one that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub(super) reason: Reason,
    pub(super) used_ns: u64,
    pub(super) flow: FiveTuple,
}

/// Whether something used then has been silent for so long.
pub(super) const fn is_silent(now_ns: u64, used_ns: u64, least: Span) -> bool {
    now_ns.saturating_sub(used_ns) >= least.as_ns()
}
