//! iperf3's protocol, as client and as server: what it measures, its messages, its report.
//!
//! Written from a description of the protocol and checked against the program itself. The messages and
//! the server's session are pure; the engines are threads on plain sockets, one for each stream as far as there are CPUs. Where
//! the protocol leaves the receiver's count open, the receiver drains first: what was sent before the
//! end counts as received. Left out: SCTP, multipath TCP, files as a source, and the password, which
//! the protocol sends without saying whom it is talking to.

pub mod client;
pub mod control;
#[cfg(test)]
mod fuzz;
pub mod message;
pub mod parameters;
pub mod record;
pub mod report;
pub mod results;
pub mod server;
pub mod session;
pub mod sockets;
pub mod stream;
pub mod transfer;

/// The port that iperf3 listens on.
pub const PORT: u16 = 5201;

/// How this program names itself where the protocol asks for a version.
pub const VERSION: &str = concat!("plumb ", env!("CARGO_PKG_VERSION"));

/// The number that the protocol gives to the stream at `index`, counted from 0: 1, 3, 4, 5, ….
///
/// The gap is in every version there is, so both sides have to agree on it.
pub fn stream_id(index: usize) -> u32 {
    let number = u32::try_from(index).unwrap_or(u32::MAX - 2);
    if number == 0 { 1 } else { number + 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_stream_has_the_number_three() {
        let ids: Vec<u32> = (0..4).map(stream_id).collect();
        assert_eq!(ids, [1, 3, 4, 5]);
    }
}
