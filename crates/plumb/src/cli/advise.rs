//! `plumb advise`: whether to send items one by one, pipelined, in batches or structured.

use std::path::PathBuf;

use clap::Args;
use plumb_analysis::advice::{AdvisedWork, SendingMode};
use plumb_analysis::cost_model::{self, PredictedCost};
use plumb_analysis::document::advise::{
    ADVISE_SCHEMA, AdviceCurve, AdviceScore, AdviseDocument, AdvisedChange, AdvisedMode,
};
use plumb_analysis::summary::measured_cells;
use plumb_base::time::Span;
use plumb_base::units::Rate;
use plumb_base::units::quantity::{parse_rate, parse_span};
use plumb_experiments::display::advised::{AdvisedDrawing, advised_drawings};
use plumb_report::advice;

use super::export::{check_writable, write_file};
use super::output::{CliOutput, CommandResult};
use super::predict::{keep_errors, kept_errors, models_of};
use super::{GlobalOptions, store};
use crate::VERSION;
use crate::problem::{ExitReason, Problem};

/// Advise how to send items over a path: one by one, pipelined, in batches or structured
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The cost of a message is the fixed term of 'plumb model' for tcp4, of a stored run, or what --message says.

Examples:
  plumb advise --items 1000 --rtt 40ms --rate 10mbit --message 10us
  plumb advise --items 1000 --rtt 40ms --rate 10mbit --message 10us --dependent 0.1 --loss 0.001
  plumb advise --items 780 --instances 30 --rtt 100ms --rate 1mbit --message 10us
  plumb advise --items 1000 --rtt 40ms --rate 10mbit --run last --json
  plumb advise --items 1000 --rtt 40ms --rate 10mbit --message 10us -o advice.html
  plumb study distributed --quick && plumb advise --score last   how well this predicts drawings, for intervals")]
pub struct AdviseCommand {
    /// Items to send
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(required_unless_present = "score")]
    items: Option<u32>,
    /// Bytes of an item
    #[arg(long, value_name = "BYTES", default_value_t = 20)]
    size: u32,
    /// Share of items that need the reply to the one before, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse_share)]
    dependent: f64,
    /// Calls that stand for all items in a structured form
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    instances: Option<u32>,
    /// Round-trip time
    #[arg(long, value_name = "TIME", value_parser = parse_span, required_unless_present = "score")]
    rtt: Option<Span>,
    /// Rate of the link
    #[arg(long, value_name = "RATE", value_parser = parse_rate, required_unless_present = "score")]
    rate: Option<Rate>,
    /// Share of packets that are lost
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse_share)]
    loss: f64,
    /// Bytes of a packet beside its items: headers
    #[arg(long, value_name = "BYTES", default_value_t = 74)]
    header: u32,
    /// Time of either end for a message
    #[arg(long, value_name = "TIME", value_parser = parse_span, conflicts_with = "run")]
    message: Option<Span>,
    /// Time of either end for an item, beside its message
    #[arg(long, value_name = "TIME", default_value = "0ns", value_parser = parse_span)]
    item: Span,
    /// The run whose model says what a message costs: its id, a prefix of it, last or last~N
    #[arg(long, value_name = "RUN", default_value = "last")]
    run: String,
    /// Write a page with each way's time by the round-trip time as well
    #[arg(long, short, value_name = "FILE.html", conflicts_with = "score")]
    output: Option<PathBuf>,
    /// Compare the model with the drawings of a run instead, and keep its errors: intervals come of them
    #[arg(long, value_name = "RUN", conflicts_with_all = ["items", "rtt", "rate"])]
    score: Option<String>,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok();
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "it is not a share from 0 to 1".to_owned())
}

