//! The gateway: how programs in a namespace of their own reach the network outside, through a link.
//!
//! The far side of the link takes packets for every address as its own, so that the kernel there
//! ends each connection; for each, a second one is made outside, and bytes are carried between the
//! two. It needs no root, no packet filter and no address translation. A connection is begun
//! inside only once it stands outside, so that "refused" and a slow answer are what the program
//! sees. Nothing listens but in the private namespace. There is room for so many flows; a new one
//! beyond that takes the place of the one that can best be spared, and where none can, it is dropped.
//! Left out: what is neither TCP nor UDP (an echo request to an address outside is dropped and
//! counted).

mod datagram;
mod engine;
mod eviction;
mod gate;
mod outside;
mod relay;
mod resolver;
mod stream;
mod table;
mod target;

pub use engine::{Gateway, GatewayError, Settings};
pub use eviction::Reason;
pub use gate::Gate;
pub use outside::{Outside, serve as serve_outside};
pub use resolver::Resolvers;
pub use table::Counts;
pub use target::Targets;
