//! System calls of a script: those that return at once, and those that block.

use plumb_base::time::{Instant, Span};

use super::{PendingCall, ScriptRunner, StepResult, UnderTest, failed};
use crate::outcome::ScriptOutcome;
use crate::script::{CallValue, SystemCall};
use crate::sockets::{CallAnswer, CallFault};

impl ScriptRunner {
    /// Makes a call; `end` is when it returns, if it is to block.
    pub(super) fn call(&mut self, call: &SystemCall, end: Option<Instant>) -> StepResult {
        self.note(call);
        let start = self.world.now;
        let answer = self.perform(call, false)?;
        match (answer, end) {
            (CallAnswer::Blocks, Some(end)) => {
                let timeout = timeout(call).map(|timeout| start + timeout);
                let call = call.clone();
                self.pending = Some(PendingCall { call, end, start, timeout });
                Ok(())
            }
            (CallAnswer::Blocks, None) => {
                failed(call.at, format!("{} blocks, and the script does not say so", call.name))
            }
            (answer, Some(end)) => {
                Self::judge(call, answer)?;
                self.check_return(call, start, end)
            }
            (answer, None) => Self::judge(call, answer),
        }
    }

    /// What a call says about the packets that follow.
    fn note(&mut self, call: &SystemCall) {
        let opens =
            !matches!(call.errno.as_deref(), Some("EALREADY" | "EISCONN" | "EBADF" | "EINVAL"));
        match call.name.as_str() {
            "socket" | "listen" => self.under_test = UnderTest::Passive,
            "connect" if opens => self.under_test = UnderTest::Connecting,
            _ => {}
        }
    }

    fn perform(&mut self, call: &SystemCall, again: bool) -> Result<CallAnswer, ScriptOutcome> {
        self.sockets.perform(call, again, &mut self.world, &self.settings).map_err(|fault| {
            match fault {
                CallFault::Differs(reason) => ScriptOutcome::Failed { at: call.at, reason },
                CallFault::Unsupported(what) => ScriptOutcome::Unsupported { at: call.at, what },
            }
        })
    }

    /// Compares what a call came to with what the script expects.
    fn judge(call: &SystemCall, answer: CallAnswer) -> StepResult {
        let agrees = match (&call.result, &call.errno, answer) {
            (CallValue::Any, None, CallAnswer::Value(_)) => true,
            (CallValue::Integer(expected), None, CallAnswer::Value(value)) => *expected == value,
            (CallValue::Integer(-1), Some(expected), CallAnswer::Error(errno)) => {
                // EWOULDBLOCK is another name of EAGAIN.
                expected == errno || (expected == "EWOULDBLOCK" && errno == "EAGAIN")
            }
            _ => false,
        };
        if agrees {
            return Ok(());
        }
        let found = match answer {
            CallAnswer::Value(value) => value.to_string(),
            CallAnswer::Error(errno) => format!("-1 {errno}"),
            CallAnswer::Blocks => "nothing yet".to_owned(),
        };
        let expected = match (&call.result, &call.errno) {
            (CallValue::Integer(value), None) => value.to_string(),
            (CallValue::Integer(value), Some(errno)) => format!("{value} {errno}"),
            (other, _) => format!("{other:?}"),
        };
        failed(call.at, format!("{} returned {found} instead of {expected}", call.name))
    }

    fn check_return(&self, call: &SystemCall, start: Instant, end: Instant) -> StepResult {
        let now = self.world.now;
        let part = end.saturating_since(start).as_secs_f64() * self.settings.tolerance_ratio;
        let tolerance = self.settings.tolerance.max(Span::from_secs_f64(part));
        if now + tolerance >= end && now <= end + tolerance {
            return Ok(());
        }
        let (now, end) = (self.time(now), self.time(end));
        failed(call.at, format!("{} returned at {now} instead of {end}", call.name))
    }

    /// Lets a call that blocks return, if it can.
    pub(super) fn try_pending(&mut self) -> StepResult {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        let is_over = pending.timeout.is_some_and(|timeout| timeout <= self.world.now);
        let answer = match self.perform(&pending.call, true)? {
            CallAnswer::Blocks if is_over => CallAnswer::Value(0),
            answer => answer,
        };
        if answer == CallAnswer::Blocks {
            self.pending = Some(pending);
            return Ok(());
        }
        Self::judge(&pending.call, answer)?;
        self.check_return(&pending.call, pending.start, pending.end)
    }

    /// Waits for the call that blocks to return.
    pub(super) fn finish_pending(&mut self) -> StepResult {
        let Some(pending) = &self.pending else { return Ok(()) };
        let (at, name, end) = (pending.call.at, pending.call.name.clone(), pending.end);
        let part =
            end.saturating_since(pending.start).as_secs_f64() * self.settings.tolerance_ratio;
        let until = end + self.settings.tolerance.max(Span::from_secs_f64(part));
        while self.pending.is_some() {
            self.try_pending()?;
            if self.pending.is_some() && !self.step(until) {
                let end = self.time(end);
                return failed(at, format!("{name} has not returned, and was to return at {end}"));
            }
        }
        Ok(())
    }
}

/// After which time a call returns of itself.
fn timeout(call: &SystemCall) -> Option<Span> {
    let place = match call.name.as_str() {
        "poll" => 2,
        "epoll_wait" => 3,
        _ => return None,
    };
    match call.arguments.get(place) {
        Some(CallValue::Integer(ms)) => u64::try_from(*ms).ok().map(Span::from_ms),
        _ => None,
    }
}