/// A way of sending: its name, the work as it has it, and the mode with the window or the batch that suits.
type SendingWay = (&'static str, AdvisedWork, SendingMode);

/// Round-trip times of the curves, in nanoseconds: three in each decade from 10 µs to 1 s.
const CURVE_RTTS: std::ops::RangeInclusive<i32> = 12..=27;

impl AdviseCommand {
    /// Predicts each way, and prints it.
    ///
    /// # Errors
    /// No cost of a message is known, or nothing is there to score.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        if let Some(path) = &self.output {
            check_writable(path)?;
        }
        let document = match &self.score {
            Some(run) => score(run, global)?,
            None => self.advice(global)?,
        };
        if let Some(path) = &self.output {
            let page = advice::page(&document, VERSION);
            write_file(path, page.as_bytes())?;
            output.note(&format!("{}: {} kB", path.display(), page.len().div_ceil(1_000)));
        }
        output.show(&document, |style| advice::in_terminal(&document, style))?;
        Ok(ExitReason::Success)
    }

    fn advice(&self, global: &GlobalOptions) -> Result<AdviseDocument, Problem> {
        let (Some(items), Some(rtt), Some(rate)) = (self.items, self.rtt, self.rate) else {
            return Err(Problem::usage("advice needs --items, --rtt and --rate"));
        };
        let (message_ns, costs) = self.message_cost(global)?;
        let work = AdvisedWork {
            items: f64::from(items),
            item_bytes: f64::from(self.size),
            dependent: self.dependent,
            rtt_ns: rtt.as_ns_f64(),
            rate: rate.bits_per_second() as f64 / 8.0,
            loss: self.loss,
            sender_item_ns: self.item.as_ns_f64(),
            receiver_item_ns: self.item.as_ns_f64(),
            message_ns,
            message_bytes: f64::from(self.header),
        };
        let waiting = SendingMode::StopAndWait;
        let structured = self.instances.map(|it| AdvisedWork { items: f64::from(it), ..work });
        let ways: Vec<SendingWay> = [
            ("stop-and-wait", Some(work), waiting),
            ("pipelined", Some(work), SendingMode::Pipelined { window: work.window() }),
            ("batched", Some(work), SendingMode::Batched { batch: work.batch() }),
            (
                "structured",
                structured,
                SendingMode::Batched { batch: structured.map_or(1.0, |work| work.batch()) },
            ),
        ]
        .into_iter()
        .filter_map(|(name, work, mode)| Some((name, work?, mode)))
        .collect();
        let store = store::open_if_there(global)?;
        let mut modes = Vec::new();
        for (name, way, mode) in &ways {
            let time = PredictedCost { ns: way.time_ns(*mode), interval: [f64::NAN; 2] };
            let kept = match &store {
                Some(store) => kept_errors(store, kind(*mode), None)?,
                None => Vec::new(),
            };
            let interval = time.calibrated(&kept).interval;
            modes.push(AdvisedMode {
                mode: (*name).to_owned(),
                time_ns: time.ns,
                interval: interval[0].is_finite().then_some(interval),
                break_even_ns: work
                    .break_even_ns(waiting, *mode, 2.0)
                    .filter(|_| *mode != waiting && *name != "structured"),
            });
        }
        Ok(AdviseDocument {
            schema: ADVISE_SCHEMA.to_owned(),
            costs,
            message_ns,
            batch: work.batch(),
            window: work.window(),
            modes,
            curves: ways.iter().map(curve).collect(),
            changes: changes(&ways),
            scores: Vec::new(),
        })
    }

    /// Nanoseconds of a message at either end, and where that comes from.
    fn message_cost(&self, global: &GlobalOptions) -> Result<(f64, String), Problem> {
        if let Some(message) = self.message {
            return Ok((message.as_ns_f64(), "given".to_owned()));
        }
        self.stored_message_cost(global).map_err(|problem| {
            // The same of every run that lacks it, and of none.
            let why =
                problem.why.map_or(problem.what.clone(), |why| format!("{}: {why}", problem.what));
            let measure =
                "plumb run latency.local --set mechanism=tcp4 --set size=1,64,1Ki,16Ki,64Ki";
            Problem::usage("what a message costs is not known")
                .because(why)
                .fix(format!("say it, as with --message 10us, or measure it: {measure}"))
        })
    }

    /// The same, of the stored run.
    fn stored_message_cost(&self, global: &GlobalOptions) -> Result<(f64, String), Problem> {
        let data = store::read(global, &self.run)?;
        let measured = measured_cells(&data);
        let (models, _) = models_of(&data, &measured)?;
        let tcp = models.iter().find(|model| model.factors.text("mechanism") == Some("tcp4"));
        let no_tcp = || Problem::usage(format!("run {} has no model of tcp4", data.run.id));
        let tcp = tcp.ok_or_else(no_tcp)?;
        // A latency is one way: a message's cost at both ends.
        Ok((tcp.fixed_ns() / 2.0, format!("tcp4 of run {}", data.run.id)))
    }
}

