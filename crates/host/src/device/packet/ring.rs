//! Receiving from the ring: one copy from the kernel's slot into a frame of the pool, no call.

use plumb_sys::packet_socket::VlanTag;
use plumb_wire::medium::Medium;
use plumb_wire::packet::{ChecksumState, Packet, Pool};

use super::{DeviceError, PacketDevice, vnet};

/// Where an Ethernet header's type, and so a VLAN tag before it, begins.
const TAG_AT: usize = 12;

impl PacketDevice {
    #[inline]
    pub(super) fn receive_from_ring(
        &mut self,
        batch: &mut Vec<Packet>,
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
            let medium = self.capabilities.medium;
            let Ok((checksum, segments)) = vnet::parse(*header, medium, frame) else {
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
fn packet_of(frame: &[u8], vlan: Option<VlanTag>, pool: &mut Pool) -> Option<Packet> {
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
pub(super) fn insert_tag(packet: &mut Packet, tag: VlanTag, medium: Medium, pool: &mut Pool) {
    if medium != Medium::Ethernet || packet.len() < TAG_AT || pool.headroom(packet) < 4 {
        return;
    }
    pool.prepend(packet, 4);
    let bytes = pool.bytes_mut(packet);
    bytes.copy_within(4..4 + TAG_AT, 0);
    bytes[TAG_AT..TAG_AT + 4].copy_from_slice(&octets(tag));
    shift_by_tag(packet);
}

fn octets(tag: VlanTag) -> [u8; 4] {
    let ([a, b], [c, d]) = (tag.protocol.to_be_bytes(), tag.control.to_be_bytes());
    [a, b, c, d]
}

/// Moves what is said of a packet's transport header behind a tag.
fn shift_by_tag(packet: &mut Packet) {
    if let ChecksumState::Partial { start, .. } = &mut packet.meta.checksum {
        *start += 4;
    }
    if let Some(segments) = &mut packet.meta.segments {
        segments.header_len += 4;
    }
}
