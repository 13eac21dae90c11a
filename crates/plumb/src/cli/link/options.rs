//! Options of links: the link itself, how it is driven and recorded, and where its report goes.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use plumb_analysis::document::link::LinkDocument;
use plumb_base::seed::Seed;
use plumb_clock::InstantClock;
use plumb_link::preset::{LinkPreset, PRESETS};
use plumb_link::schedule::LinkSchedule;
use plumb_link::spec::{DirectionSpec, HopSpec, LinkSpec};
use plumb_link::text::LinkTextFiles;
use plumb_netdev::device::Device;
use plumb_netdev::emulator::{EmulatorOptions, TimerPrecision};
use plumb_netdev::lab::DriverPlacement;
use plumb_report::terminal;

use crate::cli::output::{CliOutput, CommandError};
use crate::link::running_link;
use crate::link::running_link::BoxedDevice;
use crate::link::running_link::LinkProblems;
use crate::problem::{ExitReason, Problem};
use crate::recording::recorded;

/// What a link that runs may be asked for too.
#[derive(Clone, Debug, Default, Args)]
pub struct LinkChangeOptions {
    /// Start from a preset: 4g, dsl, geo-satellite, …; other options change it
    #[arg(long, value_name = "NAME", help_heading = "The link")]
    preset: Option<String>,
    /// Rate: 10mbit, 1.25MB/s, 9600
    #[arg(long, value_name = "RATE", help_heading = "The link", allow_hyphen_values = true)]
    rate: Option<String>,
    /// One-way delay: 25ms, 20ms..30ms
    #[arg(long, value_name = "TIME", help_heading = "The link", allow_hyphen_values = true)]
    delay: Option<String>,
    /// Delay variation: 5ms
    #[arg(long, value_name = "TIME", help_heading = "The link", allow_hyphen_values = true)]
    jitter: Option<String>,
    /// Loss probability: 0.1%, 0.001
    #[arg(long, value_name = "SHARE", help_heading = "The link", allow_hyphen_values = true)]
    loss: Option<String>,
    /// Queue discipline: drop-tail, red, codel, fq-codel, pie, drr, priority
    #[arg(long, value_name = "KIND", help_heading = "The link")]
    queue: Option<String>,
    /// Queue limit: 64packets, 64KiB, 1bdp
    #[arg(long, value_name = "SIZE", help_heading = "The link", allow_hyphen_values = true)]
    limit: Option<String>,
    /// MTU: 1400; 1400/silent drops without ICMP
    #[arg(long, value_name = "BYTES", help_heading = "The link", allow_hyphen_values = true)]
    mtu: Option<String>,
    /// Further properties of the uplink: rate=1mbit,reorder=1%/5ms
    #[arg(long, value_name = "TEXT", help_heading = "The link")]
    up: Vec<String>,
    /// Further properties of the downlink
    #[arg(long, value_name = "TEXT", help_heading = "The link")]
    down: Vec<String>,
}

/// The link that is asked for.
#[derive(Clone, Debug, Default, Args)]
pub struct LinkShapeOptions {
    #[command(flatten)]
    sides: LinkChangeOptions,
    /// One more hop behind a router: rate=100mbit,delay=5ms, or UP|DOWN
    #[arg(long = "hop", value_name = "TEXT", help_heading = "The link")]
    hops: Vec<String>,
    /// Seed of every random choice: the same seed gives the same link
    #[arg(long, value_name = "NUMBER", help_heading = "The link", allow_hyphen_values = true)]
    seed: Option<u64>,
}

impl LinkChangeOptions {
    /// Changes to a link that runs, in their order: `plumb_link::spec::LinkSpec::changed` says what each means.
    ///
    /// # Errors
    /// There is no such preset.
    pub fn changes(&self) -> Result<Vec<String>, Problem> {
        let mut changes = Vec::new();
        if let Some(name) = &self.preset {
            changes.push(format!("preset {}", preset(name)?.name));
        }
        changes.extend(Some(self.both()).filter(|both| !both.is_empty()));
        changes.extend(self.up.iter().map(|text| format!("up {text}")));
        changes.extend(self.down.iter().map(|text| format!("down {text}")));
        Ok(changes)
    }