/// A way's time by the round-trip time.
fn curve((name, way, mode): &SendingWay) -> AdviceCurve {
    let rtts = CURVE_RTTS.map(|third| 10_f64.powf(f64::from(third) / 3.0));
    let point = |rtt_ns| [rtt_ns, AdvisedWork { rtt_ns, ..*way }.best_time_ns(*mode)];
    AdviceCurve { mode: (*name).to_owned(), points: rtts.map(point).collect() }
}

/// What each change makes of the fastest way, the best first.
fn changes(ways: &[SendingWay]) -> Vec<AdvisedChange> {
    let improvements = AdvisedWork::IMPROVEMENTS.into_iter();
    let mut changes: Vec<AdvisedChange> = improvements
        .map(|(change, better)| {
            let times = ways.iter().map(|(_, way, mode)| better(way).best_time_ns(*mode));
            let time_ns = times.fold(f64::INFINITY, f64::min);
            AdvisedChange { change: change.to_owned(), time_ns }
        })
        .collect();
    changes.sort_by(|a, b| a.time_ns.total_cmp(&b.time_ns));
    changes
}

/// The kind of prediction that errors are kept by.
const fn kind(mode: SendingMode) -> &'static str {
    match mode {
        SendingMode::StopAndWait => "stop-and-wait",
        SendingMode::Pipelined { .. } => "pipelined",
        SendingMode::Batched { .. } => "batched",
    }
}

/// Round trips up to this are short: what processors and kernels take decides.
const SHORT_RTT_NS: f64 = 1e6;

/// Compares the model with the drawings of a run, and keeps its errors.
fn score(run: &str, global: &GlobalOptions) -> Result<AdviseDocument, Problem> {
    let data = store::read(global, run)?;
    let drawings = advised_drawings(&measured_cells(&data));
    if drawings.is_empty() {
        return Err(Problem::usage(format!("run {} has no drawings to predict", data.run.id))
            .because("costs are those of path=direct, and what is predicted are other paths")
            .fix("measure them: plumb study distributed --quick"));
    }
    let pair = |it: &AdvisedDrawing| {
        let ns = it.work.time_ns(it.mode);
        (it.measured_ns, PredictedCost { ns, interval: [f64::NAN; 2] })
    };
    let mut scores = Vec::new();
    let mut add = |of: &str, is_meant: &dyn Fn(&AdvisedDrawing) -> bool| {
        let pairs: Vec<(f64, PredictedCost)> =
            drawings.iter().filter(|it| is_meant(it)).map(pair).collect();
        let errors: Vec<f64> = pairs.iter().map(|(ns, it)| it.log_error(*ns)).collect();
        scores.push(AdviceScore { of: of.to_owned(), score: cost_model::score(&pairs) });
        errors
    };
    add("all", &|_| true);
    add("RTT up to 1 ms", &|it| it.work.rtt_ns <= SHORT_RTT_NS);
    for way in ["stop-and-wait", "pipelined", "batched"] {
        let errors = add(way, &|it| kind(it.mode) == way);
        keep_errors(&errors, way, [&data.run.id, &data.run.id], global)?;
    }
    let schema = ADVISE_SCHEMA.to_owned();
    Ok(AdviseDocument { schema, scores, ..AdviseDocument::default() })
}
