//! The process that sends: a thread for each stream, which writes one message after another until told to
//! stop; the last message of a stream begins with a one.
//!
//! It never times anything. Left out: connecting, which the worker has done.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

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
pub(super) enum WorkerToSource {
    /// Take over the far ends.
    Attach(Attach),
    /// Send messages of this size on every stream.
    Begin {
        /// In bytes.
        size: u64,
    },
    /// Send one message more on every stream, the last.
    Stop,
    /// End.
    Quit,
}

/// All that the sender needs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Attach {
    /// The far ends' inherited descriptors by number.
    pub(super) fds: Vec<i32>,
    /// The CPUs to run on; any where empty.
    pub(super) cpus: Vec<u32>,
    /// What it asks of the kernel for itself.
    pub(super) tweaks: Tweaks,
    /// Seed of the launch.
    pub(super) seed: u64,
}

/// What the sender says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SourceToWorker {
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
    },
    /// Something broke.
    Failed(String),
}

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
    while let WorkerToSource::Begin { size } = control.hear()? {
        let answer = match send_all(&attach, &sockets, size, &mut control) {
            Ok((messages, cpu)) => SourceToWorker::Stopped { messages, cpu },
            Err(error) => SourceToWorker::Failed(error.to_string()),
        };
        control.say(&answer)?;
    }
    Ok(())
}

/// Sends on every stream until told to stop: messages of each, and the CPU time of all.
fn send_all(
    attach: &Attach,
    sockets: &[TcpStream],
    size: u64,
    control: &mut Control,
) -> io::Result<(Vec<u64>, CpuUse)> {
    let size = usize::try_from(size).map_err(io::Error::other)?;
    let pattern = payload::pattern(attach.seed, size);
    let mut buffers = Vec::with_capacity(sockets.len());
    for _ in sockets {
        let mut buffer = Buffer::new(size, attach.tweaks)?;
        buffer.bytes_mut().copy_from_slice(&pattern);
        buffers.push(buffer);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut senders = Vec::with_capacity(sockets.len());
        for (socket, buffer) in sockets.iter().zip(&mut buffers) {
            let (stop, tweaks) = (&stop, attach.tweaks);
            let send = move || {
                tweaks.take_in_thread()?;
                send(socket.as_fd(), buffer.bytes_mut(), stop)
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
        let told = control.say(&SourceToWorker::Begun).and_then(|()| control.hear());
        stop.store(true, Relaxed);
        if !matches!(told, Ok(WorkerToSource::Stop)) {
            give_up(sockets);
        }
        let joined = senders.into_iter().map(|sender| {
            sender.join().unwrap_or_else(|_| Err(io::Error::other("a sending thread panicked")))
        });
        let messages = joined.collect::<io::Result<Vec<u64>>>()?;
        Ok((messages, CpuReading::now().since(before)))
    })
}

fn give_up(sockets: &[TcpStream]) {
    for socket in sockets {
        // One that is closed already needs no closing.
        drop(socket.shutdown(std::net::Shutdown::Both));
    }
}

/// Sends messages until told to stop, and one more, the last; how many.
fn send(fd: BorrowedFd<'_>, message: &mut [u8], stop: &AtomicBool) -> io::Result<u64> {
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
        if is_last {
            return Ok(messages);
        }
    }
}
