//! Real round trips for the self-test: launches over one channel, each measuring some variants.

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_clock::{self, ClockCalibration, Stopwatch};
use plumb_harness::launcher::{LaunchError, RunningLaunch};
use plumb_harness::report::BlockReport;
use plumb_harness::spec::{
    BlockSpec, BlockTask, ChannelSpec, LaunchSpec, LaunchSubject, SocketOptions,
};
use plumb_harness::spec::{Mechanism, WakeMode};
use plumb_harness::stop_signals;
use plumb_harness::topology::{CpuPair, CpuPlacement, CpuTopology};

use super::check_interrupted;
use crate::error::ExperimentError;

/// Message size: one cache line.
pub(super) const SIZE: u64 = 64;

/// Wall time of a block between two spinning CPUs.
const BLOCK_SPINNING: Span = Span::from_ms(5);

/// Wall time of a block of a pipe: some hundred round trips, and less time than a neighbour on the core
/// stays, so that blocks in turn meet it alike.
const BLOCK_PIPE: Span = Span::from_us(500);

/// Longest time for a block before its processes are killed.
const DEADLINE: Span = Span::from_secs(10);

/// Fresh launches of one channel.
pub(super) struct SelftestChannel {
    calibration: ClockCalibration,
    pair: CpuPair,
    channel: ChannelSpec,
    block: Span,
    /// What the channel is, in words.
    pub(super) subject: &'static str,
    seed: Seed,
    launches: u64,
}

impl SelftestChannel {
    /// A pipe with both processes on one CPU, where nothing but the pipe varies.
    fn pipe(seed: Seed) -> Result<Self, ExperimentError> {
        let channel = channel(Mechanism::Pipe, WakeMode::Block);
        Self::new(seed, CpuPlacement::SameCpu, channel, BLOCK_PIPE, "a pipe on one CPU")
    }

    /// Shared memory between two CPUs that both spin: a delay of one side only adds to the round
    /// trip, where between sleepers it would also change what the scheduler does. A pipe, where
    /// there is only one CPU.
    pub(super) fn spinning(seed: Seed) -> Result<Self, ExperimentError> {
        let topology = CpuTopology::machine();
        let apart = [CpuPlacement::SameCache, CpuPlacement::SameSocket, CpuPlacement::OtherSocket];
        let placement = apart.into_iter().find(|&placement| topology.pair(placement).is_ok());
        let Some(placement) = placement else { return Self::pipe(seed) };
        let channel = channel(Mechanism::ShmSpin, WakeMode::Spin);
        let subject = "shared memory between two spinning CPUs";
        Self::new(seed, placement, channel, BLOCK_SPINNING, subject)
    }

    fn new(
        seed: Seed,
        placement: CpuPlacement,
        channel: ChannelSpec,
        block: Span,
        subject: &'static str,
    ) -> Result<Self, ExperimentError> {
        let pair = CpuTopology::machine().pair(placement).map_err(|error| {
            ExperimentError::failure("the self-test needs a CPU to bind to").because(error)
        })?;
        let calibration = plumb_clock::calibrate(Span::from_ms(100));
        let seed = seed.derive(subject);
        Ok(Self { calibration, pair, channel, block, subject, seed, launches: 0 })
    }

    /// One turn of the spin that injects delays: a read of the clock, in nanoseconds.
    pub(super) fn grain_ns(&self) -> f64 {
        Stopwatch::new(self.calibration.ticks_per_ns).measure().read_cost_ns
    }

    /// One launch that measures blocks with these delays in turn; the samples of each are half
    /// round trips in nanoseconds.
    ///
    /// A launch that breaks is tried again a few times; the machine may be at fault.
    pub(super) fn launch(
        &mut self,
        delays_ns: &[u64],
    ) -> Result<Vec<BlockReport>, ExperimentError> {
        let mut failures = 0;
        loop {
            check_interrupted()?;
            match self.try_launch(delays_ns) {
                Ok(blocks) => return Ok(blocks),
                Err(error) if failures < 3 && !matches!(error, LaunchError::Interrupted) => {
                    failures += 1;
                }
                Err(error) => {
                    check_interrupted()?;
                    let what = format!("the self-test could not measure {}", self.subject);
                    return Err(ExperimentError::failure(what)
                        .because(error)
                        .fix("see what this host can measure with: plumb doctor"));
                }
            }
        }
    }

    fn try_launch(&mut self, delays_ns: &[u64]) -> Result<Vec<BlockReport>, LaunchError> {
        self.launches += 1;
        let spec = LaunchSpec {
            subject: LaunchSubject::Channel(self.channel.clone()),
            cpu_local: self.pair.local,
            cpu_peer: self.pair.peer,
            ticks_per_ns: self.calibration.ticks_per_ns,
            seed: self.seed.derive(&self.launches.to_string()).0,
            deadline_ns: DEADLINE.as_ns(),
        };
        let mut abort = || stop_signals::stop_requests() > 0;
        let program = std::env::current_exe()?;
        let mut launch = RunningLaunch::start(&program, &spec, &mut abort)?;
        let mut blocks = Vec::with_capacity(delays_ns.len());
        for &injected_ns in delays_ns {
            let block = BlockSpec {
                task: BlockTask::Latency { size: SIZE },
                duration_ns: self.block.as_ns(),
                samples_max: 10_000,
                samples_kept: 10_000,
                injected_ns,
            };
            blocks.push(launch.measure(&block, DEADLINE, &mut abort)?);
        }
        launch.finish()?;
        Ok(blocks)
    }
}

fn channel(mechanism: Mechanism, wake: WakeMode) -> ChannelSpec {
    ChannelSpec { mechanism, wake, options: SocketOptions::default() }
}
