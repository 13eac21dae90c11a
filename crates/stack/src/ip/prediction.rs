//! The short way in: a datagram whose headers are those of one before it, save what varies.
//!
//! What Jacobson did for TCP ("4BSD header prediction", 1990): what was found out about a flow (the
//! frame is for us, its source may send here, whose socket it is) holds for every frame with the
//! same bytes while the host does not change. What varies is checked each time: lengths and
//! checksums. Left out: whatever is not so simple, which the general way (`input`) takes and counts.

use std::net::SocketAddr;

use plumb_wire::checksum::Pseudo;
use plumb_wire::ecn::Ecn;
use plumb_wire::ethernet;
use plumb_wire::machine::Port;
use plumb_wire::packet::{ChecksumState, Packet, Pool};
use plumb_wire::protocol::Protocol;
use plumb_wire::{ipv4, ipv6, udp};

use crate::counters::Count;
use crate::host::Host;
use crate::udp::{Arrival, Ends, UdpId};

/// Where the UDP header begins over IPv4 without options.
const UDP_V4: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
/// Where the UDP header begins over IPv6 without extension headers.
const UDP_V6: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN;

/// Bytes compared over IPv4: all headers, in whole words.
const COMPARED_V4: usize = 48;
/// Bytes compared over IPv6.
const COMPARED_V6: usize = 64;

/// Flows remembered of each family; a power of two.
const PLACES: usize = 16;

/// What is known of the flows that came by lately.
#[derive(Debug)]
pub(crate) struct Predictions {
    v4: Box<[Option<Prediction<COMPARED_V4>>; PLACES]>,
    v6: Box<[Option<Prediction<COMPARED_V6>>; PLACES]>,
}

/// The headers of a flow's frames, and what they mean.
#[derive(Clone, Copy, Debug)]
struct Prediction<const N: usize> {
    /// The bits that are the same in every frame, zero elsewhere.
    same: [u8; N],
    flow: Flow,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    generation: u64,
    ends: Ends,
    socket: UdpId,
    ecn: Ecn,
    pseudo: Pseudo,
}

/// The first bytes of a frame that may become a prediction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Head {
    V4([u8; COMPARED_V4]),
    V6([u8; COMPARED_V6]),
}

impl Head {
    /// Of a frame as plain as can be: Ethernet, IP and UDP headers and nothing between them.
    #[inline]
    pub(crate) fn of(arrival: &Arrival, bytes: &[u8]) -> Option<Self> {
        // No other stack of headers puts UDP there.
        match arrival.at {
            UDP_V4 if arrival.source.is_ipv4() => bytes.first_chunk().copied().map(Self::V4),
            UDP_V6 if arrival.source.is_ipv6() => bytes.first_chunk().copied().map(Self::V6),
            _ => None,
        }
    }

    /// Source and destination of the datagram.
    fn ports(&self) -> [u16; 2] {
        let [a, b, c, d] = match self {
            Self::V4(head) => *head[UDP_V4..].first_chunk().expect("compared as well"),
            Self::V6(head) => *head[UDP_V6..].first_chunk().expect("compared as well"),
        };
        [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
    }
}

impl Default for Predictions {
    fn default() -> Self {
        Self { v4: Box::new([None; PLACES]), v6: Box::new([None; PLACES]) }
    }
}

impl Predictions {
    /// The flow that a frame belongs to, and where in the frame its datagram begins and ends.
    #[inline]
    fn predict(
        &self,
        generation: u64,
        port: Port,
        packet: &Packet,
        bytes: &[u8],
    ) -> Option<(&Flow, usize, usize)> {
        if packet.meta.segments.is_some() {
            return None;
        }
        let head: &[u8; COMPARED_V4] = bytes.first_chunk()?;
        let (flow, at, payload) = if head[12] == 0x08 {
            let flow = self.v4[place_v4(head)].as_ref()?.flow(&SAME_V4, head)?;
            let ip = ipv4::Packet::parse(&bytes[ethernet::HEADER_LEN..]).ok()?.verify().ok()?;
            (flow, UDP_V4, ip.payload())
        } else {
            let head: &[u8; COMPARED_V6] = bytes.first_chunk()?;
            let flow = self.v6[place_v6(head)].as_ref()?.flow(&SAME_V6, head)?;
            let ip = ipv6::Packet::parse(&bytes[ethernet::HEADER_LEN..]).ok()?;
            (flow, UDP_V6, ip.payload())
        };
        if flow.generation != generation || flow.ends.port != port {
            return None;
        }
        let datagram = udp::Datagram::parse(payload).ok()?;
        if packet.meta.checksum == ChecksumState::Plain {
            // Stricter than IPv4 is: one without a checksum goes the general way.
            datagram.verify_v6(flow.pseudo).ok()?;
        }
        Some((flow, at, at + udp::HEADER_LEN + datagram.payload().len()))
    }

