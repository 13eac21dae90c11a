//! Filling in the levels that a request leaves open, so that the plan is complete in itself.
//!
//! Levels that a user chose are kept as they are; a preset's are made to suit: an eventfd gets its
//! eight bytes instead of the ten sizes.

use std::collections::BTreeMap;

use plumb_harness::topology::CpuPlacement;
use plumb_store::record::{FactorLevel, Factors};

use super::PlannedExperiment;
use crate::definition::Experiment;
use crate::error::ExperimentError;
use crate::factor::channel::PLACEMENT;
use crate::factor::link::{HOST, LINK, is_host_level};
use crate::factor::{Factor, FactorDomain, LevelContext};
use crate::list::ExperimentRequest;

/// The factor name under which a plan selects responses.
pub const RESPONSE: &str = "response";

/// The planned experiments that a request makes: levels of the first factor that need the same
/// levels elsewhere share one.
///
/// # Errors
/// A chosen factor that means nothing at any level of the first one.
pub fn resolve(
    request: &ExperimentRequest,
    context: &LevelContext<'_>,
) -> Result<Vec<PlannedExperiment>, ExperimentError> {
    let experiment = request.experiment;
    let Some((first, others)) = experiment.factors.split_first() else {
        return Ok(Vec::new());
    };
    let mut planned: Vec<PlannedExperiment> = Vec::new();
    for level in open_levels(request, first, context) {
        let driver = Factors::default().with(first.name, level.clone());
        let mut factors = other_factors(request, others, &driver, context);
        let same = |plan: &&mut PlannedExperiment| without(&plan.factors, first.name) == factors;
        if let Some(plan) = planned.iter_mut().find(same) {
            plan.factors.entry(first.name.to_owned()).or_default().push(level);
        } else {
            factors.insert(first.name.to_owned(), vec![level]);
            planned.push(PlannedExperiment { id: experiment.id.to_owned(), factors });
        }
    }
    for name in request.chosen.keys() {
        if !planned.iter().any(|plan| plan.factors.contains_key(name)) {
            return Err(ExperimentError::usage(format!("factor '{name}' means nothing here"))
                .because(format!("no {} chosen for {} has it", first.name, experiment.id))
                .fix(format!("leave {name} out, or choose another {}", first.name)));
        }
    }
    Ok(planned)
}

/// The levels of every factor but the first, at one level of the first.
fn other_factors(
    request: &ExperimentRequest,
    others: &[Factor],
    driver: &Factors,
    context: &LevelContext<'_>,
) -> BTreeMap<String, Vec<FactorLevel>> {
    let mut factors = BTreeMap::new();
    for factor in others.iter().filter(|factor| (factor.applies)(driver)) {
        let levels = match request.chosen.get(factor.name) {
            Some(chosen) => chosen.clone(),
            None => (factor.fit)(driver, open_levels(request, factor, context)),
        };
        factors.insert(factor.name.to_owned(), levels);
    }
    place_on_own_hosts(request, driver, &mut factors);
    let responses = request.chosen.get(RESPONSE).or_else(|| request.proposed.get(RESPONSE));
    if let Some(responses) = responses {
        factors.insert(RESPONSE.to_owned(), responses.clone());
    }
    factors
}

/// Places processes on two hosts as processes on two hosts can be, unless the user has placed them.
fn place_on_own_hosts(
    request: &ExperimentRequest,
    driver: &Factors,
    factors: &mut BTreeMap<String, Vec<FactorLevel>>,
) {
    if request.chosen.contains_key(PLACEMENT.name) {
        return;
    }
    let links: Vec<FactorLevel> = match (driver.text(LINK.name), factors.get(LINK.name)) {
        (Some(link), _) => vec![link.into()],
        (None, links) => links.cloned().unwrap_or_default(),
    };
    let (some, all) = (links.iter().any(is_host), links.iter().all(is_host));
    let Some(places) = factors.get_mut(PLACEMENT.name).filter(|_| some) else { return };
    let own = FactorLevel::from(CpuPlacement::OwnHost.name());
    if all {
        places.retain(|place| *place == own || *place == CpuPlacement::Scheduler.name().into());
    }
    if places.is_empty() || (!all && !places.contains(&own)) {
        places.push(own);
    }
}

/// The levels of a factor, chosen, proposed or the preset's; of the link the other host, where one was named.
fn open_levels(
    request: &ExperimentRequest,
    factor: &Factor,
    context: &LevelContext<'_>,
) -> Vec<FactorLevel> {
    if factor.name == LINK.name
        && context.surroundings.is_host_requested
        && !request.chosen.contains_key(factor.name)
        // A stored plan that names it already says what else it wants.
        && !request.proposed.get(factor.name).is_some_and(|links| links.iter().any(is_host))
        && let Ok(host) = factor.domain.parse(factor.name, HOST)
    {
        return vec![host];
    }
    request
        .chosen
        .get(factor.name)
        .or_else(|| request.proposed.get(factor.name))
        .cloned()
        .unwrap_or_else(|| factor.preset_levels(context))
}

/// Whether a level of the link is another host.
fn is_host(level: &FactorLevel) -> bool {
    matches!(level, FactorLevel::Text(text) if is_host_level(text))
}

fn without(
    factors: &BTreeMap<String, Vec<FactorLevel>>,
    name: &str,
) -> BTreeMap<String, Vec<FactorLevel>> {
    let mut others = factors.clone();
    others.remove(name);
    others
}

