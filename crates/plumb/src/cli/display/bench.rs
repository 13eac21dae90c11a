//! `plumb display bench`: rates of every mode over every path, with what crossed the connection.

use std::path::{Path, PathBuf};

use clap::Args;
use plumb_analysis::document::display::{
    DisplayDocument, DisplayRateResult, DisplayTaskResult, SCHEMA,
};
use plumb_base::stats::hierarchy::SampleHierarchy;
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_span;
use plumb_base::units::{Unit, significant};
use plumb_clock::Stopwatch;
use plumb_display::client::{ClientMode, ClientStep};
use plumb_display::server::DisplayLimits;
use plumb_display::transport::DisplayConnection;
use plumb_display::workload::{DisplayDrawing, DisplayRate, VIEW};
use plumb_experiments::display::connection::{DisplayAddress, DisplayStream};
use plumb_experiments::display::local_path::{AnyTransport, LocalPath};
use plumb_experiments::display::measure::{DisplayPlan, DisplaySample, decoding};
use plumb_experiments::display::session::{SessionSample, SessionTask, session, session_tasks};
use plumb_experiments::display::{DRAWINGS, MODES, NamedDrawing};
use plumb_report::table::TextTable;
use plumb_report::terminal::TerminalStyle;
use plumb_report::value;

use crate::cli::output::{CliOutput, CommandResult};
use crate::cli::progress::ProgressBar;
use crate::cli::{handle_stop_signals, is_stopped};
use crate::problem::{ExitReason, Problem};

/// Measure how fast a display is drawn on, by mode and path
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Modes: construction adds items in batches; batch draws them at the end; incremental draws each as it is added
and waits for every reply; pipelined-incremental does not wait; display draws again what is there. A rate counts
once the frame is proved by its checksum. Without --connect the display is a thread of this process.

Examples:
  plumb display bench
  plumb display bench --path tcp --drawing array --time 1s
  plumb display bench --connect 127.0.0.1:1985 --json
  plumb display bench --path direct --drawing structured-array --png array.png
  plumb display bench --session               what a person waits for: pictures, edits, a million rectangles, zoom, pan")]
pub struct DisplayBenchCommand {
    /// Measure a display that runs already, instead of this process's own
    #[arg(long, value_name = "ADDRESS", conflicts_with = "path")]
    connect: Option<DisplayAddress>,
    /// Paths to the display: direct, unix, tcp, websocket, messages (transactions over UDP), messages-early (replied to before they are
    /// carried out), byte-stream (over UDP)
    #[arg(long, value_name = "PATH,…", value_delimiter = ',', default_value = "direct,unix,tcp")]
    #[arg(value_parser = parse_path)]
    path: Vec<LocalPath>,
    /// Drawings: polygon, array, structured-array, polygon-bitmap, array-bitmap, text, chip,
    /// structured-chip
    #[arg(long, value_name = "DRAWING,…", value_delimiter = ',', value_parser = parse_drawing)]
    #[arg(default_value = "polygon,array,structured-array,text")]
    drawing: Vec<NamedDrawing>,
    /// Rounds, each over new connections
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Time of a rate in each round
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_span)]
    time: Span,
    /// Write the frame of the last drawing to this file
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Measure the tasks of an editing session instead of rates
    #[arg(long, conflicts_with_all = ["drawing", "time", "png"])]
    session: bool,
}

fn parse_path(text: &str) -> Result<LocalPath, String> {
    let names = LocalPath::ALL.map(LocalPath::name).join(", ");
    LocalPath::from_name(text)
        .ok_or_else(|| format!("there is no path '{text}': choose from {names}"))
}

fn parse_drawing(text: &str) -> Result<NamedDrawing, String> {
    let names = DRAWINGS.map(|(name, _)| name).join(", ");
    let found = DRAWINGS.into_iter().find(|(name, _)| *name == text);
    found.ok_or_else(|| format!("there is no drawing '{text}': choose from {names}"))
}

/// One rate and its samples, one a round.
struct BenchCell {
    path: String,
    drawing: NamedDrawing,
    /// None is what is decoded only.
    plan: Option<DisplayPlan>,
    mode: &'static str,
    samples: Vec<DisplaySample>,
}

