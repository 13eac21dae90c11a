//! The process that sends: a thread for each stream, which writes one message after another until told to
//! stop; the last message of a stream begins with a one.
//!
//! It never times anything. Left out: connecting, which the worker or a supervisor has done.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use plumb_net::measure::bulk::{BulkFlow, Counter};
use plumb_result::CpuUsage;
use plumb_sys::clock::ClockId;
use plumb_sys::{clock, fd, sched};
use serde::{Deserialize, Serialize};

use super::process_tweaks::{MessageBuffer, stream_thread};
use crate::effort::CpuReading;
use crate::launch_protocol::ControlSocket;
use crate::spec::ProcessTweaks;
use crate::{child_process, launch_protocol};

/// The first byte of a stream's last message; of every other it is 0.
pub(super) const LAST_MESSAGE: u8 = 1;

/// What the worker says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WorkerToSender {
    /// Take over the far ends.
    Attach(AttachStreams),
    /// Send messages of this size on every stream.
    Begin {
        /// In bytes.
        size: u64,
        /// How often to note what was sent and what that has cost, for who cannot read this process' CPU clock.
        progress_every_ns: Option<u64>,
    },
    /// Send one message more on every stream, the last.
    Stop,
    /// End.
    Quit,
}

/// All that the sender needs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AttachStreams {
    /// The far ends' inherited descriptors by number.
    pub(crate) fds: Vec<i32>,
    /// The CPUs to run on; any where empty.
    pub(crate) cpus: Vec<u32>,
    /// What it asks of the kernel for itself.
    pub(crate) tweaks: ProcessTweaks,
    /// Seed of the launch.
    pub(crate) seed: u64,
}

/// What the sender says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SenderToWorker {
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
        cpu: CpuUsage,
        /// What was noted meanwhile.
        progress: Vec<SenderProgress>,
    },
    /// Something broke.
    Failed(String),
}

/// What was sent so far, and what it has cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SenderProgress {
    /// Messages of all streams.
    pub(crate) messages: u64,
    /// CPU time of the process.
    pub(crate) cpu_ns: u64,
}

/// Most of them: many times what a block is told to have.
const PROGRESS_MAX: usize = 1_000;

/// Runs a sender over an inherited control socket; its exit code.
pub fn main(control: RawFd) -> u8 {
    child_process::main(control, serve)
}

fn serve(control_fd: OwnedFd) -> io::Result<()> {
    let mut control = ControlSocket::new(control_fd);
    let WorkerToSender::Attach(attach) = control.receive()? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    if !attach.cpus.is_empty() {
        sched::bind(&attach.cpus)?;
    }
    let adopted = attach.fds.iter().map(|&number| fd::adopt(number).map(TcpStream::from));
    let sockets: Vec<TcpStream> = adopted.collect::<io::Result<_>>()?;
    if let Err(reason) = attach.tweaks.apply() {
        return control.send(&SenderToWorker::Refused(reason));
    }
    control.send(&SenderToWorker::Attached)?;
    while let WorkerToSender::Begin { size, progress_every_ns: note_every_ns } =
        control.receive()?
    {
        let answer = match send_all(&attach, &sockets, size, note_every_ns, &mut control) {
            Ok(stopped) => stopped,
            Err(error) => SenderToWorker::Failed(error.to_string()),
        };
        control.send(&answer)?;
    }
    Ok(())
}

/// Sends on every stream until told to stop: what it says about that.
fn send_all(
    attach: &AttachStreams,
    sockets: &[TcpStream],
    size: u64,
    note_every_ns: Option<u64>,
    control: &mut ControlSocket,
) -> io::Result<SenderToWorker> {
    let size = usize::try_from(size).map_err(io::Error::other)?;
    let pattern = launch_protocol::payload_pattern(attach.seed, size);
    let mut buffers = Vec::with_capacity(sockets.len());
    for _ in sockets {
        let mut buffer = MessageBuffer::new(size, attach.tweaks)?;
        buffer.bytes_mut().copy_from_slice(&pattern);
        buffers.push(buffer);
    }
    let stop = AtomicBool::new(false);
    let tallies: Vec<Counter> = sockets.iter().map(|_| Counter::default()).collect();
    std::thread::scope(|scope| {
        let mut senders = Vec::with_capacity(sockets.len());
        for ((socket, buffer), tally) in sockets.iter().zip(&mut buffers).zip(&tallies) {
            let (stop, tweaks) = (&stop, attach.tweaks);
            let send = move || {
                tweaks.apply_to_thread()?;
                send(socket.as_fd(), buffer.bytes_mut(), tally, stop)
            };
            let sender = stream_thread("sender").spawn_scoped(scope, send);
            match sender {
                Ok(sender) => senders.push(sender),
                Err(error) => {
                    // Those that send already would wait for a receiver that never hears of it.
                    shut_down_streams(sockets);
                    return Err(error);
                }
            }
        }
        // Threads and their stacks are made by now.
        let before = CpuReading::now();
        let mut notes = Vec::new();
        let told = control.send(&SenderToWorker::Begun).and_then(|()| {
            if let Some(every) = note_every_ns {
                record_progress(&tallies, every, control, &mut notes)?;
            }
            control.receive()
        });
        stop.store(true, Relaxed);
        if !matches!(told, Ok(WorkerToSender::Stop)) {
            shut_down_streams(sockets);
        }
        let joined = senders.into_iter().map(|sender| {
            sender.join().unwrap_or_else(|_| Err(io::Error::other("a sending thread panicked")))
        });
        let messages = joined.collect::<io::Result<Vec<u64>>>()?;
        let cpu = CpuReading::now().since(before);
        Ok(SenderToWorker::Stopped { messages, cpu, progress: notes })
    })
}

/// Notes what was sent and what it has cost, at even intervals, until the worker says something.
fn record_progress(
    tallies: &[Counter],
    every_ns: u64,
    control: &ControlSocket,
    notes: &mut Vec<SenderProgress>,
) -> io::Result<()> {
    let every_ms = i32::try_from(every_ns.div_ceil(1_000_000)).unwrap_or(i32::MAX);
    while notes.len() < PROGRESS_MAX {
        let messages = tallies.iter().map(Counter::get).sum();
        notes.push(SenderProgress { messages, cpu_ns: clock::read_ns(ClockId::ProcessCpu) });
        match control.is_readable_within(every_ms) {
            Ok(true) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Ok(false) | Err(_) => {}
        }
    }
    Ok(())
}

fn shut_down_streams(sockets: &[TcpStream]) {
    for socket in sockets {
        // One that is closed already needs no closing.
        drop(socket.shutdown(std::net::Shutdown::Both));
    }
}

/// Sends messages until told to stop, and one more, the last; how many.
fn send(
    fd: BorrowedFd<'_>,
    message: &mut [u8],
    tally: &Counter,
    stop: &AtomicBool,
) -> io::Result<u64> {
    let (mut flow, mut messages) = (BulkFlow::default(), 0);
    loop {
        let is_last = stop.load(Relaxed);
        message[0] = if is_last { LAST_MESSAGE } else { 0 };
        flow.send_message(fd, message)?;
        messages += 1;
        tally.set(messages);
        if is_last {
            return Ok(messages);
        }
    }
}
