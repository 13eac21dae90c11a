//! Where datagrams turn round: a host with one socket that returns whatever it gets.

use std::net::SocketAddr;

use plumb_host::harness::mirror::peer::MirrorError;
use plumb_host::harness::spec::Turn;
use plumb_stack::host::Host;
use plumb_stack::node::Node;
use plumb_stack::service::{Service, Services, Watch};
use plumb_stack::udp::{CopyPolicy, UdpOptions};

use super::edge::Edges;

/// A host, the service at its one socket, and the edges between them.
pub(super) type Turnpike = Node<Services<Edges>>;

impl Watch for Edges {
    #[inline]
    fn on_datagram(&mut self) {
        self.on_socket();
    }
}

/// A mirror at `local`.
pub(super) fn turnpike(
    mut host: Host,
    local: SocketAddr,
    turn: Turn,
    edges: Edges,
) -> Result<Turnpike, MirrorError> {
    let service = match turn {
        Turn::Fused => Service::Echo(CopyPolicy::Fused),
        Turn::Separate => Service::Echo(CopyPolicy::Separate),
        Turn::CopiedUnsummed => Service::Echo(CopyPolicy::NoChecksum),
        Turn::Udp | Turn::UdpUnsummed | Turn::Swap => Service::Mirror,
    };
    let mut application = Services::new(edges);
    application
        .open(&mut host, service, local, UdpOptions::default())
        .map_err(|error| MirrorError::Broken(error.to_string()))?;
    Ok(Node { host, application })
}
