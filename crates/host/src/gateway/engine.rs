//! The gateway's thread: waits for its sockets and for held packets, and gives each to whom it
//! concerns.
//!
//! Left out: what is done about them (`super::stream`, `super::datagram`).

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use plumb_base::time::Span;
use plumb_sys::epoll::{Epoll, Event, Interest};
use plumb_sys::fd;
use plumb_wire::flow::FiveTuple;
use plumb_wire::protocol::Protocol;

use super::datagram::Datagrams;
use super::eviction::Candidate;
use super::gate::{Gate, Held};
use super::outside::Outside;
use super::relay::Side;
use super::resolver::Questions;
use super::stream::Streams;
use super::table::{Counts, Table};
use super::target::Targets;
use crate::clock::monotonic_ns;
use crate::device::Device;
use crate::lab::{LabError, Namespace};

/// Held packets that wait for the thread at most.
const HELD_MAX: usize = 1_024;
/// Flows at most, however many descriptors this process may open.
const FLOWS_MAX: usize = 1_024;
/// Descriptors that are left to everything else of this process.
const DESCRIPTORS_ELSE: usize = 128;
/// Those that a flow may take: a socket on each side, and a listener for a connection.
const DESCRIPTORS_EACH: usize = 3;
/// How often idle flows are looked for.
const LOOK_EVERY: Span = Span::from_ms(1_000);
/// What is read at a time.
const SCRATCH: usize = 64 << 10;
/// The token of the descriptor that wakes the thread.
const WAKE: u64 = 0;

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The far side's namespace does not become what it must be.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The kernel refused.
    #[error("cannot start the gateway to the network outside: {0}; try --isolated, which has none")]
    Io(#[from] io::Error),
}

/// What a gateway is made of.
#[derive(Debug)]
pub struct Settings {
    /// The namespace at the far side of the link: see [`crate::lab::TestBed::open_far_to_all`].
    pub inside: Namespace,
    /// A descriptor of the far TAP, which packets come with a virtio header through.
    pub tap: OwnedFd,
    /// Who makes sockets outside.
    pub outside: Outside,
    /// What addresses mean.
    pub targets: Targets,
}

/// A gateway at work; it ends when it is dropped.
#[derive(Debug)]
pub struct Gateway {
    table: Arc<Table>,
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
        settings: Settings,
        device: D,
    ) -> Result<(Self, Gate<D>), GatewayError> {
        let most = descriptors_max().saturating_sub(DESCRIPTORS_ELSE) / DESCRIPTORS_EACH;
        let most = most.clamp(16, FLOWS_MAX);
        let table = Arc::new(Table::new(most));
        let wake = Arc::new(fd::eventfd()?);
        fd::set_nonblocking((*wake).as_fd(), true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, held) = sync_channel(HELD_MAX);
        let epoll = Epoll::new()?;
        epoll.add((*wake).as_fd(), WAKE, Interest { read: true, write: false })?;
        let gate = Gate::new(
            device,
            Arc::clone(&table),
            settings.targets.clone(),
            sender,
            Arc::clone(&wake),
        );
        let hub = Hub {
            epoll,
            table: Arc::clone(&table),
            tap: settings.tap,
            outside: settings.outside,
            questions: Questions::new(&settings.targets.resolvers),
            targets: settings.targets,
            things: BTreeMap::new(),
            token: WAKE,
            now_ns: monotonic_ns(),
            scratch: vec![0; SCRATCH],
        };
        let engine =
            Engine { hub, held, streams: Streams::default(), datagrams: Datagrams::default() };
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
    pub fn counts(&self) -> Counts {
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
pub(super) enum Thing {
    Listener(SocketAddr),
    Stream(FiveTuple),
    Datagrams(FiveTuple, Side),
}

/// What every part of the engine uses.
#[derive(Debug)]
pub(super) struct Hub {
    epoll: Epoll,
    pub(super) table: Arc<Table>,
    tap: OwnedFd,
    pub(super) outside: Outside,
    pub(super) targets: Targets,
    pub(super) questions: Questions,
    pub(super) things: BTreeMap<u64, Thing>,
    token: u64,
    pub(super) now_ns: u64,
    pub(super) scratch: Vec<u8>,
}

impl Hub {
    /// Waits for a descriptor from now on; by which token.
    pub(super) fn watch(&mut self, fd: BorrowedFd<'_>, thing: Thing, interest: Interest) -> u64 {
        self.token += 1;
        // Refused only for want of memory: then it is as one that never hears of anything, and expires.
        if self.epoll.add(fd, self.token, interest).is_ok() {
            self.things.insert(self.token, thing);
        }
        self.token
    }

    /// Waits for something else than before; where absent, not even for a failure, which is told
    /// without being asked for.
    pub(super) fn rewatch(
        &mut self,
        fd: BorrowedFd<'_>,
        token: u64,
        [before, interest]: [Option<Interest>; 2],
    ) {
        // Refused only for want of memory: see `watch`.
        match (before, interest) {
            (Some(_), Some(interest)) => self.epoll.change(fd, token, interest).ok(),
            (None, Some(interest)) => self.epoll.add(fd, token, interest).ok(),
            (Some(_), None) => self.epoll.remove(fd).ok(),
            (None, None) => None,
        };
    }

    /// Waits for it no more.
    pub(super) fn unwatch(&mut self, fd: BorrowedFd<'_>, token: u64) {
        self.epoll.remove(fd).ok();
        self.things.remove(&token);
    }

    /// Lets a held packet into the far side.
    pub(super) fn inject(&self, frame: &[u8]) {
        // What the TAP does not take is a packet lost: its sender sends again.
        fd::write(self.tap.as_fd(), frame).ok();
    }
}

#[derive(Debug)]
struct Engine {
    hub: Hub,
    held: Receiver<Held>,
    streams: Streams,
    datagrams: Datagrams,
}

impl Engine {
    fn run(mut self, stop: &AtomicBool, wake: &OwnedFd) {
        let mut events = Vec::new();
        let every_ms = i32::try_from(LOOK_EVERY.as_ns() / 1_000_000).unwrap_or(1_000);
        let mut look_ns = monotonic_ns() + LOOK_EVERY.as_ns();
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
                self.take(held);
            }
            if self.hub.now_ns >= look_ns {
                look_ns = self.hub.now_ns + LOOK_EVERY.as_ns();
                self.streams.expire(&mut self.hub);
                self.datagrams.expire(&mut self.hub);
            }
        }
    }
}

