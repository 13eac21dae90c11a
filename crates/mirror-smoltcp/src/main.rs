//! smoltcp behind the same mirror as plumb's stack: the peer that it is measured against.
//!
//! Started by plumb as the mirror's process, never by hand. It uses plumb's devices, so that what differs
//! is the stack. Left out: everything that plumb itself needs.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use plumb_host::harness::mirror::peer::{self, Mirror, MirrorError, Site};
use plumb_host::harness::spec::MirrorDevice;

mod phy;
mod replay;
mod stack;
mod tap;

fn main() -> ExitCode {
    ExitCode::from(peer::main(open))
}

fn open(site: Site) -> Result<Box<dyn Mirror>, MirrorError> {
    match site.spec.device {
        MirrorDevice::Tap => Ok(Box::new(tap::TapMirror::new(site)?)),
        MirrorDevice::Memory => Ok(Box::new(replay::ReplayMirror::new(&site)?)),
        other => {
            let name = other.name();
            Err(MirrorError::Unavailable(format!("smoltcp is not measured over {name}")))
        }
    }
}
