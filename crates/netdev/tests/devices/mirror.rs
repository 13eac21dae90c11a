//! A mirror of UDP at the level of frames: what came goes back to whoever sent it, checksum
//! untouched, for a sum does not change when addresses and ports change places.

use plumb_base::time::{Instant, Span};
use plumb_netdev::device::{Device, DeviceError};
use plumb_wire::packet::{Batch, Pool};

/// Waits once, and sends back what came; how many packets.
pub fn turn(
    device: &mut impl Device,
    pool: &mut Pool,
    batch: &mut Batch,
    max: usize,
) -> Result<usize, DeviceError> {
    device.wait(Some(Span::from_ms(100)), pool)?;
    let count = device.receive(Instant::ORIGIN, batch, max, pool)?;
    let mut index = 0;
    while index < batch.len() {
        if reflect(pool.bytes_mut(&mut batch[index])) {
            index += 1;
        } else {
            pool.free(batch.swap_remove(index));
        }
    }
    if !batch.is_empty() {
        device.transmit(batch, pool)?;
    }
    Ok(count)
}

/// Turns a UDP datagram's frame around; whether it is one.
fn reflect(frame: &mut [u8]) -> bool {
    let (addresses, len) = match frame {
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x08, 0x00, 0x45, ..] if frame[23] == 17 => (26, 4),
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xdd, ..] if frame[20] == 17 => (22, 16),
        _ => return false,
    };
    swap(&mut frame[..12]);
    swap(&mut frame[addresses..addresses + 2 * len]);
    let ports = addresses + 2 * len;
    swap(&mut frame[ports..ports + 4]);
    true
}

/// Lets the halves of a range change places.
fn swap(bytes: &mut [u8]) {
    let (left, right) = bytes.split_at_mut(bytes.len() / 2);
    left.swap_with_slice(right);
}