    /// What the options for both directions say, as text.
    fn both(&self) -> String {
        let options = [
            ("rate", &self.rate),
            ("delay", &self.delay),
            ("jitter", &self.jitter),
            ("loss", &self.loss),
            ("queue", &self.queue),
            ("limit", &self.limit),
            ("mtu", &self.mtu),
        ];
        let given = options.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        given.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    }
}

impl LinkShapeOptions {
    /// The link.
    ///
    /// # Errors
    /// A part that cannot be read, or a link that cannot be.
    pub fn spec(&self) -> Result<LinkSpec, Problem> {
        let LinkChangeOptions { preset: kind, up, down, .. } = &self.sides;
        let mut base = match kind {
            Some(name) => parse(preset(name)?.text)?,
            None => LinkSpec { hops: Vec::new(), seed: Seed(0) },
        };
        let both = self.sides.both();
        let plain = both.is_empty() && up.is_empty() && down.is_empty();
        // Hops alone are the whole link; anything else is of a first hop before them.
        if base.hops.is_empty() && (!plain || self.hops.is_empty()) {
            let wire = DirectionSpec::default();
            base.hops.push(HopSpec { up: wire.clone(), down: wire });
        }
        if let Some(first) = base.hops.first_mut() {
            for (name, direction, own) in
                [("up", &mut first.up, up), ("down", &mut first.down, down)]
            {
                apply(direction, &both, None)?;
                for text in own {
                    apply(direction, text, Some(name))?;
                }
            }
        }
        for text in &self.hops {
            let hop = HopSpec::parse(text, &LocalFiles).map_err(|error| text_problem(&error))?;
            base.hops.push(hop);
        }
        if let Some(seed) = self.seed {
            base.seed = Seed(seed);
        }
        base.check()
            .map_err(|error| Problem::from_message(&error.to_string(), ExitReason::Usage))?;
        Ok(base)
    }
}

/// The link of a text, with the files that it names.
///
/// # Errors
/// As [`LinkShapeOptions::spec`].
pub fn parse(text: &str) -> Result<LinkSpec, Problem> {
    LinkSpec::parse(text, &LocalFiles).map_err(|error| text_problem(&error))
}

fn preset(name: &str) -> Result<&'static LinkPreset, Problem> {
    LinkPreset::named(name).ok_or_else(|| {
        let names = PRESETS.iter().map(|preset| preset.name);
        Problem::usage(format!("there is no preset '{name}'")).suggest(name, names)
    })
}

fn apply(direction: &mut DirectionSpec, text: &str, name: Option<&str>) -> Result<(), Problem> {
    direction.apply(text, &LocalFiles).map_err(|error| {
        let mut problem = text_problem(&error);
        if let Some(name) = name {
            problem.what = format!("--{name}: {}", problem.what);
        }
        problem
    })
}

/// A text that is no link, or no change of one.
pub fn text_problem(error: &plumb_link::text::TextError) -> Problem {
    Problem::from_message(&error.to_string(), ExitReason::Usage)
}

/// Files that the user may read.
#[derive(Clone, Copy, Debug)]
pub struct LocalFiles;

impl LinkTextFiles for LocalFiles {
    fn read(&self, name: &str) -> Result<String, String> {
        std::fs::read_to_string(name).map_err(|error| error.to_string())
    }
}

/// How moments are waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PrecisionOption {
    /// Sleep: needs no CPU while idle
    Timer,
    /// Sleep until shortly before, then spin
    #[default]
    Hybrid,
    /// Spin: takes a CPU of its own
    Busy,
}

impl PrecisionOption {
    /// For the driver.
    pub const fn precision(self) -> TimerPrecision {
        match self {
            Self::Timer => TimerPrecision::Timer,
            Self::Hybrid => TimerPrecision::Hybrid { spin: None },
            Self::Busy => TimerPrecision::Busy,
        }
    }
}

/// How it is driven.
#[derive(Clone, Debug, Default, Args)]
pub struct LinkDriverOptions {
    /// How to wait for a deadline
    #[arg(long, value_name = "HOW", default_value = "hybrid", help_heading = "How it runs")]
    precision: PrecisionOption,
    /// Record the near end to a pcapng file
    #[arg(long, value_name = "FILE", help_heading = "How it runs")]
    pcap: Option<PathBuf>,
    /// Record the far end
    #[arg(long, value_name = "FILE", help_heading = "How it runs")]
    pcap_far: Option<PathBuf>,
    /// Change the link on a schedule: a file of lines like '5s rate=1mbit', relative to the start
    #[arg(long, value_name = "FILE", help_heading = "How it runs")]
    schedule: Option<PathBuf>,
}

