//! Receiving by calls: one recvmsg(2) a packet, which waits, straight into a frame of the pool.

use std::io;
use std::os::fd::AsFd;

use plumb_base::time::Span;
use plumb_sys::fd;
use plumb_sys::packet_socket::{self, PacketOption, ReceivedFrame, SEND_BATCH, StrippedVlanTag};
use plumb_wire::machine::Medium;
use plumb_wire::packet::{Batch, ChecksumState, Packet, Pool};

use crate::device::packet::{DeviceError, PacketDevice, is_interface_absent, nanoseconds, vnet};

/// Below this a wait is a ppoll(2): SO_RCVTIMEO counts the kernel's ticks, of up to 10 ms.
const POLL_BELOW: Span = Span::from_ms(40);

impl PacketDevice {
    pub(super) fn receive_by_calls(
        &mut self,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    ) -> Result<(), DeviceError> {
        if max == 0 {
            return Ok(());
        }
        if let Some(packet) = self.kept.take() {
            batch.push(packet);
            // The waiting call finds what else is there for the price of asking.
            self.skip_next_call = true;
            return Ok(());
        }
        if std::mem::take(&mut self.skip_next_call) {
            return Ok(());
        }
        for _ in 0..max {
            match self.receive_call(false, pool)? {
                Some(packet) => batch.push(packet),
                None => break,
            }
        }
        Ok(())
    }

    /// Waits inside the receiving call and keeps what it brings.
    pub(super) fn wait_in_call(
        &mut self,
        timeout: Option<Span>,
        pool: &mut Pool,
    ) -> Result<bool, DeviceError> {
        if self.kept.is_some() {
            return Ok(true);
        }
        let mut waits = true;
        match timeout {
            Some(Span::ZERO) => waits = false,
            Some(limit) if limit < POLL_BELOW => {
                waits = false;
                self.counters.calls += 1;
                match fd::wait_readable(&[self.fd.as_fd()], &mut [false], Some(nanoseconds(limit)))
                {
                    Ok(1..) => {}
                    Ok(0) => return Ok(false),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                        return self.check();
                    }
                    Err(error) => return self.failed("wait for", error).map(|()| false),
                }
            }
            limit => self.set_receive_timeout(limit)?,
        }
        self.kept = self.receive_call(waits, pool)?;
        Ok(self.kept.is_some())
    }

    /// Sets SO_RCVTIMEO so that a call ends before `limit`; leaves it where it is about right, for
    /// whoever waits may come back early.
    fn set_receive_timeout(&mut self, limit: Option<Span>) -> Result<(), DeviceError> {
        let fits = match limit {
            None => self.receive_timeout == Span::ZERO,
            Some(limit) => {
                let (now, most) = (self.receive_timeout, limit.saturating_sub(POLL_BELOW / 2));
                now != Span::ZERO && now <= most && now * 8 >= most
            }
        };
        if fits {
            return Ok(());
        }
        // An eighth of slack on the way down saves most of the calls while a deadline comes closer.
        let wanted = limit.map_or(Span::ZERO, |limit| limit.saturating_sub(POLL_BELOW / 2) / 2);
        self.counters.calls += 1;
        let micros = wanted.as_ns() / 1_000;
        packet_socket::set_receive_timeout(self.fd.as_fd(), micros)
            .or_else(|error| self.failed("set a time limit on", error))?;
        self.receive_timeout = wanted;
        Ok(())
    }

    /// One packet, waited for when `waits`; none when none came, or it could not be kept.
    pub(super) fn receive_call(
        &mut self,
        waits: bool,
        pool: &mut Pool,
    ) -> Result<Option<Packet>, DeviceError> {
        let mut packet = pool.allocate();
        let first = match &mut packet {
            Some(packet) => {
                let room = pool.tailroom(packet);
                pool.append(packet, room).expect("a frame has its own tailroom")
            }
            None => &mut [],
        };
        let room = first.len();
        self.counters.calls += 1;
        let result = packet_socket::receive(self.fd.as_fd(), first, &mut self.overflow, waits);
        let received = match result {
            Ok(received) => received,
            Err(error) => {
                if let Some(packet) = packet {
                    pool.free(packet);
                }
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(None),
                    io::ErrorKind::Interrupted => self.check().map(|_| None),
                    _ => self.failed("receive from", error).map(|()| None),
                };
            }
        };
        let Some(mut packet) = packet else {
            self.counters.rx_dropped += 1;
            return Ok(None);
        };
        if received.len <= room {
            pool.truncate(&mut packet, received.len);
        } else {
            let large = self.to_large_frame(&packet, received.len - room, pool);
            pool.free(packet);
            let Some(large) = large else {
                self.counters.rx_dropped += 1;
                return Ok(None);
            };
            packet = large;
        }
        Ok(self.strip_vnet_header(packet, received, pool))
    }

    /// A large frame of what an ordinary one held and `rest` bytes of overflow.
    #[cold]
    fn to_large_frame(&self, packet: &Packet, rest: usize, pool: &mut Pool) -> Option<Packet> {
        let head = pool.bytes(packet).to_vec();
        let mut large = pool.allocate_for(head.len() + rest)?;
        let bytes = pool.append(&mut large, head.len() + rest)?;
        bytes[..head.len()].copy_from_slice(&head);
        bytes[head.len()..].copy_from_slice(&self.overflow[..rest]);
        Some(large)
    }

    /// Takes the virtio header off and notes what it says.
    fn strip_vnet_header(
        &mut self,
        mut packet: Packet,
        received: ReceivedFrame,
        pool: &mut Pool,
    ) -> Option<Packet> {
        let medium = self.info.capabilities.medium;
        let said = pool
            .bytes(&packet)
            .split_first_chunk::<{ vnet::HEADER_LEN }>()
            .and_then(|(header, frame)| vnet::parse(*header, medium, frame));
        let Some((checksum, segments)) = said else {
            self.counters.rx_malformed += 1;
            pool.free(packet);
            return None;
        };
        pool.trim_front(&mut packet, vnet::HEADER_LEN);
        packet.meta.checksum = checksum;
        packet.meta.segments = segments;
        if let Some(tag) = received.vlan {
            insert_tag(&mut packet, tag, medium, pool);
        }
        Some(packet)
    }
}

