//! Transfers in memory, in real time: both hosts in one thread, frames handed from one to the other. What is timed is what both stacks,
//! the application and the packet buffers take.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_harness::mirror::mirror_process::NamedSamples;
use plumb_harness::program_task::{ProgramRun, end_preparation};
use plumb_harness::report::LaunchFault;
use plumb_harness::spec::{StackEntry, TransferLoad, TransferSpec};
use plumb_stack::host::IpHost;
use plumb_stack::tcp::{Received, TcpId};
use plumb_wire::machine::{Machine as _, PortId};
use plumb_wire::packet::{Batch, Pool, PoolConfig};

use super::packet_buffers::PacketStore;
use super::{host, keeps_packets, open, tcp_config};

/// Frames on the link at once.
const BURST: usize = 64;
/// Time of the hosts' clocks that a turn takes.
const TURN: Span = Span::from_us(20);
/// Bytes of a sample.
const SAMPLE: u64 = 128 << 10;
/// Bytes sent before the first sample.
const WARM_UP: u64 = 1 << 20;
/// Turns in which the connection is open, or something is wrong.
const TURNS_MAX: u32 = 100_000;
const PORT: PortId = PortId(0);
const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// Carries out transfers for as long as a block lasts.
pub(super) fn run(spec: &TransferSpec, run: &ProgramRun) -> Result<NamedSamples, LaunchFault> {
    let TransferLoad::Bulk { write, entry, .. } = spec.load else {
        return Err(LaunchFault::Failed("a transfer in memory is of a file".to_owned()));
    };
    let mut pair = MemoryPair::new(spec, Seed(run.seed))?;
    let write = write as usize;
    match entry {
        StackEntry::Call => {
            let block = vec![b'x'; write];
            Ok(measure(run, || pair.write(&block)))
        }
        StackEntry::Message => {
            std::thread::scope(|scope| {
                let (send, requests) = sync_channel::<Vec<u8>>(0);
                let (reply, replies) = sync_channel::<Vec<u8>>(0);
                scope.spawn(move || serve(&mut pair, &requests, &reply));
                let mut block = Some(vec![b'x'; write]);
                // The server ends when this end hangs up.
                Ok(measure(run, move || {
                    let message = block.take().unwrap_or_default();
                    block = send.send(message).ok().and_then(|()| replies.recv().ok());
                    write as u64
                }))
            })
        }
    }
}

/// The stack as a server: takes a block, sends it, replies.
fn serve(pair: &mut MemoryPair, requests: &Receiver<Vec<u8>>, reply: &SyncSender<Vec<u8>>) {
    while let Ok(block) = requests.recv() {
        pair.write(&block);
        if reply.send(block).is_err() {
            break;
        }
    }
}

/// Bytes a second, sample by sample.
fn measure(run: &ProgramRun, mut write: impl FnMut() -> u64) -> NamedSamples {
    let mut warm = 0;
    while warm < WARM_UP {
        warm += write();
    }
    end_preparation();
    let (watch, mut samples) = (run.watch, Vec::new());
    let begun = watch.begin();
    loop {
        let (start, mut bytes) = (watch.begin(), 0);
        while bytes < SAMPLE {
            bytes += write();
        }
        let end = watch.end();
        samples.push(bytes as f64 / (watch.ns(end.wrapping_sub(start)) * 1e-9));
        if end.wrapping_sub(begun) >= run.duration_ticks {
            break;
        }
    }
    vec![("throughput".to_owned(), samples)]
}

/// Two hosts, a connection between them, and what keeps packets on their way to the receiver.
struct MemoryPair {
    hosts: [IpHost; 2],
    connections: [TcpId; 2],
    store: Option<PacketStore>,
    pool: Pool,
    batch: Batch,
    now: Instant,
}

impl MemoryPair {
    fn new(spec: &TransferSpec, seed: Seed) -> Result<Self, LaunchFault> {
        let mut hosts = [0, 1].map(|end| host(end, seed));
        let mut pool = Pool::new(PoolConfig { count: 512, size: 2_048, large: 0 });
        let mut now = Instant::after_origin(Span::from_secs(1));
        let (opened, listener) = open(&mut hosts, now, &tcp_config(&spec.tcp), &pool);
        let mut batch = Batch::with_capacity(BURST);
        for _ in 0..TURNS_MAX {
            for from in [SENDER, RECEIVER] {
                hosts[from].poll_packets(now, PORT, &mut batch, BURST, &mut pool);
                hosts[1 - from].handle_packets(now, PORT, &mut batch, &mut pool);
            }
            now += TURN;
            if let Some(accepted) = hosts[RECEIVER].tcp_accept(listener) {
                let policy = spec.tcp.packet_buffers;
                let store = keeps_packets(policy).then(|| PacketStore::new(policy, BURST));
                let connections = [opened, accepted];
                return Ok(Self { hosts, connections, store, pool, batch, now });
            }
        }
        Err(LaunchFault::Failed("two hosts in memory did not open a connection".to_owned()))
    }

    /// Writes a block, and lets all of it arrive; its bytes.
    fn write(&mut self, block: &[u8]) -> u64 {
        let mut rest = block;
        while !rest.is_empty() {
            let sent = self.hosts[SENDER].tcp_send(self.now, self.connections[SENDER], rest);
            rest = &rest[sent.unwrap_or(0)..];
            self.turn();
        }
        block.len() as u64
    }

    /// What the sender has goes to the receiver, whose application reads it; what that has to say goes back.
    fn turn(&mut self) {
        let Self { hosts, store, pool, batch, now, .. } = self;
        hosts[SENDER].poll_packets(*now, PORT, batch, BURST, pool);
        if let Some(store) = store {
            for packet in batch.drain(..) {
                store.keep(pool.bytes(&packet));
                pool.free(packet);
            }
            while store.take(|frame| batch.extend(pool.packet_of(frame))) {}
        }
        hosts[RECEIVER].handle_packets(*now, PORT, batch, pool);
        let id = self.connections[RECEIVER];
        while let Ok(Received::Data(_)) = hosts[RECEIVER].tcp_receive_with(*now, id, <[u8]>::len) {}
        hosts[RECEIVER].poll_packets(*now, PORT, batch, BURST, pool);
        hosts[SENDER].handle_packets(*now, PORT, batch, pool);
        *now += TURN;
        for host in hosts {
            if host.deadline().is_some_and(|deadline| deadline <= *now) {
                host.handle_deadline(*now, pool);
            }
        }
    }
}
