//! `plumb stack` with Linux as its peer, over TAP and virtual Ethernet, both families; captures; errors.

mod attack;
mod errors;
mod iperf3;
mod lab;
mod memory;
mod peers;
mod replay;
mod tcp;
pub mod test_bed;
mod unprivileged;
