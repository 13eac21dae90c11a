//! `plumb stack lab`: two sides of a wire on one machine, and a shell in one of them.
//!
//! The program runs twice: a keeper, which only waits, and inside it the bed with the user's
//! command, in a tree of processes that the kernel ends as one.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use clap::{Args, ValueEnum};
use plumb_netdev::lab::{self, LabError, PidNamespaceInit, SignalPolicy, TestBed, TestBedOptions};

use crate::cli::GlobalOptions;
use crate::cli::output::{CliOutput, CommandError};
use crate::problem::{ExitReason, Problem};

/// Open a shell on one side of a test bed: two network sides on this machine, gone without a trace
/// when the shell ends
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Side A is where you are: device plumb0 with 10.77.0.1 and fd77::1. Side B has 10.77.0.2 and fd77::2.
Root is not needed where the kernel gives user namespaces; 'plumb doctor' says whether it does.

Examples:
  plumb stack lab                                a shell, and Linux at the other side
  plumb stack lab -- ping -c 3 10.77.0.2         one command
  plumb stack lab --far plumb                    plumb's own stack at the other side, with its services
  plumb stack lab --far plumb -- plumb stack send 10.77.0.2:1997
  plumb stack lab --far tap -- ./my-stack plumb0 a TAP device for a stack of your own
  nsenter --net=$PLUMB_LAB_FAR tcpdump -i plumb1 in the shell: a look at side B")]
pub struct StackLabCommand {
    /// What is at the other side
    #[arg(long, value_name = "WHO", default_value = "linux")]
    far: FarEnd,
    /// Largest packet of the wire, in bytes, without the link header: over a TAP at most 65521
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    #[arg(value_parser = clap::value_parser!(u32).range(68..=65_535))]
    mtu: u32,
    /// Disable checksum and segmentation offloads, as on a real wire
    #[arg(long)]
    no_offloads: bool,
    /// Preset both neighbor entries, so that neither side sends ARP or neighbor solicitations
    #[arg(long)]
    neighbors: bool,
    /// What to run in side A [default: $SHELL]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// The keeper's descriptor: this is the process inside
    #[arg(long, hide = true, value_name = "FD")]
    inside: Option<RawFd>,
}

/// Who is at the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FarEnd {
    /// Linux, over virtual Ethernet: it answers as any host does
    Linux,
    /// plumb's own stack, over a TAP device: it answers ping, echoes, discards and mirrors
    Plumb,
    /// Silent, over virtual Ethernet: for a stack on a packet or AF_XDP socket of plumb1
    Silent,
    /// Silent, over a TAP device: for a stack that opens plumb0
    Tap,
}

impl FarEnd {
    /// The largest MTU of its wire: the kernel wants a TAP's frame, header included, to be shorter than
    /// 64 KiB, and a virtual Ethernet's packet.
    const fn mtu_max(self) -> u32 {
        match self {
            Self::Linux | Self::Silent => 65_535,
            Self::Plumb | Self::Tap => 65_535 - 14,
        }
    }
}

impl StackLabCommand {
    /// Makes the bed, runs the shell or the command, and removes the bed.
    ///
    /// # Errors
    /// No bed can be made here, or the command cannot be started.
    pub fn perform(
        self,
        global: &GlobalOptions,
        output: &CliOutput,
    ) -> Result<ExitReason, CommandError> {
        if global.json {
            return Err(Problem::usage("a test bed has no result to print as JSON")
                .because("its standard output is that of the command inside")
                .fix("leave out --json, or give it to the command inside")
                .into());
        }
        self.check_mtu()?;
        let status = match self.inside {
            Some(lifeline) => self.run_inside(lifeline, output)?,
            None => lab::run_in_pid_namespace(SignalPolicy::Die, inner_arguments)
                .map_err(Problem::from)?,
        };
        Ok(exit(status))
    }

    fn check_mtu(&self) -> Result<(), Problem> {
        let most = self.far.mtu_max();
        if self.mtu <= most {
            return Ok(());
        }
        Err(Problem::usage(format!("a TAP carries no packets of {} bytes", self.mtu))
            .because(format!("with its link header the kernel allows {most} at most"))
            .fix(format!("--mtu {most}, or --far linux or silent, which take 65535")))
    }

    /// The bed and the command in it, as the root of the tree that the keeper started.
    fn run_inside(&self, lifeline: RawFd, output: &CliOutput) -> Result<ExitStatus, Problem> {
        let contained =
            PidNamespaceInit::become_init(lifeline, SignalPolicy::Die).map_err(Problem::from)?;
        let bed = self.make_bed().map_err(Problem::from)?;
        let far = far_path(&bed, &contained);
        if self.command.is_empty() {
            output.note(&welcome(self.far, &bed, &contained, far.as_deref()));
        }
        let mut command = self.command_inside();
        command.env("PLUMB_LAB", "A");
        if let Some(far) = &far {
            command.env("PLUMB_LAB_FAR", far);
        }
        // It ends with this process, which is the root of everything inside.
        let _server = self.start_server(&bed)?;
        // This thread waits inside side A, so that the process is found there from outside.
        let outcome = bed.in_near(|| command.status()).map_err(Problem::from)?;
        let name = command.get_program().to_string_lossy().into_owned();
        outcome.map_err(|error| {
            Problem::usage(format!("cannot start '{name}' in the test bed"))
                .because(error)
                .fix("check the name; the test bed has the same files as outside")
        })
    }

