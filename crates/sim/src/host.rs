//! A host of a simulation: plumb's stack, and the application that writes and reads its connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use plumb_base::seed::Seed;
use plumb_base::time::Instant;
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::tcp::config::TcpConfig;
use plumb_stack::tcp::{ListenerId, Received, TcpEvent, TcpId};
use plumb_wire::machine::{Machine as _, PortId};
use plumb_wire::packet::{Batch, Pool};

use crate::flow::{RELAY_BUFFER, SimulatedFlow};

/// The one interface of a host.
pub const PORT: PortId = PortId(0);
/// The first port at which hosts listen, one for each group.
const FIRST_SERVICE: u16 = 5_001;
/// The first port that connections come from.
pub const FIRST_LOCAL: u16 = 10_000;

/// A host.
#[derive(Debug)]
pub struct VirtualHost {
    ip: IpHost,
    address: Ipv4Addr,
    /// The flow of each connection that has not ended, and which end of it this is.
    flows: ConnectionFlows,
    listeners: BTreeMap<ListenerId, u16>,
    /// Flows that it has opened.
    opened: usize,
    /// When flows that come from it are written next, of those that are written at times.
    writes: BTreeSet<(Instant, u32)>,
    /// Flows that have ended here since this was last asked for.
    ended: usize,
}

/// Which end of a flow a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlowEnd {
    Sender,
    Receiver,
}

/// Flows by the slots of their connections.
#[derive(Debug, Default)]
struct ConnectionFlows(Vec<Option<(TcpId, u32, FlowEnd)>>);

impl ConnectionFlows {
    #[inline]
    fn get(&self, id: TcpId) -> Option<(u32, FlowEnd)> {
        let (owner, flow, end) = (*self.0.get(id.slot())?)?;
        (owner == id).then_some((flow, end))
    }

    fn insert(&mut self, id: TcpId, flow: u32, end: FlowEnd) {
        if id.slot() >= self.0.len() {
            self.0.resize(id.slot() + 1, None);
        }
        self.0[id.slot()] = Some((id, flow, end));
    }

    fn remove(&mut self, id: TcpId) -> Option<(u32, FlowEnd)> {
        let found = self.get(id)?;
        self.0[id.slot()] = None;
        Some(found)
    }
}

/// A connection that a host has accepted.
#[derive(Clone, Copy, Debug)]
pub struct AcceptedConnection {
    id: TcpId,
    /// Who opened it.
    pub remote: Ipv4Addr,
    /// Its port there.
    pub port: u16,
}

/// The address of the host at a node: 10.0.0.0/8.
pub fn address_of(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0001 + node)
}

/// The node of an address.
#[inline]
pub fn node_of(address: Ipv4Addr) -> Option<u32> {
    address.to_bits().checked_sub(0x0a00_0001)
}

impl VirtualHost {
    /// A host at a node; checksums are computed where links may change bytes.
    pub fn new(node: u32, mtu: u32, computes_checksums: bool, seed: Seed) -> Self {
        let address = address_of(node);
        let mut interface = InterfaceConfig::ip(mtu).with_address(address, 8);
        interface.capabilities.checksum_tx = !computes_checksums;
        let mut ip = IpHost::new(HostConfig::default(), seed.derive(&format!("host {node}")));
        ip.add_interface(&interface).expect("an address of its own and an MTU that was checked");
        Self {
            ip,
            address,
            flows: ConnectionFlows::default(),
            listeners: BTreeMap::new(),
            opened: 0,
            writes: BTreeSet::new(),
            ended: 0,
        }
    }

    /// Listens for the connections of a group.
    pub fn listen(&mut self, group: u32, backlog: usize, config: &Arc<TcpConfig>) {
        let port = service_port(group);
        let local = SocketAddr::from((self.address, port));
        if let Ok(id) = self.ip.tcp_listen(local, backlog, Arc::clone(config)) {
            self.listeners.insert(id, port);
        }
    }

    /// The stack.
    pub fn ip(&self) -> &IpHost {
        &self.ip
    }

    /// The same, to be driven.
    #[inline]
    pub fn ip_mut(&mut self) -> &mut IpHost {
        &mut self.ip
    }

    /// When something is due.
    #[inline]
    pub fn deadline(&self) -> Instant {
        let stack = self.ip.deadline().unwrap_or(Instant::NEVER);
        self.writes.first().map_or(stack, |(at, _)| stack.min(*at))
    }

