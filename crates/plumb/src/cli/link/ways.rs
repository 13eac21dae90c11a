//! How a link is driven, watched and recorded: options that a command and a lab share.
//!
//! Left out: the link itself (`super::shape`).

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use plumb_host::clock::Timeline;
use plumb_host::device::Device;
use plumb_host::emulate::{Options, Precision};
use plumb_host::lab::Seats;
use plumb_link::schedule::Schedule;
use plumb_link::spec::LinkSpec;

use super::shape::OwnFiles;
use crate::link::course::End;
use crate::link::timetable;
use crate::link::trouble::Troubles;
use crate::problem::Problem;
use crate::recording::recorded;

/// How moments are waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Wait {
    /// Asleep: needs no CPU while nothing happens
    Timer,
    /// Asleep until shortly before, then spinning
    #[default]
    Hybrid,
    /// Spinning for ever: takes a CPU to itself
    Busy,
}

impl Wait {
    /// For the driver.
    pub const fn precision(self) -> Precision {
        match self {
            Self::Timer => Precision::Timer,
            Self::Hybrid => Precision::Hybrid { spin: None },
            Self::Busy => Precision::Busy,
        }
    }
}

/// How it is driven.
#[derive(Clone, Debug, Default, Args)]
pub struct Ways {
    /// How a frame's moment is waited for
    #[arg(long, value_name = "HOW", default_value = "hybrid", help_heading = "How it runs")]
    precision: Wait,
    /// Record what enters and leaves at the near end as pcapng
    #[arg(long, value_name = "FILE", help_heading = "How it runs")]
    pcap: Option<PathBuf>,
    /// The same at the far end
    #[arg(long, value_name = "FILE", help_heading = "How it runs")]
    pcap_far: Option<PathBuf>,
    /// Change the link by a file of lines like '5s rate=1mbit', counted from its beginning
    #[arg(long, value_name = "FILE", help_heading = "How it runs")]
    schedule: Option<PathBuf>,
}

impl Ways {
    /// For the driver.
    pub fn options(&self) -> Options {
        Options { precision: self.precision.precision(), ..Options::default() }
    }

    /// The schedule, where one was given, of a link that begins as `base`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn schedule(&self, base: &LinkSpec) -> Result<Option<Schedule>, Problem> {
        let path = self.schedule.as_deref();
        path.map(|path| timetable::read(path, base, &OwnFiles)).transpose()
    }

    /// For a driver that spins, a CPU of its own: this thread, and what it starts later, leave it alone.
    pub fn seats(&self) -> Option<Seats> {
        if self.precision != Wait::Busy {
            return None;
        }
        let seats = Seats::divide().ok().flatten()?;
        seats.join_others().ok()?;
        Some(seats)
    }

    /// What a reader must know about this machine's fitness.
    pub fn warnings(&self) -> Vec<String> {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut warnings = Vec::new();
        if cpus == 1 {
            warnings.push(match self.precision {
                Wait::Busy => {
                    "the link spins on the only CPU of this machine, and takes it from the command"
                        .to_owned()
                }
                _ => "there is one CPU for the link and the command: deadlines may be missed"
                    .to_owned(),
            });
        }
        warnings
    }

    /// The files that are read for a link that is one of `specs` after the other.
    pub fn files_read(&self, specs: &[&LinkSpec]) -> Vec<PathBuf> {
        let named = specs.iter().flat_map(|spec| spec.files()).map(PathBuf::from);
        self.schedule.iter().cloned().chain(named).collect()
    }

    /// The device of the near end, recorded where that was asked for; `taken` are files that the
    /// command uses otherwise.
    ///
    /// # Errors
    /// The file cannot be made, or is one that the command uses already.
    pub fn near<D: Device + Send + 'static>(
        &self,
        device: D,
        taken: &[PathBuf],
        timeline: Timeline,
        troubles: &Troubles,
    ) -> Result<End, Problem> {
        let taken = taken.iter().map(PathBuf::as_path);
        end(device, self.pcap.as_deref(), taken, timeline, troubles)
    }

    /// That of the far end.
    ///
    /// # Errors
    /// As [`Ways::near`].
    pub fn far<D: Device + Send + 'static>(
        &self,
        device: D,
        taken: &[PathBuf],
        timeline: Timeline,
        troubles: &Troubles,
    ) -> Result<End, Problem> {
        let taken = taken.iter().chain(&self.pcap).map(PathBuf::as_path);
        end(device, self.pcap_far.as_deref(), taken, timeline, troubles)
    }
}

/// A device, recorded at `path` where there is one. The link outlives a recording that a full disk ends.
fn end<'a, D: Device + Send + 'static>(
    device: D,
    path: Option<&Path>,
    taken: impl IntoIterator<Item = &'a Path>,
    timeline: Timeline,
    troubles: &Troubles,
) -> Result<End, Problem> {
    let Some(path) = path else { return Ok(Box::new(device)) };
    let troubles = troubles.clone();
    let recorder = recorded(device, path, taken, timeline)?;
    Ok(Box::new(recorder.go_on_unrecorded(move |error| {
        troubles.add(format!("a recording has ended before the link: {error}"));
    })))
}
