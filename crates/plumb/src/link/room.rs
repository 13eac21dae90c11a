//! Room for the frames inside a link: how much it may need, and whether there is that much.
//!
//! Never more than half of the memory that is free, and only what a limited rate must have is taken
//! at the beginning: the rest is address space until frames lie in it. Left out: the estimate
//! (`plumb_link::memory`).

use plumb_link::memory::Allowance;
use plumb_link::spec::{LinkSpec, SpecError};
use plumb_wire::packet::{Frames, Pool};

/// Bytes around an IP packet in its frame: link headers, a virtio header, the pool's headroom.
const AROUND: u32 = 512;
/// Bytes of Ethernet's header.
const ETHERNET: u32 = 14;
/// Frames beside those inside the link: what devices and the driver have in hand.
const IN_HAND: u64 = 2_048;
/// Frames that are there from the beginning, at least.
const LEAST: u64 = 16_384;
/// Bytes of frames that may be used later, for a change of the link while it runs: of all lines
/// together.
const LATER_MAX: u64 = 1 << 30;
/// The link that a line without a rate and a delay may become.
const LATER: &str = "delay=1s";
/// Frames for super-segments.
const LARGE: u32 = 512;
/// Taken to be there where the kernel does not say.
const AVAILABLE: u64 = 1 << 30;

/// Memory for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    frame_len: u32,
    frame_size: u32,
    count: u32,
    /// Of those, the ones that are taken at the beginning.
    written: u32,
    lines: u64,
}

impl Room {
    /// For a network of so many lines like each of `specs` in turn, between devices of this MTU.
    ///
    /// # Errors
    /// [`SpecError::Memory`]: it may need more than half of the memory that is free.
    pub fn new(specs: &[&LinkSpec], mtu: u32, lines: u64) -> Result<Self, SpecError> {
        let lines = lines.max(1);
        let (frame_len, frame_size) = (mtu + ETHERNET, (mtu + AROUND).next_power_of_two());
        let allowed = available() / 2;
        let (mut least, mut wanted) = (0, 0);
        for spec in specs {
            spec.check_memory(frame_len, frame_size, allowed / lines)?;
            let need = spec.need(frame_len, frame_size);
            least = least.max(need.frames.saturating_mul(lines));
            wanted = wanted.max(need.wanted.saturating_mul(lines));
        }
        let size = u64::from(frame_size);
        let later: LinkSpec = LATER.parse().expect("a link");
        let later = later.need(frame_len, frame_size).wanted.saturating_mul(lines);
        let written = (least + IN_HAND).max(LEAST);
        let reserved = (wanted + IN_HAND).max(later.min(LATER_MAX / size)).min(allowed / size);
        let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let (count, written) = (short(reserved.max(written)), short(written));
        Ok(Self { frame_len, frame_size, count, written, lines })
    }

    /// The pool.
    pub fn pool(&self) -> Pool {
        let frames = Frames { count: self.count, size: self.frame_size, large: LARGE };
        Pool::reserve(frames, self.written)
    }

    /// What there is for each line of whatever the link becomes while it runs.
    pub fn allowance(&self) -> Allowance {
        let bytes = u64::from(self.count) * u64::from(self.frame_size) / self.lines;
        Allowance { frame_len: self.frame_len, frame_size: self.frame_size, bytes }
    }
}

/// Bytes of memory that are free, as the kernel estimates it (proc(5), MemAvailable).
fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kibibytes.map_or(AVAILABLE, |kibibytes| kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_needs_more_than_there_is_has_no_room_and_says_how_much_it_needs() {
        let spec: LinkSpec = "rate=400gbit,delay=1h".parse().unwrap();
        let error = Room::new(&[&spec], 1_500, 1).unwrap_err().to_string();
        assert!(error.contains("GiB") && error.contains("lower"), "{error}");
    }

    #[test]
    fn a_link_that_runs_becomes_only_what_its_room_is_enough_for() {
        let small: LinkSpec = "rate=1mbit,delay=10ms".parse().unwrap();
        let room = Room::new(&[&small], 1_500, 2).unwrap().allowance();
        room.check(&small).unwrap();
        let large: LinkSpec = "rate=10gbit,delay=1s".parse().unwrap();
        assert!(room.check(&large).is_err());
    }

    #[test]
    fn a_link_without_a_rate_may_become_as_long_as_one_likes_and_takes_no_memory_for_it() {
        let plain: LinkSpec = "delay=0".parse().unwrap();
        let room = Room::new(&[&plain], 1_500, 1).unwrap();
        for delay in ["30ms", "1s", "1h"] {
            let long: LinkSpec = format!("delay={delay}").parse().unwrap();
            room.allowance().check(&long).unwrap();
            let own = Room::new(&[&long], 1_500, 1).unwrap();
            assert_eq!((own.written, u64::from(room.written)), (room.written, LEAST));
        }
    }
}
