//! `plumb sim`: runs scenarios in virtual time.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use plumb_analysis::document::sim::{SCHEMA, SimDocument, SimRun};
use plumb_report::{html, terminal};

use super::export::{check_writable, write_file};
use super::output::{CliOutput, CommandResult};
use super::{GlobalOptions, handle_stop_signals};
use crate::problem::{ExitReason, Problem};

mod runner;
pub mod scenario_file;
mod stored_run;
mod trace;

use scenario_file::{ScenarioFile, ScenarioOptions, SweptScenario};

/// Simulate hosts, routers and links in virtual time
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The hosts run plumb's own TCP, the links are those of 'plumb link', and time is virtual: a result is the same every
time and on every machine, whatever else that does. No privileges are needed. A file with a [sweep] is run at each of
its points. In every run conservation of packets and bytes, Little's law, and that no packet is earlier than
transmission and propagation allow, are checked; exit code 4 if one does not hold. The result is a run of the store, in
which each replication counts as a launch: 'plumb show', 'report' and 'compare' read it.

A scenario, in TOML:
  duration = \"30s\"
  warmup = \"10s\"                                   figures begin after it

  [topology]
  kind = \"dumbbell\"                                pair, parking-lot, star, fat-tree; or [[link]]s
  pairs = 2
  access = \"rate=1gbit,delay=1ms\"                  links as in 'plumb link'
  bottleneck = \"rate=100mbit,delay=20ms,limit=$buffer\"

  [[flow]]
  from = \"left*\"                                   left1 to right1, left2 to right2
  to = \"right*\"
  congestion = \"cubic\"

  [[source]]                                       open loop: constant, poisson, on-off, pareto
  pattern = \"poisson\"
  from = \"left1\"
  to = \"right1\"
  rate = \"5mbit\"

  [sweep]
  buffer = [\"0.25bdp\", \"1bdp\"]

Examples:
  plumb sim scenarios/buffer-size.toml
  plumb sim scenarios/buffer-size.toml --set buffer=1bdp --all
  plumb sim my.toml --check
  plumb sim my.toml --json --digest
  plumb sim my.toml --pcap packets.pcapng          for Wireshark; frame.interface_name is the link")]
pub struct SimCommand {
    #[command(flatten)]
    scenario: ScenarioOptions,
    /// Only check the file, and print what it needs
    #[arg(long)]
    check: bool,
    /// Show every connection and link
    #[arg(long)]
    all: bool,
    /// Draw connections and queues over time in this page
    #[arg(long, short, value_name = "FILE.html", conflicts_with = "check")]
    output: Option<PathBuf>,
    /// Do not store the result
    #[arg(long)]
    no_store: bool,
}

impl SimCommand {
    /// Runs the scenario at each point of its sweep and prints what was found.
    ///
    /// # Errors
    /// A file that cannot be read or simulated; a store that cannot be written; an interruption.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let file = self.scenario.load()?;
        if let Some(warning) = file.warning()? {
            output.note(&warning);
        }
        if self.check && output.json {
            return Err(Problem::usage("a check has no document to print")
                .because("it prints a line of text")
                .fix("leave --json or --check out")
                .into());
        }
        if self.check {
            let text = output.style.wrap(&checked(&file, self.scenario.memory)?, 0).join("\n");
            return output.page(&text).map(|()| ExitReason::Success);
        }
        if let Some(page) = &self.output {
            check_writable(page)?;
        }
        handle_stop_signals()?;
        let points: Vec<&SweptScenario> = file.points.iter().collect();
        let mut runs = BTreeMap::new();
        self.scenario.run(&file, &points, output, |index, run| {
            runs.insert(index, run);
            Ok(())
        })?;
        let document = document(&file, runs.into_values().collect());
        if let Some(page) = &self.output {
            write_file(page, html::simulation(&document, env!("CARGO_PKG_VERSION")).as_bytes())?;
        }
        let store = (!self.no_store).then_some(global);
        show(&document, self.all, store, output)
    }
}

/// The document of simulations of a file.
pub(super) fn document(file: &ScenarioFile, runs: Vec<SimRun>) -> SimDocument {
    SimDocument {
        schema: SCHEMA.to_owned(),
        file: file.name.clone(),
        file_sha256: file.sha256.clone(),
        runs,
    }
}

/// Stores simulations, in a store if any, and prints them; a failure where one broke a law.
pub(super) fn show(
    document: &SimDocument,
    all: bool,
    store: Option<&GlobalOptions>,
    output: &CliOutput,
) -> CommandResult {
    // Printed even where they cannot be stored.
    let stored = store.map_or(Ok(()), |global| stored_run::store(global, output, document));
    output.show(document, |style| terminal::sim::render(document, all, style))?;
    stored?;
    let is_sound = document.runs.iter().all(|run| run.violations.is_empty());
    Ok(if is_sound { ExitReason::Success } else { ExitReason::Failure })
}

/// What a file holds, and what it needs; a failure where that is more than `memory` bytes.
fn checked(file: &ScenarioFile, memory: u64) -> Result<String, Problem> {
    let mut most = 0;
    for point in &file.points {
        let need = point.scenario.memory_need().map_err(|error| file.rejected(error))?;
        need.check(memory).map_err(|error| file.rejected(error))?;
        most = most.max(need.bytes());
    }
    let Some(SweptScenario { scenario: first, .. }) = file.points.first() else {
        return Ok(String::new());
    };
    let hosts = first.network.hosts().len();
    let plural = |count: usize, one: &str| {
        if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
    };
    let points = match file.points.len() {
        1 => String::new(),
        points => format!(", {points} points"),
    };
    Ok(format!(
        "{} is a scenario: {}, {}, {}, {}, {}, {} of virtual time{points}; packets need at most {} MiB",
        file.name,
        plural(hosts, "host"),
        plural(first.network.nodes.len() - hosts, "router"),
        plural(first.network.edges.len(), "link"),
        plural(first.flow_count(), "connection"),
        plural(first.sources.len(), "source"),
        first.duration,
        most.div_ceil(1 << 20),
    ))
}
