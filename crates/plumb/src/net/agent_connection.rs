//! Starting an agent over there and greeting it, and saying in plain words why that did not work and whether an agent that
//! this host has been paired with leads there; and copying this very program to the other host by ssh (`--install`).

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::process::{Command, ExitStatus, Stdio};

use plumb_base::time::Span;
use plumb_net::test_client::{AgentClient, AgentClientError};
use plumb_remote::control_stream::AgentChildProcess;
use plumb_remote::secure::DEFAULT_PORT;
use plumb_remote::secure::identity::{PairedPeer, PairedRole};
use plumb_remote::session::{SessionFault, SessionTiming};

use super::address::host_and_port;
use super::host_target::{HostTarget, ReachMethod, ssh_host};
use super::paired_agent;
use crate::problem::{ExitReason, Problem};

/// Where `--install` puts the program, below the home directory there.
pub const CACHED_PROGRAM: &str = ".cache/plumb/plumb";
/// How long a person may take to answer what ssh asks.
const PROMPT_TIMEOUT: Span = Span::from_secs(120);
/// What the remote shell says when it has no plumb.
pub(super) const NOT_INSTALLED_MARK: &str = "plumb-is-not-here";

/// An agent that was started for this measurement, and the session with it.
#[derive(Debug)]
pub struct AgentConnection {
    /// The session.
    pub client: AgentClient,
    process: AgentChildProcess,
}

impl AgentConnection {
    /// Takes leave of the agent, and waits for the command that carried the session.
    pub fn close(self) {
        let Self { client, process } = self;
        client.disconnect();
        drop(process);
    }
}

/// The command that starts an agent there, with options of ssh.
///
/// # Errors
/// No program is named for it.
pub(super) fn command(
    place: &HostTarget,
    ssh: &[String],
    options: &[&str],
) -> Result<Command, Problem> {
    let own_program = || {
        std::env::current_exe().map_err(|error| {
            Problem::failure("cannot find plumb's own program file").because(error)
        })
    };
    Ok(match &place.method {
        ReachMethod::Ssh { target, port } => {
            let script = format!("sh -c '{}'", agent_script(None));
            ssh_command(target, *port, ssh, options, &script)?
        }
        ReachMethod::Paired(host) => {
            let mut command = Command::new(own_program()?);
            command.args(["agent", "--forward", host]);
            command
        }
        ReachMethod::Namespace(name) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name]).arg(own_program()?).args(["agent", "--stdio"]);
            command
        }
        ReachMethod::Via(line) => {
            let mut command = Command::new("sh");
            command.arg("-c").arg(line);
            command
        }
    })
}

/// An ssh that runs a script there.
///
/// # Errors
/// No program is named for it.
pub(super) fn ssh_command(
    target: &str,
    port: Option<u16>,
    ssh: &[String],
    options: &[&str],
    script: &str,
) -> Result<Command, Problem> {
    let Some((program, own)) = ssh.split_first() else {
        return Err(Problem::usage("--ssh names no program").fix("leave it away"));
    };
    let mut command = Command::new(program);
    command.args(own).args(["-T", "-o", "ConnectTimeout=10"]).args(options);
    if let Some(port) = port {
        command.arg("-p").arg(port.to_string());
    }
    command.arg("--").arg(target).arg(script);
    Ok(command)
}

/// A script that runs an agent there: of the program at `first`, of the copy that `--install` made, because it is of
/// this version, or of whichever the search path has. It has no single quotes but those of `first`.
pub(super) fn agent_script(first: Option<&str>) -> String {
    let cached = format!("\"$HOME/{CACHED_PROGRAM}\"");
    let tries = first.into_iter().chain([cached.as_str()]);
    let tries = tries.map(|program| format!("test -x {program} && exec {program} agent --stdio; "));
    let tries: Vec<String> = tries.collect();
    let tries = tries.concat();
    format!(
        "{tries}command -v plumb >/dev/null 2>&1 && exec plumb agent --stdio; echo {NOT_INSTALLED_MARK} >&2; exit 127"
    )
}

/// Starts an agent there and greets it.
///
/// # Errors
/// Why it does not answer, with the fix: of a host that was paired, also the command that needs no ssh.
pub fn connect(
    place: &HostTarget,
    ssh: &[String],
    program: &str,
) -> Result<AgentConnection, Problem> {
    start(place, ssh, program).map_err(|problem| suggest_paired(problem, place, ssh))
}

fn start(place: &HostTarget, ssh: &[String], program: &str) -> Result<AgentConnection, Problem> {
    let command = command(place, ssh, &[])?;
    let name = command.get_program().to_string_lossy().into_owned();
    let leads_group = !matches!(place.method, ReachMethod::Ssh { .. });
    let (mut process, stream) = AgentChildProcess::start(command, leads_group, &place.requested)
        .map_err(|error| cannot_run(&name, place, error))?;
    match AgentClient::connect(stream, program, timing(place)) {
        Ok(client) => Ok(AgentConnection { client, process }),
        Err(error) => {
            let (status, said) = process.end();
            Err(explain(place, &error, status, &said))
        }
    }
}

