//! The other host that the experiments of this process go to: how it was asked for, and what was found at the first look.
//!
//! What its agent does for a launch is in `plumb_harness::supervisor`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::OnceLock;

use plumb_analysis::document::host_notes;
use plumb_base::time::Span;
use plumb_experiments::surroundings::ReachedHost;
use plumb_harness::spec::HostSpec;
use plumb_harness::supervisor::client::{ReachError, SupervisorClient};
use plumb_remote::client::TaskClientError;
use plumb_remote::message::HelloError;
use plumb_remote::session::SessionFault;

use super::agent_connection::{self, agent_script, cannot_run, last_line, problem_from_stderr};
use super::host_target::{
    AddressFamily, HostTarget, ReachMethod, choose_address, resolve, ssh_host,
};
use crate::VERSION;
use crate::problem::Problem;

/// How another host was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherHostRequest {
    /// `user@host`, `netns:NAME`, or what it shall be called where a command leads there.
    pub host: Option<String>,
    /// The command that runs another there.
    pub via: Option<String>,
    /// The address that data goes to.
    pub to: Option<String>,
    /// The ssh program with its options.
    pub ssh: Vec<String>,
}

/// What was asked for: one host for a whole process.
static REQUESTED: OnceLock<OtherHostRequest> = OnceLock::new();
/// What was found there.
static FOUND: OnceLock<ReachedHost> = OnceLock::new();

/// Has the experiments of this process go to another host.
pub fn request(asked: OtherHostRequest) {
    // The first one holds; nobody asks twice.
    REQUESTED.set(asked).ok();
}

/// Whether they are to.
pub fn is_requested() -> bool {
    REQUESTED.get().is_some()
}

/// The host that was found.
pub fn found() -> Option<&'static ReachedHost> {
    FOUND.get()
}

/// Looks for the host that was asked for, if one was.
///
/// # Errors
/// Why it cannot be reached, with the fix.
pub fn find() -> Result<(), Problem> {
    let Some(asked) = REQUESTED.get() else { return Ok(()) };
    if FOUND.get().is_none() {
        FOUND.set(probe_host(asked)?).ok();
    }
    Ok(())
}

/// Whether the host that was found is still there; why not, otherwise.
///
/// # Errors
/// Why it is not reached any more.
pub fn find_again() -> Result<(), Problem> {
    match REQUESTED.get() {
        Some(asked) => probe_host(asked).map(drop),
        None => Ok(()),
    }
}

fn probe_host(asked: &OtherHostRequest) -> Result<ReachedHost, Problem> {
    let place = HostTarget::parse(asked.host.as_deref(), asked.via.as_deref())?;
    let command = command(&place, &asked.ssh)?;
    // A name that nobody knows is said before anything is started.
    let named = named_addresses(asked, &place)?;
    let mut spec = HostSpec {
        name: place.requested.clone(),
        command,
        version: VERSION.to_owned(),
        v4: None,
        v6: None,
        cpus: Vec::new(),
    };
    let mut reached = SupervisorClient::connect(&spec).map_err(|error| explain(&place, &error))?;
    let candidates = named.unwrap_or_else(|| {
        [AddressFamily::V4, AddressFamily::V6]
            .into_iter()
            .filter_map(|family| choose_address(reached.addresses(), family))
            .collect()
    });
    if candidates.is_empty() {
        return Err(Problem::failure(format!(
            "no address of '{}' can be reached from here",
            place.requested
        ))
        .because(format!("it says that it has: {}", reached.addresses().join(", ")))
        .fix("name one with --to"));
    }
    let mut round_trip: Option<Span> = None;
    let mut facts = BTreeMap::new();
    let mut refusal = None;
    for address in candidates {
        match reached.probe(address) {
            Ok((took, host_info)) => {
                let family = if address.is_ipv4() { &mut spec.v4 } else { &mut spec.v6 };
                *family = Some(address);
                round_trip = Some(round_trip.map_or(took, |other| other.min(took)));
                (spec.cpus, facts) = (host_info.cpus, host_info.facts);
            }
            Err(reason) => drop(refusal.get_or_insert(reason)),
        }
    }
    let Some(round_trip) = round_trip else {
        let reason = refusal.unwrap_or_default();
        let (why, fix) =
            reason.rsplit_once("; ").unwrap_or((&reason, "name another address with --to"));
        let (why, fix) =
            why.rsplit_once(": let through").map_or((why, fix.to_owned()), |(why, rest)| {
                (why, format!("let through{rest}; {fix}"))
            });
        return Err(Problem::failure(format!("no data gets to '{}'", place.requested))
            .because(why)
            .fix(fix));
    };
    let notes = notes(asked, &spec, &facts, round_trip);
    Ok(ReachedHost { spec, round_trip, notes })
}

