//! What a machine must know of the device at one of its ports.
//!
//! Left out: devices.

/// What a device carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Ethernet frames, without their check sequence.
    Ethernet,
    /// Bare IP packets of either family.
    Ip,
}

/// What a device carries, and what it does by itself.
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCapabilities {
    /// What it carries.
    pub medium: Medium,
    /// Largest IP packet, in bytes, without the link header.
    pub mtu: u32,
    /// Accepts packets with [`crate::packet::ChecksumState::Partial`].
    pub checksum_tx: bool,
    /// Accepts TCP super-segments.
    pub segments_tcp: bool,
    /// Accepts UDP super-segments.
    pub segments_udp: bool,
    /// May deliver super-segments, and packets whose checksum is partial.
    pub coalesces: bool,
}

impl DeviceCapabilities {
    /// A plain device: one frame at a time, checksums complete.
    pub const fn plain(medium: Medium, mtu: u32) -> Self {
        Self {
            medium,
            mtu,
            checksum_tx: false,
            segments_tcp: false,
            segments_udp: false,
            coalesces: false,
        }
    }
}