impl DisplayBenchCommand {
    /// Measures, and prints the rates.
    ///
    /// # Errors
    /// No display answers, or it refuses a drawing.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        handle_stop_signals()?;
        if self.session {
            return self.session(output);
        }
        let mut cells = self.cells();
        let mut live = ProgressBar::new(output);
        let mut rounds = 0;
        while rounds < self.rounds && !is_stopped() {
            for index in 0..cells.len() {
                let done = f64::from(rounds) + index as f64 / cells.len() as f64;
                if let Some(live) = &mut live {
                    live.draw(done / f64::from(self.rounds), cells[index].mode);
                }
                let sample = self.measure(&cells[index])?;
                cells[index].samples.push(sample);
                if is_stopped() {
                    break;
                }
            }
            rounds += 1;
        }
        drop(live);
        if let Some(file) = &self.png {
            self.write_picture(file)?;
        }
        let rates = cells.iter().filter_map(BenchCell::result).collect();
        let document =
            DisplayDocument { schema: SCHEMA.to_owned(), rounds, rates, session: Vec::new() };
        output.show(&document, |style| page(&document, style))?;
        Ok(if is_stopped() { ExitReason::Interrupted } else { ExitReason::Success })
    }

    /// Does every task over every path in each round.
    fn session(&self, output: &CliOutput) -> CommandResult {
        let (tasks, paths) = (session_tasks(), self.paths());
        let mut live = ProgressBar::new(output);
        let mut samples: Vec<Vec<Vec<SessionSample>>> = vec![Vec::new(); paths.len()];
        let mut rounds = 0;
        while rounds < self.rounds && !is_stopped() {
            for (index, path) in paths.iter().enumerate() {
                let done = f64::from(rounds) + index as f64 / paths.len() as f64;
                if let Some(live) = &mut live {
                    live.draw(done / f64::from(self.rounds), path);
                }
                let watch = Stopwatch::new(None);
                let sample = session(&tasks, watch, || self.open(path), Problem::failed)?;
                samples[index].push(sample);
            }
            rounds += 1;
        }
        drop(live);
        let results = paths.iter().zip(&samples).flat_map(|(path, of_path)| {
            tasks.iter().enumerate().filter_map(|(at, task)| {
                let samples: Vec<SessionSample> = of_path.iter().map(|round| round[at]).collect();
                task_result(path, task, &samples)
            })
        });
        let document = DisplayDocument {
            schema: SCHEMA.to_owned(),
            rounds,
            rates: Vec::new(),
            session: results.collect(),
        };
        output.show(&document, |style| session_page(&document, style))?;
        Ok(if is_stopped() { ExitReason::Interrupted } else { ExitReason::Success })
    }

    fn paths(&self) -> Vec<String> {
        match &self.connect {
            Some(address) => vec![address.to_string()],
            None => self.path.iter().map(|path| path.name().to_owned()).collect(),
        }
    }

    /// Every path with every drawing in every mode that is other than those before.
    fn cells(&self) -> Vec<BenchCell> {
        let mut cells = Vec::new();
        for path in &self.paths() {
            for drawing in &self.drawing {
                let cell = |mode, plan| BenchCell {
                    path: path.clone(),
                    drawing: *drawing,
                    plan,
                    mode,
                    samples: Vec::new(),
                };
                if path == LocalPath::Direct.name() {
                    cells.push(cell("decode", None));
                }
                let is_large = drawing.1.items() > 100_000;
                for (mode, rate) in MODES {
                    let is_incremental = matches!(
                        rate,
                        DisplayRate::Incremental | DisplayRate::PipelinedIncremental
                    );
                    if !(is_large && is_incremental) {
                        cells.push(cell(mode, Some(DisplayPlan::new(drawing.1, rate))));
                    }
                }
            }
        }
        cells
    }

    fn open(&self, path: &str) -> Result<DisplayConnection<AnyTransport>, Problem> {
        let transport = if let Some(address) = &self.connect {
            let stream = DisplayStream::connect(address).map_err(|error| {
                Problem::failure(format!("no display answers at {address}"))
                    .because(error)
                    .fix(format!("start one with 'plumb display serve {address}'"))
            })?;
            AnyTransport::socket(stream)
        } else {
            let path = LocalPath::from_name(path).unwrap_or(LocalPath::Direct);
            path.open(DisplayLimits::default(), None)
                .map_err(|error| Problem::failure("the kernel refuses a socket").because(error))?
        };
        DisplayConnection::open(transport).map_err(Problem::failed)
    }

    fn measure(&self, cell: &BenchCell) -> Result<DisplaySample, Problem> {
        let watch = Stopwatch::new(None);
        let ticks = watch.ticks(self.time.as_ns() as f64);
        match &cell.plan {
            Some(plan) => {
                let mut connection = self.open(&cell.path)?;
                plan.prepare(&mut connection).map_err(Problem::failed)?;
                plan.sample(&mut connection, watch, ticks).map_err(Problem::failed)
            }
            None => Ok(decoding(cell.drawing.1, watch, ticks)),
        }
    }

    fn write_picture(&self, file: &Path) -> Result<(), Problem> {
        let drawing =
            self.drawing.last().map_or(DisplayDrawing::FlatArray, |(_, drawing)| *drawing);
        let path = self.path.first().map_or("direct", |path| path.name());
        let mut steps = vec![ClientStep::Define { symbol: 0 }, drawing.view()];
        steps.extend(DisplayRate::Batch.steps(drawing));
        steps.push(ClientStep::Picture { view: VIEW });
        let mut connection = self.open(path)?;
        connection.perform(&steps, ClientMode::BATCHED, 4_096).map_err(Problem::failed)?;
        let picture = connection.client.take_picture().unwrap_or_default();
        std::fs::write(file, picture).map_err(|error| {
            Problem::usage(format!("cannot write '{}'", file.display())).because(error)
        })
    }
}

