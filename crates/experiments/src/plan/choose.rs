//! Plans from the words of a command line: a study or an experiment, a preset, chosen levels.

use std::collections::{BTreeMap, BTreeSet};

use plumb_store::record::FactorLevel;

use super::RunPlan;
use super::resolve::{RESPONSE, domain, resolve};
use crate::error::ExperimentError;
use crate::factor::LevelContext;
use crate::list::{self, ExperimentRequest, Study};
use crate::preset::RunPreset;
use crate::surroundings::Surroundings;

/// Levels that a user chose with `--set`, still as text, by factor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenLevels(BTreeMap<String, Vec<String>>);

impl ChosenLevels {
    /// Reads `factor=level,level` words; a factor named twice gets the levels of both.
    ///
    /// # Errors
    /// A word without `=`, without a factor or without a level.
    pub fn parse<S: AsRef<str>>(
        words: impl IntoIterator<Item = S>,
    ) -> Result<Self, ExperimentError> {
        let mut chosen = Self::default();
        for word in words {
            let word = word.as_ref();
            let parts = word.split_once('=').map(|(factor, levels)| (factor.trim(), levels));
            let levels = |text: &str| -> Vec<String> {
                // A link's text has commas of its own: it is one level.
                let separator = if text.contains('=') { '\n' } else { ',' };
                text.split(separator).map(|level| level.trim().to_owned()).collect()
            };
            match parts {
                Some((factor, text)) if !factor.is_empty() && !text.trim().is_empty() => {
                    chosen.0.entry(factor.to_owned()).or_default().extend(levels(text));
                }
                _ => {
                    return Err(ExperimentError::usage(format!("cannot read '{word}'"))
                        .because("a setting is a factor, '=' and its levels, separated by commas")
                        .fix("write it like size=64,4Ki or mechanism=pipe"));
                }
            }
        }
        Ok(chosen)
    }

    /// Whether nothing is chosen.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The levels chosen for a factor.
    pub fn levels(&self, factor: &str) -> &[String] {
        self.0.get(factor).map_or(&[], Vec::as_slice)
    }

