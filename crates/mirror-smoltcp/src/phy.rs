//! What smoltcp's tokens are over frames that plumb's devices bring.
//!
//! Frames are handed to smoltcp where they lie: it is given no copy that plumb's stack is spared.

use smoltcp::phy::{self, DeviceCapabilities, Medium};

/// A frame that has arrived.
pub struct RxToken<'a>(pub &'a [u8]);

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F>(self, f: F) -> R
    where
        F: FnOnce(&[u8]) -> R,
    {
        f(self.0)
    }
}

/// Ethernet without limits on bursts, and every checksum left to the stack.
pub fn capabilities(mtu: usize) -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ethernet;
    // smoltcp counts the Ethernet header.
    capabilities.max_transmission_unit = mtu + 14;
    capabilities
}
