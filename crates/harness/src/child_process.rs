//! The processes that this program starts of itself: which there are, how they begin, and how they end.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_netdev::lab::adopt_fd;
use plumb_remote::control_stream::StderrTail;
use plumb_sys::socket::{self, UnixSocketKind};
use plumb_sys::{fd, process, sched, signal, timer};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::channel::{IoResultExt as _, TICK_US};
use crate::launch_protocol::{ControlPage, ControlSocket};
use crate::report::LaunchFault;

/// This same binary.
pub(crate) const SELF_EXE: &str = "/proc/self/exe";

/// How long a process may take until it answers first; less than a launch may take as a whole.
pub(crate) const START_TIMEOUT: Span = Span::from_secs(8);

/// What this program does when it has started itself again, by its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenCommand {
    /// Times a launch, as it is told on standard input.
    Worker,
    /// Serves the page of a launch, and prints the address at which it does.
    PageServer {
        /// The address to bind.
        address: SocketAddr,
        /// Who alone may ask; everybody when absent.
        client: Option<IpAddr>,
    },
    /// The far end of a channel; here and below, the number of the inherited control socket.
    Peer(RawFd),
    /// A stack that mirrors datagrams.
    Mirror(RawFd),
    /// Sends on every stream of a launch.
    StreamsSender(RawFd),
    /// Takes a part of some CPUs away.
    CpuLoad(RawFd),
    /// Carries the frames of an emulated link.
    Emulator(RawFd),
    /// Opens sockets outside a lab for its gateway.
    GatewayHelper(RawFd),
}

/// A command with a control socket, its first argument, and what fails when it does not start.
type ControlledCommand = (fn(RawFd) -> HiddenCommand, &'static str, &'static str);

impl HiddenCommand {
    /// The commands with a control socket.
    const CONTROLLED: [ControlledCommand; 6] = [
        (Self::Peer, "__peer", "start the peer process"),
        (Self::Mirror, "__mirror", "start the mirror's process"),
        (Self::StreamsSender, "__source", "start the sender's process"),
        (Self::CpuLoad, "__share", "start the process that takes CPU time away"),
        (Self::Emulator, "__link", "start the link's process"),
        (Self::GatewayHelper, "__outside", "start the gateway's helper"),
    ];

    /// All arguments.
    pub fn arguments(self) -> Vec<String> {
        match self {
            Self::Worker => vec!["__worker".to_owned()],
            Self::PageServer { address, client } => {
                let client = client.map(|client| client.to_string());
                ["__web".to_owned(), address.to_string()].into_iter().chain(client).collect()
            }
            Self::Peer(number)
            | Self::Mirror(number)
            | Self::StreamsSender(number)
            | Self::CpuLoad(number)
            | Self::Emulator(number)
            | Self::GatewayHelper(number) => {
                let mut rows = Self::CONTROLLED.iter();
                let name = rows.find(|row| row.0(number) == self).map_or("", |row| row.1);
                vec![name.to_owned(), number.to_string()]
            }
        }
    }

    /// The command of a program's arguments, if it is one with all that it needs.
    pub fn parse(arguments: &[OsString]) -> Option<Self> {
        let word = |index: usize| arguments.get(index).and_then(|word| word.to_str());
        match word(0)? {
            "__worker" => Some(Self::Worker),
            "__web" => Some(Self::PageServer {
                address: word(1)?.parse().ok()?,
                client: word(2).map(str::parse).transpose().ok()?,
            }),
            name => {
                let row = Self::CONTROLLED.iter().find(|row| row.1 == name)?;
                Some(row.0(word(1)?.parse().ok()?))
            }
        }
    }

    /// What fails when a command with a control socket does not start.
    fn starting(self, number: RawFd) -> &'static str {
        let mut rows = Self::CONTROLLED.iter();
        rows.find(|row| row.0(number) == self).map_or("start a process", |row| row.2)
    }
}

/// A process that this one has started; killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    pub(crate) child: Child,
    stderr: StderrTail,
}

impl ChildProcess {
    /// Starts a command. What it writes to standard error is kept where that is a pipe.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let stderr = StderrTail::capture(child.stderr.take());
        Ok(Self { child, stderr })
    }

    /// Ends it; how it ended, and the end of what it wrote to standard error.
    pub(crate) fn exit_report(&mut self) -> String {
        // It may be dying still: make sure, then it can be waited for.
        drop(self.child.kill());
        let status = self.child.wait().map(|status| format!(" ({status})")).unwrap_or_default();
        format!("{status}{}", self.stderr_suffix())
    }

    /// The end of what it wrote to standard error, behind a colon; nothing where that is nothing.
    pub(crate) fn stderr_suffix(&self) -> String {
        behind_colon(&self.stderr.finish())
    }

    /// The same of what it has written so far.
    pub(crate) fn stderr_so_far(&self) -> String {
        behind_colon(&self.stderr.text())
    }
}