    /// Remembers the flow of a frame that reached a socket.
    fn learn(&mut self, head: &Head, flow: Flow) {
        match head {
            Head::V4(head) => {
                let same = std::array::from_fn(|at| head[at] & SAME_V4[at]);
                self.v4[place_v4(head)] = Some(Prediction { same, flow });
            }
            Head::V6(head) => {
                let same = std::array::from_fn(|at| head[at] & SAME_V6[at]);
                self.v6[place_v6(head)] = Some(Prediction { same, flow });
            }
        }
    }
}

impl<const N: usize> Prediction<N> {
    #[inline]
    fn flow(&self, mask: &[u8; N], head: &[u8; N]) -> Option<&Flow> {
        let words = |bytes| <[u8]>::as_chunks::<8>(bytes).0.iter().copied().map(u64::from_ne_bytes);
        let pairs = words(head).zip(words(mask)).zip(words(&self.same));
        let differs = pairs.fold(0, |differs, ((head, mask), same)| differs | (head & mask) ^ same);
        (differs == 0).then_some(&self.flow)
    }
}

/// Bits that are the same in every frame of a flow over IPv4: all but total length,
/// identification, "don't fragment", time to live, checksums, and the datagram's length.
const SAME_V4: [u8; COMPARED_V4] = {
    let mut mask = without([0xff; COMPARED_V4], &[16, 17, 18, 19, 22, 24, 25], 38);
    mask[20] = 0b1011_1111;
    mask
};

/// The same over IPv6: all but flow label, payload length, hop limit, and the datagram's length and
/// checksum.
const SAME_V6: [u8; COMPARED_V6] = {
    let mut mask = without([0xff; COMPARED_V6], &[16, 17, 18, 19, 21], 58);
    mask[15] = 0xf0;
    mask
};

const fn without<const N: usize>(mut mask: [u8; N], bytes: &[usize], from: usize) -> [u8; N] {
    let mut index = 0;
    while index < bytes.len() {
        mask[bytes[index]] = 0;
        index += 1;
    }
    let mut at = from;
    while at < N {
        mask[at] = 0;
        at += 1;
    }
    mask
}

// By the low octets of the source's address and port. Whoever makes flows share a place only sends
// them the general way.
#[inline]
fn place_v4(head: &[u8; COMPARED_V4]) -> usize {
    usize::from(head[29] ^ head[35]) % PLACES
}

#[inline]
fn place_v6(head: &[u8; COMPARED_V6]) -> usize {
    usize::from(head[37] ^ head[55]) % PLACES
}

impl Host {
    /// Takes a frame to its socket, if it is as those of a flow that is known.
    ///
    /// # Errors
    /// Gives the packet back, as it came, for the general way.
    #[inline]
    pub(crate) fn handle_predicted(
        &mut self,
        port: Port,
        packet: Packet,
        pool: &mut Pool,
    ) -> Result<(), Packet> {
        let (generation, bytes) = (self.reception(), pool.bytes(&packet));
        let predicted = self.predictions.predict(generation, port, &packet, bytes);
        let Some((flow, at, end)) = predicted else { return Err(packet) };
        let taken = self.udp.take(flow.socket, flow.ends, (at, end), flow.ecn, packet, pool);
        match taken {
            Ok(()) => self.counters.add(Count::UdpDelivered),
            Err(packet) => self.drop_packet(Count::UdpQueueFull, packet, pool),
        }
        Ok(())
    }