/// What a factor of an experiment may be, the selection of responses included.
///
/// # Errors
/// No such factor; names the nearest.
pub fn domain(experiment: &Experiment, factor: &str) -> Result<FactorKind, ExperimentError> {
    if factor == RESPONSE {
        return Ok(FactorKind::Response(experiment.responses.iter().map(|r| r.name).collect()));
    }
    experiment.factor(factor).map(|factor| FactorKind::Levels(factor.domain)).ok_or_else(|| {
        let names = experiment.factors.iter().map(|f| f.name).chain([RESPONSE]);
        ExperimentError::usage(format!("{} has no factor '{factor}'", experiment.id))
            .because(format!("its factors are {}", names.clone().collect::<Vec<_>>().join(", ")))
            .suggest(factor, names)
    })
}

/// What a factor may be.
#[derive(Clone, Debug)]
pub enum FactorKind {
    /// A factor proper.
    Levels(FactorDomain),
    /// The selection of responses, by name.
    Response(Vec<&'static str>),
}

impl FactorKind {
    /// Reads one level.
    ///
    /// # Errors
    /// What is wrong with the text, and what would do.
    pub fn parse(&self, factor: &str, text: &str) -> Result<FactorLevel, ExperimentError> {
        match self {
            Self::Levels(domain) => domain.parse(factor, text),
            Self::Response(names) if names.contains(&text.trim()) => Ok(text.trim().into()),
            Self::Response(names) => {
                Err(ExperimentError::usage(format!("'{text}' is not a response"))
                    .because(format!("there are {}", names.join(", ")))
                    .suggest(text, names.iter().copied()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::factor;
    use crate::ipc::{latency_local, latency_remote};
    use crate::preset::RunPreset;
    use crate::scaling::scaling_lan;
    use crate::surroundings::Surroundings;

    fn context(preset: RunPreset) -> LevelContext<'static> {
        LevelContext { preset, surroundings: &Surroundings::NONE }
    }

    #[test]
    fn mechanisms_of_one_size_are_planned_at_it_and_share_a_plan() {
        let plans = resolve(
            &ExperimentRequest::bare(&latency_local::EXPERIMENT),
            &context(RunPreset::Quick),
        )
        .unwrap();
        let of = |name: &str| {
            let level = FactorLevel::from(name);
            plans.iter().find(|plan| plan.factors["mechanism"].contains(&level)).unwrap()
        };
        assert_eq!(of("eventfd").factors["size"], factor::numbers(&[8]));
        assert!(std::ptr::eq(of("eventfd"), of("signal")));
        assert_eq!(of("pipe").factors["size"].len(), 6);
        assert_eq!(of("shm-spin").factors["wake"], factor::words(&["spin"]));
        assert!(of("tcp4").factors.contains_key("congestion"));
        assert!(!of("pipe").factors.contains_key("congestion"));
    }

    #[test]
    fn chosen_levels_are_kept_even_where_they_do_not_suit() {
        let mut request = ExperimentRequest::bare(&latency_local::EXPERIMENT);
        request.chosen.insert("size".to_owned(), factor::numbers(&[64]));
        let plans = resolve(&request, &context(RunPreset::Quick)).unwrap();
        assert!(plans.iter().all(|plan| plan.factors["size"] == factor::numbers(&[64])));
    }

    #[test]
    fn a_chosen_factor_that_means_nothing_is_refused() {
        let mut request = ExperimentRequest::bare(&latency_local::EXPERIMENT);
        request.chosen.insert("mechanism".to_owned(), factor::words(&["pipe"]));
        request.chosen.insert("congestion".to_owned(), factor::words(&["reno"]));
        let problem = resolve(&request, &context(RunPreset::Quick)).unwrap_err();
        assert!(problem.what.contains("congestion"), "{problem}");
    }

    #[test]
    fn processes_on_two_hosts_are_placed_on_a_cpu_of_each_unless_the_user_places_them() {
        let own = FactorLevel::from("own-host");
        let placed = |experiment, links: &[&str], places: Option<&[&str]>| {
            let mut request = ExperimentRequest::bare(experiment);
            request.chosen.insert("link".to_owned(), factor::words(links));
            if let Some(places) = places {
                request.chosen.insert("placement".to_owned(), factor::words(places));
            }
            let plans = resolve(&request, &context(RunPreset::Quick)).unwrap();
            let places = plans.iter().flat_map(|plan| plan.factors["placement"].clone());
            let mut places: Vec<FactorLevel> = places.collect();
            places.dedup();
            places
        };
        // The link is the first factor of one of them, and another one of the other.
        for experiment in [&scaling_lan::EXPERIMENT, &latency_remote::EXPERIMENT] {
            assert_eq!(placed(experiment, &["host"], None), factor::words(&["own-host"]));
            let both = placed(experiment, &["host", "veth"], None);
            assert!(both.contains(&own) && both.contains(&"same-cpu".into()), "{both:?}");
            assert_eq!(placed(experiment, &["host"], Some(&["scheduler"])), ["scheduler".into()]);
            assert!(!placed(experiment, &["veth"], None).contains(&own));
        }
    }

    #[test]
    fn resolving_a_resolved_plan_changes_nothing() {
        for plan in resolve(
            &ExperimentRequest::bare(&latency_local::EXPERIMENT),
            &context(RunPreset::Paper),
        )
        .unwrap()
        {
            let again = ExperimentRequest {
                chosen: plan.factors.clone(),
                ..ExperimentRequest::bare(&latency_local::EXPERIMENT)
            };
            assert_eq!(resolve(&again, &context(RunPreset::Quick)).unwrap(), vec![plan]);
        }
    }
}
