//! Starting an agent over there and greeting it, and saying in plain words why that did not work.
//!
//! Left out: how a host is named (`super::place`).

use std::io::{self, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use plumb_base::time::Span;
use plumb_harness::child_process::StderrTail;
use plumb_net::test_client::{AgentClient, AgentClientError};
use plumb_remote::control_stream::{self, ControlStream};
use plumb_remote::session::{SessionFault, SessionTiming};

use super::host_target::{HostTarget, ReachMethod};
use super::pairing_hint;
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
    starter: AgentChildProcess,
}

/// The command that carries the session.
#[derive(Debug)]
struct AgentChildProcess {
    child: Arc<Mutex<Child>>,
    /// Whether it leads a process group; ssh stays in plumb's, where it may ask for a password.
    leads_group: bool,
    stderr: StderrTail,
    is_ended: bool,
}

impl AgentChildProcess {
    fn start(mut command: Command, leads_group: bool) -> io::Result<Self> {
        if leads_group {
            command.process_group(0);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let said = StderrTail::capture(child.stderr.take());
        Ok(Self { child: Arc::new(Mutex::new(child)), leads_group, stderr: said, is_ended: false })
    }

    /// What it said and how it ended; ends it, and whatever it has started in its group, if it has not.
    fn end(&mut self) -> (Option<ExitStatus>, String) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if self.leads_group && !self.is_ended {
            control_stream::kill_group(&child);
        }
        self.is_ended = true;
        child.kill().ok();
        let status = child.wait().ok();
        drop(child);
        (status, self.stderr.finish())
    }
}

impl Drop for AgentChildProcess {
    fn drop(&mut self) {
        if !self.is_ended {
            self.end();
        }
    }
}

impl AgentConnection {
    /// Takes leave of the agent, and waits for the command that carried the session.
    pub fn close(self) {
        let Self { client, starter } = self;
        client.disconnect();
        drop(starter);
    }
}

/// The command that starts an agent there.
fn command(place: &HostTarget, ssh: &[String]) -> Result<Command, Problem> {
    let command = match &place.method {
        ReachMethod::Ssh { target, port } => {
            ssh_command(target, *port, ssh, &[], &remote_script(Some("agent"), "--stdio"))?
        }
        ReachMethod::Paired(host) => {
            let program = std::env::current_exe().map_err(|error| {
                Problem::failure("cannot find plumb's own program file").because(error)
            })?;
            let mut command = Command::new(program);
            command.args(["agent", "--forward", host]);
            command
        }
        ReachMethod::Namespace(name) => {
            let program = std::env::current_exe().map_err(|error| {
                Problem::failure("cannot find plumb's own program file").because(error)
            })?;
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name]).arg(program).args(["agent", "--stdio"]);
            command
        }
        ReachMethod::Via(line) => {
            let mut command = Command::new("sh");
            command.arg("-c").arg(line);
            command
        }
    };
    Ok(command)
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

/// A script that runs a subcommand of plumb there. The copy that `--install` made goes first, because it is of this
/// version.
pub(super) fn remote_script(subcommand: Option<&str>, last: &str) -> String {
    let words = subcommand.map_or_else(|| last.to_owned(), |first| format!("{first} {last}"));
    format!(
        "sh -c 'test -x \"$HOME/{CACHED_PROGRAM}\" && exec \"$HOME/{CACHED_PROGRAM}\" {words}; \
         command -v plumb >/dev/null 2>&1 && exec plumb {words}; echo {NOT_INSTALLED_MARK} >&2; exit 127'"
    )
}

/// Starts an agent there and greets it.
///
/// # Errors
/// Whatever keeps it from answering, with its fix: of a host that was paired, also the command that needs no ssh.
pub fn connect(
    place: &HostTarget,
    ssh: &[String],
    program: &str,
) -> Result<AgentConnection, Problem> {
    start(place, ssh, program).map_err(|problem| pairing_hint::suggest(problem, place, ssh))
}

