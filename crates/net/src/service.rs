//! The agent's service for traffic between two hosts: checks a test against the limits, and runs the agent's half.

use std::io;

use plumb_base::time::Span;
use plumb_clock::now;
use plumb_remote::message::{ServiceId, TaskRefusal, decode, encode};
use plumb_remote::service::{PreparedTask, TaskContext, TaskService};
use plumb_remote::session::TaskTimes;

use crate::measure::progress::StallDetector;
use crate::measure::spec_limits::{self, SpecLimitError};
use crate::measure::test_run::{TestPorts, TestRun};
use crate::measure::test_spec::{PartSpec, TestSpec};

mod budget;

#[cfg(test)]
mod tests;

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
        let unreadable = || TaskRefusal::InvalidSpec("it cannot be decoded".to_owned());
        let spec: TestSpec = decode(payload).ok_or_else(unreadable)?;
        let failed = |error: io::Error| TaskRefusal::SetupFailed(error.to_string());
        let TaskContext { token, bind, limits, control, mut overlap } = context;
        let invalid = |error: SpecLimitError| TaskRefusal::InvalidSpec(error.to_string());
        spec_limits::check(&spec).map_err(invalid)?;
        let rate_max = budget::admit_test(&spec, &limits)?;
        let (run, ports) =
            TestRun::listen(&spec, token, rate_max, bind, control.clone()).map_err(failed)?;
        let certificates = run.certificates();
        let ready = encode(&TestPorts { ports, rate_max, certificates });
        let times = times(&spec);
        let run = Box::new(move |_| {
            let (is_told, mut stall) =
                (shows_client_liveness(&spec), StallDetector::new(now(), &spec));
            let mut report = run.run(&mut |progress| {
                overlap.poll();
                stall.observe(now(), &progress);
                if is_told && control.is_abandoned() && stall.is_stalled(now()) {
                    control.halt();
                }
            });
            report.overlap = overlap.finish();
            encode(&report)
        });
        Ok(PreparedTask { ready, times, outlives_session: true, run })
    }
}

/// Whether a test whose client is gone ends as soon as nothing shows any more that somebody is there.
fn shows_client_liveness(spec: &TestSpec) -> bool {
    // The halves of other parts tell of no progress, and end with their connections or by their own time. But nothing
    // else ends datagrams, and nobody has to take them for an hour who has asked for them once.
    let sends = |part: &PartSpec| matches!(part, PartSpec::Datagrams(part) if !part.is_up);
    let tells = |part: &PartSpec| {
        matches!(part, PartSpec::Streams(_) | PartSpec::Probes(_) | PartSpec::Datagrams(_))
    };
    spec.parts.iter().all(tells) || spec.parts.iter().any(sends)
}