    /// Remembers the flow of a frame that began like this, and reached a socket.
    pub(crate) fn learn_flow(&mut self, head: &Head, arrival: &Arrival, socket: UdpId) {
        let [source, destination] = head.ports();
        let ends = Ends {
            local: SocketAddr::new(arrival.destination, destination),
            remote: SocketAddr::new(arrival.source, source),
            port: arrival.port,
        };
        let pseudo = Pseudo::between(arrival.source, arrival.destination, Protocol::UDP);
        let Some(pseudo) = pseudo else { return };
        let generation = self.reception();
        self.predictions.learn(head, Flow { generation, ends, socket, ecn: arrival.ecn, pseudo });
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use plumb_base::time::Span;
    use plumb_wire::machine::Machine;

    use super::*;
    use crate::host::tests::{Bench, Family};
    use crate::route::Prefix;

    /// What a host made of a frame: counters, answers, and the datagram if there is one.
    type Fate = (Vec<(&'static str, u64)>, Vec<Vec<u8>>, Option<(Vec<u8>, Ends, Ecn)>);

    fn fate(bench: &mut Bench, sockets: &[UdpId], frame: &[u8], checksum: ChecksumState) -> Fate {
        let before: Vec<_> = bench.host.counters.iter().collect();
        let mut packet = bench.pool.packet_of(frame).unwrap();
        packet.meta.checksum = checksum;
        bench.host.handle_packets(bench.now, Port(0), &mut vec![packet], &mut bench.pool);
        let answers = bench.take();
        let after = bench.host.counters.iter();
        let counted = after.zip(before).filter(|(after, before)| after != before);
        let counted = counted.map(|((name, n), (_, old))| (name, n - old)).collect();
        let received = sockets.iter().find_map(|id| bench.host.udp_receive(*id, &bench.pool));
        let datagram = received.map(|datagram| {
            let (local, remote, port) = (datagram.local, datagram.remote, datagram.port);
            let payload = bench.pool.bytes(&datagram.packet).to_vec();
            let ecn = datagram.ecn();
            bench.pool.free(datagram.packet);
            (payload, Ends { local, remote, port }, ecn)
        });
        bench.pass(Span::from_ms(1));
        (counted, answers, datagram)
    }

    /// A host, and its sockets at port 7.
    fn served() -> (Bench, Vec<UdpId>) {
        let (bench, v6) = Bench::acquainted();
        let local = SocketAddr::new([192, 0, 2, 1].into(), 7);
        let v4 = bench.host.udp.receiver_of(local, SocketAddr::new([192, 0, 2, 2].into(), 9));
        (bench, vec![v4.unwrap(), v6])
    }

    /// Makes a host forget its predictions.
    fn forget(bench: &mut Bench) {
        let nothing = Prefix::new(IpAddr::from([203, 0, 113, 0]), 24).unwrap();
        bench.host.remove_route(nothing);
    }

    /// Makes the checksum of an IPv4 header right again.
    fn make_sound(frame: &mut [u8]) {
        if let Some(header) = frame.get_mut(14..34).filter(|header| header[0] == 0x45) {
            header[10..12].fill(0);
            let checksum = plumb_copy::sum(header).finish();
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
    }

    #[test]
    fn whatever_byte_is_changed_a_host_that_predicts_does_as_one_that_does_not() {
        for family in Family::both() {
            let good = family.inward().udp(4_000, 7, b"eighteen bytes, ok");
            let (mut predicting, sockets) = served();
            let (mut general, _) = served();
            for at in 0..=good.len() {
                for change in [0x01, 0x02, 0x10, 0x40, 0x80, 0xff] {
                    let mut frame = good.clone();
                    match frame.get_mut(at) {
                        Some(byte) => *byte ^= change,
                        // Cut short, at last to nothing.
                        None => frame.truncate(good.len().saturating_sub(change.into())),
                    }
                    let mut sound = frame.clone();
                    make_sound(&mut sound);
                    let (plain, verified) = (ChecksumState::Plain, ChecksumState::Verified);
                    for (frame, state) in [(&good, plain), (&frame, plain), (&sound, verified)] {
                        forget(&mut general);
                        let as_predicted = fate(&mut predicting, &sockets, frame, state);
                        let generally = fate(&mut general, &sockets, frame, state);
                        assert_eq!(as_predicted, generally, "byte {at} changed by {change:#x}");
                    }
                }
            }
            predicting.account();
        }
    }

    #[test]
    fn a_known_flow_takes_the_short_way_until_the_host_changes() {
        for family in Family::both() {
            let frame = family.inward().udp(4_000, 7, b"some payload");
            let (mut bench, sockets) = served();
            let is_predicted = |bench: &mut Bench| {
                let packet = bench.pool.packet_of(&frame).unwrap();
                let (generation, bytes) = (bench.host.reception(), bench.pool.bytes(&packet));
                let flow = bench.host.predictions.predict(generation, Port(0), &packet, bytes);
                let is_predicted = flow.is_some();
                bench.pool.free(packet);
                is_predicted
            };
            assert!(!is_predicted(&mut bench), "nothing is known yet");
            let (_, _, first) = fate(&mut bench, &sockets, &frame, ChecksumState::Plain);
            assert!(first.is_some() && is_predicted(&mut bench));
            for id in &sockets {
                bench.host.udp_close(*id, &mut bench.pool);
            }
            assert!(!is_predicted(&mut bench), "the socket is closed");
            assert_eq!(fate(&mut bench, &sockets, &frame, ChecksumState::Plain).2, None);
        }
    }

    #[test]
    fn a_full_queue_refuses_what_was_predicted_too() {
        let [family, _] = Family::both();
        let frame = family.inward().udp(4_000, 7, b"some payload");
        let (mut bench, _) = served();
        for _ in 0..256 {
            bench.give(&frame);
        }
        bench.drops(&frame, Count::UdpQueueFull);
    }
}
