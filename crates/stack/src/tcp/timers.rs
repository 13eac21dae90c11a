//! What happens when the time of a connection has come: retransmission, probes, delayed acknowledgements, and giving up.

use plumb_base::time::Instant;

use super::connection::{Connection, TcpSocketError, has_expired};
use super::recovery::RecoveryPhase;
use super::sender::{RetransmitTimer, TIMER_MIN};
use super::socket::TcpState;

/// Least MTU of a path, below which no segment is made smaller (RFC 791, RFC 8200).
const MTU_MIN: (u32, u32) = (576, 1_280);

/// Timeouts in a row after which IP is advised that the path may be dead (R1 of RFC 9293 §3.8.3: three at least).
const ADVICE_TIMEOUTS: u8 = 3;

impl Connection {
    /// When [`Connection::handle_deadline`] is to be called, if nothing happens before.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        let timers = &self.timers;
        let first = [
            self.tx.timer.map(|(_, at)| at),
            self.rx.acks.deadline(),
            timers.keep_alive,
            timers.linger,
            timers.paced_until,
        ]
        .map(|at| at.unwrap_or(Instant::NEVER))
        .into_iter()
        .fold(Instant::NEVER, Instant::min);
        (first < Instant::NEVER).then_some(first)
    }

    /// Does what is due.
    pub fn handle_deadline(&mut self, now: Instant) {
        self.is_ready = true;
        self.rx.acks.on_deadline(now);
        if self.timers.paced_until.is_some_and(|at| at <= now) {
            self.timers.paced_until = None;
        }
        if let Some((timer, at)) = self.tx.timer
            && at <= now
        {
            self.tx.timer = None;
            match timer {
                RetransmitTimer::Timeout => self.on_timeout(now),
                RetransmitTimer::TailProbe => self.on_tail_probe(now),
                RetransmitTimer::Reordering => self.on_reorder_timer(now),
                RetransmitTimer::Persist => self.on_persist_timer(now),
            }
        }
        if self.timers.linger.is_some_and(|at| at <= now) {
            self.finish();
        }
        if self.timers.keep_alive.is_some_and(|at| at <= now) {
            self.on_keep_alive(now);
        }
        self.check_armed();
    }

    /// What is unacknowledged has a timer, or is about to be sent again.
    fn check_armed(&self) {
        debug_assert!(
            self.tx.queue.is_empty() || self.tx.timer.is_some() || self.is_ready,
            "unacknowledged data have a timer"
        );
    }

    /// RFC 6298 §5.4 to 5.7; RFC 9293 §3.8.3.
    fn on_timeout(&mut self, now: Instant) {
        if self.gives_up(now) {
            // As Linux: what the network said is the reason, where it said something.
            self.fail(
                self.soft_error.map_or(TcpSocketError::TimedOut, TcpSocketError::Unreachable),
            );
            return;
        }
        let tx = &mut self.tx;
        tx.counts.timeouts += 1;
        tx.rtt.back_off();
        self.timers.is_doubtful |= tx.rtt.backoff() == ADVICE_TIMEOUTS;
        tx.rto_base = now;
        let retransmit_all = tx.options.retransmit_all;
        let (recovery, mut cx) = tx.recovery_context(now);
        recovery.on_timeout(&mut cx, retransmit_all);
        self.tx.check_size_probe(now, true);
        self.check_black_hole(now);
        self.tx.arm(now);
    }

    fn gives_up(&self, now: Instant) -> bool {
        let personality = &self.config.personality;
        if self.config.user_timeout.is_some() {
            return has_expired(now, self.timers.progress, self.config.user_timeout);
        }
        let retries = match self.state {
            TcpState::SynSent => personality.syn_retries,
            TcpState::SynReceived => personality.syn_ack_retries,
            _ => personality.retries,
        };
        self.tx.rtt.backoff() >= retries
    }

    fn check_black_hole(&mut self, now: Instant) {
        let len = self.tx.queue.front().map_or(0, |front| front.end - front.seq);
        let least = if self.ends.local.is_ipv6() { MTU_MIN.1 } else { MTU_MIN.0 };
        if self.config.mtu_probing
            && self.state.is_synchronized()
            && self.tx.size.on_timeout(now, len, least)
        {
            self.shrink_segments();
        }
    }

    /// RFC 8985 §7.3: the timeout begins anew with the probe.
    fn on_tail_probe(&mut self, now: Instant) {
        self.tx.probe_tail = true;
        self.tx.rto_base = now;
    }

    fn on_reorder_timer(&mut self, now: Instant) {
        let before = self.tx.recovery.phase();
        let (recovery, mut cx) = self.tx.recovery_context(now);
        let outcome = recovery.on_reorder_timer(&mut cx);
        if self.tx.recovery.phase() != before && self.tx.recovery.phase() == RecoveryPhase::Recovery
        {
            self.tx.counts.recoveries += 1;
        }
        self.tx.check_size_probe(now, false);
        self.tx.rearm(now, false, outcome.reorder_wait);
    }

    /// The window is too small for anything: as much as it takes is sent, else a probe (RFC 9293 §3.8.6.1).
    fn on_persist_timer(&mut self, now: Instant) {
        let tx = &mut self.tx;
        if !tx.queue.is_empty() || tx.stream_end() <= tx.nxt {
            tx.arm(now);
            return;
        }
        if tx.writes.is_held && tx.window.end() > tx.nxt {
            // More did not follow what waited for it.
            tx.writes.release();
            tx.writes.is_open = false;
            return;
        }
        self.timers.unanswered += 1;
        let is_silent = self.timers.unanswered > u32::from(self.config.personality.retries);
        if is_silent
            || has_expired(
                now,
                self.timers.progress.max(self.timers.heard),
                self.config.user_timeout,
            )
        {
            self.fail(TcpSocketError::TimedOut);
            return;
        }
        let tx = &mut self.tx;
        if tx.window.end() > tx.nxt {
            tx.probe_window = true;
        } else {
            tx.counts.window_probes += 1;
            self.solicit = true;
        }
        let tx = &mut self.tx;
        tx.rtt.back_off();
        tx.timer = Some((RetransmitTimer::Persist, now + tx.rtt.rto()));
    }

    /// RFC 9293 §3.8.4.
    fn on_keep_alive(&mut self, now: Instant) {
        let Some(keep_alive) = self.config.keep_alive.filter(|_| self.state.is_synchronized())
        else {
            self.timers.keep_alive = None;
            return;
        };
        let interval = keep_alive.interval.max(TIMER_MIN);
        let silent_until = self.timers.heard + keep_alive.idle;
        if silent_until > now || !self.tx.queue.is_empty() {
            self.timers.keep_alive = Some(silent_until.max(now + interval));
            return;
        }
        if self.timers.unanswered >= keep_alive.probes {
            self.fail(TcpSocketError::TimedOut);
            return;
        }
        self.timers.unanswered += 1;
        self.solicit = true;
        self.timers.keep_alive = Some(now + interval);
    }
}
