//! A connection that an application opened: whether it makes progress, why it failed, and its figures over time.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use plumb_base::time::{Instant, Span};
use plumb_stack::host::{DeliveryFailureKind, HostEvent, IpHost};
use plumb_stack::tcp::config::TcpConfig;
use plumb_stack::tcp::{TcpEvent, TcpId, TcpInfo, TcpOpenError, TcpSocketError, TcpState};
use plumb_wire::packet::Pool;

use super::echo_test::{failure_text, neighbor_protocol};

/// Samples kept; when there are more, every second one is dropped and the interval doubled.
const SAMPLES_MAX: usize = 1_000;
/// Time between the first samples.
const SAMPLE_INTERVAL: Span = Span::from_ms(1);

/// Why a connection did not do what it was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamFailure {
    /// A RST in answer to the SYN.
    #[error("{0} refuses connections: nothing listens there; start the service, or check the port")]
    Refused(SocketAddr),
    /// A RST on an open connection.
    #[error("{0} reset the connection; see what the program there says")]
    Reset(SocketAddr),
    /// A router reported it.
    #[error("{remote} cannot be reached: {why}; check the route and any firewall between", why = failure_text(*.kind))]
    Unreachable {
        /// The peer.
        remote: SocketAddr,
        /// What was reported.
        kind: DeliveryFailureKind,
    },
    /// The next hop is not there.
    #[error(
        "{address} does not answer {protocol}; check that it is up and on the network of this device",
        protocol = neighbor_protocol(*.address)
    )]
    NoNeighbor {
        /// The next hop.
        address: IpAddr,
    },
    /// No answer to the SYN.
    #[error(
        "{remote} did not answer within {timeout}: it is down, a firewall drops packets, or the queue of its listener is full; \
         try again, or give a longer --timeout"
    )]
    NoAnswer {
        /// The peer.
        remote: SocketAddr,
        /// How long was waited.
        timeout: Span,
    },
    /// An open connection made no progress.
    #[error(
        "the connection to {remote} made no progress for {timeout}: the peer is gone or does not read; \
         give a longer --timeout if it is only slow"
    )]
    Stalled {
        /// The peer.
        remote: SocketAddr,
        /// How long was waited.
        timeout: Span,
    },
}

/// The state of a connection at one moment. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFigures {
    /// Time since the connection was opened.
    pub at: Span,
    /// The connection's figures.
    pub info: TcpInfo,
}

/// Takes a sample at an interval that grows with the duration.
#[derive(Debug)]
struct StreamSampler {
    interval: Span,
    next: Instant,
    samples: Vec<StreamFigures>,
}

impl StreamSampler {
    fn push(&mut self, now: Instant, figures: &StreamFigures) {
        if self.samples.len() >= SAMPLES_MAX {
            let mut is_kept = false;
            self.samples.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.interval = self.interval * 2;
        }
        self.samples.push(*figures);
        self.next = now + self.interval;
    }
}

/// A connection opened by an application.
#[derive(Debug)]
pub struct StreamClient {
    /// The connection.
    pub id: TcpId,
    /// The peer.
    pub remote: SocketAddr,
    /// Our end.
    pub local: SocketAddr,
    /// Messages for the user.
    pub notices: Vec<String>,
    timeout: Span,
    begun: Instant,
    /// When it was open.
    opened: Option<Instant>,
    /// Bytes moved, and when that was last more than before.
    progress: (u64, Instant),
    failure: Option<StreamFailure>,
    sampler: StreamSampler,
    last: Option<TcpInfo>,
}

impl StreamClient {
    /// Opens a connection, given up after `timeout` without progress.
    ///
    /// # Errors
    /// [`TcpOpenError`].
    pub fn open(
        host: &mut IpHost,
        now: Instant,
        remote: SocketAddr,
        (config, timeout): (TcpConfig, Span),
        pool: &Pool,
    ) -> Result<Self, TcpOpenError> {
        let any = match remote {
            SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
            SocketAddr::V6(_) => SocketAddr::from(([0_u16; 8], 0)),
        };
        let id = host.tcp_connect(now, any, remote, Arc::new(config), pool)?;
        let sampler = StreamSampler { interval: SAMPLE_INTERVAL, next: now, samples: Vec::new() };
        Ok(Self {
            id,
            remote,
            local: host.tcp_local(id).unwrap_or(any),
            notices: Vec::new(),
            timeout,
            begun: now,
            opened: None,
            progress: (0, now),
            failure: None,
            sampler,
            last: None,
        })
    }

