//! The agent's service for traffic between two hosts: checks a test against the limits, and runs the agent's half.

use std::io;
use std::sync::Arc;

use plumb_base::time::{Instant, Span};
use plumb_clock::now;
use plumb_remote::message::{ServiceId, TaskRefusal, decode, encode};
use plumb_remote::service::{AgentLimits, PreparedTask, TaskContext, TaskService};
use plumb_remote::session::TaskTimes;
use plumb_remote::task_control::TestControl;

use crate::measure::progress::{StallDetector, TestProgress};
use crate::measure::report::TestEnding;
use crate::measure::spec_limits::{self, SpecLimitError};
use crate::measure::test_run::{TestPorts, TestRun};
use crate::measure::test_spec::{PartSpec, TestSpec};

mod budget;

#[cfg(test)]
mod tests;

/// How long nothing may show that a client is there that is sent datagrams, or whose session is lost. With the time between
/// two looks, before and after, it is under the two seconds after which nobody who is gone is sent anything.
const PRESENCE_TIMEOUT: Span = Span::from_ms(1_400);

/// How long a test may take, for its session.
pub(crate) fn times(spec: &TestSpec) -> TaskTimes {
    TaskTimes { longest: Span::from_ns(spec.longest_ns()), quiet: Span::ZERO }
}

/// Runs tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadService;

impl TaskService for LoadService {
    fn id(&self) -> ServiceId {
        ServiceId::LOAD
    }

    fn prepare(&self, payload: &[u8], context: TaskContext) -> Result<PreparedTask, TaskRefusal> {
        let TaskContext { token, bind, limits, control, mut overlap } = context;
        let (spec, rate_max) = admit(payload, &limits)?;
        let failed = |error: io::Error| TaskRefusal::SetupFailed(error.to_string());
        let (run, ports) =
            TestRun::listen(&spec, token, rate_max, bind, control.clone()).map_err(failed)?;
        let certificates = run.certificates();
        let ready = encode(&TestPorts { ports, rate_max, certificates });
        let times = times(&spec);
        let run = Box::new(move |messages| {
            // Nothing is said to a test while it runs.
            drop(messages);
            let mut watch = PresenceWatch::new(now(), &spec, control);
            let mut report = run.run(&mut |progress| {
                overlap.poll();
                watch.observe(now(), &progress);
            });
            report.overlap = overlap.finish();
            if watch.has_ended {
                let why = format!("there was no sign of the client for {PRESENCE_TIMEOUT}");
                report.ended = TestEnding::Broken(why);
            }
            encode(&report)
        });
        Ok(PreparedTask { ready, times, outlives_session: true, run })
    }
}

/// A test that is asked for, and the most that its parts may send where they have no rate of their own.
fn admit(payload: &[u8], limits: &AgentLimits) -> Result<(TestSpec, Option<u64>), TaskRefusal> {
    let unreadable = || TaskRefusal::InvalidSpec("it cannot be decoded".to_owned());
    let spec: TestSpec = decode(payload).ok_or_else(unreadable)?;
    let invalid = |error: SpecLimitError| TaskRefusal::InvalidSpec(error.to_string());
    spec_limits::check(&spec).map_err(invalid)?;
    let rate_max = budget::admit_test(&spec, limits)?;
    Ok((spec, rate_max))
}

/// Ends a test as soon as nothing shows any more that its client is there.
#[derive(Debug)]
struct PresenceWatch {
    is_told: bool,
    stall: StallDetector,
    control: Arc<TestControl>,
    /// Whether it has ended the test.
    has_ended: bool,
}

impl PresenceWatch {
    fn new(now: Instant, spec: &TestSpec, control: Arc<TestControl>) -> Self {
        let stall = StallDetector::new(now, PRESENCE_TIMEOUT);
        Self { is_told: shows_client_liveness(spec), stall, control, has_ended: false }
    }

    /// Takes in how far the test is; to be called some times a second.
    fn observe(&mut self, now: Instant, progress: &TestProgress) {
        self.stall.observe(now, progress);
        // Nobody acknowledges datagrams, and a session stays open for long whose client has vanished without a word.
        let needs_data = progress.sends_datagrams || (self.is_told && self.control.is_abandoned());
        if !needs_data {
            // The session shows it until then, however late the data begins.
            self.stall.restart();
        } else if self.stall.is_stalled(now) && !self.control.is_halted() {
            self.has_ended = true;
            self.control.halt();
        }
    }
}

/// Whether the progress of a test tells that its client is there.
fn shows_client_liveness(spec: &TestSpec) -> bool {
    // The halves of other parts report no progress, and end with their connections or by their own time.
    let tells = |part: &PartSpec| {
        matches!(part, PartSpec::Streams(_) | PartSpec::Probes(_) | PartSpec::Datagrams(_))
    };
    spec.parts.iter().all(tells)
}
