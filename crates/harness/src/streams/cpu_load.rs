//! A process that takes a part of some CPUs away, so that whoever runs there has slower ones.
//!
//! On each CPU a thread of real-time priority computes for that part of every period and sleeps for the
//! rest. Unlike a control group's limit it needs no place in a file system that a killed program would leave
//! behind: it dies with the worker. Left out: slower memory and caches, which stay as fast as they are.

use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::sync::mpsc;
use std::thread::Builder;
use std::{hint, io};

use plumb_sys::{sched, timer};
use serde::{Deserialize, Serialize};

use crate::child_process::{self, ControlledProcess, HiddenCommand, SELF_EXE, control_sockets};
use crate::launch_protocol::ControlSocket;
use crate::report::LaunchFault;
use plumb_clock::monotonic_ns;

/// Short beside the intervals of a block, long beside a switch of threads.
const PERIOD_NS: u64 = 2_000_000;

/// Above every thread that is measured.
const PRIORITY: i32 = 10;

/// Which part of which CPUs is left to others.
#[derive(Debug, Serialize, Deserialize)]
struct CpuLoadRequest {
    cpus: Vec<u32>,
    percent: u8,
}

/// What the process says: that it computes, or why it may not.
type CpuLoadOutcome = Result<(), String>;

/// The process as the worker knows it; killed when forgotten.
#[derive(Debug)]
pub(crate) struct CpuLoadProcess {
    #[expect(dead_code, reason = "held, not read")]
    process: ControlledProcess,
}

impl CpuLoadProcess {
    /// Leaves this percentage of each of these CPUs to others, from when it returns.
    pub(crate) fn start(cpus: &[u32], percent: u8) -> Result<Self, LaunchFault> {
        let (process, answer): (_, CpuLoadOutcome) = ControlledProcess::start(
            Path::new(SELF_EXE),
            HiddenCommand::CpuLoad,
            control_sockets()?,
            Vec::new(),
            &CpuLoadRequest { cpus: cpus.to_vec(), percent },
        )?;
        answer.map_err(LaunchFault::Unavailable)?;
        Ok(Self { process })
    }
}

/// Runs it over an inherited control socket; its exit code.
pub fn main(control: RawFd) -> u8 {
    child_process::main(control, serve)
}

fn serve(control_fd: OwnedFd) -> io::Result<()> {
    let mut control = ControlSocket::new(control_fd);
    let orders: CpuLoadRequest = control.receive()?;
    let (tell, told) = mpsc::channel();
    for &cpu in &orders.cpus {
        let tell = tell.clone();
        let percent = orders.percent;
        Builder::new().name("share".to_owned()).spawn(move || {
            let ready = sched::bind(&[cpu]).and_then(|()| sched::set_real_time(PRIORITY));
            let refused = ready.is_err();
            // Nobody listens only when the process is about to end.
            drop(tell.send(ready));
            if !refused {
                burn(percent);
            }
        })?;
    }
    drop(tell);
    let outcome: io::Result<()> = told.iter().take(orders.cpus.len()).collect();
    let answer: CpuLoadOutcome = outcome.map_err(|error| {
        format!(
            "taking CPU time away needs a real-time priority, which this user may not have ({error}): \
             run as root, or raise 'ulimit -r'"
        )
    });
    control.send(&answer)?;
    // Until the worker is gone.
    drop(control.receive::<CpuLoadRequest>());
    Ok(())
}

/// Computes for its part of every period, for ever.
fn burn(percent_left: u8) -> ! {
    let burn_ns = PERIOD_NS / 100 * u64::from(100 - percent_left.min(100));
    let mut begin = monotonic_ns();
    loop {
        while monotonic_ns() < begin + burn_ns {
            hint::spin_loop();
        }
        begin += PERIOD_NS;
        let now = monotonic_ns();
        match begin.checked_sub(now) {
            Some(left) => {
                timer::sleep_ns(left);
            }
            // A machine that stood still owes nothing.
            None => begin = now,
        }
    }
}