/// Where an Ethernet header's type, and so a VLAN tag before it, begins.
const TAG_AT: usize = 12;

impl PacketDevice {
    #[inline]
    pub(super) fn receive_from_ring(
        &mut self,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    ) -> Result<(), DeviceError> {
        for _ in 0..max {
            let Some(ring) = &mut self.ring else { break };
            let Some(slot) = ring.next_slot() else { break };
            if slot.status().is_queued {
                drop(slot);
                // The whole of a frame that was too long for its slot.
                if let Some(packet) = self.receive_call(false, pool)? {
                    batch.push(packet);
                }
                continue;
            }
            let bytes = slot.bytes(vnet::HEADER_LEN);
            let Some((header, frame)) = bytes.split_first_chunk() else {
                self.counters.rx_malformed += 1;
                continue;
            };
            if frame.len() < slot.frame_len() {
                self.counters.rx_dropped += 1;
                continue;
            }
            let medium = self.info.capabilities.medium;
            let Some((checksum, segments)) = vnet::parse(*header, medium, frame) else {
                self.counters.rx_malformed += 1;
                continue;
            };
            match packet_of(frame, slot.vlan(), pool) {
                Some(mut packet) => {
                    packet.meta.checksum = checksum;
                    packet.meta.segments = segments;
                    if slot.vlan().is_some() {
                        shift_by_tag(&mut packet);
                    }
                    batch.push(packet);
                }
                None => self.counters.rx_dropped += 1,
            }
        }
        Ok(())
    }
}

/// A packet of a frame, with the tag that the kernel took out of it put back.
#[inline]
fn packet_of(frame: &[u8], vlan: Option<StrippedVlanTag>, pool: &mut Pool) -> Option<Packet> {
    let Some(tag) = vlan.filter(|_| frame.len() >= TAG_AT) else { return pool.packet_of(frame) };
    let mut packet = pool.allocate_for(frame.len() + 4)?;
    let bytes = pool.append(&mut packet, frame.len() + 4)?;
    bytes[..TAG_AT].copy_from_slice(&frame[..TAG_AT]);
    bytes[TAG_AT..TAG_AT + 4].copy_from_slice(&octets(tag));
    bytes[TAG_AT + 4..].copy_from_slice(&frame[TAG_AT..]);
    Some(packet)
}

