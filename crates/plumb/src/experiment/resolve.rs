//! Filling in the levels that a request leaves open, so that the plan is complete in itself.
//!
//! Levels that a user chose are kept as they are; a preset's are made to suit: an eventfd gets its
//! eight bytes instead of the ten sizes. Left out: combining levels into cells
//! (`super::expand`).

use std::collections::BTreeMap;

use plumb_host::topology::Placement;
use plumb_store::record::{Factors, Level};

use super::local::PLACEMENT;
use super::path::{HOST, LINK, is_host_level};
use super::{Domain, Experiment, Factor};
use crate::net::far;
use crate::plan::{PlannedExperiment, Preset};
use crate::problem::Problem;

/// The factor name under which a plan selects responses.
pub const RESPONSE: &str = "response";

/// One experiment as asked for, before the preset fills the gaps.
#[derive(Clone, Debug)]
pub struct Request {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// Levels that a study proposes instead of the preset's.
    pub proposed: BTreeMap<String, Vec<Level>>,
    /// Levels that the user chose.
    pub chosen: BTreeMap<String, Vec<Level>>,
}

impl Request {
    /// An experiment with everything left to the preset.
    pub fn bare(experiment: &'static Experiment) -> Self {
        Self { experiment, proposed: BTreeMap::new(), chosen: BTreeMap::new() }
    }

    /// The same with levels that a study proposes for one factor.
    #[must_use]
    pub fn propose(mut self, factor: &str, levels: &[&str]) -> Self {
        self.proposed.insert(factor.to_owned(), super::factor::words(levels));
        self
    }

    /// The same with sizes that a study proposes.
    #[must_use]
    pub fn propose_sizes(mut self, sizes: &[u64]) -> Self {
        self.proposed.insert("size".to_owned(), super::factor::numbers(sizes));
        self
    }
}

/// The planned experiments that a request makes: levels of the first factor that need the same
/// levels elsewhere share one.
///
/// # Errors
/// A chosen factor that means nothing at any level of the first one.
pub fn resolve(request: &Request, preset: Preset) -> Result<Vec<PlannedExperiment>, Problem> {
    let experiment = request.experiment;
    let Some((first, others)) = experiment.factors.split_first() else {
        return Ok(Vec::new());
    };
    let mut planned: Vec<PlannedExperiment> = Vec::new();
    for level in open_levels(request, first, preset) {
        let driver = Factors::default().with(first.name, level.clone());
        let mut factors = rest(request, others, &driver, preset);
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
            return Err(Problem::usage(format!("factor '{name}' means nothing here"))
                .because(format!("no {} chosen for {} has it", first.name, experiment.id))
                .fix(format!("leave {name} out, or choose another {}", first.name)));
        }
    }
    Ok(planned)
}

/// The levels of every factor but the first, at one level of the first.
fn rest(
    request: &Request,
    others: &[Factor],
    driver: &Factors,
    preset: Preset,
) -> BTreeMap<String, Vec<Level>> {
    let mut factors = BTreeMap::new();
    for factor in others.iter().filter(|factor| (factor.applies)(driver)) {
        let levels = match request.chosen.get(factor.name) {
            Some(chosen) => chosen.clone(),
            None => (factor.fit)(driver, open_levels(request, factor, preset)),
        };
        factors.insert(factor.name.to_owned(), levels);
    }
    seat_on_own_hosts(request, driver, &mut factors);
    let responses = request.chosen.get(RESPONSE).or_else(|| request.proposed.get(RESPONSE));
    if let Some(responses) = responses {
        factors.insert(RESPONSE.to_owned(), responses.clone());
    }
    factors
}

/// Places processes on two hosts as processes on two hosts can be, unless the user has placed them.
fn seat_on_own_hosts(
    request: &Request,
    driver: &Factors,
    factors: &mut BTreeMap<String, Vec<Level>>,
) {
    if request.chosen.contains_key(PLACEMENT.name) {
        return;
    }
    let links: Vec<Level> = match (driver.text(LINK.name), factors.get(LINK.name)) {
        (Some(link), _) => vec![link.into()],
        (None, links) => links.cloned().unwrap_or_default(),
    };
    let (some, all) = (links.iter().any(is_host), links.iter().all(is_host));
    let Some(places) = factors.get_mut(PLACEMENT.name).filter(|_| some) else { return };
    let own = Level::from(Placement::OwnHost.name());
    if all {
        places.retain(|place| *place == own || *place == Placement::Scheduler.name().into());
    }
    if places.is_empty() || (!all && !places.contains(&own)) {
        places.push(own);
    }
}

/// The levels of a factor, chosen, proposed or the preset's; of the link the other host, where one was named.
fn open_levels(request: &Request, factor: &Factor, preset: Preset) -> Vec<Level> {
    if factor.name == LINK.name
        && far::is_asked()
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
        .unwrap_or_else(|| (factor.levels)(preset))
}

/// Whether a level of the link is another host.
fn is_host(level: &Level) -> bool {
    matches!(level, Level::Text(text) if is_host_level(text))
}

