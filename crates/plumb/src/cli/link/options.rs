//! Options of links: the link itself, how it is driven and recorded, and its report.

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
use plumb_netdev::emulator::running_link::{
    BoxedDevice, FrameMemory, LinkSetup, LinkTopology, RunningLink,
};
use plumb_netdev::emulator::{EmulatorOptions, InterfaceDropCounter, TimerPrecision};
use plumb_netdev::lab::DriverPlacement;
use plumb_report::terminal;

use super::document::LinkProblems;
use crate::cli::output::{CliOutput, CommandError};
use crate::problem::{ExitReason, Problem};
use crate::recording::recorded;

/// Smallest MTU of the devices, in bytes.
const MTU_MIN: u32 = 1_500;

/// Properties of a link, which can be changed while it runs.
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

/// The requested link.
#[derive(Clone, Debug, Default, Args)]
pub struct LinkShapeOptions {
    #[command(flatten)]
    sides: LinkChangeOptions,
    /// One more hop behind a router: rate=100mbit,delay=5ms, or UP|DOWN
    #[arg(long = "hop", value_name = "TEXT", help_heading = "The link")]
    hops: Vec<String>,
    /// Seed of every random choice
    #[arg(long, value_name = "NUMBER", help_heading = "The link", allow_hyphen_values = true)]
    seed: Option<u64>,
}

impl LinkChangeOptions {
    /// Changes to a running link, in the language of `plumb_link::spec::LinkSpec::changed`.
    ///
    /// # Errors
    /// Unknown preset.
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

    /// The options for both directions, as text.
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
    /// A part cannot be parsed, or the link is invalid.
    pub fn spec(&self) -> Result<LinkSpec, Problem> {
        let LinkChangeOptions { preset: kind, up, down, .. } = &self.sides;
        let mut base = match kind {
            Some(name) => LinkSpec::parse(preset(name)?.text, &LocalFiles)?,
            None => LinkSpec { hops: Vec::new(), seed: Seed(0) },
        };
        let both = self.sides.both();
        let plain = both.is_empty() && up.is_empty() && down.is_empty();
        // Only --hop: these hops are the link. Other options describe a first hop before them.
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
            base.hops.push(HopSpec::parse(text, &LocalFiles)?);
        }
        if let Some(seed) = self.seed {
            base.seed = Seed(seed);
        }
        base.check()?;
        Ok(base)
    }
}

fn preset(name: &str) -> Result<&'static LinkPreset, Problem> {
    LinkPreset::named(name).ok_or_else(|| {
        let names = PRESETS.iter().map(|preset| preset.name);
        Problem::usage(format!("there is no preset '{name}'")).suggest(name, names)
    })
}

fn apply(direction: &mut DirectionSpec, text: &str, name: Option<&str>) -> Result<(), Problem> {
    direction.apply(text, &LocalFiles).map_err(|error| {
        let mut problem = Problem::from(error);
        if let Some(name) = name {
            problem.what = format!("--{name}: {}", problem.what);
        }
        problem
    })
}

/// Files that the user may read.
#[derive(Clone, Copy, Debug)]
pub struct LocalFiles;

impl LinkTextFiles for LocalFiles {
    fn read(&self, name: &str) -> Result<String, String> {
        std::fs::read_to_string(name).map_err(|error| error.to_string())
    }
}

/// How to wait for a deadline.
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
    /// The driver's precision.
    pub const fn precision(self) -> TimerPrecision {
        match self {
            Self::Timer => TimerPrecision::Timer,
            Self::Hybrid => TimerPrecision::Hybrid { spin: None },
            Self::Busy => TimerPrecision::Busy,
        }
    }
}

/// How a link is driven and recorded.
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

/// The ends of a link, or of a lab its first and last host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// Recorded by `--pcap`.
    Near,
    /// Recorded by `--pcap-far`.
    Far,
}

/// What follows from the description of a link, before anything is created.
#[derive(Debug)]
pub struct LinkRunPlan {
    /// MTU of the devices, in bytes.
    pub mtu: u32,
    /// Memory for frames.
    pub memory: FrameMemory,
    /// Warnings about the link and this machine.
    pub flags: Vec<String>,
    /// Later changes of the link.
    pub schedule: Option<LinkSchedule>,
    /// Files that the description was read from.
    pub files: Vec<PathBuf>,
}

impl LinkDriverOptions {
    /// The plan of a network of so many lines.
    ///
    /// # Errors
    /// Not enough memory, or an invalid schedule.
    pub fn plan(&self, spec: &LinkSpec, lines: u64) -> Result<LinkRunPlan, Problem> {
        let path = self.schedule.as_deref();
        let schedule = path.map(|path| read_schedule(path, spec));
        let schedule = schedule.transpose()?;
        let later = schedule.iter().flat_map(|schedule| &schedule.links);
        let specs: Vec<&LinkSpec> = std::iter::once(spec).chain(later).collect();
        let hops = specs.iter().flat_map(|spec| &spec.hops);
        let mtus = hops.flat_map(|hop| [&hop.up, &hop.down]).filter_map(|direction| direction.mtu);
        let mtu = mtus.map(|mtu| mtu.bytes).fold(MTU_MIN, u32::max);
        let mut flags: Vec<String> = self.cpu_warning().into_iter().collect();
        for warning in specs.iter().flat_map(|spec| spec.warnings()) {
            if !flags.contains(&warning) {
                flags.push(warning);
            }
        }
        let memory = FrameMemory::new(&specs, mtu, lines)?;
        let named = specs.iter().flat_map(|spec| spec.files()).map(PathBuf::from);
        let files = self.schedule.iter().cloned().chain(named).collect();
        Ok(LinkRunPlan { mtu, memory, flags, schedule, files })
    }

