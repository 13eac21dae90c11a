//! `plumb advise`: whether to send items one by one, pipelined, in batches or structured.

use clap::Args;
use plumb_analysis::advice::{AdvisedWork, SendingMode};
use plumb_analysis::document::advise::{ADVISE_SCHEMA, AdviseDocument, AdvisedMode};
use plumb_analysis::summary::measured_cells;
use plumb_base::time::Span;
use plumb_base::units::quantity::{parse_rate, parse_span};
use plumb_base::units::rate::Rate;
use plumb_report::terminal;

use super::model::models_of;
use super::output::{CliOutput, CommandResult};
use super::{GlobalOptions, store};
use crate::problem::{ExitReason, Problem};

/// Advise how to send items over a path: one by one, pipelined, in batches or structured
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The cost of a message is the fixed term of 'plumb model' for tcp4, of a stored run, or what --message says.

Examples:
  plumb advise --items 1000 --rtt 40ms --rate 10mbit --message 10us
  plumb advise --items 1000 --rtt 40ms --rate 10mbit --message 10us --dependent 0.1 --loss 0.001
  plumb advise --items 780 --instances 30 --rtt 100ms --rate 1mbit --message 10us
  plumb advise --items 1000 --rtt 40ms --rate 10mbit --run last --json")]
pub struct AdviseCommand {
    /// Items to send
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    items: u32,
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
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    rtt: Span,
    /// Rate of the link
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Rate,
    /// Share of packets that are lost
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse_share)]
    loss: f64,
    /// Bytes of a message beside its items, headers included
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
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok();
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "it is not a share from 0 to 1".to_owned())
}

impl AdviseCommand {
    /// Predicts each way, and prints it.
    ///
    /// # Errors
    /// No cost of a message is known.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let (message_ns, costs) = self.message_cost(global)?;
        let work = AdvisedWork {
            items: f64::from(self.items),
            item_bytes: f64::from(self.size),
            dependent: self.dependent,
            rtt_ns: self.rtt.as_ns_f64(),
            rate: self.rate.bits_per_second() as f64 / 8.0,
            loss: self.loss,
            sender_item_ns: self.item.as_ns_f64(),
            receiver_item_ns: self.item.as_ns_f64(),
            message_ns,
            message_bytes: f64::from(self.header),
        };
        let (batch, window) = (work.batch(), work.window());
        let waiting = SendingMode::StopAndWait;
        let mut modes: Vec<AdvisedMode> = [
            ("stop-and-wait", waiting),
            ("pipelined", SendingMode::Pipelined { window }),
            ("batched", SendingMode::Batched { batch }),
        ]
        .into_iter()
        .map(|(name, mode)| AdvisedMode {
            mode: name.to_owned(),
            time_ns: work.time_ns(mode),
            break_even_ns: work.break_even_ns(waiting, mode, 2.0).filter(|_| mode != waiting),
        })
        .collect();
        if let Some(instances) = self.instances {
            let structured = AdvisedWork { items: f64::from(instances), ..work };
            let batch = structured.batch();
            modes.push(AdvisedMode {
                mode: "structured".to_owned(),
                time_ns: structured.time_ns(SendingMode::Batched { batch }),
                break_even_ns: None,
            });
        }
        let schema = ADVISE_SCHEMA.to_owned();
        let document = AdviseDocument { schema, costs, message_ns, batch, window, modes };
        output.show(&document, |style| terminal::advise::render(&document, style))?;
        Ok(ExitReason::Success)
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
