//! The agent of a host that this one has been paired with: what leads there where ssh does not.

use plumb_remote::secure::DEFAULT_PORT;
use plumb_remote::secure::identity::{PairedPeer, PairedRole};

use super::address::host_and_port;
use super::host_target::{HostTarget, ReachMethod, ssh_host};
use super::paired_agent;
use crate::problem::{ExitReason, Problem};

/// The same problem of a way over ssh, and the command that does without where the host is paired.
pub fn suggest(problem: Problem, place: &HostTarget, ssh: &[String]) -> Problem {
    let ReachMethod::Ssh { target, .. } = &place.method else { return problem };
    if problem.exit == ExitReason::Interrupted {
        return problem;
    }
    // A list that cannot be read knows nobody; whoever uses it hears why.
    let peers = paired_agent::peers().ok().and_then(|peers| peers.read().ok()).unwrap_or_default();
    if peers.is_empty() {
        return problem;
    }
    let asked = target.rsplit_once('@').map_or(target.as_str(), |(_, host)| host);
    let found = agent(asked, &peers).or_else(|| agent(&ssh_host(ssh, target), &peers));
    match found {
        Some(agent) => add_hint(problem, asked, &agent),
        None => problem,
    }
}

/// How `plumb net` names the agent of a host that was paired last: `tls:HOST`, with its port where that is not the
/// usual one.
fn agent(host: &str, peers: &[PairedPeer]) -> Option<String> {
    let agents = peers.iter().rev().filter(|peer| peer.kind == PairedRole::Agent);
    let mut places = agents.filter_map(|peer| {
        let (name, port) = host_and_port(&peer.name, DEFAULT_PORT).ok()?;
        name.eq_ignore_ascii_case(host).then_some((name, port, peer))
    });
    let (name, port, peer) = places.next()?;
    let place = if port == DEFAULT_PORT { &name } else { &peer.name };
    Some(format!("tls:{place}"))
}

fn add_hint(problem: Problem, asked: &str, agent: &str) -> Problem {
    let paired = format!("'{asked}' is paired with this host, so 'plumb net {agent}' needs no ssh");
    let fix = match &problem.fix {
        Some(other) => format!("{paired}; or {other}"),
        None => paired,
    };
    problem.fix(fix)
}

#[cfg(test)]
mod tests {
    use plumb_remote::secure::Fingerprint;

    use super::*;

    #[test]
    fn the_agent_that_was_paired_last_is_named_as_plumb_net_takes_it() {
        let peer = |kind, name: &str| PairedPeer {
            kind,
            name: name.to_owned(),
            fingerprint: Fingerprint::of(name.as_bytes()),
        };
        let own = |name: &str| peer(PairedRole::Agent, name);
        let usual = DEFAULT_PORT;
        let peers = [
            own("lab:99"),
            own(&format!("lab:{usual}")),
            own("Other:7"),
            own("[fd77::1]:7"),
            own(&format!("[fe80::1%eth0]:{usual}")),
            peer(PairedRole::Client, "me:1"),
        ];
        let found = |host: &str| agent(host, &peers);
        assert_eq!(found("lab").as_deref(), Some("tls:lab"));
        assert_eq!(found("other").as_deref(), Some("tls:Other:7"));
        assert_eq!(found("fd77::1").as_deref(), Some("tls:[fd77::1]:7"));
        assert_eq!(found("fe80::1%eth0").as_deref(), Some("tls:fe80::1%eth0"));
        assert_eq!(found("me"), None, "a client is no agent");
        assert_eq!(found("elsewhere"), None);
    }

    #[test]
    fn what_else_could_be_done_is_still_said() {
        let text = add_hint(Problem::failure("no").fix("start sshd there"), "lab", "tls:lab:9");
        assert!(
            text.to_string().ends_with("'plumb net tls:lab:9' needs no ssh; or start sshd there")
        );
    }
}