/// A command that does not run.
pub(super) fn cannot_run(
    program: &str,
    place: &HostTarget,
    error: impl std::fmt::Display,
) -> Problem {
    Problem::failure(format!("cannot run '{program}' to start an agent on '{}'", place.requested))
        .because(error)
        .fix("install it, or give another command with --via")
}

/// How long each thing may take. A person at a terminal may be asked by ssh whether it is the right host, for a password
/// and more; a host that is not there ends ssh itself long before.
fn timing(place: &HostTarget) -> SessionTiming {
    let usual = SessionTiming::default();
    let may_be_asked = matches!(place.method, ReachMethod::Ssh { .. }) && io::stdin().is_terminal();
    SessionTiming { hello: if may_be_asked { PROMPT_TIMEOUT } else { usual.hello }, ..usual }
}

/// Why there is no agent, in the order of what is most telling.
fn explain(
    place: &HostTarget,
    error: &AgentClientError,
    status: Option<ExitStatus>,
    said: &str,
) -> Problem {
    // The command that carries a session over TLS has said it in plumb's own words.
    if let (ReachMethod::Paired(_), Some((_, what))) = (&place.method, said.split_once("error: ")) {
        return parse_problem(what);
    }
    let fault = match error {
        AgentClientError::Session(session) => Some(&session.fault),
        _ => None,
    };
    let status = status.and_then(|status| status.code());
    let is_via = matches!(place.method, ReachMethod::Via(_));
    if let Some(SessionFault::Closed | SessionFault::Hello(_)) = fault
        && let Some(problem) = problem_from_stderr(place, status, said)
    {
        return problem;
    }
    let problem = match (fault, status) {
        (Some(SessionFault::Closed), Some(code)) if is_via => Problem::failure(format!(
            "the command of --via ended with {code}, and no agent answered"
        ))
        .fix("see what it does by itself: it has to give the standard streams of 'plumb agent --stdio'"),
        // It leads a group of its own, to which the terminal is closed.
        (Some(SessionFault::DeadlinePassed(_)), _) if is_via => problem_from_client_error(error).fix(
            "the command of --via may ask for nothing, as no terminal is open to it: give it a key that needs no \
             password; or the other side hangs",
        ),
        _ => problem_from_client_error(error),
    };
    match last_line(said) {
        "" => problem,
        last => problem.because(last),
    }
}

/// What a command said last.
pub(super) fn last_line(said: &str) -> &str {
    said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default()
}

/// What keeps a command from leading there, by what it has said and how it ended; none where neither tells.
pub(super) fn problem_from_stderr(
    place: &HostTarget,
    status: Option<i32>,
    said: &str,
) -> Option<Problem> {
    let asked = &place.requested;
    let lower = said.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let last = last_line(said);
    if has(&["could not resolve", "name or service not known"]) {
        return Some(
            Problem::usage(format!("the host '{asked}' is not known"))
                .because(last)
                .fix("check the name, or give an address"),
        );
    }
    let failure = |what: String, fix: String| Some(Problem::failure(what).because(last).fix(fix));
    if has(&["connection refused"]) {
        return failure(
            format!("'{asked}' refuses connections"),
            "start sshd there, name its port as host:port, or reach an agent with --via".to_owned(),
        );
    }
    if has(&["timed out", "no route to host", "network is unreachable"]) {
        return failure(
            format!("'{asked}' does not answer"),
            "check that it is up and that no firewall is between".to_owned(),
        );
    }
    if has(&["permission denied", "host key verification failed"]) {
        return failure(
            format!("cannot log in to '{asked}'"),
            format!("make this work first: ssh {asked} true"),
        );
    }
    if has(&["cannot open network namespace"]) {
        return Some(
            Problem::usage(format!("there is no such network namespace: '{asked}'"))
                .because(last)
                .fix("'ip netns list' shows them"),
        );
    }
    if status == Some(127) || has(&[NOT_INSTALLED_MARK, "command not found"]) {
        return Some(
            Problem::failure(format!("there is no plumb on '{asked}'"))
                .because("neither its search path nor ~/.cache/plumb has it")
                .fix(format!("let plumb copy itself there: plumb net {asked} --install")),
        );
    }
    None
}

/// A problem as plumb prints it.
fn parse_problem(text: &str) -> Problem {
    let part = |mark: &str| {
        let found = text.lines().find_map(|line| line.trim().strip_prefix(mark));
        found.map(|found| found.trim().to_owned())
    };
    let what = text.lines().next().unwrap_or_default().trim();
    Problem { why: part("why:"), fix: part("fix:"), ..Problem::failure(what) }
}

