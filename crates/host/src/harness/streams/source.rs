//! The process that sends: a thread for each stream, which writes one message after another until told to
//! stop; the last message of a stream begins with a one.
//!
//! It never times anything. Left out: connecting, which the worker or a steward has done.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use plumb_sys::clock::{self, Clock};
use plumb_sys::{affinity, fd, socket};
use serde::{Deserialize, Serialize};

use super::Tweaks;
use super::tweaks::{Buffer, thread};
use crate::harness::control::Control;
use crate::harness::effort::CpuReading;
use crate::harness::payload;
use crate::harness::spec::CpuUse;
use crate::harness::subordinate;

/// The hidden subcommand that runs it.
pub(super) const WORD: &str = "__source";

/// The first byte of a stream's last message; of every other it is 0.
pub(super) const LAST: u8 = 1;

/// What the worker says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WorkerToSource {
    /// Take over the far ends.
    Attach(Attach),
    /// Send messages of this size on every stream.
    Begin {
        /// In bytes.
        size: u64,
        /// How often to note what was sent and what that has cost, for who cannot read this process' CPU clock.
        note_every_ns: Option<u64>,
    },
    /// Send one message more on every stream, the last.
    Stop,
    /// End.
    Quit,
}

/// All that the sender needs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Attach {
    /// The far ends' inherited descriptors by number.
    pub(crate) fds: Vec<i32>,
    /// The CPUs to run on; any where empty.
    pub(crate) cpus: Vec<u32>,
    /// What it asks of the kernel for itself.
    pub(crate) tweaks: Tweaks,
    /// Seed of the launch.
    pub(crate) seed: u64,
}

/// What the sender says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SourceToWorker {
    /// It has the far ends.
    Attached,
    /// This host does not allow it.
    Refused(String),
    /// It sends.
    Begun,
    /// Every stream's last message is sent.
    Stopped {
        /// Messages of each stream.
        messages: Vec<u64>,
        /// CPU time since it began.
        cpu: CpuUse,
        /// What was noted meanwhile.
        notes: Vec<Note>,
    },
    /// Something broke.
    Failed(String),
}

/// What was sent so far, and what it has cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// Messages of all streams.
    pub(crate) messages: u64,
    /// CPU time of the process.
    pub(crate) cpu_ns: u64,
}

/// Most of them: many times what a block is told to have.
const NOTES_MAX: usize = 1_000;

/// Messages of one stream so far, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Tally(AtomicU64);

/// Runs a sender whose control socket is the inherited descriptor that the second argument names; its exit
/// code.
pub fn main() -> u8 {
    subordinate::main(serve)
}

fn serve(control_fd: OwnedFd) -> io::Result<()> {
    let mut control = Control::new(control_fd);
    let WorkerToSource::Attach(attach) = control.hear()? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    if !attach.cpus.is_empty() {
        affinity::bind(&attach.cpus)?;
    }
    let adopted = attach.fds.iter().map(|&number| fd::adopt(number).map(TcpStream::from));
    let sockets: Vec<TcpStream> = adopted.collect::<io::Result<_>>()?;
    if let Err(reason) = attach.tweaks.take() {
        return control.say(&SourceToWorker::Refused(reason));
    }
    control.say(&SourceToWorker::Attached)?;
    while let WorkerToSource::Begin { size, note_every_ns } = control.hear()? {
        let answer = match send_all(&attach, &sockets, size, note_every_ns, &mut control) {
            Ok(stopped) => stopped,
            Err(error) => SourceToWorker::Failed(error.to_string()),
        };
        control.say(&answer)?;
    }
    Ok(())
}

/// Sends on every stream until told to stop: what it says of that.
fn send_all(
    attach: &Attach,
    sockets: &[TcpStream],
    size: u64,
    note_every_ns: Option<u64>,
    control: &mut Control,
) -> io::Result<SourceToWorker> {
    let size = usize::try_from(size).map_err(io::Error::other)?;
    let pattern = payload::pattern(attach.seed, size);
    let mut buffers = Vec::with_capacity(sockets.len());
    for _ in sockets {
        let mut buffer = Buffer::new(size, attach.tweaks)?;
        buffer.bytes_mut().copy_from_slice(&pattern);
        buffers.push(buffer);
    }
    let stop = AtomicBool::new(false);
    let tallies: Vec<Tally> = sockets.iter().map(|_| Tally::default()).collect();
    std::thread::scope(|scope| {
        let mut senders = Vec::with_capacity(sockets.len());
        for ((socket, buffer), tally) in sockets.iter().zip(&mut buffers).zip(&tallies) {
            let (stop, tweaks) = (&stop, attach.tweaks);
            let send = move || {
                tweaks.take_in_thread()?;
                send(socket.as_fd(), buffer.bytes_mut(), &tally.0, stop)
            };
            let sender = thread("sender").spawn_scoped(scope, send);
            match sender {
                Ok(sender) => senders.push(sender),
                Err(error) => {
                    // Those that send already would wait for a receiver that never hears of it.
                    give_up(sockets);
                    return Err(error);
                }
            }
        }
        // Threads and their stacks are made by now.
        let before = CpuReading::now();
        let mut notes = Vec::new();
        let told = control.say(&SourceToWorker::Begun).and_then(|()| {
            if let Some(every) = note_every_ns {
                note(&tallies, every, control, &mut notes)?;
            }
            control.hear()
        });
        stop.store(true, Relaxed);
        if !matches!(told, Ok(WorkerToSource::Stop)) {
            give_up(sockets);
        }
        let joined = senders.into_iter().map(|sender| {
            sender.join().unwrap_or_else(|_| Err(io::Error::other("a sending thread panicked")))
        });
        let messages = joined.collect::<io::Result<Vec<u64>>>()?;
        let cpu = CpuReading::now().since(before);
        Ok(SourceToWorker::Stopped { messages, cpu, notes })
    })
}

/// Notes what was sent and what it has cost, at even intervals, until the worker says something.
fn note(
    tallies: &[Tally],
    every_ns: u64,
    control: &Control,
    notes: &mut Vec<Note>,
) -> io::Result<()> {
    let every_ms = i32::try_from(every_ns.div_ceil(1_000_000)).unwrap_or(i32::MAX);
    while notes.len() < NOTES_MAX {
        let messages = tallies.iter().map(|tally| tally.0.load(Relaxed)).sum();
        notes.push(Note { messages, cpu_ns: clock::read_ns(Clock::ProcessCpu) });
        match control.is_said_within(every_ms) {
            Ok(true) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Ok(false) | Err(_) => {}
        }
    }
    Ok(())
}

fn give_up(sockets: &[TcpStream]) {
    for socket in sockets {
        // One that is closed already needs no closing.
        drop(socket.shutdown(std::net::Shutdown::Both));
    }
}

/// Sends messages until told to stop, and one more, the last; how many.
fn send(
    fd: BorrowedFd<'_>,
    message: &mut [u8],
    tally: &AtomicU64,
    stop: &AtomicBool,
) -> io::Result<u64> {
    let mut messages = 0;
    loop {
        let is_last = stop.load(Relaxed);
        message[0] = if is_last { LAST } else { 0 };
        let mut sent = 0;
        while sent < message.len() {
            match socket::send(fd, &message[sent..]) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        messages += 1;
        tally.store(messages, Relaxed);
        if is_last {
            return Ok(messages);
        }
    }
}
