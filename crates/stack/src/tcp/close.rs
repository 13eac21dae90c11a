//! How a connection ends: by both ends closing (RFC 9293 §3.6), by RST, or because the peer is gone.

use std::sync::Arc;

use plumb_base::time::Instant;

use super::connection::{Connection, TcpSocketError};
use super::socket::TcpState;

impl Connection {
    /// Nothing more will be sent; what arrives can still be read (half-close).
    pub fn shutdown(&mut self, now: Instant) {
        if self.tx.is_closed {
            return;
        }
        self.is_ready = true;
        self.state = match self.state {
            TcpState::SynSent => {
                self.finish();
                return;
            }
            TcpState::Established => TcpState::FinWait1,
            TcpState::CloseWait => TcpState::LastAck,
            other => other,
        };
        self.tx.is_closed = true;
        if self.tx.queue.is_empty() {
            self.timers.progress = now;
        }
    }

    /// The application has done with the connection. What it sent is still delivered; what it has not read makes the close a reset (RFC
    /// 9293 §3.6.1).
    pub fn close(&mut self, now: Instant) {
        if std::mem::replace(&mut self.is_abandoned, true) {
            return;
        }
        if self.rx.readable() > 0 && self.state != TcpState::TimeWait {
            self.abort();
            return;
        }
        self.shutdown(now);
        if self.state == TcpState::FinWait2 {
            self.timers.linger = Some(now + self.config.fin_wait_2);
        }
    }

    /// Ends the connection at once, with a RST.
    pub fn abort(&mut self) {
        let sends_reset = match self.state {
            TcpState::SynSent | TcpState::TimeWait | TcpState::Closed => false,
            TcpState::SynReceived
            | TcpState::Established
            | TcpState::FinWait1
            | TcpState::FinWait2
            | TcpState::CloseWait
            | TcpState::Closing
            | TcpState::LastAck => true,
        };
        if sends_reset {
            self.reset = Some((self.tx.nxt, Some(self.rx.nxt)));
        }
        self.finish();
        self.is_ready = sends_reset;
    }

    /// The connection ends with an error; unread data remain readable.
    pub(super) fn fail(&mut self, error: TcpSocketError) {
        self.error = Some(error);
        self.finish();
    }

    /// There is no connection any more.
    pub(super) fn finish(&mut self) {
        self.state = TcpState::Closed;
        self.tx.timer = None;
        self.tx.queue = super::sent::SentQueue::default();
        self.tx.una = self.tx.nxt;
        self.tx.end = self.tx.nxt.max(self.tx.data_start());
        self.tx.buffer.advance(self.tx.end.max(self.tx.buffer.start()));
        self.tx.buffer.release();
        self.timers.keep_alive = None;
        self.timers.linger = None;
        self.timers.paced_until = None;
        self.is_ready = false;
    }

    /// Something of ours was acknowledged: perhaps our FIN.
    pub(super) fn on_acked(&mut self, now: Instant) {
        if !self.tx.is_closed {
            return;
        }
        if self.state == TcpState::Established {
            // It was closed before the handshake was over.
            self.state = TcpState::FinWait1;
        }
        if self.tx.una < self.tx.stream_end() {
            return;
        }
        match self.state {
            TcpState::FinWait1 => {
                self.state = TcpState::FinWait2;
                if self.is_abandoned {
                    self.timers.linger = Some(now + self.config.fin_wait_2);
                }
            }
            TcpState::Closing => {
                self.begin_time_wait(now);
                self.state = TcpState::TimeWait;
            }
            TcpState::LastAck => self.finish(),
            _ => {}
        }
    }

    pub(super) fn begin_time_wait(&mut self, now: Instant) {
        self.timers.linger = Some(now + self.config.time_wait);
        self.timers.keep_alive = None;
        self.tx.timer = None;
    }

    /// The peer did not get our last acknowledgement.
    pub(super) fn restart_time_wait(&mut self) {
        let heard = self.timers.heard;
        self.timers.linger = Some(heard.max(self.timers.progress) + self.config.time_wait);
    }

    /// Keep-alive probes begin after this much silence from now on.
    pub(super) fn restart_keep_alive(&mut self, now: Instant) {
        let config = Arc::clone(&self.config);
        self.timers.keep_alive = config.keep_alive.map(|keep_alive| now + keep_alive.idle);
    }
}