/// Puts a tag back into a packet that is in its frame already.
#[cold]
pub(super) fn insert_tag(
    packet: &mut Packet,
    tag: StrippedVlanTag,
    medium: Medium,
    pool: &mut Pool,
) {
    if medium != Medium::Ethernet || packet.len() < TAG_AT || pool.headroom(packet) < 4 {
        return;
    }
    pool.prepend(packet, 4);
    let bytes = pool.bytes_mut(packet);
    bytes.copy_within(4..4 + TAG_AT, 0);
    bytes[TAG_AT..TAG_AT + 4].copy_from_slice(&octets(tag));
    shift_by_tag(packet);
}

fn octets(tag: StrippedVlanTag) -> [u8; 4] {
    let ([a, b], [c, d]) = (tag.protocol.to_be_bytes(), tag.control.to_be_bytes());
    [a, b, c, d]
}

/// Moves what is said about a packet's transport header behind a tag.
fn shift_by_tag(packet: &mut Packet) {
    if let ChecksumState::Partial { start, .. } = &mut packet.meta.checksum {
        *start += 4;
    }
    if let Some(segments) = &mut packet.meta.segments {
        segments.header_len += 4;
    }
}

impl PacketDevice {
    pub(super) fn send_all(
        &mut self,
        batch: &mut [Packet],
        pool: &mut Pool,
    ) -> Result<(), DeviceError> {
        for packet in &mut *batch {
            let header = vnet::emit(&packet.meta, pool.bytes(packet));
            pool.prepend(packet, vnet::HEADER_LEN).copy_from_slice(&header);
        }
        let mut rest = &*batch;
        while let [first, ..] = rest {
            let segments = first.meta.segments.is_some();
            let same = rest
                .iter()
                .take(SEND_BATCH)
                .take_while(|packet| packet.meta.segments.is_some() == segments)
                .count();
            self.set_bypass(self.bypass.0 && !segments)?;
            let sent = self.send(&rest[..same], pool)?;
            for packet in &rest[..sent] {
                self.counters.tx_packets += 1;
                self.counters.tx_bytes += (packet.len() - vnet::HEADER_LEN) as u64;
            }
            // A packet that the kernel refuses is dropped, so that the others can go on.
            let refused = usize::from(sent == 0);
            self.counters.tx_dropped += refused as u64;
            rest = &rest[sent + refused..];
        }
        Ok(())
    }

    /// How many the kernel took of the first; none when it refused the very first.
    fn send(&mut self, packets: &[Packet], pool: &Pool) -> Result<usize, DeviceError> {
        let fd = self.fd.as_fd();
        loop {
            self.counters.calls += 1;
            let result = if let [packet] = packets {
                packet_socket::send(fd, pool.bytes(packet)).map(|_| 1)
            } else {
                let mut frames: [&[u8]; SEND_BATCH] = [&[]; SEND_BATCH];
                for (frame, packet) in frames.iter_mut().zip(packets) {
                    *frame = pool.bytes(packet);
                }
                packet_socket::send_many(fd, &frames[..packets.len()])
            };
            match result {
                Ok(sent) => return Ok(sent),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => match error.raw_os_error() {
                    Some(code) if is_interface_absent(code) => {
                        return self.failed("send to", error).map(|()| 0);
                    }
                    // EAGAIN and ENOBUFS: no room now; EMSGSIZE and EINVAL: a packet it cannot send.
                    _ => return Ok(0),
                },
            }
        }
    }

    /// Passes the queueing discipline by or not. Past it nothing cuts a super-segment that the
    /// driver cannot.
    fn set_bypass(&mut self, bypass: bool) -> Result<(), DeviceError> {
        if self.bypass.1 == bypass {
            return Ok(());
        }
        self.counters.calls += 1;
        packet_socket::set_option(self.fd.as_fd(), PacketOption::QdiscBypass, bypass.into())
            .or_else(|error| self.failed("configure", error))?;
        self.bypass.1 = bypass;
        Ok(())
    }
}