fn start(place: &HostTarget, ssh: &[String], program: &str) -> Result<AgentConnection, Problem> {
    let command = command(place, ssh)?;
    let name = command.get_program().to_string_lossy().into_owned();
    let leads_group = !matches!(place.method, ReachMethod::Ssh { .. });
    let mut starter = AgentChildProcess::start(command, leads_group).map_err(|error| {
        Problem::failure(format!("cannot run '{name}' to start an agent there"))
            .because(error)
            .fix("install it, or give another command with --via")
    })?;
    let stream = ControlStream::from_child(&starter.child, &place.requested)
        .map_err(|error| Problem::failure("the agent's streams are gone").because(error))?;
    match AgentClient::connect(stream, program, timing(place)) {
        Ok(client) => Ok(AgentConnection { client, starter }),
        Err(error) => {
            let (status, said) = starter.end();
            Err(explain(place, &error, status, &said))
        }
    }
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
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    let ended = matches!(
        error,
        AgentClientError::Session(session) if matches!(session.fault, SessionFault::Closed | SessionFault::Hello(_))
    );
    if !ended {
        let is_late = matches!(error, AgentClientError::Session(session) if matches!(session.fault, SessionFault::DeadlinePassed(_)));
        let problem = match &place.method {
            // It leads a group of its own, to which the terminal is closed.
            ReachMethod::Via(_) if is_late => problem_from_client_error(error).fix(
                "the command of --via may ask for nothing, as no terminal is open to it: give it a key that needs no \
                 password; or the other side hangs",
            ),
            _ => problem_from_client_error(error),
        };
        return if last.is_empty() { problem } else { problem.because(last) };
    }
    if let Some(problem) = problem_from_stderr(place, status.and_then(|status| status.code()), said)
    {
        return problem;
    }
    let is_closed = matches!(error, AgentClientError::Session(session) if matches!(session.fault, SessionFault::Closed));
    match (status.and_then(|status| status.code()), &place.method) {
        (Some(code), ReachMethod::Via(_)) if is_closed => {
            let problem = Problem::failure(format!("the command of --via ended with {code}, and no agent answered"))
                .fix("see what it does by itself: it has to give the standard streams of 'plumb agent --stdio'");
            if last.is_empty() { problem } else { problem.because(last) }
        }
        _ => {
            let problem = problem_from_client_error(error);
            if last.is_empty() { problem } else { problem.because(last) }
        }
    }
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
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    if has(&["could not resolve", "name or service not known"]) {
        return Some(
            Problem::usage(format!("the host '{asked}' is not known"))
                .because(last)
                .fix("check the name, or give an address"),
        );
    }
    let trouble = |what: String, fix: String| Some(Problem::failure(what).because(last).fix(fix));
    if has(&["connection refused"]) {
        return trouble(
            format!("'{asked}' refuses connections"),
            "start sshd there, name its port as host:port, or reach an agent with --via".to_owned(),
        );
    }
    if has(&["timed out", "no route to host", "network is unreachable"]) {
        return trouble(
            format!("'{asked}' does not answer"),
            "check that it is up and that no firewall is between".to_owned(),
        );
    }
    if has(&["permission denied", "host key verification failed"]) {
        return trouble(
            format!("'{asked}' does not let you in"),
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
        error => Problem::from_message(&error.to_string(), ExitReason::Failure),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use plumb_clock::{monotonic_ns, sleep_until};
    use plumb_remote::session::ControlSessionError;

    use super::*;

    /// A shell's script as a starter, and the number of the process that it wrote first on standard output.
    fn started(script: &str) -> (AgentChildProcess, u32) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let starter = AgentChildProcess::start(command, true).unwrap();
        let mut stdout = starter.child.lock().unwrap().stdout.take().unwrap();
        let mut text = String::new();
        while !text.ends_with('\n') {
            let mut byte = [0];
            stdout.read_exact(&mut byte).unwrap();
            text.push(char::from(byte[0]));
        }
        // What it has said by then is read, however busy this host is.
        let is_read = (0..6_000).any(|_| {
            sleep_until(monotonic_ns() + 10_000_000);
            !starter.stderr.text().is_empty()
        });
        assert!(is_read, "it said nothing");
        (starter, text.trim().parse().unwrap())
    }

    /// Ends it elsewhere; fails where that takes longer than anything does.
    fn ended(mut starter: AgentChildProcess) -> String {
        let (done, over) = mpsc::channel();
        thread::spawn(move || done.send(starter.end().1));
        over.recv_timeout(Duration::from_mins(1)).expect("it ends, whoever else lives on")
    }

    fn is_running(process: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    }

    #[test]
    fn what_a_command_has_started_ends_with_it_and_what_it_said_is_kept() {
        let (starter, process) = started("sleep 600 & echo alas >&2; echo $!; wait");
        assert!(is_running(process));
        assert_eq!(ended(starter), "alas\n");
        let is_gone = (0..6_000).any(|_| {
            sleep_until(monotonic_ns() + 10_000_000);
            !is_running(process)
        });
        assert!(is_gone, "{process} is left behind");
    }

    #[test]
    fn who_left_the_group_with_its_standard_error_is_not_waited_for() {
        // A process of another session says its own number, and stays.
        let script = "setsid sh -c 'echo alas >&2; echo $$; exec sleep 600' & wait";
        let (starter, process) = started(script);
        assert_eq!(ended(starter), "alas\n");
        assert!(is_running(process), "it was in no group of plumb's");
        Command::new("kill").args(["-KILL", &process.to_string()]).status().unwrap();
    }

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
            ("box: Permission denied (publickey).", "does not let you in"),
            ("sh: plumb: command not found", "no plumb on"),
            (NOT_INSTALLED_MARK, "--install"),
            ("ssh: connect to host box port 22: Connection timed out", "does not answer"),
            ("", "while waiting for the agent's hello"),
        ] {
            let text = explain(&place, &error, None, said).to_string();
            assert!(text.contains(expected) && text.contains("fix:"), "{text}");
        }
    }
}