    /// Collects the host's events, looks whether the connection has failed, and samples it; whether anything happened to it.
    pub fn watch(&mut self, now: Instant, host: &mut IpHost) -> bool {
        let mut is_news = false;
        while let Some(event) = host.poll_tcp_event() {
            is_news |= match event {
                TcpEvent::Readable(id) | TcpEvent::Writable(id) | TcpEvent::Closed(id) => {
                    id == self.id
                }
                TcpEvent::Acceptable(_) => false,
            };
        }
        let state = host.tcp_state(self.id).unwrap_or(TcpState::Closed);
        if self.opened.is_none() && state.is_synchronized() {
            self.opened = Some(now);
        }
        self.take_host_events(host);
        if let Some(error) = host.tcp_error(self.id) {
            self.on_error(error);
        }
        if now >= self.sampler.next {
            self.sample(now, host);
        }
        if self.failure.is_none() && now >= self.progress.1 + self.timeout {
            // Bytes moved since the last sample count as progress.
            self.sample(now, host);
            if now >= self.progress.1 + self.timeout {
                self.failure = Some(self.timed_out());
            }
        }
        is_news
    }

    /// Looks at the connection now.
    pub fn sample(&mut self, now: Instant, host: &IpHost) {
        let Some(info) = host.tcp_info(self.id) else { return };
        let moved = info.delivered + info.received.bytes;
        if moved > self.progress.0 || (self.progress.0 == 0 && self.opened == Some(now)) {
            self.progress = (moved, now);
        }
        self.last = Some(info);
        let at = now.saturating_since(self.begun);
        self.sampler.push(now, &StreamFigures { at, info });
    }

    fn take_host_events(&mut self, host: &mut IpHost) {
        while let Some(event) = host.poll_event() {
            match event {
                HostEvent::NeighborFailed { address, .. } if self.opened.is_none() => {
                    self.failure.get_or_insert(StreamFailure::NoNeighbor { address });
                }
                HostEvent::AddressConflict { address, mac, .. } => {
                    self.notices.push(super::services::address_conflict(address, mac));
                }
                _ => {}
            }
        }
    }

    fn on_error(&mut self, error: TcpSocketError) {
        let remote = self.remote;
        let failure = match error {
            TcpSocketError::Refused => StreamFailure::Refused(remote),
            TcpSocketError::Unreachable(kind) => StreamFailure::Unreachable { remote, kind },
            TcpSocketError::TimedOut => self.timed_out(),
            TcpSocketError::Reset | TcpSocketError::Shutdown | TcpSocketError::Closed => {
                StreamFailure::Reset(remote)
            }
        };
        self.failure.get_or_insert(failure);
    }

    fn timed_out(&self) -> StreamFailure {
        let (remote, timeout) = (self.remote, self.timeout);
        if self.opened.is_some() {
            StreamFailure::Stalled { remote, timeout }
        } else {
            StreamFailure::NoAnswer { remote, timeout }
        }
    }

    /// Why it failed, if it did.
    pub const fn failure(&self) -> Option<StreamFailure> {
        self.failure
    }

    /// When it has to be looked at again.
    pub fn deadline(&self) -> Instant {
        self.sampler.next.min(self.progress.1 + self.timeout)
    }

    /// Time from the SYN until the connection was open.
    pub fn setup(&self) -> Option<Span> {
        self.opened.map(|opened| opened.saturating_since(self.begun))
    }

    /// When the SYN was sent.
    pub const fn begun(&self) -> Instant {
        self.begun
    }

    /// When it was open.
    pub const fn opened(&self) -> Option<Instant> {
        self.opened
    }

    /// The latest figures.
    pub const fn figures(&self) -> Option<TcpInfo> {
        self.last
    }

    /// Figures over time.
    pub fn samples(&self) -> &[StreamFigures] {
        &self.sampler.samples
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use plumb_stack::host::HostConfig;
    use plumb_stack::interface::InterfaceConfig;
    use plumb_wire::machine::{Machine as _, PortId};
    use plumb_wire::packet::PoolConfig;

    use super::*;

    #[test]
    fn silent_peer_fails_at_the_timeout_and_samples_are_bounded() {
        let config = InterfaceConfig::ip(1_500).with_address([10, 0, 0, 1], 24);
        let mut host = IpHost::new(HostConfig::default(), Seed(1));
        host.add_interface(&config).unwrap();
        let mut pool = Pool::new(PoolConfig::default());
        let (mut now, timeout) = (Instant::ORIGIN + Span::from_secs(1), Span::from_secs(5));
        let begun = now;
        let remote = SocketAddr::from(([10, 0, 0, 2], 80));
        let mut client =
            StreamClient::open(&mut host, now, remote, (TcpConfig::default(), timeout), &pool)
                .unwrap();
        let mut batch = Vec::new();
        while client.failure().is_none() {
            host.poll_packets(now, PortId(0), &mut batch, usize::MAX, &mut pool);
            pool.free_all(&mut batch);
            now = host.deadline().into_iter().chain([client.deadline()]).min().unwrap();
            host.handle_deadline(now, &mut pool);
            client.watch(now, &mut host);
        }
        assert_eq!(client.failure(), Some(StreamFailure::NoAnswer { remote, timeout }));
        assert_eq!(now, begun + timeout);
        assert!(client.samples().len() <= SAMPLES_MAX);
        let last = client.samples().last().unwrap().at;
        assert!(last >= timeout - Span::from_ms(20), "{last}");
    }
}