/// The addresses of the name that data goes to, one of each version; none where the host itself is to say.
fn named_addresses(
    asked: &OtherHostRequest,
    place: &HostTarget,
) -> Result<Option<Vec<SocketAddr>>, Problem> {
    let name = match (&asked.to, &place.method) {
        (Some(to), _) => to.clone(),
        (None, ReachMethod::Ssh { target, .. }) => ssh_host(&asked.ssh, target),
        (None, _) => return Ok(None),
    };
    let first = resolve(&name, AddressFamily::Any)?;
    let other = if first.is_ipv4() { AddressFamily::V6 } else { AddressFamily::V4 };
    Ok(Some(std::iter::once(first).chain(resolve(&name, other).ok()).collect()))
}

/// The program, with its arguments, that gives the standard streams of an agent there.
fn command(place: &HostTarget, ssh: &[String]) -> Result<Vec<String>, Problem> {
    let command = match &place.method {
        ReachMethod::Via(line) => {
            let own = std::env::current_exe().map_err(|error| {
                Problem::failure("cannot find plumb's own program file").because(error)
            })?;
            let own = own.display().to_string().replace('\'', r"'\''");
            let mut command = Command::new("sh");
            // The command runs another there: a shell that looks for plumb.
            command.args(["-c", &format!("{line} \"$@\""), "sh", "sh", "-c"]);
            command.arg(agent_script(Some(&format!("'{own}'"))));
            command
        }
        ReachMethod::Paired(_) => {
            return Err(Problem::usage("experiments do not go to an agent that listens")
                .because(
                    "their far processes are started for each launch, by ssh or by another command",
                )
                .fix("name the host as ssh does, or the command that leads there with --via"));
        }
        ReachMethod::Ssh { .. } | ReachMethod::Namespace(_) => {
            // A password could be asked for at every launch; and who is gone is to be known soon.
            let options = [
                "-o",
                "BatchMode=yes",
                "-o",
                "ServerAliveInterval=5",
                "-o",
                "ServerAliveCountMax=3",
            ];
            agent_connection::command(place, ssh, &options)?
        }
    };
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    Ok(words.map(|word| word.to_string_lossy().into_owned()).collect())
}

/// Why there is no agent.
fn explain(place: &HostTarget, error: &ReachError) -> Problem {
    let asked = &place.requested;
    let (error, status, said) = match error {
        ReachError::Start { program, source } => return cannot_run(program, place, source),
        ReachError::VersionMismatch { theirs, .. } => return skew(asked, theirs),
        ReachError::Session { error, status, said } => (error, *status, said.as_str()),
    };
    let TaskClientError::Session(session) = error else {
        return Problem::failed(error);
    };
    match &session.fault {
        SessionFault::Hello(HelloError::Skew { there, .. }) => skew(asked, there),
        SessionFault::Closed | SessionFault::Hello(HelloError::NotPlumb { .. }) => {
            match problem_from_stderr(place, status, said) {
                Some(problem) => without_prompt(problem),
                // One that has no agents calls the word unknown.
                None if said.contains("unrecognized subcommand") => skew(asked, "an older version"),
                None => ended(asked, status, said),
            }
        }
        fault => {
            let last = last_line(said);
            let why = if last.is_empty() { fault.to_string() } else { last.to_owned() };
            Problem::failure(format!("'{asked}' does not answer"))
                .because(why)
                .fix("check that it is up and that no firewall is between")
        }
    }
}

/// A command that led to no plumb, whatever the reason.
fn ended(asked: &str, status: Option<i32>, said: &str) -> Problem {
    let how = status.map_or_else(|| "was killed".to_owned(), |code| format!("ended with {code}"));
    let last = last_line(said);
    let why = if last.is_empty() {
        format!("the command that leads there {how}")
    } else {
        last.to_owned()
    };
    Problem::failure(format!("no plumb on '{asked}' answered"))
        .because(why)
        .fix("see whether the command that leads there runs another one there")
}

