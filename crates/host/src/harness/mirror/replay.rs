//! A replay as the worker sees it: it asks, and the mirror, which alone has the frames, times.

use plumb_base::time::Span;

use crate::clock::Stopwatch;
use crate::harness::bench::Trouble;
use crate::harness::canary::Canary;
use crate::harness::control::{PeerTask, PeerToWorker, Role, WorkerToPeer};
use crate::harness::effort::KernelTimes;
use crate::harness::partner::Peer;
use crate::harness::sampler;
use crate::harness::spec::{BlockReport, BlockSpec, LaunchSpec, Task};

/// Measures one block of a replay.
pub(super) fn measure(
    peer: &mut Peer,
    launch: &LaunchSpec,
    spec: &BlockSpec,
) -> Result<BlockReport, Trouble> {
    let Task::Replay { frame, cold } = spec.task else {
        return Err(Trouble::Impossible(format!("{:?} needs a client", spec.task)));
    };
    let watch = Stopwatch::new(launch.ticks_per_ns);
    let canary = Canary::before(watch, spec);
    let mut kernel = KernelTimes::new(launch.cpu_peer.into_iter().collect());
    kernel.begin();
    let start = watch.begin();
    let (duration_ns, samples_max) = (spec.duration_ns, spec.samples_max);
    let role = Role::Replay { cold, duration_ns, samples_max };
    peer.say(WorkerToPeer::Begin(PeerTask { role, size: frame, ack: 0 }))?;
    let done = loop {
        match peer.hear()? {
            PeerToWorker::Armed => {}
            PeerToWorker::Done(report) => break *report,
            PeerToWorker::Unavailable(why) | PeerToWorker::Failed(why) => {
                return Err(Trouble::Impossible(why));
            }
            PeerToWorker::Attached => {
                return Err(Trouble::Broken("the mirror spoke out of turn".to_owned()));
            }
        }
    };
    let wall = watch.end().wrapping_sub(start);
    let mut report = BlockReport { batch: 1, ..BlockReport::default() };
    report.effort.peer = done.cpu;
    report.effort.canary_ns = canary.after();
    (report.effort.softirq_ns, report.effort.steal_ns) = kernel.since_begin();
    report.effort.wall_ns = Span::from_secs_f64(watch.ns(wall) * 1e-9).as_ns();
    report.counters = done.tally.into_iter().filter(|(_, n)| *n > 0).collect();
    report.effort.operations = report.counters.get("packets").copied().unwrap_or(0);
    report.flags.push("peer-timed".to_owned());
    report.flags.push("batched".to_owned());
    let values = done.times.into_iter().find(|(name, _)| name == "packet");
    let values = values.map(|(_, values)| values).unwrap_or_default();
    if values.is_empty() {
        return Err(Trouble::Impossible("the mirror timed nothing".to_owned()));
    }
    sampler::summarise(&values, 0.001, spec, &mut report);
    Ok(report)
}