    /// The factors with chosen levels.
    pub fn factors(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl RunPlan {
    /// The plan of a study or an experiment, complete.
    ///
    /// # Errors
    /// Unknown ids, factors or levels, with the nearest that exist.
    pub fn named(
        id: &str,
        preset: Option<RunPreset>,
        chosen: &ChosenLevels,
        surroundings: &Surroundings,
    ) -> Result<Self, ExperimentError> {
        let (limits, requests) = if let Some(study) = Study::from_id(id) {
            (study.limits(preset), (study.requests)())
        } else if let Some(experiment) = list::from_id(id) {
            (preset.unwrap_or_default().limits(), vec![ExperimentRequest::bare(experiment)])
        } else {
            return Err(unknown(id));
        };
        let requests = apply(requests, chosen)?;
        let context = LevelContext { preset: preset.unwrap_or_default(), surroundings };
        let mut experiments = Vec::new();
        for request in &requests {
            experiments.extend(resolve(request, &context)?);
        }
        Ok(Self { title: id.to_owned(), seed: None, limits, interleave: None, experiments })
    }

    /// The same plan with other levels for some factors.
    ///
    /// # Errors
    /// As [`RunPlan::named`].
    pub fn with_chosen(
        self,
        chosen: &ChosenLevels,
        surroundings: &Surroundings,
    ) -> Result<Self, ExperimentError> {
        let context = LevelContext { preset: RunPreset::default(), surroundings };
        let mut requests = Vec::new();
        for planned in &self.experiments {
            let experiment = list::find(&planned.id)?;
            // Proposed, not chosen: what the plan says yields to what these levels need.
            requests.push(ExperimentRequest {
                proposed: planned.factors.clone(),
                ..ExperimentRequest::bare(experiment)
            });
        }
        let mut experiments = Vec::new();
        for request in apply(requests, chosen)? {
            for planned in resolve(&request, &context)? {
                if !experiments.contains(&planned) {
                    experiments.push(planned);
                }
            }
        }
        Ok(Self { experiments, ..self })
    }
}

fn unknown(id: &str) -> ExperimentError {
    let studies = Study::ALL.iter().map(|study| study.id);
    let known = studies.chain(list::all().map(|experiment| experiment.id));
    ExperimentError::usage(format!("there is no experiment or study '{id}', and no such plan file"))
        .because("plumb run takes an id of plumb list, or a plan ending in .toml")
        .suggest(id, known)
}

/// Gives every request the chosen levels that concern it; those left without any are dropped.
fn apply(
    requests: Vec<ExperimentRequest>,
    chosen: &ChosenLevels,
) -> Result<Vec<ExperimentRequest>, ExperimentError> {
    let mut kept = Vec::new();
    let mut factors_used = BTreeSet::new();
    let mut levels_used: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut faults: BTreeMap<&str, ExperimentError> = BTreeMap::new();
    for mut request in requests {
        let mut concerned = true;
        for (factor, texts) in &chosen.0 {
            let Ok(kind) = domain(request.experiment, factor) else { continue };
            factors_used.insert(factor.as_str());
            let mut levels: Vec<FactorLevel> = Vec::new();
            for text in texts {
                match kind.parse(factor, text) {
                    Ok(level) => {
                        levels_used.insert((factor, text));
                        if !levels.contains(&level) {
                            levels.push(level);
                        }
                    }
                    Err(problem) => {
                        faults.entry(text).or_insert(problem);
                    }
                }
            }
            concerned &= !levels.is_empty();
            request.chosen.insert(factor.clone(), levels);
        }
        if concerned {
            kept.push(request);
        }
    }
    check_used(chosen, &factors_used, &levels_used, faults)?;
    if kept.is_empty() {
        return Err(ExperimentError::usage("no experiment is left by these settings")
            .because("each of them takes some of the chosen levels, none takes some of each factor")
            .fix("choose fewer factors, or one experiment"));
    }
    Ok(kept)
}

/// Refuses factors and levels that concerned no experiment at all.
fn check_used(
    chosen: &ChosenLevels,
    factors_used: &BTreeSet<&str>,
    levels_used: &BTreeSet<(&str, &str)>,
    mut faults: BTreeMap<&str, ExperimentError>,
) -> Result<(), ExperimentError> {
    for (factor, texts) in &chosen.0 {
        if !factors_used.contains(factor.as_str()) {
            let owners: Vec<&str> = list::all()
                .filter(|experiment| experiment.factor(factor).is_some())
                .map(|experiment| experiment.id)
                .collect();
            if !owners.is_empty() {
                return Err(ExperimentError::usage(format!(
                    "factor '{factor}' means nothing here"
                ))
                .because(format!("only {} varies it", owners.join(", ")))
                .fix(format!("plumb run {} --set {factor}=…", owners[0])));
            }
            let all: BTreeSet<&str> = list::all()
                .flat_map(|experiment| experiment.factors.iter().map(|f| f.name))
                .chain([RESPONSE])
                .collect();
            return Err(ExperimentError::usage(format!("there is no factor '{factor}' here"))
                .because("plumb list experiments shows the factors of each experiment")
                .suggest(factor, all));
        }
        for text in texts {
            if !levels_used.contains(&(factor.as_str(), text.as_str()))
                && let Some(problem) = faults.remove(text.as_str())
            {
                return Err(problem);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn named(id: &str, words: &[&str]) -> Result<RunPlan, ExperimentError> {
        let chosen = ChosenLevels::parse(words).unwrap();
        RunPlan::named(id, Some(RunPreset::Quick), &chosen, &Surroundings::NONE)
    }

    #[test]
    fn chosen_levels_replace_the_presets() {
        let plan =
            named("latency.local", &["mechanism=pipe", "mechanism=tcp4", "size=4Ki"]).unwrap();
        let mechanisms: Vec<_> =
            plan.experiments.iter().flat_map(|e| e.factors["mechanism"].clone()).collect();
        assert_eq!(mechanisms, vec![FactorLevel::from("pipe"), FactorLevel::from("tcp4")]);
        assert_eq!(plan.experiments[0].factors["size"], vec![FactorLevel::Int(4096)]);
    }

    #[test]
    fn a_level_that_only_some_experiments_take_drops_the_others() {
        let plan = named("ipc", &["mechanism=udp4"]).unwrap();
        assert!(plan.experiments.iter().any(|e| e.id == "udp.large"));
        assert!(!plan.experiments.iter().any(|e| e.id == "tcp.options"));
        // Kernel calls have no mechanism, so the choice does not concern them.
        assert!(plan.experiments.iter().any(|e| e.id == "call.kernel"));
    }

    #[test]
    fn misspelt_words_of_a_command_line_name_their_neighbours() {
        for (id, words, fix) in [
            ("latncy.local", vec![], "did you mean 'latency.local'?"),
            ("latency.local", vec!["mecanism=pipe"], "did you mean 'mechanism'?"),
            ("latency.local", vec!["mechanism=pip"], "did you mean 'pipe'?"),
            ("latency.local", vec!["mechanism=pipe,tpc4"], "did you mean 'tcp4'?"),
            ("throughput.local", vec!["response=throughputs"], "did you mean 'throughput'?"),
            ("latency.local", vec!["nodelay=on"], "plumb run tcp.options --set nodelay=…"),
        ] {
            let problem = named(id, &words).unwrap_err();
            assert_eq!(problem.fix.as_deref(), Some(fix), "{problem}");
            assert_eq!(problem.kind, ErrorKind::Usage);
        }
        assert!(ChosenLevels::parse(["size"]).is_err());
        assert!(ChosenLevels::parse(["size="]).is_err());
        assert!(named("latency.local", &["size=0"]).is_err());
    }

    #[test]
    fn a_stored_plan_takes_chosen_levels_too() {
        let plan = named("ladder", &[]).unwrap();
        let chosen = ChosenLevels::parse(["mechanism=pipe", "size=1Ki"]).unwrap();
        let plan = plan.with_chosen(&chosen, &Surroundings::NONE).unwrap();
        let latencies: Vec<_> =
            plan.experiments.iter().filter(|e| e.id == "latency.local").collect();
        assert!(latencies.iter().all(|e| e.factors["size"] == vec![FactorLevel::Int(1024)]));
    }

    #[test]
    fn every_named_plan_round_trips_through_toml() {
        for preset in RunPreset::ALL {
            for id in ["ladder", "ipc", "tcp.options"] {
                let (chosen, none) = (ChosenLevels::default(), &Surroundings::NONE);
                let mut plan = RunPlan::named(id, Some(preset), &chosen, none).unwrap();
                plan.seed = Some(7);
                assert_eq!(RunPlan::from_toml(&plan.to_toml(), "stored", none), Ok(plan));
            }
        }
    }
}
