//! Plans as TOML that reads back as the same plan.

use std::fmt::Write as _;

use plumb_store::record::FactorLevel;

use super::RunPlan;
use super::span_text;
use crate::list;
use crate::preset::RunLimits;

impl RunPlan {
    /// The plan as TOML, complete: `plumb run` of it measures the same cells on the same host.
    pub fn to_toml(&self) -> String {
        let mut text = format!("title = {}\n", quoted(&self.title));
        if let Some(seed) = self.seed {
            // TOML integers are signed; a seed is any 64 bits.
            let _ = writeln!(text, "seed = \"{seed}\"");
        }
        limits(&mut text, &self.limits);
        for planned in &self.experiments {
            let _ = write!(text, "\n[[experiment]]\nid = {}\n", quoted(&planned.id));
            text.push_str("[experiment.factors]\n");
            let experiment = list::from_id(&planned.id);
            for (name, levels) in &planned.factors {
                let domain = experiment.and_then(|e| e.factor(name)).map(|factor| factor.domain);
                let spelt: Vec<String> = levels
                    .iter()
                    .map(|level| {
                        let spelt = domain.map_or_else(|| level.to_string(), |d| d.spell(level));
                        match level {
                            FactorLevel::Int(n) if spelt == n.to_string() => spelt,
                            _ => quoted(&spelt),
                        }
                    })
                    .collect();
                let _ = writeln!(text, "{} = [{}]", key(name), spelt.join(", "));
            }
        }
        text
    }
}

fn limits(text: &mut String, limits: &RunLimits) {
    let budget = limits.budget.map_or_else(|| "none".to_owned(), span_text::format);
    let _ = write!(
        text,
        "\n[limits]\nbudget = {}\nlaunches_min = {}\nlaunches_max = {}\npasses = {}\n\
         block = {}\nsamples_max = {}\nprecision = {:?}\n",
        quoted(&budget),
        limits.launches_min,
        limits.launches_max,
        limits.passes,
        quoted(&span_text::format(limits.block)),
        limits.samples_max,
        limits.precision,
    );
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A TOML key: bare where it may be.
fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(bare) { name.to_owned() } else { quoted(name) }
}