impl Engine {
    /// Something has happened to a descriptor.
    fn handle(&mut self, event: Event) {
        let Some(&thing) = self.hub.things.get(&event.token) else { return };
        match thing {
            Thing::Listener(place) => self.streams.accept(place, &mut self.hub),
            Thing::Stream(flow) => self.streams.handle(flow, event, &mut self.hub),
            Thing::Datagrams(flow, side) => self.datagrams.handle(flow, side, &mut self.hub),
        }
    }

    /// A packet has been held.
    fn take(&mut self, Held { flow, frame }: Held) {
        let is_new = flow.protocol == Protocol::TCP || !self.datagrams.knows(flow);
        if is_new && !self.make_room() {
            self.hub.table.count(|counts| counts.no_room += 1);
            self.hub.table.forget(flow);
        } else if flow.protocol == Protocol::TCP {
            self.streams.begin(flow, frame, &mut self.hub);
        } else {
            self.datagrams.begin(flow, &frame, &mut self.hub);
        }
    }

    /// Whether there is room for one more flow: where there is none, the one that can best be spared
    /// makes it.
    fn make_room(&mut self) -> bool {
        let Self { hub, streams, datagrams, .. } = self;
        if streams.len() + datagrams.len() < hub.table.most() {
            return true;
        }
        let mut last = None;
        let next = |streams: &Streams, datagrams: &Datagrams, last, now_ns| {
            let two = [streams.dispensable(now_ns, last), datagrams.dispensable(now_ns, last)];
            two.into_iter().flatten().min()
        };
        while let Some(candidate) = next(streams, datagrams, last, hub.now_ns) {
            let Candidate { reason, flow, .. } = candidate;
            let gone = match flow.protocol {
                Protocol::TCP => streams.evict(flow, hub),
                _ => datagrams.evict(flow, hub),
            };
            if gone {
                hub.table.count_evicted(reason);
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
impl Hub {
    /// With room for so many flows, beside a helper of its own, and a TAP that nobody reads.
    pub(super) fn lone(most: usize) -> Self {
        use plumb_sys::{inet, pass, socket};

        use super::resolver::Resolvers;
        let targets = Targets { far: Vec::new(), resolvers: Resolvers::of("") };
        let (own, its) = socket::pair(socket::Kind::SeqPacket).unwrap();
        std::thread::spawn(move || {
            let mut request = [0; 2];
            while let Ok((1.., _)) = pass::receive(its.as_fd(), &mut request) {
                let kind = if request[1] == 0 { inet::Kind::Stream } else { inet::Kind::Datagram };
                let made = inet::socket(request[0] != 0, kind).unwrap();
                pass::send(its.as_fd(), &[0; 4], &[made.as_fd()]).unwrap();
            }
        });
        Self {
            epoll: Epoll::new().unwrap(),
            table: Arc::new(Table::new(most)),
            tap: fd::eventfd().unwrap(),
            outside: Outside::new(own),
            questions: Questions::new(&targets.resolvers),
            targets,
            things: BTreeMap::new(),
            token: WAKE,
            now_ns: 0,
            scratch: vec![0; SCRATCH],
        }
    }
}

#[cfg(test)]
mod tests;
