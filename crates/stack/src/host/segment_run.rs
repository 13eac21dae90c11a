//! Segments that are made together and sent in a frame each, where the device does not cut super-segments.

use plumb_copy::Sum16;
use plumb_wire::checksum::PseudoHeader;
use plumb_wire::ip::IpProtocol;
use plumb_wire::packet::{HEADROOM, PacketMeta, Pool};
use plumb_wire::tcp::{self, TcpFlags};

use super::IpHost;
use super::segments::headers_before;
use crate::counters::CounterId;
use crate::routing::{NextHopLink, OutputPath};
use crate::tcp::segment::OutboundSegment;
use crate::tcp::seq::SeqNum;
use crate::tcp::{TcpEnds, TcpEntry};

/// Control bits that only the last segment of a run has.
const OF_THE_LAST: TcpFlags = TcpFlags::from_bits(TcpFlags::FIN.bits() | TcpFlags::PSH.bits());

/// What full segments of a run begin with: they differ in sequence number and checksum.
struct RunHeaders {
    /// Ends where the payload begins.
    bytes: [u8; HEADROOM],
    len: usize,
    tcp_at: usize,
    /// Sum of pseudo-header and TCP header, both fields being zero.
    sum: Sum16,
    meta: PacketMeta,
}

impl IpHost {
    /// Sends the segments of one plan, for each of which a frame is free. Each is made of the one before: to copy one that has just been
    /// written would wait for the writes.
    pub(super) fn send_run(
        &mut self,
        path: &OutputPath,
        (ends, entry): (&TcpEnds, &TcpEntry),
        run: &mut OutboundSegment,
        pool: &mut Pool,
    ) {
        let (size, flags) = (usize::from(run.size), run.flags);
        let end = run.seq + run.len as u64;
        (run.len, run.flags) = (size, flags.without(OF_THE_LAST));
        self.send_data(path, (ends, entry), run, pool);
        let mut next = run.seq + size as u64;
        if end - next > size as u64
            && let Some(headers) = self.run_headers(path, ends, size, pool)
        {
            while end - next > size as u64 {
                self.send_alike(path, (&headers, next), (entry, size), pool);
                next += size as u64;
            }
        }
        // RFC 3168 §6.1.2: a reduction is announced once.
        let flags = flags.without(TcpFlags::CWR);
        while next < end {
            let left = usize::try_from(end - next).expect("within the run");
            run.flags = if left > size { flags.without(OF_THE_LAST) } else { flags };
            (run.seq, run.len) = (next, left.min(size));
            self.send_data(path, (ends, entry), run, pool);
            next += run.len as u64;
        }
    }

    /// The headers of the segment of `size` bytes that was queued last; `None` where each segment takes the general path.
    fn run_headers(
        &self,
        path: &OutputPath,
        ends: &TcpEnds,
        size: usize,
        pool: &Pool,
    ) -> Option<RunHeaders> {
        if path.link == NextHopLink::Unknown || path.allow_fragmentation {
            return None;
        }
        let pseudo = PseudoHeader::between(path.source, ends.remote.ip(), IpProtocol::TCP)?;
        let sent = self.interfaces[path.port].queue.back()?;
        let len = sent.len().checked_sub(size)?;
        let mut bytes = [0; HEADROOM];
        bytes[HEADROOM - len..].copy_from_slice(&pool.bytes(sent)[..len]);
        let tcp_at = HEADROOM - len + headers_before(path);
        let header = &mut bytes[tcp_at..];
        let control = u16::from_be_bytes([header[12], header[13]]) & !TcpFlags::CWR.bits();
        header[12..14].copy_from_slice(&control.to_be_bytes());
        let mut zeroed = bytes;
        zeroed[tcp_at + 4..tcp_at + 8].fill(0);
        zeroed[tcp_at + 16..tcp_at + 18].fill(0);
        let sum = pseudo.sum(HEADROOM - tcp_at + size) + Sum16::of(&zeroed[tcp_at..]);
        Some(RunHeaders { bytes, len, tcp_at, sum, meta: sent.meta })
    }

    #[inline]
    fn send_alike(
        &mut self,
        path: &OutputPath,
        (headers, seq): (&RunHeaders, SeqNum),
        (entry, size): (&TcpEntry, usize),
        pool: &mut Pool,
    ) {
        let mut packet = pool.allocate_for(size).expect("a frame was free");
        let payload = pool.append(&mut packet, size).expect("a frame for the payload");
        let sums = !path.capabilities.checksum_tx;
        let sum = entry.connection.copy_payload(seq, payload, sums);
        self.core.counters.add(CounterId::Originated);
        let queue = &mut self.interfaces[path.port].queue;
        // Queued before it is changed: what is changed and then moved causes a store-forwarding stall.
        queue.push_back(packet);
        let packet = queue.back_mut().expect("it has just been queued");
        packet.meta = headers.meta;
        let out = pool.prepend(packet, HEADROOM);
        out.copy_from_slice(&headers.bytes);
        let header = &mut out[headers.tcp_at..];
        let number = seq.wire().to_be_bytes();
        header[4..8].copy_from_slice(&number);
        if sums {
            let at = usize::from(tcp::CHECKSUM_OFFSET);
            let checksum = (headers.sum + Sum16::of(&number) + sum).finish();
            header[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        pool.trim_front(packet, HEADROOM - headers.len);
    }
}
