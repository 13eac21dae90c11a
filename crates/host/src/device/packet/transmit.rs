//! Sending: one send(2) for a packet, one sendmmsg(2) for several, straight from the pool's frames.

use std::io;
use std::os::fd::AsFd;

use plumb_sys::packet_socket::{self, PacketOption, SEND_BATCH};
use plumb_wire::packet::{Packet, Pool};

use super::{DeviceError, PacketDevice, is_absence, vnet};

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
            // What the kernel did not take stands in the way of the others no longer.
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
                    Some(code) if is_absence(code) => {
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
