//! How a link is described on a command line.
//!
//! Options for both directions, each way's own, a preset beneath them, and further hops; all of it
//! becomes the one text form. Left out: what that means (`plumb_link::text`).

use clap::Args;
use plumb_base::seed::Seed;
use plumb_link::preset::{PRESETS, Preset};
use plumb_link::spec::{DirectionSpec, HopSpec, LinkSpec};
use plumb_link::text::Files;

use crate::problem::{Exit, Problem};

/// What a link that runs may be asked for too.
#[derive(Clone, Debug, Default, Args)]
pub struct Sides {
    /// Begin with a link of a kind: 4g, dsl, geo-satellite, …; other options change it
    #[arg(long, value_name = "NAME", help_heading = "The link")]
    preset: Option<String>,
    /// How fast: 10mbit, 1.25MB/s, 9600
    #[arg(long, value_name = "RATE", help_heading = "The link", allow_hyphen_values = true)]
    rate: Option<String>,
    /// How long a frame travels, one way: 25ms, 20ms..30ms
    #[arg(long, value_name = "TIME", help_heading = "The link", allow_hyphen_values = true)]
    delay: Option<String>,
    /// By how much that varies: 5ms
    #[arg(long, value_name = "TIME", help_heading = "The link", allow_hyphen_values = true)]
    jitter: Option<String>,
    /// Share of frames that are lost: 0.1%, 0.001
    #[arg(long, value_name = "SHARE", help_heading = "The link", allow_hyphen_values = true)]
    loss: Option<String>,
    /// What waits for the rate: drop-tail, red, codel, fq-codel, pie, drr, priority
    #[arg(long, value_name = "KIND", help_heading = "The link")]
    queue: Option<String>,
    /// How much may wait: 64packets, 64KiB, 1bdp
    #[arg(long, value_name = "SIZE", help_heading = "The link", allow_hyphen_values = true)]
    limit: Option<String>,
    /// Largest IP packet: 1400; 1400/silent tells no sender
    #[arg(long, value_name = "BYTES", help_heading = "The link", allow_hyphen_values = true)]
    mtu: Option<String>,
    /// More for the way from the command to the world: rate=1mbit,reorder=1%/5ms
    #[arg(long, value_name = "TEXT", help_heading = "The link")]
    up: Vec<String>,
    /// More for the way back
    #[arg(long, value_name = "TEXT", help_heading = "The link")]
    down: Vec<String>,
}

/// The link that is asked for.
#[derive(Clone, Debug, Default, Args)]
pub struct Shape {
    #[command(flatten)]
    sides: Sides,
    /// One more hop behind a router: rate=100mbit,delay=5ms, or UP|DOWN
    #[arg(long = "hop", value_name = "TEXT", help_heading = "The link")]
    hops: Vec<String>,
    /// What every random draw comes from: the same number gives the same link
    #[arg(long, value_name = "NUMBER", help_heading = "The link", allow_hyphen_values = true)]
    seed: Option<u64>,
}

impl Sides {
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

impl Shape {
    /// The link.
    ///
    /// # Errors
    /// A part that cannot be read, or a link that cannot be.
    pub fn spec(&self) -> Result<LinkSpec, Problem> {
        let Sides { preset: kind, up, down, .. } = &self.sides;
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
            let hop = HopSpec::parse(text, &OwnFiles).map_err(|error| of_text(&error))?;
            base.hops.push(hop);
        }
        if let Some(seed) = self.seed {
            base.seed = Seed(seed);
        }
        base.check().map_err(|error| Problem::from_message(&error.to_string(), Exit::Usage))?;
        Ok(base)
    }
}

/// The link of a text, with the files that it names.
///
/// # Errors
/// As [`Shape::spec`].
pub fn parse(text: &str) -> Result<LinkSpec, Problem> {
    LinkSpec::parse(text, &OwnFiles).map_err(|error| of_text(&error))
}

fn preset(name: &str) -> Result<&'static Preset, Problem> {
    Preset::named(name).ok_or_else(|| {
        let names = PRESETS.iter().map(|preset| preset.name);
        Problem::usage(format!("there is no preset '{name}'")).suggest(name, names)
    })
}

fn apply(direction: &mut DirectionSpec, text: &str, name: Option<&str>) -> Result<(), Problem> {
    direction.apply(text, &OwnFiles).map_err(|error| {
        let mut problem = of_text(&error);
        if let Some(name) = name {
            problem.what = format!("--{name}: {}", problem.what);
        }
        problem
    })
}

/// A text that is no link, or no change of one.
pub fn of_text(error: &plumb_link::text::TextError) -> Problem {
    Problem::from_message(&error.to_string(), Exit::Usage)
}

/// Files that the user may read.
#[derive(Clone, Copy, Debug)]
pub struct OwnFiles;

impl Files for OwnFiles {
    fn read(&self, name: &str) -> Result<String, String> {
        std::fs::read_to_string(name).map_err(|error| error.to_string())
    }
}