    fn cpu_warning(&self) -> Option<String> {
        let warning = match self.precision {
            PrecisionOption::Busy => {
                "the link spins on the only CPU of this machine, and takes it from the command"
            }
            _ => "there is one CPU for the link and the command: deadlines may be missed",
        };
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        (cpus == 1).then(|| warning.to_owned())
    }

    /// Starts a link between devices as these options and their plan say.
    ///
    /// # Errors
    /// The kernel is out of threads or descriptors.
    pub fn start(
        &self,
        topology: LinkTopology,
        spec: LinkSpec,
        plan: LinkRunPlan,
        ports: Vec<(BoxedDevice, InterfaceDropCounter)>,
        timeline: InstantClock,
        on_early_end: impl FnOnce(&str) + Send + 'static,
    ) -> Result<RunningLink, Problem> {
        let precision = self.precision.precision();
        let setup = LinkSetup {
            topology,
            spec,
            schedule: plan.schedule,
            memory: plan.memory,
            ports,
            timeline,
            options: EmulatorOptions { precision, ..EmulatorOptions::default() },
            placement: self.dedicated_cpu(),
            on_early_end: Box::new(on_early_end),
        };
        Ok(RunningLink::start(setup)?)
    }

    /// A CPU for a spinning driver; this thread, and those that it starts later, no longer run there.
    fn dedicated_cpu(&self) -> Option<DriverPlacement> {
        if self.precision != PrecisionOption::Busy {
            return None;
        }
        let placement = DriverPlacement::reserve_last_cpu().ok().flatten()?;
        placement.bind_to_others().ok()?;
        Some(placement)
    }

    /// Records the device of an end if requested; `files` are other files of the command. A recording that
    /// fails later, as on a full disk, does not end the link.
    ///
    /// # Errors
    /// The file cannot be created, or the command uses it already.
    pub fn record<D: Device + Send + 'static>(
        &self,
        device: D,
        end: LinkEnd,
        files: &[PathBuf],
        timeline: InstantClock,
        problems: &LinkProblems,
    ) -> Result<BoxedDevice, Problem> {
        let (path, other) = match end {
            LinkEnd::Near => (&self.pcap, &None),
            LinkEnd::Far => (&self.pcap_far, &self.pcap),
        };
        let Some(path) = path else { return Ok(Box::new(device)) };
        let files = files.iter().chain(other).map(PathBuf::as_path);
        let problems = problems.clone();
        let recording = recorded(device, path, files, timeline)?;
        Ok(Box::new(recording.continue_on_failure(move |error| {
            problems.add(format!("a recording has ended before the link: {error}"));
        })))
    }
}

/// Reads a schedule for a link that begins as `base`.
///
/// # Errors
/// The file cannot be read, or a line of it.
fn read_schedule(path: &Path, base: &LinkSpec) -> Result<LinkSchedule, Problem> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Problem::usage(format!("cannot read the schedule {}", path.display()))
            .because(error)
            .fix("name a file with lines like '5s rate=1mbit'")
    })?;
    LinkSchedule::parse(&path.to_string_lossy(), &text, base, &LocalFiles)
        .map_err(|error| Problem::from_message(&error.to_string(), ExitReason::Usage))
}

/// Checks that a report can be written to a file, and creates it.
///
/// # Errors
/// It cannot.
pub fn check_writable(path: &Path) -> Result<(), Problem> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| not_written(path, error, ExitReason::Usage))
}

fn not_written(path: &Path, error: io::Error, exit: ExitReason) -> Problem {
    let problem = Problem::failure(format!("cannot write {}", path.display()))
        .because(error)
        .fix("name a file in a directory that exists and may be written to");
    Problem { exit, ..problem }
}

/// Prints the document of a link and writes it to the file `report`. Without `stats` the page is printed only if
/// the link was not faithful or has flags.
///
/// # Errors
/// The file or standard output cannot be written.
pub fn finish(
    document: &LinkDocument,
    stats: bool,
    report: Option<&Path>,
    output: &CliOutput,
) -> Result<(), CommandError> {
    if let Some(path) = report {
        let text = serde_json::to_string_pretty(document).map_err(io::Error::from);
        text.and_then(|text| std::fs::write(path, text + "\n"))
            .map_err(|error| not_written(path, error, ExitReason::Failure))?;
    }
    if output.json {
        output.document(document)?;
    } else if stats || !document.faithful || !document.flags.is_empty() || document.left > 0 {
        output.note(terminal::link::render(document, stats, output.style_stderr).trim_end());
    }
    Ok(())
}
