//! `plumb stack`: Linux's own `ping` and sockets as its peers, over TAP and virtual Ethernet, both families; captures; and
//! what is said when something is in the way.

mod errors;
mod lab;
mod memory;
mod peers;
mod replay;
mod test_bed;
mod unprivileged;