impl BenchCell {
    /// What is published of it, where it was measured.
    fn result(&self) -> Option<DisplayRateResult> {
        let last = self.samples.last()?;
        let launches = self.samples.iter().map(|sample| vec![vec![sample.rate]]).collect();
        let rates = SampleHierarchy::new(launches);
        let interval = rates.median_interval(0.95);
        let is_text = matches!(self.drawing.1, DisplayDrawing::Text);
        Some(DisplayRateResult {
            path: self.path.clone(),
            drawing: self.drawing.0.to_owned(),
            mode: self.mode.to_owned(),
            unit: if is_text { "characters" } else { "items" }.to_owned(),
            rate: rates.median(),
            low: interval.map(|interval| interval.lo),
            high: interval.map(|interval| interval.hi),
            units: self.drawing.1.units(),
            messages: last.messages,
            bytes_sent: last.bytes_sent,
            bytes_received: last.bytes_received,
            round_trips: last.round_trips,
            checksum: last.checksum.map(|sum| format!("{sum:016x}")),
        })
    }
}

/// What is published of a task; none where it was not done.
fn task_result(
    path: &str,
    task: &SessionTask,
    samples: &[SessionSample],
) -> Option<DisplayTaskResult> {
    let last = samples.last()?;
    let times = SampleHierarchy::new(samples.iter().map(|it| vec![vec![it.ns]]).collect());
    let interval = times.median_interval(0.95);
    Some(DisplayTaskResult {
        path: path.to_owned(),
        task: task.name.to_owned(),
        about: task.about.to_owned(),
        ns: times.median(),
        low: interval.map(|interval| interval.lo),
        high: interval.map(|interval| interval.hi),
        bytes: last.bytes,
        round_trips: last.round_trips,
        checksum: last.checksum.map(|sum| format!("{sum:016x}")),
    })
}

fn session_page(document: &DisplayDocument, style: TerminalStyle) -> String {
    let table = TextTable::of_rows(
        &document.session,
        &[
            ("path", &|it: &DisplayTaskResult| it.path.clone()),
            ("task", &|it| it.task.clone()),
            ("what??", &|it| it.about.clone()),
            ("#time", &|it| {
                value::with_interval(
                    Unit::Nanoseconds,
                    it.ns,
                    it.low.zip(it.high).map(|(low, high)| [low, high]),
                )
            }),
            ("#bytes", &|it| value::plain(Unit::Bytes, it.bytes)),
            ("#round trips", &|it| significant(it.round_trips, 3)),
        ],
    );
    format!(
        "{}\nUntil the frame is proved by its checksum; median and interval over {} rounds, each over a new connection.\n",
        table.render(style),
        document.rounds
    )
}

/// A rate with its prefix.
fn rate(value: f64) -> String {
    let scales = [(1e6, " M/s"), (1e3, " k/s")];
    let (scale, unit) = scales.into_iter().find(|it| value >= it.0).unwrap_or((1.0, "/s"));
    format!("{}{unit}", significant(value / scale, 3))
}

fn page(document: &DisplayDocument, style: TerminalStyle) -> String {
    let mut table = TextTable::with_heads(&[
        "path",
        "drawing",
        "mode",
        "#rate",
        "#95 %",
        "#frames/s??",
        "#messages??",
        "#bytes?",
        "#round trips",
    ]);
    for row in &document.rates {
        let interval = row.low.zip(row.high);
        let is_drawn = row.checksum.is_some();
        let frames = row.rate / f64::from(row.units.max(1));
        table.push([
            row.path.clone(),
            row.drawing.clone(),
            row.mode.clone(),
            rate(row.rate),
            interval
                .map_or_else(String::new, |(low, high)| format!("{} to {}", rate(low), rate(high))),
            if is_drawn { significant(frames, 3) } else { String::new() },
            significant(row.messages, 3),
            significant(row.bytes_sent + row.bytes_received, 4),
            significant(row.round_trips, 3),
        ]);
    }
    format!(
        "{}\nItems a second, or characters of text; median and interval over {} rounds. Messages, bytes and round trips \
         that depend on each other are of one drawing.\n",
        table.render(style),
        document.rounds
    )
}
