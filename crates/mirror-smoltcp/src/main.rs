//! smoltcp behind the same mirror as plumb's stack: the peer that it is measured against.
//!
//! Started by plumb as the mirror's process, never by hand. It uses plumb's devices, so that what differs
//! is the stack.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use plumb_harness::child_process::HiddenCommand;
use plumb_harness::mirror::mirror_process::{self, DatagramMirror, MirrorSetup};
use plumb_harness::report::LaunchFault;
use plumb_harness::spec::MirrorDevice;

mod replay;
mod stack;
mod tap;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match HiddenCommand::parse(&arguments) {
        Some(HiddenCommand::Mirror(control)) => ExitCode::from(mirror_process::main(control, open)),
        _ => ExitCode::FAILURE,
    }
}

fn open(site: MirrorSetup) -> Result<Box<dyn DatagramMirror>, LaunchFault> {
    match site.spec.device {
        MirrorDevice::Tap => Ok(Box::new(tap::SmoltcpTapMirror::new(site)?)),
        MirrorDevice::Memory => Ok(Box::new(replay::SmoltcpReplayMirror::new(&site)?)),
        other => {
            let name = other.name();
            Err(LaunchFault::Unavailable(format!("smoltcp is not measured over {name}")))
        }
    }
}
