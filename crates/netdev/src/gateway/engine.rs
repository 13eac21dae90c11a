//! The gateway's thread: waits for its sockets and for held packets, and gives each to whom it
//! concerns.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_sys::fd::{self, Epoll, EpollEvent, EpollInterest};
use plumb_sys::process;
use plumb_sys::socket::{self, InetSocketKind};
use plumb_wire::flow::FiveTuple;
use plumb_wire::ip::IpProtocol;

use crate::device::Device;
use crate::gateway::flow_table::{EvictionCandidate, FlowTable, GatewayCounters};
use crate::gateway::relay::RelaySide;
use crate::gateway::resolver::{AddressMap, DnsQueries};
use crate::gateway::tcp::TcpFlows;
use crate::gateway::udp::UdpFlows;
use crate::gateway::{GatewayDevice, HeldPacket};
use crate::lab::NetNamespace;

/// Held packets that wait for the thread at most.
const HELD_MAX: usize = 1_024;
/// Flows at most, however many descriptors this process may open.
const FLOWS_MAX: usize = 1_024;
/// Descriptors that are left to everything else of this process.
const FDS_RESERVED: usize = 128;
/// Those that a flow may take: a socket on each side, and a listener for a connection.
const FDS_PER_FLOW: usize = 3;
/// How often idle flows are looked for.
const EXPIRY_INTERVAL: Span = Span::from_ms(1_000);
/// What is read at a time.
const SCRATCH: usize = 64 << 10;
/// The token of the descriptor that wakes the thread.
const WAKE: u64 = 0;

