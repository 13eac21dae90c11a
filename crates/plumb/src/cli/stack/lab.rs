//! `plumb stack lab`: two sides of a wire on this machine, and a shell on one of them.
//!
//! Two processes: the keeper waits; the inner process, init of a PID namespace, has the test bed and the command.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::process::{Child, Command, ExitStatus, Stdio};

use clap::{Args, ValueEnum};
use plumb_netdev::lab::{
    self, FarEndMode, LabError, PidNamespaceInit, SignalPolicy, TestBed, TestBedOptions,
};

use crate::cli::GlobalOptions;
use crate::cli::output::{CliOutput, CommandResult};
use crate::cli::subprocess::{
    add_own_directory_to_path, address_lists, command_or_shell, exit_reason, far_namespace_path,
    inner_arguments, not_started,
};
use crate::problem::Problem;

/// Open a shell on one side of a test bed of two networks, which is removed when the shell ends
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Side A is where you are: device plumb0 with 10.77.0.1 and fd77::1. Side B has 10.77.0.2 and fd77::2.
Needs no root if the kernel allows user namespaces; see 'plumb doctor'.

Examples:
  plumb stack lab                                a shell, with Linux on the other side
  plumb stack lab -- ping -c 3 10.77.0.2         one command
  plumb stack lab --far plumb                    plumb's own stack on the other side, with its services
  plumb stack lab --far plumb -- plumb stack send 10.77.0.2:1997
  plumb stack lab --far tap -- ./my-stack plumb0 a TAP device for a stack of your own
  nsenter --net=$PLUMB_LAB_FAR tcpdump -i plumb1 in the shell: capture on side B")]
pub struct StackLabCommand {
    /// Stack on the other side
    #[arg(long, value_name = "WHO", default_value = "linux")]
    far: FarEnd,
    /// MTU in bytes; over a TAP at most 65521
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    #[arg(value_parser = clap::value_parser!(u32).range(68..=65_535))]
    mtu: u32,
    /// Disable checksum and segmentation offloads, as on a real wire
    #[arg(long)]
    no_offloads: bool,
    /// Preset both neighbor entries, so that neither side sends ARP or neighbor solicitations
    #[arg(long)]
    neighbors: bool,
    /// Command to run on side A [default: $SHELL]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Descriptor whose end means that the keeper has ended; marks the inner process
    #[arg(long, hide = true, value_name = "FD")]
    inside: Option<RawFd>,
}

/// Stack on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FarEnd {
    /// Linux, over virtual Ethernet
    Linux,
    /// plumb's own stack, over a TAP device, with ping, echo, discard and mirror
    Plumb,
    /// Silent, over virtual Ethernet: for a stack on a packet or AF_XDP socket of plumb1
    Silent,
    /// Silent, over a TAP device: for a stack that opens plumb0
    Tap,
}

impl FarEnd {
    /// Largest MTU: the kernel limits a TAP's frame with its header, and a virtual Ethernet's packet, to 65535 bytes.
    const fn mtu_max(self) -> u32 {
        match self {
            Self::Linux | Self::Silent => 65_535,
            Self::Plumb | Self::Tap => 65_535 - 14,
        }
    }
}

impl StackLabCommand {
    /// Creates the test bed, runs the shell or the command, and removes the test bed.
    ///
    /// # Errors
    /// The test bed cannot be created, or the command cannot be started.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        if global.json {
            return Err(Problem::usage("a test bed has no JSON document")
                .because("its standard output is the command's")
                .fix("leave out --json, or give it to the command")
                .into());
        }
        self.check_mtu()?;
        let status = match self.inside {
            Some(lifeline) => self.run_inside(lifeline, output)?,
            None => lab::run_in_pid_namespace(SignalPolicy::Die, |lifeline| {
                inner_arguments([OsString::from(format!("--inside={lifeline}"))])
            })?,
        };
        Ok(exit_reason(status))
    }

    fn check_mtu(&self) -> Result<(), Problem> {
        let most = self.far.mtu_max();
        if self.mtu <= most {
            return Ok(());
        }
        Err(Problem::usage(format!("a TAP cannot have an MTU of {} bytes", self.mtu))
            .because(format!("the kernel allows {most} at most, without the link header"))
            .fix(format!("--mtu {most}, or --far linux or silent, which take 65535")))
    }

    /// The inner process.
    fn run_inside(&self, lifeline: RawFd, output: &CliOutput) -> Result<ExitStatus, Problem> {
        let contained = PidNamespaceInit::become_init(lifeline, SignalPolicy::Die)?;
        let bed = self.create_bed()?;
        let far = far_namespace_path(&bed, &contained);
        if self.command.is_empty() {
            output.note(&welcome(self.far, &bed, &contained, far.as_deref()));
        }
        let mut command = command_or_shell(&self.command);
        add_own_directory_to_path(&mut command);
        command.env("PLUMB_LAB", "A");
        if let Some(far) = &far {
            command.env("PLUMB_LAB_FAR", far);
        }
        // It ends with this process, the init of the PID namespace.
        let _server = self.start_server(&bed)?;
        // This thread waits inside side A, so that nsenter finds that side by this process.
        let status = bed.in_near(|| command.status())?;
        status.map_err(|error| not_started(command.get_program(), "in the test bed", &error))
    }

    /// Starts plumb's services on side B for `--far plumb`, and waits until they are reachable.
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
        let server = bed
            .in_near(|| command.spawn())?
            .map_err(|error| Problem::failure("cannot start plumb's stack").because(error))?;
        let link = bed.near().netlink()?.wait_until_running(TestBed::NEAR_DEVICE)?;
        if link.is_running {
            return Ok(Some(server));
        }
        Err(Problem::failure("plumb's stack did not attach to the TAP of the test bed")
            .because("see its message above")
            .fix("try another side: --far linux"))
    }

    fn create_bed(&self) -> Result<TestBed, LabError> {
        let options = TestBedOptions {
            mtu: self.mtu,
            offloads: !self.no_offloads,
            neighbors: self.neighbors,
        };
        match self.far {
            FarEnd::Linux => TestBed::veth(FarEndMode::Answers, options),
            FarEnd::Silent => TestBed::veth(FarEndMode::Silent, options),
            FarEnd::Tap | FarEnd::Plumb => {
                let bed = TestBed::tap(options)?;
                bed.add_tap()?;
                bed.bring_up_near()?;
                Ok(bed)
            }
        }
    }
}

/// Addresses, and commands to try.
fn welcome(far: FarEnd, bed: &TestBed, contained: &PidNamespaceInit, path: Option<&str>) -> String {
    let [near_addresses, far_addresses] = address_lists(bed);
    let who = match far {
        FarEnd::Linux => "Linux on plumb1",
        FarEnd::Plumb => "plumb's stack, behind the TAP plumb0",
        FarEnd::Silent => "nothing on plumb1 yet",
        FarEnd::Tap => "the program that opens the TAP plumb0",
    };
    let mut lines = vec![
        "a test bed, invisible from outside, which ends with this shell".to_owned(),
        String::new(),
        format!("  side A  {near_addresses}  here, on plumb0"),
        format!("  side B  {far_addresses}  {who}"),
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