/// A client's error in three lines.
pub fn problem_from_client_error(error: &AgentClientError) -> Problem {
    match error {
        AgentClientError::Stopped => {
            Problem { exit: ExitReason::Interrupted, ..Problem::usage("stopped") }
        }
        error => Problem::failed(error),
    }
}

/// The same problem of a way over ssh, and the command that does without where the host is paired.
pub fn suggest_paired(problem: Problem, place: &HostTarget, ssh: &[String]) -> Problem {
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
    let found =
        paired_agent_of(asked, &peers).or_else(|| paired_agent_of(&ssh_host(ssh, target), &peers));
    match found {
        Some(agent) => add_hint(problem, asked, &agent),
        None => problem,
    }
}

/// How `plumb net` names the agent of a host that was paired last: `tls:HOST`, with its port where that is not the
/// usual one.
fn paired_agent_of(host: &str, peers: &[PairedPeer]) -> Option<String> {
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

/// Copies the program there, whole or not at all.
///
/// # Errors
/// The host is not reached by ssh, or the copy fails: no room, no login.
pub fn install(place: &HostTarget, ssh: &[String]) -> Result<(), Problem> {
    let ReachMethod::Ssh { target, port } = &place.method else {
        return Err(Problem::usage(format!("'{}' is not reached by ssh", place.requested))
            .because("plumb copies itself by ssh only")
            .fix("copy the program there by other means"));
    };
    let failed = |why: String| {
        Problem::failure(format!("could not copy plumb to '{}'", place.requested)).because(why).fix(
            format!(
                "make room in ~/{CACHED_PROGRAM} there, and make this work first: ssh {target} true"
            ),
        )
    };
    let (own, len) = std::env::current_exe()
        .and_then(File::open)
        .and_then(|file| file.metadata().map(|data| (file, data.len())))
        .map_err(|error| failed(format!("this program's own file cannot be read: {error}")))?;
    let mut command = ssh_command(target, *port, ssh, &[], &install_script(len))?;
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::from(own))
        .stdout(Stdio::null())
        .output()
        .map_err(|error| failed(format!("'{program}' cannot be run: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(if said.is_empty() { output.status.to_string() } else { said }))
}

/// A script that puts so many bytes of standard input in the place of the program. A connection that is cut looks like
/// an end of input, so what is shorter is no copy.
fn install_script(len: u64) -> String {
    let (place, new) =
        (format!("\"$HOME/{CACHED_PROGRAM}\""), format!("\"$HOME/{CACHED_PROGRAM}.new.$$\""));
    format!(
        "sh -c 'umask 077 && mkdir -p \"$HOME/.cache/plumb\" && cat >{new} && test $(wc -c <{new}) -eq {len} && \
         chmod 700 {new} && mv -f {new} {place} || {{ rm -f {new}; exit 1; }}'"
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Command;

    use plumb_remote::secure::Fingerprint;
    use plumb_remote::session::ControlSessionError;

    use super::*;

    #[test]
    fn what_ssh_says_becomes_a_problem_with_a_fix() {
        let place = HostTarget::parse(Some("box"), None).unwrap();
        let during = "waiting for the agent's hello";
        let error = AgentClientError::Session(ControlSessionError {
            activity: during,
            fault: SessionFault::Closed,
        });
        for (said, expected) in [
            ("ssh: Could not resolve hostname box: Name or service not known", "is not known"),
            ("ssh: connect to host box port 22: Connection refused", "refuses connections"),
            ("box: Permission denied (publickey).", "cannot log in"),
            ("sh: plumb: command not found", "no plumb on"),
            (NOT_INSTALLED_MARK, "--install"),
            ("ssh: connect to host box port 22: Connection timed out", "does not answer"),
            ("", "while waiting for the agent's hello"),
        ] {
            let text = explain(&place, &error, None, said).to_string();
            assert!(text.contains(expected) && text.contains("fix:"), "{text}");
        }
    }

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
        let found = |host: &str| paired_agent_of(host, &peers);
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

    #[test]
    fn a_copy_that_is_cut_short_replaces_nothing() {
        let home = tempfile::tempdir().unwrap();
        for (bytes, is_whole) in [(&b"new program"[..], true), (b"new pro", false)] {
            let mut command = Command::new("sh");
            command.args(["-c", &install_script(11)]).env("HOME", home.path());
            let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(bytes).unwrap();
            assert_eq!(child.wait().unwrap().success(), is_whole);
            let place = home.path().join(CACHED_PROGRAM);
            assert_eq!(std::fs::read(&place).unwrap(), b"new program");
            assert_eq!(std::fs::read_dir(place.parent().unwrap()).unwrap().count(), 1);
        }
    }
}
