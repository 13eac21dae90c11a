//! Receiving by calls: one recvmsg(2) a packet, which waits, straight into a frame of the pool.

use std::io;
use std::os::fd::AsFd;

use plumb_base::time::Span;
use plumb_sys::packet_socket::{self, Received};
use plumb_sys::tun;
use plumb_wire::packet::{Packet, Pool};

use super::ring::insert_tag;
use super::{DeviceError, PacketDevice, nanoseconds, vnet};

/// Below this a wait is a ppoll(2): SO_RCVTIMEO counts the kernel's ticks, of up to 10 ms.
const SHORT: Span = Span::from_ms(40);

impl PacketDevice {
    pub(super) fn receive_by_calls(
        &mut self,
        batch: &mut Vec<Packet>,
        max: usize,
        pool: &mut Pool,
    ) -> Result<(), DeviceError> {
        if max == 0 {
            return Ok(());
        }
        if let Some(packet) = self.kept.take() {
            batch.push(packet);
            // The waiting call finds what else is there for the price of asking.
            self.skip = true;
            return Ok(());
        }
        if std::mem::take(&mut self.skip) {
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
            Some(limit) if limit < SHORT => {
                waits = false;
                self.counters.calls += 1;
                match tun::wait_readable(&[self.fd.as_fd()], &mut [false], Some(nanoseconds(limit)))
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
                let (now, most) = (self.receive_timeout, limit.saturating_sub(SHORT / 2));
                now != Span::ZERO && now <= most && now * 8 >= most
            }
        };
        if fits {
            return Ok(());
        }
        // An eighth of slack on the way down saves most of the calls while a deadline comes closer.
        let wanted = limit.map_or(Span::ZERO, |limit| limit.saturating_sub(SHORT / 2) / 2);
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
            let large = self.large_of(&packet, received.len - room, pool);
            pool.free(packet);
            let Some(large) = large else {
                self.counters.rx_dropped += 1;
                return Ok(None);
            };
            packet = large;
        }
        Ok(self.describe(packet, received, pool))
    }

    /// A large frame of what an ordinary one held and `rest` bytes of overflow.
    #[cold]
    fn large_of(&self, packet: &Packet, rest: usize, pool: &mut Pool) -> Option<Packet> {
        let head = pool.bytes(packet).to_vec();
        let mut large = pool.allocate_for(head.len() + rest)?;
        let bytes = pool.append(&mut large, head.len() + rest)?;
        bytes[..head.len()].copy_from_slice(&head);
        bytes[head.len()..].copy_from_slice(&self.overflow[..rest]);
        Some(large)
    }

    /// Takes the virtio header off and notes what it says.
    fn describe(
        &mut self,
        mut packet: Packet,
        received: Received,
        pool: &mut Pool,
    ) -> Option<Packet> {
        let medium = self.capabilities.medium;
        let said = pool
            .bytes(&packet)
            .split_first_chunk::<{ vnet::HEADER_LEN }>()
            .and_then(|(header, frame)| vnet::parse(*header, medium, frame).ok());
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
