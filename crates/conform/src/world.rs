//! The stack under test, on an interface for bare IP packets, in virtual time.

use std::collections::VecDeque;

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::route::{IpPrefix, Route};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::{DeviceCapabilities, Machine as _, Medium, PortId};
use plumb_wire::packet::{Batch, Pool, PoolConfig};

use crate::packets::ObservedSegment;
use crate::settings::RunSettings;

/// Deadlines at one moment beyond which the stack is taken to be stuck.
const DEADLINES_AT_ONCE: u32 = 1_000;

/// The stack, its clock, and what it sent.
#[derive(Debug)]
pub struct VirtualWorld {
    /// The host that is tested.
    pub host: IpHost,
    /// Packets of both directions.
    pub pool: Pool,
    /// Virtual time.
    pub now: Instant,
    /// Segments that were sent and not looked at yet.
    pub sent: VecDeque<ObservedSegment>,
    /// What the stack must not do, if it did it.
    pub fault: Option<String>,
}

impl VirtualWorld {
    /// A host with the addresses and the MTU of the settings, a while after its origin.
    pub fn new(settings: &RunSettings, seed: Seed) -> Self {
        let mut host = IpHost::new(HostConfig::default(), seed);
        let is_v6 = settings.local.is_ipv6();
        let config = InterfaceConfig {
            capabilities: DeviceCapabilities::plain(Medium::Ip, settings.mtu),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            addresses: vec![(settings.local.ip(), if is_v6 { 64 } else { 16 })],
            link_local: false,
        };
        let port = host.add_interface(&config).expect("a new host has no interface");
        let prefix = IpPrefix::default_route(is_v6);
        host.add_route(Route { prefix, port, gateway: None });
        let frames = PoolConfig { count: 1_024, large: 64, ..PoolConfig::default() };
        let now = Instant::after_origin(Span::from_secs(1_000));
        let pool = Pool::new(frames);
        Self { host, pool, now, sent: VecDeque::new(), fault: None }
    }

    /// Lets the stack have a packet.
    pub fn inject(&mut self, bytes: &[u8]) {
        let Some(packet) = self.pool.packet_of(bytes) else {
            self.fault = Some("the stack keeps all packets".to_owned());
            return;
        };
        let mut batch: Batch = vec![packet];
        self.host.handle_packets(self.now, PortId(0), &mut batch, &mut self.pool);
        self.collect();
    }

    /// Takes what the stack has to send.
    pub fn collect(&mut self) {
        loop {
            let mut batch = Batch::new();
            self.host.poll_packets(self.now, PortId(0), &mut batch, 64, &mut self.pool);
            if batch.is_empty() {
                return;
            }
            for packet in &batch {
                match ObservedSegment::parse(self.now, self.pool.bytes(packet)) {
                    Ok(Some(segment)) => self.sent.push_back(segment),
                    Ok(None) => {}
                    Err(error) => self.fault = Some(format!("the stack sent a packet: {error}")),
                }
            }
            self.pool.free_all(&mut batch);
        }
    }

    /// Goes to the stack's next deadline, if it is not later than `until`; whether there was one.
    pub fn step(&mut self, until: Instant) -> bool {
        self.collect();
        let Some(deadline) = self.host.deadline().filter(|deadline| *deadline <= until) else {
            return false;
        };
        self.now = self.now.max(deadline);
        self.host.handle_deadline(self.now, &mut self.pool);
        self.collect();
        let mut again = 0;
        while self.host.deadline().is_some_and(|deadline| deadline <= self.now) {
            again += 1;
            if again > DEADLINES_AT_ONCE {
                self.fault = Some("the stack's deadline does not advance".to_owned());
                return false;
            }
            self.host.handle_deadline(self.now, &mut self.pool);
            self.collect();
        }
        true
    }
}