/// A login that asks for nothing: at each launch there would be nobody to answer.
fn without_prompt(problem: Problem) -> Problem {
    let fix =
        problem.fix.as_ref().map(|fix| fix.replace("first: ssh ", "first: ssh -o BatchMode=yes "));
    Problem { fix, ..problem }
}

fn skew(asked: &str, theirs: &str) -> Problem {
    Problem::failure(format!("'{asked}' has another plumb: {theirs}"))
        .because(format!(
            "this one is {VERSION}, and both ends of a measurement must be one program"
        ))
        .fix(format!("copy this one there: plumb net {asked} --install"))
}

/// What a run records of the host.
fn notes(
    asked: &OtherHostRequest,
    spec: &HostSpec,
    facts: &BTreeMap<String, String>,
    round_trip: Span,
) -> BTreeMap<String, String> {
    let addresses: Vec<String> =
        [spec.v4, spec.v6].into_iter().flatten().map(|at| at.ip().to_string()).collect();
    let cpus: Vec<String> = spec.cpus.iter().map(u32::to_string).collect();
    let mut notes = BTreeMap::from([
        (host_notes::NAME.to_owned(), spec.name.clone()),
        (host_notes::ADDRESS.to_owned(), addresses.join(" ")),
        (host_notes::VERSION.to_owned(), spec.version.clone()),
        (host_notes::ROUND_TRIP.to_owned(), round_trip.as_ns().to_string()),
        (host_notes::OPTIONS.to_owned(), asked.options()),
        (format!("{}cpus", host_notes::PREFIX), cpus.join(" ")),
    ]);
    for (name, fact) in facts {
        notes.insert(format!("{}{name}", host_notes::PREFIX), fact.clone());
    }
    notes
}

impl OtherHostRequest {
    /// The options that ask for the same.
    fn options(&self) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        let plain =
            |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "@.:-_[]%".contains(c));
        let told = |name: &str, value: &Option<String>| {
            let value = value.as_ref()?;
            Some(format!("{name} {}", if plain(value) { value.clone() } else { quoted(value) }))
        };
        let all = [told("--host", &self.host), told("--via", &self.via), told("--to", &self.to)];
        all.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use plumb_remote::session::ControlSessionError;

    use super::*;

    #[test]
    fn how_a_host_was_reached_is_told_so_that_it_can_be_typed_again() {
        let asked = OtherHostRequest {
            host: Some("me@b".to_owned()),
            via: Some("ip netns exec b".to_owned()),
            ..OtherHostRequest::default()
        };
        assert_eq!(asked.options(), "--host me@b --via 'ip netns exec b'");
    }

    #[test]
    fn a_host_without_this_plumb_is_named_with_a_fix() {
        let place = HostTarget::parse(Some("box"), None).unwrap();
        for (status, said, expected) in [
            (2, "error: unrecognized subcommand 'agent'", "another plumb"),
            (127, "plumb-is-not-here", "no plumb on 'box'"),
            (127, "sh: 1: plumb: not found", "no plumb on 'box'"),
            (255, "ssh: Could not resolve hostname box: Name or service not known", "is not known"),
            (1, "", "no plumb on 'box' answered"),
        ] {
            let fault = SessionFault::Closed;
            let error = ControlSessionError { activity: "waiting for the agent's hello", fault };
            let (error, said) = (TaskClientError::Session(error), said.to_owned());
            let error = ReachError::Session { error, status: Some(status), said };
            let text = explain(&place, &error).to_string();
            assert!(text.contains(expected) && text.contains("fix:"), "{text}");
        }
        let other =
            ReachError::VersionMismatch { theirs: "0.0.1".to_owned(), ours: "0.0.2".to_owned() };
        let text = explain(&place, &other).to_string();
        assert!(text.contains("0.0.1") && text.contains("--install"), "{text}");
    }

    #[test]
    fn an_agent_that_listens_is_no_place_for_experiments() {
        let place = HostTarget::parse(Some("tls:box"), None).unwrap();
        assert!(command(&place, &[]).is_err());
    }
}
