//! Datagrams in pieces: those that arrive put together, those that do not fit cut.
//!
//! Left out: how (`reassembly`, `fragment`, `segment`).

use std::net::IpAddr;

use plumb_base::time::Instant;
use plumb_wire::icmpv6::parameter_problem;
use plumb_wire::machine::Port;
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::{ipv4, ipv6};

use super::output::{header4, header6};
use super::{Egress, Ingress, Origin, OutputError, prepended};
use crate::counters::Count;
use crate::fragment;
use crate::host::Host;
use crate::icmp::Fault;
use crate::path::Path;
use crate::reassembly::{Outcome, Refused};
use plumb_wire::segment::{self, Checksums, segment};

impl Host {
    /// Takes a fragment, and the whole datagram that it may have completed.
    #[cold]
    pub(super) fn handle_fragment(
        &mut self,
        now: Instant,
        ingress: &Ingress,
        packet: Packet,
        pool: &mut Pool,
    ) {
        let evicted = self.reassembly.evicted();
        let outcome = self.reassembly.handle_fragment(now, packet, pool);
        let evicted = self.reassembly.evicted() - evicted;
        self.counters.add_many(Count::ReassemblyEvicted, usize::try_from(evicted).unwrap_or(0));
        self.arm_reassembly();
        match outcome {
            Outcome::Kept => self.counters.add(Count::FragmentAccepted),
            Outcome::Whole(datagram) => {
                self.counters.add(Count::FragmentAccepted);
                self.counters.add(Count::Reassembled);
                // The link sent its parts to a group only if its destination is one.
                let group = ingress.group && !self.owns(ingress);
                let origin = Origin { at: 0, group, reassembled: true };
                match ingress.source {
                    IpAddr::V4(_) => self.handle_ipv4(now, ingress.port, origin, datagram, pool),
                    IpAddr::V6(_) => self.handle_ipv6(now, ingress.port, origin, datagram, pool),
                }
            }
            Outcome::Refused(packet, refused) => {
                self.refuse_fragment(now, ingress, refused, packet, pool);
            }
        }
    }

    fn owns(&self, ingress: &Ingress) -> bool {
        self.interfaces[usize::from(ingress.port.0)].owns(ingress.destination)
    }

    fn refuse_fragment(
        &mut self,
        now: Instant,
        ingress: &Ingress,
        refused: Refused,
        packet: Packet,
        pool: &mut Pool,
    ) {
        let field = parameter_problem::FIELD;
        let fragment_header = u32::from(ingress.header_len).saturating_sub(8);
        let (count, fault) = match refused {
            Refused::Duplicate => (Count::FragmentDuplicate, None),
            Refused::Overlap | Refused::Condemned => (Count::FragmentOverlap, None),
            Refused::TooManyGaps | Refused::Impossible => (Count::FragmentImpossible, None),
            Refused::MixedEcn => (Count::FragmentEcn, None),
            Refused::Memory => (Count::FragmentMemory, None),
            // RFC 8200 §4.5 names the octets; RFC 7112 §5 the code.
            Refused::Unaligned => (Count::FragmentImpossible, Some(Fault::Parameter(field, 4))),
            Refused::TooLong => {
                let offset = fragment_header + 2;
                (Count::FragmentImpossible, Some(Fault::Parameter(field, offset)))
            }
            Refused::HeaderChain => {
                let code = parameter_problem::INCOMPLETE_CHAIN;
                (Count::FragmentHeaderChain, Some(Fault::Parameter(code, 0)))
            }
        };
        self.counters.add(count);
        match fault.filter(|_| ingress.source.is_ipv6()) {
            Some(fault) => self.report(now, ingress, fault, packet, pool),
            None => pool.free(packet),
        }
    }

    /// Gives up the datagrams whose time is over, and says so to who sent their first fragments.
    pub(crate) fn expire_fragments(&mut self, now: Instant, pool: &mut Pool) {
        while let Some(first) = self.reassembly.poll_expired(now, pool) {
            self.counters.add(Count::ReassemblyTimeout);
            let Some(first) = first else { continue };
            match self.ingress_of(pool.bytes(&first)) {
                Some(ingress) => self.report(now, &ingress, Fault::Reassembly, first, pool),
                None => pool.free(first),
            }
        }
        self.arm_reassembly();
    }

