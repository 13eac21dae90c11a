//! Where datagrams turn round: a host with one socket that returns whatever it gets.

use std::net::SocketAddr;

use plumb_base::time::Instant;
use plumb_host::harness::mirror::peer::MirrorError;
use plumb_host::harness::spec::Turn;
use plumb_stack::host::Host;
use plumb_stack::udp::{CopyPolicy, Datagram, UdpId, UdpOptions};
use plumb_wire::machine::{Machine, Port};
use plumb_wire::packet::{Packet, Pool};

use super::edge::Edges;

/// A host, its one socket, and how datagrams turn round there.
#[derive(Debug)]
pub(super) struct Turnpike {
    host: Host,
    socket: UdpId,
    turn: Turn,
    /// The application's own memory, for turns that copy.
    buffer: Vec<u8>,
    edges: Edges,
    mirrored: u64,
    refused: u64,
}

impl Turnpike {
    pub(super) fn new(
        mut host: Host,
        local: SocketAddr,
        turn: Turn,
        edges: Edges,
    ) -> Result<Self, MirrorError> {
        let socket = host
            .udp_bind(local, UdpOptions::default())
            .map_err(|error| MirrorError::Broken(error.to_string()))?;
        let buffer = vec![1; 1 << 16];
        Ok(Self { host, socket, turn, buffer, edges, mirrored: 0, refused: 0 })
    }

    /// Datagrams returned, datagrams that could not be, and drops by reason, since the last call.
    pub(super) fn tally(&mut self) -> Vec<(String, u64)> {
        vec![
            ("mirrored".to_owned(), std::mem::take(&mut self.mirrored)),
            ("refused".to_owned(), std::mem::take(&mut self.refused)),
        ]
    }

    #[inline]
    fn turn_round(&mut self, now: Instant, datagram: Datagram, pool: &mut Pool) {
        self.edges.on_socket();
        let policy = match self.turn {
            Turn::Fused => CopyPolicy::Fused,
            Turn::Separate => CopyPolicy::Separate,
            Turn::CopiedUnsummed => CopyPolicy::NoChecksum,
            Turn::Udp | Turn::UdpUnsummed | Turn::Swap => {
                let sent = self.host.udp_reply(now, datagram, pool);
                self.count(sent.is_ok());
                return;
            }
        };
        let Datagram { packet, remote, .. } = datagram;
        let payload = &mut self.buffer[..packet.len()];
        payload.copy_from_slice(pool.bytes(&packet));
        pool.free(packet);
        let sent = self.host.udp_send(now, self.socket, payload, Some(remote), policy, pool);
        self.count(sent.is_ok());
    }

    #[inline]
    fn count(&mut self, sent: bool) {
        self.mirrored += u64::from(sent);
        self.refused += u64::from(!sent);
    }
}

impl Machine for Turnpike {
    #[inline]
    fn handle_packets(
        &mut self,
        now: Instant,
        port: Port,
        batch: &mut Vec<Packet>,
        pool: &mut Pool,
    ) {
        self.host.handle_packets(now, port, batch, pool);
        while let Some(datagram) = self.host.udp_receive(self.socket, pool) {
            self.turn_round(now, datagram, pool);
        }
    }

    #[inline]
    fn poll_packets(
        &mut self,
        now: Instant,
        port: Port,
        batch: &mut Vec<Packet>,
        max: usize,
        pool: &mut Pool,
    ) {
        self.host.poll_packets(now, port, batch, max, pool);
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        self.host.deadline()
    }

    fn handle_deadline(&mut self, now: Instant, pool: &mut Pool) {
        self.host.handle_deadline(now, pool);
    }
}