fn without(factors: &BTreeMap<String, Vec<Level>>, name: &str) -> BTreeMap<String, Vec<Level>> {
    let mut others = factors.clone();
    others.remove(name);
    others
}

/// What a factor of an experiment may be, the selection of responses included.
///
/// # Errors
/// No such factor; names the nearest.
pub fn domain(experiment: &Experiment, factor: &str) -> Result<FactorKind, Problem> {
    if factor == RESPONSE {
        return Ok(FactorKind::Response(experiment.responses.iter().map(|r| r.name).collect()));
    }
    experiment.factor(factor).map(|factor| FactorKind::Levels(factor.domain)).ok_or_else(|| {
        let names = experiment.factors.iter().map(|f| f.name).chain([RESPONSE]);
        Problem::usage(format!("{} has no factor '{factor}'", experiment.id))
            .because(format!("its factors are {}", names.clone().collect::<Vec<_>>().join(", ")))
            .suggest(factor, names)
    })
}

/// What a factor may be.
#[derive(Clone, Debug)]
pub enum FactorKind {
    /// A factor proper.
    Levels(Domain),
    /// The selection of responses, by name.
    Response(Vec<&'static str>),
}

impl FactorKind {
    /// Reads one level.
    ///
    /// # Errors
    /// What is wrong with the text, and what would do.
    pub fn parse(&self, factor: &str, text: &str) -> Result<Level, Problem> {
        match self {
            Self::Levels(domain) => domain.parse(factor, text),
            Self::Response(names) if names.contains(&text.trim()) => Ok(text.trim().into()),
            Self::Response(names) => Err(Problem::usage(format!("'{text}' is not a response"))
                .because(format!("there are {}", names.join(", ")))
                .suggest(text, names.iter().copied())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{factor, latency, remote, scaling_lan};

    #[test]
    fn mechanisms_of_one_size_are_planned_at_it_and_share_a_plan() {
        let plans = resolve(&Request::bare(&latency::LOCAL), Preset::Quick).unwrap();
        let of = |name: &str| {
            let level = Level::from(name);
            plans.iter().find(|plan| plan.factors["mechanism"].contains(&level)).unwrap()
        };
        assert_eq!(of("eventfd").factors["size"], factor::numbers(&[8]));
        assert!(std::ptr::eq(of("eventfd"), of("signal")));
        assert_eq!(of("pipe").factors["size"].len(), 10);
        assert_eq!(of("shm-spin").factors["wake"], factor::words(&["spin"]));
        assert!(of("tcp4").factors.contains_key("congestion"));
        assert!(!of("pipe").factors.contains_key("congestion"));
    }

    #[test]
    fn chosen_levels_are_kept_even_where_they_do_not_suit() {
        let mut request = Request::bare(&latency::LOCAL);
        request.chosen.insert("size".to_owned(), factor::numbers(&[64]));
        let plans = resolve(&request, Preset::Quick).unwrap();
        assert!(plans.iter().all(|plan| plan.factors["size"] == factor::numbers(&[64])));
    }

    #[test]
    fn a_chosen_factor_that_means_nothing_is_refused() {
        let mut request = Request::bare(&latency::LOCAL);
        request.chosen.insert("mechanism".to_owned(), factor::words(&["pipe"]));
        request.chosen.insert("congestion".to_owned(), factor::words(&["reno"]));
        let problem = resolve(&request, Preset::Quick).unwrap_err();
        assert!(problem.what.contains("congestion"), "{problem}");
    }

    #[test]
    fn processes_on_two_hosts_are_placed_on_a_cpu_of_each_unless_the_user_places_them() {
        let own = Level::from("own-host");
        let placed = |experiment, links: &[&str], places: Option<&[&str]>| {
            let mut request = Request::bare(experiment);
            request.chosen.insert("link".to_owned(), factor::words(links));
            if let Some(places) = places {
                request.chosen.insert("placement".to_owned(), factor::words(places));
            }
            let plans = resolve(&request, Preset::Quick).unwrap();
            let places = plans.iter().flat_map(|plan| plan.factors["placement"].clone());
            let mut places: Vec<Level> = places.collect();
            places.dedup();
            places
        };
        // The link is the first factor of one of them, and another one of the other.
        for experiment in [&scaling_lan::SCALING_LAN, &remote::LATENCY_REMOTE] {
            assert_eq!(placed(experiment, &["host"], None), factor::words(&["own-host"]));
            let both = placed(experiment, &["host", "veth"], None);
            assert!(both.contains(&own) && both.contains(&"same-cpu".into()), "{both:?}");
            assert_eq!(placed(experiment, &["host"], Some(&["scheduler"])), ["scheduler".into()]);
            assert!(!placed(experiment, &["veth"], None).contains(&own));
        }
    }

    #[test]
    fn resolving_a_resolved_plan_changes_nothing() {
        for plan in resolve(&Request::bare(&latency::LOCAL), Preset::Paper).unwrap() {
            let again = Request { chosen: plan.factors.clone(), ..Request::bare(&latency::LOCAL) };
            assert_eq!(resolve(&again, Preset::Quick).unwrap(), vec![plan]);
        }
    }
}