    /// Does what is due.
    #[inline]
    pub fn handle_deadline(&mut self, now: Instant, flows: &mut [SimulatedFlow], pool: &mut Pool) {
        if self.ip.deadline().is_some_and(|deadline| deadline <= now) {
            self.ip.handle_deadline(now, pool);
        }
        while self.writes.first().is_some_and(|(at, _)| *at <= now) {
            let (_, index) = self.writes.pop_first().expect("there is a first");
            if let Some(id) = flows[index as usize].client {
                self.write(now, id, flows);
            }
        }
    }

    /// A packet arrives soon: the memory of its flow is fetched into caches, where they do not hold that of all.
    #[inline]
    pub fn expect(&mut self, packet: &[u8], flows: &[SimulatedFlow]) {
        if let Some(id) = self.ip.expect_packet(packet)
            && let Some((flow, _)) = self.flows.get(id)
        {
            plumb_copy::prefetch_value(&flows[flow as usize]);
        }
    }

    /// Opens the connection of a flow.
    pub fn connect(
        &mut self,
        now: Instant,
        index: u32,
        flow: &mut SimulatedFlow,
        config: &Arc<TcpConfig>,
        pool: &Pool,
    ) {
        let port = u16::try_from(usize::from(FIRST_LOCAL) + self.opened);
        let port = port.expect("connections of a host were counted");
        self.opened += 1;
        let local = SocketAddr::from((self.address, port));
        let remote = SocketAddr::from((address_of(flow.spec.to), service_port(flow.group)));
        match self.ip.tcp_connect(now, local, remote, Arc::clone(config), pool) {
            Ok(id) => {
                flow.client = Some(id);
                self.flows.insert(id, index, FlowEnd::Sender);
            }
            Err(error) => {
                flow.error = Some(error.to_string());
                self.ended += usize::from(flow.end(now));
            }
        }
    }

    /// The connection that was accepted is one end of a flow, of which all may have arrived.
    pub fn assign(
        &mut self,
        now: Instant,
        accepted: AcceptedConnection,
        index: u32,
        flows: &mut [SimulatedFlow],
    ) {
        flows[index as usize].server = Some(accepted.id);
        self.flows.insert(accepted.id, index, FlowEnd::Receiver);
        self.read(now, accepted.id, flows);
    }

    /// Aborts a connection.
    pub fn abort(&mut self, now: Instant, id: TcpId) {
        self.flows.remove(id);
        self.ip.tcp_abort(now, id);
    }

    /// Sees to what the stack has to tell; connections that were accepted are appended to `accepted`.
    pub fn handle_events(
        &mut self,
        now: Instant,
        flows: &mut [SimulatedFlow],
        accepted: &mut Vec<AcceptedConnection>,
    ) {
        while let Some(event) = self.ip.poll_tcp_event() {
            match event {
                TcpEvent::Acceptable(listener) => {
                    while let Some(id) = self.ip.tcp_accept(listener) {
                        if let Some(remote) = self.ip.tcp_remote(id)
                            && let IpAddr::V4(address) = remote.ip()
                        {
                            accepted.push(AcceptedConnection {
                                id,
                                remote: address,
                                port: remote.port(),
                            });
                        }
                    }
                }
                TcpEvent::Readable(id) => self.read(now, id, flows),
                TcpEvent::Writable(id) => self.write(now, id, flows),
                TcpEvent::Closed(id) => self.end(now, id, flows),
            }
        }
    }

    /// Reads everything that has arrived, whatever it is; of what is passed on, as much as there is room for.
    fn read(&mut self, now: Instant, id: TcpId, flows: &mut [SimulatedFlow]) {
        // One that was only accepted is read once its flow is known.
        let Some((index, end)) = self.flows.get(id) else { return };
        let index = index as usize;
        let application = flows[index].application.as_ref().filter(|_| end == FlowEnd::Receiver);
        if let Some(downstream) = application.and_then(|application| application.downstream) {
            return self.pass_on(now, (id, downstream), flows);
        }
        let origin = application.and_then(|application| application.origin);
        loop {
            match self.ip.tcp_discard(now, id, usize::MAX) {
                Ok(Received::Data(len)) => {
                    if let Some(origin) = origin {
                        note_read(now, len as u64, (origin as usize, index), flows);
                    }
                    if !self.ip.tcp_is_readable(id) {
                        return;
                    }
                }
                Ok(Received::Empty) => return,
                Ok(Received::End) | Err(_) => break,
            }
        }
        self.end_reading(now, id, flows);
    }

    /// The sender has ended: so does the receiver, and all has arrived.
    fn end_reading(&mut self, now: Instant, id: TcpId, flows: &mut [SimulatedFlow]) {
        if let Some((index, FlowEnd::Receiver)) = self.flows.get(id) {
            let flow = &mut flows[index as usize];
            flow.observe(None, self.ip.tcp_info(id).as_ref());
            self.ended += usize::from(flow.end(now));
            self.flows.remove(id);
            self.ip.tcp_close(now, id);
        }
    }

