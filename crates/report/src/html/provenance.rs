//! Where the numbers come from: machine, plan, how to repeat them, how they were made.
//!
//! Left out: any interpretation of a setting; doctor does that.

use plumb_analysis::document::RunDocument;

use super::{PageSection, details, element, part, table};
use crate::table::TextTable;

/// CPU, kernel, date and run in one line.
pub(super) fn subtitle(document: &RunDocument) -> String {
    let machine = |key: &str| document.machine.get(key).cloned();
    let kernel = machine("kernel.release").map(|release| format!("Linux {release}"));
    let run = &document.run;
    [machine("cpu.model"), kernel, Some(run.created.clone()), Some(format!("run {}", run.id))]
        .into_iter()
        .flatten()
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" · ")
}

/// Machine, notes, plan and the command that repeats the run.
pub(super) fn machine(document: &RunDocument) -> Vec<PageSection> {
    let run = &document.run;
    let repeated = document.repeat_command().map(|command| element::escape(&command));
    let mut body = match repeated {
        None => "<p>Another tool has measured this: plumb cannot repeat it.".to_owned(),
        Some(command) if run.plan.is_empty() => format!(
            "<p>Measure it again with <code>{command}</code>; then <code>plumb compare</code> the two."
        ),
        Some(command) => format!(
            "<p>Everything needed to repeat this run is stored with it: <code>{command}</code>. \
             On another machine, save the plan below as <code>plan.toml</code> and use \
             <code>plumb run plan.toml --seed {}</code>; then <code>plumb compare</code> the two.",
            run.seed,
        ),
    };
    let mut facts = TextTable::with_heads(&["fact", "value"]);
    let header = [
        ("run", &run.id),
        ("title", &run.title),
        ("begun", &run.created),
        ("status", &run.status),
        ("program", &run.code),
    ];
    for (key, value) in header {
        facts.push([key.to_owned(), value.clone()]);
    }
    facts.push(["seed".to_owned(), run.seed.to_string()]);
    for (key, value) in &document.notes {
        facts.push([key.clone(), value.clone()]);
    }
    body += &details("The run", &table(&facts, "The run"));
    let mut settings = TextTable::with_heads(&["setting", "value"]);
    for (key, value) in &document.machine {
        settings.push([key.clone(), value.clone()]);
    }
    let title = format!("The machine: {} settings", settings.rows.len());
    body += &details(&title, &table(&settings, "The machine"));
    if !run.plan.is_empty() {
        let plan = format!("<pre tabindex=\"0\">{}</pre>", element::escape(&run.plan));
        body += &details("The plan", &plan);
    }
    vec![part("origin", "Machine, plan, and how to repeat it", body)]
}

/// How the numbers were made, in short.
pub(super) fn method(_document: &RunDocument) -> Vec<PageSection> {
    let mut body = String::from("<dl>");
    for (term, meaning) in METHOD {
        body += &format!("<dt>{term}<dd>{meaning}");
    }
    body += "</dl><p>The whole method, with reasons and sources: <code>plumb help method</code>.";
    vec![part("method", "How these numbers were made", body)]
}

const METHOD: [(&str, &str); 8] = [
    (
        "Launch",
        "A fresh pair of processes. Intervals are over launches (hierarchical bootstrap), because \
         that is where most of the variance is; a long run of one pair is not replication.",
    ),
    (
        "Order",
        "Cells and launches are visited in random order, interleaved, so that drift of the \
         machine hits all of them alike.",
    ),
    (
        "95 % interval",
        "Covers the true median of this machine, as configured, in 95 of 100 such runs. It says \
         nothing about other machines.",
    ),
    (
        "Latency",
        "Half a round trip in closed loop: the next message leaves when the last has returned. It \
         is a service time, not a response time under load.",
    ),
    (
        "Throughput",
        "What the receiver verified. With one acknowledgement at the end, or with each message \
         acknowledged; both are given, for they are different questions.",
    ),
    (
        "A dash",
        "The sample cannot support that percentile: quartiles and p90 take 36 independent samples \
         or fewer, p99 takes 368, p99.9 takes 3,688, where slow ones that come together count once. \
         p90 and above take five launches and an interval that spans no more than a factor of ten.",
    ),
    (
        "CPU here, CPU peer",
        "Processor time for one operation, kernel included, of the side that times and of the \
         other. Softirq time is counted in ticks for the CPUs used.",
    ),
    (
        "Placement",
        "Where the two processes run. It often matters more than the mechanism: waking an idle \
         CPU takes longer than most messages.",
    ),
];
