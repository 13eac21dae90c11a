//! The clock of a run, calibrated on every CPU that it uses (rule 1), and the CPUs themselves.

use std::collections::{BTreeMap, BTreeSet};

use plumb_base::stats::quantile;
use plumb_base::time::Span;
use plumb_clock::{self, ClockCalibration};
use plumb_harness::launcher::{LaunchError, RunningLaunch};
use plumb_harness::spec::{BlockSpec, BlockTask, LaunchSpec, LaunchSubject};
use plumb_harness::topology::{CpuPair, CpuTopology};

use crate::definition::{CellAction, CellPlan, LaunchGroup};
use crate::error::ExperimentError;

/// Time spent comparing the counter with the kernel's clock.
const CALIBRATION: Span = Span::from_ms(100);

/// CPUs whose clock is measured; more would only repeat what these say.
const CPUS_MAX: usize = 16;

/// The clock of a run.
#[derive(Debug)]
pub(crate) struct CalibratedClock {
    calibration: ClockCalibration,
    topology: CpuTopology,
    notes: BTreeMap<String, String>,
}

impl CalibratedClock {
    /// Calibrates the counter, then measures its resolution, its read cost and its offset on every CPU
    /// that the cells use.
    pub(crate) fn calibrate(cells: &[CellPlan]) -> Result<Self, ExperimentError> {
        let calibration = plumb_clock::calibrate(CALIBRATION);
        let mut this =
            Self { calibration, topology: CpuTopology::machine(), notes: BTreeMap::new() };
        match calibration.ticks_per_ns {
            Some(rate) => {
                this.note("clock.source", "time-stamp counter");
                this.note("clock.ticks_per_ns", &format!("{rate:.6}"));
                let ppm = calibration.uncertainty_ppm;
                this.note("clock.calibration_uncertainty_ppm", &format!("{ppm:.3}"));
            }
            None => this.note("clock.source", "CLOCK_MONOTONIC_RAW"),
        }
        let cpus = this.cpus(cells);
        for &cpu in cpus.iter().take(CPUS_MAX) {
            this.measure(cpu, cpus[0])?;
        }
        Ok(this)
    }

    /// Facts for the run's record.
    pub(super) fn notes(&self) -> BTreeMap<String, String> {
        self.notes.clone()
    }

    /// Rate of the counter; none where CLOCK_MONOTONIC_RAW stands in.
    pub(super) fn ticks_per_ns(&self) -> Option<f64> {
        self.calibration.ticks_per_ns
    }

    /// The CPUs of a group's worker and peer.
    pub(super) fn pair(&self, group: &LaunchGroup) -> Result<CpuPair, String> {
        if let Some(cpu) = group.cpu {
            return Ok(CpuPair { local: Some(cpu), peer: Some(cpu) });
        }
        self.topology.pair(group.placement).map_err(|error| error.to_string())
    }

    /// Every CPU that a cell is bound to, ascending.
    fn cpus(&self, cells: &[CellPlan]) -> Vec<u32> {
        let groups = cells.iter().filter_map(|cell| match &cell.action {
            CellAction::Measure { group, .. } => Some(group),
            CellAction::Unavailable(_) => None,
        });
        let pairs = groups.filter_map(|group| self.pair(group).ok());
        let bound: BTreeSet<u32> =
            pairs.flat_map(|pair| pair.local.into_iter().chain(pair.peer)).collect();
        bound.into_iter().collect()
    }

    /// Measures the clock on one CPU, in a process of its own.
    fn measure(&mut self, cpu: u32, first: u32) -> Result<(), ExperimentError> {
        let spec = LaunchSpec {
            subject: LaunchSubject::Alone,
            cpu_local: Some(cpu),
            cpu_peer: None,
            ticks_per_ns: self.calibration.ticks_per_ns,
            seed: 0,
            deadline_ns: Span::from_secs(10).as_ns(),
        };
        let mut abort = || plumb_harness::stop_signals::stop_requests() >= 2;
        let mut launch = std::env::current_exe()
            .map_err(LaunchError::from)
            .and_then(|program| RunningLaunch::start(&program, &spec, &mut abort))
            .map_err(|error| {
                ExperimentError::failure(format!("cannot calibrate the clock on CPU {cpu}"))
                    .because(error)
            })?;
        for (what, value) in std::mem::take(&mut launch.facts) {
            self.note(&format!("clock.cpu{cpu}.{what}"), &value);
        }
        if cpu != first && self.calibration.ticks_per_ns.is_some() {
            let spec = BlockSpec {
                task: BlockTask::ClockOffset { clock: "tsc".to_owned(), cpu: first },
                duration_ns: Span::from_ms(3).as_ns(),
                samples_max: 2_000,
                samples_kept: 2_000,
                injected_ns: 0,
            };
            // An offset that cannot be measured is described by the notes that are there.
            if let Ok(report) = launch.measure(&spec, Span::from_secs(10), &mut abort)
                && !report.samples.is_empty()
            {
                let median = quantile::of_sorted(&quantile::sorted(&report.samples), 0.5);
                self.note(&format!("clock.cpu{cpu}.offset_ns"), &format!("{median:.2}"));
            }
        }
        drop(launch.finish());
        Ok(())
    }

    fn note(&mut self, name: &str, value: &str) {
        self.notes.insert(name.to_owned(), value.to_owned());
    }
}
