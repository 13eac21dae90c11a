//! Measurements between two hosts: what the agent and its client say to each other, and what
//! each side does meanwhile.
//!
//! `protocol` is pure: messages, sessions and their deadlines, without a socket. The engines
//! (`measure`, `stamp`, `iperf3`, `http`) use plain blocking sockets, a thread for each, so that
//! nothing is between a clock read and the kernel. Left out: namespaces and emulated links
//! (`plumb-host`), storing and drawing (`plumb`).

#![forbid(unsafe_code)]