    fn arm_reassembly(&mut self) {
        match self.reassembly.deadline() {
            Some(at) => self.timers.arm(self.reassembly_timer, at),
            None => self.timers.cancel(self.reassembly_timer),
        }
    }

    /// What was known of a packet when it came; `None` if it was not for an address of this host.
    fn ingress_of(&self, bytes: &[u8]) -> Option<Ingress> {
        let narrow = |at: usize| u16::try_from(at).ok();
        let of = |source: IpAddr, destination: IpAddr| {
            let port = self.interfaces.iter().position(|own| own.owns(destination))?;
            Some((super::port_of(port), source, destination))
        };
        if bytes.first()? >> 4 == 4 {
            let ip = ipv4::Packet::parse_quoted(bytes).ok()?;
            let (port, source, destination) = of(ip.source().into(), ip.destination().into())?;
            return Some(Ingress {
                port,
                source,
                destination,
                protocol: ip.protocol(),
                protocol_at: 9,
                header_len: narrow(ip.header_len())?,
                hop_limit: ip.hop_limit(),
                group: false,
                fragmented: true,
                is_later: false,
            });
        }
        let ip = ipv6::Packet::parse_quoted(bytes).ok()?;
        let mut extensions = ip.extensions();
        while extensions.next().is_some() {}
        let (port, source, destination) = of(ip.source().into(), ip.destination().into())?;
        Some(Ingress {
            port,
            source,
            destination,
            protocol: extensions.protocol(),
            protocol_at: narrow(extensions.protocol_at())?,
            header_len: narrow(extensions.payload_at())?,
            hop_limit: ip.hop_limit(),
            group: false,
            fragmented: true,
            is_later: false,
        })
    }

    /// Sends a packet that is longer than its path allows, in fragments.
    #[cold]
    pub(super) fn transmit_cut(
        &mut self,
        now: Instant,
        path: &Path,
        remote: IpAddr,
        egress: Egress,
        mut packet: Packet,
        pool: &mut Pool,
    ) -> Result<(), OutputError> {
        let len = packet.len();
        match (path.source, remote) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = ipv4::Header {
                    fragment: ipv4::FragmentField::WHOLE,
                    identification: self.next_identification(),
                    ..header4(source, destination, egress, len)
                };
                header.emit(pool.prepend(&mut packet, ipv4::HEADER_LEN));
                prepended(&mut packet.meta, 20);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = header6(source, destination, egress, len);
                header.emit(pool.prepend(&mut packet, ipv6::HEADER_LEN));
                prepended(&mut packet.meta, 40);
            }
            _ => unreachable!("a path joins addresses of one family"),
        }
        let identification = self.random_identification();
        let mut pieces = Vec::new();
        let mtu = path.mtu as usize;
        match fragment::cut(packet, mtu, identification, pool, &mut pieces) {
            Ok(()) => {
                self.counters.add_many(Count::Originated, pieces.len() - 1);
                for piece in pieces {
                    self.link(now, path, remote, piece, pool);
                }
                Ok(())
            }
            Err((packet, fragment::Uncut::NoMemory)) => {
                self.drop_packet(Count::TxNoMemory, packet, pool);
                Ok(())
            }
            Err((packet, _)) => {
                self.drop_packet(Count::TxTooBig, packet, pool);
                Err(OutputError::TooBig { len, mtu: path.mtu })
            }
        }
    }

    /// Queues a super-segment for a device that takes none, as the packets that it stands for.
    #[cold]
    pub(super) fn enqueue_cut(&mut self, port: Port, packet: Packet, pool: &mut Pool) {
        let capabilities = self.interfaces[usize::from(port.0)].capabilities;
        let checksums =
            if capabilities.checksum_tx { Checksums::Partial } else { Checksums::Complete };
        let mut pieces = Vec::new();
        match segment(packet, capabilities.medium, checksums, pool, &mut pieces) {
            Ok(()) => {
                self.counters.add_many(Count::Originated, pieces.len() - 1);
                for piece in pieces {
                    self.push(port, piece, pool);
                }
            }
            Err((packet, segment::Uncut::NoMemory)) => {
                self.drop_packet(Count::TxNoMemory, packet, pool);
            }
            Err((packet, segment::Uncut::Impossible)) => {
                self.drop_packet(Count::TxTooBig, packet, pool);
            }
        }
    }
}