impl LinkDriverOptions {
    /// For the driver.
    pub fn options(&self) -> EmulatorOptions {
        EmulatorOptions { precision: self.precision.precision(), ..EmulatorOptions::default() }
    }

    /// The schedule, where one was given, of a link that begins as `base`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn schedule(&self, base: &LinkSpec) -> Result<Option<LinkSchedule>, Problem> {
        let path = self.schedule.as_deref();
        path.map(|path| running_link::read_schedule(path, base, &LocalFiles)).transpose()
    }

    /// For a driver that spins, a CPU of its own: this thread, and what it starts later, leave it alone.
    pub fn dedicated_cpu(&self) -> Option<DriverPlacement> {
        if self.precision != PrecisionOption::Busy {
            return None;
        }
        let placement = DriverPlacement::reserve_last_cpu().ok().flatten()?;
        placement.bind_to_others().ok()?;
        Some(placement)
    }

    /// What a reader must know about this machine's fitness.
    pub fn warnings(&self) -> Vec<String> {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut warnings = Vec::new();
        if cpus == 1 {
            warnings.push(match self.precision {
                PrecisionOption::Busy => {
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
        timeline: InstantClock,
        troubles: &LinkProblems,
    ) -> Result<BoxedDevice, Problem> {
        let taken = taken.iter().map(PathBuf::as_path);
        end(device, self.pcap.as_deref(), taken, timeline, troubles)
    }

    /// That of the far end.
    ///
    /// # Errors
    /// As [`LinkDriverOptions::near`].
    pub fn far<D: Device + Send + 'static>(
        &self,
        device: D,
        taken: &[PathBuf],
        timeline: InstantClock,
        troubles: &LinkProblems,
    ) -> Result<BoxedDevice, Problem> {
        let taken = taken.iter().chain(&self.pcap).map(PathBuf::as_path);
        end(device, self.pcap_far.as_deref(), taken, timeline, troubles)
    }
}

/// A device, recorded at `path` where there is one. The link outlives a recording that a full disk ends.
fn end<'a, D: Device + Send + 'static>(
    device: D,
    path: Option<&Path>,
    taken: impl IntoIterator<Item = &'a Path>,
    timeline: InstantClock,
    troubles: &LinkProblems,
) -> Result<BoxedDevice, Problem> {
    let Some(path) = path else { return Ok(Box::new(device)) };
    let troubles = troubles.clone();
    let recorder = recorded(device, path, taken, timeline)?;
    Ok(Box::new(recorder.continue_on_failure(move |error| {
        troubles.add(format!("a recording has ended before the link: {error}"));
    })))
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub struct LinkOutputOptions<'a> {
    /// The page, whatever it says.
    pub stats: bool,
    /// A file for the document.
    pub report: Option<&'a Path>,
}

/// Whether a document can be written there, found out before there is one.
///
/// # Errors
/// It cannot.
pub fn check_writable(path: &Path) -> Result<(), Problem> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened
        .map(drop)
        .map_err(|error| Problem { exit: ExitReason::Usage, ..not_written(path, error) })
}

fn not_written(path: &Path, error: io::Error) -> Problem {
    Problem::failure(format!("cannot write {}", path.display()))
        .because(error)
        .fix("name a file in a directory that exists and may be written to")
}

/// Prints it; the page also where the link was not what it said, which nobody should have to ask
/// for.
///
/// # Errors
/// The file or standard output cannot be written.
pub fn finish(
    document: &LinkDocument,
    wishes: &LinkOutputOptions<'_>,
    output: &CliOutput,
) -> Result<(), CommandError> {
    if let Some(path) = wishes.report {
        let text = serde_json::to_string_pretty(document).map_err(io::Error::from);
        text.and_then(|text| std::fs::write(path, text + "\n"))
            .map_err(|error| not_written(path, error))?;
    }
    if output.json {
        output.document(document)?;
    } else if wishes.stats || !document.faithful || !document.flags.is_empty() || document.left > 0
    {
        output.note(terminal::link::render(document, wishes.stats, output.style_stderr).trim_end());
    }
    Ok(())
}