fn behind_colon(text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is reaped here.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A process that is spoken to over a socket that it has inherited.
#[derive(Debug)]
pub(crate) struct ControlledProcess {
    pub(crate) process: ChildProcess,
    pub(crate) control: ControlSocket,
}

/// Both ends of a control socket: this process's, and that of a process yet to be started.
pub(crate) fn control_sockets() -> Result<(OwnedFd, OwnedFd), LaunchFault> {
    socket::pair(UnixSocketKind::Stream).attempt("make a control socket")
}

impl ControlledProcess {
    /// Starts a program with a control socket and the descriptors that `task` names, and sends it the task; the
    /// process, and its answer.
    pub(crate) fn start<A: DeserializeOwned>(
        program: &Path,
        command: fn(RawFd) -> HiddenCommand,
        (own, theirs): (OwnedFd, OwnedFd),
        inherited: Vec<OwnedFd>,
        task: &impl Serialize,
    ) -> Result<(Self, A), LaunchFault> {
        for fd in inherited.iter().chain([&theirs]) {
            fd::set_inheritable(fd.as_fd(), true).attempt("hand a descriptor over")?;
        }
        let number = theirs.as_raw_fd();
        let command = command(number);
        let failed = |source| LaunchFault::failed(command.starting(number), source);
        let process = ChildProcess::spawn(
            Command::new(program)
                .args(command.arguments())
                .stdin(Stdio::null())
                .stdout(Stdio::null()),
        )
        .map_err(failed)?;
        drop((inherited, theirs));
        let mut started = Self { process, control: ControlSocket::new(own) };
        let answer = started.control.send(task).and_then(|()| started.first_answer());
        match answer {
            Ok(answer) => Ok((started, answer)),
            Err(error) => {
                let end = started.process.exit_report();
                Err(failed(io::Error::other(format!("{error}{end}"))))
            }
        }
    }

    fn first_answer<A: DeserializeOwned>(&mut self) -> io::Result<A> {
        if !wait_readable(self.control.as_fd(), START_TIMEOUT, &mut || false)? {
            return Err(no_answer());
        }
        self.control.receive()
    }
}

/// The error of a process that was waited for in vain.
pub(crate) fn no_answer() -> io::Error {
    let text = format!("it did not answer within {START_TIMEOUT}");
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Waits until a descriptor is readable or hung up: whether it is within a time. `abort` is asked whenever a signal was
/// handled.
///
/// # Errors
/// `Interrupted` when told to abort.
pub(crate) fn wait_readable(
    fd: BorrowedFd<'_>,
    timeout: Span,
    abort: &mut dyn FnMut() -> bool,
) -> io::Result<bool> {
    let end = monotonic_ns().saturating_add(timeout.as_ns());
    loop {
        let left = end.saturating_sub(monotonic_ns());
        if left == 0 {
            return Ok(false);
        }
        let timeout_ms = i32::try_from(left / 1_000_000 + 1).unwrap_or(i32::MAX);
        match fd::poll_readable(fd, timeout_ms) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted && !abort() => {}
            Err(error) => return Err(error),
        }
    }
}

/// Serves over an inherited control socket; the exit code of it.
pub(crate) fn main(control: RawFd, serve: impl FnOnce(OwnedFd) -> io::Result<()>) -> u8 {
    let begin = || {
        let control = adopt_fd(control)?;
        process::set_parent_death_signal(control.as_fd())?;
        signal::ignore_keyboard_interrupt()?;
        Ok(control)
    };
    match begin().and_then(serve) {
        Ok(()) => 0,
        // The worker sees the closed control socket and says what it was doing.
        Err(_) => 1,
    }
}

/// Takes its place on a CPU, lets its clock tick, and opens the page that it shares with the worker.
pub(crate) fn set_up_process(cpu: Option<u32>, page_fd: RawFd) -> io::Result<ControlPage> {
    if let Some(cpu) = cpu {
        sched::bind(&[cpu])?;
    }
    timer::start_periodic_tick(TICK_US)?;
    ControlPage::open(&fd::adopt(page_fd)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_commands_are_read_from_their_own_arguments() {
        let address = "[::1]:8080".parse().unwrap();
        let client = Some("10.0.0.2".parse().unwrap());
        let with_socket = HiddenCommand::CONTROLLED.map(|(command, ..)| command(7));
        let others = [
            HiddenCommand::Worker,
            HiddenCommand::PageServer { address, client },
            HiddenCommand::PageServer { address, client: None },
        ];
        for command in with_socket.into_iter().chain(others) {
            let arguments: Vec<OsString> =
                command.arguments().into_iter().map(OsString::from).collect();
            assert_eq!(HiddenCommand::parse(&arguments), Some(command));
        }
        for incomplete in [&["__peer"][..], &["__peer", "x"], &["__web"], &["run", "7"], &[]] {
            let arguments: Vec<OsString> = incomplete.iter().map(OsString::from).collect();
            assert_eq!(HiddenCommand::parse(&arguments), None, "{incomplete:?}");
        }
    }
}
