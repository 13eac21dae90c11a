//! Where datagrams turn round: a host with one socket that returns whatever it gets.

use std::net::SocketAddr;

use plumb_harness::mirror::mirror_process::MirrorError;
use plumb_harness::spec::TurnaroundPoint;
use plumb_stack::host::IpHost;
use plumb_stack::service::{HostNode, ServiceObserver, UdpService, UdpServices};
use plumb_stack::udp::{CopyPolicy, UdpOptions};

use super::edge_timer::StackEdgeTimer;

/// A host, the service at its one socket, and the edges between them.
pub(super) type MirrorNode = HostNode<UdpServices<StackEdgeTimer>>;

impl ServiceObserver for StackEdgeTimer {
    #[inline]
    fn on_datagram(&mut self) {
        self.on_socket();
    }
}

/// A mirror at `local`.
pub(super) fn mirror_node(
    mut host: IpHost,
    local: SocketAddr,
    turn: TurnaroundPoint,
    edges: StackEdgeTimer,
) -> Result<MirrorNode, MirrorError> {
    let service = match turn {
        TurnaroundPoint::Fused => UdpService::Echo(CopyPolicy::Fused),
        TurnaroundPoint::Separate => UdpService::Echo(CopyPolicy::Separate),
        TurnaroundPoint::CopiedUnsummed => UdpService::Echo(CopyPolicy::NoChecksum),
        TurnaroundPoint::Udp | TurnaroundPoint::UdpUnsummed | TurnaroundPoint::Swap => {
            UdpService::Mirror
        }
    };
    let mut application = UdpServices::new(edges);
    application
        .open(&mut host, service, local, UdpOptions::default())
        .map_err(|error| MirrorError::Failed(error.to_string()))?;
    Ok(HostNode { host, application })
}