    /// Reads a connection as far as another, which passes its bytes on, takes them.
    fn pass_on(
        &mut self,
        now: Instant,
        (id, downstream): (TcpId, u32),
        flows: &mut [SimulatedFlow],
    ) {
        loop {
            let flow = &mut flows[downstream as usize];
            let Some(application) = &mut flow.application else { return };
            let room = RELAY_BUFFER.saturating_sub(application.ready);
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let received = match room {
                0 => Ok(Received::Empty),
                _ => self.ip.tcp_discard(now, id, room),
            };
            let (is_end, len) = match received {
                Ok(Received::Data(len)) => (false, len),
                Ok(Received::Empty) => (false, 0),
                Ok(Received::End) | Err(_) => (true, 0),
            };
            application.ready += len as u64;
            if is_end {
                flow.left = application.ready;
            }
            let client = flow.client;
            if is_end {
                self.end_reading(now, id, flows);
            }
            if let Some(client) = client {
                self.write_some(now, client, downstream, flows);
            }
            if len == 0 {
                return;
            }
        }
    }

    /// Writes as much as there is, and room for, whatever the memory holds.
    fn write(&mut self, now: Instant, id: TcpId, flows: &mut [SimulatedFlow]) {
        let Some((index, FlowEnd::Sender)) = self.flows.get(id) else { return };
        let application = flows[index as usize].application.as_mut();
        let upstream = application.as_ref().and_then(|application| application.upstream);
        if let Some(next) = application.and_then(|application| application.make(now)) {
            self.writes.insert((next, index));
        }
        self.write_some(now, id, index, flows);
        let server = upstream.and_then(|upstream| flows[upstream as usize].server);
        if let Some(server) = server.filter(|server| self.flows.get(*server).is_some()) {
            self.read(now, server, flows);
        }
    }

    fn write_some(&mut self, now: Instant, id: TcpId, index: u32, flows: &mut [SimulatedFlow]) {
        let flow = &mut flows[index as usize];
        while flow.ready() > 0 {
            let max = usize::try_from(flow.ready()).unwrap_or(usize::MAX);
            match self.ip.tcp_send_any(now, id, max) {
                Ok(0) => return,
                Ok(written) => {
                    flow.left -= written as u64;
                    if let Some(application) = flow.writer() {
                        application.ready -= written as u64;
                    }
                }
                Err(_) => return self.end(now, id, flows),
            }
        }
        if flow.left == 0 {
            self.ip.tcp_shutdown(now, id).ok();
            self.writes.retain(|(_, written)| *written != index);
        }
    }

    /// A connection has ended, well or not.
    fn end(&mut self, now: Instant, id: TcpId, flows: &mut [SimulatedFlow]) {
        let Some((index, end)) = self.flows.remove(id) else { return };
        let flow = &mut flows[index as usize];
        let info = self.ip.tcp_info(id);
        match end {
            FlowEnd::Sender => flow.observe(info.as_ref(), None),
            FlowEnd::Receiver => flow.observe(None, info.as_ref()),
        }
        let downstream = flow.application.as_ref().and_then(|application| application.downstream);
        if let Some(error) = self.ip.tcp_error(id) {
            flow.error.get_or_insert_with(|| error.to_string());
            self.ended += usize::from(flow.end(now));
        }
        self.ip.tcp_close(now, id);
        if let (FlowEnd::Receiver, Some(downstream)) = (end, downstream) {
            // Data that has arrived is still relayed.
            let flow = &mut flows[downstream as usize];
            flow.left = flow.application.as_ref().map_or(0, |application| application.ready);
        }
    }

    /// Flows that have ended here since the last call.
    #[inline]
    pub fn take_ended(&mut self) -> usize {
        std::mem::take(&mut self.ended)
    }

    /// Takes what shall leave, at most `max` packets.
    #[inline]
    pub fn poll(&mut self, now: Instant, batch: &mut Batch, max: usize, pool: &mut Pool) {
        self.ip.poll_packets(now, PORT, batch, max, pool);
    }
}

/// Bytes have been read that are written at times where `origin` begins, and end where `flow` does.
fn note_read(now: Instant, len: u64, (origin, flow): (usize, usize), flows: &mut [SimulatedFlow]) {
    let times = flows[origin].application.as_ref().and_then(|application| application.times());
    if let Some((times, application)) = times.zip(flows[flow].application.as_mut()) {
        application.end_reading(now, len, times);
    }
}

/// Where hosts listen for the connections of a group.
pub fn service_port(group: u32) -> u16 {
    FIRST_SERVICE + u16::try_from(group).expect("groups were counted")
}