    /// plumb's services at side B, where they were asked for; attached and reachable.
    fn start_server(&self, bed: &TestBed) -> Result<Option<Child>, Problem> {
        if self.far != FarEnd::Plumb {
            return Ok(None);
        }
        let mut command = Command::new("/proc/self/exe");
        command.args(["stack", "serve", "--quiet", "--device"]);
        command.arg(format!("tap:{}", TestBed::NEAR_DEVICE));
        command.arg(format!("--mac={}", TestBed::FAR_MAC));
        for (_, far, bits) in bed.addresses() {
            command.arg(format!("--addr={far}/{bits}"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let started = bed.in_near(|| command.spawn()).map_err(Problem::from)?;
        let server = started
            .map_err(|error| Problem::failure("cannot start plumb's stack").because(error))?;
        let mut netlink = bed.near().netlink().map_err(Problem::from)?;
        let link = netlink.wait_until_running(TestBed::NEAR_DEVICE).map_err(Problem::from)?;
        if link.is_running {
            return Ok(Some(server));
        }
        Err(Problem::failure("plumb's stack did not attach to the TAP of the test bed")
            .because("its own message stands above")
            .fix("try the other sides: --far linux"))
    }

    fn make_bed(&self) -> Result<TestBed, LabError> {
        let options = TestBedOptions {
            mtu: self.mtu,
            offloads: !self.no_offloads,
            neighbors: self.neighbors,
        };
        match self.far {
            FarEnd::Linux => TestBed::veth(lab::FarEndMode::Answers, options),
            FarEnd::Silent => TestBed::veth(lab::FarEndMode::Silent, options),
            FarEnd::Tap | FarEnd::Plumb => {
                let bed = TestBed::tap(options)?;
                bed.add_tap()?;
                bed.bring_up_near()?;
                Ok(bed)
            }
        }
    }

    /// The user's command or shell, which finds this very plumb by its name.
    fn command_inside(&self) -> Command {
        let shell = || std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
        let mut words = self.command.iter().cloned();
        let mut command = Command::new(words.next().unwrap_or_else(shell));
        command.args(words);
        let own = std::env::current_exe().ok();
        if let Some(directory) = own.as_deref().and_then(Path::parent) {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let places = std::iter::once(directory.to_owned()).chain(std::env::split_paths(&path));
            if let Ok(path) = std::env::join_paths(places) {
                command.env("PATH", path);
            }
        }
        command
    }
}

/// The words of this process again, and the descriptor before the command.
fn inner_arguments(lifeline: RawFd) -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.insert(end, format!("--inside={lifeline}").into());
    words
}

/// Where a process inside finds side B, for `nsenter --net=`.
fn far_path(bed: &TestBed, contained: &PidNamespaceInit) -> Option<String> {
    let process = if contained.has_own_proc { 1 } else { contained.outer_pid };
    bed.far().map(|far| format!("/proc/{process}/fd/{}", far.as_fd().as_raw_fd()))
}

/// What is where, and what to try.
fn welcome(far: FarEnd, bed: &TestBed, contained: &PidNamespaceInit, path: Option<&str>) -> String {
    let list = |address: &dyn Fn((IpAddr, IpAddr, u8)) -> String| {
        bed.addresses().map(address).collect::<Vec<_>>().join("  ")
    };
    let near_words = list(&|(near, _, bits)| format!("{near}/{bits}"));
    let far_words = list(&|(_, far, bits)| format!("{far}/{bits}"));
    let who = match far {
        FarEnd::Linux => "Linux on plumb1",
        FarEnd::Plumb => "plumb's stack, behind the TAP plumb0",
        FarEnd::Silent => "nobody on plumb1 yet",
        FarEnd::Tap => "whoever opens the TAP plumb0",
    };
    let mut lines = vec![
        "a test bed: nothing outside sees it, and all of it ends with this shell".to_owned(),
        String::new(),
        format!("  side A  {near_words}  here, on plumb0"),
        format!("  side B  {far_words}  {who}"),
        String::new(),
    ];
    let mut line = |what: &str, command: String| lines.push(format!("  {what:<20} {command}"));
    match far {
        FarEnd::Linux => line("try", format!("ping {}", TestBed::FAR_V4)),
        FarEnd::Plumb => {
            line("try", format!("ping {}", TestBed::FAR_V4));
            line("or", format!("plumb stack send {}:1997", TestBed::FAR_V4));
        }
        FarEnd::Silent | FarEnd::Tap => line("link address of B", TestBed::FAR_MAC.to_string()),
    }
    if let Some(path) = path {
        line("in side B", format!("nsenter --net={path} ip addr   (the path is $PLUMB_LAB_FAR)"));
    }
    let process = contained.outer_pid;
    let enter = if contained.in_user_namespace {
        format!("nsenter --target {process} --user --preserve-credentials --net")
    } else {
        format!("sudo nsenter --target {process} --net")
    };
    line("from another shell", enter);
    line("leave", "exit".to_owned());
    lines.join("\n")
}

/// A command's end as this program's own, as a shell would put it.
fn exit(status: ExitStatus) -> ExitReason {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitReason::Failure, ExitReason::Command)
}

impl From<LabError> for Problem {
    fn from(error: LabError) -> Self {
        Self::from_message(&error.to_string(), ExitReason::Failure)
    }
}