/// Why there is no gateway: the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the gateway to the network outside: {0}; try --isolated, which has none")]
pub struct GatewayError(#[from] io::Error);

/// What a gateway is made of.
#[derive(Debug)]
pub struct GatewayOptions {
    /// The namespace at the far side of the link: see [`crate::lab::TestBed::route_all_to_far`].
    pub inside: NetNamespace,
    /// A descriptor of the far TAP, which packets come with a virtio header through.
    pub tap: OwnedFd,
    /// Who makes sockets outside.
    pub outside: OutsideSockets,
    /// What addresses mean.
    pub targets: AddressMap,
}

/// A gateway at work; it ends when it is dropped.
#[derive(Debug)]
pub struct Gateway {
    table: Arc<FlowTable>,
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Starts its thread, and puts the gate before the far device of a link.
    ///
    /// # Errors
    /// The kernel refuses a thread or a descriptor.
    pub fn start<D: Device>(
        settings: GatewayOptions,
        device: D,
    ) -> Result<(Self, GatewayDevice<D>), GatewayError> {
        let most = descriptors_max().saturating_sub(FDS_RESERVED) / FDS_PER_FLOW;
        let most = most.clamp(16, FLOWS_MAX);
        let table = Arc::new(FlowTable::new(most));
        let wake = Arc::new(fd::eventfd()?);
        fd::set_nonblocking((*wake).as_fd(), true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, held) = sync_channel(HELD_MAX);
        let epoll = Epoll::new()?;
        epoll.add((*wake).as_fd(), WAKE, EpollInterest { read: true, write: false })?;
        let gate = GatewayDevice {
            device,
            table: Arc::clone(&table),
            targets: settings.targets.clone(),
            held: sender,
            wake: Arc::clone(&wake),
            scratch: Vec::new(),
        };
        let hub = GatewayContext {
            epoll,
            table: Arc::clone(&table),
            tap: settings.tap,
            outside: settings.outside,
            questions: DnsQueries::new(&settings.targets.resolvers),
            targets: settings.targets,
            watched: BTreeMap::new(),
            token: WAKE,
            now_ns: monotonic_ns(),
            scratch: vec![0; SCRATCH],
        };
        let engine = GatewayEngine {
            hub,
            held,
            streams: TcpFlows::default(),
            datagrams: UdpFlows::default(),
        };
        let (stopped, woken) = (Arc::clone(&stop), Arc::clone(&wake));
        let inside = settings.inside;
        let thread = std::thread::Builder::new().name("gateway".to_owned()).spawn(move || {
            // Sockets that it opens shall be of the far side. Refused, it carries nothing, and every
            // flow is counted as one without room.
            inside.enter(|| engine.run(&stopped, &woken)).ok();
        })?;
        Ok((Self { table, wake, stop, thread: Some(thread) }, gate))
    }

    /// What it did so far.
    pub fn counts(&self) -> GatewayCounters {
        self.table.counts()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        fd::write((*self.wake).as_fd(), &1_u64.to_ne_bytes()).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// What a descriptor that is waited for belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchedSocket {
    Listener(SocketAddr),
    Stream(FiveTuple),
    Datagrams(FiveTuple, RelaySide),
}

/// What every part of the engine uses.
#[derive(Debug)]
pub(super) struct GatewayContext {
    epoll: Epoll,
    pub(super) table: Arc<FlowTable>,
    tap: OwnedFd,
    pub(super) outside: OutsideSockets,
    pub(super) targets: AddressMap,
    pub(super) questions: DnsQueries,
    pub(super) watched: BTreeMap<u64, WatchedSocket>,
    token: u64,
    pub(super) now_ns: u64,
    pub(super) scratch: Vec<u8>,
}

impl GatewayContext {
    /// Waits for a descriptor from now on; by which token.
    pub fn watch(
        &mut self,
        fd: BorrowedFd<'_>,
        thing: WatchedSocket,
        interest: EpollInterest,
    ) -> u64 {
        self.token += 1;
        // Refused only for want of memory: then it is as one that never hears of anything, and expires.
        if self.epoll.add(fd, self.token, interest).is_ok() {
            self.watched.insert(self.token, thing);
        }
        self.token
    }

    /// Waits for something else than before; where absent, not even for a failure, which is told
    /// without being asked for.
    pub fn rewatch(
        &mut self,
        fd: BorrowedFd<'_>,
        token: u64,
        [before, interest]: [Option<EpollInterest>; 2],
    ) {
        // Refused only for want of memory: see `watch`.
        match (before, interest) {
            (Some(_), Some(interest)) => self.epoll.modify(fd, token, interest).ok(),
            (None, Some(interest)) => self.epoll.add(fd, token, interest).ok(),
            (Some(_), None) => self.epoll.remove(fd).ok(),
            (None, None) => None,
        };
    }

    /// Waits for it no more.
    pub fn unwatch(&mut self, fd: BorrowedFd<'_>, token: u64) {
        self.epoll.remove(fd).ok();
        self.watched.remove(&token);
    }

    /// Lets a held packet into the far side.
    pub fn inject(&self, frame: &[u8]) {
        // A frame that the TAP refuses is a lost packet; its sender retransmits.
        fd::write(self.tap.as_fd(), frame).ok();
    }
}

#[derive(Debug)]
struct GatewayEngine {
    hub: GatewayContext,
    held: Receiver<HeldPacket>,
    streams: TcpFlows,
    datagrams: UdpFlows,
}

impl GatewayEngine {
    fn run(mut self, stop: &AtomicBool, wake: &OwnedFd) {
        let mut events = Vec::new();
        let every_ms = i32::try_from(EXPIRY_INTERVAL.as_ns() / 1_000_000).unwrap_or(1_000);
        let mut look_ns = monotonic_ns() + EXPIRY_INTERVAL.as_ns();
        while !stop.load(Ordering::Relaxed) {
            if self.hub.epoll.wait(&mut events, every_ms).is_err() {
                continue;
            }
            self.hub.now_ns = monotonic_ns();
            for event in &events {
                if event.token == WAKE {
                    fd::read(wake.as_fd(), &mut [0; 8]).ok();
                } else {
                    self.handle(*event);
                }
            }
            while let Ok(held) = self.held.try_recv() {
                self.on_held(held);
            }
            if self.hub.now_ns >= look_ns {
                look_ns = self.hub.now_ns + EXPIRY_INTERVAL.as_ns();
                self.streams.expire(&mut self.hub);
                self.datagrams.expire(&mut self.hub);
            }
        }
    }
}

impl GatewayEngine {
    /// Something has happened to a descriptor.
    fn handle(&mut self, event: EpollEvent) {
        let Some(&thing) = self.hub.watched.get(&event.token) else { return };
        match thing {
            WatchedSocket::Listener(place) => self.streams.accept(place, &mut self.hub),
            WatchedSocket::Stream(flow) => self.streams.handle(flow, event, &mut self.hub),
            WatchedSocket::Datagrams(flow, side) => {
                self.datagrams.handle(flow, side, &mut self.hub);
            }
        }
    }

    /// A packet has been held.
    fn on_held(&mut self, HeldPacket { flow, frame }: HeldPacket) {
        let is_new = flow.protocol == IpProtocol::TCP || !self.datagrams.contains(flow);
        if is_new && !self.make_room() {
            self.hub.table.count(|counts| counts.no_room += 1);
            self.hub.table.forget(flow);
        } else if flow.protocol == IpProtocol::TCP {
            self.streams.begin(flow, frame, &mut self.hub);
        } else {
            self.datagrams.begin(flow, &frame, &mut self.hub);
        }
    }

    /// Whether there is room for one more flow: where there is none, the one that can best be spared
    /// makes it.
    fn make_room(&mut self) -> bool {
        let Self { hub, streams, datagrams, .. } = self;
        if streams.len() + datagrams.len() < hub.table.most {
            return true;
        }
        let mut last = None;
        let next = |streams: &TcpFlows, datagrams: &UdpFlows, last, now_ns| {
            let two = [
                streams.eviction_candidate(now_ns, last),
                datagrams.eviction_candidate(now_ns, last),
            ];
            two.into_iter().flatten().min()
        };
        while let Some(candidate) = next(streams, datagrams, last, hub.now_ns) {
            let EvictionCandidate { reason, flow, .. } = candidate;
            let gone = match flow.protocol {
                IpProtocol::TCP => streams.evict(flow, hub),
                _ => datagrams.evict(flow, hub),
            };
            if gone {
                hub.table.count(|counts| counts.evicted.count(reason));
                return true;
            }
            last = Some(candidate);
        }
        false
    }
}

/// How many descriptors this process may open: the soft limit, by /proc/self/limits.
fn descriptors_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(FLOWS_MAX)
}

#[cfg(test)]
impl GatewayContext {
    /// With room for so many flows, beside a helper of its own, and a TAP that nobody reads.
    pub fn for_test(most: usize) -> Self {
        use crate::gateway::resolver::ResolverConfig;
        let targets = AddressMap { far: Vec::new(), resolvers: ResolverConfig::of("") };
        let (own, its) = socket::pair(socket::UnixSocketKind::SeqPacket).unwrap();
        std::thread::spawn(move || answer(&its));
        Self {
            epoll: Epoll::new().unwrap(),
            table: Arc::new(FlowTable::new(most)),
            tap: fd::eventfd().unwrap(),
            outside: OutsideSockets::new(own),
            questions: DnsQueries::new(&targets.resolvers),
            targets,
            watched: BTreeMap::new(),
            token: WAKE,
            now_ns: 0,
            scratch: vec![0; SCRATCH],
        }
    }
}

/// The inner end: asks for sockets.
///
/// A socket belongs to the network namespace that it was made in, whoever uses it.
#[derive(Debug)]
pub struct OutsideSockets {
    socket: OwnedFd,
}

impl OutsideSockets {
    /// Of the descriptor whose other end a helper serves.
    pub const fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// A socket of the outer network that does not wait.
    ///
    /// # Errors
    /// The kernel's, there; an end where the helper is gone.
    pub(super) fn socket(&self, v6: bool, kind: InetSocketKind) -> io::Result<OwnedFd> {
        let request = [u8::from(v6), u8::from(kind == InetSocketKind::Datagram)];
        socket::send_fds(self.socket.as_fd(), &request, &[])?;
        let mut answer = [0; 4];
        let (len, mut fds) = loop {
            match socket::receive_fds(self.socket.as_fd(), &mut answer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        match (len, fds.pop()) {
            (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
            (_, Some(fd)) => Ok(fd),
            (_, None) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(answer))),
        }
    }
}

/// The helper: answers until the other end is closed, or the process that started it ends.
///
/// # Errors
/// The kernel's, of the pair of sockets.
pub fn serve(socket: &OwnedFd) -> io::Result<()> {
    process::set_parent_death_signal(socket.as_fd())?;
    answer(socket)
}

fn answer(socket: &OwnedFd) -> io::Result<()> {
    let mut request = [0; 2];
    loop {
        match socket::receive_fds(socket.as_fd(), &mut request) {
            Ok((0, _)) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        let kind = if request[1] == 0 { InetSocketKind::Stream } else { InetSocketKind::Datagram };
        match socket::open(request[0] != 0, kind) {
            Ok(fd) => socket::send_fds(socket.as_fd(), &[0; 4], &[fd.as_fd()])?,
            Err(error) => {
                let number = error.raw_os_error().unwrap_or(0);
                socket::send_fds(socket.as_fd(), &number.to_ne_bytes(), &[])?
            }
        };
    }
}

#[cfg(test)]
mod tests;
